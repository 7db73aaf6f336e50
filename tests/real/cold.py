"""Cold memory of redis: the kernel's own account by clear_refs and smaps, and what each command says.

Two servers at once: one of which keys all over the memory are asked for, about which every command that finds cold memory
is asked in turn; and one as `make demo` sets it up.
"""

import json
import os
import random
import tempfile
import time

from harness import MIB, Recorder, isotherm, summaries, used_pages, wait_for_all
from processes import stop
from redis_server import RedisServer

AGE = 10  # s without use that every command is asked about
SECONDS = 25
TOLERANCE = 0.05


class Server:
    """A redis of `keys` values of 1 KB, and a client that asks for some of them over and over, each every 0.3 s or so."""

    def __init__(self, folder, name, keys, asked):
        self.name, self.folder, self.keys, self.asked = name, f"{folder}/{name}", keys, asked
        self.server = self.client = None

    def start(self):
        """Starts and fills it, and lets the client ask."""
        os.mkdir(self.folder)
        self.server = RedisServer(self.folder, "--appendonly", "no")
        self.server.fill(self.keys)
        self.client = self.server.start_client(self.asked, 0.2)

    @property
    def pid(self):
        """The server's process."""
        return self.server.pid

    @property
    def pids(self):
        """All of its processes."""
        return [self.pid]

    def stop(self):
        """Ends both."""
        stop(self.client)
        if self.server is not None:
            self.server.stop()


def by_lru(pid):
    """Cold memory as `lru report` has it: the generations that ended more than AGE ago."""
    line = isotherm("lru", "report", "--pid", str(pid), "--duration", f"{AGE + 4}s", "--interval", "2s",
                    "--generations", "20", "--engine", "user", "--json")  # fmt: skip
    generations = json.loads(line)["generations"]
    old = [g for g, younger in zip(generations, generations[1:]) if younger["age_ms"] >= AGE * 1000]
    return sum(g["anon_bytes"] + g["file_bytes"] for g in old)


def by_scheme(pid, *command):
    """Cold memory as a scheme would page it out: what its last statistics say was tried."""
    lines = isotherm(*command, "--pid", str(pid), "--dry-run", "--duration", f"{AGE + 8}s", "--quota", "none", "--json",
                     "--no-control", "--quiet")  # fmt: skip
    schemes = [json.loads(line) for line in lines.splitlines()]
    return next(s["sz_tried"] for s in schemes if s["action"] == "pageout")


def check(results):
    """Runs both servers, and compares."""
    keys = 150_000
    some = random.Random(1).sample(range(keys), 5_000)
    servers, recorders = [], []
    with tempfile.TemporaryDirectory(prefix="isotherm-cold-") as folder:
        try:
            # As scripts/demo does, but for the change of the keys half way: ages near the threshold have no one truth.
            servers += [Server(folder, "scattered", keys, some), Server(folder, "demo", 300_000, range(15_000))]
            for server in servers:
                server.start()
            time.sleep(2)
            recorders += [Recorder(s.folder + ".iso", SECONDS, "--pid", str(s.pid)) for s in servers]
            wait_for_all(recorders)
            said = [summaries(r.file)[0][s.pid].cold() for s, r in zip(servers, recorders)]
            demo = used_pages(servers[1].pid, AGE)
            servers[1].stop()
            pid = servers[0].pid
            tier = ("tier", "--mode", "scan", "--cold-age", f"{AGE}s", "--keep-pages")
            commands = {
                "record and report summary": said[0],
                "lru report": by_lru(pid),
                "reclaim --dry-run": by_scheme(pid, "reclaim", "--min-age", f"{AGE}s", "--quota-time", "none"),
                "tier --dry-run --mode scan": by_scheme(pid, *tier),
            }
            scattered = used_pages(pid, AGE)
        finally:
            for recorder in recorders:
                recorder.stop()
            for server in servers:
                server.stop()
    results.scope = "redis as in make demo"
    results.near(f"cold > {AGE} s", demo[0] - demo[1], said[1], TOLERANCE)
    results.scope = "redis, 5000 scattered keys of 150000"
    cold = scattered[0] - scattered[1]
    for command, measured in commands.items():
        results.near(f"cold > {AGE} s by {command}", cold, measured, TOLERANCE)
    answers = [measured or 0 for measured in commands.values()]
    apart = (max(answers) - min(answers)) / cold
    results.check(apart <= TOLERANCE, f"the commands differ by {apart:.1%} of {cold / MIB:.1f} MiB (at most {TOLERANCE:.0%})")
