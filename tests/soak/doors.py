"""Clients that nobody wants: they connect, say little or nonsense, and stay."""

import os
import random
import socket
import threading
import time

CLIENTS = 40


class Doors:
    """Slow and senseless clients at unix sockets and TCP ports, until the end."""

    def __init__(self, unix, tcp):
        self.addresses = [(socket.AF_UNIX, path) for path in unix] + [(socket.AF_INET, ("127.0.0.1", port)) for port in tcp]
        self.stop, self.calls = threading.Event(), 0
        self.threads = [threading.Thread(target=self._crowd, args=address, daemon=True) for address in self.addresses]
        for thread in self.threads:
            thread.start()

    def _crowd(self, family, address):
        crowd = []
        while not self.stop.is_set():
            if len(crowd) < CLIENTS:
                try:
                    client = socket.socket(family)
                    client.setblocking(False)
                    client.connect_ex(address)
                    crowd.append(client)
                    self.calls += 1
                except OSError:
                    pass
            for client in random.sample(crowd, min(len(crowd), 5)):
                try:
                    client.send(random.choice([b"G", b"GET /metrics HTTP/1.1\r\n", b"IsoH\x01", os.urandom(9), b"{"]))
                except BlockingIOError:
                    pass
                except OSError:
                    client.close()
                    crowd.remove(client)
            time.sleep(0.05)
        for client in crowd:
            client.close()

    def close(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()
