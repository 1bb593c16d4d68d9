"""What the root tells nodes about marks, and what these answer, as records."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
from msgspec import Meta, Struct

from catchment.counting import wire
from catchment.operators.ragged import Ints

_Number = Annotated[int, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=0, le=1 << 40)]
"""Events: no sum of what nodes say overflows."""


class EdgesWord(Struct, frozen=True, array_like=True):
    """A round: all marks of a set of groups before a time are these. Cut there, and send slices."""

    number: _Number
    begin: int
    until: int
    nodes: Ints
    """Nodes whose marks are all among these; events of others come too late."""
    send: bool
    """Whether nodes send the events themselves: there are so many marks that slices cost more."""
    key: Ints
    """The key of each mark, by its place in `keys`."""
    keys: bytes
    """The key columns, packed, and how many keys there are."""
    distinct: _Number
    time: Ints
    arrival: Ints
    cuts: Ints
    """Times at which all keys are cut."""

    def __post_init__(self) -> None:
        if not len(self.key) == len(self.time) == len(self.arrival):
            raise ValueError("marks have one entry in each column")
        if len(self.key) and not (self.key.min() >= 0 and self.key.max() < self.distinct):
            raise ValueError("marks have keys that are told")


class GroupSlices(Struct, frozen=True, array_like=True):
    """Rows of slices and keys of a group. A slice starts at the number of its edge."""

    rows: bytes
    events: _Count
    """How many events are in them."""


class MarkNote(Struct, frozen=True, array_like=True):
    """What nodes had between the edges of a round."""

    nodes: list[_Number]
    set: str
    round: _Number
    plan: _Number
    """The version of the plan by which the rows are made."""
    slices: dict[_Number, GroupSlices]
    """By group."""
    sent: list[bytes]
    """Events of the set, where they were to be sent."""
    events: _Count
    """How many events are in here."""
    let_go: _Count
    """How many events the nodes hold no longer: those in here, and those that came too late."""
    left: _Count
    """How many events the nodes hold after the message that this is in, of all sets."""
    wrong: Annotated[str, Meta(max_length=200)] = ""
    """Why nothing of this is taken: a node in between has found it out."""


def notes_in(table: pa.Table) -> list[MarkNote]:
    """The notes of a section of a message."""
    return [wire.load(MarkNote, body.as_py()) for body in table.column("note")]


def section(notes: list[MarkNote]) -> pa.Table:
    """Notes as a section of a message."""
    return pa.table({"note": pa.array([wire.dump(note) for note in notes], pa.binary())})
