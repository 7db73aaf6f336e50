"""A guest that builds a C program: the memory that it costs the host over time, what stays of it, and whether the build is slower."""

import contextlib
import os
import re
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import toolchain
from machine import GuestError

GIB, MIB = 1 << 30, 1 << 20
FLAGS = "-O0"
# Runs in the guest beside everything else: what the guest itself says of its memory, each second.
WATCH = """while :; do
awk '/^(MemTotal|MemFree|Buffers|Cached|SReclaimable|Shmem):/ {printf "%s%s ", $1, $2} END {print ""}' /proc/meminfo
sleep 1
done"""
MAKE = f"chroot /disk sh -c 'PATH=/usr/bin:/bin TMPDIR=/tmp; make -s -j2 -f /src/Makefile FLAGS={FLAGS}"


class Samples:
    """What the host holds of a machine, each second, on a thread of its own."""

    def __init__(self, machine):
        self._machine, self.taken, self._end = machine, [], threading.Event()
        machine.memory()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._begin = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def _run(self):
        while True:
            self.taken.append((time.monotonic() - self._begin, self._machine.resident()))
            if self._end.wait(1):
                return

    def gib_seconds(self):
        """The area below the curve."""
        return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in zip(self.taken, self.taken[1:])) / GIB


def meminfo(text):
    """A line of WATCH, bytes by field; None if it is not whole."""
    fields = {name: int(kib) * 1024 for name, kib in re.findall(r"(\w+):(\d+) ", text)}
    return fields if len(fields) == 6 else None


def cache(info):
    """What of the guest's memory would be free if it dropped its caches."""
    return info["Buffers"] + info["Cached"] + info["SReclaimable"] - info["Shmem"]


