"""Large parcels and pieces of results that tasks on one machine hand to each other through files.

    bytes --FileParcels.put--> a reference, which travels in place of the bytes --parcel_of--> bytes

Spark's shuffle brings bytes from one Python process to another through two sockets, several copies
and its own files. Where all tasks see one disk, a file does the same at once. A task that runs
again writes the same file again, whole or not at all.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

REFERENCE = b"catchment parcel in the file "
"""What a reference begins with."""
_LEAST = 1 << 16
"""Bytes from which on a parcel is written to a file."""


@dataclass(frozen=True)
class FileParcels:
    """A folder for the parcels of one pass."""

    folder: str

    def put(self, name: str, body: bytes, least: int = _LEAST) -> bytes:
        """What travels through Spark: a reference, or the bytes themselves where they are few."""
        if len(body) < least:
            return body
        path = Path(self.folder) / name
        beside = path.with_name(f".{name}-{uuid4().hex}")
        try:
            beside.write_bytes(body)
        except FileNotFoundError:
            return body  # the pass has let go of its folder, and is made once more
        os.replace(beside, path)
        return REFERENCE + str(path).encode()


@dataclass(frozen=True)
class FileParcel:
    """A parcel in a file."""

    path: str
    size: int

    def read(self) -> bytes:
        """The bytes of the parcel."""
        return Path(self.path).read_bytes()


def parcel_of(body: bytes) -> bytes | FileParcel:
    """What came through Spark: the bytes, or the file that holds them."""
    if not body.startswith(REFERENCE):
        return body
    path = body.removeprefix(REFERENCE).decode()
    return FileParcel(path, Path(path).stat().st_size)


def bytes_of(body: bytes) -> bytes:
    """The bytes of what came through Spark."""
    found = parcel_of(body)
    return found if isinstance(found, bytes) else found.read()
