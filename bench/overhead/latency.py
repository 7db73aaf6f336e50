"""What monitoring does to the slowest requests of a redis.

One server and one client (bench/lru's ycsb_client, Zipf-distributed keys) serve all runs, side by side: in each round every way to
monitor watches the server for the same time, in turns, so that a drift of the machine hits all alike. Single quantiles scatter
widely; what counts are medians of ratios to the run alone in the same round.
"""

import json
import os
import signal
import statistics
import subprocess
import sys

from redis_server import RedisServer

SETTLE_S = 2.0  # for a monitor to get over its start
QUANTILES = ("p50_us", "p99_us", "p999_us")


class Store:
    """A redis with records, and a client that asks for them."""

    def __init__(self, binaries, keys, work):
        self.server = self.client = None
        try:
            self.server = RedisServer(work, "--appendonly", "no", seconds=20)
            self.client = subprocess.Popen(
                [binaries["ycsb_client"], self.server.socket, str(keys), "zipfian"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            if self.client.stdout.readline() != "ready\n":
                raise RuntimeError("the client could not store its records")
        except BaseException:
            self.close()
            raise

    def run(self, seconds):
        """Asks for so long; returns what the client measured."""
        self.client.stdin.write(f"run {seconds}\n")
        self.client.stdin.flush()
        line = self.client.stdout.readline()
        if not line:
            raise RuntimeError("the client ended")
        return json.loads(line)

    def close(self):
        """Ends both."""
        if self.client is not None and self.client.poll() is None:
            self.client.kill()
            self.client.wait()
        if self.server is not None:
            self.server.stop(signal.SIGKILL)


def _end(watcher):
    if watcher is None or watcher.poll() is not None:
        return
    watcher.send_signal(signal.SIGINT)
    try:
        watcher.wait(timeout=10)
    except subprocess.TimeoutExpired:
        watcher.kill()
        watcher.wait()


def _run_once(store, command, seconds, work):
    watcher = None
    try:
        if command is not None:
            filled = [a.format(pid=store.server.pid, record=os.path.join(work, "latency.iso")) for a in command]
            watcher = subprocess.Popen(filled, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)  # fmt: skip
        store.run(SETTLE_S)
        if watcher is not None and watcher.poll() is not None:
            raise RuntimeError(f"the monitor ended at once: {' '.join(filled)}")
        return store.run(seconds)
    finally:
        _end(watcher)


def measure(commands, binaries, options, work):
    """Runs all of `commands` (name -> command line with {pid} and {record}, None: nobody watches) in each round."""
    seconds = max(options.seconds, 4.0)
    runs = {name: [] for name in commands}
    store = Store(binaries, options.keys, work)
    try:
        store.run(SETTLE_S)
        for number in range(options.rounds):
            names = list(commands)
            names = names[number % len(names) :] + names[: number % len(names)]
            for name in names:
                print(f"\rlatency: round {number + 1} of {options.rounds}, {name:30}", end="", file=sys.stderr)
                runs[name].append(_run_once(store, commands[name], seconds, work))
        print(file=sys.stderr)
    finally:
        store.close()
    return runs


def show(runs, options):
    """Prints medians of each quantile, and of its ratio to the run alone in the same round."""
    alone = runs["alone"]
    print(f"\nlatency of a redis with {options.keys} records, Zipf-distributed requests one at a time; "
          f"medians of {options.rounds} rounds")
    print(f"{'':26}{'operations/s':>14}" + "".join(f"{name.removesuffix('_us'):>10}{'x alone':>9}" for name in QUANTILES)
          + f"{'(p999: lowest to highest)':>28}")
    for name, rows in runs.items():
        line = f"{name:26}{statistics.median(r['operations'] / r['seconds'] for r in rows):>14.0f}"
        for quantile in QUANTILES:
            ratios = [row[quantile] / base[quantile] for row, base in zip(rows, alone)]
            line += f"{statistics.median(r[quantile] for r in rows):>7.0f} us{statistics.median(ratios):>9.2f}"
        print(line + f"{f'{min(ratios):.2f} to {max(ratios):.2f}':>28}")
