"""What is measured of the programs under test while they work."""

import contextlib
import os
import threading
import time

TICK = os.sysconf("SC_CLK_TCK")
SAMPLE_S = 0.5


def stat_fields(pid):
    """The fields of /proc/PID/stat from the third on."""
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(") ")[2].split()


def cpu_seconds(pid):
    """User and system time of a process so far, its threads counted."""
    fields = stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / TICK


def thread_cpu_seconds(pid, name):
    """User and system time of the threads of a process that have this name."""
    ticks = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/task/{tid}/stat") as f:
            before, _, after = f.read().rpartition(") ")
            if before.partition("(")[2] == name:
                ticks += sum(map(int, after.split()[11:13]))
    return ticks / TICK


def tree(root):
    """A process and all its descendants."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            parents[int(name)] = int(stat_fields(name)[1])
    found = [root]
    for pid in found:
        found.extend(child for child, parent in parents.items() if parent == pid)
    return found


def memory(pid):
    """Bytes of memory of a process; what it shares with others counts in parts (PSS)."""
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("Pss:"))


def spent(root):
    """Major faults and CPU seconds of a tree of processes so far; those of processes that have ended are in their parents'."""
    faults = ticks = 0
    for pid in tree(root):
        with contextlib.suppress(OSError, IndexError):
            fields = stat_fields(pid)
            faults += int(fields[9]) + int(fields[10])
            ticks += sum(map(int, fields[11:15]))
    return faults, ticks / TICK


def waited(root):
    """Seconds that the threads of a tree of processes that live now were ready to run and had no core; None: not reported."""
    nanoseconds = 0
    for pid in tree(root):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for tid in os.listdir(f"/proc/{pid}/task"):
                if not os.path.exists(f"/proc/{pid}/task/{tid}/schedstat"):
                    return None
                with open(f"/proc/{pid}/task/{tid}/schedstat") as f:
                    nanoseconds += int(f.read().split()[1])
    return nanoseconds / 1e9


class Gauge:
    """Measures a tree of processes, and the size of the swap, from the time it is entered until it is left."""

    def __init__(self, root, group, swap=None):
        self.root, self.group, self.swap = root, group, swap
        self.samples = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self):
        self.spent = spent(self.root)
        self.waited = waited(self.root)
        self.pressure = self.group.pressure()
        self.begin = time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self.begin
        self.spent = [after - before for after, before in zip(spent(self.root), self.spent)]
        self.waited = None if self.waited is None else (waited(self.root) or 0.0) - self.waited
        after = self.group.pressure()
        self.pressure = None if after is None or self.pressure is None else after - self.pressure
        self.stop.set()
        self.thread.join()

    def _sample(self):
        while not self.stop.wait(SAMPLE_S):
            rss = 0
            for pid in tree(self.root):
                with contextlib.suppress(OSError, StopIteration):
                    rss += memory(pid)
            self.samples.append((time.monotonic() - self.begin, rss, self.swap.used() if self.swap else 0))

    def figures(self):
        """Everything, as plain numbers."""
        count = max(len(self.samples), 1)
        return {
            "rss": sum(s[1] for s in self.samples) / count,
            "rss_end": self.samples[-1][1] if self.samples else None,
            "zram": sum(s[2] for s in self.samples) / count,
            "psi_us_per_s": None if self.pressure is None else self.pressure / self.seconds,
            "major_faults": self.spent[0],
            "program_cpu": self.spent[1],
            "waited_for_cpu": self.waited,
            "samples": [(round(t, 2), rss >> 10) for t, rss, _ in self.samples],
        }