def cpu_s(machine):
    """CPU time of the emulator."""
    with open(f"/proc/{machine.pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def guest_cpu_s(machine):
    """CPU time that the guest's kernel has counted: in programs, and in itself."""
    # In hundredths of a second on every architecture.
    user, nice, system, _, _, irq, softirq = (int(word) / 100 for word in machine.sh("head -n1 /proc/stat").split()[1:8])
    return user + nice, system + irq + softirq


def add_options(parser):
    parser.add_argument("--build-mib", type=int, default=1024, help="a guest's memory (build)")
    parser.add_argument("--builds", type=int, default=2, help="builds in a row, each followed by a pause (build)")
    parser.add_argument("--build-pause", type=float, default=40, help="seconds of that pause (build)")
    parser.add_argument("--drop-pause", type=float, default=30, help="seconds from dropping the caches to the last look (build)")
    parser.add_argument("--build-rounds", type=int, default=1, help="guests of each row (build)")
    parser.add_argument("--pair-rounds", type=int, default=1, help="guests of each row beside one without hints (build-pairs)")
    parser.add_argument("--curve", action="store_true", help="print what the host holds each second as well (build)")


@contextlib.contextmanager
def guest(bench, row, image, cpus=2):
    """A guest that builds, with its hints, and the pid of its agent, if it has one."""
    with bench.machine(row, memory_mib=bench.options.build_mib, disk=image, cpus=cpus) as machine:
        with bench.hints(row, [machine]) as agents:
            yield machine, agents.get(machine.name)


def measure(bench, row, machine, agent):
    """A guest from its first build to the end of the last pause, and after its caches are dropped. Its figures."""
    options = bench.options
    memory = options.build_mib * MIB
    machine.sh("mkdir -p /disk && mount -t ext4 /dev/vda /disk && mount -t proc proc /disk/proc && mount -t devtmpfs dev /disk/dev")
    machine.sh(f"cat >/tmp/watch <<'END'\n{WATCH}\nEND")
    machine.start("sh /tmp/watch", "watch.log")
    seconds, cpu, user, system, sums = 0, 0, 0, 0, set()

    def agent_s():
        return machine.cpu_ms(agent) / 1000 if agent else 0

    of_agent = 0
    with Samples(machine) as samples:
        for _ in range(options.builds):
            guest_cpu, agent_before = guest_cpu_s(machine), agent_s()
            begin, used = time.monotonic(), cpu_s(machine)
            said = machine.sh(f"{MAKE} && /out/check && /out/check-shared && sha256sum /out/check /out/*.so'", timeout_s=900)
            seconds += time.monotonic() - begin
            cpu += cpu_s(machine) - used
            more = [now - then for now, then in zip(guest_cpu_s(machine), guest_cpu)]
            user, system = user + more[0], system + more[1]
            of_agent += agent_s() - agent_before
            sums.add(tuple(said.split()))
            machine.sh("rm -rf /disk/out/*")
            time.sleep(options.build_pause)
    # The first line of what was seen is that of the first moment.
    watched = [info for info in map(meminfo, machine.cat("/tmp/watch.log").splitlines()) if info]
    machine.sh("sync; echo 3 >/proc/sys/vm/drop_caches")
    time.sleep(options.drop_pause)
    used = memory - meminfo(machine.sh("tail -n1 /tmp/watch.log"))["MemFree"]
    held = machine.resident()
    if options.curve:
        print(f"{row}: MiB each second: {' '.join(str(b // MIB) for _, b in samples.taken)}")
    troubles = machine.troubles()
    if troubles:
        raise GuestError(f"{row}: the guest's kernel is in trouble: {troubles[0]}")
    took = samples.taken[-1][0]
    return {
        "GiB s": samples.gib_seconds(),
        # The same without what other programs of this machine do to the time.
        "mean": samples.gib_seconds() / took * GIB / MIB,
        "in use": statistics.mean(memory - info["MemFree"] for info in watched) / GIB * took,
        "cache": statistics.mean(map(cache, watched)) / GIB * took,
        "build s": seconds,
        "CPU s": cpu,
        "user s": user,
        "system s": system,
        "agent s": of_agent,
        "held": held / MIB,
        "stays": max(0, held - used) / MIB,
        "sums": sums,
    }


def tell(row, figures):
    """Progress."""
    print(f"  {row}: " + ", ".join(f"{name} {x:.1f}" for name, x in figures.items() if name != "sums"), file=sys.stderr)


def check_sums(runs):
    """All builds must have made the same."""
    said = set().union(*(figures["sums"] for figures in runs))
    if len(said) != 1:
        raise GuestError(f"builds of the same sources differ: {sorted(said)}")


def compare_pairs(bench, rows):
    """Each row beside a guest without hints, at the same moments, with a processor each: so both see the same machine, however its speed
    changes. A table like that of `compare`."""
    options = bench.options
    found = {row: [] for row in rows if row != "none"}
    with tempfile.TemporaryDirectory(prefix="isotherm-build-") as work, ThreadPoolExecutor() as pool:
        image = os.path.join(work, "disk")
        toolchain.image(image)
        for turn in range(options.pair_rounds):
            for row in found if turn % 2 == 0 else reversed(found):
                with contextlib.ExitStack() as stack:
                    both = {each: stack.enter_context(guest(bench, each, image, cpus=1)) for each in ("none", row)}
                    found[row].append(list(pool.map(lambda of: measure(bench, of[0], *of[1]), both.items())))
                for each, figures in zip(both, found[row][-1]):
                    tell(each, figures)
    check_sums(figures for pairs in found.values() for pair in pairs for figures in pair)
    title = (f"A guest of {options.build_mib} MiB builds zstd {options.builds} times beside one without hints, with a processor each; "
             f"{options.pair_rounds} rounds, medians and extremes of the ratio to that; CPU time: of the emulator, and by the guest's kernel")  # fmt: skip

    def ratio(row, name):
        ratios = sorted(ours[name] / max(theirs[name], 1) for theirs, ours in found[row])
        return f"{statistics.median(ratios):.3f} ({ratios[0]:.3f}..{ratios[-1]:.3f})"

    def agent(row):
        """Part of the build's time that the agent had the guest's processor."""
        return f"{statistics.median(ours['agent s'] / ours['build s'] for _, ours in found[row]):.2%}"

    names = ("build s", "CPU s", "user s", "system s", "mean")
    return title, ["hints", *names, "agent"], [[row, *(ratio(row, name) for name in names), agent(row)] for row in found]


def compare(bench, rows):
    """Rounds of all rows; their table: title, head, lines."""
    options = bench.options
    found = {row: [] for row in rows}
    with tempfile.TemporaryDirectory(prefix="isotherm-build-") as work:
        image = os.path.join(work, "disk")
        toolchain.image(image)
        for turn in range(options.build_rounds):
            for row in rows if turn % 2 == 0 else reversed(rows):
                with guest(bench, row, image) as (machine, agent):
                    found[row].append(measure(bench, row, machine, agent))
                tell(row, found[row][-1])
    check_sums(figures for runs in found.values() for figures in runs)
    title = (f"A guest of {options.build_mib} MiB builds zstd {options.builds} times, {options.build_pause:.0f} s apart, all builds equal; "
             f"{options.build_rounds} rounds, medians; ratios are of the same round.\n"
             "Memory times time as the host has it, and as the guest says that it uses; held and unused after its caches were dropped")  # fmt: skip

    def median(row, name):
        return statistics.median(figures[name] for figures in found[row])

    def ratio(row, name, to="none"):
        return statistics.median(ours[name] / max(theirs[name], 1) for ours, theirs in zip(found[row], found[to]))

    head = ["hints", "GiB s", "ratio", "mean MiB", "ratio", "guest uses", "of it cache",
            "build s", "ratio", "CPU s", "ratio", "held MiB", "unused MiB", "by balloon's"]  # fmt: skip
    lines = [[row, f"{median(row, 'GiB s'):.1f}", f"{ratio(row, 'GiB s'):.2f}", f"{median(row, 'mean'):.0f}", f"{ratio(row, 'mean'):.2f}",
              f"{median(row, 'in use'):.1f}", f"{median(row, 'cache'):.1f}",
              f"{median(row, 'build s'):.1f}", f"{ratio(row, 'build s'):.3f}", f"{median(row, 'CPU s'):.1f}", f"{ratio(row, 'CPU s'):.3f}",
              f"{median(row, 'held'):.0f}", f"{median(row, 'stays'):.0f}", f"{ratio(row, 'stays', 'balloon'):.2f}"]
             for row in rows]  # fmt: skip
    return title, head, lines
