"""Free memory that the host does not take back.

In a virtual machine whose balloon reports free pages, the host takes free blocks of 2 MiB away after seconds, and gives them back
page by page when they are touched: the first touch of a huge page then costs milliseconds instead of a tenth of one, and that of a
base page, which comes from smaller blocks, costs no more than ever. That is the host's cost and not the program's.

So only blocks of 4 MiB are reported meanwhile, and free memory has none: nearly all of it is taken, touched, and every second block of
2 MiB given back, whose other half is held.
"""

import ctypes
import glob
import mmap
import sys

from system import Restored, read, undisturbed, write

BLOCK = 2 << 20
CHUNK = 32 << 20
POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, which Python does not name
LEAVE = 1500 << 20  # of all free memory
ORDER = "/sys/module/page_reporting/parameters/page_reporting_order"
LARGEST = 10  # the kernel's MAX_PAGE_ORDER on x86-64: 4 MiB


def is_needed():
    """Whether the host may take free memory back."""
    return bool(glob.glob("/sys/bus/virtio/drivers/virtio_balloon/virtio*") and glob.glob(ORDER))


def free():
    """Free bytes."""
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("MemFree:"))


def touched_chunk():
    """A chunk of memory in huge pages."""
    chunk = mmap.mmap(-1, CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    chunk.madvise(mmap.MADV_HUGEPAGE)
    chunk.madvise(POPULATE_WRITE)
    return chunk


class Reserve:
    """Keeps the host from taking free memory while it is entered; nothing where that is not wanted or not needed. The system must make
    huge pages on request at the beginning."""

    def __init__(self, wanted):
        self.chunks = []
        self.needed = wanted and is_needed()

    def __enter__(self):
        if self.needed:
            print("holding half of the free memory, so that the host does not take the other", file=sys.stderr)
            self.restored = Restored({ORDER: read(ORDER).strip()})
            try:
                self._hold()
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *_):
        if self.needed:
            with undisturbed():
                self.restored.restore()
                self.chunks.clear()

    def _hold(self):
        write(ORDER, str(LARGEST))
        while free() > LEAVE + CHUNK:
            self.chunks.append(touched_chunk())
        # Not before all is taken: what is given back would be taken again.
        for chunk in self.chunks:
            self._give_back(chunk)

    def __str__(self):
        return "free memory held so that the host does not take it" if self.needed else "free memory as the host leaves it"

    @staticmethod
    def _give_back(chunk):
        """Every second block."""
        byte = ctypes.c_char.from_buffer(chunk)
        first = -ctypes.addressof(byte) % BLOCK
        del byte  # which keeps the chunk from being closed
        for start in range(first, CHUNK - BLOCK + 1, 2 * BLOCK):
            chunk.madvise(mmap.MADV_DONTNEED, start, BLOCK)
