#!/usr/bin/env python3
"""How much memory schemes save, and at what price: real programs with cold memory, and compressed swap.

Rows: the program alone (`original`); `prcl`, proactive reclaim untuned, as in DAMOS's evaluation; reclaim with parameters from
a sweep (`offline-tuned`, see --sweep); and reclaim with a quota tuned to 0.5 % memory pressure (`goal-tuned`). Rows are
interleaved; each figure is divided by that of `original` in the same round; shown are medians and extremes. Needs root and
zram. All it sets up is taken down again, also after Ctrl-C.
"""

import argparse
import json
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))

import programs
import rounds
from system import Group, Swap, prepare

PROGRAMS = ("redis", "postgres", "sort", "stencil", "numpy")
# What the sweep tries: for how long each page must be seen unused, and the highest access rate of its region.
SWEEP = [(confirm, "100%") for confirm in ("2s", "5s", "12s")]
# The sweep wants the least memory among what costs no more than this.
MOST_RUNTIME = 1.05
REFERENCES = """
Published for DAMOS (geometric mean over other programs, another machine): not tuned 0.62 of the memory at 1.118 of the
runtime; tuned offline 0.788 at 1.056; tuned to the goal 0.740 at 1.091, with 31 % of the untuned one's pressure.
Aim: tuned to the goal, at most 0.70 of the memory at at most 1.03 of the runtime."""


OFFLINE = """[[scheme]]
action = "pageout"
confirm = "{confirm}"
[scheme.pattern]
size = ["4K", "max"]
access_rate = ["0%", "{max_rate}"]
"""


def offline(folder, confirm, max_rate):
    """Proactive reclaim without a quota, with these parameters."""
    file = os.path.join(folder, f"offline-{confirm}-{max_rate}.toml")
    with open(file, "w") as f:
        f.write(OFFLINE.format(confirm=confirm, max_rate=max_rate))
    return ["schemes", "-c", file]


def rows_of(folder, best, more=()):
    """Row -> arguments of isotherm. `best`: what the sweep found for this program; `more`: rows from files, NAME=FILE."""
    named = (row.partition("=")[::2] for row in more)
    return {
        "original": [],
        "prcl": ["schemes", "--scheme", "4K null null 5 5s null pageout"],
        "offline-tuned": offline(folder, **best) if folder else [],
        "goal-tuned": ["schemes", "-c", os.path.join(HERE, "goal-tuned.toml")],
        **{name: ["schemes", "-c", file] for name, file in named},
    }


def percent(value):
    """A share for the table."""
    return None if value is None else f"{value:.2%}"


def mib(value):
    """Bytes for the table."""
    return None if value is None else f"{value / (1 << 20):.0f}"


def show(name, runs):
    """One program's table."""
    base = runs["original"]
    alone = rounds.median(r["seconds"] for r in base)
    print(f"\n{name}: alone {alone:.1f} s, {mib(rounds.median(r['rss'] for r in base))} MiB")
    lines = []
    for row, all_of_it in runs.items():
        def middle(figure, all_of_it=all_of_it):
            return rounds.median(figure(r) for r in all_of_it)

        def counter(key, middle=middle):
            return middle(lambda r: rounds.total(r, key))

        lines.append([
            row,
            rounds.spread(rounds.ratios(all_of_it, base, "rss")),
            rounds.spread(rounds.ratios(all_of_it, base, "seconds")),
            rounds.spread(rounds.ratios(all_of_it, base, "program_cpu")),
            middle(lambda r: None if r["psi_us_per_s"] is None else round(r["psi_us_per_s"])),
            percent(middle(lambda r: r["cpu"])),
            middle(lambda r: round(r["major_faults"])),
            mib(counter("out")), mib(counter("back_10s")), mib(counter("back_60s")),
            mib(middle(lambda r: r["zram"])),
        ])  # fmt: skip
    rounds.table(
        ["", "RSS", "runtime", "its CPU", "PSI us/s", "isotherm CPU", "major faults", "out MiB", "back 10 s", "back 60 s", "zram MiB"],
        lines,
    )


