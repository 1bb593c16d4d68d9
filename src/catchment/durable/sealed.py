"""Bytes under a name and a checksum, so that damage is noticed and a file tells whose it is.

    mark (8)  version (2)  length of the name (2)  the name  |  checksum (4)  length (8)  the bytes

What is before the line is the header: a file that does not carry it is not touched.
"""

from __future__ import annotations

import struct
import zlib

_MARK = b"catchnot"
_VERSION = 1
_HEAD = struct.Struct(">8sHH")
_BODY = struct.Struct(">IQ")


def header(name: str) -> bytes:
    """How a sealed file of this name begins."""
    text = name.encode()
    return _HEAD.pack(_MARK, _VERSION, len(text)) + text


def seal(name: str, data: bytes) -> bytes:
    """The bytes of a file.

    >>> unseal("a", seal("a", b"something")), unseal("b", seal("a", b"something"))
    (b'something', None)
    """
    head = header(name)
    return head + _BODY.pack(zlib.crc32(data, zlib.crc32(head)), len(data)) + data


def unseal(name: str, blob: bytes) -> bytes | None:
    """What was sealed under this name; None if that cannot be read."""
    head = header(name)
    begin = len(head) + _BODY.size
    if not blob.startswith(head) or len(blob) < begin:
        return None
    checksum, size = _BODY.unpack_from(blob, len(head))
    data = blob[begin:]
    whole = len(data) == size and zlib.crc32(data, zlib.crc32(head)) == checksum
    return data if whole else None


def carries(name: str, blob: bytes) -> bool:
    """Whether a file carries the header of this name, or is an unfinished part of it."""
    head = header(name)
    return blob.startswith(head) or head.startswith(blob)
