"""A batch of events, read once: columns, conditions and keys are evaluated once for all groups."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from catchment.engine.choosing import chooser, condition_sets
from catchment.engine.keys import Encoder, LocalKeys, distinct, joined
from catchment.engine.texts import Texts
from catchment.expression import evaluate
from catchment.model.query import ALONE
from catchment.model.window import STREAM
from catchment.operators.base import InputForm, is_exact
from catchment.operators.ragged import Array, Ints
from catchment.operators.values import (
    ColumnValues,
    Mask,
    column_of,
    column_of_texts,
    of_truths,
    one_piece,
    truths,
)

_MANY = 8
"""Selections from which they are looked up together, where they can be. Of fewer each is evaluated:
other groups may have the same conditions, and share what was found."""
_FEW = 4
"""Where not even one event in so many is wanted, their values are hashed and not the column."""

_CELLS = 1 << 16
"""Cells of a grid that are not too many, however few events there are."""
_GRIDS = 4
"""Grids of a batch that are remembered."""


class Chosen(NamedTuple):
    """The events that meet a group's selections: their rows (None: all), and the one each meets."""

    rows: Ints | None
    selection: Ints | None

    def of(self, values: Array) -> Array:
        return values if self.rows is None else values.take(self.rows)

    def where(self, keep: Mask) -> Chosen:
        """The chosen events kept."""
        rows = np.flatnonzero(keep) if self.rows is None else self.rows[keep]
        return Chosen(rows, None if self.selection is None else self.selection[keep])


