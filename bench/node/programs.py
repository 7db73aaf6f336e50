"""Programs in control groups of their own that tell how fast they are: redis, PostgreSQL, numpy."""

import contextlib
import glob
import os
import pwd
import re
import signal
import subprocess
import tempfile
import threading
import time

import latency

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

    def __init__(self, work):
        super().__init__()
        found = max(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda p: int(p.split("/")[-2]))
        owner = pwd.getpwnam("postgres")
        self.folder = tempfile.mkdtemp(prefix="isotherm-bench-postgres-")
        os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        environment = {"PATH": found + ":/usr/bin:/bin", "PGHOST": self.folder, "PGDATABASE": "postgres", "LC_ALL": "C"}
        self.common = {"env": environment, "cwd": self.folder, "stdin": subprocess.DEVNULL,
                       "user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}  # fmt: skip
        self.server = self.session = None
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self):
        data = f"{self.folder}/data"
        self._run("initdb", "-D", data, "-A", "trust", "--no-sync")
        # The group is entered by number: whoever has become another user may not write there.
        self.server = subprocess.Popen(
            ["postgres", "-D", data, "-k", self.folder, "-c", "listen_addresses=", "-c", "shared_buffers=384MB", "-c", "fsync=off"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self.common,
        )  # fmt: skip
        self.group.take(self.server.pid)
        end = time.monotonic() + 60
        while subprocess.run(["pg_isready", "-q"], **self.common).returncode != 0:
            if time.monotonic() > end:
                raise RuntimeError("PostgreSQL did not start")
            time.sleep(0.2)
        for process in self._children():
            self.group.take(process)
        self._run("pgbench", "-i", "-q", "-s", "20")
        # A session that stays, so that what it has read is mapped by a process, as by those of a pool.
        self.session = subprocess.Popen(["psql", "-qtA"], stdout=subprocess.PIPE, text=True, **{**self.common, "stdin": subprocess.PIPE})
        self.session.stdin.write("CREATE EXTENSION pg_prewarm;\nSELECT pg_prewarm('pgbench_accounts');\nSELECT sum(abalance) FROM pgbench_accounts;\n")
        self.session.stdin.flush()
        self.session.stdout.readline()
        self.session.stdout.readline()
        with open(f"{self.folder}/script", "w") as f:
            f.write(self.SCRIPT)

    def _run(self, *command):
        return subprocess.run(command, check=True, capture_output=True, text=True, **self.common).stdout

    def _children(self):
        with open(f"/proc/{self.server.pid}/task/{self.server.pid}/children") as f:
            return [int(pid) for pid in f.read().split()]

    def begin(self, seconds):
        self.log = tempfile.mkdtemp(dir=self.folder, prefix="log")
        os.chmod(self.log, 0o777)
        command = ["pgbench", "-n", "-f", f"{self.folder}/script", "-c", "1", "-T", str(int(seconds)), "-R", "500", "-l",
                   "--log-prefix", f"{self.log}/t"]  # fmt: skip
        self.bench = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **self.common)

    def end(self):
        text, _ = self.bench.communicate()
        times = []
        for path in glob.glob(f"{self.log}/t*"):
            with open(path) as f:
                times += [int(line.split()[2]) for line in f]
        return {"rate": float(re.search(r"tps = ([0-9.]+)", text)[1]), **quantiles(times)}

    def stop(self):
        if self.session is not None:
            self.session.kill()
            self.session.wait()
        if self.server is not None:
            self.server.send_signal(signal.SIGQUIT)
            self.server.wait()
        subprocess.run(["rm", "-r", self.folder], check=True)
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
        for make in (lambda: Redis(binaries, work), lambda: Postgres(work), Numpy):
            started.append(make())
        yield started
    finally:
        for program in started:
            program.stop()
