"""Answers of several nodes to one round as one: slices behind the same edge are merged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from catchment.engine.bound import BoundPlan
from catchment.engine.rows import concat_rows
from catchment.marking.agreement import EventsKept, Speaker, contradiction, refused
from catchment.marking.message import GroupSlices, MarkNote, notes_in, section
from catchment.marking.rows import GroupRows


class KnownSets(Protocol):
    """What a node knows of versions of the plan."""

    def bound(self, version: int) -> BoundPlan:
        """A version of the plan."""
        ...

    def set_in(self, version: int, name: str) -> int | None:
        """The first group of a set in a version; None: it was not there."""
        ...


def checked_section(
    said: pa.Table | None, speaker: Speaker, kept: EventsKept, versions: KnownSets
) -> pa.Table | None:
    """What a child says, those notes without rows that contradict themselves or what the child has
    said before."""
    notes = [] if said is None else notes_in(said)
    found = checked_notes(notes, speaker, kept, versions)
    return section(found) if found else None


def checked_notes(
    notes: list[MarkNote], speaker: Speaker, kept: EventsKept, versions: KnownSets
) -> list[MarkNote]:
    """The same, for notes that are decoded."""
    return [_checked(note, versions) for note in kept.checked(notes, speaker)]


def _checked(note: MarkNote, versions: KnownSets) -> MarkNote:
    if note.wrong or not note.round:
        return note
    id = versions.set_in(note.plan, note.set)
    if id is None:
        return note if not note.slices and not note.sent else refused(note, "it has no such set")
    why = contradiction(note, versions.bound(note.plan), id)
    return note if why is None else refused(note, why)


def merged_notes(tables: list[pa.Table], bound_of: Callable[[int], BoundPlan]) -> pa.Table | None:
    """All notes of some sections, those on one round and by one plan merged."""
    found: dict[tuple[str, int, int, str], list[MarkNote]] = {}
    for table in tables:
        for note in notes_in(table):
            found.setdefault((note.set, note.round, note.plan, note.wrong), []).append(note)
    return section([_merged(notes, bound_of) for notes in found.values()]) if found else None


def _merged(notes: list[MarkNote], bound_of: Callable[[int], BoundPlan]) -> MarkNote:
    first = notes[0]
    if len(notes) == 1:
        return first
    slices: dict[int, GroupSlices] = {}
    for id in sorted({id for note in notes for id in note.slices}):
        group = GroupRows(bound_of(first.plan).groups[id])
        some = [note.slices[id] for note in notes if id in note.slices]
        rows = concat_rows([group.unpack(one.rows) for one in some], group.bound.operators)
        slices[id] = GroupSlices(group.pack(rows), sum(one.events for one in some))
    return MarkNote(
        [node for note in notes for node in note.nodes],
        first.set,
        first.round,
        first.plan,
        slices,
        [events for note in notes for events in note.sent],
        sum(note.events for note in notes),
        sum(note.let_go for note in notes),
        sum(note.left for note in notes),
        first.wrong,
    )
