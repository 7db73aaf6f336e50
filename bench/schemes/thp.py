#!/usr/bin/env python3
"""Huge pages where they help and not where they waste: THP never, always, and `isotherm thp`.

The program has a dense area that it accesses at random, which huge pages make faster, and a sparse one of which it uses one
page in 2 MiB, which huge pages make larger. With `isotherm thp` the system is set to `madvise` and the program asks for nothing.
Kept: the part of the speed-up of `always` over `never` that is left. Removed: the part of its additional memory that is not
taken. On a machine that others use, the CPU time of the program tells more than its runtime. Rows are interleaved; each run is compared with `never` and `always` of the same round. Needs root. The system's setting
of huge pages is restored, also after Ctrl-C; while the benchmark runs it holds for all programs.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

import programs
import rounds
from system import Group, HugePages, prepare

# Row -> system's setting, arguments of isotherm.
ROWS = {"never": ("never", []), "always": ("always", []), "isotherm thp": ("madvise", ["thp"])}
REFERENCES = """
Published for DAMON's ethp (other programs, another machine): 49 % of the speed-up kept and 63 % of the waste removed; later
51 % and 76 %. Aim: at least 80 % and 90 %."""


def percent(value):
    """A share for the table."""
    return None if value is None else f"{value:.2%}"


def shares(run, never, always, figure):
    """Where a run's figure lies on the way from `always` (0) to `never` (1); None where these do not differ."""
    way = never[figure] - always[figure]
    return (run[figure] - always[figure]) / way if way else None


def show(runs):
    """The table, and warnings where there was nothing to keep or remove."""
    lines = []
    for row, all_of_it in runs.items():
        kept, kept_cpu, removed = [], [], []
        for run, never, always in zip(all_of_it, runs["never"], runs.get("always", [])):
            slow, small = shares(run, never, always, "seconds"), shares(run, never, always, "rss")
            kept += [] if slow is None else [1 - slow]
            slow = shares(run, never, always, "program_cpu")
            kept_cpu += [] if slow is None else [1 - slow]
            removed += [] if small is None else [small]
        lines.append([
            row,
            rounds.spread([r["seconds"] for r in all_of_it], "{:.2f}"),
            rounds.spread([r["program_cpu"] for r in all_of_it], "{:.2f}"),
            rounds.spread([r["rss"] / (1 << 20) for r in all_of_it], "{:.0f}"),
            rounds.spread([r["rss_end"] / (1 << 20) for r in all_of_it], "{:.0f}"),
            percent(rounds.median(r["cpu"] for r in all_of_it)),
            rounds.spread(kept, "{:.1%}") if row not in ("never", "always") else None,
            rounds.spread(kept_cpu, "{:.1%}") if row not in ("never", "always") else None,
            rounds.spread(removed, "{:.1%}") if row not in ("never", "always") else None,
        ])  # fmt: skip
    print()
    head = ["", "runtime s", "its CPU s", "RSS MiB", "at the end", "isotherm CPU", "speed-up kept", "of CPU time", "waste removed"]
    rounds.table(head, lines)
    if "always" in runs:
        faster = 1 - rounds.median(rounds.ratios(runs["always"], runs["never"], "seconds"))
        larger = rounds.median(rounds.ratios(runs["always"], runs["never"], "rss")) - 1
        print(f"\nalways, compared with never: {faster:.1%} faster, {larger:.1%} more memory")
        if faster < 0.05:
            print("Huge pages hardly make this program faster on this machine: the share that is kept says little.")
    print(REFERENCES)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rounds.options_of(parser, rounds=5)
    parser.add_argument("--setting", choices=("madvise", "never", "always"), default="madvise",
                        help="the system's setting for the row 'isotherm thp'")  # fmt: skip
    options = rounds.finish_options(parser, lambda _: ROWS)
    prepare("bench-thp")
    rows = {**ROWS, "isotherm thp": (options.setting, ["thp"])}
    binaries = rounds.binaries_of(options, ("isotherm", "sparse_dense"))
    accesses = int(120_000_000 * options.part)
    command = [binaries["sparse_dense"], "512", "512", str(accesses)]
    with rounds.work_folder() as folder, HugePages() as pages, Group() as group:
        print(f"{rounds.machine()}; 512 MiB sparse, 512 MiB dense; RSS: mean over the run")

        def run(row):
            setting, arguments = row
            pages.set(setting)
            return rounds.run_once(lambda: programs.Worker(command), arguments, binaries["isotherm"], group, None, folder)

        runs = rounds.interleave("thp", rows, options, run)
    show(runs)
    rounds.write_json(options, runs)


if __name__ == "__main__":
    main()