class Batch:
    """Events whose times are known; `arrival` is the number of the first in order of arrival."""

    def __init__(
        self,
        table: pa.Table,
        times: Ints,
        arrival: int,
        encoder: Encoder | None = None,
        stream: str = ALONE,
    ) -> None:
        self.table = table
        self.stream = stream
        """Whose events they are."""
        self.times = times
        self.arrival = arrival
        self.encoder = encoder or Encoder()
        self._arrays: dict[str, pa.Array[Any]] = {}
        self._columns: dict[tuple[str, InputForm], ColumnValues] = {}
        self._masks: dict[str, Mask] = {}
        self._keys: dict[tuple[str, ...], LocalKeys] = {}
        self._chosen: dict[tuple[str | None, ...], Chosen] = {}
        self._part: SomeEvents | None = None
        self._grids: list[Grid] = []
        self._sets: dict[tuple[str, ...], tuple[Ints, Ints]] = {}

    def __len__(self) -> int:
        return len(self.times)

    @cached_property
    def arrivals(self) -> Ints:
        return np.arange(self.arrival, self.arrival + len(self), dtype=np.int64)

    def arrivals_at(self, rows: Ints | None) -> Ints:
        """The arrivals of some rows (None: of all)."""
        return self.arrivals if rows is None else self.arrivals.take(rows)

    @cached_property
    def in_order(self) -> bool:
        return bool((self.times[1:] >= self.times[:-1]).all())

    @cached_property
    def span(self) -> tuple[int, int]:
        """The earliest and the latest time."""
        if self.in_order:
            return int(self.times[0]), int(self.times[-1])
        return int(self.times.min()), int(self.times.max())

    def grid(self, unit: int) -> Grid | None:
        """A grid whose lines are all multiples of a unit, and perhaps others between them; None
        where it would have many more cells than there are events.

        Groups whose edges lie on the lines of one grid find the cells of events once.
        """
        for known in self._grids:
            if unit % known.unit == 0:
                return known
        first, last = (time // unit for time in self.span)
        if last - first >= max(2 * len(self), _CELLS):
            return None
        made = Grid(unit, first, last - first + 1, self.times)
        self._grids = [made, *self._grids[: _GRIDS - 1]]
        return made

    @cached_property
    def in_time(self) -> tuple[Batch, Batch] | None:
        """The events that come no earlier than any before them, and the others, where these are
        few: None otherwise."""
        kept = self.times == np.maximum.accumulate(self.times)
        if 2 * np.count_nonzero(kept) < len(self):
            return None
        return self.some(np.flatnonzero(kept)), self.some(np.flatnonzero(~kept))

    def some(self, rows: Ints) -> Batch:
        """Some of the events, whose columns are taken from those of all."""
        return SomeEvents(self, rows)

    def of(self, chosen: Chosen) -> Batch:
        """The chosen events. Those of the last time are kept: groups of the same conditions, one
        after the other, share all that is found out about them."""
        if chosen.rows is None:
            return self
        if self._part is None or self._part.rows is not chosen.rows:
            self._part = SomeEvents(self, chosen.rows)
        return self._part

    def where(self, keep: Mask) -> Batch:
        """The events kept."""
        table = self.table.filter(of_truths(keep))
        kept = Batch(table, self.times[keep], self.arrival, self.encoder, self.stream)
        kept.arrivals = self.arrivals[keep]
        return kept

    def at(self, time: int) -> Batch:
        """The same events, all at one time."""
        times = np.full(len(self), time, np.int64)
        moved = Batch(self.table, times, self.arrival, self.encoder, self.stream)
        moved.arrivals = self.arrivals
        return moved

    def array(self, expression: str) -> pa.Array[Any]:
        """The values of an SQL expression, or the stream that events are of."""
        if expression == STREAM:
            return pa.repeat(pa.scalar(self.stream), len(self))
        if expression not in self._arrays:
            self._arrays[expression] = evaluate(expression, self.read, len(self))
        return self._arrays[expression]

    def read(self, name: str) -> pa.Array[Any]:
        """A column of the events."""
        column = self.table.column(name)
        return one_piece(column) if isinstance(column, pa.ChunkedArray) else column

    def form(self, expression: str, reads: InputForm) -> InputForm:
        """The form in which an expression is read: of plain numbers, two forms are one."""
        if reads in ("hashes", "parts") or is_exact(self.array(expression).type):
            return reads
        return "values"

    def column(self, expression: str, reads: InputForm = "doubles") -> ColumnValues:
        """The values of an SQL expression as operators work on them."""
        if reads == "hashes":
            hashes: tuple[str, InputForm] = (expression, reads)
            if hashes not in self._columns:
                self._columns[hashes] = self.column(expression, "values").hashed()
            return self._columns[hashes]
        array = self.array(expression)
        place = expression, self.form(expression, reads)
        if place not in self._columns:
            keys = self._keys.get((expression,)) if expression.isidentifier() else None
            if keys is not None and keys.codes is not None and Texts.takes(array):
                present, codes = distinct(keys.codes)  # the texts are told apart already
                made = column_of_texts(codes, keys.parts[0].take(present))
            else:
                made = column_of(array, place[1])
            self._columns[place] = made
        return self._columns[place]

    def column_at(self, expression: str, reads: InputForm, rows: Ints | None) -> ColumnValues:
        """The same of some rows only (None: of all)."""
        if rows is None:
            return self.column(expression, reads)
        few = reads == "hashes" and _FEW * len(rows) < len(self)
        if few and (expression, reads) not in self._columns:
            return self.column(expression, "values").take(rows).hashed()
        return self.column(expression, reads).take(rows)

    def mask(self, condition: str) -> Mask:
        """Where a condition holds; null does not."""
        if condition not in self._masks:
            met = self.array(condition)
            if pa.types.is_null(met.type):
                met = met.cast(pa.bool_())
            self._masks[condition] = truths(met.fill_null(False))
        return self._masks[condition]

    def sets(self, conditions: tuple[str, ...]) -> tuple[Ints, Ints]:
        """The sets of conditions that events meet, as bits, and the place of each event's set."""
        if conditions not in self._sets:
            made = condition_sets(conditions)
            self._sets[conditions] = made.of(len(self), self.read, self.mask)
        return self._sets[conditions]

    def keys(self, by: tuple[str, ...]) -> LocalKeys:
        """The keys by columns and expressions; no column is called like one of these."""
        if by not in self._keys:
            if by == (STREAM,):
                codes = np.zeros(len(self), np.int64)
                self._keys[by] = LocalKeys(codes, [pa.array([self.stream])])
            elif len(by) == 1:
                self._keys[by] = self.encoder.encode(by[0], self._key(by[0]))
            else:
                self._keys[by] = joined([self.keys((text,)) for text in by])
        return self._keys[by]

    def _key(self, text: str) -> pa.Array[Any]:
        return self.read(text) if text in self.table.schema.names else self.array(text)

    def chosen(self, selections: tuple[str | None, ...]) -> Chosen:
        """The events that meet the selections of a group."""
        if selections == (None,):
            return Chosen(None, None)
        if selections not in self._chosen:
            self._chosen[selections] = self._choose(selections)
        return self._chosen[selections]

    def _choose(self, selections: tuple[str | None, ...]) -> Chosen:
        if len(selections) == 1 and selections[0] is not None:
            return Chosen(np.flatnonzero(self.mask(selections[0])), None)
        if len(selections) < _MANY:
            met = np.full(len(self), -1, np.int64)
            for number, condition in enumerate(selections):
                met[slice(None) if condition is None else self.mask(condition)] = number
        else:
            met = chooser(selections).choose(len(self), self.read, self.mask)
        rows = np.flatnonzero(met >= 0)
        return Chosen(rows, met[rows] if len(selections) > 1 else None)


class SomeEvents(Batch):
    """Some events of a batch; each column is taken from that of the whole batch once."""

    def __init__(self, whole: Batch, rows: Ints) -> None:
        times = whole.times.take(rows)
        super().__init__(pa.table({}), times, whole.arrival, whole.encoder, whole.stream)
        self.whole = whole
        self.rows = rows

    def read(self, name: str) -> pa.Array[Any]:
        rows: Any = pa.array(self.rows)
        return self.whole.read(name).take(rows)

    def arrivals_at(self, rows: Ints | None) -> Ints:
        return self.whole.arrivals_at(self.rows if rows is None else self.rows.take(rows))

    def array(self, expression: str) -> pa.Array[Any]:
        if expression not in self._arrays:
            rows: Any = pa.array(self.rows)
            self._arrays[expression] = self.whole.array(expression).take(rows)
        return self._arrays[expression]

    def column(self, expression: str, reads: InputForm = "doubles") -> ColumnValues:
        place = expression, self.form(expression, reads)
        if place not in self._columns:
            self._columns[place] = self.whole.column_at(expression, reads, self.rows)
        return self._columns[place]

    def form(self, expression: str, reads: InputForm) -> InputForm:
        return self.whole.form(expression, reads)

    def keys(self, by: tuple[str, ...]) -> LocalKeys:
        if by not in self._keys:
            self._keys[by] = self.whole.keys(by).at(self.rows)
        return self._keys[by]


class Grid:
    """The cells of evenly spaced lines that times are in; the first line is no later than any."""

    def __init__(self, unit: int, first: int, count: int, times: Ints) -> None:
        self.unit = unit
        self.lines = (first + np.arange(count)) * unit
        """Where each cell begins."""
        since = times - first * unit
        self.cells: Ints = (since.view(np.uint64) // np.uint64(unit)).view(np.int64)
        """The number of each time's cell; unsigned, which is faster than signed."""
