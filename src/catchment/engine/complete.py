"""Complete windows of any type, and how they become blocks of results."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from catchment.engine.keys import KeyIndex
from catchment.engine.results import Block
from catchment.engine.rows import Operators, Rows
from catchment.operators.ragged import Array, Field, Ints, take
from catchment.operators.values import Mask

Spans = list[tuple[int, int, int, int]]
"""Rows of a block by window and selection: window, selection, low, high."""


@dataclass(slots=True)
class Complete:
    """Complete windows: the place of each one's type in the group, its key, bounds and fields.

    `index` is there where bounds may repeat, and tells such windows apart: it is the number of a
    count window or of one read as `ordered` among those of its key, and of other windows bounded
    by marks the number among those of its key (and node) with the same bounds.
    """

    kind: Ints
    key: Ints
    start: Ints
    end: Ints
    fields: dict[str, Field] = field(default_factory=dict)
    index: Ints | None = None
    revision: Ints | None = None
    retracted: Mask | None = None
    node: Array | None = None
    rows: Ints | None = None
    """Of each window, the row that it has of the fields; None: each has its own. Windows that hold
    the same slices share a row where partials are large."""

    def __len__(self) -> int:
        return len(self.key)

    def take(self, rows: Ints) -> Complete:
        def some(values: Array | None) -> Array | None:
            return None if values is None else values[rows]

        fields = self.fields
        if self.rows is None:
            fields = {name: take(column, rows) for name, column in fields.items()}
        return Complete(
            self.kind[rows],
            self.key[rows],
            self.start[rows],
            self.end[rows],
            fields,
            some(self.index),
            some(self.revision),
            some(self.retracted),
            some(self.node),
            some(self.rows),
        )

    def column(self, name: str) -> Field:
        """A field, of each window."""
        column = self.fields[name]
        return column if self.rows is None else take(column, self.rows)


def of_type(place: int, rows: Rows, start: Ints, end: Ints) -> Complete:
    """Windows of one type, a row each."""
    return Complete(np.full(len(rows), place, np.int64), rows.key, start, end, rows.fields)


def number_alike(*columns: Ints) -> Ints:
    """The number of each row among those equal to it, which stand next to each other.

    >>> number_alike(np.array([1, 1, 1, 2]), np.array([5, 5, 6, 6])).tolist()
    [0, 1, 0, 0]
    """
    rows = np.arange(len(columns[0]))
    alike = np.zeros(len(rows), np.bool_)
    alike[1:] = np.all([column[1:] == column[:-1] for column in columns], axis=0)
    if not alike.any():
        return np.zeros(len(rows), np.int64)
    head: Ints = np.maximum.accumulate(np.where(alike, 0, rows))
    return rows - head


def to_block(windows: Complete, keys: KeyIndex, operators: Operators) -> tuple[Block, Spans]:
    """Sorted so that each query's rows stand together."""
    selection = keys.selections[windows.key] if len(windows) else windows.key
    if (np.diff(windows.kind) < 0).any() or selection.any():
        order = np.lexsort((windows.start, selection, windows.kind))
        windows, selection = windows.take(order), selection[order]
    fields = windows.fields
    merged = {
        id: operator
        for id, operator in operators.items()
        if all(f"{id}.{name}" in fields for name in operator.fields)
    }
    block = Block(
        keys,
        windows.key,
        windows.start,
        windows.end,
        fields,
        merged,
        windows.index,
        windows.revision,
        windows.retracted,
        windows.node,
        windows.rows,
    )
    return block, _spans(windows.kind, selection)


def _spans(kind: Ints, selection: Ints) -> Spans:
    new = np.ones(len(kind), np.bool_)
    new[1:] = (kind[1:] != kind[:-1]) | (selection[1:] != selection[:-1])
    heads = np.flatnonzero(new)
    tails = [*heads[1:].tolist(), len(kind)]
    return list(
        zip(kind[heads].tolist(), selection[heads].tolist(), heads.tolist(), tails, strict=True)
    )
