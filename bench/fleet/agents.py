#!/usr/bin/env python3
"""Whether agents save what `isotherm-fleet what-if` has said that they would.

A redis, a PostgreSQL and a numpy program, each in a control group of its own with an `isotherm node` that watches this group alone and
writes its windows. From these `isotherm-fleet tune` chooses a policy, and `what-if` says what that saves. The programs are started
anew, and agents with tune's file of rules page out what rests, for as long. Compared is what is out in the mean: as the windows
have it (`report`), and as the kernel counts it for each group at the ends of windows.

Needs root, eBPF, zram, redis, PostgreSQL, numpy, and a control group's count of swap. All it sets up is taken down again, also after Ctrl-C.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
sys.path[:0] = [os.path.join(ROOT, "bench/node"), os.path.join(ROOT, "bench/overhead"), os.path.join(ROOT, "tests/lib")]
# Last: it has a module of programs, too.
sys.path.append(os.path.join(ROOT, "bench/schemes/lib"))

import programs
from gauge import cpu_seconds
from node import MIB, Node
from system import Swap, prepare

# For how long the load runs before agents begin, s.
LEAD_S = 30


def seconds_of(text):
    """`5m` in seconds."""
    number, unit = re.fullmatch(r"(\d+)([smh])", text).groups()
    return int(number) * {"s": 1, "m": 60, "h": 3600}[unit]


def in_swap(group):
    """What of a control group the kernel counts in swap, bytes: the larger of what is charged to the group, shared memory included, and of
    its processes' own (a redis has been filled before it enters)."""
    v2 = os.path.join(group.path, "memory.swap.current")
    with open(v2 if os.path.exists(v2) else os.path.join(group.path, "memory.stat")) as f:
        text = f.read()
    charged = int(text) if text.strip().isdigit() else int(re.search(r"^swap (\d+)", text, re.M)[1])
    own = 0
    for pid in group.pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/status") as f:
            own += int(re.search(r"VmSwap:\s+(\d+) kB", f.read())[1]) * 1024
    return max(charged, own)


@contextlib.contextmanager
def agents(binary, all_programs, folder, window, config):
    """A node for each program's group, in folders of their own, that ends in good order."""
    nodes = []
    try:
        for program in all_programs:
            runtime = os.path.join(folder, "run", program.name)
            os.makedirs(runtime)
            rules = ["-c", config] if config else []
            nodes.append(Node(binary, runtime, "--cgroup", program.group.path, "--host", program.name, "--window", window,
                              "--parquet", os.path.join(folder, "windows", program.name), *rules))  # fmt: skip
        yield nodes
    finally:
        for node in nodes:
            node.stop()


