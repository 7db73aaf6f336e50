"""Programs of which it is known which pages they use (pages.c): the summary of a record must say the same.

Each program is watched by a recorder of its own, all at the same time. Truth is how the program was made; for those
with a memory of their own, the kernel's clear_refs and smaps are asked as well, so that a mistake of the program's shows.
"""

import os
import subprocess
import tempfile
import time

import record
from harness import MIB, ControlGroup, Recorder, compiled, isotherm, summaries, used_pages, wait_for_all
from processes import start, stop
from ranges import PAGE

SECONDS = 26
COLD = 0.05  # how far a figure may be off
WORKING_SET = 0.10
LONGEST_GAP_S = 0.9  # a program that did not run for so long had no working set of a second to speak of
OVERHEAD = 2 * MIB  # what such a program has beside its pages


def build(folder):
    """Compiles the program; returns its path."""
    return compiled("pages", folder, "-static", "-pthread")


class Program:
    """pages.c at work."""

    def __init__(self, path, preexec=None, **words):
        after = words.pop("after", None)
        command = [path, *(f"{key}={value}" for key, value in words.items())]
        if after:
            command += ["--", *(f"{key}={value}" for key, value in after.items())]
        self.words, self.said = words, None
        self.process = start(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, preexec_fn=preexec)

    def ready(self):
        """Waits until its memory is populated."""
        line = self.process.stdout.readline().split()
        if line[:1] != ["ready"]:
            raise RuntimeError(f"the program that uses pages did not start: {self.words}")
        self.start, self.size, hot, *self.pids = (int(word) for word in line[1:])
        self.hot = hot * PAGE
        return self

    def end(self):
        """Ends it. Returns what it says: rounds, longest time between two in s, share of windows in which a page is used."""
        self.process.terminate()
        said = self.process.communicate(timeout=20)[0].split()
        return int(said[-5]), int(said[-3]) / 1e6, float(said[-1])

    def stop(self):
        """Ends it in any case."""
        stop(self.process)


class Case:
    """A program, how it is watched, and what must be said about it."""

    def __init__(self, name, judge, recorder=(), cpu=None, seconds=SECONDS, alone=False, **words):
        self.name, self.judge, self.recorder, self.cpu, self.words = name, judge, recorder, cpu, words
        # How long it is watched, and whether with nothing else running: for what must keep time.
        self.seconds, self.alone = seconds, alone
        self.programs, self.folder = [], None

    def start(self, path, folder):
        """Starts the programs."""
        self.folder = folder
        self.programs.append(Program(path, **self.words))

    def watched(self):
        """The recorder's target."""
        return [word for program in self.programs for pid in program.pids for word in ("--pid", str(pid))]

    def record(self):
        """Starts the recorder."""
        file = f"{self.folder}/{self.name.replace(' ', '-')}.iso"
        return Recorder(file, self.seconds, *self.watched(), *self.recorder, cpu=self.cpu)

    def stop(self):
        """Ends the programs in any case."""
        for program in self.programs:
            program.stop()


class TwoProcesses(Case):
    """Two processes that map the same file, of which each uses pages of its own choice."""

    file = None

    def start(self, path, folder):
        self.folder = folder
        # In memory, not on a disk.
        self.file = tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="isotherm-pages-")
        for seed in (1, 2):
            self.programs.append(Program(path, file=self.file.name, seed=seed, **self.words))

    def stop(self):
        super().stop()
        if self.file is not None:
            self.file.close()


class Churn(Case):
    """A control group with a process that is left alone beside a shell that starts fifty short-lived ones a second."""

    group = shell = None

    def start(self, path, folder):
        self.folder = folder
        self.group = ControlGroup("churn")
        self.group.__enter__()
        self.programs.append(Program(path, self.group.enter, **self.words))
        shell = "while :; do /bin/true; sleep 0.02; done"
        self.shell = start(["sh", "-c", shell], stdin=subprocess.DEVNULL, preexec_fn=self.group.enter)

    def watched(self):
        return ["--cgroup", self.group.path]

    def stop(self):
        super().stop()
        stop(self.shell)
        if self.group is not None:
            self.group.__exit__()


