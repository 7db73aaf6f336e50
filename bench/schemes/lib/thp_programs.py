"""Programs that nobody tuned for huge pages, each watched from its first page to its last.

`length`: 1 for about 10 s of work, 6 for about a minute; the memory stays the same.
"""

import os
import random
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../../../tests/lib"))

from postgres_server import PostgresServer
from processes import start, stop
from programs import START_S
from redis_server import RedisServer

MATRIX = """
import sys
import numpy
size, rounds = 7000, int(sys.argv[1])
a = numpy.random.default_rng(1).random((size, size))
for _ in range(rounds):
    b = numpy.ascontiguousarray(a.T)
    b = numpy.cumsum(b, axis=0)
    b /= b[-1]
    a = numpy.fft.irfft(numpy.fft.rfft(b, axis=0), size, axis=0)
sys.exit(0 if abs(a[-1].sum() / size - 1) < 1e-6 else 1)
"""

JAVA = """
import java.util.HashMap;
import java.util.Random;

public class Orders {
    static final class Order {
        final int customer;
        long cents;
        final Order previous;
        Order(int customer, long cents, Order previous) { this.customer = customer; this.cents = cents; this.previous = previous; }
    }

    public static void main(String[] arguments) {
        int customers = 1000000, orders = 8000000, questions = Integer.parseInt(arguments[0]);
        HashMap<Integer, Order> last = new HashMap<>();
        Random random = new Random(1);
        for (int i = 0; i < orders; i++) {
            int customer = random.nextInt(customers);
            last.put(customer, new Order(customer, random.nextInt(10000), last.get(customer)));
        }
        for (int i = 0; i < questions; i++) {
            int customer = random.nextInt(customers);
            for (Order o = last.get(customer); o != null; o = o.previous) {
                o.cents++;
                if (o.customer != customer) System.exit(1);
            }
        }
    }
}
"""
JAVA_COMPILER = "/usr/share/java/ecj.jar"


class Command:
    """A command that runs to its end, and whose status says whether its data was right."""

    many = False
    ends = True

    def __init__(self, *command, **environment):
        self.command, self.environment = command, {**os.environ, "LC_ALL": "C", **environment}
        self.process = None

    def __enter__(self):
        # It waits for the start as a shell that it then replaces: who watches the one watches the other.
        gate = ["sh", "-c", 'read line; exec "$@"', "sh", *self.command]
        self.process = start(gate, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=self.environment)
        self.pid = self.process.pid
        return self

    def work(self):
        """Lets it run; returns its seconds."""
        begin = os.times().elapsed
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        # It stays a zombie, whose CPU time can be read.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        return os.times().elapsed - begin

    def check(self):
        """Its status."""
        status = self.process.wait(timeout=START_S)
        if status != 0:
            raise RuntimeError(f"{' '.join(self.command)} ended with status {status}")

    def __exit__(self, *_):
        stop(self.process, signal.SIGKILL)


class Store:
    """A redis that is filled, of which every second key is deleted at random, and whose other keys are asked for."""

    many = ends = False
    KEYS = 1_000_000

    def __init__(self, folder, length):
        self.folder = folder
        self.files = [f"{folder}/fill", f"{folder}/delete"] + [f"{folder}/ask"] * (4 * length)
        if not os.path.exists(self.files[0]):
            keys = list(range(self.KEYS))
            random.Random(1).shuffle(keys)
            deleted, kept = keys[: self.KEYS // 2], keys[self.KEYS // 2 :]
            self._write(self.files[0], (f"SET key:{k} {'x' * 400}\r\n" for k in range(self.KEYS)))
            self._write(self.files[1], (f"DEL key:{k}\r\n" for k in deleted))
            self._write(self.files[2], (f"GETRANGE key:{k} 390 399\r\n" for k in kept))

    @staticmethod
    def _write(path, lines):
        with open(path, "w") as f:
            f.writelines(lines)

    def __enter__(self):
        # It switches huge pages off for itself unless asked not to.
        self.server = RedisServer(self.folder, "--disable-thp", "no", seconds=START_S)
        self.pid = self.server.pid
        return self

    def work(self):
        """Fills, deletes, asks; returns the seconds."""
        begin = os.times().elapsed
        for file in self.files:
            with open(file) as f:
                said = self.server.cli("--pipe", stdin=f)
            if "errors: 0" not in said:
                raise RuntimeError(f"redis: {said}")
        return os.times().elapsed - begin

    def check(self):
        """How many keys there are."""
        if self.server.cli("dbsize").strip() != str(self.KEYS // 2):
            raise RuntimeError("redis has lost keys")

    def __exit__(self, *_):
        self.server.stop(signal.SIGKILL)


class PostgresJoin:
    """A session of PostgreSQL that joins and sorts tables in its own memory."""

    many = ends = False

    def __init__(self, length):
        self.length, self.server = 10 * length, None

    def __enter__(self):
        self.server = PostgresServer("work_mem=2GB", "max_parallel_workers_per_gather=0", "jit=off")
        try:
            self.session, self.pid = self.server.session()
            return self
        except BaseException:
            self.__exit__()
            raise

    def work(self):
        """Asks; returns the seconds."""
        begin = os.times().elapsed
        self.answers = []
        for _ in range(self.length):
            self.session.stdin.write(
                "SELECT count(*) FROM (SELECT a.i, row_number() OVER (ORDER BY md5(a.i::text)) FROM generate_series(1, 1000000) a(i)"
                " JOIN generate_series(1, 2000000) b(i) ON a.i = b.i) joined;\n"
            )
            self.session.stdin.flush()
            self.answers.append(self.session.stdout.readline())
        return os.times().elapsed - begin

    def check(self):
        """What it answered."""
        if set(self.answers) != {"1000000\n"}:
            raise RuntimeError(f"PostgreSQL answered {self.answers}")

    def __exit__(self, *_):
        self.server.stop()


def lines(folder):
    """A file of numbers to sort."""
    path = f"{folder}/lines"
    if not os.path.exists(path):
        numbers = random.Random(1)
        with open(path, "w") as f:
            f.writelines(f"{numbers.getrandbits(50)} {i}\n" for i in range(8_000_000))
    return path


def orders(folder):
    """Compiles the Java program; returns its folder."""
    if not os.path.exists(f"{folder}/Orders.class"):
        source = f"{folder}/Orders.java"
        with open(source, "w") as f:
            f.write(JAVA)
        compiler = ["java", "-cp", JAVA_COMPILER, "org.eclipse.jdt.internal.compiler.batch.Main", "-11"]
        subprocess.run([*compiler, "-d", folder, source], check=True)
    return folder


def programs(binaries, folder, length):
    """Name -> how to make one."""
    # A minute of sorting is a larger file; its buffer is what `sort` takes by itself.
    return {
        "sort": lambda: Command("sort", "-n", "--parallel=1", "-S", "4G", "-o", "/dev/null", *[lines(folder)] * (1 if length == 1 else 4)),
        "matrix": lambda: Command("/usr/bin/python3", "-c", MATRIX, str(4 * length), NUMPY_MADVISE_HUGEPAGE="0"),
        "graph": lambda: Command(binaries["page_rank"], "4000000", str(8 if length == 1 else 110)),
        "store": lambda: Store(folder, length),
        "JVM": lambda: Command("java", "-Xmx3g", "-cp", orders(folder), "Orders", str(4_000_000 * (1 if length == 1 else 8))),
        "PostgreSQL": lambda: PostgresJoin(length),
    }