def phase(options, binaries, work, name, config=None):
    """Lets all run for so long. Returns the folder of windows, and what was seen by program."""
    folder, window_s = os.path.join(work, name), seconds_of(options.window)
    windows = seconds_of(options.duration) // window_s
    # Of its own, since the redis of the phase before has left its socket.
    os.makedirs(folder, exist_ok=True)
    with programs.running(binaries, folder) as all_programs:
        begin = ((time.time() + LEAD_S + 5) // window_s + 1) * window_s
        time.sleep(begin - LEAD_S - time.time())
        for program in all_programs:
            program.begin(LEAD_S + windows * window_s)
        time.sleep(begin + 0.2 - time.time())
        seen = {program.name: {"group": program.group.name, "swap": [], "resident": []} for program in all_programs}
        with agents(binaries["isotherm"], all_programs, folder, options.window, config) as nodes:
            for number in range(1, windows + 1):
                print(f"\r{name}: window {number} of {windows}    ", end="", file=sys.stderr)
                time.sleep(begin + number * window_s + 0.4 - time.time())
                for program, node in zip(all_programs, nodes):
                    if node.process.poll() is not None:
                        raise RuntimeError(f"the agent of {program.name} ended; see {node.log.name}")
                    rule = (node.groups().get(program.group.name) or {}).get("rule") or {}
                    seen[program.name]["swap"].append(in_swap(program.group))
                    seen[program.name]["resident"].append(program.resident())
                    seen[program.name].setdefault("rule", []).append(rule)
                    seen[program.name]["cpu"] = cpu_seconds(node.process.pid) / (number * window_s)
        print(file=sys.stderr)
        for program in all_programs:
            seen[program.name]["speed"] = program.end()
    return os.path.join(folder, "windows"), seen


def watched(options, binaries, work):
    """The first phase, or what an earlier run has left of it."""
    seen = os.path.join(work, "watched.json")
    if os.path.exists(seen):
        with open(seen) as f:
            return os.path.join(work, "watched/windows"), json.load(f)
    windows, first = phase(options, binaries, work, "watched")
    write(work, "watched.json", first)
    return windows, first


def fleet(options, *args):
    """Lines of JSON that isotherm-fleet prints."""
    done = subprocess.run([options.fleet, *args, "--json"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"isotherm-fleet {args[0]}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def by_job(lines):
    return {line["name"]: line for line in lines if line["kind"] == "job"}


def show(options, first, predicted, second, reported, chosen):
    """The table."""
    print(f"\n{len(first)} agents, windows of {options.window}, {options.duration} of watching and {options.duration} with rules; chosen: percentile "
          f"{chosen['percentile'] * 100:g}, warm-up {chosen['warmup_s']} s, {options.rate}")  # fmt: skip
    print(f"{'MiB, means':12}{'resident':>10}{'predicted':>11}{'out':>8}{'as the kernel has it':>22}{'of predicted':>14}{'throughput':>12}{'agent':>8}")
    sums = [0, 0, 0, 0]
    for name, watched in first.items():
        acted = second[name]
        row = [predicted[watched["group"]]["resident_bytes"], predicted[watched["group"]]["saved_bytes"],
               reported[acted["group"]]["swapped_bytes"] or 0, sum(acted["swap"]) / len(acted["swap"])]  # fmt: skip
        sums = [a + b for a, b in zip(sums, row)]
        print(line_of(name, row) + f"{acted['speed']['rate'] / watched['speed']['rate']:>12.3f}{acted['cpu']:>8.2%}")
    print(line_of("all", sums))


def line_of(name, row):
    resident, said, out, kernel = row
    share = f"{kernel / said:.2f}" if said >= MIB else "-"
    return f"{name:12}{resident / MIB:>10.1f}{said / MIB:>11.1f}{out / MIB:>8.1f}{kernel / MIB:>22.1f}{share:>14}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "target/release"), help="folder of the built programs")
    parser.add_argument("--fleet", default=os.path.join(ROOT, "target/fleet/isotherm-fleet"), help="the program isotherm-fleet")
    parser.add_argument("--duration", default="30m", help="of watching, and then of acting")
    parser.add_argument("--window", default="5m")
    parser.add_argument("--rate", default="0.2%/min", help="of tune and what-if")
    parser.add_argument("--over", default="2%", help="of tune")
    parser.add_argument("--keep", metavar="DIR", help="leave windows, rules and what was seen there; a run in the same folder goes on after the first phase")
    options = parser.parse_args()
    prepare("agents")
    binaries = {name: os.path.join(options.bin, name) for name in ("isotherm", "ycsb_client")}
    print(f"kernel {os.uname().release}, {os.cpu_count()} cores", flush=True)
    with contextlib.ExitStack() as stack:
        work = options.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="isotherm-bench-agents-"))
        os.makedirs(work, exist_ok=True)
        windows, first = watched(options, binaries, work)
        rules = os.path.join(work, "node.toml")
        print("\n".join(json.dumps(line) for line in fleet(options, "report", windows) if line["kind"] == "total"), flush=True)
        chosen = next(line for line in fleet(options, "tune", windows, "--rate", options.rate, "--over", options.over, "--rules", rules)
                      if line["kind"] == "choice")  # fmt: skip
        said = fleet(options, "what-if", windows, "--rate", options.rate, "--percentile", f"{chosen['percentile'] * 100:g}",
                     "--warmup", f"{chosen['warmup_s']}s")  # fmt: skip
        with open(rules) as f:
            print(f.read(), flush=True)
        with Swap(4096):
            windows, second = phase(options, binaries, work, "acted", rules)
        write(work, "acted.json", second)
        show(options, first, by_job(said), second, by_job(fleet(options, "report", windows)), chosen)


def write(work, name, value):
    with open(os.path.join(work, name), "w") as f:
        json.dump(value, f, indent=1)


if __name__ == "__main__":
    main()
