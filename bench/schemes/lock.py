#!/usr/bin/env python3
"""What it brings to lock the hot part of a program while memory is short: real programs with less memory than they need.

Each program runs in a control group (version 1) with a share of the memory that it needs as its limit, and zram to swap to;
alone, and under `isotherm schemes` with the action `lock` on what is accessed most, up to half the limit. At the end the locks
are taken back; shown is what is left of them. Rows are interleaved; each figure is divided by that of `alone` in the same round; shown are
medians and extremes. Needs root and zram. All it sets up is taken down again, also after Ctrl-C.
"""

import argparse
import contextlib
import math
import os
import resource
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))

import programs
import rounds
from gauge import Gauge, tree
from manager import Manager
from system import Group, MemoryGroup, Swap, prepare, read

PROGRAMS = ("redis", "postgres", "sort", "stencil", "numpy")
ROWS = {"alone": False, "lock": True}
# What was accessed at all, the most accessed first. The quota is for the whole run; it begins at the second turn, when there
# is something to choose from.
LOCK = """[[scheme]]
action = "lock"
apply_interval = "4s"
[scheme.pattern]
size = ["4K", "max"]
access_rate = ["0.1%", "100%"]
[scheme.quota]
bytes = "{kib}K"
reset_interval = "1h"
weights = {{ size = 0, access_rate = 7, age = 3 }}
"""
UNLOCK = ["schemes", "--scheme", "4K null null null null null unlock", "--duration", "3s"]
REFERENCES = """
Published for DAMON's patch set (other programs, another machine, the hot part locked by hand): 2.55 times faster at best,
1.65 on average."""


def locked(pids):
    """Bytes that these processes have locked."""
    found = 0
    for pid in pids:
        with contextlib.suppress(OSError, StopIteration):
            status = read(f"/proc/{pid}/status").splitlines()
            found += next(int(line.split()[1]) << 10 for line in status if line.startswith("VmLck:"))
    return found


def unlock(isotherm, program):
    """Takes all locks back; returns what is left of them, bytes."""
    target = ["--pid", str(program.pid)] + (["--children"] if program.many else [])
    # Fails where the program has ended meanwhile, and its locks with it.
    subprocess.run([isotherm, *UNLOCK, *target], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return locked(tree(program.pid))


def run_once(make, locks, share, isotherm, groups, swap, folder):
    """One run of a program with a share of its memory. Returns its figures."""
    memory, pressure = groups
    memory.unlimited()
    with contextlib.ExitStack() as stack:
        with memory.begetting():
            program = stack.enter_context(make())
        pids = tree(program.pid)
        pressure.add(pids)
        for pid in pids:
            # Not all programs run as root. Where root may not do this (CAP_SYS_RESOURCE), those lock up to their limit.
            with contextlib.suppress(PermissionError):
                resource.prlimit(pid, resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        needed = memory.needed()
        limit = int(needed * share)
        memory.limit(limit)
        arguments = []
        if locks:
            file = os.path.join(folder, "lock.toml")
            with open(file, "w") as f:
                f.write(LOCK.format(kib=limit // 2 >> 10))
            arguments = ["schemes", "-c", file]
        hits = memory.limit_hits()
        with Manager(isotherm, arguments, program, folder) as manager:
            with Gauge(program.pid, pressure, swap) as gauge:
                manager.begin()
                seconds = program.work()
                manager.end()
        hits = memory.limit_hits() - hits
        held = locked(tree(program.pid))
        left = unlock(isotherm, program) if held else 0
        stats, reasons = manager.stats()
        program.check()
    return {"seconds": seconds, "needed": needed, "limit": limit, "limit_hits": hits, "locked": held, "left_locked": left, "cpu": manager.cpu,
            "stats": stats, "idle_reasons": reasons, **gauge.figures()}  # fmt: skip


def show(name, runs):
    """One program's table."""
    base = runs["alone"]
    needed, limit = (rounds.median(r[key] for r in base) / (1 << 20) for key in ("needed", "limit"))
    print(f"\n{name}: needs {needed:.0f} MiB, has {limit:.0f}; alone {rounds.median(r['seconds'] for r in base):.1f} s")
    lines = []
    for row, all_of_it in runs.items():
        faster = [1 / ratio for ratio in rounds.ratios(all_of_it, base, "seconds")]
        lines.append([
            row,
            rounds.spread(faster),
            rounds.spread(rounds.ratios(all_of_it, base, "program_cpu")),
            rounds.median(round(r["locked"] / (1 << 20)) for r in all_of_it),
            rounds.median(round(r["left_locked"] / (1 << 20)) for r in all_of_it),
            rounds.median(r["limit_hits"] for r in all_of_it),
            rounds.median(r["major_faults"] for r in all_of_it),
            rounds.median(None if r["psi_us_per_s"] is None else round(r["psi_us_per_s"]) for r in all_of_it),
            rounds.median(None if r["cpu"] is None else round(r["cpu"] * 100, 2) for r in all_of_it),
        ])  # fmt: skip
    rounds.table(
        ["", "times faster", "its CPU", "locked MiB", "left", "limit hits", "major faults", "PSI us/s", "isotherm CPU %"], lines
    )


def summary(everything):
    """The geometric mean over the programs, beside the published figures."""
    medians = {
        name: 1 / rounds.median(rounds.ratios(runs["lock"], runs["alone"], "seconds")) for name, runs in everything.items()
    }
    mean = math.exp(sum(map(math.log, medians.values())) / len(medians))
    best = max(medians, key=medians.get)
    print(f"\nlock: {mean:.3f} times faster (geometric mean of the medians), {medians[best]:.3f} at best ({best})")
    print(REFERENCES)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rounds.options_of(parser, rounds=5)
    parser.add_argument("--only", metavar="PROGRAM,...", default=",".join(PROGRAMS), help="only these programs")
    parser.add_argument("--share", type=float, default=0.7, help="the limit, as a share of what a program needs (0.7)")
    parser.add_argument("--work", metavar="SHARE", type=float, help="do only this share of the work, for a shorter run")
    options = rounds.finish_options(parser, lambda _: ROWS)
    part = options.work or options.part
    chosen = options.only.split(",")
    for name in chosen:
        if name not in PROGRAMS:
            parser.error(f"no program called {name}; there are {', '.join(PROGRAMS)}")
    prepare("bench-lock")
    binaries = rounds.binaries_of(options, ("isotherm", "batch_sort", "stencil", "zipf_client"))
    everything = {}
    with rounds.work_folder() as folder, Swap(4096) as swap, MemoryGroup("bench-lock") as memory, Group() as group:
        print(f"{rounds.machine(swap)}. Limit: {options.share:.0%} of what the program needs.")
        catalogue = programs.catalogue(binaries, folder, part)
        for name in chosen:
            def run(locks, name=name):
                return run_once(
                    catalogue[name], locks, options.share, binaries["isotherm"], (memory, group), swap, folder
                )

            everything[name] = rounds.interleave(name, ROWS, options, run)
            show(name, everything[name])
            rounds.write_json(options, everything)
    if "lock" in options.chosen:
        summary(everything)


if __name__ == "__main__":
    main()
