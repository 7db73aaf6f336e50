"""How long until a program runs that `isotherm record` has started, ready to watch it.

The program tells when it runs. Beside it the same program started from a Python interpreter that has imported nothing more than what it
takes to start one, which is the least that a tool written in Python needs, and started by itself. Interleaved, medians and extremes.
"""

import os
import statistics
import subprocess
import sys
import time

TELL = ["date", "+%s.%N"]
RUNS = 25


def _ms(command):
    begin = time.time()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return 1000 * (float(done.stdout.split()[0]) - begin)


def measure(binaries, work):
    """Milliseconds by way to start it, by round."""
    record = os.path.join(work, "start.iso")
    python = f"import subprocess; subprocess.run({TELL!r})"
    ways = {
        "by itself": TELL,
        "isotherm record": [binaries["isotherm"], "record", "-o", record, "--", *TELL],
        "python3": [sys.executable, "-c", python],
    }
    runs = {name: [] for name in ways}
    for number in range(RUNS):
        for name in list(ways)[number % len(ways) :] + list(ways)[: number % len(ways)]:
            runs[name].append(_ms(ways[name]))
    return runs


def show(runs):
    """Prints them."""
    print(f"\nfrom the command line to the program that is watched: ms, medians of {RUNS} runs (extremes)")
    base = statistics.median(runs["python3"])
    for name, times in runs.items():
        middle = statistics.median(times)
        print(f"{name:18}{middle:>8.1f} ({min(times):.1f} to {max(times):.1f}){middle / base:>8.2f} x python3")
