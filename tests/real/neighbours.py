"""Real programs that nobody tuned, each with memory of which it uses a small, scattered part: beside others, for who watches all."""

import os
import subprocess
import tempfile

from harness import MIB
from postgres_server import PostgresServer
from processes import start, stop, wait_for

# A map of objects of 1 KB; some keys, chosen at random, are looked up and written to every 200 ms.
JAVA = """
import java.util.HashMap;
import java.util.Random;

public class Cache {
    public static void main(String[] arguments) throws Exception {
        int keys = Integer.parseInt(arguments[0]), asked = Integer.parseInt(arguments[1]);
        HashMap<Integer, byte[]> values = new HashMap<>();
        for (int i = 0; i < keys; i++) values.put(i, new byte[1000]);
        int[] some = new Random(1).ints(asked, 0, keys).toArray();
        System.out.println("ready");
        while (true) {
            for (int key : some) values.get(key)[0]++;
            Thread.sleep(200);
        }
    }
}
"""
COMPILER = "/usr/share/java/ecj.jar"


class Jvm:
    """A JVM with its own defaults for all but the heap's limit."""

    name = "JVM"

    def __init__(self, keys=150_000, asked=5_000):
        self.process = None
        with tempfile.TemporaryDirectory(prefix="isotherm-java-") as folder:
            source = os.path.join(folder, "Cache.java")
            with open(source, "w") as f:
                f.write(JAVA)
            subprocess.run(["java", "-cp", COMPILER, "org.eclipse.jdt.internal.compiler.batch.Main", "-11", "-d", folder, source], check=True)
            self.process = start(["java", "-Xmx512m", "-cp", folder, "Cache", str(keys), str(asked)],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)  # fmt: skip
            if self.process.stdout.readline() != "ready\n":
                self.stop()
                raise RuntimeError("the JVM did not start")

    @property
    def pid(self):
        """The process that is watched."""
        return self.process.pid

    @property
    def pids(self):
        """All of its processes."""
        return [self.pid]

    def stop(self):
        """Ends it."""
        stop(self.process)


class PostgresSession:
    """A PostgreSQL whose session has read a table into shared buffers, and looks up rows of its first tenth over and over."""

    name = "PostgreSQL"
    SCALE, USED = 8, 80_000

    def __init__(self):
        # Without parallel workers, so that it is the session that maps what it reads. Without autovacuum, whose workers read other pages of
        # the table once a minute: the kernel then calls them referenced (smaps) for the session, too, which did not touch them.
        self.server = PostgresServer("shared_buffers=192MB", "max_parallel_workers_per_gather=0", "autovacuum=off")
        try:
            self.server.run("pgbench", "-i", "-q", "-s", str(self.SCALE))
            session, self.pid = self.server.session()
            session.stdin.write(
                "CREATE EXTENSION pg_prewarm;\nSELECT pg_prewarm('pgbench_accounts') + pg_prewarm('pgbench_accounts_pkey');\n"
                "DO $$ DECLARE key int; BEGIN LOOP FOR i IN 1..40 LOOP"
                f" key := 1 + random() * {self.USED}; PERFORM abalance FROM pgbench_accounts WHERE aid = key;"
                " END LOOP; PERFORM pg_sleep(0.02); END LOOP; END $$;\n"
            )
            session.stdin.flush()
            session.stdout.readline()
            wait_for("the session has mapped the table", lambda: resident(self.pid) > 100 * MIB)
        except BaseException:
            self.stop()
            raise

    @property
    def pids(self):
        """All of its processes."""
        return [self.server.pid, *self.server.children()]

    def stop(self):
        """Ends it."""
        self.server.stop()


def resident(pid):
    """Resident memory of a process, bytes."""
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
