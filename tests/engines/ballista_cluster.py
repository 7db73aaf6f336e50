"""A Ballista scheduler and executors as processes of this machine, and SQL on them."""

import json
import os
import shutil
import subprocess
import tempfile

from ports import free_port, wait_until_served

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
# Where `make test-engines` installs them.
PROGRAMS = os.environ.get("ISOTHERM_BALLISTA", os.path.join(ROOT, "out/engines/ballista/bin"))


def program(name):
    path = os.path.join(PROGRAMS, name)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{name} is not installed (make test-engines installs it)")
    return path


class Cluster:
    """Answers queries while it is entered."""

    def __init__(self, executors):
        self.executors = executors
        self.processes = []

    def __enter__(self):
        self.folder = tempfile.mkdtemp()
        self.client = program("ballista-cli")
        self.port = free_port()
        try:
            self.start("ballista-scheduler", "--bind-host", "127.0.0.1", "--bind-port", str(self.port), port=self.port)
            for number in range(self.executors):
                port, work = free_port(), os.path.join(self.folder, f"executor-{number}")
                os.mkdir(work)
                self.start("ballista-executor", "--bind-host", "127.0.0.1", "--bind-port", str(port), "--bind-grpc-port", str(free_port()),
                           "--scheduler-host", "127.0.0.1", "--scheduler-port", str(self.port), "--work-dir", work,
                           "--concurrent-tasks", "1", port=port)
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self, name, *args, port):
        log = open(os.path.join(self.folder, f"{name}-{port}.log"), "wb")
        process = subprocess.Popen([program(name), *args], stdout=log, stderr=log, cwd=self.folder)
        self.processes.append(process)
        try:
            wait_until_served(name, port, process)
        except RuntimeError as error:
            with open(log.name, encoding="utf-8", errors="replace") as said:
                raise RuntimeError(f"{error}: {said.read()[-2000:]}") from None

    def query(self, setup, text):
        """The answer of the last statement, a dict for each row."""
        path = os.path.join(self.folder, "query.sql")
        with open(path, "w", encoding="utf-8") as file:
            file.write(";\n".join([*setup, text]) + ";\n")
        done = subprocess.run([self.client, "--host", "127.0.0.1", "--port", str(self.port), "--format", "nd-json", "--quiet", "-f", path],
                              capture_output=True, text=True, timeout=180, cwd=self.folder)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or not lines:
            raise RuntimeError(f"ballista-cli: {done.returncode} {done.stderr[-2000:]} {done.stdout[-2000:]}")
        return [json.loads(line) for line in lines]

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
