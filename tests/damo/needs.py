"""What the tests of this folder need: the binary, root with FUSE, and damo. Without one of these a test is skipped, not failed."""

import os
import shutil
import subprocess
import sys
import venv

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
DAMO = "damo==3.4.3"


def skip(test, why):
    """Ends this test, which has not failed."""
    print(f"{test}: skipped, because {why}")
    sys.exit(0)


def binary():
    """The binary to test: the first argument, else the one that was built."""
    if len(sys.argv) > 1:
        return os.path.abspath(sys.argv[1])
    for kind in ("release", "debug"):
        path = os.path.join(ROOT, "target", kind, "isotherm")
        if os.path.exists(path):
            return path
    sys.exit("damo: no isotherm binary; run `make build` first")


def root_and_fuse(test):
    """To mount files and to watch other programs."""
    if os.geteuid() != 0:
        skip(test, "it needs root")
    if not os.path.exists("/dev/fuse"):
        skip(test, "there is no /dev/fuse")


def file_command(test):
    """Without it damo cannot read records."""
    if not shutil.which("file"):
        skip(test, "damo needs the `file` command to read records")


def damo(test, folder):
    """The damo command, installed into this folder."""
    command = damo_if_possible(folder)
    if command is None:
        skip(test, f"{DAMO} cannot be installed (no network, or Python without venv)")
    return command


def damo_if_possible(folder):
    """As `damo`; None where it cannot be installed."""
    place = os.path.join(folder, "venv")
    try:
        venv.create(place, with_pip=True)
        options = ["--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
        subprocess.run([os.path.join(place, "bin/pip"), "install", *options, DAMO], capture_output=True, check=True)
    except (subprocess.CalledProcessError, OSError):
        return None
    return os.path.join(place, "bin/damo")
