"""Settled events of which most were cut elsewhere: marks, and slices in between, in one order.

A slice stands in the order of events where its first event does, and meets no condition. So windows
that marks open and close are followed through both alike, as if all events were there:

    events here      m           m     m            m
    slices             [------]    [-]   [-------]
    windows          [--------------][------------------...
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from catchment.engine import codec, settled
from catchment.engine.rows import Operators, Rows, concat_rows, fit
from catchment.engine.settled import Ordered, WaitingColumns
from catchment.model.plan import Group
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask

_ARRIVAL, _EVENTS = "arrival", "events"


class SlicesBetween(NamedTuple):
    """Slices that were cut elsewhere, before and behind marks of their key."""

    rows: Rows
    arrival: Ints
    """Where a slice stands among events of the time of its first: just behind this arrival."""
    events: Ints
    """How many events each holds."""

    def where(self, chosen: Mask) -> SlicesBetween:
        return SlicesBetween(self.rows.where(chosen), self.arrival[chosen], self.events[chosen])


def behind_edges(rows: Rows, time: Ints, arrival: Ints, events: Ints) -> SlicesBetween:
    """Slices that begin behind an edge each, at a time and an arrival.

    All marks at the time of a slice's first event come behind the slice, unless its edge is one of
    them.
    """
    return SlicesBetween(rows, np.where(rows.first == time, arrival, -1), events)


def joined(parts: list[SlicesBetween], operators: Operators) -> SlicesBetween:
    """All of some slices."""
    none = np.empty(0, np.int64)
    rows = concat_rows([part.rows for part in parts], operators)
    arrival = np.concatenate([none, *(part.arrival for part in parts)])
    return SlicesBetween(rows, arrival, np.concatenate([none, *(part.events for part in parts)]))


def fitted(slices: SlicesBetween, operators: Operators) -> SlicesBetween:
    """The same by other operators: what these lack holds no values."""
    return slices._replace(rows=fit(slices.rows, operators))


def to_table(slices: SlicesBetween, operators: Operators) -> pa.Table:
    """Slices as a table of a snapshot."""
    table = codec.rows_to_table(slices.rows, operators)
    table = table.append_column(_ARRIVAL, pa.array(slices.arrival))
    return table.append_column(_EVENTS, pa.array(slices.events))


def from_table(table: pa.Table, operators: Operators) -> SlicesBetween:
    """The inverse of `to_table`."""
    rows = codec.table_to_rows(table.drop_columns([_ARRIVAL, _EVENTS]), operators)
    return SlicesBetween(rows, codec.ints(table, _ARRIVAL), codec.ints(table, _EVENTS))


class Interleaved(Ordered):
    """Events and slices by key, time, arrival; a slice counts as one event that meets nothing."""

    def __init__(self, events: Ordered | None, slices: SlicesBetween) -> None:
        self._some = events or None
        self._slices = slices
        count = 0 if self._some is None else len(self._some)
        none = np.empty(0, np.int64)
        key, time, arrival = none, none, none
        if self._some is not None:
            key, time = self._some.key, self._some.time
            arrival = self._some.ints(settled.ARRIVAL)
        key = np.concatenate([key, slices.rows.key])
        time = np.concatenate([time, slices.rows.first])
        arrival = np.concatenate([arrival, slices.arrival])
        order = np.lexsort((np.arange(len(key)) >= count, arrival, time, key))
        super().__init__(WaitingColumns([]), order, key[order], time[order])
        self._order = order

    def condition(self, text: str) -> Mask:
        nothing = np.zeros(len(self._slices.arrival), np.bool_)
        if self._some is None:
            return nothing
        return np.concatenate([self._some.condition(text), nothing])[self._order]

    def sizes(self, heads: Ints) -> Ints:
        ones = np.ones(len(self) - len(self._slices.events), np.int64)
        sizes = np.concatenate([ones, self._slices.events])[self._order]
        made: Ints = np.add.reduceat(sizes, heads) if len(heads) else heads
        return made

    def rows(self, group: Group, operators: Operators) -> tuple[Rows, Ints]:
        """A row for each event and each slice, and the first event of each."""
        parts = [self._slices.rows]
        if self._some is not None:
            every = np.ones(len(self._some), np.bool_)
            parts.insert(0, settled.cut_rows(self._some, every, group, operators)[0])
        return concat_rows(parts, operators).take(self._order), np.arange(len(self))
