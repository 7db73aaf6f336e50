"""Many processes in one control group: what is cold and used in all of them, at a bounded cost.

150 processes of 80 MiB, of each of which a tenth is used; fewer where there is not memory enough.
"""

import os
import tempfile

from harness import MIB, ControlGroup, Recorder, summaries
from pages import COLD, WORKING_SET, Program, build, hot_pages, size

PROCESSES = 150
EACH_MIB = 80
USED = 0.1
LEAST = 20
# How long it takes to get round all of them at 1 % of a core is the machine's speed: from half a minute to several.
LONGEST = int(os.environ.get("GROUP_SECONDS", "300"))
RESOLVED = 0.03  # of what is resident so much may be left


def affordable():
    """So many processes fit into two thirds of the memory that is available."""
    with open("/proc/meminfo") as f:
        available = next(int(line.split()[1]) for line in f if line.startswith("MemAvailable")) * 1024
    return min(PROCESSES, int(available * 2 / 3 / (EACH_MIB * MIB)))


def resolved(file):
    """Whether what is recorded so far tells of nearly all pages."""
    try:
        _, total = summaries(file)
    except RuntimeError as error:
        if "holds no snapshot" in str(error):
            return False
        raise
    return total is not None and total.resident and total.cold() is not None and total.not_resolved <= RESOLVED * total.resident


def check(results):
    """Starts them, watches their group, and compares."""
    number = affordable()
    if number < LEAST:
        print(f"     group: left out, because there is no memory for {LEAST} processes of {EACH_MIB} MiB")
        return
    programs, recorder = [], None
    with tempfile.TemporaryDirectory(prefix="isotherm-group-") as folder, ControlGroup("many") as group:
        try:
            path = build(folder)
            words = dict(size=size(EACH_MIB), set="random", hot=hot_pages(EACH_MIB, USED), period=200_000)
            for seed in range(number):
                programs.append(Program(path, group.enter, seed=seed, **words))
            for program in programs:
                program.ready()
            recorder = Recorder(f"{folder}/record.iso", LONGEST, "--cgroup", group.path)
            waited = recorder.watch_until(lambda: resolved(recorder.file))
            gap = max(program.end()[1] for program in programs)
            single, total = summaries(recorder.file)
        finally:
            if recorder is not None:
                recorder.stop()
            for program in programs:
                program.stop()
    results.check(gap < 0.9, f"{number} processes of {EACH_MIB} MiB, at most {gap * 1000:.0f} ms between two rounds")
    used = sum(program.hot for program in programs)
    cold = number * EACH_MIB * MIB - used
    said = single.values()
    results.check(total is not None, f"a line about all {len(single)} targets")
    both = (total.cold(), total.working_set()) if total else [
        sum(value(s) or 0 for s in said) for value in (lambda s: s.cold(), lambda s: s.working_set())
    ]  # fmt: skip
    what = "all" if total else "added up"
    if total:
        print(f"     {what}: {total.not_resolved / MIB:.1f} MiB are not resolved after {waited:.0f} s", flush=True)
    results.near(f"{what}: cold > 10 s", cold, both[0], COLD)
    results.near(f"{what}: working set", used, both[1], WORKING_SET)
    one = total or next(iter(said), None)
    cost = one and one.cost.get("monitor", 1) + one.cost.get("target", 1)
    results.at_most("cost of monitor and target, as reported", 0.01, cost)
    results.at_most("CPU of the recorder, from outside", 0.01, recorder.cpu_share())
