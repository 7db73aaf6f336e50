"""A host that does what it is asked to do, also what no good host does: it waits, forgets, repeats itself, and goes away.

It drops memory as soon as it may by the protocol, and in the worst moment that the protocol allows.
"""

import ctypes
import os
import random
import socket
import threading
import time

import wire

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
PUNCH_HOLE_KEEP_SIZE = 3
BLOCK = 2 << 20


def punch(fd, start, end):
    if _libc.fallocate(fd, PUNCH_HOLE_KEEP_SIZE, start, end - start) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


class FakeHost:
    """Serves one machine in a thread. `manner` may be changed at any time."""

    def __init__(self, machine):
        self.machine = machine
        self.lock = threading.Condition()
        # What happens to the next reports.
        self.hold = False  # keep them, neither dropping nor answering
        self.lose_ack = 0.0  # probability that an answer is lost, after dropping
        self.lose_report = 0.0  # probability that a report is lost
        self.double = 0.0  # probability that an answer, a Welcome or a Greet comes twice
        self.answer_first = False  # unsound: the answer comes at once, and what it was about is dropped by drop_overdue
        # What was seen.
        self.reports = self.batches = self.dropped = self.repeated = self.stale = self.hellos = 0
        self.bad = []
        self.held = []
        self.overdue = []
        self._thread = self._socket = None
        self._stop = False
        self._random = random.Random(7)

    def __enter__(self):
        self.connect()
        return self

    def __exit__(self, *_):
        self.disconnect()

    def connect(self):
        """As a host that was just started: nothing of before is known."""
        self._stop = False
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(self.machine.socket)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def disconnect(self):
        """What was held is never acted upon."""
        if self._thread is None:
            return
        self._stop = True
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        self._thread = None
        with self.lock:
            self.held.clear()

    def let_go(self):
        """Acts upon what was held, and answers."""
        with self.lock:
            self.hold = False
            held, self.held = self.held, []
            for report in held:
                self._act(*report)

    def wait_for(self, condition, timeout_s, what):
        with self.lock:
            if not self.lock.wait_for(condition, timeout_s):
                raise TimeoutError(f"host of {self.machine.name}: {what}: not within {timeout_s} s")

    def _chance(self, probability):
        return self._random.random() < probability

    def _send(self, data):
        try:
            self._socket.sendall(data)
            if self._chance(self.double):
                self._socket.sendall(data)
        except OSError:
            pass

    def _serve(self):
        number = self._random.getrandbits(63)
        self._token = self._last = self._answer = None
        self._ram = []
        greeted, data = 0, b""
        self._socket.settimeout(0.1)
        while not self._stop:
            if self._token is None and time.monotonic() >= greeted + 1:
                greeted = time.monotonic()
                self._send(wire.greet(number))
            try:
                more = self._socket.recv(65536)
                if not more:
                    return
            except TimeoutError:
                continue
            except OSError:
                return
            data += more
            # A port may begin in the middle of something.
            if self._token is None and not data.startswith(wire.MAGIC[: len(data)]):
                at = data.find(wire.MAGIC)
                data = data[at:] if at >= 0 else b""
            try:
                frames, data = wire.split(data)
            except ValueError as error:
                if self._token is None:
                    data = data[1:]
                else:
                    self.bad.append(str(error))
                    data = b""
                continue
            for kind, payload in frames:
                with self.lock:
                    self._on(kind, payload)
                    self.lock.notify_all()

    def _on(self, kind, payload):
        if kind == wire.HELLO:
            self.hellos += 1
            self._token, self._last, self._answer = self._random.getrandbits(63), 0, None
            self._ram = wire.ram_of_hello(payload)
            # By the promise of a Welcome nothing that came before is acted upon.
            self.held.clear()
            self._send(wire.welcome(wire.session_of_hello(payload), self._token))
        elif kind == wire.PING:
            self._send(wire.frame(wire.PONG, payload))
        elif kind == wire.REPORT:
            self.reports += 1
            token, batch, ranges = wire.report(payload)
            if self._chance(self.lose_report):
                return
            if token != self._token:
                self.stale += 1
            elif batch == self._last:
                self.repeated += 1
                if self._answer is not None and not self._chance(self.lose_ack):
                    self._send(self._answer)
            elif batch < self._last:
                self.bad.append(f"batch {batch} after {self._last}")
            else:
                self._last, self._answer = batch, None
                self.batches += 1
                if self.hold:
                    self.held.append((token, batch, ranges))
                else:
                    self._act(token, batch, ranges)

    def drop_overdue(self, one_in):
        """Drops one in so many blocks of what was answered for: the guest has had it back since. Bytes. No sound host does that."""
        with self.lock:
            blocks = [at for start, end in self.overdue for at in range(start, end, BLOCK)][::one_in]
            self.overdue = []
            for at in blocks:
                self._drop(at, at + BLOCK)
        return len(blocks) * BLOCK

    def _drop(self, start, end):
        # All of these guests are smaller than 2 GiB: addresses are offsets.
        punch(self.machine.memory(), start, end)
        self.dropped += end - start

    def _act(self, token, batch, ranges):
        verdicts = []
        for start, end in ranges:
            if start % BLOCK or end % BLOCK or not any(a <= start and end <= b for a, b in self._ram):
                self.bad.append(f"range {start:#x}-{end:#x}")
                verdicts.append(wire.OUTSIDE)
                continue
            if self.answer_first:
                self.overdue.append((start, end))
            else:
                self._drop(start, end)
            verdicts.append(wire.DROPPED)
        if token == self._token and batch == self._last:
            self._answer = wire.ack(token, batch, verdicts)
            if not self._chance(self.lose_ack):
                self._send(self._answer)
