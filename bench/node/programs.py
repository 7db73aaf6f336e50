"""Programs in control groups of their own that tell how fast they are: redis, PostgreSQL, numpy."""

import contextlib
import glob
import os
import re
import subprocess
import tempfile
import threading
import time

import latency
from postgres_server import PostgresServer

NUMPY = """
import sys, time
import numpy
rows, hot = 80_000, 16_000            # of 8 KB each
data = numpy.random.default_rng(1).integers(0, 10_000, (rows, 1024))
random = numpy.random.default_rng(2)
print("ready", flush=True)
while True:
    begin, rounds, times = time.monotonic(), 0, []
    while time.monotonic() < begin + 0.5:
        at = random.integers(0, hot, 64)
        before = time.perf_counter_ns()
        numpy.sort(data[at]).sum()
        times.append(time.perf_counter_ns() - before)
        rounds += 1
    print(*times, flush=True)
"""


class Group:
    """A control group of memory, of our own."""

    def __init__(self, name):
        v1 = "/sys/fs/cgroup/memory"
        root = v1 if os.path.exists(f"{v1}/memory.usage_in_bytes") else "/sys/fs/cgroup"
        self.name = f"/isotherm-bench-{name}-{os.getpid()}"
        self.path = root + self.name
        os.mkdir(self.path)

    def enter(self):
        """Moves the calling process into it (for `preexec_fn`)."""
        with open(f"{self.path}/cgroup.procs", "w") as f:
            f.write(str(os.getpid()))

    def take(self, pid):
        """Moves a process into it, unless it has ended."""
        with contextlib.suppress(ProcessLookupError), open(f"{self.path}/cgroup.procs", "w") as f:
            f.write(str(pid))

    def pids(self):
        with open(f"{self.path}/cgroup.procs") as f:
            return [int(line) for line in f]

    def remove(self):
        end = time.monotonic() + 20
        while self.pids() and time.monotonic() < end:
            time.sleep(0.1)
        os.rmdir(self.path)


class Program:
    """What all have in common."""

    name = None

    def __init__(self):
        self.group = Group(self.name)

    def resident(self):
        """Memory of its processes, a page that several map counted once, bytes."""
        total = 0
        for pid in self.group.pids():
            with open(f"/proc/{pid}/smaps_rollup") as f:
                total += next(int(line.split()[1]) for line in f if line.startswith("Pss:")) * 1024
        return total


def quantiles(times_us):
    """Those of a list of times that are reported."""
    ordered = sorted(times_us)
    at = lambda q: ordered[min(int(q * len(ordered)), len(ordered) - 1)]  # noqa: E731
    return {"p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999)}


class Redis(Program):
    """600 000 records of 1 KB, asked for one at a time, by Zipf's law."""

    name = "redis"

    def __init__(self, binaries, work):
        super().__init__()
        try:
            self.store = latency.Store(binaries, 600_000, work)
        except BaseException:
            self.group.remove()
            raise
        self.group.take(self.store.server.pid)

    def begin(self, seconds):
        def ask():
            self.answer = self.store.run(seconds)

        self.thread = threading.Thread(target=ask)
        self.thread.start()

    def end(self):
        self.thread.join()
        return {"rate": self.answer["operations"] / self.answer["seconds"], **{q: self.answer[q] for q in ("p50_us", "p99_us", "p999_us")}}

    def stop(self):
        self.store.close()
        self.group.remove()


class Postgres(Program):
    """pgbench's tables with 20 branches in shared buffers, read by its own script that asks for a tenth of the accounts."""

    name = "postgres"
    SCRIPT = "\\set aid random(1, 200000)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n"

    def __init__(self):
        super().__init__()
        try:
            # The group is entered by number: whoever has become another user may not write there.
            self.server = PostgresServer("shared_buffers=384MB", started=self.group.take)
        except BaseException:
            self.group.remove()
            raise
        try:
            for process in self.server.children():
                self.group.take(process)
            self.server.run("pgbench", "-i", "-q", "-s", "20")
            # A session that stays, so that what it has read is mapped by a process, as by those of a pool.
            session, _ = self.server.session()
            session.stdin.write("CREATE EXTENSION pg_prewarm;\nSELECT pg_prewarm('pgbench_accounts');\nSELECT sum(abalance) FROM pgbench_accounts;\n")
            session.stdin.flush()
            session.stdout.readline()
            session.stdout.readline()
            with open(f"{self.server.folder}/script", "w") as f:
                f.write(self.SCRIPT)
        except BaseException:
            self.stop()
            raise

    def begin(self, seconds):
        self.log = tempfile.mkdtemp(dir=self.server.folder, prefix="log")
        os.chmod(self.log, 0o777)
        command = ["pgbench", "-n", "-f", f"{self.server.folder}/script", "-c", "1", "-T", str(int(seconds)), "-R", "500", "-l",
                   "--log-prefix", f"{self.log}/t"]  # fmt: skip
        self.bench = self.server.start(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def end(self):
        text, _ = self.bench.communicate()
        times = []
        for path in glob.glob(f"{self.log}/t*"):
            with open(path) as f:
                times += [int(line.split()[2]) for line in f]
        return {"rate": float(re.search(r"tps = ([0-9.]+)", text)[1]), **quantiles(times)}

    def stop(self):
        self.server.stop()
        self.group.remove()


class Numpy(Program):
    """640 MB of numbers below 10 000, of which a fifth is sorted over and over."""

    name = "numpy"

    def __init__(self):
        super().__init__()
        self.process = subprocess.Popen(["/usr/bin/python3", "-c", NUMPY], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                                        preexec_fn=self.group.enter)  # fmt: skip
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError("numpy did not start")
        self.lines, self.lock = [], threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.lock:
                self.lines.append([int(ns) / 1000 for ns in line.split()])

    def begin(self, seconds):
        self.seconds, self.until = seconds, time.monotonic() + seconds
        with self.lock:
            self.lines.clear()

    def end(self):
        time.sleep(max(self.until - time.monotonic(), 0))
        with self.lock:
            times = [us for line in self.lines for us in line]
        return {"rate": len(times) / self.seconds, **quantiles(times)}

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.group.remove()


@contextlib.contextmanager
def running(binaries, work):
    """All of them, until the block ends."""
    started = []
    try:
        for make in (lambda: Redis(binaries, work), Postgres, Numpy):
            started.append(make())
        yield started
    finally:
        for program in started:
            program.stop()
