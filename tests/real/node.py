"""The agent of the machine: what it says of 150 programs and of a redis among all else that runs, after a minute, at a bounded cost. By
name also of a PostgreSQL and a JVM."""

import contextlib
import json
import os
import random
import subprocess
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import cold
import windows
from group import EACH_MIB, RESOLVED, USED, affordable
from harness import BINARY, MIB, ControlGroup, CpuTime, used_pages
from neighbours import Jvm, PostgresSession, resident
from pages import COLD, WORKING_SET, Program, build, hot_pages, size
from processes import start, stop, wait_for

SECONDS = int(os.environ.get("NODE_SECONDS", "60"))
# How long it takes to get round all of them at 1 % of a core is the machine's speed.
LONGEST = 300
CHURN_SECONDS = 50
MOST_MEMORY = 64 * MIB
TEN = 10


class Node:
    """A running `isotherm node` of all processes, with its sockets in a folder of its own."""

    def __init__(self, folder, *options):
        self.environment = {**os.environ, "RUNTIME_DIRECTORY": folder}
        self.log = open(f"{folder}/log", "w+")
        command = [BINARY, "node", "--metrics", "0", "--parquet", f"{folder}/windows", "--window", "10s", *options]
        self.process = subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.cpu = CpuTime(self.process)

    def said(self):
        """Its messages."""
        self.log.flush()
        with open(self.log.name) as f:
            return f.read()

    def watch(self, seconds):
        """Lets it watch for so long."""
        wait_for("the node serves metrics", lambda: "watching" in self.said())
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.cpu.look()
            time.sleep(0.2)

    def metrics(self):
        """Its samples at /metrics."""
        url = self.said().partition("metrics at ")[2].split()[0]
        text = urllib.request.urlopen(url, timeout=30).read().decode()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")}

    def ask(self, *command):
        """Lines of JSON of a command that asks it."""
        done = subprocess.run([BINARY, *command, "--json"], env=self.environment, stdout=subprocess.PIPE, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def memory(self):
        """Its resident memory, bytes."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) * 1024

    def stop(self):
        """Ends it; whether it did so in good order."""
        self.process.terminate()
        try:
            return self.process.wait(timeout=20) == 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False


# Processes that come every two seconds, and live for twelve: one is always too young for anything to be known of it.
CHURN = ["sh", "-c", "while :; do sleep 12 & sleep 2; done"]


def within_ten(line, what, time_name):
    """Bytes of a line of `ps` or `top` cold for ten seconds, or used within them. None: not known, of this time or (null) of any."""
    return next((entry["bytes"] for entry in line.get(what) or () if entry[time_name] == TEN * 10**9), None)


# More of a group that nothing is known of yet, and its row says nothing of it.
TWENTIETH = 0.05


def _resolved(lines, programs, groups):
    """Whether `ps` tells of nearly all pages of each program, and of enough of each group for a figure everywhere."""
    by_pid = {line["pid"]: line for line in lines if line["kind"] == "process"}
    wanted = [(by_pid.get(program.pids[0]), RESOLVED) for program in programs]
    wanted += [(group.row(lines), TWENTIETH) for group, _ in groups]
    return all(
        line and within_ten(line, "cold", "for_ns") is not None and line["unresolved_bytes"] <= part * line["rss_bytes"]
        for line, part in wanted
    )


def _compare(results, neighbour, true, line):
    """Cold memory of a program as `ps` has it. Of its mappings some may wait for their turn to be cleared; until then `ps` says of
    these that it does not know."""
    line = line or {}
    measured, waits, unseen = within_ten(line, "cold", "for_ns") or 0, line.get("unresolved_bytes") or 0, line.get("unobservable_bytes") or 0
    ok = measured <= true * (1 + COLD) and measured + waits >= true * (1 - COLD)
    results.check(ok, f"{neighbour.name}: cold > {TEN} s by ps: truth {true / MIB:.1f} MiB, measured {measured / MIB:.1f}, and "
                      f"{waits / MIB:.1f} not known yet, {unseen / MIB:.1f} not observable")  # fmt: skip


def _agree(results, what, group, lines, top, metrics, rows, process=None):
    """What is said of a group in four ways must be the same: by `ps`, `top`, /metrics, and in the last window's row; of the only
    process of a group, in a fifth, its own line."""
    figures = {
        "ps": within_ten(group.row(lines), "cold", "for_ns"),
        "top": within_ten(group.row(top), "cold", "for_ns"),
        "/metrics": group.idle(metrics, TEN),
        "Parquet": windows.idle(rows, group.name, TEN),
    }
    if process is not None:
        figures["its process"] = within_ten(process, "cold", "for_ns")
    known = [value for value in figures.values() if value is not None]
    same = len(known) == len(figures) and max(known) - min(known) <= COLD * max(known)
    said = ", ".join(f"{way} {'nothing' if value is None else f'{value / MIB:.1f}'}" for way, value in figures.items())
    results.check(same, f"{what}: idle for {TEN} s, MiB, by {said} (within {COLD:.0%} of each other)")


def check_more(results):
    """With a PostgreSQL and a JVM as well. How much the PostgreSQL uses differs from run to run."""
    check(results, kinds=(PostgresSession, Jvm))


def check(results, kinds=()):
    """Starts all, lets the agent watch, and compares what it says in several ways with the truth; with `kinds`, also of groups of
    other programs, and in the Parquet files."""
    number = affordable()
    programs, neighbours, node = [], [], None
    with tempfile.TemporaryDirectory(prefix="isotherm-node-") as folder, ControlGroup("node") as group, contextlib.ExitStack() as groups:
        own_groups = []
        try:
            path = build(folder)
            neighbours.append(cold.Server(folder, "redis", 150_000, random.Random(1).sample(range(150_000), 5_000)))
            neighbours[0].start()
            for kind in kinds:
                neighbours.append(kind())
            for neighbour in neighbours:
                own, pids = groups.enter_context(ControlGroup(neighbour.name)), neighbour.pids
                own.take(pids)
                own_groups.append((own, len(pids)))
            words = dict(size=size(EACH_MIB), set="random", hot=hot_pages(EACH_MIB, USED), period=200_000)
            programs += [Program(path, group.enter, seed=seed, **words) for seed in range(number)]
            for program in programs:
                program.ready()
            node = Node(folder)
            seconds = SECONDS
            node.watch(seconds)
            groups_of = own_groups if kinds else []
            while seconds < LONGEST and not _resolved(node.ask("ps"), programs, groups_of):
                node.watch(10)
                seconds += 10
            held = [resident(neighbour.pid) for neighbour in neighbours]
            lines, top, samples = node.ask("ps"), node.ask("top", "--batch", "--duration", "100ms"), node.metrics()
            node.cpu.look()
            cpu, memory = node.cpu.share(), node.memory()
            # Its last window is that of its end. The truth clears accessed bits, which it must not see.
            ended = node.stop()
            rows = windows.last(f"{folder}/windows") if kinds else None
            with ThreadPoolExecutor() as pool:
                truths = list(pool.map(lambda n: used_pages(n.pid, TEN), neighbours))
        finally:
            for one in [*programs, *neighbours]:
                one.stop()
            if node is not None and node.process.poll() is None:
                node.stop()
    truth = sum(program.size - program.hot for program in programs)
    by_pid = {line["pid"]: line for line in lines if line["kind"] == "process"}
    each = [(program, by_pid.get(program.pids[0])) for program in programs]
    found = [(p.size - p.hot, within_ten(line, "cold", "for_ns")) for p, line in each if line]
    results.check(len(found) == number, f"{len(found)} of {number} programs are listed by ps after {seconds} s")
    # Each has some pages beside its pattern, which count for more in a small program.
    own = 2 * MIB
    right = [measured is not None and true * (1 - COLD) <= measured <= true * (1 + COLD) + own for true, measured in found]
    results.check(all(right), f"ps: cold > {TEN} s of each within {COLD:.0%}: {sum(right)} of {len(right)}")
    of_group = group.row(lines)
    results.near(f"ps: cold > {TEN} s of their group", truth, within_ten(of_group, "cold", "for_ns"), COLD)
    hot = sum(program.hot for program in programs)
    results.near(f"ps: used within {TEN} s in their group", hot, within_ten(of_group, "working_set", "within_ns"), WORKING_SET)
    of_group = group.row(top)
    results.near(f"top: cold > {TEN} s of their group", truth, within_ten(of_group, "cold", "for_ns"), COLD)
    results.near(f"/metrics: idle for {TEN} s in their group", truth, group.idle(samples, TEN), COLD)
    # What the program has allocated since is in the pages that are seen to be used, but not in what it held.
    for neighbour, then, (_, used) in zip(neighbours, held, truths):
        _compare(results, neighbour, then - used, by_pid.get(neighbour.pid))
    if rows is not None:
        _agree(results, f"the {number}", group, lines, top, samples, rows)
        for neighbour, (own, processes) in zip(neighbours, own_groups):
            process = by_pid.get(neighbour.pid) if processes == 1 else None
            _agree(results, f"{neighbour.name}'s group", own, lines, top, samples, rows, process)
    cost = samples["isotherm_monitor_cpu_seconds_total"] + samples["isotherm_target_cost_seconds_total"]
    results.at_most("cost of monitor and target, as reported", 0.0105, cost / seconds)
    results.at_most("CPU of the node, from outside", 0.0105, cpu)
    watched = sum(line["rss_bytes"] or 0 for line in lines if line["kind"] == "total")
    results.at_most(f"its memory, with {watched / 2**30:.1f} GiB watched", MOST_MEMORY, memory, MIB, "MiB")
    results.check(ended, "it ends in good order")


# A server that loads its memory and forks: each worker lives for 20 s, every five seconds another one takes its place.
SERVER_MIB, WORKERS, LIFE_MS = 256, 4, 20_000
OLDER = 30  # than any worker, s


def check_churn(results):
    """Where processes come and go all the time, what the others hold together is known all the same, with shared pages counted once;
    what a server has loaded and its workers do not use is idle, however young they are."""
    programs, churn, server, node = [], None, None, None
    with tempfile.TemporaryDirectory(prefix="isotherm-node-") as folder, ControlGroup("churn") as group, ControlGroup("prefork") as prefork:
        try:
            path = build(folder)
            churn = start(CHURN)
            words = dict(set="random", period=200_000)
            of_each = dict(size=size(EACH_MIB), hot=hot_pages(EACH_MIB, USED), **words)
            programs += [Program(path, group.enter, seed=seed, **of_each) for seed in range(2)]
            for program in programs:
                program.ready()
            of_server = dict(size=size(SERVER_MIB), hot=hot_pages(SERVER_MIB, USED), **words)
            server = Program(path, prefork.enter, fork=WORKERS, life=LIFE_MS, **of_server).ready()
            node = Node(folder, "--cpu-budget", "5%")
            node.watch(CHURN_SECONDS)
            looks = []
            for _ in range(3):
                looks.append((node.ask("ps"), node.metrics()))
                node.watch(2)
            ended = node.stop()
        finally:
            for program in [*programs, server]:
                if program is not None:
                    program.stop()
            stop(churn)
            if node is not None and node.process.poll() is None:
                node.stop()
    idle = server.size - server.hot
    for lines, metrics in looks:
        of_server = prefork.row(lines)
        results.near("a server that forks: resident memory by ps", server.size, of_server["rss_bytes"], COLD)
        results.near(f"cold > {TEN} s by ps", idle, within_ten(of_server, "cold", "for_ns"), COLD)
        results.near(f"idle for {OLDER} s by /metrics", idle, prefork.idle(metrics, OLDER), COLD)
    total = next(line for line in lines if line["kind"] == "total")
    results.check(total["shared"] == "counted_once", f"shared pages where processes come and go: {total['shared']}")
    of_group = group.row(lines)
    pids = {program.pids[0] for program in programs}
    each = sum(line["rss_bytes"] for line in lines if line["kind"] == "process" and line["pid"] in pids)
    once = of_group["rss_bytes"]
    results.check(once < each, f"the group's RSS is below that of its two processes, {each / MIB:.1f} MiB: {once / MIB:.1f}")
    truth = sum(program.size - program.hot for program in programs)
    results.near(f"ps: cold > {TEN} s of a group there", truth, within_ten(of_group, "cold", "for_ns"), COLD)
    results.check(ended, "it ends in good order")
