"""redis: keys that are asked for all the time; the server itself tells where their values lie."""

import re
import tempfile

from harness import mib, watch
from processes import stop, wait_for
from ranges import PAGE, intersect, length, normalize, subtract
from record import ever_accessed
from redis_server import RedisServer

KEYS = 100_000
HOT = 2_000


def check(results):
    """Fills a server, asks for some keys while it is recorded, and looks for the pages of their values."""
    server = client = None
    with tempfile.TemporaryDirectory(prefix="isotherm-redis-") as folder:
        try:
            server = RedisServer(folder, "--enable-debug-command", "yes")
            server.fill(KEYS)
            places = server.cli(input="".join(f"DEBUG OBJECT key:{k}\n" for k in range(HOT)))
            # A look-up writes the value's header (the time of its last use), which lies at this address.
            addresses = [int(a, 16) for a in re.findall(r"at:(0x[0-9a-f]+)", places)]
            touched = normalize((a - a % PAGE, a - a % PAGE + PAGE) for a in addresses)
            results.check(len(addresses) == HOT, f"redis reported where {len(addresses)} values lie, on {mib(touched)}")

            client = server.start_client(range(HOT), 0.02)
            before = _lookups(server)
            wait_for("the client asks", lambda: _lookups(server) > before)
            before = _lookups(server)
            # Regions look for some thirty pages among 45000. Of the default budget walks take more than half, and what is left finds
            # nearly all of them in nearly all runs only.
            snapshots, summary = watch(folder, 16, "--pid", str(server.pid), "--cpu-budget", "3%")
            rounds = (_lookups(server) - before) // HOT
            mapping = _largest_mapping(server.pid)
        finally:
            stop(client)
            if server is not None:
                server.stop()
    results.check(rounds >= 2, f"each of them was asked for about {rounds} times in the window")
    missed = subtract(touched, ever_accessed(snapshots))
    results.check(length(missed) <= 0.01 * length(touched), f"{mib(missed)} of their pages not seen accessed")
    seen = length(ever_accessed(snapshots))
    results.check(seen >= HOT * 1000, f"{seen / 1e6:.1f} MB seen accessed; the values alone have {HOT / 1000:.1f} MB")
    late = snapshots[len(snapshots) // 2 :]
    total = length(normalize((r["start"], r["end"]) for r in late[-1].regions))
    cold = late[0].cold()
    for s in late:
        cold = intersect(cold, s.cold())
    results.check(
        length(cold) > KEYS * 1000 / 2,
        f"{mib(cold)} of {total >> 20} MiB cold throughout the second half, with {KEYS // 1000} MB of values",
    )
    results.check(mapping in summary, f"the summary names {mapping}, which holds most anonymous memory")


def _largest_mapping(pid):
    """What a process's largest mapping of anonymous memory goes by: its name, or else its addresses."""
    with open(f"/proc/{pid}/smaps") as f:
        lines = [line.split() for line in f]
    best, words = (-1, ""), []
    for line in lines:
        if "-" in line[0]:
            words = line
        elif line[0] == "Anonymous:":
            best = max(best, (int(line[1]), words[5] if len(words) > 5 else words[0]))
    return best[1]


def _lookups(server):
    """Keys that were looked up and found so far."""
    return int(re.search(r"keyspace_hits:(\d+)", server.cli("info", "stats"))[1])
