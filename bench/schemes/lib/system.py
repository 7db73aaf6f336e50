"""What the benchmarks set up on the machine, each as a context that takes it down again."""

import contextlib
import os
import signal
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tests/lib"))

import unwind

MEMORY = "/sys/fs/cgroup/memory"


def write(path, text):
    """Writes a file of the kernel's."""
    with open(path, "w") as f:
        f.write(text)


def read(path):
    """Reads a file of the kernel's."""
    with open(path) as f:
        return f.read()


def prepare(name):
    """Refuses to run without root; makes Ctrl-C and kill unwind through the clean-up."""
    if os.geteuid() != 0:
        sys.exit(f"{name}: needs root, because it sets up swap and manages the memory of other processes")
    unwind.on_signals()


@contextlib.contextmanager
def undisturbed():
    """Lets a clean-up finish although the user presses Ctrl-C again."""
    caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in caught]
    try:
        yield
    finally:
        for number, handler in zip(caught, before):
            signal.signal(number, handler)


class Restored:
    """Files of the kernel's whose values are written back at the end, whatever that is: by a process of its own, which waits for this one to
    close a pipe or to be killed."""

    # What cannot be written does not keep the others from it.
    SCRIPT = 'cat; status=0; while [ $# -gt 0 ]; do echo "$2" >"$1" || status=1; shift 2; done; exit $status'

    def __init__(self, values):
        """`values`: what is written, by path."""
        words = [word for path, value in values.items() for word in (path, value)]
        # Out of reach of what is sent to our group.
        self.helper = subprocess.Popen(["sh", "-c", self.SCRIPT, "sh", *words], stdin=subprocess.PIPE, start_new_session=True)

    def restore(self):
        """Has them written back now."""
        with undisturbed():
            self.helper.stdin.close()
            if self.helper.wait() != 0:
                raise OSError(f"not all of {self.helper.args[4::2]} could be restored")


