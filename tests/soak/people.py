"""Who is in the group: programs that check each byte of their memory, and many that come and go."""

import os
import random
import subprocess

from harness import MIB

CHECKERS, EACH_MIB = 4, 96
CHURN = 200
WRONG = 7


def build(folder):
    """Compiles the programs."""
    path = os.path.join(folder, "checker")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "checker.c")
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-o", path, source], check=True)
    return path


class People:
    """All of them, in one control group."""

    def __init__(self, program, group):
        self.program, self.group = program, group
        self.processes, self.wrong, self.rounds = [], [], 0

    def start(self):
        """Starts all anew."""
        self.rounds += 1
        for number in range(CHECKERS):
            seed = str(random.getrandbits(48))
            self._start("check", str(EACH_MIB * MIB), seed)
        self._start("churn", str(CHURN))

    def _start(self, *arguments):
        self.processes.append(
            subprocess.Popen([self.program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True, preexec_fn=self.group.enter)
        )  # fmt: skip

    def look(self):
        """Notes who found a wrong byte."""
        for process in self.processes:
            if process.poll() == WRONG:
                said = process.stderr.read()
                if said and said not in self.wrong:
                    self.wrong.append(said)

    def kill(self):
        """Ends all at once, whatever is being done to them."""
        self.look()
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
            process.stderr.close()
        self.processes = []

    def pids(self):
        with open(f"{self.group.path}/cgroup.procs") as f:
            return [int(line) for line in f]


def state(pid):
    """The state letter of a process, and who traces it; None: it is gone."""
    try:
        with open(f"/proc/{pid}/status") as f:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        return fields["State"][0], int(fields["TracerPid"])
    except (OSError, KeyError, ValueError):
        return None
