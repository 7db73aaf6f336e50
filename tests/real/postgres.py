"""PostgreSQL under pgbench, and one session that reads a whole table again and again from the shared buffers."""

import re
import subprocess
import tempfile
import time

from harness import MIB, mib, summaries, watch
from postgres_server import PostgresServer
from processes import stop
from ranges import length, normalize

TABLE = "pgbench_accounts"


def check(results):
    """Runs a server of its own as user postgres and records it with all its processes."""
    server = bench = None
    with tempfile.TemporaryDirectory(prefix="isotherm-postgres-") as folder:
        try:
            server = PostgresServer("shared_buffers=128MB", "max_parallel_workers_per_gather=0")
            server.run("pgbench", "-i", "-q", "-s", "2")
            table_bytes = int(server.sql(f"VACUUM {TABLE}") or server.sql(f"SELECT pg_relation_size('{TABLE}')"))
            bench = server.start("pgbench", "-S", "-n", "-c", "2", "-T", "600", stderr=subprocess.DEVNULL)
            reader, session = server.session()
            # Twice: the first may read from files, the second finds the whole table in the shared buffers.
            plan = server.sql(f"SELECT sum(abalance) FROM {TABLE}") and server.sql(
                f"EXPLAIN (ANALYZE, BUFFERS) SELECT sum(abalance) FROM {TABLE}"
            )
            in_buffers = int(re.search(r"shared hit=(\d+)", plan)[1]) * 8192
            results.check(in_buffers >= table_bytes, f"the table ({table_bytes >> 20} MiB) lies in the shared buffers")
            reader.stdin.write(
                f"DO $$ BEGIN FOR i IN 1..100000 LOOP PERFORM sum(abalance) FROM {TABLE}; END LOOP; END $$;\n"
            )
            reader.stdin.flush()
            time.sleep(1)
            snapshots, summary = watch(folder, 16, "--pid", str(server.pid), "--children")
            single, _ = summaries(f"{folder}/record.iso")
            shared = _shared_memory(session)
            results.check(_runs(session), "the session read the table throughout the window")
        finally:
            stop(bench)
            if server is not None:
                server.stop()
    watched = {s.pid for s in snapshots}
    results.check(len(watched) >= 4, f"{len(watched)} processes of the server were watched")
    results.check(length(shared) >= table_bytes, f"the session maps {mib(shared)} of shared buffers")
    own = single[session].data["resident_pages"]
    seen, unknown = own["accessed"], own["not_resolved"] + own["not_observable"]
    results.check(
        seen + unknown >= 0.99 * table_bytes,
        f"of the session's memory, {seen / MIB:.1f} MiB were seen accessed and {unknown / MIB:.1f} are not resolved or not "
        f"observable; the table alone, which it reads all the time, has {table_bytes >> 20} MiB",
    )
    results.check(summary.strip() != "", "there is a summary")


def _runs(pid):
    """Whether a process is there and not a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


def _shared_memory(pid):
    """The server's shared memory, as this process has it mapped."""
    with open(f"/proc/{pid}/maps") as f:
        shared = [line.split() for line in f if "/dev/zero" in line]
    return normalize(tuple(int(a, 16) for a in line[0].split("-")) for line in shared)
