#!/usr/bin/env python3
"""How much memory schemes save, and at what price: real programs with cold memory, and compressed swap.

Rows: the program alone (`original`); `prcl`, proactive reclaim untuned, as in DAMOS's evaluation; the same with parameters
learned for each program (`offline-tuned`, see --sweep); and reclaim with a quota tuned to 0.5 % memory pressure (`goal-tuned`). Rows are
interleaved; each figure is divided by that of `original` in the same round; shown are medians and extremes. Needs root and
zram. All it sets up is taken down again, also after Ctrl-C.
"""

import argparse
import math
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))

import programs
import rounds
import tuning
from system import Group, Swap, prepare

PROGRAMS = ("redis", "postgres", "sort", "stencil", "numpy")
# What is untuned, and where the sweep begins.
PRCL = "4K null null 5 5s null pageout"
# Geometric means that DAMOS's author published (cover letter of "mm/damon: let users feed and tame/auto-tune DAMOS", first
# version, 2023; PARSEC3 and SPLASH-2X): memory and runtime; the second was tuned by DAMOOS.
PUBLISHED = {"DAMOS, not tuned": (0.6227, 1.1177), "DAMOS, tuned by DAMOOS": (0.7880, 1.0565)}
REFERENCES = """
Published for DAMOS (geometric mean over other programs, another machine): not tuned 0.62 of the memory at 1.118 of the
runtime; tuned offline 0.788 at 1.056; tuned to the goal 0.740 at 1.091, with 31 % of the untuned one's pressure.
Aim: tuned to the goal, at most 0.70 of the memory at at most 1.03 of the runtime."""



def rows_of(folder, name, more=()):
    """Row -> arguments of isotherm. `folder`: the schemes that were learned for each program; `more`: rows from files, NAME=FILE."""
    named = (row.partition("=")[::2] for row in more)
    return {
        "original": [],
        "prcl": ["schemes", "--scheme", PRCL],
        "offline-tuned": ["schemes", "-c", os.path.join(folder, f"{name}.toml")],
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


def score(rss, seconds):
    """DAMOOS's score: half of the memory saved and half of the runtime saved, in percent (its polyfit_adapter/sf.sh)."""
    return 50 * (1 - rss) + 50 * (1 - seconds)


def sweep(name, run, isotherm, folder, options):
    """Learns the parameters of one program and keeps them; returns all runs."""
    wish = ["--runs", str(options.runs), "--max-slowdown", options.max_slowdown, "--runtime-weight", options.runtime_weight]
    best, made = tuning.learn(name, run, isotherm, PRCL, wish, options.runs, folder)
    print(f"\n{name}: {len(made)} runs")
    rounds.table(["", "seconds", "MiB"], [[r["what"], f"{r['seconds']:.2f}", mib(r["rss"])] for r in made])
    if best is None:
        print(f"nothing keeps within {options.max_slowdown}; what was kept for it before stays")
    else:
        shutil.copy(best["scheme"], os.path.join(options.offline, f"{name}.toml"))
        print(f"best: {tuning.words(best)}; expected {best['expected_memory']:.3f} of the memory at {best['expected_runtime']:.3f}")
    return made


def scores(everything):
    """What tuning brought, from runs that it did not see, beside what is published."""
    print("\nDAMOOS's score (half memory, half runtime, in percent), from fresh interleaved runs:")
    lines, products = [], {}
    for name, runs in everything.items():
        for row in (row for row in ("prcl", "offline-tuned") if row in runs):
            rss, seconds = (rounds.median(rounds.ratios(runs[row], runs["original"], f)) for f in ("rss", "seconds"))
            lines.append([f"{name}, {row}", f"{rss:.3f}", f"{seconds:.3f}", f"{score(rss, seconds):.1f}"])
            products.setdefault(row, []).append((rss, seconds))
    for row, figures in products.items():
        rss, seconds = (math.exp(sum(map(math.log, f)) / len(f)) for f in zip(*figures))
        lines.append([f"all, {row}", f"{rss:.3f}", f"{seconds:.3f}", f"{score(rss, seconds):.1f}"])
    lines += [[row, f"{rss:.3f}", f"{seconds:.3f}", f"{score(rss, seconds):.1f}"] for row, (rss, seconds) in PUBLISHED.items()]
    rounds.table(["", "RSS", "runtime", "score"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rounds.options_of(parser, rounds=3)
    parser.add_argument("--only", metavar="PROGRAM,...", default=",".join(PROGRAMS), help="only these programs")
    parser.add_argument("--sweep", action="store_true",
                        help="first learn the parameters of the row offline-tuned for each program, and keep them")  # fmt: skip
    parser.add_argument("--runs", type=int, default=10, help="how many runs --sweep may make of each program")
    parser.add_argument("--max-slowdown", metavar="P", default="5%", help="what --sweep may choose costs no more runtime than this")
    parser.add_argument("--runtime-weight", metavar="P", default="0%",
                        help="how much runtime counts in what --sweep wants; 0%%: it wants the least memory; DAMOOS has 50%%")  # fmt: skip
    parser.add_argument("--offline", metavar="FOLDER", default=os.path.join(HERE, "offline"),
                        help="where the learned schemes are kept, one file for each program")  # fmt: skip
    parser.add_argument("--config", metavar="NAME=FILE", action="append", default=[], help="a further row: this scheme file")
    options = rounds.finish_options(parser, lambda given: rows_of(given.offline, None, given.config))
    chosen = options.only.split(",")
    for name in chosen:
        if name not in PROGRAMS:
            parser.error(f"no program called {name}; there are {', '.join(PROGRAMS)}")
    prepare("bench-schemes")
    if options.sweep:
        os.makedirs(options.offline, exist_ok=True)
    binaries = rounds.binaries_of(options, ("isotherm", "batch_sort", "stencil", "zipf_client"))
    everything, learned = {}, {}
    with rounds.work_folder() as folder, Swap(4096) as swap, Group() as group:
        print(f"{rounds.machine(swap)}. RSS: memory of all processes of the program (PSS), mean over the run.")
        print(f"PSI: time that tasks {'of the program' if group.path else 'of the machine'} waited for memory (some).")
        if options.quick and options.sweep:
            # A quarter of the work teaches nothing that should be kept.
            options.runs = min(options.runs, 4)
            options.offline = shutil.copytree(options.offline, os.path.join(folder, "offline"))
        catalogue = programs.catalogue(binaries, folder, options.part)
        for name in chosen:
            def run(arguments, name=name):
                return rounds.run_once(catalogue[name], arguments, binaries["isotherm"], group, swap, folder)

            if options.sweep:
                learned[name] = sweep(name, run, binaries["isotherm"], folder, options)
            everything[name] = rounds.interleave(name, rows_of(options.offline, name, options.config), options, run)
            show(name, everything[name])
            rounds.write_json(options, {"rows": everything, "learned": learned})
    summary(everything)
    scores(everything)


if __name__ == "__main__":
    main()
