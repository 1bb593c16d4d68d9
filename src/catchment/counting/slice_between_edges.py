"""The events of a lane and the partials between its edges, each as few bytes as possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.counting.fold import Fold
from catchment.counting.message import SlicePiece
from catchment.counting.orders import Key
from catchment.counting.windows import FullWindow
from catchment.counting.wire import Columns
from catchment.engine import codec, columns, settled
from catchment.engine.bound_group import BoundGroup
from catchment.engine.partials import CENSUS, full_windows
from catchment.engine.rows import Operators, Rows, concat_rows, merge_rows, no_rows
from catchment.operators import Grouping


class SliceBetweenEdges(Fold):
    """Makes partials of a lane's events by the operators of the group. Partials and events travel
    as bytes without key and schema, which both sides know."""

    def __init__(self, bound: BoundGroup) -> None:
        self.bound = bound
        self.operators: Operators = bound.operators
        self._schema = codec.rows_to_table(no_rows(self.operators), self.operators).schema
        self._events = bound.values
        self.base = 0
        self.tables: list[pa.Table] = []
        """The lane's events, from row `base` on; a node that has none has no tables."""

    @property
    def rows(self) -> int:
        return self.base + sum(table.num_rows for table in self.tables)

    def _chosen(self, events: Columns) -> pa.Table:
        """The lane's events of some rows."""
        table = self.tables[0] if len(self.tables) == 1 else pa.concat_tables(self.tables)
        self.tables = [table]
        return table.take(pa.array(events["row"] - self.base))

    def lift(self, events: Columns) -> bytes:
        return self._lift(self._chosen(events))

    def _lift(self, chosen: pa.Table) -> bytes:
        keys = pa.array(np.zeros(chosen.num_rows, np.int64))
        ordered = settled.ordered([chosen.add_column(0, settled.KEY, keys)])
        cuts = np.zeros(len(ordered), np.bool_)
        rows, _ = settled.cut_rows(ordered, cuts, self.bound.group, self.operators)
        return self.pack(self._one(rows))

    def merge(self, partials: Sequence[bytes]) -> bytes:
        found = [self.unpack(partial) for partial in partials]
        return self.pack(self._one(concat_rows(found, self.operators)))

    def count(self, partial: bytes) -> int | None:
        rows = self.unpack(partial)
        return int(np.asarray(rows.fields[CENSUS]).sum()) if CENSUS in rows.fields else None

    def raw(self, events: Columns) -> bytes:
        # Their times and arrivals are in the piece itself.
        table = self._chosen(events).select(self._events.names).cast(self._events)
        return columns.pack(table.combine_chunks()) if self._events.names else b""

    def lift_part(self, piece: SlicePiece, low: int, high: int) -> bytes:
        names = [settled.TIME, settled.ARRIVAL, *self._events.names]
        found: list[Any] = [piece.times, piece.arrivals]
        if self._events.names:
            found += columns.unpack(piece.data, self._events).columns
        return self._lift(pa.table(found, names).slice(low, high - low))

    def _one(self, rows: Rows) -> Rows:
        starts = np.zeros(1, np.int64)
        groups = Grouping(None, 1, starts=starts, rows=len(rows))
        return merge_rows(rows, groups, self.operators) if len(rows) > 1 else rows

    def pack(self, rows: Rows) -> bytes:
        return columns.pack(codec.rows_to_table(rows, self.operators).combine_chunks())

    def unpack(self, body: bytes) -> Rows:
        return codec.table_to_rows(columns.unpack(body, self._schema), self.operators)

    def to_bytes(self) -> bytes:
        """The events; `load` takes them back."""
        return codec.to_ipc(pa.concat_tables(self.tables)) if self.tables else b""

    def load(self, base: int, events: bytes) -> None:
        self.base, self.tables = base, [codec.from_ipc(events)] if events else []

    def prune(self, row: int) -> None:
        """Forgets the events before a row."""
        if self.tables and row > self.base:
            table = pa.concat_tables(self.tables).slice(row - self.base)
            self.tables = [table.combine_chunks()] if table.num_rows else []
            self.base = row


def full_of(lift: SliceBetweenEdges, key: Key, windows: list[FullWindow]) -> pa.Table:
    """Windows of a key that are full, as partials of their group."""
    bound = lift.bound
    rows = concat_rows([lift.unpack(w.partial) for w in windows], lift.operators)
    columns = [
        pa.array([value] * len(windows), bound.key_types[name])
        for name, value in zip(bound.group.by, key.values, strict=True)
    ]
    told = np.array([[w.kind, w.number, key.selection] for w in windows], np.int64)
    kinds, numbers, selection = told.T
    return full_windows(bound, kinds, numbers, rows, selection, columns)
