#!/usr/bin/env python3
"""Stores with twice the memory that they may have: the kernel alone, and the kernel with `isotherm lru run`.

redis, and SQLite in memory, each in a control group (version 1) with half the memory that it needs as its limit, and zram to swap
to. YCSB-like load: 80 % reads, 20 % updates, one request at a time; requests uniform, exponential, zipfian. Rows are interleaved.
Store and client share one processor (unless --spread): else most of a request's time is waking the other's processor up, which
goes faster while isotherm keeps it awake, and that is not what is to be measured. Isotherm runs where it likes.
Throughput, latency, and the CPU time of the whole machine per operation: the store, its client, the kernel's own threads,
compression, and isotherm. Needs root, zram and the v1 memory controller. All it sets up is taken down again, also after Ctrl-C.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../schemes/lib"), os.path.join(HERE, "../../tests/lib")]

import rounds
from confidence import ratio_text
from gauge import TICK, cpu_seconds, stat_fields
from processes import start, stop
from redis_server import RedisServer
from system import MemoryGroup, Swap, prepare, read, undisturbed, write

DISTRIBUTIONS = ("uniform", "exponential", "zipfian")
STORES = ("redis", "sqlite")
ROWS = ("kernel", "isotherm")
START_S = 120
REFERENCES = """
Published for the multi-generational LRU against the classic one (redis, other machine): +19.7 %, +20.1 % and +17.5 %.
Aim: +25 % for zipfian and exponential, nothing lost for uniform, at equal CPU per operation."""


class StoreKilled(RuntimeError):
    """Somebody has killed the store: the kernel, for lack of memory below the limit."""


class Store:
    """A store and its client, behind lines on stdin and stdout."""

    def __init__(self, name, distribution, options, binaries, folder, group):
        self.name, self.distribution, self.options = name, distribution, options
        self.binaries, self.folder, self.group = binaries, folder, group
        self.server = self.client = None

    def __enter__(self):
        try:
            self.group.unlimited()
            records = [str(self.options.records), self.distribution]
            if self.name == "redis":
                self.server = RedisServer(self.folder, seconds=START_S, preexec_fn=lambda: self._join(inside=True))
                command, inside = [self.binaries["ycsb_client"], self.server.socket, *records], False
            else:
                command, inside = ["/usr/bin/python3", f"{HERE}/sqlite_store.py", *records], True
            self.client = start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: self._join(inside))
            if self.client.stdout.readline() != "ready\n":
                raise RuntimeError(f"{' '.join(command)} did not start")
            return self
        except BaseException:
            self.__exit__()
            raise

    def _join(self, inside):
        """Called by what has just been started: shares the processor, and enters the group if it is `inside`."""
        if not self.options.spread:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        if inside:
            write(f"{self.group.path}/cgroup.procs", str(os.getpid()))

    @property
    def pid(self):
        """The process whose memory is limited."""
        return (self.server or self.client).pid

    def run(self, seconds):
        """Lets it work; returns what the client tells."""
        self.client.stdin.write(f"run {seconds}\n")
        self.client.stdin.flush()
        answer = self.client.stdout.readline()
        if not answer:
            status = self.client.wait()
            error = StoreKilled if status == -signal.SIGKILL else RuntimeError
            raise error(f"{self.name}: its data is wrong or it died (status {status})")
        return json.loads(answer)

    def __exit__(self, *_):
        with undisturbed():
            stop(self.client, signal.SIGKILL)
            if self.server is not None:
                self.server.stop(signal.SIGKILL)


class Isotherm:
    """`isotherm lru run` on the group; nothing for the row `kernel`."""

    def __init__(self, row, options, binaries, group, folder):
        self.process, self.file = None, f"{folder}/stats.jsonl"
        self.command = None
        if row != "kernel":
            arguments = options.isotherm.split() if options.isotherm else []
            self.command = [binaries["isotherm"], "lru", "run", "--cgroup", group.path, "--engine", "user",
                            "--stats", self.file, *arguments]  # fmt: skip

    def __enter__(self):
        if self.command:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(1)
            self.check()
        return self

    def check(self):
        """It must still run."""
        if self.process and self.process.poll() is not None:
            raise RuntimeError(f"{' '.join(self.command)} ended:\n{self.process.stderr.read()}")

    def cpu(self):
        """CPU seconds so far."""
        return cpu_seconds(self.process.pid) if self.process else 0.0

    def stats(self):
        """Its last line of statistics."""
        if not self.process:
            return None
        with open(self.file) as f:
            lines = f.readlines()
        return json.loads(lines[-1]) if lines else None

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout=60)
            except BaseException:
                self.process.kill()
                self.process.wait()
                raise


def busy_seconds():
    """CPU time of the whole machine in which something ran."""
    user, nice, system, _idle, _wait, irq, soft, *_ = map(int, read("/proc/stat").split("\n")[0].split()[1:])
    return (user + nice + system + irq + soft) / TICK


def measure(row, store_name, distribution, options, binaries, folder, group):
    """One run; returns its figures."""
    with Store(store_name, distribution, options, binaries, folder, group) as store:
        limit = int(group.used() / options.overcommit)
        group.limit(limit)
        with Isotherm(row, options, binaries, group, folder) as isotherm:
            store.run(options.warm_up)
            isotherm.check()
            before = busy_seconds(), isotherm.cpu(), int(stat_fields(store.pid)[9]), isotherm.stats()
            hits = group.limit_hits()
            figures = store.run(options.seconds)
            hits = group.limit_hits() - hits
            after = busy_seconds(), isotherm.cpu(), int(stat_fields(store.pid)[9]), isotherm.stats()
            isotherm.check()
    operations = figures["operations"]
    figures["throughput"] = operations / figures["seconds"]
    figures["cpu_us"] = (after[0] - before[0]) / operations * 1e6
    figures["isotherm_cpu_us"] = (after[1] - before[1]) / operations * 1e6
    figures["isotherm_cpu"] = (after[1] - before[1]) / figures["seconds"]
    figures["major_faults_per_operation"] = (after[2] - before[2]) / operations
    figures["limit_hits_per_operation"] = hits / operations
    figures["limit"] = limit
    figures["stats"] = [before[3], after[3]]
    return figures


def measure_anew(row, *arguments):
    """As `measure`, up to three times: with all pages in its active list, the kernel now and then kills the store for lack of memory."""
    for left in (2, 1, 0):
        try:
            return measure(row, *arguments)
        except StoreKilled as e:
            if not left:
                raise
            print(f"\n{row}: {e}; once more", file=sys.stderr)


def show(everything):
    """The table."""
    lines = []
    for (store, distribution), runs in everything.items():
        def middle(row, key, runs=runs):
            return statistics.median(r[key] for r in runs[row])

        for row in (r for r in runs if runs[r]):
            line = [f"{store}, {distribution}", row, f"{middle(row, 'throughput'):.0f}"]
            if row == "kernel":
                line += [None, None]
            else:
                pairs = list(zip(runs[row], runs["kernel"]))
                line += [ratio_text([a[key] / b[key] for a, b in pairs]) for key in ("throughput", "cpu_us")]
            line += [f"{middle(row, 'p50_us'):.0f}", f"{middle(row, 'p99_us'):.0f}", f"{middle(row, 'p999_us'):.0f}",
                     f"{middle(row, 'cpu_us'):.1f}", f"{middle(row, 'isotherm_cpu_us'):.2f}",
                     f"{middle(row, 'major_faults_per_operation'):.3f}", f"{middle(row, 'limit_hits_per_operation'):.4f}"]  # fmt: skip
            lines.append(line)
    rounds.table(["", "", "op/s", "throughput", "CPU/op", "p50 us", "p99 us", "p99.9 us", "CPU us/op", "isotherm's", "faults/op",
                  "reclaims/op"], lines)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(HERE, "../../target/release"), help="folder of the built programs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", metavar="STORE,...", default=",".join(STORES))
    parser.add_argument("--distributions", metavar="NAME,...", default=",".join(DISTRIBUTIONS))
    parser.add_argument("--records", type=int, default=400_000, help="of 1000 bytes each")
    parser.add_argument("--overcommit", type=float, default=2.0, help="the store's memory divided by its limit")
    parser.add_argument("--warm-up", type=float, default=20.0, help="seconds before measuring")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of measuring")
    parser.add_argument("--isotherm", metavar="OPTIONS", help="further options of `isotherm lru run`, in one word")
    parser.add_argument("--spread", action="store_true", help="let store and client run on all processors")
    parser.add_argument("--quick", action="store_true", help="one round of little work: does it run at all")
    parser.add_argument("--json", metavar="FILE", help="also write every single run there")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.warm_up, options.seconds, options.records = 1, 4.0, 4.0, 150_000
    if options.rounds < 1 or options.overcommit <= 1:
        parser.error("--rounds must be 1 or more, --overcommit more than 1")
    chosen = [(s, d) for s in options.only.split(",") for d in options.distributions.split(",")]
    for store, distribution in chosen:
        if store not in STORES or distribution not in DISTRIBUTIONS:
            parser.error(f"stores are {', '.join(STORES)}; distributions {', '.join(DISTRIBUTIONS)}")
    prepare("bench-lru")
    binaries = rounds.binaries_of(options, ("isotherm", "ycsb_client"))
    everything = {pair: {row: [] for row in ROWS} for pair in chosen}
    swap_mib = max(2048, options.records * 4 // 1000)
    with rounds.work_folder() as folder, Swap(swap_mib) as swap, MemoryGroup("bench-lru") as group:
        print(rounds.machine(swap) + f"; {options.records} records, overcommitted {options.overcommit:g} times.")
        for number in range(options.rounds):
            for pair in chosen:
                # Which row comes first changes from round to round.
                for row in ROWS if number % 2 == 0 else ROWS[::-1]:
                    text = f"round {number + 1} of {options.rounds}: {', '.join(pair)}, {row}"
                    print(f"\r{text:60}", end="", file=sys.stderr, flush=True)
                    everything[pair][row].append(measure_anew(row, *pair, options, binaries, folder, group))
                    rounds.write_json(options, {", ".join(k): v for k, v in everything.items()})
        print(file=sys.stderr)
    show(everything)
    print("CPU: the whole machine's. Ratios compare runs of the same round; ± is the 95 % confidence interval.")
    print(REFERENCES)


if __name__ == "__main__":
    main()
