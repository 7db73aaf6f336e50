#!/usr/bin/env python3
"""The agent of the machine beside a loop that reclaims by pressure, and beside the kernel's DAMON, in a guest with Debian's kernel 6.12
under QEMU's emulation.

A redis, of whose records a part is asked for (zipfian, 80 % reads, one at a time and so many a second, every value compared), and a
program that uses a known quarter of its memory, each in a control group of its own; zram to swap to. Two tables, each from one guest a
round, in which rows take turns to be first:

reclaim: nobody; `isotherm node` with a rule; a loop as Meta's senpai is described in the paper on TMO (bench/node/senpai.sh), with
several targets of pressure. What is saved, what stalls, latencies. Ratios are to the first row of the same round.
watch:   nobody; `isotherm node`; DAMON on physical memory with its own intervals. What it costs, and what is called idle for 10 s,
beside what is.

It is emulation: compare rows, not machines. By default the guest has one processor whose clock is what it has executed (4 ns an
instruction), so that figures do not depend on what else this machine does. Whoever watches takes its time from the redis, and
caches cost nothing. With --clock the guest has two processors and the true time.
"""

import argparse
import concurrent.futures
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
sys.path[1:1] = [os.path.join(ROOT, d) for d in ("bench/lru", "bench/schemes/lib", "tests/guest")]

import kernels
import overcommit
import pair
import rounds
from confidence import ratio_text
from overcommit import GROUP
from pair import BATCH, HOT, MIB, SIZE

STATIC = os.path.join(ROOT, "target/static")
BINARIES = {name: os.path.join(STATIC, name) for name in ("isotherm", "ycsb_client")}
TABLES = ("reclaim", "watch")
GROUPS = ("store", "batch")
QUANTILES = ("p50_us", "p99_us", "p999_us")
# Emulation of one second takes a few, more where others use the machine.
SLOWEST = 20
# What a value of 1000 bytes takes in redis at least: the size class of its allocator. For what must be idle.
VALUE_BYTES = 1024


def rows_of(table, options):
    """Name -> (kind of `pair`, command)."""
    if table == "watch":
        rows = {f"isotherm node {budget}": ("node", f"isotherm node --quiet --cpu-budget {budget}") for budget in options.budgets}
        return {"alone": ("none", ""), **rows, "DAMON": ("damon", "")}
    rows = {"alone": ("none", ""), "isotherm node": ("rules", f"isotherm node --quiet --cpu-budget {options.budgets[0]} -c node.toml")}
    for target in options.targets:
        loop = f"sh /bin/senpai.sh {options.interval} {options.ratio * 1e4:.0f} {target * 1e4:.0f} {GROUP} {BATCH}"
        rows[f"senpai {target:g} %"] = ("other", loop)
    return rows


def figures(run, row, kind):
    """What counts of one run."""
    found = {
        "throughput": run.throughput,
        **{key: run.answers[key] for key in QUANTILES},
        "cpu": run.manager_seconds() / run.seconds,
        "spent": run.spent(),
        "rss": run.manager_rss(),
        "zram": run.compressed(),
        **{f"current_{group}": run.current(group) for group in GROUPS},
        **{f"stalled_{group}": run.stalled(group) for group in GROUPS},
        **{f"faults_{group}": run.faults(group) for group in GROUPS},
    }
    if kind == "damon":
        looks = list(run.damon_idle())
        found["idle"] = [idle for idle, _, _ in looks]
        found["regions"] = [regions for _, regions, _ in looks]
        found["memory"] = looks[-1][2]
        found["settings"] = run.text("damon").split("\n")
    if kind == "node":
        looks = list(run.node_idle())
        if not all({"store", "batch", "all"} <= idle.keys() for idle, _ in looks):
            raise RuntimeError(f"{row}: ps lacks a group: {looks}; {run.text('log')}")
        found["idle"] = [idle for idle, _ in looks]
        found["memory"] = looks[-1][1]
    if kind == "rules":
        found["status"] = run.text("ctl")
    if kind == "other":
        found["log"] = run.text("log")
    return found


