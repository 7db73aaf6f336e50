#!/usr/bin/env python3
"""Tiering of large memory: what it costs to find what is cold by regions, and by looking at every page.

Two programs whose memory is mostly cold: redis with 1.5 million records, asked with YCSB's Zipfian distribution, and a stencil
kernel beside a table of 3 GiB. `isotherm tier` keeps the cold part out of memory (in compressed swap): once by regions,
once by scanning pages, with the same thresholds, so that both save about the same. Compared: CPU time of Isotherm (all of it,
and without that of the thread that moves memory: `to find`), memory kept out, and slowdown, each with the run alone in the same
round. Needs root and zram.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

import programs
import rounds
from system import Group, Swap, prepare

PROGRAMS = ("redis", "stencil")
# The same thresholds for both, and huge pages left as they are. Pages are scanned once a second, as etmem does by default.
TIER = ["tier", "--cold-age", "5s", "--quota", "none", "--keep-pages"]
ROWS = {
    "original": [],
    "regions": [*TIER, "--mode", "sample"],
    "pages": [*TIER, "--mode", "scan", "--aggr", "1s", "--cpu-budget", "none"],
}
# Savings that differ by more than this are not called equal.
EQUAL = 0.05
REFERENCES = """
Published for etmem and DAMON (other programs, another machine): regions cost 10 times less CPU than pages, or better; 52 % less
memory at at most 17 % slowdown."""


def percent(value):
    """A share for the table."""
    return None if value is None else f"{value:.2%}"


def show(name, runs):
    """One program's table and the comparison of the two ways."""
    base = runs["original"]
    alone, size = (rounds.median(r[figure] for r in base) for figure in ("seconds", "rss"))
    print(f"\n{name}: alone {alone:.1f} s, {size / (1 << 20):.0f} MiB")
    lines, middle = [], {}
    for row, all_of_it in runs.items():
        saved = [1 - r for r in rounds.ratios(all_of_it, base, "rss")]
        slower = [r - 1 for r in rounds.ratios(all_of_it, base, "seconds")]
        cpu = rounds.median(r["cpu"] for r in all_of_it)
        finding = rounds.median(r["cpu"] - r["moving"] for r in all_of_it if r["cpu"] is not None)
        cpu_ratio = rounds.ratios(all_of_it, base, "program_cpu")
        faults = rounds.median(r["major_faults"] for r in all_of_it)
        middle[row] = finding, rounds.median(saved)
        out = rounds.median(rounds.total(r, "out") for r in all_of_it)
        lines.append([
            row, rounds.spread(saved, "{:.1%}"), rounds.spread(slower, "{:+.1%}"),
            rounds.spread([r - 1 for r in cpu_ratio], "{:+.1%}"), percent(cpu), percent(finding), round(faults), None if out is None else f"{out / (1 << 20):.0f}",
        ])  # fmt: skip
    rounds.table(["", "memory kept out", "slowdown", "its CPU", "isotherm CPU", "to find", "major faults", "out MiB"], lines)
    if "regions" in middle and "pages" in middle:
        (region_cpu, region_saved), (page_cpu, page_saved) = middle["regions"], middle["pages"]
        if region_cpu:
            print(f"to find what is cold costs {page_cpu / region_cpu:.1f} times less CPU by regions than page by page")
        if abs(region_saved - page_saved) > EQUAL:
            print(f"but they do not save the same: {region_saved:.1%} and {page_saved:.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rounds.options_of(parser, rounds=3)
    parser.add_argument("--only", choices=PROGRAMS, help="only this program")
    options = rounds.finish_options(parser, lambda _: ROWS)
    prepare("bench-tiering")
    binaries = rounds.binaries_of(options, ("isotherm", "stencil", "zipf_client"))
    everything = {}
    with rounds.work_folder() as folder, Swap(8192) as swap, Group() as group:
        print(f"{rounds.machine(swap)}. Memory: of all processes of the program (PSS), mean over the run.")
        catalogue = programs.large(binaries, folder, options.part)
        for name in [options.only] if options.only else PROGRAMS:
            def run(arguments, name=name):
                return rounds.run_once(catalogue[name], arguments, binaries["isotherm"], group, swap, folder)

            everything[name] = rounds.interleave(name, ROWS, options, run)
            show(name, everything[name])
            rounds.write_json(options, everything)
    print(REFERENCES)


if __name__ == "__main__":
    main()
