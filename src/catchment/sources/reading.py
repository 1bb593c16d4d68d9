"""Reading splits: the events of each with their places, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypedDict, cast

from catchment.errors import SourceError
from catchment.sources.base import Piece, Source, Split

_TOLD = 100
"""So many unreadable rows of a split are reported with their place and reason."""


class UnreadRow(TypedDict):
    """Where a row is that could not be read, and why."""

    origin: str
    place: int
    reason: str


def pieces_of(
    source: Source, split: Split, columns: list[str] | None, where: str | None
) -> Iterator[Piece]:
    """The pieces of a split, each with the place of its first event."""
    arrival = split.arrival
    for piece in source.read(split, columns, where):
        arrival = arrival if piece.arrival is None else piece.arrival
        yield replace(piece, arrival=arrival)
        arrival += piece.events.num_rows


def unread_rows(piece: Piece, told: int) -> list[UnreadRow]:
    """The first rows of a piece that could not be read, where `told` rows were told of already."""
    if piece.bad is None:
        return []
    rows = piece.bad.slice(0, max(_TOLD - told, 0)).drop_columns(["body"])
    return cast(list[UnreadRow], rows.to_pylist())


def refuse_waiting(source: Source) -> None:
    """A stream waits for files that are not whole; a batch job must not leave them out."""
    for one in source.never_read() if source.waiting() else ():
        if one.waiting:
            raise SourceError("a file cannot be read", given=one.origin, hint=one.reason)