def one_round(kernel, number, table, options):
    """All rows in one guest; each round begins with another one."""
    rows = rows_of(table, options)
    names = list(rows)
    turn = number % len(names)
    order = names[turn:] + names[:turn]
    slug = {name: f"run{i}" for i, name in enumerate(names)}
    text = pair.rules_text("node.toml", options.min_age, options.goal)
    text += pair.idle_text() * options.idle
    text += "".join(pair.run_text(slug[name], *rows[name], options, number + 1) for name in order)
    machine = {} if options.clock else overcommit.COUNTED
    # Where nobody reclaims only regions and intervals have to settle.
    options = argparse.Namespace(**{**vars(options), "settle": min(options.settle, 60.0) if table == "watch" else options.settle})
    each = options.settle + options.window + (options.records + options.asked) / 3000 + 30
    files = pair.boot(kernel, text, BINARIES, HERE, timeout_s=240 + SLOWEST * len(rows) * each, **machine)
    if options.files:
        folder = os.path.join(options.files, f"{table}-{number + 1}")
        os.makedirs(folder, exist_ok=True)
        for name, content in files.items():
            with open(os.path.join(folder, name), "w") as f:
                f.write(content)
    return {name: figures(pair.Run(slug[name], files), name, rows[name][0]) for name in names}


def middle(found, key):
    """The median over the rounds."""
    return statistics.median(f[key] for f in found)


def ratio(found, first, key):
    """Against the first row of the same round; None of that itself."""
    return None if found is first else ratio_text([a[key] / b[key] for a, b in zip(found, first)])


def latency_cells(found, first):
    """Throughput and latency of the redis."""
    return [f"{middle(found, 'throughput'):.0f}", ratio(found, first, "throughput"),
            *(f"{middle(found, key):.0f}" for key in QUANTILES), *(ratio(found, first, key) for key in QUANTILES[1:]),
            f"{middle(found, 'cpu'):.2%}", f"{middle(found, 'spent'):.2f}"]  # fmt: skip


LATENCY_HEAD = ["op/s", "(to alone)", "p50 us", "p99 us", "p99.9 us", "p99", "p99.9", "its CPU", "CPU s in all"]


def saved(found, first, group=None, net=False):
    """Part of the first row's memory that is saved, in each round: of a group or of both, less what zram takes with `net`."""
    groups = GROUPS if group is None else (group,)
    for f, alone in zip(found, first):
        was = sum(alone[f"current_{g}"] for g in groups)
        now = sum(f[f"current_{g}"] for g in groups)
        yield 1 - (now + (f["zram"] - alone["zram"] if net else 0)) / was


def show_reclaim(runs):
    """The table of who takes memory."""
    first = runs["alone"]
    lines = []
    for row, found in runs.items():
        wanted = (("store", False), ("batch", False), (None, False), (None, True))
        parts = [list(saved(found, first, group, net)) for group, net in wanted]
        lines.append([row, *(f"{middle(found, f'current_{g}') / MIB:.0f}" for g in GROUPS),
                      *((f"{statistics.median(p):.0%}" if found is not first else None) for p in parts),
                      *(f"{middle(found, f'stalled_{g}'):.3%}" for g in GROUPS), *(f"{middle(found, f'faults_{g}'):.1f}" for g in GROUPS),
                      f"{middle(found, 'rss') / MIB:.0f}"])  # fmt: skip
    rounds.table(["", "redis MiB", "batch MiB", "saved redis", "batch", "both", "less zram", "stall redis", "batch", "faults/s redis", "batch",
                  "its MiB"], lines)  # fmt: skip
    print()
    rounds.table(["", *LATENCY_HEAD], [[row, *latency_cells(found, first)] for row, found in runs.items()])
    judge_reclaim(runs, first)


