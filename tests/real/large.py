"""The agent of the machine beside a process with 100 GiB, whose pages are used at random: its memory and its cost.

No machine of ours has so much: one file is mapped over and over. Pages that are mapped several times can only be cleared all at once, which
would stop the process for a second; so next to nothing is known of them, and is said to be not known.
"""

import os
import subprocess
import tempfile

from harness import MIB, ControlGroup, compiled
from node import Node
from processes import start, stop

GIB = int(os.environ.get("LARGE_GIB", "100"))
HOT_PERCENT = 10
SECONDS = int(os.environ.get("LARGE_SECONDS", "300"))
IDLE = 60
MOST_MEMORY = 64 * MIB
BUDGET = 0.0105


def _bounds(row):
    """The least and the most that may be cold by what a row says."""
    entry = next((entry for entry in row.get("cold") or () if entry["for_ns"] == IDLE * 10**9), {})
    return entry.get("least") or 0, entry.get("most") or 0


def check(results):
    """Starts it, lets the agent watch, and looks at what it takes and says."""
    large = node = None
    with tempfile.TemporaryDirectory(prefix="isotherm-large-") as folder, ControlGroup("large") as group:
        try:
            path = compiled("large", folder, "-static")
            large = start([path, str(GIB), str(HOT_PERCENT)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          preexec_fn=group.enter)  # fmt: skip
            results.check(large.stdout.readline() == "ready\n", f"a process with {GIB} GiB is there")
            node = Node(folder)
            node.watch(SECONDS)
            row = next((line for line in node.ask("ps") if line["kind"] == "process" and line["pid"] == large.pid), {})
            cpu, memory = node.cpu.share(), node.memory()
            ended = node.stop()
        finally:
            stop(large)
            if node is not None and node.process.poll() is None:
                node.stop()
    size = GIB * 1024 * MIB
    results.near("its resident memory", size, row.get("rss_bytes"), 0.01)
    truth, (least, most) = size * (100 - HOT_PERCENT) / 100, _bounds(row)
    results.check(0 < least <= truth <= most, f"cold > {IDLE} s: truth {truth / MIB:.0f} MiB, between {least / MIB:.0f} and {most / MIB:.0f}")
    results.at_most("CPU of the node, from outside", BUDGET, cpu)
    results.at_most("its memory", MOST_MEMORY, memory, MIB, "MiB")
    results.check(ended, "it ends in good order")
