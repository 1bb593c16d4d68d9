"""The bytes of a spool's segments: how messages are written, and found again after damage.

A **header** has the number of the segment, how many messages came before it, the spool's salt and
a checksum. A **record** begins with the salt, which is random and which no sender knows: what
somebody wrote into a message cannot pass for a record. It has checksums of its own head and of what
is in it, the number of the message, and its place among the messages that one sync made safe: all
before these were safe when it was written.

So whoever meets bytes that are no record looks for the salt, and goes on at the next record that is
whole; the numbers say how many messages are missing.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

MAGIC = b"catchsp2"
HEAD = struct.Struct("<8sIQ8sI")
"""Magic, segment, messages before it, salt, checksum of these."""
RECORD = struct.Struct("<8sIIQIIH")
"""Salt, checksum of what follows in the head, of the body; number, place in its sync, length of the
body, length of the topic, with which the body begins."""
SALT = 8

OLD = b"catchsp1"
"""How segments of earlier builds begin."""
_OLD_HEAD = struct.Struct("<8sQ")
_OLD_RECORD = struct.Struct("<IIH")
_AFTER_CHECK = SALT + 4


class SegmentHead(NamedTuple):
    """What a header says."""

    number: int
    before: int
    salt: bytes


class SpoolRecord(NamedTuple):
    """A message, and where it is."""

    at: int
    end: int
    number: int
    place: int
    """Messages before it that were made safe by the same sync."""
    topic: bytes
    payload: bytes


def header(number: int, before: int, salt: bytes) -> bytes:
    """The header of a segment."""
    rest = HEAD.pack(MAGIC, number, before, salt, 0)[:-4]
    return rest + zlib.crc32(rest).to_bytes(4, "little")


def read_header(data: bytes) -> SegmentHead | None:
    """What the header says; None when it is not whole.

    >>> read_header(header(3, 20, b"8 bytes."))
    SegmentHead(number=3, before=20, salt=b'8 bytes.')
    """
    if len(data) < HEAD.size:
        return None
    magic, number, before, salt, check = HEAD.unpack_from(data)
    if magic != MAGIC or zlib.crc32(data[: HEAD.size - 4]) != check:
        return None
    return SegmentHead(number, before, salt)


def packed(salt: bytes, number: int, place: int, topic: bytes, payload: bytes) -> bytes:
    """The bytes of a record."""
    check = zlib.crc32(payload, zlib.crc32(topic))
    size = len(topic) + len(payload)
    rest = RECORD.pack(salt, 0, check, number, place, size, len(topic))[_AFTER_CHECK:]
    return b"".join((salt, zlib.crc32(rest).to_bytes(4, "little"), rest, topic, payload))


def record(data: bytes, at: int, salt: bytes) -> SpoolRecord | None:
    """The record at a place; None when it is not whole.

    >>> record(packed(b"8 bytes.", 7, 0, b"t", b"hello"), 0, b"8 bytes.")
    SpoolRecord(at=0, end=40, number=7, place=0, topic=b't', payload=b'hello')
    """
    found = record_head(data, at, salt)
    if found is None:
        return None
    check, number, place, size, topic = found
    body, end = at + RECORD.size, at + RECORD.size + size
    if topic > size or end > len(data) or zlib.crc32(memoryview(data)[body:end]) != check:
        return None
    return SpoolRecord(at, end, number, place, data[body : body + topic], data[body + topic : end])


def record_head(data: bytes, at: int, salt: bytes) -> tuple[int, int, int, int, int] | None:
    """Checksum of the body, number, place, length of body and of topic; None: it is damaged."""
    if at + RECORD.size > len(data):
        return None
    held, head, check, number, place, size, topic = RECORD.unpack_from(data, at)
    if held != salt or zlib.crc32(data[at + _AFTER_CHECK : at + RECORD.size]) != head:
        return None
    return check, number, place, size, topic


def whole_records(
    data: bytes, at: int, salt: bytes, low: int = 0, high: int | None = None
) -> Iterator[SpoolRecord]:
    """The records from a place on that are whole and whose numbers grow, from `low` to `high`."""
    while at >= 0:
        found = record(data, at, salt)
        if found is None or found.number < low or (high is not None and found.number >= high):
            at = data.find(salt, at + 1)
            continue
        yield found
        low, at = found.number + 1, found.end


def salt_of_first(data: bytes) -> bytes | None:
    """The salt by the first record, where the header cannot be read."""
    salt = data[HEAD.size : HEAD.size + SALT]
    return salt if record(data, HEAD.size, salt) is not None else None


def is_old(data: bytes) -> bool:
    """Whether a segment has the format of earlier builds, and is not just damaged to look so."""
    if not data.startswith(OLD):
        return False
    rest = data[_OLD_HEAD.size :]
    if len(rest) < _OLD_RECORD.size:
        return len(data) < HEAD.size
    size, check, _ = _OLD_RECORD.unpack_from(rest)
    return bool(zlib.crc32(rest[8 : _OLD_RECORD.size + size]) == check)
