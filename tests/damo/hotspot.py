"""`isotherm workload hotspot`: a program that uses a tenth of its memory all the time, and whether what was seen of it is so."""

import json
import os
import subprocess

HOT = 0.1


class Hotspot:
    """The program, until the end of `with`. With a folder it keeps its own account there, for `compare`."""

    def __init__(self, isotherm, size, seconds, folder=None):
        words = [isotherm, "workload", "hotspot", "--size", str(size), "--hot", str(HOT), "--duration", f"{seconds}s"]
        if folder:
            self._truth = os.path.join(folder, "truth")
            words += ["--truth", self._truth]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ready = json.loads(self._process.stdout.readline())
        self.pid, self.start, self.end = ready["pid"], ready["start"], ready["end"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()

    def compare(self, snapshots):
        """Snapshots, lists of (start, end, accesses) of regions, with its account, after its end. Shares, as means: of its
        memory that is in them; of what it uses that is hot in them; of what it leaves alone that is hot in them."""
        with open(self._truth, encoding="ascii") as file:
            truth = json.load(file)
        start, end = (truth["arena"][key] for key in ("start", "end"))
        (first, last), = {(t["start"], t["end"]) for s in truth["slices"] for t in s["touched"]}
        found = hot = false = 0
        for regions in snapshots:
            for region_start, region_end, accesses in regions:
                a, b = max(region_start, start), min(region_end, end)
                if b > a:
                    found += b - a
                    if accesses > 2:
                        inside = max(0, min(b, last) - max(a, first))
                        hot, false = hot + inside, false + (b - a) - inside
        n = len(snapshots)
        return found / n / (end - start), hot / n / (last - first), false / n / (end - start - (last - first))