def summary(everything):
    """Geometric means over the programs, and pressure compared with prcl's."""
    print("\nall (geometric mean of the medians):")
    lines = []
    for row in next(iter(everything.values())):
        means = []
        for figure in ("rss", "seconds", "program_cpu"):
            medians = [rounds.median(rounds.ratios(runs[row], runs["original"], figure)) for runs in everything.values()]
            means.append(math.exp(sum(map(math.log, medians)) / len(medians)))
        pressure = None
        if "prcl" in next(iter(everything.values())):
            sums = [
                sum(rounds.median(r["psi_us_per_s"] for r in runs[name]) or 0 for runs in everything.values())
                for name in (row, "prcl")
            ]
            pressure = percent(sums[0] / sums[1]) if sums[1] else None
        lines.append([row, *(f"{m:.3f}" for m in means), pressure])
    rounds.table(["", "RSS", "runtime", "its CPU", "PSI/prcl's"], lines)
    print(REFERENCES)


def sweep(name, run, folder, options):
    """Tries all parameters on one program; prints the curve; returns the best ones."""
    points = {f"{confirm} {rate}": (confirm, rate) for confirm, rate in SWEEP}
    rows = {"original": [], **{row: offline(folder, *point) for row, point in points.items()}}
    options.chosen = list(rows)
    runs = rounds.interleave(f"{name}, sweep", rows, options, run)
    show(name, runs)
    scores = []
    for row in points:
        rss, seconds = (rounds.median(rounds.ratios(runs[row], runs["original"], f)) for f in ("rss", "seconds"))
        dear = seconds > MOST_RUNTIME
        scores.append((dear, seconds if dear else rss, row))
    confirm, rate = points[min(scores)[2]]
    return {"confirm": confirm, "max_rate": rate}, runs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rounds.options_of(parser, rounds=3)
    parser.add_argument("--only", metavar="PROGRAM,...", default=",".join(PROGRAMS), help="only these programs")
    parser.add_argument("--sweep", action="store_true", help="find the parameters of the row offline-tuned and keep them")
    parser.add_argument("--offline", metavar="FILE", default=os.path.join(HERE, "offline-tuned.json"),
                        help="where the sweep's parameters are kept")  # fmt: skip
    parser.add_argument("--config", metavar="NAME=FILE", action="append", default=[], help="a further row: this scheme file")
    options = rounds.finish_options(parser, lambda given: rows_of(None, None, given.config))
    chosen = options.only.split(",")
    for name in chosen:
        if name not in PROGRAMS:
            parser.error(f"no program called {name}; there are {', '.join(PROGRAMS)}")
    prepare("bench-schemes")
    with open(options.offline) as f:
        tuned = json.load(f)

    binaries = rounds.binaries_of(options, ("isotherm", "batch_sort", "stencil", "zipf_client"))
    everything = {}
    with rounds.work_folder() as folder, Swap(4096) as swap, Group() as group:
        print(f"{rounds.machine(swap)}. RSS: memory of all processes of the program (PSS), mean over the run.")
        print(f"PSI: time that tasks {'of the program' if group.path else 'of the machine'} waited for memory (some).")
        catalogue = programs.catalogue(binaries, folder, options.part)
        for name in chosen:
            def run(arguments, name=name):
                return rounds.run_once(catalogue[name], arguments, binaries["isotherm"], group, swap, folder)

            if options.sweep:
                tuned[name], everything[name] = sweep(name, run, folder, options)
                print(f"best: {tuned[name]}")
                with open(options.offline, "w") as f:
                    json.dump(tuned, f, indent=2)
                    f.write("\n")
                continue
            everything[name] = rounds.interleave(name, rows_of(folder, tuned[name], options.config), options, run)
            show(name, everything[name])
            rounds.write_json(options, everything)
    rounds.write_json(options, everything)
    if not options.sweep:
        summary(everything)


if __name__ == "__main__":
    main()
