"""A program in the guest that holds memory whose content it knows, and looks at it when it is let go."""

import itertools

import scenarios

NUMBERS = itertools.count()


class Held:
    """So many MiB, held from now on."""

    def __init__(self, machine, mib, patience_s=None):
        self.machine, self.mib, self.patience_s = machine, mib, patience_s or scenarios.PATIENCE_S
        number = next(NUMBERS)
        self.log, pipe = f"hold{number}.log", f"/tmp/go{number}"
        machine.sh(f"mkfifo {pipe}")
        self.pid = machine.start(f"sh -c 'exec guest_load hold {mib} <{pipe}'", self.log)
        # The shell inside, so that it is the pipe that its output goes to: the program ends with the last writer.
        self.writer = machine.start(f"sh -c 'exec sleep 100000 >{pipe}'", "writer.log")
        machine.wait_for(lambda: "ready" in machine.cat(f"/tmp/{self.log}"), self.patience_s, "memory is held")

    def let_go(self, patience_s=None):
        """Whether everything is as it was written, and what the program said or how it was found."""
        machine = self.machine
        resident = machine.sh(f"grep VmRSS /proc/{self.pid}/status || true").split()
        machine.sh(f"kill {self.writer}")
        machine.wait_exit(self.pid, patience_s or self.patience_s)
        said = machine.cat(f"/tmp/{self.log}")
        # A program that did not hold on until now proves nothing.
        if len(resident) < 2 or int(resident[1]) < self.mib * 1024:
            return False, f"no longer held: {resident}, {said[-80:]!r}"
        return "intact" in said, repr(said[-80:])

    def check(self, check, what="a process's memory is intact"):
        """Lets go and checks."""
        intact, said = self.let_go()
        check(intact, f"{what}: {said}", damage=True)
