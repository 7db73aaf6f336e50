"""Counted checks, each written as what is claimed, whether it holds, and what was seen."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))

from results import Results


class Checks:
    """What the tests of this folder derive from. It has a `Results` and is none: the arguments of `check` are others."""

    def __init__(self):
        self._results = Results()

    def check(self, what, holds, detail=""):
        """One check. `detail`: what was seen, whatever it is; an empty text: nothing to tell."""
        self._results.check(bool(holds), what if detail == "" else f"{what}: {detail}")

    def finish(self, name):
        """Prints the counts; returns the exit status."""
        return self._results.finish(name)
