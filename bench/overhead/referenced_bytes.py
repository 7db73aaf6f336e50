#!/usr/bin/env python3
"""What cAdvisor's metric container_referenced_bytes does: `referenced_bytes.py SECONDS [PID...]`.

Every SECONDS, for each process of the machine (or only these): adds up `Referenced` of its smaps, and then clears the accessed bits of all of its
pages through clear_refs. (cAdvisor reads at each collection and clears at every one of them unless asked otherwise.) It reads smaps
itself, not smaps_rollup, as cAdvisor does. The first collection is at once; SIGINT and SIGTERM end it.
"""

import os
import re
import signal
import sys
import time

REFERENCED = re.compile(rb"^Referenced:\s+(\d+) kB", re.M)


def collect(only):
    """One collection; returns the referenced bytes of all processes, or of those in `only` if there are any."""
    total = 0
    for pid in only or filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        try:
            with open(f"/proc/{pid}/smaps", "rb") as f:
                total += sum(int(kib) for kib in REFERENCED.findall(f.read())) * 1024
            with open(f"/proc/{pid}/clear_refs", "w") as f:
                f.write("1")
        except OSError:
            continue  # it has ended, or is a thread of the kernel
    return total


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    period = float(sys.argv[1])
    due = time.monotonic()
    try:
        while True:
            collect(sys.argv[2:])
            due += period
            time.sleep(max(due - time.monotonic(), 0))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
