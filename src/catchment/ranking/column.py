"""What both kinds of values that are asked for have in common: sorted values, and counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from catchment.counting import wire
from catchment.operators.ragged import Array, Ints, Ragged
from catchment.ranking.message import (
    CountAnswer,
    CountQuestion,
    CountSummary,
    RunAnswer,
    RunQuestion,
    RunSummary,
)

SAMPLE = 1 << 14
"""Values that are packed to see how many bytes they take."""


class AskedRow(NamedTuple):
    """A row that a question is about: its number, its values, and the place in the question."""

    number: int
    values: Any
    place: int


class SearchedColumn(ABC):
    """Values of a group that may be asked for; of each row, as `held` gives them."""

    field: str
    """The name by which both sides call it."""
    fields: dict[str, Any]
    """The columns of partials that it is made of, and the NumPy type of what they hold."""
    all: bool
    """Whether some function needs every value."""
    nothing: ClassVar[Any]
    """The values of a row that has none."""

    @abstractmethod
    def sizes(self, table: pa.Table) -> Ints:
        """How many values each row of a table of partials has."""

    @abstractmethod
    def costs(self, table: pa.Table, searches: int, overlaps: int) -> tuple[Array, Array]:
        """Of each row, the bytes that its values take, and those of questions about them; it is in
        so many windows of a type, about."""

    @abstractmethod
    def held(self, table: pa.Table) -> list[Any]:
        """The values of each row."""

    @abstractmethod
    def lists(self, rows: list[Any]) -> dict[str, pa.Array[Any]]:
        """The inverse of `held`."""

    @abstractmethod
    def summary(self, table: pa.Table, searches: int) -> RunSummary | CountSummary:
        """What a node tells of rows that it holds."""

    @abstractmethod
    def answer(
        self, question: RunQuestion | CountQuestion, rows: list[AskedRow]
    ) -> RunAnswer | CountAnswer:
        """What a node tells of rows that it is asked about."""


def list_column(table: pa.Table, field: str) -> tuple[Ints, Any]:
    """Offsets and values of a column of lists; of one that an older plan did not have, none."""
    if field not in table.schema.names:
        return np.zeros(table.num_rows + 1, np.int64), pa.array([], pa.int64())
    column = table.column(field).combine_chunks()
    array: Any = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    offsets = array.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0], array.values.slice(offsets[0], offsets[-1] - offsets[0])


def rows_of(run: Ragged) -> list[Array]:
    """The values of each row."""
    ends = zip(run.offsets[:-1].tolist(), run.offsets[1:].tolist(), strict=True)
    return [run.values[begin:end] for begin, end in ends]


def bytes_each(values: Ints) -> float:
    """Bytes that a number takes on the way, about."""
    some = values[:SAMPLE]
    return len(wire.dump(some)) / max(len(some), 1)
