"""Whether what a node says of the events that it keeps agrees with itself, and with what it said.

Nobody else has these events, so only contradictions are found out: rows that hold more or fewer
events than the note that they are in says, and events that were kept and are not there any more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from catchment.engine.bound import BoundPlan
from catchment.engine.bound_waiting import choice_of
from catchment.engine.columns import unpack
from catchment.marking.message import MarkNote
from catchment.marking.rows import CENSUS, GroupRows, events_schema


def contradiction(note: MarkNote, bound: BoundPlan, set: int) -> str | None:
    """What is wrong with the rows of a note, by the plan that made them; None: nothing.

    `set` is the first group of the set that the note is on.
    """
    sent = sum(unpack(body, events_schema(bound, set)).num_rows for body in note.sent)
    rest = note.events - sent
    if rest < 0 or note.events > note.let_go:
        return f"it sends {sent} events, counts {note.events} and lets {note.let_go} go"
    for id, one in bound.waiting[set].groups.items():
        told = note.slices.get(id)
        found = 0
        if told is not None:
            rows = GroupRows(one).unpack(told.rows)
            events = np.asarray(rows.fields[CENSUS], np.int64)
            if (events < 1).any() or (rows.start < 0).any():
                return "it has slices without events, or behind no edge"
            found = int(events.sum())
            if found != told.events:
                return f"its slices hold {found} events of a group, and it counts {told.events}"
        chosen = choice_of(one.group.selections) is not None
        if found > rest or (found < rest and not chosen):
            return f"its slices hold {found} events of a group, and it counts {rest} of all groups"
    return None


class Speaker(NamedTuple):
    """Who says something: the number of a node and of its message, and how many events it says to
    keep more."""

    node: int | None
    """None: it is not there any more."""
    seq: int
    held: int


class KeptBy(NamedTuple):
    """How many events a node keeps after its last message, by what it has said."""

    seq: int
    events: int


class EventsKept(Struct, array_like=True):
    """How many events nodes keep, by what each has said so far, at the node they speak to."""

    by_node: dict[int, KeptBy] = {}

    def checked(self, notes: list[MarkNote], speaker: Speaker) -> list[MarkNote]:
        """The notes of a message; one that contradicts what its node has said before is marked as
        wrong.

        Of a node that has not said what it keeps, or of which messages
         went elsewhere, that is learnt.
        """
        node, seq, held = speaker
        if node is None:
            return notes
        known = self.by_node.pop(node, None)
        known = None if known is None or known.seq + 1 != seq else known
        own = [note for note in notes if note.nodes == [node] and not note.wrong]
        if own:
            self.by_node[node] = KeptBy(seq, own[-1].left)
        elif known is not None:
            self.by_node[node] = KeptBy(seq, known.events + held)
        if known is None or not own:
            return notes
        left = own[-1].left
        expected = known.events + held - sum(note.let_go for note in own)
        if expected == left:
            return notes
        why = f"it keeps {left} events, and {expected} by what it said before"
        return [refused(note, why) if note in own else note for note in notes]


def refused(note: MarkNote, why: str) -> MarkNote:
    """A note without its rows, and why they are not taken."""
    nothing: dict[str, Any] = {"slices": {}, "sent": []}
    return replace(note, **nothing, wrong=note.wrong or why)
