"""Answers of several nodes to one round as one: slices behind the same edge are merged."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from catchment.counting import wire
from catchment.engine.bound import BoundPlan
from catchment.engine.rows import concat_rows
from catchment.marking.message import MarkNote
from catchment.marking.rows import GroupRows


def merged_notes(tables: list[pa.Table], bound_of: Callable[[int], BoundPlan]) -> pa.Table | None:
    """All notes of some sections, those on one round and by one plan merged."""
    found: dict[tuple[str, int, int], list[MarkNote]] = {}
    for table in tables:
        for body in table.column("note"):
            note = wire.load(MarkNote, body.as_py())
            found.setdefault((note.set, note.round, note.plan), []).append(note)
    made = [wire.dump(_merged(notes, bound_of)) for notes in found.values()]
    return pa.table({"note": pa.array(made, pa.binary())}) if made else None


def _merged(notes: list[MarkNote], bound_of: Callable[[int], BoundPlan]) -> MarkNote:
    first = notes[0]
    if len(notes) == 1:
        return first
    slices: dict[int, bytes] = {}
    for id in sorted({id for note in notes for id in note.slices}):
        group = GroupRows(bound_of(first.plan).groups[id])
        parts = [group.unpack(note.slices[id]) for note in notes if id in note.slices]
        slices[id] = group.pack(concat_rows(parts, group.bound.operators))
    return MarkNote(
        [node for note in notes for node in note.nodes],
        first.set,
        first.round,
        first.plan,
        slices,
        [events for note in notes for events in note.sent],
        sum(note.events for note in notes),
        sum(note.let_go for note in notes),
    )
