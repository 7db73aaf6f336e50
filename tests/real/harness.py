"""What the checks of real programs share: recording as a user does, and counting results."""

import json
import os
import subprocess
import time

import record
import results
from processes import wait_for
from ranges import MIB, length

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
BINARY = os.environ.get("ISOTHERM", os.path.join(ROOT, "target/static/isotherm"))


class Results(results.Results):
    """Counts checks and prints each; figures against what is true."""

    def near(self, what, true, measured, tolerance, unit=MIB, name="MiB"):
        """One figure against the truth, which it may miss by `tolerance` of it. Measured nothing: that fails, too."""
        ok = measured is not None and abs(measured - true) <= tolerance * true
        self.check(ok, f"{what}: truth {true / unit:.1f} {name}, measured {_figure(measured, unit)} "
                       f"(within {tolerance:.0%})")  # fmt: skip

    def at_most(self, what, limit, measured, unit=0.01, name="%"):
        """One figure that must not exceed a limit."""
        ok = measured is not None and measured <= limit
        self.check(ok, f"{what}: measured {_figure(measured, unit, 2)} {name} (at most {limit / unit:.2f})")


def _figure(value, unit, digits=1):
    return "nothing" if value is None else f"{value / unit:.{digits}f}"


def isotherm(*arguments):
    """Runs the command, which must succeed; returns its stdout."""
    done = subprocess.run([BINARY, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"isotherm {' '.join(arguments)} ended with status {done.returncode}:\n{done.stderr}")
    return done.stdout


def watch(folder, seconds, *target):
    """Records `target` with the defaults; returns its snapshots and the summary that a person reads."""
    file = os.path.join(folder, "record.iso")
    isotherm("record", *target, "--duration", f"{seconds}s", "-o", file)
    return record.snapshots(isotherm("report", "raw", file, "--json")), isotherm("report", "summary", file)


def mib(ranges):
    """Size of ranges, for people."""
    return f"{length(ranges) / MIB:.1f} MiB"


def compiled(name, folder, *flags):
    """Compiles the C program NAME.c that lies beside this file; returns its path in `folder`."""
    path = os.path.join(folder, name)
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.c")
    subprocess.run(["cc", "-O2", *flags, source, "-o", path], check=True)
    return path


class Summary:
    """What `isotherm report summary --json` says about one target, or about all (pid None)."""

    def __init__(self, data):
        self.data, self.pid = data, data.get("pid")
        self.cost = data.get("cost", {})
        self.not_observable = data.get("idle", {}).get("not_observable") or 0
        # Of all together each page once; what the kernel counts for each process adds up to more.
        pages = data.get("resident_pages") or {}
        self.not_resolved = pages.get("not_resolved") or 0
        self.resident = pages.get("resident") or (data.get("resident") or {}).get("last")

    def cold(self, seconds=10):
        """Bytes that were not used for longer than this; None: not known."""
        for entry in self.data.get("idle", {}).get("cold", []):
            if entry["for_ns"] == seconds * 10**9:
                return entry["bytes"]
        return None

    def working_set(self):
        """Bytes used within a second. A summary that does not tell: its median working set."""
        sets = self.data.get("working_set", {})
        for entry in sets.get("windows", []):
            if entry["within_ns"] == 10**9:
                return entry["bytes"]
        return sets.get("p50")


def summaries(file):
    """Returns the summaries of single targets by pid, and that of all together (None: there is none)."""
    lines = [json.loads(line) for line in isotherm("report", "summary", file, "--json").splitlines()]
    single = {line["pid"]: Summary(line) for line in lines if line["target"] is not None}
    return single, next((Summary(line) for line in lines if line["target"] is None), None)


class CpuTime:
    """The CPU time of a running process, measured from outside."""

    SETTLE = 1.0  # starting is no watching
    TICK = os.sysconf("SC_CLK_TCK")

    def __init__(self, process):
        self.process, self.began, self.first, self.last = process, time.monotonic(), None, None

    def look(self):
        """Takes the CPU time so far; call it now and then. False: the process has ended."""
        now = time.monotonic()
        try:
            with open(f"/proc/{self.process.pid}/stat") as f:
                fields = f.read().rpartition(") ")[2].split()
            if fields[0] != "Z" and now - self.began > self.SETTLE:
                self.last = (now, (int(fields[11]) + int(fields[12])) / self.TICK)
                self.first = self.first or self.last
        except OSError:
            pass
        return self.process.poll() is None

    def share(self):
        """Share of a core that it took. None: it did not run for long enough."""
        if self.first is None or self.last[0] - self.first[0] < 5:
            return None
        return (self.last[1] - self.first[1]) / (self.last[0] - self.first[0])


class Recorder:
    """A running `isotherm record`, whose CPU time is measured from outside, too."""

    def __init__(self, file, seconds, *arguments, cpu=None):
        command = [BINARY, "record", *arguments, "--duration", f"{seconds}s", "-o", file]
        if cpu is not None:
            command = ["taskset", "-c", str(cpu), *command]
        self.file = file
        self.log = open(file + ".log", "w+")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.cpu = CpuTime(self.process)

    def look(self):
        """Takes the CPU time so far; call it now and then. False: the recorder has ended."""
        return self.cpu.look()

    def cpu_share(self):
        """Share of a core that it took. None: it did not run for long enough."""
        return self.cpu.share()

    LOOK_EVERY = 5  # s

    def watch_until(self, is_enough):
        """Lets it record until that is so, or to its end; returns for how long. What it has recorded can be read meanwhile."""
        began = time.monotonic()
        looked = began
        while self.look():
            time.sleep(0.2)
            if time.monotonic() - looked >= self.LOOK_EVERY:
                if is_enough():
                    self.process.terminate()
                    self.process.wait(timeout=30)
                    break
                looked = time.monotonic()
        self.finish()
        return time.monotonic() - began

    def finish(self):
        """After it has ended: whether it did so in good order."""
        self.log.seek(0)
        said = self.log.read()
        if self.process.returncode != 0:
            raise RuntimeError(f"isotherm record ended with status {self.process.returncode}:\n{said}")

    def stop(self):
        """Ends it, if it still runs."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


def wait_for_all(recorders):
    """Lets recorders come to their end; raises what one of them said if it failed."""
    while [r for r in recorders if r.look()]:
        time.sleep(0.2)
    for r in recorders:
        r.finish()


def used_pages(pid, seconds):
    """The kernel's own account by clear_refs and smaps: bytes that are resident, and bytes used within these seconds."""
    with open(f"/proc/{pid}/clear_refs", "w") as f:
        f.write("1")
    time.sleep(seconds)
    with open(f"/proc/{pid}/smaps_rollup") as f:
        sizes = dict(line.split(":", 1) for line in f if ":" in line and line.rstrip().endswith("kB"))
    return tuple(int(sizes[key].split()[0]) * 1024 for key in ("Rss", "Referenced"))


class ControlGroup:
    """A control group of memory, of our own, with nothing in it at the end."""

    def __init__(self, name):
        v1 = "/sys/fs/cgroup/memory"
        root = v1 if os.path.exists(f"{v1}/memory.usage_in_bytes") else "/sys/fs/cgroup"
        self.name = f"/isotherm-test-{name}-{os.getpid()}"
        self.path = root + self.name

    def row(self, lines):
        """What `ps` or `top` says of it, in lines of JSON; None: nothing."""
        return next((line for line in lines if line["kind"] == "cgroup" and line["cgroup"] == self.name), None)

    def idle(self, metrics, seconds):
        """Its bytes idle for so long by the samples of /metrics; None: nothing."""
        return metrics.get(f'isotherm_memory_idle_bytes{{cgroup="{self.name}",min_age_seconds="{seconds}"}}')

    def __enter__(self):
        os.mkdir(self.path)
        return self

    def enter(self):
        """Moves the calling process into it (for `preexec_fn`)."""
        with open(f"{self.path}/cgroup.procs", "w") as f:
            f.write(str(os.getpid()))

    def take(self, pids):
        """Moves these processes into it."""
        for pid in pids:
            with open(f"{self.path}/cgroup.procs", "w") as f:
                f.write(str(pid))

    def __exit__(self, *_):
        def empty():
            with open(f"{self.path}/cgroup.procs") as f:
                return not f.read()

        wait_for("the control group is empty", empty, 20)
        os.rmdir(self.path)
