"""The agent of the machine among thousands of processes: its budget, memory and descriptors are bounded, and it knows of all."""

import contextlib
import os
import resource
import subprocess
import tempfile

from harness import MIB, ControlGroup, compiled
from node import Node
from processes import start, stop, wait_for

# Each takes two descriptors of the node, which leaves half of them for all else.
MOST_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
PROCESSES = int(os.environ.get("CROWD_PROCESSES", min(10_000, (MOST_FILES - 1000) // 4)))
PAGES = 16
SECONDS = 60
# Finding and walking each for the first time is what costs; afterwards there is time to see what it takes from then on.
SECONDS_FOR_ALL = 300
MOST_MEMORY = 96 * MIB
BUDGET = 0.0105
LEAST_EACH = PAGES * 4096


def _open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def _known(row):
    """Of how many processes of a group more is known than that they are there."""
    return row["processes"] - row["not_watched"] if row else 0


def check(results):
    """Starts them, lets the agent watch, and looks at what it takes and says."""
    crowd = node = None
    with tempfile.TemporaryDirectory(prefix="isotherm-crowd-") as folder, ControlGroup("crowd") as group:
        try:
            path = compiled("crowd", folder, "-static")
            crowd = start([path, str(PROCESSES), str(PAGES)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          preexec_fn=group.enter)  # fmt: skip
            results.check(crowd.stdout.readline() == "ready\n", f"{PROCESSES} processes are there")
            node = Node(folder)
            node.watch(SECONDS)
            early = group.row(node.ask("ps"))
            node.watch(SECONDS_FOR_ALL - SECONDS)
            row = group.row(node.ask("ps"))
            cpu, memory, files = node.cpu.share(), node.memory(), _open_files(node.process.pid)
            crowd.kill()
            crowd.wait()
            few = files / 10
            with contextlib.suppress(RuntimeError):
                wait_for("their descriptors are closed", lambda: _open_files(node.process.pid) < few, 60)
            left = _open_files(node.process.pid)
            ended = node.stop()
        finally:
            stop(crowd)
            if node is not None and node.process.poll() is None:
                node.stop()
    results.check(row is not None and row["processes"] == PROCESSES, f"ps knows their group, with {row and row['processes']} processes")
    results.check(_known(early) == PROCESSES, f"{_known(early)} of them are known after {SECONDS} s")
    results.check(_known(row) == PROCESSES, f"{_known(row)} of them are known after {SECONDS_FOR_ALL} s")
    resident = (row and row["rss_bytes"]) or 0
    results.check(resident >= LEAST_EACH * PROCESSES, f"together they have {resident / MIB:.0f} MiB, of which "
                                                      f"{LEAST_EACH * PROCESSES / MIB:.0f} are their own pages")  # fmt: skip
    results.at_most("CPU of the node, from outside", BUDGET, cpu)
    results.at_most("its memory", MOST_MEMORY, memory, MIB, "MiB")
    results.check(left < few, f"its {files} descriptors become {left} once the processes have ended")
    results.check(ended, "it ends in good order")
