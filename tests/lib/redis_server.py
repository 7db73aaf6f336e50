"""A redis of our own, reached through a Unix socket in its folder."""

import signal
import subprocess

from processes import start, stop, wait_for


class RedisServer:
    """A server without a port and without snapshots, from the time that it answers until `stop`.

    `options`: further ones of redis-server. `seconds`: how long it may take until it answers. `popen`: as for `subprocess.Popen`.
    """

    def __init__(self, folder, *options, seconds=60, **popen):
        self.folder, self.socket = folder, f"{folder}/redis.socket"
        command = ["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", folder, "--save", "", *options]
        self._process = start(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **popen)
        try:
            wait_for("redis answers", self._answers, seconds)
        except BaseException:
            self.stop(signal.SIGKILL)
            raise

    def _answers(self):
        if self._process.poll() is not None:
            raise RuntimeError(f"redis-server ended with status {self._process.returncode} before it answered")
        return self.cli("ping") == "PONG\n"

    @property
    def pid(self):
        """Its only process."""
        return self._process.pid

    def cli(self, *arguments, **options):
        """What redis-cli says with these arguments, and these options of `subprocess.run`."""
        command = ["redis-cli", "-s", self.socket, *arguments]
        return subprocess.run(command, capture_output=True, text=True, **options).stdout

    def fill(self, keys):
        """Stores `key:0` and so on, so many, with values of 1 KB."""
        self.cli("--pipe", input="".join(f"SET key:{k} {'x' * 1000}\r\n" for k in range(keys)))

    def start_client(self, keys, pause):
        """Starts a client that asks for the keys of these numbers over and over, with a pause of so many seconds between two rounds.
        End it with `processes.stop`."""
        questions = f"{self.folder}/questions"
        with open(questions, "w") as f:
            f.writelines(f"GET key:{k}\n" for k in keys)
        loop = f'while :; do cat "$1" || exit; sleep {pause}; done | redis-cli -s "$2" >/dev/null 2>&1'
        return start(["sh", "-c", loop, "sh", questions, self.socket], stderr=subprocess.DEVNULL)

    def stop(self, how=signal.SIGTERM):
        """Ends it by this signal."""
        stop(self._process, how)
