"""A line between an agent and its host on which somebody sits who reads, keeps, changes and sends what they like."""

import socket
import threading

import wire


class Line:
    """Takes calls at a port of its own and passes them on to the host's. `manner` is what happens to the guest's next report."""

    def __init__(self, host_port):
        self.host_port = host_port
        self.manner = None  # or "change", or "keep": end the guest's side and keep the report for later
        self.open = True
        # Of each call: what the guest sent, and what the host sent.
        self.calls = []
        self.kept = threading.Event()
        self._late = None
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._answer, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open = False
        self._door.close()

    def deliver(self):
        """What was kept reaches the host."""
        host, report = self._late
        host.sendall(report)

    def _answer(self):
        while True:
            try:
                guest = self._door.accept()[0]
            except OSError:
                return
            if not self.open:
                guest.close()
                continue
            try:
                host = socket.create_connection(("127.0.0.1", self.host_port))
            except OSError:
                guest.close()
                continue
            call = (bytearray(), bytearray())
            self.calls.append(call)
            threading.Thread(target=self._pass_on, args=(guest, host, call[0], True), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(host, guest, call[1], False), daemon=True).start()

    def _pass_on(self, source, sink, kept, of_guest):
        data = b""
        try:
            while more := source.recv(65536):
                data += more
                while (reported := wire.whole(data)) is not None and len(data) >= reported[0]:
                    frame, data = data[: reported[0]], data[reported[0] :]
                    if of_guest and frame[5] == wire.REPORT and self.manner:
                        manner, self.manner = self.manner, None
                        if manner == "keep":
                            self.open, self._late = False, (sink, frame)
                            source.shutdown(socket.SHUT_RDWR)
                            self.kept.set()
                            return
                        # The last byte of a range's end: 16 more TiB, say.
                        changed = bytearray(frame)
                        changed[-17] ^= 0x10
                        frame = bytes(changed)
                    kept.extend(frame)
                    sink.sendall(frame)
        except OSError:
            pass
        # Whoever kept a report keeps the host's side open.
        if self._late is None or sink is not self._late[0]:
            for end in (source, sink):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


def checked(call, key):
    """Reads what was said in a call by the description alone. The kinds of messages from the guest and from the host; what is
    not sealed right raises ValueError."""
    of_guest, of_host = bytes(call[0]), bytes(call[1])
    first = [data[: wire.whole(data)[0]] for data in (of_guest, of_host)]
    [(kind, response)], _ = wire.split(first[0])
    [(other, challenge)], _ = wire.split(first[1])
    if (kind, other) != (wire.RESPONSE, wire.CHALLENGE):
        raise ValueError(f"the first messages are of kinds {kind} and {other}")
    host, guest = wire.nonce(challenge), wire.nonce(response)
    if response[18:] != wire.proof(key, host, guest):
        raise ValueError("the proof is wrong")
    said, _ = wire.split(of_guest[len(first[0]) :], wire.of_guest(key, host, guest))
    answered, _ = wire.split(of_host[len(first[1]) :], wire.of_host(key, host, guest))
    return [kind for kind, _ in said], [kind for kind, _ in answered]
