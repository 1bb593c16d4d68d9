"""The state of one group in an assembler: what its open windows need.

Slices come in (`add`, `absorb`) and go to the state of each shape; events that wait are cut once
they are settled. `advance` gives the windows that are complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa

from catchment.engine import settled
from catchment.engine.batch import Batch
from catchment.engine.bound_group import BoundGroup
from catchment.engine.complete import Complete
from catchment.engine.dedup import Deduplicator
from catchment.engine.emitted import Emitted
from catchment.engine.keys import KeyIndex
from catchment.engine.rows import Rows, no_rows
from catchment.engine.shapes.base import Moment
from catchment.engine.shapes.states import shape_states, stream_state
from catchment.engine.slicer import ALONE, WaitingGroup, lasting_events, sliced_group
from catchment.engine.slicing import SlicedGroup
from catchment.engine.streams import Owned
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST

_CROWD = 1 << 12
"""Keys below which none is forgotten."""


class GroupState:
    """Assembles the windows of one group out of its slices.

    Results are final up to `horizon`; between it and the frontier, late events may still change
    them, and `emitted` knows what was said. Without updates the two are one, and it is None.
    """

    def __init__(self, bound: BoundGroup) -> None:
        self.bound = bound
        self.group = group = bound.group
        self.operators = bound.operators
        self.keys = KeyIndex()
        self.emitted = Emitted(group.windows) if bound.updates else None
        self.own = stream_state(bound)
        """Where each stream has windows of its own: their state, which is among `shapes` too."""
        self.shapes = shape_states(bound, self.emitted, self.own)
        self.ready: list[Complete] = []
        """Windows that were put together elsewhere."""
        self.waiting: list[pa.Table] = []
        self.repeats = (
            Deduplicator(group.distinct_on, group.distinct_within) if group.distinct_on else None
        )
        self.frontier = self.newest = EARLIEST
        self.known_since: dict[str, int] = {}
        """When operators began that came with a query added later."""
        self.live: Collection[str] | None = None
        """The streams that may still bring events; None: all that did."""
        self.partials = self.calls = 0
        self._crowd = _CROWD

    # -- slices in -------------------------------------------------------------------------------

    def add_events(self, batch: Batch) -> Mask:
        """Takes in events of a group that drops duplicates: says which repeat others."""
        assert self.repeats is not None
        kept = batch.chosen(self.group)
        unique = self.repeats.accept(batch, kept)
        repeated = np.zeros(len(batch), np.bool_)
        repeated[np.arange(len(batch)) if kept.rows is None else kept.rows] = ~unique
        self.add(sliced_group(self.bound, batch, kept.where(unique)), ALONE)
        return repeated

    def add(self, part: SlicedGroup | WaitingGroup, stream: str) -> None:
        """Takes in what a slicer made of events of a stream."""
        if isinstance(part, WaitingGroup):
            streams = None if self.own is None else self.own.streams
            events = lasting_events(part, self.keys, streams, stream)
            times = events.column(settled.TIME).to_numpy()
            self.saw(times, times)
            self.waiting += [events] if len(times) else []
            return
        rows = part.rows
        self.calls += part.calls
        rows.key = self.keys.translate(part.keys, rows.key)
        self.saw(rows.first, rows.last)
        self.absorb(rows)

    def saw(self, first: Ints, last: Ints) -> None:
        """Notes the newest event time, and which emitted windows late events may have changed."""
        if len(last):
            self.newest = max(self.newest, int(last.max()))
        if self.emitted is not None:
            late = first[first < self.frontier]
            for shape in self.shapes:
                shape.late(late)

    def absorb(self, rows: Rows) -> None:
        """Takes in partials, made here or elsewhere."""
        if not len(rows):
            return
        self.partials += len(rows)
        for shape in self.shapes:
            shape.absorb(rows)

    def take_in(self, owned: Owned) -> None:
        """Takes in slices that know their windows, cut here or elsewhere."""
        assert self.own is not None
        self.own.take_in(owned, self.frontier)
        self.absorb(owned.rows.where(~owned.ends))

    # -- assemble --------------------------------------------------------------------------------

    def advance(self, frontier: int, horizon: int, complete_until: int) -> list[Complete]:
        """The windows complete at the frontier; those complete at the horizon are final.

        What ended after `complete_until` may lack events that somebody has not sent yet.
        """
        done, self.ready = self.ready, []
        loose = no_rows(self.operators)
        if self.own is not None:
            owned = self.cut_streams(frontier)
            if owned is not None:
                self.take_in(owned)
        else:
            done += self._settle(horizon, keep=True)[0]
            if self.emitted is not None:
                passing, loose = self._settle(frontier, keep=False)
                done += passing
        moment = Moment(self.frontier, frontier, horizon, complete_until, loose, self.live)
        for shape in self.shapes:
            done += shape.complete(moment)
        self.frontier = max(self.frontier, frontier)
        if self.repeats is not None:
            self.repeats.forget(horizon)
        if self.emitted is not None:
            done = self.emitted.changes(done, horizon, self.operators, complete_until)
        return [windows for windows in done if len(windows)]

    def cut_streams(self, time: int) -> Owned | None:
        """Cuts the events before a time at the marks of their stream."""
        events = self._take(time, keep=True)
        if events is None or self.own is None:
            return None
        self.calls += len(events) * len(self.operators)
        return self.own.cut(events)

    def _settle(self, time: int, *, keep: bool) -> tuple[list[Complete], Rows]:
        """Cuts the events before a time, for good with `keep`: windows that ended, and the rows."""
        events = self._take(time, keep=keep)
        if events is None:
            return [], no_rows(self.operators)
        followed = [found for shape in self.shapes for found in shape.follow(events)]
        cuts = np.zeros(len(events), np.bool_)
        for found in followed:
            cuts |= found.cuts
        rows, heads = settled.cut_rows(events, cuts, self.group, self.operators)
        out = [found.settle(rows, heads, keep) for found in followed]
        if keep:
            self.calls += len(events) * len(self.operators)
            self.absorb(rows)
        return out, rows

    def _take(self, time: int, *, keep: bool) -> settled.Ordered | None:
        """The waiting events before a time, in order."""
        events, rest = settled.settle(self.waiting, time)
        if keep:
            self.waiting = rest
        return events

    def unended(self) -> Iterator[tuple[Complete, int]]:
        """By window type: the windows that are open, and how many events are in one of them.

        At the end of the input these are the count windows that are not full and the user-defined
        windows whose end nobody saw. A window whose beginning nobody saw (its query came later) is
        not among them: it is no result either way.
        """
        for shape in self.shapes:
            for windows, events in shape.unended(self.newest):
                if self.emitted is not None:
                    windows.revision = np.zeros(len(windows), np.int64)
                    windows.retracted = np.zeros(len(windows), np.bool_)
                yield windows, events

    def ended(self, place: int, until: int) -> bool:
        """Whether no window of a type that began by `until` is still open."""
        if self.frontier <= until:
            return False  # an event may still come by which a window begins in time
        waits = any((t.column(settled.TIME).to_numpy() <= until).any() for t in self.waiting)
        shape = next(shape for shape in self.shapes if place in shape.places)
        return shape.ended(place, until, self.frontier, waits)

    # -- housekeeping ----------------------------------------------------------------------------

    def begin(self, frontier: int, newest: int) -> None:
        """Starts a group in the middle of a stream, whose events so far it has not seen."""
        self.frontier, self.newest = frontier, newest
        for shape in self.shapes:
            shape.begin(frontier, newest)

    def collect_keys(self, at_once: bool = False) -> None:
        """Forgets the keys that nothing refers to, once they are most of all keys, or at once."""
        if any(shape.keeps_keys for shape in self.shapes):
            return
        if len(self.keys) < self._crowd and not at_once:
            return
        live = np.unique(np.concatenate([np.empty(0, np.int64), *self._keys()]))
        self._crowd = max(_CROWD, 2 * len(live))
        if len(live) == len(self.keys) or (2 * len(live) > len(self.keys) and not at_once):
            return
        place = np.full(len(self.keys), -1, np.int64)
        place[live] = np.arange(len(live))
        self.keys = self.keys.only(live)
        self._recode(place)

    def _keys(self) -> list[Ints]:
        found = [rows.key for rows in self._tables()]
        found += [keys for shape in self.shapes for keys in shape.needed_keys()]
        found += [table.column(settled.KEY).to_numpy() for table in self.waiting]
        found += [windows.key for windows in self.ready]
        if self.emitted is not None:
            found.append(np.array(self.emitted.keys, np.int64))
        return found

    def _tables(self) -> list[Rows]:
        """The rows of all shapes, each once: some are held by several."""
        tables = [rows for shape in self.shapes for rows in shape.tables()]
        return list({id(rows): rows for rows in tables}.values())

    def _recode(self, place: Ints) -> None:
        for rows in self._tables():
            rows.key = place[rows.key]
        for shape in self.shapes:
            shape.recode(place)
        for windows in self.ready:
            windows.key = place[windows.key]
        self.waiting = [settled.recode(table, place) for table in self.waiting]
        if self.emitted is not None:
            self.emitted.recode(place)

    @property
    def slices(self) -> int:
        """How many slices have settled."""
        return sum(shape.slices for shape in self.shapes)

    @property
    def nbytes(self) -> int:
        held = sum(rows.nbytes for rows in self._tables())
        held += sum(shape.nbytes for shape in self.shapes)
        held += sum(table.nbytes for table in self.waiting)
        said = 200 * len(self.emitted.said) if self.emitted is not None else 0
        repeats = 0 if self.repeats is None else self.repeats.nbytes
        return held + said + repeats + self.keys.nbytes
