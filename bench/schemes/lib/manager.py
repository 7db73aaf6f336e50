"""Isotherm while it manages a program."""

import json
import os
import signal
import subprocess
import time

from gauge import cpu_seconds, thread_cpu_seconds

SETTLE_S = 1.0  # for it to start before the work begins
LAST_LINES = 15
MOVER = "isotherm-act"  # the name of its thread that carries actions out


class Manager:
    """Runs `isotherm ARGUMENTS` on a process until it is left; an empty list of arguments: nothing at all."""

    def __init__(self, isotherm, arguments, program, folder):
        self.stats_file = os.path.join(folder, "stats.jsonl")
        self.log_file = os.path.join(folder, "isotherm.log")
        target = ["--pid", str(program.pid)] + (["--children"] if program.many else [])
        self.command = arguments and [isotherm, *arguments, *target, "--stats", self.stats_file]
        self.process = None
        # A program that ends takes isotherm with it, and what its threads spent is not told any more.
        self.with_program = getattr(program, "ends", False)
        self.cpu = self.moving = None  # shares of a core: all of it, and of it for carrying actions out

    def __enter__(self):
        if not self.command:
            return self
        for old in (self.stats_file, self.log_file):
            if os.path.exists(old):
                os.remove(old)
        log = open(self.log_file, "w")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        time.sleep(SETTLE_S)
        if self.process.poll() is not None:
            raise RuntimeError(f"{' '.join(self.command)} ended at once (status {self.process.returncode}):\n{self.log()}")
        return self

    def begin(self):
        """The work begins."""
        self.begun = time.monotonic(), *self._spent()

    def _spent(self):
        pid = self.process and self.process.pid
        return (cpu_seconds(pid), thread_cpu_seconds(pid, MOVER)) if pid else (0.0, 0.0)

    def end(self):
        """The work has ended."""
        if self.process is None:
            return
        if not self.with_program and self.process.poll() is not None:
            raise RuntimeError(f"isotherm ended before the work did (status {self.process.returncode}):\n{self.log()}")
        wall = time.monotonic() - self.begun[0]
        self.cpu, self.moving = ((now - then) / wall for now, then in zip(self._spent(), self.begun[1:]))
        if self.with_program:
            self.moving = None

    def __exit__(self, *_):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout=60)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def log(self):
        """The end of what it said."""
        with open(self.log_file) as f:
            return "".join(f.readlines()[-LAST_LINES:])

    def stats(self):
        """The last line of each scheme, and why schemes stood still: {reason: seconds}."""
        last, reasons = {}, {}
        if self.process is None or not os.path.exists(self.stats_file):
            return [], {}
        with open(self.stats_file) as f:
            for text in f:
                line = json.loads(text)
                last[line["scheme"]] = line
                reason = line.get("idle_reason")
                # The figures in a reason differ from second to second.
                key = "".join("#" if c.isdigit() else c for c in reason) if reason else "(busy)"
                reasons[key] = reasons.get(key, 0) + 1
        return list(last.values()), reasons
