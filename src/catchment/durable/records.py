"""Typed records on a node's disk: one codec for its notes and for the entries of its logs.

A record is a frozen msgspec Struct, one of a tagged union of them, or a collection of such. It is
written as MessagePack, since many records hold messages or state as bytes. It is read as the type
that belongs there, and every field is checked: what does not fit raises the `StateError` that names
the note or the entry.

    record --- put, append ---> bytes --- get, read, entries ---> record, or StateError
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from catchment.durable.disk import Disk, Log, damaged
from catchment.durable.log import LostEntries
from catchment.model import records

R = TypeVar("R")


def put(disk: Disk, name: str, record: object) -> None:
    """Keeps a record as a note."""
    disk.put(name, records.pack(record))


def get(disk: Disk, name: str, kind: type[R]) -> R | None:
    """The record that a note holds, if it was kept."""
    held = disk.get(name)
    return None if held is None else records.unpack(kind, held, name, damaged)


class RecordLog(Generic[R]):
    """A log of a node's disk whose entries are records.

    `kind` is what they are: a type, or a union of tagged Structs.
    """

    def __init__(self, disk: Disk, name: str, kind: type[R] | Any) -> None:
        self.name = name
        self._kind = kind
        self._log: Log = disk.log(name)

    def append(self, number: int, record: R) -> int:
        """Adds an entry, as `Log.append`; the bytes that it takes."""
        data = records.pack(record)
        self._log.append(number, data)
        return len(data)

    def entries(self) -> Iterator[tuple[int, R]]:
        return ((number, self._read(number, data)) for number, data in self._log.entries())

    def read(self, number: int) -> R:
        return self._read(number, self._log.read(number))

    def _read(self, number: int, data: bytes) -> R:
        found: R = records.unpack(self._kind, data, f"{self.name}, entry {number}", damaged)
        return found

    def gap(self, after: int) -> LostEntries | None:
        return self._log.gap(after)

    def rewind(self, number: int) -> None:
        self._log.rewind(number)

    def trim(self, number: int) -> None:
        self._log.trim(number)

    def clear(self) -> None:
        self._log.clear()

    @property
    def last(self) -> int:
        """The number of the last entry ever written; 0: there was none."""
        return self._log.last or 0

    @property
    def nbytes(self) -> int:
        return self._log.nbytes