def judge_reclaim(runs, first):
    """What one gets at equal stall, and the aim."""
    ours = runs.get("isotherm node")
    if ours is None:
        return

    def stall(found):
        return statistics.median(sum(f[f"stalled_{g}"] for g in GROUPS) for f in found)

    def net(found):
        return statistics.median(saved(found, first, None, True))

    print(f"\nisotherm node: {net(ours):.0%} saved less zram, stalls of both groups {stall(ours):.3%}.")
    loops = {row: found for row, found in runs.items() if row.startswith("senpai")}
    equal = [row for row, found in loops.items() if stall(found) <= stall(ours)]
    if equal:
        best = max(equal, key=lambda row: net(loops[row]))
        print(f"The loop that saves most of those with no more stall: {best}, {net(loops[best]):.0%} with {stall(loops[best]):.3%}.")
    elif loops:
        least = min(loops, key=lambda row: stall(loops[row]))
        print(f"No loop stalls as little; {least} least: {net(loops[least]):.0%} saved with {stall(loops[least]):.3%}.")


def show_watch(runs, options):
    """The table of who watches: its cost."""
    first = runs["alone"]
    rounds.table(["", *LATENCY_HEAD, "its MiB"],
                 [[row, *latency_cells(found, first), f"{middle(found, 'rss') / MIB:.0f}"] for row, found in runs.items()])  # fmt: skip
    show_truth(runs, options)


def show_truth(runs, options):
    """What is called idle, and what is."""

    def text(values):
        values = [v / MIB for v in values]
        return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"

    def looks(row, value):
        return text([value(idle) for f in runs[row] for idle in f["idle"]]) if row in runs else None

    nodes = [row for row in runs if row.startswith("isotherm node")]

    def node(key):
        """Of each node; and what it says itself that may be true."""
        for row in nodes:
            least, most = ([idle[key][i] / MIB for f in runs[row] for idle in f["idle"]] for i in (1, 2))
            yield f"{looks(row, lambda idle: idle[key][0])} [{statistics.median(least):.0f}, {statistics.median(most):.0f}]"

    def damon(*keys):
        return looks("DAMON", lambda idle: sum(idle[k] for k in keys))

    at_least = (options.records - options.asked) * VALUE_BYTES
    # What the program itself is, its file included, may rest or not.
    batch = [idle["batch"][3] - HOT for row in nodes for f in runs[row] for idle in f["idle"]]
    most = f" to {max(batch) / MIB:.0f}" if batch else " or more"
    print(f"\nidle for {pair.IDLE_S} s or longer, MiB: median of all looks (least-most)")
    none = [None] * len(nodes)
    rounds.table(["", "truth", *nodes, "DAMON"], [
        ["the program's rest that it never uses", f"{(SIZE - HOT) / MIB:.0f}", *none, damon("cold")],
        ["its used part, called idle", "0", *none, damon("hot")],
        ["the program's group", f"{(SIZE - HOT) / MIB:.0f}{most}", *node("batch"), None],
        ["the redis", f"at least {at_least / MIB:.0f}", *node("store"), damon("store")],
        ["all of the machine", "not known", *node("all"), damon("all")],
    ])  # fmt: skip
    if "DAMON" in runs:
        memory, regions = runs["DAMON"][-1]["memory"], [n for f in runs["DAMON"] for n in f["regions"]]
        print(f"DAMON's: frames of these programs in regions of no access and an age of {pair.IDLE_S} s "
              f"({statistics.median(regions):.0f} regions); of all the machine that is free memory, too "
              f"({memory['MemFree'] // MIB} MiB), and the kernel's own.")  # fmt: skip
    print("The node's: resident pages of processes, program files included, which no group is charged with here; in brackets the least\n"
          "and the most that may be true by its own account (medians). It sees neither free memory nor files that nobody maps.")  # fmt: skip


def numbers(text):
    """A list of numbers, by commas."""
    found = [float(part) for part in text.split(",")]
    if not found or min(found) <= 0:
        raise argparse.ArgumentTypeError("numbers above 0, separated by commas")
    return found


