#!/usr/bin/env python3
"""How many virtual machines fit on a host, and what hints cost a guest: the tests that free page hinting was proposed with,
scaled down to this machine.

* density: guests are started one after the other; each runs a program that allocates, touches and frees most of its memory.
  How many until they take more than the host is said to have?
* reuse: the same program in three guests in turn, on a host with less memory than they have together: its time in the third,
  and the swap that is used.
* faults: processes that do nothing but fault memory in and give it back: how much slower while hints are given?
* net: throughput of the guest's loopback device, with and without.
* build: a guest that builds a C program with its tools: memory times time, build time, and what stays with the host of what the
  guest does not use, after its caches are dropped.
* build-pairs: the same, each row beside a guest without hints at the same moments: whether the build is slower, however the speed of
  the machine changes.
* slowest: the slowest 1 % of a program bound by memory, while memory beside it is used and freed.

Each without hints, with isotherm, and with the balloon's free page reporting. Guests are emulated, so compare rows, not machines.
Needs root and QEMU. What is set up (a control group of version 1, swap on zram) is taken down again, also after Ctrl-C.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
sys.path[:0] = [os.path.join(ROOT, d) for d in ("bench/schemes/lib", "tests/guest", "tests/guest/hint")]

import build
import kernels
import toolchain
from machine import GuestError, Machine
from system import Swap, prepare, read, undisturbed, write

MIB = 1 << 20
STATIC = os.path.join(ROOT, "target/static")
CACHE = os.path.join(ROOT, "target/guest")
FILES = {"isotherm": os.path.join(STATIC, "isotherm"), "guest_load": os.path.join(STATIC, "guest_load")}
ROWS = ("none", "isotherm", "balloon")
PARTS = ("density", "reuse", "faults", "net", "build", "build-pairs", "slowest")
REFERENCES = """
Published with page hinting v10 (guests of 5 GB on a host of 15 GB, KVM): density 2 -> 5 guests; reuse in the third guest
6 min 38 s -> 32 s; faults at most 2 % slower; network 3 % slower.
Published with HyperAlloc (EuroSys 2025, KVM, a C++ build): memory times time of free page reporting 0.66 and of HyperAlloc 0.54 by that
without; after caches are dropped 7.99 and 1.90 GiB stay; build time 1.00 and 0.99."""


class Bench:
    """What all parts share."""

    def __init__(self, options):
        self.options = options
        self.kernel = kernels.kernel(options.kernel, CACHE)

    def machine(self, row, number=0, memory_mib=None, disk=None, cpus=2):
        return Machine(self.kernel, FILES, name=f"{row}{number}", memory_mib=memory_mib or self.options.guest_mib, cpus=cpus, disk=disk,
                       append=self.options.append, balloon=row == "balloon", port=row == "isotherm")  # fmt: skip

    @contextlib.contextmanager
    def hints(self, row, machines):
        """The host side for these machines, and the agent in each; the agents' pids there by machine."""
        if row != "isotherm":
            yield {}
            return
        with tempfile.NamedTemporaryFile(prefix="isotherm-host-") as log:
            guests = [arg for m in machines for arg in ("--guest", f"name={m.name},pid={m.pid},socket={m.socket}")]
            host = subprocess.Popen([FILES["isotherm"], "hint", "host", *guests], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                agents = {m.name: m.start(f"isotherm hint guest --isolate {self.options.isolate}", "agent.log") for m in machines}
                for m in machines:
                    m.wait_for(lambda m=m: "reporting to" in m.cat("/tmp/agent.log"), 60, "the host welcomes the agent")
                yield agents
            except GuestError:
                sys.stderr.write(read(log.name))
                raise
            finally:
                host.terminate()
                host.wait()


def cost(machine):
    """Bytes that the host has in memory for a machine: the guest's memory and QEMU's own."""
    status = read(f"/proc/{machine.pid}/status")
    own = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon:"))
    return machine.resident() + own


def density(bench, row):
    """Guests that fit."""
    options = bench.options
    limit, mib = options.host_mib * MIB, int(options.guest_mib * options.part)
    with contextlib.ExitStack() as stack:
        machines, peak = [], 0
        while len(machines) < options.most:
            machine = stack.enter_context(bench.machine(row, len(machines)))
            machines.append(machine)
            stack.enter_context(bench.hints(row, [machine]))
            machine.sh(f"guest_load hog {mib}", timeout_s=300)
            # As long as it takes, but not for ever: the balloon's reports come after 2 s.
            end = time.monotonic() + options.settle
            while time.monotonic() < end and sum(map(cost, machines)) > limit:
                time.sleep(0.2)
            total = sum(map(cost, machines))
            print(f"  {row}: {len(machines)} guests take {total // MIB} of {options.host_mib} MiB", file=sys.stderr)
            if total > limit:
                return len(machines) - 1, peak
            peak = total
        return len(machines), peak


class Limit:
    """A control group of version 1 in which QEMU has little memory."""

    def __init__(self, mib):
        self.path, self.mib = f"/sys/fs/cgroup/memory/isotherm-guests-{os.getpid()}", mib

    def __enter__(self):
        if not os.path.exists("/sys/fs/cgroup/memory/memory.limit_in_bytes"):
            sys.exit("bench-guests: reuse needs the memory controller of control groups v1; leave it out with --parts")
        os.mkdir(self.path)
        write(f"{self.path}/memory.limit_in_bytes", str(self.mib * MIB))
        return self

    def __exit__(self, *_):
        with undisturbed():
            # Its tasks are gone; what is left charged moves up.
            for _ in range(50):
                try:
                    os.rmdir(self.path)
                    return
                except OSError:
                    time.sleep(0.1)

    @contextlib.contextmanager
    def inside(self):
        """What is started meanwhile lives in the group from its first page on."""
        own = next(line.split(":", 2)[2] for line in read("/proc/self/cgroup").splitlines() if ":memory:" in line)
        write(f"{self.path}/cgroup.procs", str(os.getpid()))
        try:
            yield
        finally:
            write(f"/sys/fs/cgroup/memory{own}/cgroup.procs", str(os.getpid()))

    def swap(self):
        """Bytes that its tasks have in swap."""
        fields = dict(line.split() for line in read(f"{self.path}/memory.stat").splitlines())
        return int(fields["swap"]) if "swap" in fields else None


def reuse(bench, row):
    """Seconds of the program in each of three guests, and the most swap that was used."""
    options = bench.options
    mib = int(options.guest_mib * options.part)
    # Room for two guests that have used all of their memory, and for the third as long as it has not.
    room = int(2.5 * options.guest_mib)
    with Swap(4 * options.guest_mib), Limit(room) as limit, contextlib.ExitStack() as stack:
        machines = []
        for number in range(3):
            with limit.inside():
                machines.append(stack.enter_context(bench.machine(row, number)))
        stack.enter_context(bench.hints(row, machines))
        seconds, swap = [], 0
        for machine in machines:
            begin = time.monotonic()
            machine.sh(f"guest_load hog {mib}", timeout_s=900)
            seconds.append(time.monotonic() - begin)
            time.sleep(options.pause)
            swap = max(swap, limit.swap() or 0)
        return seconds, swap


def loss(bench, command, beside=None):
    """Figures of a command in a guest without hints, with ours and with the balloon's, and their ratios to that without in the same
    round; rounds are interleaved. `beside`: what goes on in the guest meanwhile, again and again."""
    options = bench.options
    with contextlib.ExitStack() as stack:
        machines = {row: stack.enter_context(bench.machine(row, memory_mib=options.loss_mib)) for row in ROWS}
        stack.enter_context(bench.hints("isotherm", [machines["isotherm"]]))
        figures = {row: [] for row in ROWS}
        for turn in range(options.rounds):
            for row in ROWS if turn % 2 == 0 else reversed(ROWS):
                machine = machines[row]
                other = machine.start(f"sh -c 'while {beside}; do sleep 1; done'", "beside.log") if beside else None
                figures[row].append(float(machine.sh(command, timeout_s=300).split()[-1]))
                if other:
                    machine.sh(f"kill {other}")
                    machine.wait_exit(other, 30)
        ratios = {row: [ours / plain for ours, plain in zip(figures[row], figures["none"])] for row in ROWS}
        return {row: (statistics.median(figures[row]), sorted(ratios[row])) for row in ROWS}


def table(title, head, lines):
    print(f"\n{title}")
    widths = [max(len(str(line[i])) for line in [head, *lines]) for i in range(len(head))]
    for line in [head, *lines]:
        print("  " + "  ".join(str(cell).rjust(width) for cell, width in zip(line, widths)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", choices=sorted(kernels.PACKAGES), default="6.1", help="the guests' kernel")
    parser.add_argument("--append", default="", help="more for the guests' kernel command line, for example init_on_alloc=0")
    parser.add_argument("--isolate", default="auto", help="how the agent isolates memory")
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts to run")
    parser.add_argument("--rows", default=",".join(ROWS), help="which rows beside that without hints (build-pairs)")
    parser.add_argument("--guest-mib", type=int, default=640, help="a guest's memory (density, reuse)")
    parser.add_argument("--host-mib", type=int, default=1800, help="what the host is said to have (density)")
    parser.add_argument("--part", type=float, default=0.75, help="the part of its memory that a guest's program uses")
    parser.add_argument("--most", type=int, default=12, help="guests, at most (density)")
    parser.add_argument("--settle", type=float, default=15, help="seconds that hints may take (density)")
    parser.add_argument("--pause", type=float, default=10, help="seconds between the guests' programs (reuse)")
    parser.add_argument("--loss-mib", type=int, default=768, help="a guest's memory (faults, net)")
    parser.add_argument("--seconds", type=int, default=6, help="of one measurement (faults, net)")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each row (faults, net, slowest)")
    parser.add_argument("--procs", type=int, default=2, help="processes (faults)")
    parser.add_argument("--stream-mib", type=int, default=64, help="what the program copies and where to (slowest)")
    parser.add_argument("--stream-s", type=int, default=15, help="seconds of one measurement (slowest)")
    parser.add_argument("--quantum-ms", type=int, default=20, help="times of which the slowest are looked for (slowest)")
    parser.add_argument("--beside-mib", type=int, default=256, help="what is used and freed beside it (slowest)")
    build.add_options(parser)
    options = parser.parse_args()
    parts = options.parts.split(",")
    rows = {"none", *options.rows.split(",")}
    for name, asked, known in (("part", set(parts), PARTS), ("row", rows, ROWS)):
        unknown = asked - set(known)
        if unknown:
            parser.error(f"no {name} called {', '.join(sorted(unknown))}")
    prepare("bench-guests")
    try:
        bench = Bench(options)
    except kernels.KernelsUnavailable as error:
        sys.exit(f"bench-guests: {error}")
    print(f"Guests: Debian's kernel {options.kernel}, QEMU emulation (no KVM), isolated by {options.isolate}"
          + (f", {options.append}" if options.append else ""))  # fmt: skip
    if "density" in parts:
        found = {row: density(bench, row) for row in ROWS}
        lines = [[row, n, f"{n / max(1, found['none'][0]):.2f}", peak // MIB] for row, (n, peak) in found.items()]
        program = int(options.guest_mib * options.part)
        table(f"Guests of {options.guest_mib} MiB, each used {program} MiB once, in {options.host_mib} MiB",
              ["hints", "guests", "ratio", "MiB then"], lines)  # fmt: skip
    if "reuse" in parts:
        found = {row: reuse(bench, row) for row in ROWS}
        lines = [[row, *(f"{s:.1f}" for s in seconds), f"{found['none'][0][2] / seconds[2]:.2f}", swap // MIB]
                 for row, (seconds, swap) in found.items()]  # fmt: skip
        table(f"The same program in three guests in turn, on a host with memory for two, {options.pause:.0f} s apart",
              ["hints", "1st s", "2nd s", "3rd s", "faster", "swap MiB"], lines)  # fmt: skip
    for part, title, command, beside in (
        ("faults", f"Pages faulted in by {options.procs} processes, in {options.seconds} s",
         f"guest_load scale 32 {options.seconds} {options.procs}", None),
        ("net", "MiB a second over the guest's loopback device", f"guest_load net {options.seconds}", None),
        ("slowest", f"MiB a second that a program bound by memory copies in the slowest 1 % of times of {options.quantum_ms} ms, while "
         f"{options.beside_mib} MiB are used and freed again and again",
         f"guest_load stream {options.stream_mib} {options.stream_s} {options.quantum_ms}", f"guest_load hog {options.beside_mib}"),
    ):  # fmt: skip
        if part in parts:
            found = loss(bench, command, beside)
            lines = [[row, f"{figure:.0f}", f"{statistics.median(ratios):.3f}", f"{ratios[0]:.3f}..{ratios[-1]:.3f}",
                      f"{100 * (1 - statistics.median(ratios)):.1f} %"] for row, (figure, ratios) in found.items()]  # fmt: skip
            table(f"{title}; {options.rounds} rounds, medians and extremes", ["hints", "figure", "ratio", "", "loss"], lines)
    paired = [row for row in ROWS if row in rows]
    for part, compare, of in (("build", build.compare, ROWS), ("build-pairs", build.compare_pairs, paired)):
        if part not in parts:
            continue
        try:
            table(*compare(bench, of))
        except toolchain.Missing as error:
            sys.exit(f"bench-guests: {error}")
    print(REFERENCES)


if __name__ == "__main__":
    main()
