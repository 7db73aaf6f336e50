#!/usr/bin/env python3
"""What monitoring costs: slowdown of a memory-bound program, and CPU time of the monitor.

Runs a fixed amount of work alone and under each way to monitor it, interleaved so that a drift of the machine hits all
alike, and prints medians of the ratio to the run alone in the same round. A second table does the same under memory
pressure: the program may keep only part of its memory, the rest goes to compressed swap; there, what monitoring does to
the kernel's choice of pages shows as extra major faults. A third watches a redis and tells its latency.

Needs root, zram for the second table, and redis for the third. All it sets up is taken down again, also after Ctrl-C.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Last: who imports this has a module of programs of its own.
sys.path += [os.path.join(HERE, "../schemes/lib"), os.path.join(HERE, "../../tests/lib")]

import latency
import start
from gauge import cpu_seconds
from system import Swap, prepare, undisturbed, write

SETTLE_S = 1.0  # for a monitor to start before the work begins


REFERENCED_S = 5  # seconds between two collections of cAdvisor's kind; it takes a minute
REFERENCED = f"clear_refs+smaps, {REFERENCED_S} s"


class Case:
    """A program to watch: an arena, its hot part, and the share of accesses that go there."""

    def __init__(self, name, size_mib, hot_mib, hot_percent):
        self.name, self.size_mib, self.hot_mib, self.hot_percent = name, size_mib, hot_mib, hot_percent


def monitors(binaries, options):
    """Name -> command line with {pid} and {record} to fill in; None: no monitor."""
    only = ["{pid}"] if options.referenced == "target" else []
    record = [binaries["isotherm"], "record", "--pid", "{pid}", "--duration", "1h", "-o", "{record}"]
    unlimited = ["--cpu-budget", "100%"]
    chosen = {
        "alone": None,
        "isotherm (defaults)": record,
        "isotherm --mode sample": record + ["--mode", "sample", *unlimited],
        "isotherm --mode scan": record + ["--mode", "scan", *unlimited],
        "page walk, 100 ms": [binaries["page_walk"], "{pid}", "100"],
        REFERENCED: [sys.executable, os.path.join(HERE, "referenced_bytes.py"), str(REFERENCED_S), *only],
    }
    if options.defaults:
        chosen = {name: chosen[name] for name in ("alone", "isotherm (defaults)")}
    return chosen


def run_once(target, monitor, cgroup, work):
    """One run of the work. Returns its seconds, its major faults, and the monitor's share of a core (None: no monitor)."""

    def enter_cgroup():
        if cgroup is not None:
            with open(os.path.join(cgroup, "cgroup.procs"), "w") as f:
                f.write(str(os.getpid()))

    program = watcher = None
    try:
        program = subprocess.Popen(
            target, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=enter_cgroup
        )
        if program.stdout.readline() != "ready\n":
            raise RuntimeError("the program under test did not start")
        if monitor is not None:
            log = open(os.path.join(work, "monitor.log"), "w+")
            record = os.path.join(work, "record.iso")
            command = [a.format(pid=program.pid, record=record) for a in monitor]
            watcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        time.sleep(SETTLE_S)
        if watcher is not None and watcher.poll() is not None:
            log.seek(0)
            raise RuntimeError(f"the monitor ended at once: {log.read()}")
        before = cpu_seconds(watcher.pid) if watcher else 0.0
        begin = time.monotonic()
        program.stdin.write("\n")
        program.stdin.flush()
        answer = program.stdout.readline().split()
        wall = time.monotonic() - begin
        share = (cpu_seconds(watcher.pid) - before) / wall if watcher and watcher.poll() is None else None
        if len(answer) != 2:
            raise RuntimeError(f"the program under test died (status {program.wait()})")
        return int(answer[0]) / 1e9, int(answer[1]), share
    finally:
        for process in (watcher, program):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGINT if process is watcher else signal.SIGKILL)
                try:
                    process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


@contextlib.contextmanager
def pressure(limit_mib, swap_mib):
    """A memory control group with a limit, whose folder it yields, and compressed swap; both are taken down at the end."""
    v1 = "/sys/fs/cgroup/memory"
    if os.path.exists(f"{v1}/memory.limit_in_bytes"):
        cgroup, limit = f"{v1}/isotherm-bench-{os.getpid()}", "memory.limit_in_bytes"
    else:
        cgroup, limit = f"/sys/fs/cgroup/isotherm-bench-{os.getpid()}", "memory.max"
    with Swap(swap_mib):
        os.mkdir(cgroup)
        try:
            write(os.path.join(cgroup, limit), f"{limit_mib}M")
            yield cgroup
        finally:
            with undisturbed():
                os.rmdir(cgroup)


