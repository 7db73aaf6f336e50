"""Ports of this machine, and servers that are to listen on them."""

import socket
import time

READY_S = 60


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(name, port, process):
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
