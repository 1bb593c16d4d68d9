"""The protocol of shapes: what a group of queries asks of the state of its windows.

A group has one state for each shape among its windows. Slices come in by `absorb`, settled events
by `follow`; `complete` gives the windows that have ended. The rest is housekeeping: going on from
the state of an older plan, renumbering keys, and becoming tables and back.

    rows (slices) ------ absorb ------>  +------------+
                                         | ShapeState |  -- complete(moment) --> windows
    settled events -- follow, settle --> +------------+

Where a shape may have nothing to do, the base class does nothing; the rest is for each to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import ClassVar, NamedTuple, Self, TypeVar

import msgspec
import pyarrow as pa

from catchment.engine import codec
from catchment.engine.bound_group import BoundGroup
from catchment.engine.complete import Complete
from catchment.engine.rows import Operators, Rows, concat_rows
from catchment.engine.settled import Ordered
from catchment.model import records
from catchment.model.window import Window
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask

_T = TypeVar("_T")


class Moment(NamedTuple):
    """How far time has come when windows are completed."""

    before: int
    """The frontier up to now."""
    frontier: int
    """The frontier from now on: windows that end by it are complete."""
    horizon: int
    """Windows that end by it are final; it is the frontier where late events correct nothing."""
    complete_until: int
    """What ended after it may lack events that somebody has not sent yet."""
    loose: Rows
    """What events between horizon and frontier were cut to, which may still change."""
    live: Collection[str] | None
    """The streams that may still bring events; None: all that did."""
    ahead: int
    """Windows that end by it are given, those that end after the frontier as running values. It is
    the frontier, or later than any window ends."""


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


Settle = Callable[[Rows, Ints, bool], list[Complete]]
"""Takes the rows that events were cut to and the first event of each; gives the windows that
ended. The state moves on only where the last argument is True."""


class Followed(NamedTuple):
    """What windows bounded by events make of settled events: where to cut, and what to do then."""

    cuts: Mask
    settle: Settle


_UNTIDY = 1 << 23
"""Bytes of rows that may pile up before they are merged."""
_PARTS = 64
"""Tables of rows that may pile up, however small."""


class UnmergedRows:
    """Rows that came since the last time that all were merged."""

    def __init__(self) -> None:
        self.rows: list[Rows] = []
        self._added = 0

    def add(self, rows: Rows) -> None:
        self.rows.append(rows)
        self._added += rows.nbytes

    def untidy(self, merged: int) -> bool:
        """Whether to merge them now with the rows, of so many bytes, that were merged before.

        As each merge reads these too, there must be more new ones the more of them there are.
        """
        return len(self.rows) > _PARTS or self._added > _UNTIDY + 2 * merged

    def emptied(self, operators: Operators) -> Rows:
        """All rows in one table; none are left."""
        rows = concat_rows(self.rows, operators)
        self.rows, self._added = [], 0
        return rows


class ShapeState(ABC):
    """What is kept for a group's windows of one shape; `places` are those of its types there."""

    name: ClassVar[str]
    """The name of its part of a snapshot."""
    keeps_keys: ClassVar[bool] = False
    """Whether it needs all keys for good."""
    slices: int = 0
    """How many slices have settled here."""

    def __init__(self, bound: BoundGroup, windows: Mapping[int, Window]) -> None:
        """`windows` are those of the group that have the shape, by their places in it."""
        self.operators = bound.operators
        self.places = list(windows)

    # -- slices and events in --------------------------------------------------------------------

    def absorb(self, rows: Rows) -> None:
        """Takes in slices, made here or elsewhere."""
        return

    def merge(self) -> None:
        """Merges what has come, so that no more is held than windows need."""
        return

    def late(self, times: Ints) -> None:
        """Hears of events before the frontier; windows said already may have changed."""
        return

    def follow(self, events: Ordered) -> Iterable[Followed]:
        """Follows windows through settled events."""
        return ()

    # -- windows out -----------------------------------------------------------------------------

    def complete(self, moment: Moment) -> list[Complete]:
        """The windows complete now."""
        return []

    def next_end(self, frontier: int) -> int | None:
        """When the first window that is open at the frontier ends if no more events join it, where
        that is not known ahead."""
        return None

    @abstractmethod
    def ended(self, place: int, until: int, frontier: int, waiting: bool) -> bool:
        """Whether no window of a type that began by a time is still open.

        `waiting` says whether events up to that time wait to be cut.
        """

    def unended(self, newest: int) -> Iterator[tuple[Complete, int]]:
        """At the end of the input, by type: the windows that are open, and the events in them."""
        yield from ()

    # -- plans -----------------------------------------------------------------------------------

    @abstractmethod
    def begin(self, frontier: int, newest: int) -> None:
        """Starts in the middle of a stream, whose events up to `newest` nobody has seen here."""

    @abstractmethod
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
        return

    @property
    def nbytes(self) -> int:
        """Bytes of state that is not in `tables`."""
        return 0

    # -- as tables -------------------------------------------------------------------------------

    @abstractmethod
    def save(self, put: Put) -> None:
        """Puts its tables, and a record of what is no table, into a snapshot."""

    @abstractmethod
    def load(self, get: Get) -> None:
        """The inverse of `save`."""


class Put:
    """Where a state puts its tables and its record: into a snapshot, under names of its own."""

    def __init__(self, tables: dict[str, pa.Table], prefix: str, operators: Operators) -> None:
        self._tables, self._prefix, self._operators = tables, prefix, operators
        self.saved = msgspec.Raw(b"null")
        """The record, if the state has put one."""

    def record(self, record: object) -> None:
        """Puts the record; a state has at most one."""
        self.saved = msgspec.Raw(records.encode(record))

    def rows(self, name: str, rows: Rows) -> None:
        self.table(name, codec.rows_to_table(rows, self._operators))

    def table(self, name: str, table: pa.Table) -> None:
        self._tables[self._prefix + name] = table

    def ints(self, name: str, **columns: Ints) -> None:
        self.table(name, pa.table({title: pa.array(column) for title, column in columns.items()}))


class Get:
    """Where a state finds its tables and its record again."""

    def __init__(
        self,
        tables: Mapping[str, pa.Table],
        prefix: str,
        operators: Operators,
        saved: msgspec.Raw,
    ) -> None:
        self._tables, self._prefix, self._operators = tables, prefix, operators
        self._saved = saved

    def record(self, kind: type[_T]) -> _T:
        """The record that was put, which must be of this kind."""
        return records.decode(kind, self._saved, f"the record {self._prefix.strip()} of a snapshot")

    def rows(self, name: str) -> Rows:
        return codec.table_to_rows(self.table(name), self._operators)

    def table(self, name: str) -> pa.Table:
        return self._tables[self._prefix + name]

    def ints(self, name: str, column: str) -> Ints:
        return codec.ints(self.table(name), column)