def measure(case, binaries, options, cgroup, work):
    """Runs every monitor `rounds` times, interleaved. Returns {monitor: [(seconds, faults, share)]}."""

    def target(accesses):
        return [binaries["memory_bound"], str(case.size_mib), str(case.hot_mib), str(case.hot_percent), str(accesses)]

    trial = 1_000_000
    seconds, _, _ = run_once(target(trial), None, cgroup, work)
    accesses = max(int(trial * options.seconds / seconds), trial)
    chosen = monitors(binaries, options)
    runs = {name: [] for name in chosen}
    for number in range(options.rounds):
        names = list(chosen)
        names = names[number % len(names) :] + names[: number % len(names)]
        for name in names:
            print(f"\r{case.name}: round {number + 1} of {options.rounds}, {name:30}", end="", file=sys.stderr)
            runs[name].append(run_once(target(accesses), chosen[name], cgroup, work))
    print(file=sys.stderr)
    return runs


def show(case, runs, with_faults):
    """Prints a table of medians and spreads."""
    alone = [seconds for seconds, _, _ in runs["alone"]]
    print(f"\n{case.name}: {case.size_mib} MiB, {case.hot_percent} % of the accesses in {case.hot_mib} MiB; "
          f"alone {statistics.median(alone):.2f} s ({min(alone):.2f} to {max(alone):.2f})")
    print(f"{'':26}{'slowdown':>10}{'(lowest to highest)':>22}{'monitor CPU':>13}"
          + (f"{'major faults':>14}{'ratio':>7}" if with_faults else ""))
    base_faults = statistics.median(faults for _, faults, _ in runs["alone"])
    for name, rows in runs.items():
        ratios = [row[0] / base for row, base in zip(rows, alone)]
        shares = [row[2] for row in rows if row[2] is not None]
        line = f"{name:26}{statistics.median(ratios) - 1:>+10.2%}"
        line += f"{f'{min(ratios) - 1:+.2%} to {max(ratios) - 1:+.2%}':>22}"
        line += f"{statistics.median(shares):>13.2%}" if shares else f"{'-':>13}"
        if with_faults:
            faults = statistics.median(faults for _, faults, _ in rows)
            line += f"{faults:>14.0f}{faults / max(base_faults, 1):>7.2f}"
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(HERE, "../../target/release"), help="folder of the built programs")
    parser.add_argument("--rounds", type=int, default=7, help="at least five for figures that are quoted (default 7)")
    parser.add_argument("--seconds", type=float, default=4.0, help="about how long one run takes")
    parser.add_argument("--json", metavar="FILE", help="also write every single run there")
    parser.add_argument("--only", choices=["plain", "pressure", "latency", "start"], help="only one of the tables")
    parser.add_argument("--defaults", action="store_true",
                        help="only the rows 'alone' and 'isotherm (defaults)', which leaves time for more rounds")  # fmt: skip
    parser.add_argument("--keys", type=int, default=400_000, help="records of 1 KB in the redis whose latency is measured")
    parser.add_argument("--referenced", choices=["machine", "target"], default="machine",
                        help=f"whose accessed bits the row '{REFERENCED}' clears: those of every process, as cAdvisor does, or "
                             "only those of the program under test, which spares others on this machine")  # fmt: skip
    options = parser.parse_args()
    prepare("overhead")

    names = ("isotherm", "memory_bound", "page_walk", "ycsb_client")
    binaries = {name: os.path.join(options.bin, name) for name in names}
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as f:
        print(f"kernel {os.uname().release}, {os.cpu_count()} cores, transparent huge pages: {f.read().strip()}")
    everything = {}
    with tempfile.TemporaryDirectory(prefix="isotherm-overhead-") as work:
        if options.only in (None, "plain"):
            for case in (Case("uniform", 1024, 1024, 0), Case("hot tenth", 1024, 100, 90)):
                runs = measure(case, binaries, options, None, work)
                show(case, runs, with_faults=False)
                everything[case.name] = runs
        if options.only in (None, "pressure"):
            if os.path.exists("/sys/class/zram-control/hot_add"):
                case = Case("pressure", 512, 160, 98)
                with pressure(limit_mib=256, swap_mib=1024) as cgroup:
                    runs = measure(case, binaries, options, cgroup, work)
                show(case, runs, with_faults=True)
                everything[case.name] = runs
            else:
                print("\npressure: left out, because this kernel has no zram to swap to")
        if options.only in (None, "latency"):
            commands = monitors(binaries, options)
            chosen = {name: commands[name] for name in ("alone", "isotherm (defaults)", REFERENCED) if name in commands}
            runs = latency.measure(chosen, binaries, options, work)
            latency.show(runs, options)
            everything["latency"] = runs
        if options.only in (None, "start"):
            runs = start.measure(binaries, work)
            start.show(runs)
            everything["start"] = runs
    if options.json:
        with open(options.json, "w") as f:
            json.dump(everything, f)


if __name__ == "__main__":
    main()
