"""Swap of our own on zram, small enough to become full."""

import fcntl
import os
import subprocess
import tempfile
import time

CONTROL = "/sys/class/zram-control"


class Swap:
    """A new zram device with the highest priority; everything is as it was at the end. Without zram: none."""

    def __init__(self, size):
        self.size, self.number, self.on = size, None, False
        # The same that the Rust tests take: one user of swap at a time.
        self.turn = open(os.path.join(tempfile.gettempdir(), "isotherm-test-swap.lock"), "w")

    def __enter__(self):
        fcntl.flock(self.turn, fcntl.LOCK_EX)
        try:
            with open(f"{CONTROL}/hot_add") as f:
                self.number = int(f.read())
        except OSError:
            print("     without swap of its own, because there is no zram")
            return self
        try:
            with open(f"/sys/block/zram{self.number}/disksize", "w") as f:
                f.write(str(self.size))
            while not os.path.exists(self.device()):
                time.sleep(0.01)
            subprocess.run(["mkswap", self.device()], check=True, capture_output=True)
            subprocess.run(["swapon", "-p", "32767", self.device()], check=True)
            self.on = True
        except BaseException:
            self.remove()
            raise
        return self

    def device(self):
        return f"/dev/zram{self.number}"

    def used(self):
        """Bytes that are swapped out to it."""
        with open("/proc/swaps") as f:
            lines = [line.split() for line in f if line.startswith(self.device() + " ")]
        return int(lines[0][3]) * 1024 if lines else 0

    def remove(self):
        if self.number is None:
            return
        if self.on:
            subprocess.run(["swapoff", self.device()], check=False)
        for _ in range(100):
            try:
                with open(f"/sys/block/zram{self.number}/reset", "w") as f:
                    f.write("1")
                with open(f"{CONTROL}/hot_remove", "w") as f:
                    f.write(str(self.number))
                return
            except OSError:
                time.sleep(0.05)

    def __exit__(self, *_):
        self.remove()
        self.turn.close()
