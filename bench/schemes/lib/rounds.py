"""Running rows in turn, and tables of medians."""

import json
import os
import statistics
import sys
import tempfile

from gauge import Gauge, tree
from manager import Manager


def options_of(parser, rounds):
    """The options that all benchmarks of schemes have."""
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--bin", default=os.path.join(here, "../../../target/release"), help="folder of the built programs")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--rows", metavar="ROW,...", help="only these rows; the first, which is compared with, always runs")
    parser.add_argument("--quick", action="store_true", help="one round with a quarter of the work: does it run at all")
    parser.add_argument("--json", metavar="FILE", help="also write every single run there")


def finish_options(parser, rows_of):
    """Parses, applies --quick, and narrows the rows, which may depend on options."""
    options = parser.parse_args()
    rows = rows_of(options)
    options.part = 1.0
    if options.quick:
        options.rounds, options.part = 1, 0.25
    if options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    first = next(iter(rows))
    names = options.rows.split(",") if options.rows else list(rows)
    unknown = [name for name in names if name not in rows]
    if unknown:
        parser.error(f"no row called {', '.join(unknown)}; there are {', '.join(rows)}")
    options.chosen = [first] + [name for name in names if name != first]
    return options


def binaries_of(options, names):
    """Name -> path of the built programs."""
    return {name: os.path.join(options.bin, name) for name in names}


def run_once(make, arguments, isotherm, group, swap, folder):
    """One run of a program under `isotherm ARGUMENTS`, or alone. Returns its figures."""
    with make() as program:
        group.add(tree(program.pid))
        with Manager(isotherm, arguments, program, folder) as manager:
            with Gauge(program.pid, group, swap) as gauge:
                manager.begin()
                seconds = program.work()
                manager.end()
        stats, reasons = manager.stats()
        program.check()
    cost = {"cpu": manager.cpu, "moving": manager.moving}
    return {"seconds": seconds, **cost, "stats": stats, "idle_reasons": reasons, **gauge.figures()}


def interleave(title, rows, options, run):
    """Runs every row `rounds` times, each round beginning with another. Returns {row: [figures]}."""
    runs = {name: [] for name in options.chosen}
    for number in range(options.rounds):
        turn = number % len(options.chosen)
        for name in options.chosen[turn:] + options.chosen[:turn]:
            print(f"\r{title}: round {number + 1} of {options.rounds}, {name:20}", end="", file=sys.stderr, flush=True)
            runs[name].append(run(rows[name]))
    print(file=sys.stderr)
    return runs


def ratios(runs, base, figure):
    """A row's figure divided by that of the base row in the same round."""
    return [row[figure] / other[figure] for row, other in zip(runs, base) if other[figure]]


def median(values):
    """The median; None of nothing."""
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def total(row, key):
    """A counter, summed over the schemes of a run; None where none has it."""
    values = [s[key] for s in row["stats"] if s.get(key) is not None]
    return sum(values) if values else None


def table(head, lines):
    """Prints columns: the first to the left, the others to the right."""
    cells = [head] + [[_text(c) for c in line] for line in lines]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for row in cells:
        print(row[0].ljust(widths[0]) + "".join(f"  {c.rjust(w)}" for c, w in zip(row[1:], widths[1:])))


def _text(cell):
    return "-" if cell is None else str(cell)


def spread(values, form="{:.3f}"):
    """Median and extremes, for people."""
    if not values:
        return None
    middle = form.format(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({form.format(min(values))}-{form.format(max(values))})"


def work_folder():
    """Where sockets, logs and the files of schemes go."""
    return tempfile.TemporaryDirectory(prefix="isotherm-bench-")


def write_json(options, everything):
    """--json."""
    if options.json:
        with open(options.json, "w") as f:
            json.dump(everything, f, indent=1)


def machine(swap=None):
    """The line that says what was measured on."""
    text = f"kernel {os.uname().release}, {os.cpu_count()} cores"
    if swap:
        text += f", swap: zram with {swap.describe()}, {swap.mib} MiB"
    return text
