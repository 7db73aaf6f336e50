"""Counting checks, and a second try for parts that measure on a machine that others use, too."""

import threading


class Results:
    """Counts checks and prints each."""

    def __init__(self, scope=""):
        self.passed = self.failed = 0
        # Failures that a second run could not excuse.
        self.damage = 0
        self.scope = scope
        # Whether this is a second run.
        self.again = False
        self._lock = threading.Lock()

    def check(self, ok, text, damage=False):
        """One check: whether it holds, and what it says. `damage`: a byte that is lost in one run of two is a defect."""
        scope = f"{self.scope}: " if self.scope else ""
        with self._lock:
            print(f"{'ok  ' if ok else 'FAIL'} {scope}{text}", flush=True)
            if ok:
                self.passed += 1
            else:
                self.failed += 1
                self.damage += damage

    def add(self, other):
        """Takes over what another one has counted."""
        with self._lock:
            self.passed += other.passed
            self.failed += other.failed
            self.damage += other.damage

    def once_more(self, part, run):
        """Runs a part of the tests with results of its own; where a check fails, once more, and then the second run
        counts, unless the first one found damage. A defect fails twice; a processor that was taken away for a second
        seldom does."""
        for last in (False, True):
            attempt = type(self)(self.scope)
            attempt.again = last
            try:
                run(attempt)
            except RuntimeError as error:
                attempt.check(False, f"{part}: {error}")
            if last or not attempt.failed or attempt.damage:
                break
            print(f"     {part}: {attempt.failed} of {attempt.failed + attempt.passed} checks failed; once more", flush=True)
        self.add(attempt)

    def finish(self, name):
        """Prints the counts; returns the exit status."""
        print(f"{name}: {self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0
