"""Traces of the benchmark: one that is made up, and three that were recorded of something real.

* `twitter`: requests to a cache cluster of key-value pairs, 10 million, from the data that libCacheSim's sources bring along.
* `block`: a virtual disk, 114 thousand requests, from there, too.
* `program`: the pages that `sort` touches while it sorts numbers, by valgrind's lackey.
"""

import os
import subprocess

import native

REAL = ["twitter", "block", "program"]
# Most requests of a program's memory: lackey writes some 20 bytes of text for each.
PROGRAM_REQUESTS = 20_000_000


def make(binary, folder, options, spec, name):
    """Has Isotherm write the trace of `options` as `name`; its path."""
    path = os.path.join(folder, f"{name}.oracleGeneral.bin")
    if not os.path.exists(path):
        command = [binary, "sim", "lru", "--policy", "lru", "--size", "1", "--json", *options, *spec]
        subprocess.run([*command, "--save", path + ".part"], check=True, stdout=subprocess.DEVNULL)
        os.rename(path + ".part", path)
    return path


def zipf(binary, folder, pages, requests, theta):
    """The trace that is made up."""
    spec = f"zipf:pages={pages},requests={requests},theta={theta},seed=42"
    return make(binary, folder, ["--generate", spec], [], f"zipf{theta}-{pages}-{requests}")


def real(binary, folder, name):
    """The path of a recorded trace; raises `native.Failed` where it cannot be had."""
    done = os.path.join(folder, f"{name}.oracleGeneral.bin")
    if os.path.exists(done):
        return done
    text = os.path.join(folder, f"{name}.csv")
    try:
        if name == "program":
            return sort(binary, folder, name)
        data = os.path.join(native.sources(os.path.join(folder, "native")), "data")
        with open(text + ".part", "w", encoding="utf-8") as out:
            out.write("page\n")
            pages = {}
            for key in twitter(data) if name == "twitter" else block(data):
                out.write(f"{pages.setdefault(key, len(pages))}\n")
        os.rename(text + ".part", text)
        return make(binary, folder, ["--trace", text], [], name)
    except (OSError, subprocess.CalledProcessError) as error:
        raise native.Failed(str(error)) from error
    finally:
        for left in (text, text + ".part"):
            if os.path.exists(left):
                os.remove(left)


def twitter(data):
    """Keys in the order in which they were asked for."""
    packed = os.path.join(data, "twitter_cluster52_10m.csv.zst")
    with subprocess.Popen(["zstd", "-dc", packed], stdout=subprocess.PIPE, text=True) as unpack:
        for line in unpack.stdout:
            if not line.startswith("#"):
                yield line.split(",")[1].strip()
    if unpack.returncode != 0:
        raise native.Failed(f"zstd cannot unpack {packed}")


def block(data):
    """Block numbers in the order in which they were asked for."""
    with open(os.path.join(data, "cloudPhysicsIO.csv"), encoding="utf-8") as lines:
        next(lines)
        for line in lines:
            yield line.rstrip().split(",")[4]


def sort(binary, folder, name):
    """Sorts 20 thousand numbers under lackey."""
    numbers, text = os.path.join(folder, "numbers"), os.path.join(folder, "lackey")
    try:
        with open(numbers, "w", encoding="utf-8") as out:
            value = 1
            for _ in range(20_000):
                value = value * 6364136223846793005 % 2**64 + 1442695040888963407
                out.write(f"{value % 2**40}\n")
        command = ["valgrind", "--tool=lackey", "--trace-mem=yes", f"--log-file={text}", "sort", "-n", "--parallel=1", numbers]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"})
        return make(binary, folder, ["--trace", text], ["--limit", str(PROGRAM_REQUESTS)], name)
    finally:
        for left in (numbers, text):
            if os.path.exists(left):
                os.remove(left)
