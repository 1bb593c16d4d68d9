"""What a query makes of its aggregates when a window is complete.

Windows compute plain aggregates, which queries share. What a query selects may be more: expressions
over aggregates, keys and bounds, a condition on them (HAVING), the first rows of each window in
some order, and subtotals over some of the keys. All that is an `Output`, computed where results are
assembled. Expressions name an aggregate by its text, as in `sum(a)`, in backticks.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUPING_ID = "grouping_id"
"""The result column that tells subtotals apart: a bit for each key, set where it is summed over."""
MOST_SETS = 1024
"""Sets of keys that a query may have: those of a cube of ten keys."""


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A result column and the expression that it is computed by."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class RowOrder:
    """An expression that the rows of a window are ordered by."""

    expression: str
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class Output:
    """The columns of a query's results besides keys and bounds, and which rows there are.

    `order` sorts the rows of each window, and `limit` keeps the first of them; rows that are equal
    in all of `order` come in order of their keys. `sets` are sets of keys: for each of them there
    is a row for every window and combination of its keys, in which the other keys are null.
    """

    columns: tuple[OutputColumn, ...] = ()
    having: str | None = None
    order: tuple[RowOrder, ...] = ()
    limit: int | None = None
    sets: tuple[tuple[str, ...], ...] = ()

    @property
    def whole(self) -> bool:
        """Whether it takes all keys of a window together, in one place."""
        return bool(self.order or self.sets)

    @property
    def selects(self) -> bool:
        """Whether there may be other rows than one for each key and window."""
        return self.having is not None or self.limit is not None or bool(self.sets)


def grouping_name(key: str) -> str:
    """How expressions name the bit of a key that tells whether it is summed over."""
    return f"grouping({key})"
