"""Rows that an engine sets aside, late ones and bad ones, until somebody takes them.

What is held is bounded in bytes. Past the limit everything held goes to `spill`, which writes it to
a file; where there is no such place, the rows that do not fit are dropped, and counted as dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from catchment.errors import QueryError
from catchment.model.capacity import ASIDE_BYTES, Capacity

Spill = Callable[[str, pa.Table], bool | None]
"""Writes rows of a kind (`late` or `bad`) to a place that outlives the buffer; False: it is full.
"""

_OVERHEAD = 1 << 10
"""Bytes that a table takes besides its values."""
_MANY = 256
"""Tables of a kind that may be held apart: many small ones are joined."""


def aside_limit(limit: int) -> int:
    """The limit, if it is one."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise QueryError(
            "aside_bytes is not a number of bytes", given=repr(limit), hint="try 64 << 20, or 0"
        )
    return limit


class SetAside:
    """A bounded buffer of rows by kind. All kinds share one limit."""

    def __init__(self, limit: int = ASIDE_BYTES, spill: Spill | None = None) -> None:
        self.limit = aside_limit(limit)
        self.spill = spill
        self.spilled = self.dropped = 0
        """Rows that went to `spill`, and rows that nobody has any more."""
        self.nbytes = 0
        self._held: dict[str, list[pa.Table]] = {}

    def add(self, kind: str, rows: pa.Table) -> None:
        """Takes rows in; those that do not fit are spilled or dropped."""
        if not rows.num_rows:
            return
        rows = _small(rows)
        if self.nbytes + _size(rows) > self.limit:
            if self.spill is not None:
                self._spill(kind, rows)
                return
            fitting = _fitting(rows, self.limit - self.nbytes)
            self.dropped += rows.num_rows - fitting
            rows = rows.slice(0, fitting)
            if not fitting:
                return
        held = self._held.setdefault(kind, [])
        held.append(rows)
        self.nbytes += _size(rows)
        if len(held) > _MANY:
            self._join(kind)

    def _spill(self, kind: str, rows: pa.Table) -> None:
        assert self.spill is not None
        held = {name: list(tables) for name, tables in self._held.items()}
        held.setdefault(kind, []).append(rows)
        self._held, self.nbytes = {}, 0
        for name, tables in held.items():
            table = joined(tables)
            if self.spill(name, table) is False:
                self.dropped += table.num_rows
            else:
                self.spilled += table.num_rows

    def _join(self, kind: str) -> None:
        try:
            whole = joined(self._held[kind]).combine_chunks()
        except pa.ArrowException:
            return  # tables of different columns stay apart; `take` says what is wrong
        self.nbytes += _size(whole) - sum(_size(table) for table in self._held[kind])
        self._held[kind] = [whole]

    def take(self, kind: str) -> pa.Table | None:
        """The rows of a kind that are held, which are then held no more; None: there are none."""
        tables = self._held.pop(kind, [])
        self.nbytes -= sum(_size(table) for table in tables)
        return joined(tables) if tables else None

    def drained(self) -> dict[str, pa.Table]:
        """The rows that are held, by kind, which are then held no more."""
        return {kind: rows for kind in [*self._held] if (rows := self.take(kind)) is not None}

    def tables(self) -> dict[str, list[pa.Table]]:
        """What is held, by kind."""
        return {kind: list(tables) for kind, tables in self._held.items()}

    def capacity(self) -> Capacity:
        then = "the oldest rows are written to a file" if self.spill else "rows are dropped"
        return Capacity("rows set aside, in memory", self.nbytes, self.limit, "bytes", then)


def joined(tables: list[pa.Table]) -> pa.Table:
    """Tables one after the other; a column that some lack is null there."""
    return pa.concat_tables(tables, promote_options="permissive")


def _size(table: pa.Table) -> int:
    return table.nbytes + _OVERHEAD


def _fitting(table: pa.Table, room: int) -> int:
    """How many of the first rows fit; values may differ in length."""
    low, high = 0, table.num_rows
    while low < high:
        middle = (low + high + 1) // 2
        if _size(table.slice(0, middle)) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def _small(rows: pa.Table) -> pa.Table:
    """Rows without the texts of others: a dictionary belongs to the whole batch they came from."""
    for number, column in enumerate(rows.columns):
        if isinstance(column.type, pa.DictionaryType) and _spacious(column, rows.num_rows):
            compact: Any = column.cast(column.type.value_type).dictionary_encode()
            rows = rows.set_column(number, rows.schema.names[number], compact.cast(column.type))
    return rows


def _spacious(column: Any, rows: int) -> bool:
    return int(sum(len(chunk.dictionary) for chunk in column.chunks)) > rows
