"""Free memory that the host does not take back.

In a virtual machine whose balloon reports free pages, the host takes free blocks of 2 MiB away after seconds, and gives them back
page by page when they are touched: the first touch of a huge page then costs milliseconds instead of a tenth of one, and that of a
base page, which comes from smaller blocks, costs no more than ever. That is the host's cost and not the program's. So nearly
all free memory is held here, touched, and released ahead of the programs as they grow.
"""

import glob
import mmap
import sys
import threading
import time

CHUNK = 32 << 20
POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, which Python does not name
LOW, HIGH = 512 << 20, 768 << 20  # of free memory in blocks of 2 MiB: released below the one, up to the other
LEAVE = 1500 << 20  # of all free memory: blocks smaller than 2 MiB are enough for base pages, and never reported
REPORTING = "/sys/module/page_reporting"


def is_needed():
    """Whether the host may take free memory back."""
    return bool(glob.glob("/sys/bus/virtio/drivers/virtio_balloon/virtio*")) and bool(glob.glob(REPORTING))


def free_blocks():
    """Bytes in free blocks of 2 MiB and more."""
    total = 0
    with open("/proc/buddyinfo") as f:
        for line in f:
            total += sum(int(n) << (order + 12) for order, n in enumerate(line.split()[4:]) if order >= 9)
    return total


def free():
    """Free bytes."""
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("MemFree:"))


class Reserve:
    """Holds free memory from `fill` on, and releases what a program needs while it is entered; nothing where that is not wanted or not needed."""

    def __init__(self, wanted):
        self.chunks = []
        self.needed = wanted and is_needed()

    def fill(self):
        """Takes what is free. The system must make huge pages on request meanwhile."""
        if self.needed and not self.chunks:
            print("holding free memory, so that the host does not take it", file=sys.stderr)
        while self.needed and free_blocks() > CHUNK and free() > LEAVE:
            chunk = mmap.mmap(-1, CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            chunk.madvise(mmap.MADV_HUGEPAGE)
            chunk.madvise(POPULATE_WRITE)
            self.chunks.append(chunk)
        self._release()

    def __enter__(self):
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def _release(self):
        while self.chunks and free_blocks() < HIGH:
            self.chunks.pop().close()

    def _watch(self):
        while self.needed and not self.stop.is_set():
            if free_blocks() < LOW:
                self._release()
            time.sleep(0.005)
