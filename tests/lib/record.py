"""Reads what `isotherm report raw --json` prints, and what `isotherm workload --truth` tells."""

import json

from ranges import PAGE, intersect, length, normalize


class Snapshot:
    """One aggregation interval of one target."""

    def __init__(self, data):
        self.pid, self.start_ns, self.end_ns = data["pid"], data["start_ns"], data["end_ns"]
        self.max_nr_accesses = data["max_nr_accesses"]
        self.regions = data["regions"]

    def accessed(self):
        """Ranges that were seen accessed."""
        return normalize((r["start"], r["end"]) for r in self.regions if r["nr_accesses"] > 0)

    def cold(self):
        """Ranges that were looked at and not seen accessed. What could not be observed is not among them."""
        return normalize((r["start"], r["end"]) for r in self.regions if r["nr_accesses"] == 0 and not _blind(r))

    def blind(self):
        """Ranges of which nothing could be observed."""
        return normalize((r["start"], r["end"]) for r in self.regions if _blind(r))


def _blind(region):
    evidence = region.get("evidence")
    return evidence is not None and evidence["pages"] > 0 and evidence["pages"] == evidence["blind"]


def snapshots(text):
    """The snapshots in the output of `isotherm report raw --json`."""
    return [Snapshot(json.loads(line)) for line in text.splitlines()]


def ever_accessed(record):
    """Ranges that any of the snapshots saw accessed."""
    return normalize(r for s in record for r in s.accessed())


def touched(truth, from_ns, to_ns):
    """Ranges of which every page was touched at least once in this time, as the workload's own account has it.

    Of a slice of the account that lies only partly in this time, that part of the touches counts.
    """
    out = []
    for s in truth["slices"]:
        inside = min(s["end_ns"], to_ns) - max(s["start_ns"], from_ns)
        if inside > 0:
            part = inside / (s["end_ns"] - s["start_ns"])
            for t in s["touched"]:
                if part * t["touches"] * PAGE >= t["end"] - t["start"]:
                    out.append((t["start"], t["end"]))
    return normalize(out)


class Accuracy:
    """Precision and recall, in bytes, summed over snapshots."""

    def __init__(self):
        self.seen = self.true = self.both = self.snapshots = 0

    def add(self, seen, true):
        """One snapshot: the ranges called hot, and those that are."""
        self.seen += length(seen)
        self.true += length(true)
        self.both += length(intersect(seen, true))
        self.snapshots += 1

    @property
    def precision(self):
        """Share of what was called hot that is."""
        return self.both / self.seen if self.seen else 0.0

    @property
    def recall(self):
        """Share of what is hot that was called so."""
        return self.both / self.true if self.true else 0.0


def accuracy(record, truth, skip):
    """Compares each snapshot, but the first `skip`, with what was touched in its time."""
    arena = [(truth["arena"]["start"], truth["arena"]["end"])]
    ended = truth["slices"][-1]["end_ns"]
    out = Accuracy()
    for s in record[skip:]:
        if s.end_ns <= ended:
            out.add(intersect(s.accessed(), arena), touched(truth, s.start_ns, s.end_ns))
    return out
