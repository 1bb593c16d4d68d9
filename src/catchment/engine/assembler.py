"""The third verb, for a whole plan: slices to windows.

Slices come from a slicer beside it, or as partials from others, each once. `advance` moves the
frontier, before which nothing more is expected, and gives the windows that are complete now.

    Sliced   --add-->     +-----------+
                          | Assembler | --advance(frontier)--> Results
    partials --absorb-->  +-----------+ --save()--> bytes, for a restart
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from catchment.engine import codec, settled, snapshots
from catchment.engine.batch import Batch
from catchment.engine.bound_group import BoundGroup
from catchment.engine.bound_waiting import WaitingEvents
from catchment.engine.changes import answer_limit, drained, move
from catchment.engine.complete import Complete, to_block
from catchment.engine.group import GroupState
from catchment.engine.key_space import UsedKeys
from catchment.engine.keys import KeyIndex
from catchment.engine.memory import MemoryWatch
from catchment.engine.partials import (
    Partials,
    are_events,
    events_in,
    full_in,
    owned_of,
    rows_of,
    split_past,
)
from catchment.engine.results import Limit, Results, times
from catchment.engine.slicer import Sliced
from catchment.engine.waiting import SettledEvents, WaitingSet, continue_sets, waiting_sets
from catchment.model.capacity import Capacity
from catchment.model.early import period_of
from catchment.model.plan import Group, Plan, chain_of
from catchment.model.query import WINDOW_TIME
from catchment.model.settings import INCOMPLETE, Incomplete, one_of
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST, LATEST

if TYPE_CHECKING:
    from catchment.engine.bound import BoundPlan


class Assembler:
    """Keeps the slices of a bound plan that open windows need, and gives windows once complete."""

    def __init__(
        self,
        bound: BoundPlan,
        clock: Callable[[], int],
    ) -> None:
        self.bound = bound
        self.clock = clock
        self.states, self.waiting = _states(bound)
        self.frontier = EARLIEST
        self.newest = EARLIEST
        """The newest event time so far."""
        self.counts = dict.fromkeys(("duplicates", "results", "open_windows", "open_events"), 0)
        self.limits: dict[str, Limit] = {}
        """For queries added or leaving while others run: which of their windows are given."""
        self.live: Collection[str] | None = None
        """The streams that may still bring events, if there are several; None: all that did."""
        self.held: Mapping[int, int] = {}
        """By group: the time up to which its windows may be given before the input ends."""
        self.fill: Callable[[int, Complete, KeyIndex], Complete] | None = None
        """Completes the fields of windows, where some are known elsewhere."""
        self.beside = 0
        """Bytes that are held elsewhere for its windows."""
        self._memory = MemoryWatch(bound.limits)
        self.encoder = self._memory.encoder

    @property
    def plan(self) -> Plan:
        return self.bound.plan

    def bind(self, bound: BoundPlan) -> None:
        """Learns what events look like: the same plan, now with columns."""
        self.bound = bound
        self.states, self.waiting = _states(bound)

    # -- slices in -------------------------------------------------------------------------------

    def add(self, sliced: Sliced) -> None:
        """Takes in what a slicer beside it made of events."""
        if len(sliced.batch):
            self.newest = max(self.newest, sliced.batch.span[1])
            self._add(sliced, self.bound)
        self._memory.came(len(sliced.batch))
        self._memory.bound_keys(self.keys_used())
        self._memory.weigh(lambda: self.held_bytes, self._merge)

    def _add(self, sliced: Sliced, bound: BoundPlan) -> None:
        """Gives to the groups of a plan what a slicer made of events, or of results, for them."""
        for state in self._states_of(bound):
            state.newest = max(state.newest, sliced.events_of(state.bound).span[1])
        for id, part in sliced.parts.items():
            if isinstance(part, WaitingEvents):
                self._saw(self.waiting[id], self.waiting[id].add(part, sliced.stream))
            else:
                self.states[id].add(part)
        self._add_events(sliced.events_of, bound)

    def _states_of(self, bound: BoundPlan) -> list[GroupState]:
        return [self.states[id] for id in bound.groups]

    def _saw(self, waiting: WaitingSet, times: Ints) -> None:
        """Tells the groups whose events wait together of the times of new ones."""
        for id in waiting.bound.groups:
            self.states[id].saw(times, times)

    def _add_events(self, events_of: Callable[[BoundGroup], Batch], bound: BoundPlan) -> None:
        """Gives events to the groups of a plan that drop duplicates.

        A duplicate is an event that every group dropped.
        """
        dropped: list[Mask] = [
            state.add_events(events_of(state.bound))
            for state in self._states_of(bound)
            if state.group.distinct_on
        ]
        if dropped and bound is self.bound and len(dropped) == len(self.plan.groups):
            self.counts["duplicates"] += int(np.logical_and.reduce(dropped).sum())

    def absorb(self, partials: Partials, newest: int = EARLIEST) -> None:
        """Takes in what was sliced elsewhere by the same plan; each partial must come once.

        `newest` is the newest event time there; events may have left no partials here.
        """
        self.newest = max(self.newest, newest)
        for state in self._states_of(self.bound):
            if state.group.measure == "event":
                state.newest = max(state.newest, newest)
        self._memory.came(partials.rows)
        for id, table in partials.groups.items():
            if not table.num_rows:
                continue
            if are_events(table):
                self._saw(self.waiting[id], self.waiting[id].absorb(table))
            else:
                _absorb(self.states[id], table)
            self.newest = max(self.newest, self.states[id].newest)
        if partials.events is not None:
            self._absorb_events(partials.events)
        self._memory.bound_keys(self.keys_used())

    def on_time(self, partials: Partials) -> tuple[Partials, int]:
        """Partials without those that come too late, and how many events those held.

        This is for streams whose slicers do not know the frontier (`late_by_slice`, and a census).
        An event is too late once the frontier has passed the end of its slice; one that waits to be
        cut, or that may be a duplicate, once the frontier has passed it. So nothing can change a
        window that was given, and an event takes part in all of its windows or in none.
        """
        late, groups = 0, {}
        for id, table in partials.groups.items():
            past, groups[id] = split_past(table, self.states[id].frontier)
            late += 0 if past is None else events_in(past)
        events = partials.events
        if events is not None:
            past, events = split_past(events, self.frontier)
            late += 0 if past is None else past.num_rows
        return Partials(groups, events), late

    def _absorb_events(self, table: pa.Table) -> None:
        order = np.argsort(codec.ints(table, settled.ARRIVAL), kind="stable")
        table = self._with_columns(table.take(order))
        batch = Batch(table, codec.ints(table, settled.TIME), 0, self._memory.encoder)
        batch.arrivals = codec.ints(table, settled.ARRIVAL)
        self.newest = max(self.newest, batch.span[1])
        at_clock = batch.at(self.wall())

        def events_of(bound: BoundGroup) -> Batch:
            return at_clock if bound.group.measure == "processing" else batch

        for state in self._states_of(self.bound):
            if state.group.distinct_on:
                state.newest = max(state.newest, events_of(state.bound).span[1])
        self._add_events(events_of, self.bound)

    def _with_columns(self, events: pa.Table) -> pa.Table:
        """Events that were read by an older plan, with the columns that it did not need.

        Windows that need these begin later, so their values do not matter.
        """
        for field in self.bound.schema or ():
            if field.name in self.bound.columns and field.name not in events.schema.names:
                events = events.append_column(field, pa.nulls(events.num_rows, field.type))
        return events

    def wall(self) -> int:
        """The time of events by the clock: never before what is complete by it already."""
        states = self.states.values()
        by_clock = (state.frontier for state in states if state.group.measure == "processing")
        return max(self.clock(), EARLIEST, *by_clock)

    # -- windows out -----------------------------------------------------------------------------

    def advance(self, frontier: int, complete_until: int | None = None) -> Results:
        """Moves the frontier, before which no event will come: the windows now complete.

        Where somebody's events are given up waiting for, none is missing before `complete_until`.
        With late="update", windows that ended after it are confirmed once it has passed them.
        """
        frontier = max(self.frontier, min(frontier, LATEST - 1))
        return self._advance(
            frontier, self.clock(), frontier if complete_until is None else complete_until
        )

    def close(self, incomplete: Incomplete | None = None) -> Results:
        """Ends the input: every time and session window is complete.

        Count and user-defined windows that have not ended are counted (`open_windows`, and the
        events in them as `open_events`). With `incomplete="emit"`, by default as the rules have
        it, they are results too.
        """
        told = incomplete or self.bound.rules.incomplete
        emit = one_of(told, INCOMPLETE, "incomplete") == "emit"
        results = self._advance(LATEST, LATEST, LATEST, emit)
        self.counts["open_windows"] = self.counts["open_events"] = 0
        left = self._left()
        for id, state in self.states.items():
            for windows, events in state.unended():
                if len(windows) and (id, int(windows.kind[0])) in left:
                    continue
                self.counts["open_windows"] += len(windows)
                self.counts["open_events"] += events
                if emit and len(windows):
                    self.counts["results"] += len(windows)
                    block, spans = to_block(windows, state.keys, state.operators)
                    block.complete = False
                    results.add(id, block, spans)
        return results

    def _left(self) -> set[tuple[int, int]]:
        """Groups and window types of which nobody wants a window any more: all queries left."""
        drained = set(self.drained())
        wanted: dict[tuple[int, int], bool] = {}
        for name, (id, number) in self.plan.names.items() if drained else ():
            place = id, self.plan.every_group[id].answers[number].window
            wanted[place] = wanted.get(place, False) or name not in drained
        return {place for place, by_some in wanted.items() if not by_some}

    def _advance(
        self, frontier: int, wall: int, complete_until: int, emit: bool | None = None
    ) -> Results:
        results = self.bound.no_results(self.limits, emit)
        closing = frontier >= LATEST
        early = None if closing else self._early(frontier)
        self.frontier = frontier

        def moment(group: Group) -> tuple[int, int, int, bool | None]:
            if group.measure == "processing":
                return wall, wall, wall, None
            if self.bound.late_by_slice and not closing:
                # A session may end anywhere in a slice that may still come.
                whole = self._by_slices(group, frontier)
                return whole, whole, whole, None
            if group.id in self.held and not closing:
                upto = min(frontier, self.held[group.id])
                return upto, upto, min(complete_until, upto), None
            horizon = frontier if closing else max(frontier - self.bound.keep, EARLIEST)
            return frontier, horizon, min(complete_until, frontier), early

        self._assemble(self.bound, moment, results)
        for label, bound in self.bound.sources.items():
            reached = self._read_results(label, bound, results)
            at = reached, reached, min(complete_until, reached), None
            self._assemble(bound, lambda _, at=at: at, results)  # type: ignore[misc]
        for used in self.keys_used():
            used.collect_keys()
        self._memory.forget_texts(self.keys_used())
        self._memory.weigh(lambda: self.held_bytes, self._merge)
        return results

    def _assemble(
        self,
        bound: BoundPlan,
        moment: Callable[[Group], tuple[int, int, int, bool | None]],
        results: Results,
    ) -> None:
        """Adds the windows of a plan's groups that are complete at a moment."""
        settled = {
            id: self._settle(self.waiting[id], *moment(self.states[id].group))
            for id in bound.waiting
        }
        for state in self._states_of(bound):
            state.live = self.live
            told = moment(state.group)
            events = () if state.waiting is None else settled[state.waiting.bound.id]
            for windows in state.advance(*told, *events):
                self.counts["results"] += len(windows)
                if self.fill is not None:
                    windows = self.fill(state.group.id, windows, state.keys)
                for some, ended in state.judged(windows, told[2]):
                    block, spans = to_block(some, state.keys, state.operators)
                    block.complete = ended
                    results.add(state.group.id, block, spans)

    def _read_results(self, label: str, bound: BoundPlan, results: Results) -> int:
        """Gives results to the groups that read them, and says before which time there will be no
        more of them.

        The time of a result is the last moment of its window, so the frontier passes on as it is.
        Windows whose bounds come from the data may still end just at the frontier.
        """
        id, number = self.plan.sources[label]
        rows = results.answer(id, number)
        if rows.num_rows and bound.schema is not None:
            slicer = bound.slicer(encoder=self.encoder, clock=self.wall)
            for sliced in slicer.slice(_as_events(rows, in_order=bool(bound.waiting))):
                self._add(sliced, bound)
        state = self.states.get(id)
        if state is None or state.frontier >= LATEST:
            return self.frontier
        group = self.plan.every_group[id]
        known = group.windows[group.answers[number].window].periods
        return state.frontier if known else max(state.frontier - 1, EARLIEST)

    def _by_slices(self, group: Group, frontier: int) -> int:
        """The last end of a slice by a frontier, where windows may end within slices."""
        bound = self.bound.groups[group.id]
        sliced = group.slicing == "arrival" and not group.distinct_on
        if frontier <= EARLIEST or not sliced or bound.smallest_gap is None:
            return frontier
        return bound.slicer.edges.last_by(frontier)

    def _early(self, frontier: int) -> bool | None:
        """Whether running values are given now; None: they never are.

        They are where the frontier has passed a multiple of their period: so it does not matter
        when it is asked, and whoever goes on from a snapshot does the same.
        """
        period = period_of(self.bound.rules.emit)
        if not period:
            return None if period is None else True
        return frontier // period > self.frontier // period

    def _settle(
        self,
        waiting: WaitingSet,
        frontier: int,
        horizon: int,
        complete_until: int,
        early: bool | None,
    ) -> tuple[SettledEvents | None, SettledEvents | None]:
        """The events of a set that have settled for good, and those that late ones may precede."""
        if waiting.own is not None:
            return waiting.settle(frontier, keep=True), None
        events = waiting.settle(horizon, keep=True)
        ahead = LATEST - 1 if early else frontier
        return events, waiting.settle(ahead, keep=False) if horizon < ahead else None

    def next_end(self) -> int | None:
        """When the first session that is open now ends if nothing joins it; or the end of the first
        window of a stream that has ended, and that the frontier has not passed. None: there is
        none.

        All other windows end at times that are known ahead, or where events say.
        """
        ends = [state.next_end() for state in self.states.values()]
        return min((end for end in ends if end is not None), default=None)

    # -- plans -----------------------------------------------------------------------------------

    def follow(
        self, bound: BoundPlan, lineage: Mapping[int, int], leaving: Iterable[str] = ()
    ) -> None:
        """Goes on by another plan; `lineage` says which of the old groups each group continues.

        Queries that leave give the windows that have begun by now, and no others. Of queries that
        go over to another group, the one before gives these windows, and the other one the rest.
        """
        known = self.plan.names.keys()
        new = bound.plan.names.keys() - known - bound.plan.former.keys()
        handed = {name: query for name, query in bound.plan.former.items() if name not in known}
        old, waiting, self.bound = self.states, self.waiting, bound
        self.limits = {
            name: limit for name, limit in self.limits.items() if name in self.plan.names
        }
        self.states, self.waiting = _states(bound)
        continue_sets(self.waiting, waiting, lineage)
        for id, state in self.states.items():
            if id in lineage and lineage[id] in old:
                move(old[lineage[id]], state, old[lineage[id]].newest)
            elif self.newest > EARLIEST:
                by_clock = state.group.measure == "processing"
                wall = self.clock()
                begun = self.newest + self._read_before(state.group)
                state.begin(*((wall, wall) if by_clock else (self.frontier, begun)))
        for name in new:
            id, number = self.plan.names[name]
            if id in self.states and id in lineage:
                limit = answer_limit(self.states[id], self.plan.every_group[id].answers[number])
                if limit is not None:
                    self.limits[name] = limit
        for name, query in handed.items():
            before = self.limits.pop(query, Limit())
            self.limits[name] = Limit(before.since, self.newest)
            if self.plan.names[query][0] in lineage:  # it may have windows of before as well
                self.limits[query] = Limit(since=self.newest)
        for name in leaving:
            self.drain(name)

    def _read_before(self, group: Group) -> int:
        """How long after a moment the group may read results of windows that had begun by then."""
        read = chain_of(self.plan, group, group.windows[0])[:-1]
        return sum(window.reach for _, window in read)

    def drain(self, name: str) -> None:
        """Lets a query leave: it gives the windows that have begun by now, and no others."""
        state = self.states.get(self.plan.names[name][0])
        limit = self.limits.get(name, Limit())
        if limit.until is None:
            self.limits[name] = Limit(limit.since, EARLIEST if state is None else state.newest)

    def drained(self, elsewhere: Collection[int] = ()) -> list[str]:
        """The queries that leave and whose windows have ended.

        Queries of the groups in `elsewhere` are left out: their windows are assembled elsewhere, so
        it is not known here when the last of them ends.
        """
        return [
            name
            for name, limit in self.limits.items()
            if limit.until is not None
            and self.plan.names[name][0] not in elsewhere
            and drained(
                self.plan, self.states, name, limit.until + self._correctable_after_end(name)
            )
        ]

    def _correctable_after_end(self, name: str) -> int:
        """How long after their end the windows of a query may be corrected before it leaves.

        Only windows that a former group gives may be corrected then: their query stays.
        """
        return self.bound.keep if name in self.plan.former else 0

    # -- state -----------------------------------------------------------------------------------

    def _merge(self) -> None:
        for state in self.states.values():
            for shape in state.shapes:
                shape.merge()

    @property
    def held_bytes(self) -> int:
        """Bytes of state now; to count them takes a moment."""
        held = sum(state.nbytes for state in self.states.values())
        held += sum(waiting.nbytes for waiting in self.waiting.values())
        return held + self.beside + self._memory.keys_in(self.keys_used())

    def keys_used(self) -> list[UsedKeys]:
        """The keys of groups, and who refers to them."""
        return [
            UsedKeys(state.space, [state])
            for state in self.states.values()
            if state.waiting is None
        ] + [
            UsedKeys(waiting.space, [waiting, *(self.states[id] for id in waiting.bound.groups)])
            for waiting in self.waiting.values()
        ]

    @property
    def missed(self) -> int:
        """Slices of a node that was given up, too late for the windows that they are in."""
        owned = (state.own for state in self.states.values())
        return sum(own.missed for own in owned if own is not None)

    def capacities(self) -> list[Capacity]:
        """What grows here, how large it is and may get, and what happens then."""
        return self._memory.capacities(self.held_bytes, self.keys_used())

    def save(self) -> bytes:
        """The whole state as bytes, from which `load` goes on as if nothing had happened."""
        return codec.pack(*snapshots.save(self))

    def load(self, blob: bytes) -> None:
        """Goes on from what an assembler of the same plan saved."""
        snapshots.load(self, *codec.unpack(blob, snapshots.AssemblerRecord))


