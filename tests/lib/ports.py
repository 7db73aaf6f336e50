"""Ports of this machine for the servers of a test."""

import socket
import time

READY_S = 60


def free_port():
    """A port that nobody listens at."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until_served(name, port, process):
    """Until the server listens; an error if it ends or takes too long."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} did not begin on port {port}") from None
            time.sleep(0.1)