class Swap:
    """Compressed swap on a zram device of its own, with the highest priority."""

    def __init__(self, mib):
        self.mib = mib
        self.number = None
        self.on = False

    def __enter__(self):
        if not os.path.exists("/sys/class/zram-control/hot_add"):
            subprocess.run(["modprobe", "zram"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if not os.path.exists("/sys/class/zram-control/hot_add"):
            sys.exit("this kernel has no zram, and the benchmark needs it to page out to")
        try:
            self.number = int(read("/sys/class/zram-control/hot_add"))
            write(f"/sys/block/zram{self.number}/disksize", f"{self.mib}M")
            subprocess.run(["mkswap", self.device], check=True, stdout=subprocess.DEVNULL)
            subprocess.run(["swapon", "-p", "32767", self.device], check=True)
            self.on = True
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        with undisturbed():
            if self.on:
                subprocess.run(["swapoff", self.device], check=True)
                self.on = False
            if self.number is not None:
                write("/sys/class/zram-control/hot_remove", str(self.number))
                self.number = None

    @property
    def device(self):
        """Its device file."""
        return f"/dev/zram{self.number}"

    def used(self):
        """Bytes of memory that it takes at present, compressed data and overhead."""
        return int(read(f"/sys/block/zram{self.number}/mm_stat").split()[2])

    def describe(self):
        """Its compressor, for the table's head."""
        algorithms = read(f"/sys/block/zram{self.number}/comp_algorithm").split()
        return next(a.strip("[]") for a in algorithms if a.startswith("["))


class Group:
    """A control group of version 2 for the programs under test, for their own memory pressure; nothing where there is none."""

    def __init__(self):
        self.path = None

    def __enter__(self):
        for root in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
            if os.path.exists(f"{root}/cgroup.procs") and os.path.exists(f"{root}/cgroup.controllers"):
                path = f"{root}/isotherm-bench-{os.getpid()}"
                os.mkdir(path)
                self.path = path
                if not os.path.exists(f"{path}/memory.pressure"):
                    self.__exit__()
                break
        return self

    def __exit__(self, *_):
        if self.path is not None:
            os.rmdir(self.path)
            self.path = None

    def add(self, pids):
        """Moves processes into it."""
        for pid in pids if self.path else ():
            with contextlib.suppress(ProcessLookupError, OSError):
                write(f"{self.path}/cgroup.procs", str(pid))

    def pressure(self):
        """Microseconds that some of its tasks waited for memory; of the whole machine where there is no group; None: not reported."""
        with contextlib.suppress(OSError):
            first = read(f"{self.path}/memory.pressure" if self.path else "/proc/pressure/memory").splitlines()[0]
            return int(first.rpartition("total=")[2])
        return None


class HugePages:
    """The system's setting of transparent huge pages, restored at the end, even after kill -9."""

    FILES = [f"/sys/kernel/mm/transparent_hugepage/{name}" for name in ("enabled", "defrag", "khugepaged/defrag")]

    def __enter__(self):
        if not os.path.exists(self.FILES[0]):
            sys.exit("this kernel has no transparent huge pages")
        self.restored = Restored({path: self.chosen(read(path)) for path in self.FILES if os.path.exists(path)})
        return self

    def __exit__(self, *_):
        self.restored.restore()

    @staticmethod
    def chosen(text):
        """The value in brackets, or the only one."""
        return text.partition("[")[2].partition("]")[0] or text.strip()

    def set(self, enabled):
        """Sets when huge pages are used: always, madvise or never."""
        write(self.FILES[0], enabled)


class MemoryGroup:
    """A control group of version 1 with a memory limit, for the benchmark `name`."""

    def __init__(self, name):
        self.name = name
        self.path = f"{MEMORY}/isotherm-{name}-{os.getpid()}"

    def __enter__(self):
        if not os.path.exists(f"{MEMORY}/memory.limit_in_bytes"):
            sys.exit(f"{self.name}: no v1 memory controller at {MEMORY}; mount one")
        os.mkdir(self.path)
        return self

    def __exit__(self, *_):
        with undisturbed():
            for _ in range(200):
                try:
                    os.rmdir(self.path)
                    return
                except OSError:
                    time.sleep(0.05)
            print(f"{self.name}: {self.path} could not be removed", file=sys.stderr)

    @contextlib.contextmanager
    def begetting(self):
        """Whatever is started meanwhile is in the group, with all its memory."""
        lines = (line.rstrip("\n").split(":", 2) for line in open("/proc/self/cgroup"))
        before = next(path for _, controllers, path in lines if "memory" in controllers.split(","))
        write(f"{self.path}/cgroup.procs", str(os.getpid()))
        try:
            yield
        finally:
            write(f"{MEMORY}{before}/cgroup.procs", str(os.getpid()))

    def used(self):
        """Bytes charged."""
        return int(read(f"{self.path}/memory.usage_in_bytes"))

    def needed(self):
        """Bytes charged that cannot just be dropped: private and shared memory, not the cache of files."""
        figures = dict(line.split() for line in read(f"{self.path}/memory.stat").splitlines())
        return int(figures["rss"]) + int(figures["shmem"])

    def limit_hits(self):
        """How often the limit was reached, so that whoever asked for memory had to reclaim."""
        return int(read(f"{self.path}/memory.failcnt"))

    def unlimited(self):
        """No limit."""
        write(f"{self.path}/memory.limit_in_bytes", "-1")

    def limit(self, size):
        """Sets the limit; the kernel reclaims what is above it, in several attempts."""
        for part in (0.9, 0.8, 0.7, 0.6, 0.5):
            goal = max(int(part * 2 * size), size)
            for attempt in range(30):
                try:
                    write(f"{self.path}/memory.limit_in_bytes", str(goal))
                    break
                except OSError:
                    if attempt == 29:
                        raise
                    time.sleep(0.2)
