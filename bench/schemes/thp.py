#!/usr/bin/env python3
"""Huge pages where they help and not where they waste: THP never, always, as DAMON's ethp advises, and `isotherm thp`.

Six programs that nobody tuned (thp_programs.py): GNU sort, matrices in numpy, PageRank on a graph, redis with half of its keys deleted, a JVM,
PostgreSQL. And one that is made for it: a dense area, accessed at random, and a sparse one of which one page in 2 MiB is used. Each is watched from its first page on, for about 10 s or, with
--length 6, a minute. With `isotherm thp` and `ethp` the system is set to `madvise` and the programs ask for nothing. ethp is the published pair of schemes, carried out by Isotherm.
Kept: the part of the speed-up of `always` over `never` that is left. Removed: the part of its additional memory that is not
taken. Each is of the same round, and only told where always is at least 3 % faster or 3 % larger. Rows are interleaved. On a machine that
others use, the CPU time of the program tells more than its runtime. Needs root. The system's setting
of huge pages is restored, also after Ctrl-C; while the benchmark runs it holds for all programs.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

import programs
import rounds
import thp_programs
from reserve import Reserve
from system import Group, HugePages, prepare

# Row -> system's setting, arguments of isotherm.
ROWS = {
    "never": ("never", []),
    "always": ("always", []),
    "ethp": ("madvise", ["thp", "--advise"]),
    "isotherm thp": ("madvise", ["thp"]),
}
WORTH = 0.03  # a difference between always and never that there is something to say about
REFERENCES = """
Published for DAMON's ethp (other programs, another machine): 49 % of the speed-up kept and 63 % of the waste removed; later
51 % and 76 %; in the kernel's documentation 95 % and 82 %. Aim: at least 75 % kept at 10 s, 90 % at a minute; 90 % removed."""


def percent(value):
    """A share for the table."""
    return None if value is None else f"{value:.2%}"


def shares(run, never, always, figure):
    """Where a run's figure lies on the way from `always` (0) to `never` (1); None where these hardly differ."""
    way = never[figure] - always[figure]
    return (run[figure] - always[figure]) / way if abs(way) >= WORTH * never[figure] else None


def show(title, runs):
    """The table of one program."""
    lines = []
    for row, all_of_it in runs.items():
        kept, kept_cpu, removed = [], [], []
        for run, never, always in zip(all_of_it, runs["never"], runs.get("always", [])):
            faster = always["seconds"] < never["seconds"]
            kept += [1 - s for s in [shares(run, never, always, "seconds")] if s is not None and faster]
            faster = always["program_cpu"] < never["program_cpu"]
            kept_cpu += [1 - s for s in [shares(run, never, always, "program_cpu")] if s is not None and faster]
            larger = always["rss"] > never["rss"]
            removed += [s for s in [shares(run, never, always, "rss")] if s is not None and larger]
        is_reference = row in ("never", "always")
        lines.append([
            row,
            rounds.spread([r["seconds"] for r in all_of_it], "{:.2f}"),
            rounds.spread(rounds.ratios(all_of_it, runs["never"], "seconds"), "{:.3f}"),
            rounds.spread(rounds.ratios(all_of_it, runs["never"], "program_cpu"), "{:.3f}"),
            rounds.spread(rounds.ratios(all_of_it, runs["never"], "rss"), "{:.3f}"),
            percent(rounds.median(r["cpu"] for r in all_of_it)),
            None if is_reference else percent(rounds.median(kept)),
            None if is_reference else percent(rounds.median(kept_cpu)),
            None if is_reference else percent(rounds.median(removed)),
        ])  # fmt: skip
    head = [title, "runtime s", "runtime", "its CPU", "memory", "isotherm CPU", "kept", "of CPU time", "removed"]
    print()
    rounds.table(head, lines)
    sys.stdout.flush()


def dense_and_sparse(binaries, length, part):
    """The program that is made for it."""
    accesses = int(60_000_000 * length * part)
    return lambda: programs.Worker([binaries["sparse_dense"], "512", "512", str(accesses)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rounds.options_of(parser, rounds=5)
    parser.add_argument("--setting", choices=("madvise", "never", "always"), default="madvise",
                        help="the system's setting for the rows with Isotherm")  # fmt: skip
    parser.add_argument("--length", type=int, choices=(1, 6), default=1, help="1: about 10 s of work, 6: a minute")
    parser.add_argument("--hold", action="store_true",
                        help="hold free memory, so that a host with free page reporting does not take it: as on bare metal")  # fmt: skip
    parser.add_argument("--only", metavar="PROGRAM,...", help="only these programs")
    options = rounds.finish_options(parser, lambda _: ROWS)
    prepare("bench-thp")
    all_runs = {}
    rows = {name: (options.setting if arguments else setting, arguments) for name, (setting, arguments) in ROWS.items()}
    binaries = rounds.binaries_of(options, ("isotherm", "sparse_dense", "page_rank"))
    with rounds.work_folder() as folder, HugePages() as pages, Group() as group:
        makers = thp_programs.programs(binaries, folder, options.length)
        makers["dense+sparse"] = dense_and_sparse(binaries, options.length, options.part)
        chosen = options.only.split(",") if options.only else list(makers)
        for name in chosen:
            if name not in makers:
                parser.error(f"no program called {name}; there are {', '.join(makers)}")
        pages.set("madvise")
        with Reserve(options.hold) as reserve:
            print(f"{rounds.machine()}, {reserve}; memory: mean over the run; ratios to `never` of the same round, with their range")
            for name in chosen:

                def run(row, make=makers[name]):
                    setting, arguments = row
                    pages.set(setting)
                    return rounds.run_once(make, arguments, binaries["isotherm"], group, None, folder)

                all_runs[name] = rounds.interleave(name, rows, options, run)
                show(name, all_runs[name])
    print(REFERENCES)
    rounds.write_json(options, all_runs)


if __name__ == "__main__":
    main()