def parse():
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=TABLES, help="only one of the tables")
    parser.add_argument("--records", type=int, default=40_000, help="of 1000 bytes each, in the redis")
    parser.add_argument("--asked", type=int, default=5_000, help="records that are asked for")
    parser.add_argument("--rate", type=float, default=500.0, help="requests a second")
    parser.add_argument("--settle", type=float, default=120.0, help="seconds in the guest before measuring; 60 at most where nobody reclaims")
    parser.add_argument("--window", type=float, default=45.0, help="seconds in the guest of measuring")
    parser.add_argument("--min-age", default="60s", help="of the rule")
    parser.add_argument("--goal", default="stall=0.1%", help="of the rule")
    parser.add_argument("--budgets", metavar="%,...", type=lambda t: t.split(","), default=["1%", "3%"],
                        help="CPU budgets of the node; the first one with rules")  # fmt: skip
    parser.add_argument("--targets", metavar="%,...", type=numbers, default=[0.1, 1.0, 5.0], help="pressure that the loop reclaims up to")
    parser.add_argument("--ratio", type=float, default=5.0, help="how much of a group the loop takes at most at once, %%")
    parser.add_argument("--interval", type=int, default=6, help="between the loop's looks, s")
    parser.add_argument("--idle", action="store_true", help="node and loop run when nobody else wants to (cpu.idle of their group)")
    parser.add_argument("--jobs", type=int, default=1, help="guests at once; not with --clock")
    parser.add_argument("--clock", action="store_true", help="two processors and the true time, not counted instructions")
    parser.add_argument("--quick", action="store_true", help="one round of little work: does it run at all")
    parser.add_argument("--json", metavar="FILE", help="also write every single run there")
    parser.add_argument("--files", metavar="FOLDER", help="also write there what each guest has left")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.settle, options.window, options.records, options.asked = 1, 30.0, 10.0, 20_000, 5_000
        options.min_age, options.targets, options.budgets = "15s", options.targets[:1], options.budgets[:1]
    if options.rounds < 1 or options.jobs < 1 or (options.clock and options.jobs > 1):
        parser.error("--rounds and --jobs must be 1 or more, --jobs 1 with --clock, whose figures depend on what else runs")
    if not 2 <= options.asked <= options.records:
        parser.error("--asked must be 2 or more, and no more than --records")
    return options


def main():
    options = parse()
    try:
        kernel = kernels.kernel("6.12", os.path.join(ROOT, "target/guest"))
    except kernels.KernelsUnavailable as error:
        sys.exit(f"bench-node-guest: {error}")
    time = "two processors, true time" if options.clock else "one processor, 4 ns an instruction"
    print(f"A guest with Debian's kernel 6.12, QEMU emulation, {time}; redis with {options.records} records, {options.asked} asked for, and a "
          f"program that uses {HOT // MIB} of its {SIZE // MIB} MiB; {options.window:g} s measured after {options.settle:g} s.")  # fmt: skip
    tables = [options.only] if options.only else TABLES
    everything = {table: {row: [] for row in rows_of(table, options)} for table in tables}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        jobs = [(table, n, pool.submit(one_round, kernel, n, table, options)) for n in range(options.rounds) for table in tables]
        try:
            for table, number, job in jobs:
                for row, found in job.result().items():
                    everything[table][row].append(found)
                print(f"round {number + 1} of {options.rounds}: {table}", file=sys.stderr, flush=True)
                rounds.write_json(options, everything)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if "reclaim" in everything:
        print(f"\nreclaim: rule with min_age {options.min_age}, goal {options.goal}; "
              f"the loop takes {options.ratio:g} % every {options.interval} s at most\n")  # fmt: skip
        show_reclaim(everything["reclaim"])
    if "watch" in everything:
        print("\nwatch\n")
        show_watch(everything["watch"], options)
    print("\nMedians over rounds; ratios compare runs of the same guest, ± is the 95 % confidence interval over the rounds. MiB of the\n"
          "groups are memory.current, stall is memory.pressure `some`, its CPU is a part of one core. It is emulation: compare rows,\n"
          "not machines.")  # fmt: skip


if __name__ == "__main__":
    main()
