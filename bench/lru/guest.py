#!/usr/bin/env python3
"""The load of `lru.py` where the kernel has generations of its own: in a guest with Debian's kernel 6.12, under QEMU's emulation.

redis with half the memory that it needs (`memory.max`), and zram to swap to. 80 % reads, 20 % updates, one request at a time;
requests uniform, exponential, zipfian; every value that is read is compared. Rows: the kernel alone, with its generations, and with
`isotherm lru run` on the group, through the kernel's generations and by walking page tables.

It is emulation: compare rows, not machines. By default the guest has one processor whose clock is what it has executed (4 ns an
instruction), so that figures do not depend on what else this machine does. Isotherm then takes its time from the store, and what it
does ahead is no gain; caches cost nothing. With --clock the guest has two processors and the true time.
"""

import argparse
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
# Behind the folder of this file: both have a module `lru`.
sys.path += [os.path.join(ROOT, d) for d in ("bench/schemes/lib", "tests/guest")]

import kernels
import overcommit
import rounds
from confidence import ratio_text
from overcommit import DISTRIBUTIONS, ROWS

STATIC = os.path.join(ROOT, "target/static")
BINARIES = {name: os.path.join(STATIC, name) for name in ("isotherm", "ycsb_client")}
DEFAULT_ROWS = "kernel,isotherm-kernel,isotherm-user"
# Emulation of one second takes a few, more where others use the machine.
SLOWEST = 30


def figures(run, row):
    """What counts of one run."""
    if row in ("isotherm-kernel", "isotherm-user") and run.status != "0":
        raise RuntimeError(f"isotherm ended with status {run.status}: {run.text('log')}")
    n = run.operations
    return {
        "throughput": run.throughput,
        **{key: run.answers[key] for key in ("p50_us", "p99_us", "p999_us")},
        "cpu_us": run.cpu_seconds() / n * 1e6,
        "isotherm_us": run.manager_seconds() / n * 1e6,
        "faults": run.moved("memory.stat", "pgmajfault") / n,
        "limit_hits": run.moved("memory.events", "max") / n,
        "limit": int(run.text("max")),
        "stats": run.stats[-1:],
    }


def one_round(kernel, number, distribution, rows, options):
    """All rows in one guest; each round begins with another one."""
    turn = number % len(rows)
    order = rows[turn:] + rows[:turn]
    text = "".join(
        overcommit.run_text(row, row, distribution, options.records, number + 1, options.warm_up, options.seconds,
                            options.isotherm)
        for row in order
    )  # fmt: skip
    machine = {} if options.clock else overcommit.COUNTED
    timeout = 240 + SLOWEST * len(rows) * (options.warm_up + options.seconds + options.records / 5000)
    files = overcommit.boot(kernel, text, BINARIES, timeout_s=timeout, **machine)
    return {row: figures(overcommit.Run(row, files), row) for row in rows}


def show(everything):
    """The table."""
    lines = []
    for distribution, runs in everything.items():
        for row, found in runs.items():
            def middle(key, found=found):
                return statistics.median(f[key] for f in found)

            def ratio(key, found=found, first=runs[next(iter(runs))]):
                return ratio_text([a[key] / b[key] for a, b in zip(found, first)]) if found is not first else None

            lines.append([distribution, row, f"{middle('throughput'):.0f}", ratio("throughput"), ratio("cpu_us"),
                          f"{middle('p50_us'):.0f}", f"{middle('p99_us'):.0f}", f"{middle('p999_us'):.0f}",
                          f"{middle('cpu_us'):.1f}", f"{middle('isotherm_us'):.1f}", f"{middle('faults'):.3f}",
                          f"{middle('limit_hits'):.4f}"])  # fmt: skip
    rounds.table(["", "", "op/s", "throughput", "CPU/op", "p50 us", "p99 us", "p99.9 us", "CPU us/op", "isotherm's", "faults/op",
                  "reclaims/op"], lines)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", metavar="ROW,...", default=DEFAULT_ROWS, help=f"of {', '.join(ROWS)}; the first is compared with")
    parser.add_argument("--distributions", metavar="NAME,...", default=",".join(DISTRIBUTIONS))
    parser.add_argument("--records", type=int, default=50_000, help="of 1000 bytes each")
    parser.add_argument("--warm-up", type=float, default=15.0, help="seconds in the guest before measuring")
    parser.add_argument("--seconds", type=float, default=15.0, help="seconds in the guest of measuring")
    parser.add_argument("--isotherm", metavar="OPTIONS", default="", help="further options of `isotherm lru run`, in one word")
    parser.add_argument("--clock", action="store_true", help="two processors and the true time, not counted instructions")
    parser.add_argument("--quick", action="store_true", help="one round of little work: does it run at all")
    parser.add_argument("--json", metavar="FILE", help="also write every single run there")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.warm_up, options.seconds, options.records = 1, 3.0, 3.0, 20_000
    rows, distributions = options.rows.split(","), options.distributions.split(",")
    unknown = (set(rows) - set(ROWS)) | (set(distributions) - set(DISTRIBUTIONS))
    if unknown or options.rounds < 1:
        parser.error(f"rows are {', '.join(ROWS)}; distributions {', '.join(DISTRIBUTIONS)}; --rounds 1 or more")
    try:
        kernel = kernels.kernel("6.12", os.path.join(ROOT, "target/guest"))
    except kernels.KernelsUnavailable as error:
        sys.exit(f"bench-lru-guest: {error}")
    time = "two processors, true time" if options.clock else "one processor, 4 ns an instruction"
    print(f"A guest with Debian's kernel 6.12, QEMU emulation, {time}; redis with {options.records} records, overcommitted 2 times.")
    everything = {d: {row: [] for row in rows} for d in distributions}
    for number in range(options.rounds):
        for distribution in distributions:
            print(f"\rround {number + 1} of {options.rounds}: {distribution:20}", end="", file=sys.stderr, flush=True)
            for row, found in one_round(kernel, number, distribution, rows, options).items():
                everything[distribution][row].append(found)
            rounds.write_json(options, everything)
    print(file=sys.stderr)
    show(everything)
    print("CPU: the whole guest's. Ratios compare runs of the same guest; ± is the 95 % confidence interval over the rounds.")
    print("It is emulation: compare rows, not machines.")


if __name__ == "__main__":
    main()
