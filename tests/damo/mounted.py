"""`isotherm mount` on a folder, while a test uses what is in it."""

import contextlib
import os
import subprocess
import sys
import time


@contextlib.contextmanager
def mounted(test, isotherm, folder, expected):
    """Until the end of `with`; begins once `expected`, a path below the folder, is there."""
    server = subprocess.Popen([isotherm, "mount", folder])
    try:
        while not os.path.exists(expected):
            if server.poll() is not None:
                sys.exit(f"{test}: FAIL: nothing is mounted")
            time.sleep(0.05)
        yield
    finally:
        server.terminate()
        server.wait()
