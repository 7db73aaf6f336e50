"""Programs that a test starts, waits for, and ends with everything that they have started."""

import os
import signal
import subprocess
import time


def start(command, **options):
    """Starts a program in a process group of its own, so that `stop` reaches all that it starts."""
    return subprocess.Popen(command, start_new_session=True, **options)


def stop(process, how=signal.SIGTERM):
    """Ends a program that `start` started, and all of its process group. None: there is nothing to end."""
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


def wait_for(what, condition, seconds=60):
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited in vain until {what}")
        time.sleep(0.05)
