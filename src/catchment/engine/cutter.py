"""An engine that only slices: events go in where they are read, and leave as partials."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from catchment.engine import partials, settled
from catchment.engine.batch import Batch
from catchment.engine.engine import Engine
from catchment.engine.group import GroupState
from catchment.engine.keys import KeyIndex
from catchment.engine.partials import EVENTS, Partials
from catchment.engine.rows import Rows, compact, concat_rows
from catchment.model.plan import Plan
from catchment.planner.edges import EARLIEST

_NODE_BITS = 44
"""Events rank by node and then by arrival: half a million nodes of ten million million events."""

_UNTIDY = 1 << 18
"""Rows of a group that may pile up before they are merged."""


class Cutter(Engine):
    """Slices events by a plan, setting bad and late ones aside; keeps nothing once taken."""

    def __init__(self, plan: Plan, schema: pa.Schema, *, node: int = 0, **options: Any) -> None:
        self.node = node
        self._rows: dict[int, list[Rows]] = {}
        self._piled: dict[int, int] = {}
        self._events: list[pa.Table] = []
        self._first = 0
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
            state.lay_by(batch, kept)
            return
        sliced = state.slicer.slice(batch, kept)
        sliced.rows.key = state.keys.translate(sliced.keys, sliced.rows.key)
        id = state.group.id
        parts = self._rows.setdefault(id, [])
        parts.append(sliced.rows)
        self._piled[id] = self._piled.get(id, 0) + len(sliced.rows)
        if self._piled[id] > _UNTIDY + 2 * len(parts[0]):
            self._rows[id] = [compact(concat_rows(parts, state.operators), state.operators)]
            self._piled[id] = 0

    def take(self, seq: int = 0) -> Partials:
        """The partials of all that came since the last call."""
        made: Partials = {}
        for id, state in self.states.items():
            if state.group.distinct_on:
                continue
            rows = concat_rows(self._rows.get(id, []), state.operators)
            keys = dict(self._shapes[id].key_types)
            made[id] = partials.take(state, rows, keys, self.node, seq)
            state.keys, state.waiting = KeyIndex(), []
        if self._events:
            made[EVENTS] = pa.concat_tables(self._events, promote_options="permissive")
        self._rows, self._piled, self._events = {}, {}, []
        return made

    def reset(self, node: int, frontier: int) -> None:
        """Starts over for another split, bound as before."""
        self.node, self.frontier = node, frontier
        self.take()
        self.take_late()
        self.take_bad()
        self.counts = dict.fromkeys(self.counts, 0)
        self.newest = EARLIEST
