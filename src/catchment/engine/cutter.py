"""An engine that slices and merges: events or partials go in, and leave as partials."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.engine import partials, settled
from catchment.engine.batch import Batch
from catchment.engine.changes import fit
from catchment.engine.engine import Engine
from catchment.engine.group import ALONE, GroupState
from catchment.engine.keys import KeyIndex
from catchment.engine.partials import (
    EVENTS,
    Partials,
    are_events,
    courses_id,
    events_of,
    load_courses,
    owned_of,
    rows_of,
    waiting_id,
)
from catchment.engine.rows import Rows, compact, concat_rows, no_rows
from catchment.engine.streams import Owned, concat_owned
from catchment.model.plan import Plan
from catchment.operators.ragged import Ints
from catchment.planner.edges import EARLIEST, LATEST

_NODE_BITS = 44
"""Events rank by node and then by arrival: half a million nodes of ten million million events."""

_UNTIDY = 1 << 18
"""Rows of a group that may pile up before they are merged."""

_KEYS = 1 << 20
"""Keys that are remembered beyond what is held, while somebody watches how often they come."""

Touch = tuple[Ints, Ints, Ints]
"""Slices and keys that rows have come for: starts, ends, codes of keys."""


class Cutter(Engine):
    """Slices events by a plan, setting bad and late ones aside; merges what others sliced."""

    def __init__(
        self, plan: Plan, schema: pa.Schema | None, *, node: int = 0, stream: str = ALONE,
        whole: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        self.node = node
        self.stream = stream
        self.whole = whole
        """Whether it has all events of its stream, and can cut them at the stream's marks."""
        self._owned: dict[int, list[Owned]] = {}
        self._rows: dict[int, list[Rows]] = {}
        self._piled: dict[int, int] = {}
        self._events: list[pa.Table] = []
        self._first = 0
        self.watched = False
        """Whether it is noted which slices and keys rows come for."""
        self._touched: dict[int, list[Touch]] = {}
        super().__init__([], plan=plan, schema=schema, **options)

    def cut(self, events: pa.Table, arrival: int) -> None:
        """Takes in events of this node; `arrival` is the place of the first in its order."""
        self._first = arrival - self.counts["events"]
        self.push(events)

    def _arrival(self) -> int:
        return (self.node << _NODE_BITS) + self._first + self.counts["events"]

    def _push_groups(self, batch: Batch) -> None:
        if not len(batch):
            return
        self.newest = max(self.newest, batch.span[1])
        self.counts["accepted"] += len(batch)
        if self.late == "update" and batch.span[0] < self.frontier:
            self.counts["updates"] += int((batch.times < self.frontier).sum())
        if any(group.distinct_on for group in self.plan.groups):
            stamps = {
                settled.TIME: pa.array(batch.times),
                settled.ARRIVAL: pa.array(batch.arrivals),
            }
            columns = dict(zip(batch.table.schema.names, batch.table.columns, strict=True))
            self._events.append(pa.table(columns | stamps))
        for group in self.plan.groups:
            if not group.distinct_on:
                by_clock = group.measure == "processing"
                self._cut(self.states[group.id], batch.at(self.clock()) if by_clock else batch)

    def _cut(self, state: GroupState, batch: Batch) -> None:
        kept = batch.chosen(state.group)
        if state.group.slicing != "arrival":
            state.lay_by(batch, kept, self.stream)
            return
        sliced = state.slicer.slice(batch, kept)
        sliced.rows.key = state.keys.translate(sliced.keys, sliced.rows.key)
        self._add(state.group.id, sliced.rows)

    # -- partials of others ----------------------------------------------------------------------

    def absorb(self, partials: Partials, newest: int = EARLIEST) -> None:
        """Takes in what others sliced by the same plan, to be merged and passed on."""
        self.newest = max(self.newest, newest)
        for id, table in partials.items():
            if not table.num_rows:
                continue
            if id == EVENTS:
                self._events.append(table)
                continue
            if id < EVENTS:
                self._resume(id, table)
                continue
            state = self.states[id]
            if are_events(table):
                mine = self.stream if self.whole else None
                state.waiting.append(events_of(state, table, mine))
            elif state.own is not None:
                self._owned.setdefault(id, []).append(owned_of(state, table))
            else:
                self._add(id, rows_of(state, table))
        self._bound_keys()

    def _resume(self, id: int, table: pa.Table) -> None:
        """Takes back what `held` gave besides slices."""
        for group, state in self.states.items():
            if id == waiting_id(group):
                state.waiting.append(events_of(state, table))
            elif id == courses_id(group):
                load_courses(state, table)

    def follow(self, plan: Plan, lineage: dict[int, int], leaving: Iterable[str] = ()) -> None:
        """Goes on by another plan; what is held becomes what that plan would have cut."""
        held, owned, before = self._rows, self._owned, self.states
        for state in before.values():
            if state.own is not None:  # what was there before a window type is unknown to it
                state.newest = max(state.newest, self.newest)
        super().follow(plan, lineage)
        self._owned = {
            new: _refitted(before[old], self.states[new], owned.get(old, []))
            for new, old in lineage.items()
        }
        self._rows = {
            new: [fit(rows, self.states[new].operators) for rows in held.get(old, [])]
            for new, old in lineage.items()
            if self.states[new].group.slicing == "arrival"
        }
        self._piled = {}

    def _add(self, id: int, rows: Rows) -> None:
        parts = self._rows.setdefault(id, [])
        parts.append(rows)
        self._piled[id] = self._piled.get(id, 0) + len(rows)
        if self.watched:
            self._touched.setdefault(id, []).append((rows.start, rows.end, rows.key))
        if self._piled[id] > _UNTIDY + 2 * len(parts[0]):
            operators = self.states[id].operators
            self._rows[id] = [compact(concat_rows(parts, operators), operators)]
            self._piled[id] = 0

    @property
    def held_bytes(self) -> int:
        rows = (part for parts in self._rows.values() for part in parts)
        owned = (part for parts in self._owned.values() for part in parts)
        held = sum(part.nbytes for part in rows) + sum(table.nbytes for table in self._events)
        held += sum(part.rows.nbytes + part.tags.nbytes for part in owned)
        return held + super().held_bytes

    # -- partials out ----------------------------------------------------------------------------

    def take(self, seq: int = 0) -> Partials:
        """The partials of all that came since the last call."""
        return self.release(LATEST, seq)

    def release(self, frontier: int, seq: int = 0) -> Partials:
        """The partials of slices that end by the frontier: nobody expects more of them.

        The rest is held back, so that what comes for the same slice later can join it. But a
        session may end anywhere in a slice: no event before the frontier may be held back from it.
        """
        made: Partials = {}
        self._forget_texts()  # while it is still known how many keys have come
        for id, state in self.states.items():
            if state.group.distinct_on:
                continue
            if state.own is not None:
                made[id] = self._release_owned(id, state, frontier, seq)
                continue
            rows = concat_rows(self._rows.pop(id, []), state.operators)
            ripe = rows.start < frontier if state.sessions else rows.end <= frontier
            waiting, rest = _split(state.waiting, frontier)
            keys = self.key_types(id)
            made[id] = partials.take(state, rows.where(ripe), waiting, keys, self.node, seq)
            state.waiting = rest
            if not ripe.all():
                self._rows[id] = [rows.where(~ripe)]
            elif not rest and not (self.watched and len(state.keys.selections) < _KEYS):
                state.keys = KeyIndex()
        ripe_events, self._events = _split(self._events, frontier)
        if ripe_events:
            made[EVENTS] = pa.concat_tables(ripe_events, promote_options="permissive")
        self._piled = {}
        return made

    def _release_owned(self, id: int, state: GroupState, frontier: int, seq: int) -> pa.Table:
        """Slices of settled events: those in a window all of them, since it may end anywhere in a
        slice. Events themselves leave only where nobody here sees the whole stream."""
        # A node that is idle gives all slices, but what may still get a mark before it is not cut.
        if self.whole and (cut := state.cut_streams(min(frontier, self.frontier))) is not None:
            self._owned.setdefault(id, []).append(cut)
        assert state.own is not None
        keys = self.key_types(id)
        parts = self._owned.pop(id, [])
        if not self.whole and not parts:
            waiting, state.waiting = _split(state.waiting, frontier)
            return partials.take(state, no_rows(state.operators), waiting, keys, self.node, seq)
        owned = concat_owned(parts, len(state.own.places), state.operators)
        early = (owned.tags[:, 0] > 0) | bool(state.sessions)
        ripe = np.where(early, owned.rows.start < frontier, owned.rows.end <= frontier)
        if not ripe.all():
            self._owned[id] = [owned.where(~ripe)]
        return partials.take_owned(state, owned.where(ripe), keys, self.node, seq)

    # -- a part of what is held ------------------------------------------------------------------

    def touched(self) -> dict[int, list[Touch]]:
        """What rows have come for since the last call, by group."""
        touched, self._touched = self._touched, {}
        return touched

    def shelf(self, id: int) -> Rows:
        """What is held back of a group: one row per slice and key, in order of both."""
        operators = self.states[id].operators
        rows = compact(concat_rows(self._rows.get(id, []), operators), operators)
        self._rows[id] = [rows]
        self._piled[id] = 0
        return rows

    def part(self, id: int, chosen: Ints, seq: int = 0) -> pa.Table:
        """Some rows of the shelf as partials; they are held no longer."""
        state, rows = self.states[id], self._rows[id][0]
        stays = np.ones(len(rows), np.bool_)
        stays[chosen] = False
        self._rows[id] = [rows.where(stays)]
        keys = self.key_types(id)
        return partials.take(state, rows.take(np.flatnonzero(~stays)), [], keys, self.node, seq)

    def held(self) -> Partials:
        """The partials of all that is held back; it stays."""
        made: Partials = {}
        for id, state in self.states.items():
            if state.own is not None:
                made |= self._held_owned(id, state)
                continue
            rows = concat_rows(self._rows.get(id, []), state.operators)
            if not state.group.distinct_on and (len(rows) or state.waiting):
                keys = self.key_types(id)
                made[id] = partials.take(state, rows, state.waiting, keys, self.node, 0)
        if self._events:
            made[EVENTS] = pa.concat_tables(self._events, promote_options="permissive")
        return made

    def _held_owned(self, id: int, state: GroupState) -> Partials:
        keys = self.key_types(id)
        made = {courses_id(id): partials.take_courses(state, keys, self.node, 0)}
        if state.waiting:
            none = no_rows(state.operators)
            made[waiting_id(id)] = partials.take(state, none, state.waiting, keys, self.node, 0)
        if self._owned.get(id):
            assert state.own is not None
            owned = concat_owned(self._owned[id], len(state.own.places), state.operators)
            made[id] = partials.take_owned(state, owned, keys, self.node, 0)
        return made

    def reset(self, node: int, frontier: int) -> None:
        """Starts over for another split, bound as before."""
        self.node, self.frontier = node, frontier
        self.take()
        self.aside.drained()
        self.counts = dict.fromkeys(self.counts, 0)
        self.newest = EARLIEST


def _refitted(old: GroupState, new: GroupState, parts: list[Owned]) -> list[Owned]:
    """Slices that were held by an older plan."""
    if old.own is None or new.own is None:
        return []
    return [new.own.fit(part, old.own, fit(part.rows, new.operators)) for part in parts]


def _split(tables: list[pa.Table], frontier: int) -> tuple[list[pa.Table], list[pa.Table]]:
    """Events before the frontier, and the others."""
    if frontier >= LATEST:
        return tables, []
    early, later = [], []
    for table in tables:
        before = table.column(settled.TIME).to_numpy() < frontier
        early.append(table.filter(pa.array(before)))
        later.append(table.filter(pa.array(~before)))
    return [t for t in early if t.num_rows], [t for t in later if t.num_rows]
