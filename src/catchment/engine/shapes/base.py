"""The protocol of shapes: what a group of queries asks of the state of its windows.

A group has one state for each shape among its windows. Slices come in by `absorb`, settled events
by `follow`; `complete` gives the windows that have ended. The rest is housekeeping: going on from
the state of an older plan, renumbering keys, and becoming tables and back.

    rows (slices) ------ absorb ------>  +------------+
                                         | ShapeState |  -- complete(moment) --> windows
    settled events -- follow, settle --> +------------+

The base class answers for a shape that has nothing to do at that point.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import pyarrow as pa

from catchment.engine import codec
from catchment.engine.complete import Complete
from catchment.engine.rows import Operators, Rows
from catchment.engine.settled import Ordered
from catchment.model.window import Window
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask


class Moment(NamedTuple):
    """How far time has come when windows are completed."""

    before: int
    """The frontier up to now."""
    frontier: int
    """The frontier from now on: windows that end by it are complete."""
    horizon: int
    """Windows that end by it are final; it is the frontier where late events correct nothing."""
    sure: int
    """What ended after it may lack events that somebody has not sent yet."""
    loose: Rows
    """What events between horizon and frontier were cut to, which may still change."""
    live: Collection[str] | None
    """The streams that may still bring events; None: all that did."""


class Change(NamedTuple):
    """What a group's state goes on from when the plan changes."""

    newest: int
    """The newest event so far, which new windows have not seen."""
    since: int | None
    """The same; None where there has been none, so that nothing was missed."""
    frontier: int
    cut_until: int
    """The time up to which events may have been cut by the older plan."""
    windows: tuple[Window, ...]
    """The windows of the older plan."""


Settle = Callable[[Rows, Ints, bool], Complete]
"""Takes the rows that events were cut to and the first event of each; gives the windows that
ended. The state moves on only where the last argument is True."""


class Followed(NamedTuple):
    """What windows bounded by events make of settled events: where to cut, and what to do then."""

    cuts: Mask
    settle: Settle


class ShapeState:
    """What is kept for a group's windows of one shape; `places` are those of its types there."""

    name: ClassVar[str]
    """Of its part of a snapshot."""
    keeps_keys: ClassVar[bool] = False
    """Whether it needs all keys for good."""
    operators: Operators
    places: list[int]
    slices: int = 0
    """How many slices have settled here."""

    # -- slices and events in --------------------------------------------------------------------

    def absorb(self, rows: Rows) -> None:
        """Takes in slices, made here or elsewhere."""

    def late(self, times: Ints) -> None:
        """Hears of events before the frontier; windows said already may have changed."""

    def follow(self, events: Ordered) -> Iterable[Followed]:
        """Follows windows through settled events."""
        return ()

    # -- windows out -----------------------------------------------------------------------------

    def complete(self, moment: Moment) -> list[Complete]:
        """The windows complete now."""
        return []

    def ended(self, place: int, until: int, frontier: int, waiting: bool) -> bool:
        """Whether no window of a type that began by a time is still open.

        `waiting` says whether events up to that time wait to be cut.
        """
        raise NotImplementedError

    def unended(self, newest: int) -> Iterator[tuple[Complete, int]]:
        """At the end of the input, by type: the windows that are open, and the events in them."""
        yield from ()

    # -- plans -----------------------------------------------------------------------------------

    def begin(self, frontier: int, newest: int) -> None:
        """Starts in the middle of a stream, whose events up to `newest` nobody has seen here."""

    def continue_from(self, old: Self | None, change: Change) -> None:
        """Goes on from the state of the same shape in an older plan; None: it had no such window.

        Types that were there before keep their windows, others begin now.
        """

    # -- keys and memory -------------------------------------------------------------------------

    def tables(self) -> list[Rows]:
        """All rows that are held; the group renumbers their keys."""
        return []

    def needed_keys(self) -> list[Ints]:
        """The keys needed besides those of `tables`."""
        return []

    def recode(self, place: Ints) -> None:
        """Renumbers the keys that are not in `tables`, after those that are."""

    @property
    def nbytes(self) -> int:
        """Of what is not in `tables`."""
        return 0

    # -- as tables -------------------------------------------------------------------------------

    def save(self, put: Put) -> Any:
        """Puts tables into a snapshot; gives what is no table, as plain data."""
        return None

    def load(self, get: Get, meta: Any) -> None:
        """The inverse of `save`."""


class Put:
    """Where a state puts its tables: into a snapshot, under names of its own."""

    def __init__(self, tables: dict[str, pa.Table], prefix: str, operators: Operators) -> None:
        self._tables, self._prefix, self._operators = tables, prefix, operators

    def rows(self, name: str, rows: Rows) -> None:
        self.table(name, codec.rows_to_table(rows, self._operators))

    def table(self, name: str, table: pa.Table) -> None:
        self._tables[self._prefix + name] = table

    def ints(self, name: str, **columns: Ints) -> None:
        self.table(name, pa.table({title: pa.array(column) for title, column in columns.items()}))


class Get:
    """Where a state finds its tables again."""

    def __init__(self, tables: Mapping[str, pa.Table], prefix: str, operators: Operators) -> None:
        self._tables, self._prefix, self._operators = tables, prefix, operators

    def rows(self, name: str) -> Rows:
        return codec.table_to_rows(self.table(name), self._operators)

    def table(self, name: str) -> pa.Table:
        return self._tables[self._prefix + name]

    def ints(self, name: str, column: str) -> Ints:
        return codec.ints(self.table(name), column)
