"""Processes that sleep nearly all the time: what is said of their memory while they do, and once they have used it again."""

import contextlib
import tempfile

from group import USED
from harness import MIB, ControlGroup
from node import TEN, Node, within_ten
from pages import COLD, WORKING_SET, Program, build, hot_pages, size

EACH_MIB = 60
NEVER_US, SELDOM_US = 3_600_000_000, 6_000_000
SECONDS = 30
LOOKS = 3
BETWEEN_S = 3  # so that some come shortly after all have woken, and some later


def check(results):
    """Programs that use their memory once and sleep from then on, that wake every six seconds, and that do so in children
    which share it."""
    kinds = {
        "asleep": dict(period=NEVER_US),
        "wake now and then": dict(period=SELDOM_US),
        "wake now and then in children": dict(period=SELDOM_US, fork=3),
    }
    groups, programs, node = {}, {kind: [] for kind in kinds}, None
    with tempfile.TemporaryDirectory(prefix="isotherm-sleepers-") as folder, contextlib.ExitStack() as entered:
        try:
            path = build(folder)
            for number, (kind, words) in enumerate(kinds.items()):
                groups[kind] = group = entered.enter_context(ControlGroup(f"sleepers-{number}"))
                of_each = dict(size=size(EACH_MIB), set="random", hot=hot_pages(EACH_MIB, USED), **words)
                programs[kind] += [Program(path, group.enter, seed=seed, **of_each) for seed in range(4)]
            for program in sum(programs.values(), []):
                program.ready()
            node = Node(folder)
            node.watch(SECONDS)
            looks = []
            for _ in range(LOOKS):
                node.watch(BETWEEN_S)
                looks.append(node.ask("ps"))
            cpu = node.cpu.share()
            ended = node.stop()
        finally:
            for program in sum(programs.values(), []):
                program.stop()
            if node is not None and node.process.poll() is None:
                node.stop()
    for kind, group in groups.items():
        held = sum(program.size for program in programs[kind])
        used = 0 if kind == "asleep" else sum(program.hot for program in programs[kind])
        for look, lines in enumerate(looks, 1):
            row = group.row(lines) or {}
            results.near(f"{kind}, look {look}: cold > {TEN} s", held - used, within_ten(row, "cold", "for_ns"), COLD)
            measured = within_ten(row, "working_set", "within_ns")
            if measured is None:
                results.near(f"{kind}, look {look}: used within {TEN} s", used, None, WORKING_SET)
                continue
            # Bits of pages that children share are cleared process by process, in turn.
            open_bytes = (row.get("unobservable_bytes") or 0) + (row.get("unresolved_bytes") or 0)
            ok = measured <= used * (1 + WORKING_SET) + MIB and measured + open_bytes >= used * (1 - WORKING_SET)
            results.check(ok, f"{kind}, look {look}: used within {TEN} s: truth {used / MIB:.1f} MiB, measured {measured / MIB:.1f}, "
                              f"and {open_bytes / MIB:.1f} not known yet or not observable")  # fmt: skip
    results.at_most("CPU of the node, from outside", 0.0105, cpu)
    results.check(ended, "it ends in good order")