def _states(bound: BoundPlan) -> tuple[dict[int, GroupState], dict[int, WaitingSet]]:
    """The state of each group of a bound plan, and its sets of waiting events."""
    states = {id: GroupState(group) for id, group in bound.every_group.items()}
    return states, waiting_sets(bound.every_waiting, states)


def _as_events(rows: pa.Table, *, in_order: bool) -> pa.Table:
    """Results as events of other queries.

    Where their order matters, those of one time come in the order of their other columns, which
    is the same on all runtimes.
    """
    if in_order:
        plain = [f.name for f in rows.schema if not pa.types.is_nested(f.type)]
        order = ["window_end", *(name for name in plain if name != "window_end")]
        rows = rows.sort_by([(name, "ascending") for name in order])
    ends = rows.column("window_end").cast(pa.int64()).to_numpy()
    return rows.append_column(WINDOW_TIME, times(ends - 1))


def _absorb(state: GroupState, table: pa.Table) -> None:
    """Takes slices into a group's state."""
    full = full_in(table)
    if full is not None:
        rows = rows_of(state, table)
        kinds, numbers = full
        state.ready.append(Complete(kinds, rows.key, rows.first, rows.last, rows.fields, numbers))
    elif state.own is not None:
        owned = owned_of(state, table)
        state.saw(owned.rows.first, owned.rows.last)
        state.take_in(owned)
    else:
        rows = rows_of(state, table)
        state.saw(rows.first, rows.last)
        state.absorb(rows)
