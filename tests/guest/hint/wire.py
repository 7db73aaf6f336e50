"""The protocol of free page hinting, written from its description and not from the code (crates/hint/src/protocol)."""

import hashlib
import hmac
import struct
import zlib

MAGIC, PLAIN, SEALED, VERSION = b"IsoH", 1, 2, 2
GREET, HELLO, WELCOME, REPORT, ACK, PING, PONG, STAT, BYE, ERROR, CHALLENGE, RESPONSE = range(1, 13)
DROPPED, MISALIGNED, OUTSIDE, OVERLAPPING, FAILED, NOT_NOW = range(6)


class Seals:
    """The seals of one direction of a connection, one after the other."""

    def __init__(self, key, label, host, guest):
        self.key, self.number = derived(key, label, host, guest), 0

    def next(self, content):
        seal = hmac.digest(self.key, struct.pack("<Q", self.number) + content, hashlib.sha256)[:16]
        self.number += 1
        return seal


def derived(key, label, host, guest):
    """A key for one purpose in one connection; `host`, `guest`: what each has contributed."""
    return hmac.digest(key, label + b"\0" + struct.pack("<H", VERSION) + host + guest, hashlib.sha256)


def proof(key, host, guest):
    return derived(key, b"guest proves", host, guest)[:16]


def of_guest(key, host, guest):
    return Seals(key, b"guest sends", host, guest)


def of_host(key, host, guest):
    return Seals(key, b"host sends", host, guest)


def frame(kind, payload, seals=None):
    head = MAGIC + struct.pack("<BBH", SEALED if seals else PLAIN, kind, len(payload))
    head += struct.pack("<I", zlib.crc32(head))
    return head + payload + (seals.next(head + payload) if seals else struct.pack("<I", zlib.crc32(head + payload)))


def greet(host):
    return frame(GREET, struct.pack("<HQ", VERSION, host))


def nonce(payload):
    """What the sender of a Challenge or a Response has contributed."""
    version, found = struct.unpack_from("<H16s", payload)
    if version != VERSION:
        raise ValueError(f"version {version}")
    return found


def welcome(session, token, ranges=1024, batches=1, rate=0):
    return frame(WELCOME, struct.pack("<QQHHQ", session, token, ranges, batches, rate))


def ack(token, batch, verdicts, wait_ms=0):
    return frame(ACK, struct.pack("<QQIH", token, batch, wait_ms, len(verdicts)) + bytes(verdicts))


def session_of_hello(payload):
    return struct.unpack_from("<HQ", payload)[1]


def ram_of_hello(payload):
    """(start, end) of each area of RAM."""
    at = 2 + 8 + 16
    (reserved,) = struct.unpack_from("<H", payload, at)
    if reserved != 0:
        raise ValueError("a Hello says a key")
    at += 2 + 4 + 8
    (areas,) = struct.unpack_from("<H", payload, at)
    at += 2
    found = []
    for _ in range(areas):
        kind, start, end = struct.unpack_from("<BQQ", payload, at)
        at += 17
        if kind == 0:
            found.append((start, end))
    return found


def report(payload):
    """Token, batch number, and the ranges as (start, end)."""
    token, batch, count = struct.unpack_from("<QQH", payload)
    return token, batch, [struct.unpack_from("<QQ", payload, 18 + 16 * i) for i in range(count)]


def whole(data):
    """How long the frame at the beginning of `data` is, and whether it is sealed; None while that cannot be known."""
    if len(data) < 12:
        return None
    if data[:4] != MAGIC or zlib.crc32(data[:8]) != struct.unpack_from("<I", data, 8)[0]:
        raise ValueError(f"no frame begins with {data[:12]!r}")
    sealed = data[4] == SEALED
    return 12 + struct.unpack_from("<H", data, 6)[0] + (16 if sealed else 4), sealed


def split(data, seals=None):
    """The frames at the beginning of `data` as (kind, payload), and what is left. Garbage raises ValueError, and so does
    what has not the next of the `seals`."""
    found = []
    while (reported := whole(data)) is not None and len(data) >= reported[0]:
        length, sealed = reported
        if sealed != (seals is not None):
            raise ValueError("a frame has a seal" if sealed else "a frame has no seal")
        end = length - (16 if sealed else 4)
        right = seals.next(data[:end]) if sealed else struct.pack("<I", zlib.crc32(data[:end]))
        if not hmac.compare_digest(right, data[end:length]):
            raise ValueError("the seal of a frame is wrong" if sealed else "a frame is damaged")
        found.append((data[5], data[12:end]))
        data = data[length:]
    return found, data
