"""Events that wait until they are settled, sorted, and cut where the data says so."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.engine.batch import Batch
from catchment.engine.rows import Rows, flat
from catchment.engine.slicing import lift
from catchment.model.plan import Group
from catchment.operators import Grouping, Operator
from catchment.operators.base import InputForm
from catchment.operators.grouping import sort_rows
from catchment.operators.ragged import Array, Ints, lengths_of
from catchment.operators.values import ColumnValues, Mask, one_piece, truths
from catchment.planner.cost import edges_of, smallest_gap
from catchment.planner.edges import Edges

KEY, TIME, ARRIVAL = "#key", "#time", "#arrival"
_SMALL = 16384
"""Rows of a table that is not joined with others any more while its events wait."""


def conditions_of(group: Group) -> list[str]:
    """The conditions that open and close the group's windows, each once."""
    return list(dict.fromkeys(text for window in group.windows for text in window.conditions))


class WaitingColumns:
    """The columns of several tables of events, one behind the other.

    Each is joined when somebody asks for it, once. Plain numbers are joined by NumPy: to join whole
    tables would take fresh memory from Arrow for every column, which costs more than the copy.
    """

    def __init__(self, tables: list[pa.Table]) -> None:
        self._tables = tables
        self._numbers: dict[str, Array] = {}
        self._arrays: dict[str, pa.Array[Any]] = {}

    @property
    def schema(self) -> pa.Schema:
        return self._tables[0].schema

    def numbers(self, name: str) -> Array:
        """A column of numbers or booleans that has no nulls."""
        if name not in self._numbers:
            parts = [_numbers(chunk) for t in self._tables for chunk in t.column(name).chunks]
            self._numbers[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return self._numbers[name]

    def taken(self, name: str, rows: Ints) -> pa.Array[Any]:
        """Some rows of a column; of plain numbers, NumPy takes them faster than Arrow."""
        parts = [table.column(name) for table in self._tables]
        if all(_plain(part) for part in parts) and len({part.type for part in parts}) == 1:
            return pa.array(self.numbers(name).take(rows))
        if name not in self._arrays:
            tables = [table.select([name]) for table in self._tables]
            self._arrays[name] = one_piece(_joined(tables).column(name))
        return self._arrays[name].take(rows)


class Ordered:
    """Settled events in order of key, time, arrival.

    Columns are put in order when somebody asks for them, each once.
    """

    def __init__(self, events: WaitingColumns, rows: Ints, key: Ints, time: Ints) -> None:
        self._events = events
        self._rows = rows
        self.key = key
        self.time = time
        self._arrays: dict[str, pa.Array[Any]] = {}
        self.values: dict[tuple[str, InputForm], ColumnValues] = {}
        """Columns in order, as operators work on them."""
        self._masks: dict[str, Mask] = {}

    def __len__(self) -> int:
        return len(self.key)

    def at(self, rows: Ints, key: Ints | None = None) -> Ordered:
        """Some of the events, in the order of these rows; under other keys, if they are given."""
        held = self._rows.take(rows)
        return Ordered(
            self._events, held, self.key.take(rows) if key is None else key, self.time.take(rows)
        )

    @cached_property
    def heads(self) -> Ints:
        """Where each key's events begin."""
        new = np.ones(len(self), np.bool_)
        new[1:] = self.key[1:] != self.key[:-1]
        return np.flatnonzero(new)

    @cached_property
    def lengths(self) -> Ints:
        """How many events each key has."""
        return lengths_of(self.heads, len(self))

    @cached_property
    def table(self) -> pa.Table:
        """All columns, in order."""
        return pa.table({name: self.column(name) for name in self._events.schema.names})

    def column(self, text: str) -> pa.Array[Any]:
        """A column, in order."""
        if text not in self._arrays:
            self._arrays[text] = self._events.taken(text, self._rows)
        return self._arrays[text]

    def ints(self, text: str, rows: Ints | None = None) -> Ints:
        """A column of integers, in order, or some rows of it."""
        held = self._rows if rows is None else self._rows.take(rows)
        values: Ints = self._events.numbers(text).take(held)
        return values

    def condition(self, text: str) -> Mask:
        if text not in self._masks:
            self._masks[text] = self._events.numbers("?" + text).take(self._rows)
        return self._masks[text]

    def sizes(self, heads: Ints) -> Ints:
        """How many events there are from each of some events to the next of them."""
        return lengths_of(heads, len(self))

    @property
    def first(self) -> Mask:
        """Where a key's events begin, as a mask."""
        mask = np.zeros(len(self), np.bool_)
        mask[self.heads] = True
        return mask


def ordered(tables: list[pa.Table]) -> Ordered:
    """Sorts events by key, time, arrival."""
    return _ordered(tables, None)


def settle(tables: list[pa.Table], time: int) -> tuple[Ordered | None, list[pa.Table]]:
    """The events before a time, in order, and the others."""
    some: list[pa.Table] = []
    later: list[pa.Table] = []
    for table in tables:
        early = int(pc.min(table.column(TIME)).as_py()) < time
        (some if early else later).append(table)
    if not some:
        return None, tables
    before = [_ints(table, TIME) < time for table in some]
    rest = [
        take(table, np.flatnonzero(~mask))
        for table, mask in zip(some, before, strict=True)
        if not mask.all()
    ]
    if not rest:
        return _ordered(some, None), later
    return _ordered(some, np.concatenate(before)), [_joined(rest), *later]


def gathered(tables: list[pa.Table]) -> list[pa.Table]:
    """The same events in few tables, where the last one is new.

    Events may wait for long and come few at a time. A table costs kilobytes besides its rows, and
    time whenever somebody looks at what waits. So small tables are joined as soon as the next is
    about as large: a row is copied a few times at most, and those of large batches never.
    """
    few = list(tables)
    while len(few) > 1 and few[-2].num_rows < min(_SMALL, 2 * few[-1].num_rows):
        few[-2:] = [_joined(few[-2:])]
    return few


def split(tables: list[pa.Table], time: int) -> tuple[list[pa.Table], list[pa.Table]]:
    """Events before a time, and the others."""
    early, later = [], []
    for table in tables:
        before = _ints(table, TIME) < time
        passed = int(np.count_nonzero(before))
        if passed == len(before):
            early.append(table)
        elif not passed:
            later.append(table)
        else:
            early.append(take(table, np.flatnonzero(before)))
            later.append(take(table, np.flatnonzero(~before)))
    return early, later


def _joined(tables: list[pa.Table]) -> pa.Table:
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()


def _ordered(tables: list[pa.Table], keep: Mask | None) -> Ordered:
    """The rows of tables that are kept, or all, by key, time, arrival."""
    events = WaitingColumns(tables)
    columns = [events.numbers(name) for name in (ARRIVAL, TIME, KEY)]
    rows, (time, key) = sort_rows(*columns, keep=keep)
    return Ordered(events, rows, key, time)


def _numbers(array: pa.Array[Any]) -> Array:
    return truths(array) if pa.types.is_boolean(array.type) else array.to_numpy()


def _ints(table: pa.Table, name: str) -> Ints:
    return table.column(name).to_numpy()


def take(table: pa.Table, rows: Ints) -> pa.Table:
    """Some rows of a table."""
    columns = [_taken(one_piece(column), rows) for column in table.columns]
    return pa.table(columns, schema=table.schema)


def _taken(array: pa.Array[Any], rows: Ints) -> pa.Array[Any]:
    """Some rows of a column; of plain numbers, NumPy takes them faster than Arrow."""
    if _plain(array):
        values: pa.Array[Any] = pa.array(array.to_numpy().take(rows))
        return values
    return array.take(rows)


def _plain(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> bool:
    """Whether a column has numbers only."""
    numbers = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    return numbers and not column.null_count


def recode(table: pa.Table, place: Ints) -> pa.Table:
    """Renumbers the keys."""
    keys = pa.array(place[_ints(table, KEY)])
    return table.set_column(table.schema.get_field_index(KEY), KEY, keys)


def cut_rows(
    events: Ordered, cuts: Mask, group: Group, operators: Mapping[str, Operator]
) -> tuple[Rows, Ints]:
    """Slices sorted events at every edge and cut: the rows, and the first event of each."""
    low, high = int(events.time.min()), int(events.time.max())
    edges = slice_edges(group).around(events.time, low, high)
    new = cuts | events.first
    place = None
    if len(edges) > 2:
        place = np.searchsorted(edges, events.time, side="right") - 1
        new[1:] |= place[1:] != place[:-1]
    gap = smallest_gap(group.windows)
    if gap is not None:
        new[1:] |= events.time[1:] - events.time[:-1] > gap
    heads = np.flatnonzero(new)
    where = np.zeros(len(heads), np.int64) if place is None else place[heads]
    groups = Grouping(None, len(heads), starts=heads, rows=len(events))
    fields = flat(lift(_Read(events), groups, operators))
    last = np.append(heads[1:], len(events)) - 1
    rows = Rows(
        edges[where],
        edges[where + 1],
        events.key[heads],
        events.time[heads],
        events.time[last],
        fields,
    )
    return rows, heads


def slice_edges(group: Group) -> Edges:
    """Edges known ahead; sessions are cut at the data's own gaps here, and need no grid."""
    return edges_of([window for window in group.windows if window.session_gap is None])


class _Read(Batch):
    """Events whose expressions were evaluated on arrival: they are columns by their own text."""

    def __init__(self, events: Ordered) -> None:
        super().__init__(pa.table({}), events.time, 0)
        self._events = events
        self._columns = events.values

    def arrivals_at(self, rows: Ints | None) -> Ints:
        return self._events.ints(ARRIVAL, rows)

    def array(self, expression: str) -> pa.Array[Any]:
        return self._events.column(expression)
