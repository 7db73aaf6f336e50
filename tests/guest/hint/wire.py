"""The protocol of free page hinting, written from its description and not from the code (crates/hint/src/protocol)."""

import struct
import zlib

MAGIC, FORM = b"IsoH", 1
GREET, HELLO, WELCOME, REPORT, ACK, PING, PONG, STAT, BYE, ERROR = range(1, 11)
DROPPED, MISALIGNED, OUTSIDE, OVERLAPPING, FAILED, NOT_NOW = range(6)


def frame(kind, payload):
    head = MAGIC + struct.pack("<BBH", FORM, kind, len(payload))
    head += struct.pack("<I", zlib.crc32(head))
    return head + payload + struct.pack("<I", zlib.crc32(head + payload))


def greet(host):
    return frame(GREET, struct.pack("<HQ", 1, host))


def welcome(session, token, ranges=1024, batches=1, rate=0):
    return frame(WELCOME, struct.pack("<QQHHQ", session, token, ranges, batches, rate))


def ack(token, batch, verdicts, wait_ms=0):
    return frame(ACK, struct.pack("<QQIH", token, batch, wait_ms, len(verdicts)) + bytes(verdicts))


def session_of_hello(payload):
    return struct.unpack_from("<HQ", payload)[1]


def ram_of_hello(payload):
    """(start, end) of each area of RAM."""
    at = 2 + 8 + 16
    (key,) = struct.unpack_from("<H", payload, at)
    at += 2 + key + 4 + 8
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


def split(data):
    """The frames at the beginning of `data` as (kind, payload), and what is left. Garbage raises ValueError."""
    found = []
    while len(data) >= 12:
        if data[:4] != MAGIC or zlib.crc32(data[:8]) != struct.unpack_from("<I", data, 8)[0]:
            raise ValueError(f"no frame begins with {data[:12]!r}")
        kind, length = data[5], struct.unpack_from("<H", data, 6)[0]
        if len(data) < 16 + length:
            break
        if zlib.crc32(data[: 12 + length]) != struct.unpack_from("<I", data, 12 + length)[0]:
            raise ValueError("a frame is damaged")
        found.append((kind, data[12 : 12 + length]))
        data = data[16 + length :]
    return found, data
