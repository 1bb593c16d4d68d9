"""The parcels of a bucket, divided by key where they are too many to be assembled at once.

    parcels --PackedShares--> by share of keys: in memory, and past a limit in a file
    a share --unpacked--> partials, if they are few; otherwise it is divided again

Whoever reads events divides large parcels beforehand, so that here they are only put beside each
other. The memory of a task is then that of one share, besides what is packed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from typing import IO

import numpy as np

from catchment.engine.parcels import divided, pack_partials, share_sizes, unpack_partials
from catchment.engine.partials import Partials
from catchment.spark.local_parcels import FileParcel, parcel_of
from catchment.spark.records import SplitRead
from catchment.spark.tasks import SHARES, Work, share_of

_AT_ONCE = 8 << 20
"""Packed bytes that are assembled at once, if no less memory is allowed: about a million rows."""
_LEAST = 1 << 18
"""Packed bytes that are assembled at once in any case."""
_OF_STATE = 16
"""Packed bytes become about as many times as much, once they are unpacked and merged."""
_IN_MEMORY = 64 << 20
"""Packed bytes of a task that are held in memory."""
_DEEPEST = 3
"""How often a share is divided again. What is too large then is of too few keys to divide."""

_MOST_OF = 0.9
"""A share that would get so much of all rows is not made: it would be as large as all."""

Parcelled = tuple[Partials, SplitRead]
"""Partials, and what was said of their split."""


def shares_of(work: Work, parcels: Iterable[tuple[int, bytes]]) -> Iterator[list[Parcelled]]:
    """The partials of each bucket, or, of a large one, of each share of its keys."""
    spools: dict[int, PackedShares] = {}
    for number, body in parcels:
        bucket, share = share_of(number, work.buckets)
        spools.setdefault(bucket, PackedShares()).add(share, body)
    while spools:
        _, spool = spools.popitem()
        with spool:
            yield from _shares(work, spool, work.buckets, _DEEPEST)


def at_once(state_bytes: int | None) -> int:
    """Packed bytes that are assembled at once, by the memory that a user allows."""
    allowed = _AT_ONCE if state_bytes is None else state_bytes // _OF_STATE
    return max(_LEAST, min(_AT_ONCE, allowed))


def _shares(
    work: Work, spool: PackedShares, buckets: int, deepest: int
) -> Iterator[list[Parcelled]]:
    """The partials of a spool; `buckets` says of how many its keys are one."""
    most = at_once(work.state_bytes)
    if spool.size <= most or not deepest or not _divisible(work, spool, buckets):
        yield _unpacked(spool, [None, *range(SHARES)])
        return
    for body in spool.take(None):
        partials, said = unpack_partials(body, SplitRead)
        parts = divided(partials, work.plan, buckets, SHARES)
        parts.setdefault(0, Partials())
        for share, part in parts.items():
            note = said if share == 0 else SplitRead(said.number, said.piece)
            spool.add(share, pack_partials(part, note))
    few: list[int] = []
    for share in range(SHARES):
        if sum(map(spool.size_of, [*few, share])) > most:
            yield _unpacked(spool, few)
            few = []
        if spool.size_of(share) <= most:
            few.append(share)
            continue
        with PackedShares() as inner:
            for body in spool.take(share):
                inner.add(None, body)
            yield from _shares(work, inner, buckets * SHARES, deepest - 1)
    yield _unpacked(spool, few)


def _divisible(work: Work, spool: PackedShares, buckets: int) -> bool:
    """Whether it helps to divide what is in a spool: not where nearly all is of one key.

    To divide is to pack everything once more, which takes longer than to assemble it.
    """
    if not spool.only_undivided:
        return True
    rows = np.zeros(SHARES, np.int64)
    for body in spool.look(None):
        rows += share_sizes(unpack_partials(body, SplitRead)[0], work.plan, buckets, SHARES)
    return int(rows.max()) < _MOST_OF * int(rows.sum())


def _unpacked(spool: PackedShares, shares: Iterable[int | None]) -> list[Parcelled]:
    return [unpack_partials(body, SplitRead) for share in shares for body in spool.take(share)]


class PackedShares:
    """Packed partials by share of their keys: in memory, and past a limit in a file."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes of all that is here."""
        self._held: dict[int | None, list[bytes | FileParcel | tuple[int, int]]] = {}
        """The bytes, or where they are: in a file of theirs, or in our own and how many."""
        self._file: IO[bytes] | None = None
        self.in_memory = 0
        """Bytes that are in no file."""

    def __enter__(self) -> PackedShares:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.clear()
        if self._file is not None:
            self._file.close()

    def add(self, share: int | None, body: bytes) -> None:
        """Adds a parcel of a share; None: of any."""
        held: bytes | FileParcel | tuple[int, int] = parcel_of(body)
        self.size += _size(held)
        if isinstance(held, bytes):
            if self.in_memory + len(held) > _IN_MEMORY:
                held = self._write(held)
            else:
                self.in_memory += len(held)
        self._held.setdefault(share, []).append(held)

    def _write(self, body: bytes) -> tuple[int, int]:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="catchment-")  # noqa: SIM115
        place = self._file.seek(0, 2)
        self._file.write(body)
        return place, len(body)

    @property
    def only_undivided(self) -> bool:
        """Whether no parcel is of one share alone."""
        return not any(share is not None for share in self._held)

    def look(self, share: int | None) -> Iterator[bytes]:
        """The parcels of a share, which stay."""
        for held in self._held.get(share, []):
            yield self._bytes(held)

    def take(self, share: int | None) -> Iterator[bytes]:
        """Takes the parcels of a share, in the order in which they came."""
        for held in self._held.pop(share, []):
            body = self._bytes(held)
            self.size -= len(body)
            self.in_memory -= len(body) if isinstance(held, bytes) else 0
            yield body

    def size_of(self, share: int | None) -> int:
        """Bytes of a share."""
        return sum(map(_size, self._held.get(share, [])))

    def _bytes(self, held: bytes | FileParcel | tuple[int, int]) -> bytes:
        match held:
            case bytes():
                return held
            case FileParcel():
                return held.read()
        return self._read(*held)

    def _read(self, at: int, size: int) -> bytes:
        assert self._file is not None
        self._file.seek(at)
        return self._file.read(size)


def _size(held: bytes | FileParcel | tuple[int, int]) -> int:
    match held:
        case bytes():
            return len(held)
        case FileParcel():
            return held.size
    return held[1]
