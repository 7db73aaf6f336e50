#!/usr/bin/env python3
"""How fast `isotherm sim lru` simulates, and in how much memory, beside libCacheSim.

All run the same trace, made up by Isotherm: 20 million requests, Zipf (theta 1) over a million pages, as an oracleGeneral file
that is in the page cache; then three that were recorded (bench/sim/traces.py), each policy with a tenth of the pages. Each run is a
process of its own; rounds are interleaved, so that a drift of the machine hits all; medians are printed, ratios are those within a
round. libCacheSim runs twice: `cachesim`, its own program, built in release mode from the sources of its Python package, and its
Python binding (the wheel), whose misses are compared to the last one. Both go into a folder below target/; what cannot be had is
left out.

"simulated": the simulation alone. libCacheSim reads while it simulates, which takes it about a tenth of its time. "from the file":
everything, the start of the process included (of the binding: from opening the file on, without the start of Python).
"""

import argparse
import json
import os
import platform
import selectors
import statistics
import subprocess
import sys
import time
import venv

import native
import traces

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.join(HERE, "..", "..", "target")
WHEEL = "libcachesim==0.3.5"
# Row -> policy, further arguments, libCacheSim's name.
ROWS = {
    "lru": ("lru", [], "LRU"),
    "fifo": ("fifo", [], "FIFO"),
    "clock": ("clock", [], "Clock"),
    "sieve": ("sieve", [], "Sieve"),
    "s3fifo": ("s3fifo", [], "S3FIFO"),
    "2q": ("2q", [], "TwoQ"),
    "arc": ("arc", [], "ARC"),
    "lirs": ("lirs", [], "LIRS"),
    "wtinylfu": ("wtinylfu", [], "WTinyLFU"),
    "opt": ("opt", [], "Belady"),
    # libCacheSim has neither: its LRU is what they are compared with.
    "classic, fd": ("classic", ["--channel", "fd"], None),
    "classic, mapped": ("classic", ["--channel", "map"], None),
    "mglru, fd": ("mglru", ["--channel", "fd"], None),
    "mglru, mapped": ("mglru", ["--channel", "map"], None),
}
# Misses must be those of libCacheSim, to the last one.
EXACT = ["lru", "fifo", "clock", "sieve", "2q", "arc", "opt"]
KERNELS = [row for row, (_, _, other) in ROWS.items() if other is None]


