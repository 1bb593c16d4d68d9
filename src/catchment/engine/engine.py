"""The engine: events in, windows out; all queries share one plan."""

from __future__ import annotations

import time as clocks
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np
import pyarrow as pa

from catchment.engine import codec, settled, snapshots
from catchment.engine.batch import Batch
from catchment.engine.binding import (
    Types,
    bind_types,
    check_rules,
    columns_of,
    conform,
    key_type,
)
from catchment.engine.changes import answer_limit, drained, move
from catchment.engine.complete import to_block
from catchment.engine.group import GroupState
from catchment.engine.keys import Encoder
from catchment.engine.partials import EVENTS, Partials, absorb
from catchment.engine.results import Limit, NamesOf, Results, Shape
from catchment.engine.set_aside import ASIDE_BYTES, SetAside, Spill
from catchment.engine.stats import Stats, missed
from catchment.engine.times import FARTHEST, out_of_range, refuse_bad, times_of
from catchment.engine.unended import unended
from catchment.errors import LimitError, QueryError, SchemaError, StateError, did_you_mean
from catchment.model.capacity import Capacity, machine_memory
from catchment.model.duration import Duration, Instant, instant, micros
from catchment.model.plan import Group, Plan, longest
from catchment.model.query import Query
from catchment.model.rules import QueryRules, bound
from catchment.model.settings import (
    BAD,
    INCOMPLETE,
    LATE,
    Bad,
    Incomplete,
    Late,
    column_name,
    each_its_name,
    not_negative,
    one_of,
    positive,
    positive_rate,
)
from catchment.operators.values import Mask
from catchment.planner import explain, replan
from catchment.planner.edges import EARLIEST, LATEST
from catchment.planner.group import DEFAULT_RATE

_PIECE = 1 << 20
"""Rows worked on at once: what lies between two steps should not leave the cache by far."""
KEY_BYTES = 4 << 30
"""What keys may take unless it is said otherwise: enough for some ten million."""
_MANY = 1 << 16
"""Rows that may come before the size of the state is looked at again."""
_COUNTS = (
    "events",
    "accepted",
    "late",
    "bad",
    "duplicates",
    "updates",
    "results",
    "open_windows",
    "open_events",
)


def now() -> int:
    """The wall clock, in microseconds."""
    return clocks.time_ns() // 1000


