"""A running isotherm of the soak test: its socket, what it holds, its end."""

import os
import signal
import statistics
import subprocess
import time

from harness import BINARY


class Instance:
    """One that is started, asked, measured, and ended or killed."""

    def __init__(self, name, folder, arguments):
        self.name, self.socket = name, os.path.join(folder, f"{name}.sock")
        self.arguments = [*arguments, "--socket", self.socket]
        self.log = open(os.path.join(folder, f"{name}.log"), "a+")
        self.samples, self.refusals, self.slowest, self.process = [], [], 0.0, None

    def start(self):
        command = [BINARY, *self.arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log)

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """As the out-of-memory killer does."""
        if self.runs():
            self.process.kill()
        self.process.wait()

    def ask(self):
        """Whether it answers; remembers the longest that it took."""
        begin = time.monotonic()
        done = subprocess.run([BINARY, "ctl", "status", "--socket", self.socket], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)  # fmt: skip
        self.slowest = max(self.slowest, time.monotonic() - begin)
        if done.returncode != 0:
            self.refusals.append(done.stderr.strip())
        return done.returncode == 0

    def sample(self):
        """Notes open descriptors and resident memory."""
        try:
            descriptors = len(os.listdir(f"/proc/{self.process.pid}/fd"))
            with open(f"/proc/{self.process.pid}/status") as f:
                rss = next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) * 1024
        except (OSError, StopIteration):
            return
        self.samples.append((descriptors, rss))

    def thirds(self, what):
        """Medians of descriptors (0) or memory (1) over the second and the last third of the time."""
        values = [sample[what] for sample in self.samples]
        third = len(values) // 3
        return statistics.median(values[third : 2 * third]), statistics.median(values[2 * third :])

    def end(self):
        """Its exit status after SIGTERM, and how long that took; None: it had to be killed."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=60), time.monotonic() - begin
        except subprocess.TimeoutExpired:
            self.kill()
            return None, time.monotonic() - begin

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def close(self):
        if self.runs():
            self.kill()
        self.log.close()