def install(folder):
    """The Python that has libCacheSim, or None and why not."""
    python = os.path.join(folder, "bin", "python")
    try:
        if subprocess.run([python, "-c", "import libcachesim"], capture_output=True).returncode == 0:
            return python, None
    except OSError:
        pass
    try:
        venv.create(folder, with_pip=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", WHEEL]
        done = subprocess.run(pip, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return None, str(error)
    return (python, None) if done.returncode == 0 else (None, done.stderr.strip().splitlines()[-1:])


def run(command):
    """Standard output, wall time in s, and the largest resident size in bytes.

    The size that wait4 tells would be this program's own if that is larger: the child begins as a copy of it.
    """
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    largest = 0
    with selectors.DefaultSelector() as done:
        # What it prints is little and comes at the end: when there is something to read it is done.
        done.register(child.stdout, selectors.EVENT_READ)
        while not done.select(timeout=0.02):
            largest = max(largest, high_water(child.pid))
    output = child.stdout.read()
    if child.wait() != 0:
        sys.exit(f"{' '.join(command)}: exit status {child.returncode}")
    return output, time.monotonic() - start, largest


def high_water(pid):
    """The largest resident size of a process so far, bytes."""
    with open(f"/proc/{pid}/status") as file:
        return next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")), 0)


def ours(binary, trace, row, size):
    policy, arguments, _ = ROWS[row]
    command = [binary, "sim", "lru", "--trace", trace, "--policy", policy, "--size", str(size), "--json", *arguments]
    output, wall, memory = run(command)
    return {**json.loads(output), "whole": wall, "memory": memory}


def theirs(python, trace, row, size):
    name = ROWS[row][2]
    if python is None or name is None:
        return None
    output, _, _ = run([python, os.path.join(HERE, "libcachesim_run.py"), trace, name, str(size)])
    return json.loads(output.splitlines()[-1])


def median(runs, figure):
    return statistics.median(r[figure] for r in runs)


def ratio(own, other, figure):
    """How many times as fast, as the median over the rounds."""
    return statistics.median(o["seconds"] / r[figure] for r, o in zip(own, other))


def beside_native(runs, natives, requests):
    """How fast both simulate and come from the file to the end; ratios within a round."""
    speed = lambda seconds: f"{requests / seconds / 1e6:.1f}"
    rows = [["", "simulated M/s", "cachesim M/s", "ratio", "range", "from the file M/s", "cachesim M/s", "ratio", "range", "miss ratio",
             "cachesim's"]]  # fmt: skip
    for row, others in natives.items():
        own = runs[row]
        cells = [row]
        for figure in ("seconds", "whole"):
            ratios = [r[figure] / o[figure] for o, r in zip(own, others)]
            cells += [speed(median(own, figure)), speed(median(others, figure)), f"x{statistics.median(ratios):.1f}"]
            cells += [f"x{min(ratios):.1f} to x{max(ratios):.1f}"]
        rows.append([*cells, f"{own[0]['miss_ratio']:.4f}", f"{others[0]['miss_ratio']:.4f}"])
    table(rows)
    print()


def compare(options, binaries, trace, rows, size):
    """Rounds of all on one trace: ours, the binding's, cachesim's, each by row."""
    python, program, folder = binaries
    runs, others, natives = {}, {}, {}
    with open(trace, "rb") as file:
        while file.read(1 << 24):
            pass
    for number in range(options.rounds):
        for row in rows:
            print(f"\rround {number + 1} of {options.rounds}, {row}\x1b[K", end="", file=sys.stderr, flush=True)
            runs.setdefault(row, []).append(ours(options.binary, trace, row, size))
            other = theirs(python, trace, row, size)
            if other:
                others.setdefault(row, []).append(other)
            if program and row in native.POLICIES:
                natives.setdefault(row, []).append(native.run(program, trace, row, size, folder))
    print("\r\x1b[K", end="", file=sys.stderr)
    return runs, others, natives


def recorded(options, program, folder):
    """The traces that were recorded; cachesim's ratio for each."""
    found = {}
    for name in options.traces:
        try:
            trace = traces.real(options.binary, folder, name)
        except native.Failed as why:
            print(f"The trace {name} cannot be had: {why}\n")
            continue
        first = json.loads(run([options.binary, "sim", "lru", "--policy", "lru", "--size", "1", "--json", "--trace", trace])[0])
        pages = first["misses"] - first["refaults"]
        size = max(pages // 10, 1)
        print(f"{name}: {first['requests']} requests for {pages} pages, {size} fit; medians of {options.rounds}\n")
        rows = [row for row in options.only or ROWS if row in native.POLICIES]
        runs, _, natives = compare(options, (None, program, folder), trace, rows, size)
        beside_native(runs, natives, first["requests"])
        found[name] = {"isotherm": runs, "cachesim": natives}
    return found


def table(rows):
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    for at, row in enumerate(rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
        if at == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def show(runs, others, requests, pages):
    speed = lambda seconds: f"{requests / seconds / 1e6:.1f}"
    rows = [["", "simulated M/s", "libCacheSim M/s", "ratio", "from the file M/s", "ratio", "misses", "libCacheSim's", "differ",
             "B a page", "libCacheSim B a page", "MiB in all", "libCacheSim MiB"]]  # fmt: skip
    for row, own in runs.items():
        other = others.get(row) or others.get("lru")
        same = row in others
        misses = own[0]["misses"]
        # What is not the trace itself, for each page of the trace.
        per_page = (median(own, "memory") - 4 * requests) / pages
        cells = [row, speed(median(own, "seconds"))]
        cells += [f"{speed(median(other, 'seconds'))}{'' if same else ' (LRU)'}" if other else "-"]
        cells += [f"x{ratio(own, other, 'seconds'):.1f}" if other else "-", speed(median(own, "whole"))]
        cells += [f"x{ratio(own, other, 'whole'):.1f}" if other else "-", str(misses)]
        cells += [str(other[0]["misses"]), f"{misses / other[0]['misses'] - 1:+.2%}"] if same else ["-", "-"]
        cells += [f"{per_page:.0f}", f"{median(other, 'memory') / pages:.0f}" if other else "-"]
        cells += [f"{median(own, 'memory') / 2**20:.0f}", f"{median(other, 'memory') / 2**20:.0f}" if other else "-"]
        rows.append(cells)
    table(rows)
    print("\nB a page: all memory of the process (at most while reading, mostly) but the 4 bytes a request of the trace, which all")
    print("policies and sizes of a run share. libCacheSim: what the simulation added; it does not hold the trace.\n")
    figures = ["pages_scanned", "rmap_walks", "ptes_read", "tables_skipped", "list_moves", "agings"]
    rows = [["for 1000 evictions", "misses", *(f.replace("_", " ") for f in figures)]]
    for row in ["lru", *KERNELS]:
        if row in runs:
            run = runs[row][0]
            per = lambda figure: f"{run[figure] * 1000 / run['evictions']:.2f}" if figure in run else "-"
            rows.append([row, str(run["misses"]), *(per(f) for f in figures)])
    table(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20_000_000)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100_000, help="pages that fit")
    parser.add_argument("--theta", type=float, default=1.0)
    parser.add_argument("--only", metavar="ROW", nargs="*", choices=ROWS, help=", ".join(ROWS))
    parser.add_argument("--traces", metavar="NAME", nargs="*", choices=traces.REAL, default=traces.REAL, help="recorded ones")
    parser.add_argument("--binary", default=os.path.join(TARGET, "release", "isotherm"))
    parser.add_argument("--json", metavar="FILE", help="write all runs there")
    options = parser.parse_args()
    folder = os.path.join(TARGET, "bench-sim")
    os.makedirs(folder, exist_ok=True)
    trace = traces.zipf(options.binary, folder, options.pages, options.requests, options.theta)
    python, why = install(os.path.join(folder, "libcachesim"))
    if python is None:
        print(f"{WHEEL} cannot be installed, its binding is left out: {why}", file=sys.stderr)
    program = None
    try:
        program = native.build(os.path.join(folder, "native"))
    except native.Failed as why:
        print(f"cachesim cannot be built and is left out: {why}", file=sys.stderr)
    sim = [options.binary, "sim", "lru", "--policy", "lru", "--size", "1", "--json"]
    first = json.loads(run([*sim, "--trace", trace])[0])
    pages = first["misses"] - first["refaults"]
    with open("/proc/cpuinfo") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown processor")
    print(f"kernel {platform.release()}, {os.cpu_count()} x {cpu}, {WHEEL}")
    print(f"{first['requests']} requests for {pages} pages, Zipf {options.theta}, {options.size} fit; medians of {options.rounds}\n")
    runs, others, natives = compare(options, (python, program, folder), trace, options.only or list(ROWS), options.size)
    if natives:
        print("Beside cachesim:\n")
        beside_native(runs, natives, first["requests"])
        print("Beside the Python binding, and the kernel's policies beside its LRU:\n")
    show(runs, others, first["requests"], pages)
    print()
    shapes = recorded(options, program, folder) if program else {}
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"isotherm": runs, "libcachesim": others, "cachesim": natives, "recorded": shapes}, file)
    differ = [row for row in EXACT if row in others and runs[row][0]["misses"] != others[row][0]["misses"]]
    everywhere = [(natives, runs), *((s["cachesim"], s["isotherm"]) for s in shapes.values())]
    for theirs_of, ours_of in everywhere:
        # It prints four digits.
        differ += [r for r in EXACT if r in theirs_of and abs(theirs_of[r][0]["miss_ratio"] - ours_of[r][0]["miss_ratio"]) > 1e-4]
    if differ:
        sys.exit(f"misses differ from libCacheSim's where they must not: {', '.join(differ)}")


if __name__ == "__main__":
    main()
