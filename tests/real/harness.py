"""What the checks of real programs share: recording as a user does, and counting results."""

import os
import signal
import subprocess
import time

import record
from ranges import MIB, length

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
BINARY = os.environ.get("ISOTHERM", os.path.join(ROOT, "target/static/isotherm"))


class Results:
    """Counts checks and prints each."""

    def __init__(self):
        self.passed = self.failed = 0
        self.scope = ""

    def check(self, ok, text):
        """One check: whether it holds, and what it says."""
        print(f"{'ok  ' if ok else 'FAIL'} {self.scope}: {text}", flush=True)
        if ok:
            self.passed += 1
        else:
            self.failed += 1


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


def wait_for(what, condition, seconds=60):
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited in vain until {what}")
        time.sleep(0.05)


def start(command, **options):
    """Starts a program in a process group of its own, so that `stop` reaches all that it starts."""
    return subprocess.Popen(command, start_new_session=True, **options)


def stop(process, how=signal.SIGTERM):
    """Ends a program that `start` started, and all of its process group."""
    if process is None:
        return
    for sent in (how, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
            process.wait(timeout=20)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()
