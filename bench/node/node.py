#!/usr/bin/env python3
"""The agent of the machine: what it costs a redis, and what its rules save in three groups of programs.

The first table: latency of a redis under nothing, under `isotherm node`, and under what cAdvisor does once a minute (clear_refs and
smaps of all processes), in turns. The second: a redis, a PostgreSQL and a numpy program, each in a control group of its own, before
and while the rules of a node page out what rests: memory, what came back, throughput and latency, medians of windows.

Needs root, eBPF, zram, redis and PostgreSQL. All it sets up is taken down again, also after Ctrl-C.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../overhead"), os.path.join(HERE, "../../tests/lib")]
# Last: it has a module of programs, too.
sys.path.append(os.path.join(HERE, "../schemes/lib"))

import latency
import programs
from gauge import cpu_seconds
from system import Swap, prepare

MIB = 1 << 20
QUANTILES = ("p50_us", "p99_us", "p999_us")


class Node:
    """A running `isotherm node`, with its socket in a folder of its own."""

    def __init__(self, binary, folder, *options):
        self.binary, self.folder = binary, folder
        self.environment = {**os.environ, "RUNTIME_DIRECTORY": folder}
        self.log = open(os.path.join(folder, "node.log"), "w")
        self.process = subprocess.Popen([binary, "node", *options], env=self.environment, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)  # fmt: skip

    def groups(self):
        """What its status has of each control group, by path."""
        done = subprocess.run([self.binary, "ctl", "status", "--json", "--pid", str(self.process.pid)], env=self.environment,
                              capture_output=True, text=True)  # fmt: skip
        return {group["cgroup"]: group for group in json.loads(done.stdout or "{}").get("groups", [])}

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def cost(options, binaries, work):
    """The first table."""
    commands = {
        "alone": None,
        "isotherm node": [binaries["isotherm"], "node", "--no-control", "--quiet"],
        "clear_refs+smaps, 60 s": [sys.executable, os.path.join(HERE, "../overhead/referenced_bytes.py"), "60"],
    }
    runs = latency.measure(commands, binaries, options, work)
    latency.show(runs, options)
    return runs


def stalled_us():
    """Time for which some task of this machine has waited for memory."""
    with open("/proc/pressure/memory") as f:
        return int(next(line for line in f if line.startswith("some")).rpartition("total=")[2])


def windows(all_programs, seconds, number, what):
    """Measures so many windows of all programs at once: figures of each program, and the part of the time with a stall."""
    rows, stalls = [], []
    for i in range(number):
        print(f"\r{what}: window {i + 1} of {number}    ", end="", file=sys.stderr)
        before, begin = stalled_us(), time.monotonic()
        for program in all_programs:
            program.begin(seconds)
        rows.append([program.end() for program in all_programs])
        stalls.append((stalled_us() - before) / 1e6 / (time.monotonic() - begin))
    print(file=sys.stderr)
    return [{key: [row[i][key] for row in rows] for key in rows[0][i]} for i in range(len(all_programs))], statistics.median(stalls)


def times_before(after, before):
    """The median of windows by the median of those before, with the range of each, by the same."""
    base = statistics.median(before)
    return (f"{statistics.median(after) / base:.2f} ({min(after) / base:.2f} to {max(after) / base:.2f}; "
            f"before {min(before) / base:.2f} to {max(before) / base:.2f})")  # fmt: skip


def rules(options, binaries, work):
    """The second table."""
    with Swap(4096) as swap, programs.running(binaries, work) as all_programs:
        print(f"\nletting the programs run for {options.settle:.0f} s", file=sys.stderr)
        time.sleep(min(options.settle, 60))
        before, stall_before = windows(all_programs, options.window, options.windows, "before")
        resident = [program.resident() for program in all_programs]
        used_by_zram = swap.used()
        config = os.path.join(work, "node.toml")
        with open(config, "w") as f:
            groups = ", ".join(f'"{program.group.name}"' for program in all_programs)
            f.write(f'pace = "64M/s"\n[[rule]]\ngroups = [{groups}]\naction = "reclaim"\nmin_age = "{options.age}"\n')
        node = Node(binaries["isotherm"], work, "-c", config)
        try:
            begin = time.monotonic()
            time.sleep(options.settle)
            during, stall_during = windows(all_programs, options.window, options.windows, "with rules")
            cpu = cpu_seconds(node.process.pid) / (time.monotonic() - begin)
            left = [program.resident() for program in all_programs]
            status = node.groups()
        finally:
            node.stop()
        compressed = swap.used() - used_by_zram
    print(f"\nrules: idle for {options.age}, stall 0.1 %; {options.windows} windows of {options.window:.0f} s each, before and after "
          f"{options.settle:.0f} s of rules")  # fmt: skip
    print(f"{'':12}{'resident':>10}{'with rules':>12}{'saved':>7}{'came back':>11}")
    for program, was, now in zip(all_programs, resident, left):
        rule = (status.get(program.group.name) or {}).get("rule") or {}
        back = (rule.get("refaulted") or [0, 0])[1]
        print(f"{program.name:12}{was // MIB:>6} MiB{now // MIB:>8} MiB{1 - now / was:>7.0%}{back // MIB:>7} MiB")
    was, now = sum(resident), sum(left)
    print(f"{'all':12}{was // MIB:>6} MiB{now // MIB:>8} MiB{1 - now / was:>7.0%}, with {compressed // MIB} MiB of compressed memory "
          f"{1 - (now + compressed) / was:.0%}")  # fmt: skip
    print("medians of the windows with rules by those before (range; range of those before)")
    for program, then, after in zip(all_programs, before, during):
        for key, name in (("rate", "throughput"), *((q, q.removesuffix("_us")) for q in QUANTILES)):
            print(f"{program.name:12}{name:12}x {times_before(after[key], then[key])}")
    print(f"some task waited for memory during {stall_before:.3%} of the time before, {stall_during:.3%} with rules; the node took "
          f"{cpu:.2%} of a core, paging out included")  # fmt: skip
    return {"before": before, "during": during, "resident": resident, "left": left}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(HERE, "../../target/release"), help="folder of the built programs")
    parser.add_argument("--only", choices=["cost", "rules"], help="only one of the tables")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the first table")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long a run of the first table takes")
    parser.add_argument("--keys", type=int, default=400_000, help="records of 1 KB in the redis of the first table")
    parser.add_argument("--age", default="2m", help="min_age of the rule")
    parser.add_argument("--settle", type=float, default=420.0, help="how long rules act before it is measured, s")
    parser.add_argument("--window", type=float, default=30.0, help="length of a window of the second table, s")
    parser.add_argument("--windows", type=int, default=6, help="windows before and with rules")
    options = parser.parse_args()
    prepare("node")
    binaries = {name: os.path.join(options.bin, name) for name in ("isotherm", "ycsb_client")}
    print(f"kernel {os.uname().release}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="isotherm-bench-node-") as work:
        if options.only in (None, "cost"):
            cost(options, binaries, work)
        if options.only in (None, "rules"):
            rules(options, binaries, work)


if __name__ == "__main__":
    main()
