"""A PostgreSQL of our own, run as user postgres, reached through a Unix socket in its folder."""

import glob
import os
import pwd
import signal
import subprocess
import tempfile
import time


class PostgresServer:
    """A server with an empty database cluster in a temporary folder, until `stop`.

    `options`: settings as `name=value`. `started`: what is called with the pid of the server as soon as there is one.
    """

    def __init__(self, *options, started=lambda pid: None):
        programs = max(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda p: int(p.split("/")[-2]))
        owner = pwd.getpwnam("postgres")
        self.folder = tempfile.mkdtemp(prefix="isotherm-postgres-")
        os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        environment = {"PATH": programs + ":/usr/bin:/bin", "PGHOST": self.folder, "PGDATABASE": "postgres", "LC_ALL": "C"}
        self.common = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": [], "env": environment, "cwd": self.folder,
                       "stdin": subprocess.DEVNULL}  # fmt: skip
        self.server, self.sessions = None, []
        try:
            data = f"{self.folder}/data"
            self.run("initdb", "-D", data, "-A", "trust", "--no-sync")
            settings = [part for option in ("listen_addresses=", "fsync=off", *options) for part in ("-c", option)]
            self.server = self.start("postgres", "-D", data, "-k", self.folder, *settings, stderr=subprocess.DEVNULL)
            started(self.server.pid)
            end = time.monotonic() + 60
            while subprocess.run(["pg_isready", "-q"], **self.common).returncode != 0:
                if time.monotonic() > end or self.server.poll() is not None:
                    raise RuntimeError("PostgreSQL did not start")
                time.sleep(0.1)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self):
        """The server's first process, whose children the others are."""
        return self.server.pid

    def children(self):
        """Pids of its other processes."""
        with open(f"/proc/{self.pid}/task/{self.pid}/children") as f:
            return [int(pid) for pid in f.read().split()]

    def run(self, *command):
        """Runs one of PostgreSQL's programs, which must succeed, as its user; returns its output."""
        done = subprocess.run(command, capture_output=True, text=True, **self.common)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        return done.stdout

    def start(self, *command, **options):
        """Starts one of PostgreSQL's programs as its user, in a process group of its own."""
        given = {"stdout": subprocess.DEVNULL, **self.common, **options}
        return subprocess.Popen(command, start_new_session=True, **given)

    def sql(self, text):
        """The answer to a statement."""
        return self.run("psql", "-qtA", "-v", "ON_ERROR_STOP=1", "-c", text).strip()

    def session(self):
        """A session that stays open; statements go to its `stdin`. Returns the client and the pid of the server's process for it."""
        client = self.start("psql", "-qtA", "-v", "ON_ERROR_STOP=1", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.sessions.append(client)
        client.stdin.write("SELECT pg_backend_pid();\n")
        client.stdin.flush()
        return client, int(client.stdout.readline())

    def stop(self):
        """Ends sessions and server in its "immediate" way, and removes the folder."""
        for client in self.sessions:
            client.kill()
            client.wait()
        if self.server is not None:
            # Each of its processes is a process group of its own, and ends when the first one does.
            self.server.send_signal(signal.SIGQUIT)
            try:
                self.server.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()
        subprocess.run(["rm", "-rf", self.folder], check=True)
