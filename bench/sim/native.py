"""libCacheSim's own program, `cachesim`, built in release mode from the sources that its Python package comes with.

Its documentation calls the binding slow, for that makes a Python object of what it reads; this is what it is at its best.
"""

import os
import re
import subprocess
import sys
import tarfile
import time

SOURCES = "libcachesim==0.3.5"
# Row -> its name of the policy.
POLICIES = {
    "lru": "lru",
    "fifo": "fifo",
    "clock": "clock",
    "sieve": "sieve",
    "s3fifo": "s3fifo",
    "2q": "twoq",
    "arc": "arc",
    "lirs": "lirs",
    "wtinylfu": "wtinylfu",
    "opt": "belady",
}
FIGURES = re.compile(r"([0-9]+) req, miss ratio ([0-9.]+), throughput ([0-9.]+) MQPS")


class Failed(Exception):
    """Why there is no such program here."""


def call(command, log):
    """Runs a step of the build; what it prints goes to `log`."""
    with open(log, "a", encoding="utf-8") as out:
        try:
            done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT)
        except OSError as error:
            raise Failed(str(error)) from error
    if done.returncode != 0:
        raise Failed(f"`{' '.join(command[:4])} ...` failed; its output is in {log}")


def sources(folder):
    """The folder of the C sources below `folder`, fetched where they are not there yet."""
    root = os.path.join(folder, SOURCES.replace("==", "-"), "src", "libCacheSim")
    if not os.path.exists(os.path.join(root, "CMakeLists.txt")):
        os.makedirs(folder, exist_ok=True)
        log = os.path.join(folder, "download.log")
        call([sys.executable, "-m", "pip", "download", "--no-binary", ":all:", "--no-deps", "--dest", folder, SOURCES], log)
        name = next((n for n in os.listdir(folder) if n.endswith(".tar.gz")), None)
        if name is None:
            raise Failed(f"no archive of {SOURCES} came; see {log}")
        with tarfile.open(os.path.join(folder, name)) as archive:
            archive.extractall(folder)
    return root


def build(folder):
    """The path of `cachesim` below `folder`, built where it is not there yet. Takes a minute or two."""
    program = os.path.join(folder, "build", "bin", "cachesim")
    if not os.path.exists(program):
        root, log = sources(folder), os.path.join(folder, "build.log")
        where = os.path.join(folder, "build")
        print(f"building {SOURCES} ...", file=sys.stderr, flush=True)
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DENABLE_TESTS=OFF", "-DBUILD_SHARED_LIBS=OFF"]
        call(["cmake", "-S", root, "-B", where, *options], log)
        call(["cmake", "--build", where, "--target", "cachesim", "-j2"], log)
    return program


def run(program, trace, row, size, folder):
    """Simulates a row's policy: requests, miss ratio (four digits), seconds of simulating and reading, seconds in all."""
    command = [program, trace, "oracleGeneral", POLICIES[row], str(size)]
    command += ["--ignore-obj-size", "1", "--report-interval", "1000000000", "--output", os.path.join(folder, "out", "cachesim")]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    whole = time.monotonic() - begin
    found = FIGURES.search(done.stdout)
    if done.returncode != 0 or found is None:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    requests, ratio, speed = int(found[1]), float(found[2]), float(found[3])
    # Its speed has two digits behind the point: where that is too coarse (a starved machine), the time in all has to do.
    seconds = requests / speed / 1e6 if speed >= 0.05 else whole
    return {"requests": requests, "miss_ratio": ratio, "seconds": seconds, "whole": whole}