def one(results, case, recorder):
    """A process with a memory of its own and a steady set."""
    (program,) = case.programs
    single, _ = summaries(recorder.file)
    said = single.get(program.pids[0])
    resident, used = used_pages(program.pids[0], 1.2)
    rounds, gap, _ = program.end()
    results.check(gap < LONGEST_GAP_S, f"{rounds} rounds, at most {gap * 1000:.0f} ms between two")
    results.near("clear_refs and smaps agree that cold", program.size - program.hot, resident - used, 0.02)
    results.near("cold > 10 s", program.size - program.hot, said and said.cold(), COLD)
    results.near("working set", program.hot, said and said.working_set(), WORKING_SET)
    _cost(results, said, recorder)


def _cost(results, said, recorder):
    cost = said and said.cost.get("monitor", 1) + said.cost.get("target", 1)
    results.at_most("cost of monitor and target, as reported", 0.01, cost)
    results.at_most("CPU of the recorder, from outside", 0.01, recorder.cpu_share())


def left_alone(results, case, recorder):
    """A process that uses nothing at the end, whatever it used before."""
    single, _ = summaries(recorder.file)
    said = single.get(case.programs[0].pids[0])
    results.near("cold > 10 s", case.programs[0].size, said and said.cold(), COLD)
    case.programs[0].end()


def after_exec(results, case, recorder):
    """A process that became another program: only what that one has counts."""
    (program,) = case.programs
    single, _ = summaries(recorder.file)
    program.ready()
    said = single.get(program.pids[0])
    results.near("cold > 10 s after exec", program.size - program.hot, said and said.cold(), COLD)
    program.end()


def locked(results, case, recorder):
    """Locked memory may be unobservable, but what is used is not cold, and what is not must be one of the two."""
    (program,) = case.programs
    single, _ = summaries(recorder.file)
    said = single.get(program.pids[0])
    _cold_or_not_observable(results, said, program.size - program.hot, program.hot)
    program.end()


def _cold_or_not_observable(results, said, cold, hot):
    measured, blind = (said and said.cold()), (said.not_observable if said else 0)
    ok = measured is not None and measured <= cold * (1 + COLD) and measured + blind >= cold * (1 - COLD)
    text = "nothing" if measured is None else f"{measured / MIB:.1f}"
    results.check(ok, f"cold > 10 s: truth {cold / MIB:.1f} MiB, measured {text}, and {blind / MIB:.1f} not observable; "
                      f"{hot / MIB:.1f} are used")  # fmt: skip


def fork_server(results, case, recorder):
    """A parent and children that share memory copy-on-write: together it is there once."""
    (program,) = case.programs
    single, total = summaries(recorder.file)
    cold = program.size - program.hot
    if total is None:
        results.check(False, f"no line about all targets; added up: {_sum(s.cold() for s in single.values())} MiB cold, "
                             f"{_sum(s.working_set() for s in single.values())} MiB working set, "
                             f"{_sum(s.resident for s in single.values())} MiB resident")  # fmt: skip
    else:
        results.near("all: resident, each page once", program.size, total.resident, COLD)
        results.near("all: cold > 10 s", cold, total.cold(), COLD)
        results.near("all: working set", program.hot, total.working_set(), WORKING_SET)
    parent, *children = program.pids
    said = [single[pid] for pid in children if pid in single]
    results.check(len(said) == len(children), f"{len(said)} of {len(children)} children have a summary")
    if said:
        worst = max(said, key=lambda s: abs((s.cold() or 0) - cold))
        results.near("the child that is furthest off: cold > 10 s", cold, worst.cold(), COLD)
        # Each child's own use of what all share is known after its turn of clearing all bits; until then it says so.
        resolved = [s for s in said if s.not_resolved + s.not_observable < program.hot / 2]
        results.check(len(resolved) >= len(said) / 2, f"{len(resolved)} of {len(said)} children are resolved")
        if resolved:
            worst = max(resolved, key=lambda s: abs((s.working_set() or 0) - program.hot))
            results.near("the child that is furthest off: working set", program.hot, worst.working_set(), WORKING_SET)
    measured = parent in single and single[parent].cold()
    # Nothing of it is used by the parent itself; a tenth by others.
    ok = measured and cold * (1 - COLD) <= measured <= program.size * (1 + COLD)
    text = "nothing" if not measured else f"{measured / MIB:.1f}"
    results.check(ok, f"the parent: cold > 10 s: truth {cold / MIB:.1f} to {program.size / MIB:.1f} MiB, measured {text}")
    program.end()


