"""DAMON's files in sysfs at their usual place: reading and writing them, and a kdamond that is set up through them."""

import os

KDAMONDS = "/sys/kernel/mm/damon/admin/kdamonds"
CONTEXT = "0/contexts/0"
MAX = 2**64 - 1


def write(path, text):
    """The error number; 0: it was taken."""
    try:
        with open(os.path.join(KDAMONDS, path), "w", encoding="ascii") as file:
            file.write(str(text))
    except OSError as error:
        return error.errno
    return 0


def must(path, text):
    error = write(path, text)
    if error:
        raise OSError(error, f"{text} to {path}")


def read(path):
    with open(os.path.join(KDAMONDS, path), encoding="ascii") as file:
        return file.read().strip()


def number(path):
    return int(read(path))


class Kdamond:
    """The only one, with a context, targets and schemes; off at the end of `with`."""

    def __init__(self, pids, schemes=(), operations="vaddr", least=10, most=1000, regions=()):
        must("nr_kdamonds", 1)
        must("0/contexts/nr_contexts", 1)
        must(f"{CONTEXT}/operations", operations)
        attrs = f"{CONTEXT}/monitoring_attrs"
        for file, value in (("intervals/update_us", 1000000), ("nr_regions/min", least), ("nr_regions/max", most)):
            must(f"{attrs}/{file}", value)
        self.targets(pids)
        must(f"{CONTEXT}/targets/0/regions/nr_regions", len(regions))
        for index, (start, end) in enumerate(regions):
            must(f"{CONTEXT}/targets/0/regions/{index}/start", start)
            must(f"{CONTEXT}/targets/0/regions/{index}/end", end)
        must(f"{CONTEXT}/schemes/nr_schemes", len(schemes))
        for index, files in enumerate(schemes):
            for file, value in {**scheme(), **files}.items():
                must(f"{CONTEXT}/schemes/{index}/{file}", value)

    def targets(self, pids):
        must(f"{CONTEXT}/targets/nr_targets", len(pids))
        for index, pid in enumerate(pids):
            must(f"{CONTEXT}/targets/{index}/pid_target", pid)

    def __enter__(self):
        must("0/state", "on")
        return self

    def __exit__(self, *_):
        write("0/state", "off")
        write("nr_kdamonds", 0)

    def do(self, command):
        must("0/state", command)

    def tried_bytes(self, index=0):
        self.do("update_schemes_tried_bytes")
        return number(f"{CONTEXT}/schemes/{index}/tried_regions/total_bytes")

    def tried(self, index=0):
        """Start, end, accesses and age of the regions that the scheme is about."""
        self.do("update_schemes_tried_regions")
        folder = f"{CONTEXT}/schemes/{index}/tried_regions"
        numbers = sorted(int(name) for name in os.listdir(os.path.join(KDAMONDS, folder)) if name.isdigit())
        return [tuple(number(f"{folder}/{n}/{f}") for f in ("start", "end", "nr_accesses", "age")) for n in numbers]

    def stat(self, name, index=0):
        self.do("update_schemes_stats")
        return number(f"{CONTEXT}/schemes/{index}/stats/{name}")


def scheme(least_accesses=0, least_age=0):
    """Files of a scheme that counts."""
    ranges = {"sz": 0, "nr_accesses": least_accesses, "age": least_age}
    files = {"action": "stat"}
    for name, least in ranges.items():
        files[f"access_pattern/{name}/min"] = least
        files[f"access_pattern/{name}/max"] = MAX
    return files
