"""Huge pages ahead of the faults, by `isotherm thp`: programs that fill memory in a known way (fill.c), each watched by a run of its own.

What is filled densely gets them, without being hot for long; what is sparse does not grow; and no byte changes. They are asked for at any
price, because the hosts of some machines take free memory back, so that huge pages are not asked for there.
"""

import contextlib
import json
import subprocess
import tempfile
import time

from harness import BINARY, MIB, compiled
from processes import start, stop

SETTING = "/sys/kernel/mm/transparent_hugepage/enabled"
SIZE = 256  # MiB
# Pattern -> least share of the touched memory that huge pages hold.
DENSE = {"dense": 0.75, "down": 0.75, "threads": 0.6, "grow": 0.5, "anew": 0.75, "stride": 0.85, "scatter": 0.85, "reads": 0.9, "rounds": 0.6}
# Pattern -> least share of the last quarter that is collapsed: while it is filled at random, many tries fail at first.
COLLAPSED = {"stride": 0.5, "scatter": 0.85}
# So often is the same memory filled; what that needs in the first ones is learnt from them.
ROUNDS = 16
# Pattern -> most bytes that it may take more than it has touched: what is filled until the first sample.
# Who writes again after a fork copies base pages. One mapping of the length that was filled before may grow.
SPARSE = {"sparse": 2 * MIB, "stripes": 2 * MIB, "random": 2 * MIB, "fork": 2 * MIB, "turns": 96 * MIB,
          "leaves": 36 * MIB}


@contextlib.contextmanager
def on_request():
    """Huge pages for what asks for them, and nothing else; restored at the end."""
    with open(SETTING) as f:
        before = f.read().partition("[")[2].partition("]")[0]
    with open(SETTING, "w") as f:
        f.write("madvise")
    try:
        yield
    finally:
        with open(SETTING, "w") as f:
            f.write(before)


def field(pid, name):
    """A field of smaps_rollup, bytes."""
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith(name + ":"))


class Fill:
    """fill.c at work, and `isotherm thp` that watches it."""

    def __init__(self, path, folder, pattern, ahead):
        self.pattern, self.manager = pattern, None
        self.process = start([path, pattern, str(SIZE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.log = open(f"{folder}/{pattern}-{ahead}.log", "w+")
        command = [BINARY, "thp", "--pid", str(self.process.pid), "--ahead", ahead, "--json"]
        self.manager = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def go(self):
        """Lets it fill."""
        self._line()

    def _line(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def filled(self):
        """Waits until it has; reads what it took."""
        words = self.process.stdout.readline().split()
        if words[:1] != ["filled"]:
            raise RuntimeError(f"{self.pattern} did not fill")
        pid, self.touched, self.faults = (int(word) for word in words[1:])
        self.huge, self.resident = field(pid, "AnonHugePages"), field(pid, "Private_Dirty")

    def right(self):
        """Whether it finds what it wrote; ends both."""
        self._line()
        right = self.process.stdout.read() == "ok\n"
        self.process.wait(timeout=20)
        self.status = self.manager.wait(timeout=20)
        self.log.seek(0)
        self.said = self.log.read()
        lines = [json.loads(line) for line in self.said.splitlines() if line.startswith("{")]
        self.totals = next((line["ahead"] for line in lines if line["ahead"]), None)
        return right

    def stop(self):
        """Ends both."""
        stop(self.process)
        if self.manager.poll() is None:
            self.manager.kill()
            self.manager.wait()
        self.log.close()


def check(results):
    """All patterns, a few at a time."""
    with tempfile.TemporaryDirectory(prefix="isotherm-fill-") as folder, on_request():
        path = compiled("fill", folder, "-pthread")
        for patterns in (["dense", "down"], ["threads", "grow"], ["anew", "fork"], ["stride", "stripes"], ["scatter"], ["reads"], ["rounds"], ["leaves"], ["sparse", "random", "turns"]):
            for fill in run(path, folder, patterns):
                judge(results, fill)
        (without,) = run(path, folder, ["dense"], "never")
        results.check(without.totals is None, "without it nothing is told of what was asked for ahead")
        results.check(without.huge == 0, f"without it a program that fills for a second has no huge pages: {without.huge / MIB:.0f} MiB")


def run(path, folder, patterns, ahead="always"):
    """Runs programs at the same time."""
    fills = []
    try:
        for pattern in patterns:
            fills.append(Fill(path, folder, pattern, ahead))
        time.sleep(1)
        for fill in fills:
            fill.go()
        for fill in fills:
            fill.filled()
        for fill in fills:
            fill.is_right = fill.right()
        return fills
    finally:
        for fill in fills:
            fill.stop()


def judge(results, fill):
    """What has to hold of one."""
    what = f"{fill.pattern}: touched {fill.touched / MIB:.0f} MiB, takes {fill.resident / MIB:.0f}, huge pages {fill.huge / MIB:.0f}"
    least, most = DENSE.get(fill.pattern), SPARSE.get(fill.pattern)
    if least:
        results.check(fill.huge >= least * fill.touched, f"{what} MiB (at least {least:.0%})")
        results.check(fill.resident <= fill.touched + 4 * MIB, f"{what} MiB: takes no more than it has touched")
        if fill.pattern in ("dense", "down"):
            pages = fill.touched // 4096
            results.check(fill.faults < pages / 2, f"{fill.pattern}: {fill.faults} faults for {pages} pages: ahead of them, not afterwards")
    else:
        results.check(fill.resident <= fill.touched + most, f"{what} MiB (at most {most / MIB:.0f} MiB more)")
    if fill.pattern == "rounds":
        pages = ROUNDS * fill.touched // 4096
        results.check(fill.faults < pages / 4, f"rounds: {fill.faults} faults for {pages} pages: most are asked for before the first one")
    results.check(fill.is_right and fill.status == 0, f"{fill.pattern}: every byte is as it was written, status {fill.status}")
    if fill.pattern == "turns":
        results.check("took 1 back" in fill.said, "turns: the request was taken back, and it says so")
        results.check(fill.totals and fill.totals["taken_back"] == 1, f"turns: the same in JSON: {fill.totals}")
    if fill.pattern in COLLAPSED:
        collapsed, least = fill.totals["collapsed"] if fill.totals else 0, COLLAPSED[fill.pattern] * SIZE / 4 * MIB
        results.check("collapsed" in fill.said, f"{fill.pattern}: it says that it has collapsed what was there")
        # And no more than this quarter, and what was there before the request for the others.
        most = SIZE * MIB - fill.totals["room"] if fill.totals else 0
        results.check(least <= collapsed <= most, f"{fill.pattern}: {collapsed / MIB:.0f} MiB, at least {least / MIB:.0f} of the last quarter, at most {most / MIB:.0f}")
    if fill.pattern == "dense":
        room = fill.totals["room"] if fill.totals else 0
        results.check(room >= least * fill.touched, f"dense: JSON tells of {room / MIB:.0f} MiB that were asked for: {fill.totals}")