def _sum(values):
    return f"{sum(v or 0 for v in values) / MIB:.1f}"


def shared_file(results, case, recorder):
    """Two processes, one file: the pages that neither uses are cold, once."""
    _, total = summaries(recorder.file)
    size = case.programs[0].size
    # Two independent choices of a share: what both leave alone. (Their random numbers differ by the seed only.)
    share = case.programs[0].hot / size
    cold = size * (1 - share) ** 2
    if total is None:
        results.check(False, f"no line about all targets; {cold / MIB:.1f} MiB are cold")
    else:
        results.near("all: resident, each page once", size, total.resident, COLD)
        results.near("all: cold > 10 s", cold, total.cold(), COLD)
        results.near("all: working set", size - cold, total.working_set(), WORKING_SET)
    for program in case.programs:
        program.end()


def churn(results, case, recorder):
    """What the short-lived processes have is nothing beside the one that stays."""
    single, total = summaries(recorder.file)
    program = case.programs[0]
    said = single.get(program.pids[0])
    results.near("cold > 10 s of the process that stays", program.size, said and said.cold(), COLD)
    results.near("cold > 10 s of all", program.size, total and total.cold(), COLD)
    _cost(results, total or said, recorder)


def beats(results, case, recorder):
    """Memory used every 20 ms, looked at every 5 ms: a quarter of the looks find it used, snapshot after snapshot."""
    (program,) = case.programs
    snapshots = record.snapshots(isotherm("report", "raw", recorder.file, "--json"))
    _, gap, share = program.end()
    begin, end = program.start, program.start + program.size
    rates = []
    for s in snapshots[len(snapshots) // 5 :]:
        parts = [(min(r["end"], end) - max(r["start"], begin), r["nr_accesses"]) for r in s.regions]
        covered = sum(bytes for bytes, _ in parts if bytes > 0)
        if covered and s.max_nr_accesses:
            rates.append(sum(bytes * n for bytes, n in parts if bytes > 0) / covered / s.max_nr_accesses)
    if not rates:
        results.check(False, "no rate at all")
        return
    mean = sum(rates) / len(rates)
    deviation = (sum((r - mean) ** 2 for r in rates) / len(rates)) ** 0.5
    results.near(f"mean rate in {len(rates)} snapshots", share, mean, 0.20, 0.01, "%")
    results.at_most("its standard deviation, points", 0.08, deviation)
    print(f"     {case.name}: at most {gap * 1000:.1f} ms between two rounds", flush=True)


def check_beats(results):
    """The program that keeps time, alone."""
    check(results, "25 %")


def size(mib):
    """MiB in bytes."""
    return mib * MIB


def hot_pages(mib, share):
    """So many pages are this share of the memory."""
    return int(mib * MIB / PAGE * share)


def cases():
    """All of them. Sizes are such that all run at once in 4 GiB."""
    random = dict(set="random", period=10_000)
    quiet = dict(set="random", period=100_000)
    return [
        Case("random 2 % every 10 ms", one, size=size(600), hot=hot_pages(600, 0.02), **random),
        Case("every 50th page", one, size=size(600), set="nth", hot=50, period=10_000),
        # Clearing the bits of what they share takes a large part of the budget, and nine turns.
        Case("fork server", fork_server, seconds=90, size=size(500), hot=hot_pages(500, 0.1), fork=8, **quiet),
        # Its rate needs samples 5 ms apart, for which 1 % of a core does not suffice on every machine.
        Case("25 % of the time", beats, ("--sample", "5ms", "--cpu-budget", "3%"), size=size(32), set="first", hot=hot_pages(32, 1),
             alone=True, period=20_000, window=5_000),
        Case("other processor", one, cpu=0, size=size(200), hot=hot_pages(200, 0.05), **random),
        Case("four threads", one, size=size(200), hot=hot_pages(200, 0.05), threads=4, **quiet),
        # Reading the list of mappings takes as long as the budget of ten seconds.
        Case("60 000 mappings", one, seconds=60, size=size(480), hot=hot_pages(480, 0.05), split=60_000, **quiet),
        Case("used and left", left_alone, size=size(200), hot=hot_pages(200, 0.5), stop=8_000, **quiet),
        Case("exec", after_exec, size=size(100), hot=hot_pages(100, 0.5), exec=5_000, **quiet,
             after=dict(size=size(200), set="nth", hot=20)),
        Case("locked", locked, size=size(200), hot=hot_pages(200, 0.5), lock=1, **quiet),
        TwoProcesses("one file, two processes", shared_file, size=size(200), hot=hot_pages(200, 0.05), **quiet),
        Churn("short-lived processes", churn, size=size(200)),
    ]  # fmt: skip


def check(results, only=""):
    """Runs all whose name contains `only`: at once, but for those that run alone. Those that fail run once more, as
    `Results.once_more` has it, without the others and watched for twice as long: 1 % of a slower core takes longer."""
    # What must keep time runs alone, by name.
    chosen = [case.name for case in cases() if only in case.name and (only or not case.alone)]
    judged = check_those(results, chosen)
    again = [name for name, attempt in judged.items() if attempt.failed and not attempt.damage]
    if again:
        print(f"     {len(again)} of {len(chosen)} programs once more: {', '.join(again)}", flush=True)
        judged |= check_those(results, again, longer=2)
    for attempt in judged.values():
        results.add(attempt)


def check_those(results, names, longer=1):
    """Runs the cases of these names, watched `longer` times as long. Returns the results of each."""
    chosen = [case for case in cases() if case.name in names]
    together = [case for case in chosen if not case.alone]
    judged = {}
    for group in [together, *([case] for case in chosen if case.alone)]:
        for case in group:
            case.seconds *= longer
            judged[case.name] = type(results)(case.name)
        if not group:
            continue
        try:
            check_together(judged, group)
        except RuntimeError as error:
            for case in group:
                judged[case.name].check(False, str(error))
    return judged


def check_together(judged, chosen):
    """Runs cases at once, each with results of its own."""
    recorders = []
    with tempfile.TemporaryDirectory(prefix="isotherm-pages-") as folder:
        path = build(folder)
        try:
            for case in chosen:
                case.start(path, folder)
            for case in chosen:
                for program in case.programs:
                    program.ready()
                if case.cpu is not None and os.cpu_count() > 1:
                    os.sched_setaffinity(case.programs[0].pids[0], {case.cpu + 1})
            time.sleep(0.5)
            recorders += [case.record() for case in chosen]
            wait_for_all(recorders)
            for case, recorder in zip(chosen, recorders):
                try:
                    case.judge(judged[case.name], case, recorder)
                except RuntimeError as error:
                    judged[case.name].check(False, str(error))
        finally:
            for recorder in recorders:
                recorder.stop()
            for case in chosen:
                case.stop()
