"""Python with numpy: an array that is summed all the time, one that is summed once a second, one left alone."""

import json
import subprocess
import tempfile

from harness import mib, start, stop, watch
from ranges import intersect, length, normalize, subtract
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


def check(results):
    """Runs it and checks what the record says about each array."""
    program = None
    with tempfile.TemporaryDirectory(prefix="isotherm-numpy-") as folder:
        try:
            # Debian's Python, for Debian's numpy.
            program = start(["/usr/bin/python3", "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
            arrays = {name: [tuple(pages)] for name, pages in json.loads(program.stdout.readline()).items()}
            snapshots, summary = watch(folder, 8, "--pid", str(program.pid))
        finally:
            stop(program)
    seen = ever_accessed(snapshots)
    for name in ("hot", "slow"):
        missed = subtract(arrays[name], seen)
        results.check(
            length(missed) <= 0.01 * length(arrays[name]),
            f"the {name} array ({mib(arrays[name])}) was read in the window; {mib(missed)} of it not seen",
        )
    # Regions need some intervals to settle: judge the second half.
    late = snapshots[len(snapshots) // 2 :]
    cold = normalize(arrays["cold"])
    for s in late:
        cold = intersect(cold, s.cold())
    results.check(
        length(cold) >= 0.9 * length(arrays["cold"]),
        f"the untouched array ({mib(arrays['cold'])}): {mib(cold)} cold throughout the second half",
    )
    sizes = sorted(length(s.accessed()) for s in late)
    median = [(0, sizes[len(sizes) // 2])]
    results.check(
        length(arrays["hot"]) * 0.9 <= sizes[len(sizes) // 2] <= length(arrays["hot"]) * 1.5,
        f"the working set's median is {mib(median)} for {mib(arrays['hot'])} of hot array",
    )
    results.check(summary.strip() != "", "there is a summary")
