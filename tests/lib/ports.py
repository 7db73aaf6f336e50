"""Ports of this machine for the servers of a test."""

import socket


def free_port():
    """A port that nobody listens at."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
