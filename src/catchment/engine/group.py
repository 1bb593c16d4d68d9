"""The state of one group in an assembler: what its open windows need.

Slices come in (`add`, `absorb`) and go to the state of each shape; events that wait are cut once
they are settled (`engine/waiting.py` keeps them until then). `advance` gives the windows that are
complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from catchment.engine import settled
from catchment.engine.batch import Batch
from catchment.engine.bound_group import BoundGroup
from catchment.engine.complete import Complete
from catchment.engine.dedup import Deduplicator
from catchment.engine.emitted import Emitted
from catchment.engine.interleaved import Interleaved, SlicesBetween, joined
from catchment.engine.key_space import KeySpace
from catchment.engine.keys import KeyIndex
from catchment.engine.rows import Rows, no_rows
from catchment.engine.shapes.base import Moment
from catchment.engine.shapes.states import shape_states, stream_state
from catchment.engine.slicing import SlicedGroup
from catchment.engine.streams import Owned
from catchment.engine.waiting import SettledEvents, WaitingSet
from catchment.model.query import ALONE
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST, LATEST


class GroupState:
    """Assembles the windows of one group out of its slices.

    Results are final up to `horizon`; between it and the frontier, late events may still change
    them, and `emitted` knows what was said. Without updates the two are one, and it is None.
    """

    def __init__(self, bound: BoundGroup) -> None:
        self.bound = bound
        self.group = group = bound.group
        self.operators = bound.operators
        self.space = KeySpace()
        """Codes of keys, which groups whose events wait together share."""
        self.emitted = Emitted(group.windows) if bound.updates else None
        self.own = stream_state(bound)
        """Where each stream has windows of its own: their state, which is among `shapes` too."""
        self.shapes = shape_states(bound, self.emitted, self.own)
        self.ready: list[Complete] = []
        """Windows that were put together elsewhere."""
        self.waiting: WaitingSet | None = None
        """Where its events wait, if they do."""
        self.between: list[SlicesBetween] = []
        """Slices that were cut elsewhere, between marks that wait."""
        self.repeats = (
            Deduplicator(group.distinct_on, group.distinct_within) if group.distinct_on else None
        )
        self.frontier = self.newest = EARLIEST
        self.known_since: dict[str, int] = {}
        """When operators began that came with a query added later."""
        self.live: Collection[str] | None = None
        """The streams that may still bring events; None: all that did."""
        self.partials = self.calls = 0

    @property
    def keys(self) -> KeyIndex:
        return self.space.keys

    # -- slices in -------------------------------------------------------------------------------

    def add_events(self, batch: Batch) -> Mask:
        """Takes in events of a group that drops duplicates: says which repeat others."""
        assert self.repeats is not None
        kept = batch.chosen(self.group.selections)
        unique = self.repeats.accept(batch, kept)
        repeated = np.zeros(len(batch), np.bool_)
        rows = np.arange(len(batch)) if kept.rows is None else kept.rows
        repeated[rows] = ~unique
        if self.waiting is None:
            self.add(self.bound.slicer.slice(batch, kept.where(unique)))
        else:
            times = self.waiting.add(self.waiting.bound.events(batch, rows[unique]), ALONE)
            self.saw(times, times)
        return repeated

    def add(self, part: SlicedGroup) -> None:
        """Takes in what a slicer made of events."""
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

    def take_between(self, slices: SlicesBetween) -> None:
        """Takes in slices that were cut elsewhere, between marks whose events wait."""
        if len(slices.arrival):
            self.partials += len(slices.arrival)
            self.saw(slices.rows.first, slices.rows.last)
            self.between.append(slices)

    # -- assemble --------------------------------------------------------------------------------

    def advance(
        self,
        frontier: int,
        horizon: int,
        complete_until: int,
        early: bool | None,
        events: SettledEvents | None = None,
        passing: SettledEvents | None = None,
    ) -> list[Complete]:
        """The windows complete at the frontier; those complete at the horizon are final.

        `early` says whether running values of open windows are given too; None: they never are.

        What ended after `complete_until` may lack events that somebody has not sent yet. Of a group
        whose events wait, `events` have settled for good, and `passing` are those before the
        frontier that late ones may still come before.
        """
        done, self.ready = self.ready, []
        loose = no_rows(self.operators)
        if self.own is not None:
            owned = self._cut_streams(events, frontier)
            if len(owned.rows):
                self.take_in(owned)
        else:
            done += self._cut(events, keep=True, until=frontier)[0]
            if self.emitted is not None:
                ended, loose = self._cut(passing, keep=False)
                done += ended
        ahead = max(frontier, LATEST - 1) if early else frontier
        moment = Moment(self.frontier, frontier, horizon, complete_until, loose, self.live, ahead)
        for shape in self.shapes:
            done += shape.complete(moment)
        self.frontier = max(self.frontier, frontier)
        if self.repeats is not None:
            self.repeats.forget(horizon)
        if self.emitted is not None:
            silent = early is False
            done = self.emitted.changes(done, horizon, self.operators, complete_until, silent)
        return [windows for windows in done if len(windows)]

    def _cut_streams(self, settled_events: SettledEvents | None, frontier: int) -> Owned:
        """Cuts events before the frontier at the edges of their stream's windows."""
        assert self.own is not None
        events = None if settled_events is None else settled_events.of(self.group)
        self.calls += 0 if events is None else len(events) * len(self.operators)
        return self.own.cut(events, frontier)

    def _settled_between(self, until: int) -> SlicesBetween | None:
        """Takes the slices between marks that begin before a time."""
        if not self.between:
            return None
        slices = joined(self.between, self.operators)
        early = slices.rows.first < until
        self.between = [] if early.all() else [slices.where(~early)]
        return slices.where(early) if early.any() else None

    def _cut(
        self, settled_events: SettledEvents | None, *, keep: bool, until: int = EARLIEST
    ) -> tuple[list[Complete], Rows]:
        """Cuts settled events, for good with `keep`: windows that ended, and the rows.

        Slices between marks, up to a time, are among these as they are.
        """
        events = None if settled_events is None else settled_events.of(self.group)
        slices = self._settled_between(until)
        if slices is not None:
            events = Interleaved(events, slices)
        if not events:
            return [], no_rows(self.operators)
        followed = [found for shape in self.shapes for found in shape.follow(events)]
        cuts = np.zeros(len(events), np.bool_)
        for found in followed:
            cuts |= found.cuts
        rows, heads = (
            events.rows(self.group, self.operators)
            if isinstance(events, Interleaved)
            else settled.cut_rows(events, cuts, self.group, self.operators)
        )
        out = [windows for found in followed for windows in found.settle(rows, heads, keep)]
        if keep:
            self.calls += len(events) * len(self.operators)
            self.absorb(rows)
        return out, rows

    def judged(self, windows: Complete, until: int) -> Iterator[tuple[Complete, bool]]:
        """Windows that have ended by a time, and those that may still change, apart."""
        if self.emitted is None:
            yield windows, True
            return
        running = self.emitted.open(windows, until)
        for some, ended in ((~running, True), (running, False)):
            if some.all():
                yield windows, ended
            elif some.any():
                yield windows.take(np.flatnonzero(some)), ended

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
        waits = self.waiting is not None and self.waiting.has_until(until)
        shape = next(shape for shape in self.shapes if place in shape.places)
        return shape.ended(place, until, self.frontier, waits)

    def next_end(self) -> int | None:
        """When the first window that is open now ends if no more events join it, where that is not
        known ahead."""
        ends = [shape.next_end(self.frontier) for shape in self.shapes]
        return min((end for end in ends if end is not None), default=None)

    # -- housekeeping ----------------------------------------------------------------------------

    def begin(self, frontier: int, newest: int) -> None:
        """Starts a group in the middle of a stream, whose events so far it has not seen."""
        self.frontier, self.newest = frontier, newest
        for shape in self.shapes:
            shape.begin(frontier, newest)

    @property
    def keeps_keys(self) -> bool:
        """Whether all keys are needed for good."""
        return any(shape.keeps_keys for shape in self.shapes)

    def used_keys(self) -> list[Ints]:
        """The keys that are referred to here; those of events that wait are not among them."""
        found = [rows.key for rows in self._tables()]
        found += [keys for shape in self.shapes for keys in shape.needed_keys()]
        found += [windows.key for windows in self.ready]
        if self.emitted is not None:
            found.append(np.array(self.emitted.keys, np.int64))
        return found

    def _tables(self) -> list[Rows]:
        """The rows of all shapes, each once: some are held by several."""
        tables = [rows for shape in self.shapes for rows in shape.tables()]
        tables += [slices.rows for slices in self.between]
        return list({id(rows): rows for rows in tables}.values())

    def recode(self, place: Ints) -> None:
        """Renumbers the keys."""
        for rows in self._tables():
            rows.key = place[rows.key]
        for shape in self.shapes:
            shape.recode(place)
        for windows in self.ready:
            windows.key = place[windows.key]
        if self.emitted is not None:
            self.emitted.recode(place)

    @property
    def slices(self) -> int:
        """How many slices have settled."""
        return sum(shape.slices for shape in self.shapes)

    @property
    def nbytes(self) -> int:
        """Without keys and events that wait, which others may share."""
        held = sum(rows.nbytes for rows in self._tables())
        held += sum(shape.nbytes for shape in self.shapes)
        said = 200 * len(self.emitted.said) if self.emitted is not None else 0
        repeats = 0 if self.repeats is None else self.repeats.nbytes
        return held + said + repeats
