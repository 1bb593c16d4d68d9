"""Windows of single streams that climb whole: followed on the node that reads the stream.

Each shape of windows follows them by its own state, as if a lane, a stream's events of one key,
were a key. What ends is numbered in its lane; so whoever puts the windows of many streams together
needs to know of no shape.

    settled events --follow--> +-------------+
                               | LaneWindows | --> windows: lane, number, bounds, fields
    time ------------pass----> +-------------+
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from catchment.engine import codec, settled
from catchment.engine.bound_group import BoundGroup
from catchment.engine.complete import Complete
from catchment.engine.rows import identity_fields, no_rows
from catchment.engine.shapes.base import Change, Get, Moment, Put, ShapeState
from catchment.model.window import Window
from catchment.operators.grouping import stable_order
from catchment.operators.ragged import Field, Ints
from catchment.planner.edges import EARLIEST, LATEST

OPEN = int(np.iinfo(np.int64).min)
"""The end of a window that has none yet; also the start of a window where none is open."""


class LaneWindow(NamedTuple):
    """Windows of one type: the place of the type in the group, and of each window its lane, its
    number among those of the lane, its bounds and its fields."""

    place: int
    lane: Ints
    number: Ints
    start: Ints
    end: Ints
    fields: Mapping[str, Field]


class LanesRecord(msgspec.Struct, frozen=True):
    """What is written down of windows by lane besides tables: records of the states by the names of
    these, and whether windows that had not ended at the end of the input were told."""

    states: dict[str, msgspec.Raw]
    ended: bool


class LaneWindows:
    """The states of some shapes, whose keys are lanes by small numbers of their own."""

    def __init__(
        self, bound: BoundGroup, windows: Mapping[int, Window], states: Sequence[ShapeState]
    ) -> None:
        self.group, self.operators = bound.group, bound.operators
        self.windows = {place: windows[place] for state in states for place in state.places}
        self.states = states
        self.lanes: Ints = np.empty(0, np.int64)
        """By their numbers."""
        self.begun = {place: np.empty(0, np.int64) for place in self.windows}
        """Of each type: how many windows each lane has had, where its state does not count them."""
        self._ended = False

    def follow(self, events: settled.Ordered) -> Iterator[LaneWindow]:
        """The windows that settled events, whose keys are lanes, end."""
        if not self.states or not len(events):
            return
        code = self._codes(events.key)
        order = stable_order(code)
        mine = events.at(order, code.take(order))
        followed = [found for state in self.states for found in state.follow(mine)]
        cuts = np.zeros(len(mine), np.bool_)
        for found in followed:
            cuts |= found.cuts
        rows, heads = settled.cut_rows(mine, cuts, self.group, self.operators)
        for found in followed:
            yield from self._numbered(found.settle(rows, heads, True))
        for state in self.states:
            state.absorb(rows)

    def pass_time(self, time: int) -> Iterator[LaneWindow]:
        """The windows that end by a time, before which no event will come. At the end of the input,
        once, those that have not ended too: their end is `OPEN`."""
        nothing = no_rows(self.operators)
        moment = Moment(EARLIEST, time, time, time, nothing, None, time)
        for state in self.states:
            yield from self._numbered(state.complete(moment))
        if time >= LATEST and not self._ended:
            self._ended = True
            for state in self.states:
                left = [windows for windows, _ in state.unended(time)]
                for one in self._numbered(left):
                    yield one._replace(end=np.full(len(one.lane), OPEN))

    def _codes(self, lanes: Ints) -> Ints:
        """The numbers of lanes; new ones get the next."""
        new = np.setdiff1d(lanes, self.lanes)
        if len(new):
            self.lanes = np.concatenate([self.lanes, new])
            self.begun = {
                place: np.concatenate([counts, np.zeros(len(new), np.int64)])
                for place, counts in self.begun.items()
            }
        order = np.argsort(self.lanes)
        codes: Ints = order[np.searchsorted(self.lanes, lanes, sorter=order)]
        return codes

    def _numbered(self, found: Iterable[Complete]) -> Iterator[LaneWindow]:
        for windows in found:
            for place in np.unique(windows.kind).tolist():
                some = windows.take(np.flatnonzero(windows.kind == place))
                order = np.lexsort((some.end, some.start, some.key))
                some = some.take(order)
                if self.windows[place].by_rank and some.index is not None:
                    number = some.index
                else:
                    first = np.searchsorted(some.key, some.key)
                    number = self.begun[place][some.key] + np.arange(len(some)) - first
                    np.add.at(self.begun[place], some.key, 1)
                # Some types are not asked for all fields of the group.
                fields = identity_fields(self.operators, len(some)) | some.fields
                lanes = self.lanes[some.key]
                yield LaneWindow(place, lanes, number, some.start, some.end, fields)

    def ended(self, place: int, until: int, waiting: bool) -> bool:
        """Whether no window of a type that began by a time is still open here."""
        state = next(state for state in self.states if place in state.places)
        return state.ended(place, until, until, waiting)

    # -- plans and memory ------------------------------------------------------------------------

    def begin(self, newest: int) -> None:
        """Starts in the middle of streams whose events up to `newest` nobody has seen here."""
        for state in self.states:
            state.begin(EARLIEST, newest)

    def continue_from(self, old: LaneWindows, since: int | None) -> None:
        """Goes on from windows of an older plan; types that are new begin after `since`."""
        self.lanes, self._ended = old.lanes, old._ended
        newest = EARLIEST if since is None else since
        change = Change(newest, since, EARLIEST, EARLIEST, tuple(old.windows.values()))
        was = {type(state): state for state in old.states}
        for state in self.states:
            state.continue_from(was.get(type(state)), change)
        places = {window: place for place, window in old.windows.items()}
        for place, window in self.windows.items():
            known = places.get(window)
            self.begun[place] = (
                np.zeros(len(self.lanes), np.int64) if known is None else old.begun[known]
            )

    @property
    def nbytes(self) -> int:
        held = sum(rows.nbytes for state in self.states for rows in state.tables())
        held += sum(state.nbytes for state in self.states)
        return held + 8 * len(self.lanes) * (1 + len(self.windows))

    # -- as tables -------------------------------------------------------------------------------

    def table(self) -> pa.Table:
        """The lanes, by their numbers, and how many windows each has had."""
        counts = {f"begun {place}": pa.array(begun) for place, begun in self.begun.items()}
        return pa.table({"lane": pa.array(self.lanes)} | counts)

    def load(self, table: pa.Table, lanes: Ints, states: bytes) -> None:
        """The inverse of `table` and `save`; lanes may have got other numbers."""
        self.lanes = lanes
        self.begun = {place: codec.ints(table, f"begun {place}") for place in self.windows}
        saved, tables = codec.unpack(states, LanesRecord)
        self._ended = saved.ended
        for state in self.states:
            prefix = f"{state.name} "
            state.load(Get(tables, prefix, self.operators, saved.states[state.name]))

    def save(self) -> bytes:
        """What the states of the shapes hold."""
        tables: dict[str, pa.Table] = {}
        records: dict[str, msgspec.Raw] = {}
        for state in self.states:
            put = Put(tables, f"{state.name} ", self.operators)
            state.save(put)
            records[state.name] = put.saved
        return codec.pack(LanesRecord(records, self._ended), tables, "lz4")
