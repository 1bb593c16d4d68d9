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
    one_piece,
)

_MANY = 8
"""Selections from which they are looked up together, where they can be. Of fewer each is evaluated:
other groups may have the same conditions, and share what was found."""
_FEW = 4
"""Where not even one event in so many is wanted, their values are hashed and not the column."""


class Chosen(NamedTuple):
    """The events that meet a group's selections: their rows (None: all), and the one each meets."""

    rows: Ints | None
    selection: Ints | None

    def of(self, values: Array) -> Array:
        return values if self.rows is None else values.take(self.rows)

    def at(self, rows: Ints) -> Chosen:
        """Some of the chosen events, where there is but one selection."""
        return Chosen(rows if self.rows is None else self.rows[rows], None)

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

    def where(self, keep: Mask) -> Batch:
        """The events kept."""
        table = self.table.filter(pa.array(keep))
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

    def column(self, expression: str, reads: InputForm = "doubles") -> ColumnValues:
        """The values of an SQL expression as operators work on them."""
        if reads == "hashes":
            hashes: tuple[str, InputForm] = (expression, reads)
            if hashes not in self._columns:
                self._columns[hashes] = self.column(expression, "values").hashed()
            return self._columns[hashes]
        array = self.array(expression)
        told = reads == "parts" or is_exact(array.type)
        place: tuple[str, InputForm] = (expression, reads if told else "values")
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
            self._masks[condition] = met.fill_null(False).to_numpy(zero_copy_only=False)
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
        if len(selections) < _MANY:
            met = np.full(len(self), -1, np.int64)
            for number, condition in enumerate(selections):
                met[slice(None) if condition is None else self.mask(condition)] = number
        else:
            met = chooser(selections).choose(len(self), self.read, self.mask)
        rows = np.flatnonzero(met >= 0)
        return Chosen(rows, met[rows] if len(selections) > 1 else None)
