"""The programs under test. Each has memory of which a part is cold, does a fixed amount of work, and checks its own data."""

import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../../../tests/lib"))

from postgres_server import PostgresServer
from processes import start, stop, wait_for
from redis_server import RedisServer

START_S = 120


class Worker:
    """A process that prints `ready`, waits for a line, and prints `ELAPSED_NS ok`."""

    many = False  # whether it is more than one process

    def __init__(self, command):
        self.command = command
        self.process = None

    def __enter__(self):
        self.process = start(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.pid = self.process.pid
            if self.process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{self.command[0]} did not start")
            return self
        except BaseException:
            self.__exit__()
            raise

    def work(self):
        """Lets it work; returns its seconds."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if len(answer) != 2 or answer[1] != "ok":
            raise RuntimeError(f"{' '.join(self.command)}: its data is wrong or it died (status {self.process.wait()})")
        return int(answer[0]) / 1e9

    def check(self):
        """What it checks after the time was taken."""
        status = self.process.wait(timeout=START_S)
        if status != 0:
            raise RuntimeError(f"{' '.join(self.command)}: its data is wrong (status {status})")

    def __exit__(self, *_):
        stop(self.process, signal.SIGKILL)


class Redis:
    """redis, asked by a YCSB-like client; the client is not watched."""

    many = False

    def __init__(self, client, records, requests, work_us, folder):
        self.folder, self.program, self.amounts = folder, client, [str(records), str(requests), str(work_us)]
        self.server = self.client = None

    def __enter__(self):
        try:
            self.server = RedisServer(self.folder, seconds=START_S)
            self.pid = self.server.pid
            self.client = Worker([self.program, self.server.socket, *self.amounts])
            self.client.__enter__()
            return self
        except BaseException:
            self.__exit__()
            raise

    def work(self):
        """Lets the client ask; returns its seconds."""
        return self.client.work()

    def check(self):
        """The client checks every answer as it comes."""
        self.client.check()

    def __exit__(self, *_):
        if self.client is not None:
            self.client.__exit__()
        if self.server is not None:
            self.server.stop(signal.SIGKILL)


# The transaction of TPC-B. Accounts are chosen as in a shop: most transactions are about recent ones, which lie together, and
# the older an account, the fewer it sees (exponentially). Each client first reads the whole table into the shared buffers and waits there for the start.
PGBENCH_SCRIPT = r"""
\if :begun = 0
SELECT pg_prewarm('pgbench_accounts', 'buffer');
SELECT pg_advisory_lock_shared(42);
\set begun 1
\endif
\set aid random_exponential(1, 100000 * :scale, 10.0)
\set bid random(1, 1 * :scale)
\set tid random(1, 10 * :scale)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
"""


class Postgres:
    """PostgreSQL under pgbench; pgbench is not watched, all processes of the server are."""

    many = True
    CLIENTS = 2

    def __init__(self, scale, transactions, buffers_mib):
        self.scale, self.transactions, self.buffers_mib = scale, transactions, buffers_mib
        self.server = self.bench = None

    def __enter__(self):
        try:
            self._start()
            return self
        except BaseException:
            self.__exit__()
            raise

    def _start(self):
        settings = {"shared_buffers": f"{self.buffers_mib}MB", "autovacuum": "off", "checkpoint_timeout": "1h", "max_wal_size": "8GB",
                    "max_parallel_workers_per_gather": "0"}  # fmt: skip
        self.server = PostgresServer(*(f"{k}={v}" for k, v in settings.items()))
        self.pid = self.server.pid
        self.server.run("pgbench", "-i", "-q", "-s", str(self.scale))
        self.server.sql("CREATE EXTENSION pg_prewarm")
        self.server.sql("CHECKPOINT")
        self.gate, _ = self.server.session()
        self.gate.stdin.write("SELECT pg_advisory_lock(42); SELECT 'held';\n")
        self.gate.stdin.flush()
        wait_for("the gate is shut", lambda: self.gate.stdout.readline() == "held\n", START_S)
        script = f"{self.server.folder}/script"
        with open(script, "w") as f:
            f.write(PGBENCH_SCRIPT)
        each = self.transactions // self.CLIENTS
        self.bench = self.server.start(
            "pgbench", "-n", "-f", script, "-s", str(self.scale), "-D", "begun=0", "-c", str(self.CLIENTS), "-t", str(each),
            "--random-seed=9", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )  # fmt: skip
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        wait_for("the clients are ready", lambda: self.server.sql(waiting) == str(self.CLIENTS), START_S)

    def work(self):
        """Opens the gate; returns the seconds until the last transaction."""
        begin = time.monotonic()
        self.gate.stdin.write("SELECT pg_advisory_unlock(42);\n")
        self.gate.stdin.flush()
        text = self.bench.communicate()[0]
        seconds = time.monotonic() - begin
        if self.bench.returncode != 0:
            raise RuntimeError(f"pgbench failed:\n{text}")
        return seconds

    def check(self):
        """The balances of accounts, tellers and branches add up to the same, and to what the history says."""
        found = self.server.sql("SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),"
                          " (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(delta) FROM pgbench_history),"
                          " (SELECT count(*) FROM pgbench_history)").split("|")  # fmt: skip
        done = self.transactions // self.CLIENTS * self.CLIENTS
        if len(set(found[:4])) != 1 or found[4] != str(done):
            raise RuntimeError(f"PostgreSQL's data is wrong: sums {found[:4]}, {found[4]} transactions instead of {done}")

    def __exit__(self, *_):
        stop(self.bench, signal.SIGKILL)
        if self.server is not None:
            self.server.stop()


def catalogue(binaries, folder, part):
    """Name -> program. `part`: the share of the full work that is done."""

    def of(work):
        return max(int(work * part), 1)

    return {
        "redis": lambda: Redis(binaries["zipf_client"], 400_000, of(900_000), 20, folder),
        "postgres": lambda: Postgres(20, of(150_000), 400),
        "sort": lambda: Worker([binaries["batch_sort"], "8", "40", str(of(10))]),
        "stencil": lambda: Worker([binaries["stencil"], "2800", "320", str(of(3500))]),
        "numpy": lambda: Worker(["/usr/bin/python3", f"{HERE}/numpy_analytics.py", str(of(60))]),
    }


def large(binaries, folder, part):
    """The programs of the tiering benchmark, as in `catalogue`."""

    def of(work):
        return max(int(work * part), 1)

    return {
        "redis": lambda: Redis(binaries["zipf_client"], 1_500_000, of(900_000), 20, folder),
        "stencil": lambda: Worker([binaries["stencil"], "2800", "3072", str(of(3500))]),
    }