class Engine:
    """Computes all queries over the events pushed.

    The frontier is the latest `advance(t)` less `lateness`: no event before it is expected, and one
    that comes all the same is late. `late` says what becomes of it: `drop` counts it, `collect`
    hands it back (`take_late`), `update` corrects the windows that it changes, for as long as they
    are kept: `keep`, by default the longest window. `schema` checks the queries before any event.

    Late and bad rows wait to be taken (`take_late`, `take_bad`) in at most `aside_bytes` of memory.
    Past that they go to `spill(kind, rows)`; without one they are dropped, and counted as dropped.
    `incomplete` says what becomes of count and user-defined windows that are open at the end
    (`close`): they are counted, or with `emit` also given as results whose column `complete` is
    false.

    State is bounded by the open windows and their keys. When it takes more than `state_bytes`, by
    default the memory of the machine, `push` and `advance` raise StateError.
    """

    def __init__(
        self,
        queries: Iterable[Query],
        time: str = "ts",
        lateness: Duration = "0s",
        late: Late = "drop",
        *,
        keep: Duration | None = None,
        bad: Bad = "collect",
        schema: pa.Schema | None = None,
        rate: float = DEFAULT_RATE,
        clock: Callable[[], int] = now,
        plan: Plan | None = None,
        census: bool = False,
        key_bytes: int | None = None,
        incomplete: Incomplete = "count",
        aside_bytes: int = ASIDE_BYTES,
        spill: Spill | None = None,
        state_bytes: int | None = None,
    ) -> None:
        self.key_bytes = KEY_BYTES if key_bytes is None else positive(key_bytes, "key_bytes")
        """How many bytes keys may take; more, all of them needed, are a LimitError."""
        self.census = census
        """Whether partials say how many events they hold, so that late ones can be counted."""
        self.time = column_name(time, "time column")
        self.lateness = not_negative(lateness, "lateness")
        self.late = one_of(late, LATE, "late")
        self.bad = one_of(bad, BAD, "bad")
        self.incomplete = one_of(incomplete, INCOMPLETE, "incomplete")
        self.rate = positive_rate(rate)
        self.clock = clock
        given = [bound(query, self._rules) for query in each_its_name(queries)]
        self.plan = replan(Plan(), given, rate)[0] if plan is None else plan
        self.queries = {query.name: query for query in given}
        self._keep = None if keep is None else not_negative(keep, "keep")
        self.frontier = EARLIEST
        self.newest = EARLIEST
        self.schema: pa.Schema | None = None
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.limits: dict[str, Limit] = {}
        self.ceiling = FARTHEST
        """No event's time may be this late; runtimes may lower it to what their clock says."""
        self.live: Collection[str] | None = None
        """The streams that may still bring events, where many are read; None: all that did."""
        self.states: dict[int, GroupState] = {}
        self._encoder = Encoder()
        self.aside = SetAside(aside_bytes, spill)
        self.state_bytes = machine_memory() if state_bytes is None else state_bytes
        self._weighed = 0
        self._replanned()
        if schema is not None:
            self._bind(schema)

    def _replanned(self) -> None:
        check_rules(self.plan, self.time, self.late)
        self._names = NamesOf(self.plan)
        self.needed = set().union(*(columns_of(group) for group in self.plan.groups))
        self._shapes = {g.id: self._shape(g, {None: None}, {}) for g in self.plan.groups}

    @property
    def _rules(self) -> QueryRules:
        return QueryRules(self.time, self.late)

    def _shape(self, group: Group, types: Types, keys: dict[str, pa.DataType]) -> Shape:
        return Shape(group, types, keys, self._updates(group))

    def _updates(self, group: Group) -> bool:
        return self.late == "update" and group.measure == "event"

    @property
    def keep(self) -> int:
        """How long before the frontier results may still be corrected."""
        if self.late != "update":
            return 0
        if self._keep is not None:
            return self._keep
        return longest(self.plan) or micros("1h")

    # -- events ----------------------------------------------------------------------------------

    def push(self, events: pa.Table | pa.RecordBatch) -> None:
        """Takes in events, in any order."""
        table = pa.Table.from_batches([events]) if isinstance(events, pa.RecordBatch) else events
        if not isinstance(table, pa.Table):
            raise SchemaError(
                "events must be an Arrow table or record batch", given=type(events).__name__,
                hint="try pa.table({...}) or pa.Table.from_pandas(frame)",
            )  # fmt: skip
        if self.schema is None:
            self._bind(table.schema)
        if self.bad == "fail":
            refuse_bad(table, self.time)
        for begin in range(0, max(table.num_rows, 1), _PIECE):
            self._push(table.slice(begin, _PIECE))
            self._bound_keys()

    def _push(self, table: pa.Table) -> None:
        assert self.schema is not None
        read = conform(table, self.schema, self.needed | {self.time})
        times, good = times_of(read.column(self.time))
        batch = Batch(read, times, self._arrival(), self._encoder)
        self.counts["events"] += len(times)
        if len(batch) and not -FARTHEST < batch.span[0] <= batch.span[1] < self.ceiling:
            far = out_of_range(times, self.ceiling)
            good = ~far if good is None else good & ~far
        if good is not None:
            self._set_aside(table, good)
        fit = self._on_time(table, batch, good)
        self._push_groups(batch if fit is None else batch.where(fit))
        self._weigh()

    def _arrival(self) -> int:
        """The place of the next event in the order of arrival."""
        return self.counts["events"]

    def _set_aside(self, table: pa.Table, good: Mask) -> None:
        bad = table.filter(pa.array(~good))
        self.counts["bad"] += bad.num_rows
        self.aside.add("bad", bad)

    def _on_time(self, table: pa.Table, batch: Batch, good: Mask | None) -> Mask | None:
        """Which events take part (None: all); the late are counted, and collected if so asked."""
        oldest = self.frontier - self.keep
        fit = good
        if len(batch) and batch.span[0] < oldest:
            late = batch.times < oldest if good is None else good & (batch.times < oldest)
            fit = ~late if good is None else good & ~late
            self.counts["late"] += int(late.sum())
            if self.late == "collect" and late.any():
                self.aside.add("late", table.filter(pa.array(late)))
        return fit

    def _push_groups(self, batch: Batch) -> None:
        if not len(batch):
            return
        low, high = batch.span
        if self.late == "update" and low < self.frontier:
            self.counts["updates"] += int((batch.times < self.frontier).sum())
        self.newest = max(self.newest, high)
        self._push_to(self.plan.groups, batch)

    def _push_to(self, groups: Iterable[Group], batch: Batch) -> None:
        dropped: list[Mask | None] = []
        for group in groups:
            state = self.states[group.id]
            by_clock = group.measure == "processing"
            # A clock that steps back must not bring events before what is complete already.
            events = batch.at(max(self.clock(), state.frontier)) if by_clock else batch
            dropped.append(state.push(events))
        # A duplicate is an event that every group dropped.
        masks = [mask for mask in dropped if mask is not None]
        repeats = bool(masks) and len(masks) == len(self.plan.groups)
        duplicates = int(np.logical_and.reduce(masks).sum()) if repeats else 0
        self.counts["duplicates"] += duplicates
        self.counts["accepted"] += len(batch) - duplicates

    def absorb(self, partials: Partials, newest: int = EARLIEST) -> None:
        """Takes in what was sliced elsewhere by the same plan; each partial must come once.

        `newest` is the newest event time there; events may have left no partials here.
        """
        self.newest = max(self.newest, newest)
        for state in self.states.values():
            if state.group.measure == "event":
                state.newest = max(state.newest, newest)
        for id, table in partials.items():
            if id == EVENTS:
                self._absorb_events(table)
            else:
                absorb(self.states[id], table)
                self.newest = max(self.newest, self.states[id].newest)
        self._bound_keys()

    def _bound_keys(self) -> None:
        """Keeps what keys take within their limit: first what only saves time is forgotten."""
        if self._encoder.nbytes + self._indexed() <= self.key_bytes:
            return
        self._encoder.forget()
        for state in self.states.values():
            state.collect_keys(at_once=True)
            state.keys.unlink()
        if self._indexed() <= self.key_bytes:
            return
        keys = max(len(state.keys) for state in self.states.values())
        raise LimitError(
            "the keys that open windows need take more memory than is allowed",
            given=f"{keys:,} keys in {self._indexed():,} bytes of {self.key_bytes:,}",
            hint="raise key_bytes, or use fewer keys, shorter windows, or more nodes",
        )

    def _indexed(self) -> int:
        """Bytes of the keys that are in use."""
        return sum(state.keys.nbytes for state in self.states.values())

    def key_types(self, id: int) -> dict[str, pa.DataType]:
        """The types of a group's keys."""
        return dict(self._shapes[id].key_types)

    def _absorb_events(self, table: pa.Table) -> None:
        order = np.argsort(codec.ints(table, settled.ARRIVAL), kind="stable")
        table = table.take(order)
        batch = Batch(table, codec.ints(table, settled.TIME), 0, self._encoder)
        batch.arrivals = codec.ints(table, settled.ARRIVAL)
        self.newest = max(self.newest, batch.span[1])
        self._push_to((group for group in self.plan.groups if group.distinct_on), batch)

    def take_late(self) -> pa.Table | None:
        """The late rows since the last call; None when there are none."""
        return self.aside.take("late")

    def take_bad(self) -> pa.Table | None:
        """The rows set aside since the last call; None when there are none."""
        return self.aside.take("bad")

    # -- windows ---------------------------------------------------------------------------------

    def advance(self, t: Instant, sure: Instant | None = None) -> Results:
        """Promises that no event before `t` (less the lateness) will come: windows now complete.

        Where somebody's events are given up waiting for, none is missing before `sure`. With
        late="update", windows that ended after it are confirmed once it has passed them.
        """
        frontier = max(self.frontier, min(instant(t) - self.lateness, LATEST - 1))
        return self._advance(frontier, self.clock(), frontier if sure is None else instant(sure))

    def close(self, incomplete: Incomplete | None = None) -> Results:
        """Ends the input: every time and session window is complete.

        Count and user-defined windows that have not ended are counted (`open_windows`, and the
        events in them as `open_events`). With `incomplete="emit"`, by default as the engine was
        told, they are results too.
        """
        emit = one_of(incomplete or self.incomplete, INCOMPLETE, "incomplete") == "emit"
        results = self._advance(LATEST, LATEST, LATEST, emit)
        self.counts["open_windows"] = self.counts["open_events"] = 0
        for group in self.plan.groups:
            state = self.states.get(group.id)
            for windows, events in () if state is None else unended(state):
                assert state is not None
                self.counts["open_windows"] += len(windows)
                self.counts["open_events"] += events
                if emit and len(windows):
                    self.counts["results"] += len(windows)
                    block, spans = to_block(windows, state.keys, state.operators)
                    block.complete = False
                    results.add(group.id, block, spans)
        return results

    def no_results(self, emit: bool | None = None) -> Results:
        """Results of no windows: every query's table is empty."""
        told = self.incomplete == "emit" if emit is None else emit
        return Results(self.plan, self._shapes, self._names, self.limits, told)

    def _advance(self, frontier: int, wall: int, sure: int, emit: bool | None = None) -> Results:
        results = self.no_results(emit)
        self.frontier = frontier
        closing = frontier >= LATEST
        for group in self.plan.groups:
            state = self.states.get(group.id)
            if state is None:
                continue
            state.live = self.live
            by_clock = group.measure == "processing"
            at = wall if by_clock else frontier
            horizon = at if closing or by_clock else max(at - self.keep, EARLIEST)
            for windows in state.advance(at, horizon, wall if by_clock else sure):
                self.counts["results"] += len(windows)
                results.add(group.id, *to_block(windows, state.keys, state.operators))
            state.collect_keys()
        self._forget_texts()
        self._drop_drained()
        self._weigh()
        return results

    def _forget_texts(self) -> None:
        self._encoder.forget(sum(len(state.keys) for state in self.states.values()))

    # -- queries ---------------------------------------------------------------------------------

    def add(self, query: Query) -> None:
        """Adds a query while running: it starts with the first window it can answer completely."""
        if not isinstance(query, Query):
            raise QueryError("not a query", given=repr(query), hint="try ct.Query(...)")
        if query.name in self.queries:
            leaving = query.name in self.limits and self.limits[query.name].until is not None
            raise QueryError(
                "two queries have one name", given=query.name,
                hint="it is leaving: wait, or remove it with drain=False" if leaving
                else "remove one first",
            )  # fmt: skip
        queries = self.queries | {query.name: bound(query, self._rules)}
        plan, lineage = replan(self.plan, queries.values(), self.rate)
        if self.schema is not None:
            bind_types(plan, self.schema, self.time)
        self.queries = queries
        self.follow(plan, lineage)

    def follow(self, plan: Plan, lineage: dict[int, int], leaving: Iterable[str] = ()) -> None:
        """Goes on by another plan; `lineage` says which of the old groups each group continues.

        Queries that leave give the windows that have begun by now, and no others.
        """
        new = plan.names.keys() - self.plan.names.keys()
        self.limits = {name: limit for name, limit in self.limits.items() if name in plan.names}
        self._switch(plan, lineage)
        for name in new:
            group, number = plan.names[name]
            if group in self.states and group in lineage:
                limit = answer_limit(self.states[group], plan.groups[group].answers[number])
                if limit is not None:
                    self.limits[name] = limit
        for name in leaving:
            self._drain(name)

    def _drain(self, name: str) -> None:
        state = self.states.get(self.plan.names[name][0])
        limit = self.limits.get(name, Limit())
        if limit.until is None:
            self.limits[name] = Limit(limit.since, EARLIEST if state is None else state.newest)

    def drained(self, elsewhere: Collection[int] = ()) -> list[str]:
        """The queries that leave and whose windows have ended.

        Of groups whose windows are put together elsewhere, nothing here tells that.
        """
        return [
            name for name, limit in self.limits.items()
            if limit.until is not None and self.plan.names[name][0] not in elsewhere
            and drained(self.plan, self.states, name, limit.until)
        ]  # fmt: skip

    def remove(self, name: str, drain: bool = True) -> None:
        """Removes a query; with `drain`, once the windows that have begun are complete."""
        if name not in self.queries:
            raise QueryError(
                "no such query", given=name, hint=did_you_mean(str(name), self.queries)
            )
        state = self.states.get(self.plan.names[name][0])
        if drain and state is not None and state.newest > EARLIEST:
            self._drain(name)
            return
        self.queries = {other: query for other, query in self.queries.items() if other != name}
        self.follow(*replan(self.plan, self.queries.values(), self.rate))

    def _switch(self, plan: Plan, lineage: dict[int, int]) -> None:
        self.plan = plan
        self._replanned()
        if self.schema is None:
            return
        old, self.states = self.states, {}
        self._bind(self.schema)
        for new_id, old_id in lineage.items():
            move(old[old_id], self.states[new_id], old[old_id].newest)
        for group in self.plan.groups:
            if group.id in lineage or self.newest <= EARLIEST:
                continue
            by_clock = group.measure == "processing"
            times = (self.clock(), self.clock()) if by_clock else (self.frontier, self.newest)
            self.states[group.id].begin(*times)

    def _drop_drained(self) -> None:
        for name in self.drained():
            if name in self.queries:  # by a plan made elsewhere, a query is removed there
                self.remove(name, drain=False)

    def _bind(self, schema: pa.Schema) -> None:
        schema, types = bind_types(self.plan, schema, self.time)
        self.schema = schema
        for group in self.plan.groups:
            self.states[group.id] = GroupState(
                group, types[group.id], self._updates(group), self.census
            )
            keys = {name: key_type(schema.field(name).type) for name in group.by}
            self._shapes[group.id] = self._shape(group, types[group.id], keys)

    def adopt(
        self, plan: Plan, partials: Mapping[int, tuple[Types, dict[str, pa.DataType]]]
    ) -> None:
        """Runs a plan made elsewhere over partials, given the types of their values and keys.

        Groups whose types are not given take no part.
        """
        self.plan, self.time = plan, plan.time or self.time
        self._replanned()
        for group in (group for group in plan.groups if group.id in partials):
            types, keys = partials[group.id]
            self.states[group.id] = GroupState(group, types, updates=False)
            self._shapes[group.id] = self._shape(group, types, keys)

    # -- state -----------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """Bytes of state now; to count them takes a moment."""
        return sum(state.nbytes for state in self.states.values()) + self._encoder.nbytes

    def _weigh(self) -> None:
        """Refuses to go on with more state than allowed; looks only when much has come."""
        come = self.counts["events"] + sum(state.partials for state in self.states.values())
        if come - self._weighed < _MANY:
            return
        self._weighed = come
        held = self.held_bytes
        if held > self.state_bytes:
            raise StateError(
                "the state takes more memory than it may",
                given=f"{held:,} of {self.state_bytes:,} bytes",
                hint="open windows of many keys are kept: shorten windows, narrow keys with a "
                "condition, or allow more with state_bytes",
            )

    def capacities(self) -> list[Capacity]:
        """What grows here, how large it is and may get, and what happens then."""
        then = "push and advance raise StateError"
        state = Capacity("state of windows", self.held_bytes, self.state_bytes, "bytes", then)
        kept = self._encoder.nbytes + self._indexed()
        fails = "push and advance raise LimitError, once all keys are needed"
        keys = Capacity("keys", kept, self.key_bytes, "bytes", fails)
        return [self.aside.capacity(), state, keys]

    @property
    def stats(self) -> Stats:
        """What has been done so far; counting the bytes of state takes a moment."""
        states = self.states.values()
        return Stats(
            **self.counts,
            aside_spilled=self.aside.spilled,
            aside_dropped=self.aside.dropped,
            slices=sum(state.slices for state in states),
            partials=sum(state.partials for state in states),
            operator_calls=sum(state.calls for state in states),
            state_bytes=self.held_bytes,
            missed=missed(states),
        )

    def explain(self) -> str:
        """What will happen, and why, as a tree."""
        return explain(self.plan, self.rate)

    def snapshot(self) -> bytes:
        """The whole state as bytes, from which `restore` goes on as if nothing had happened."""
        return snapshots.save(self)

    @classmethod
    def restore(cls, blob: bytes, *, clock: Callable[[], int] = now) -> Engine:
        """An engine in the state that `snapshot` wrote."""
        return snapshots.load(cls, blob, clock)
