"""Python with numpy: an array that is summed all the time, one that is summed once a second, one left alone."""

import json
import os
import subprocess
import tempfile

from harness import MIB, isotherm, mib, summaries, watch
from processes import start, stop
from ranges import length, subtract
from record import ever_accessed

# Prints the arrays' addresses (whole pages only), then works for ever.
PROGRAM = """
import json, time, numpy
MIB = 1 << 20
arrays = {name: numpy.ones(size * MIB // 8) for name, size in (("hot", 32), ("slow", 16), ("cold", 128))}
def pages(a):
    return [-(-a.ctypes.data // 4096) * 4096, (a.ctypes.data + a.nbytes) // 4096 * 4096]
print(json.dumps({name: pages(a) for name, a in arrays.items()}), flush=True)
then = 0
while True:
    arrays["hot"].sum()
    if time.monotonic() - then > 1:
        arrays["slow"].sum()
        then = time.monotonic()
    time.sleep(0.01)
"""


def _environment():
    """Base pages where the kernel's DAMON is in use: on physical memory it clears the one bit of a huge page about twice a second,
    and accesses that are a second apart are not seen."""
    if json.loads(isotherm("doctor", "--json"))["environment"]["damon"]["users"]:
        print("     numpy: the kernel's DAMON is in use here, so the arrays are in base pages", flush=True)
        return {**os.environ, "NUMPY_MADVISE_HUGEPAGE": "0"}
    return None


def check(results):
    """Runs it and checks what the record says about each array."""
    program = None
    with tempfile.TemporaryDirectory(prefix="isotherm-numpy-") as folder:
        try:
            # Debian's Python, for Debian's numpy.
            program = start(["/usr/bin/python3", "-c", PROGRAM], stdout=subprocess.PIPE, text=True, env=_environment())
            arrays = {name: [tuple(pages)] for name, pages in json.loads(program.stdout.readline()).items()}
            snapshots, summary = watch(folder, 16, "--pid", str(program.pid))
            single, _ = summaries(f"{folder}/record.iso")
        finally:
            stop(program)
    seen = ever_accessed(snapshots)
    missed = subtract(arrays["hot"], seen)
    results.check(
        length(missed) <= 0.01 * length(arrays["hot"]),
        f"the hot array ({mib(arrays['hot'])}) was read in the window; {mib(missed)} of it not seen",
    )
    # One that is read once a second is the page history's to find.
    both = length(arrays["hot"]) + length(arrays["slow"])
    used = single[program.pid].data["resident_pages"]["accessed"]
    results.check(used >= 0.99 * both, f"{both / MIB:.1f} MiB were read; {used / MIB:.1f} MiB are accessed within 10 s")
    cold = single[program.pid].cold() or 0
    results.check(
        cold >= 0.99 * length(arrays["cold"]),
        f"the untouched array has {mib(arrays['cold'])}: {cold / MIB:.1f} MiB were cold for > 10 s",
    )
    hot = single[program.pid].working_set() or 0
    results.check(
        length(arrays["hot"]) * 0.9 <= hot <= length(arrays["hot"]) * 1.7,
        f"the working set is {hot / MIB:.1f} MiB for {mib(arrays['hot'])} of hot array and one read about every second",
    )
    results.check(summary.strip() != "", "there is a summary")
