"""The engine: events in, windows out; all queries share one plan.

It is a slicer and an assembler in one process, and the queries, which may come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec
import pyarrow as pa

from catchment.engine import codec, snapshots
from catchment.engine.bound import BoundPlan
from catchment.engine.results import Results
from catchment.engine.set_aside import Spill
from catchment.engine.slicer import as_table
from catchment.engine.snapshots import AsideRecord, EngineRecord, GivenLimits, SlicerRecord
from catchment.engine.stats import Stats
from catchment.engine.times import now
from catchment.errors import QueryError, did_you_mean
from catchment.model.capacity import ASIDE_BYTES, Capacity, MemoryLimits, machine_memory
from catchment.model.costs import RECORDED, CostModel, EventRate
from catchment.model.duration import Duration, Instant, instant
from catchment.model.early import FINAL
from catchment.model.plan import Plan
from catchment.model.query import Query
from catchment.model.rules import EventRules, bound, each_bound
from catchment.model.settings import Bad, Incomplete, Late, each_its_name
from catchment.model.time_column import TimeSpec
from catchment.planner import explain, replan
from catchment.planner.edges import EARLIEST
from catchment.planner.observed import RateWatch, losing


class Engine:
    """Computes all queries over the events pushed.

    The frontier is the latest `advance(t)` less `lateness`: no event before it is expected, and one
    that comes all the same is late. `late` says what becomes of it: `drop` counts it, `collect`
    hands it back (`take_late`), `update` corrects the windows that it changes, for as long as they
    are kept: `keep`, by default the longest window. `time` is the column of event times, or a
    `ct.TimeColumn` of epochs or texts. `schema` checks the queries before any event.

    Late and bad rows wait to be taken (`take_late`, `take_bad`) in at most `aside_bytes` of memory.
    Past that they go to `spill(kind, rows)`; without one they are dropped, and counted as dropped.
    `incomplete` says what becomes of count and user-defined windows that are open at the end
    (`close`): they are counted, or with `emit` also given as results whose column `complete` is
    false.

    State is bounded by the open windows and their keys. When it takes more than `state_bytes`, by
    default the memory of the machine, `push` and `advance` raise StateError; keys alone may take
    `key_bytes`, and more, all of them needed, raise LimitError.

    `rate` is how many events are expected in a second of event time. Where many more or fewer come,
    groups that are sliced in a way that loses go over to the other one (`planner/observed.py`).
    `costs` are what plans are decided by. `clock` tells the time in microseconds since 1970, for
    windows of processing time.

        engine = ct.Engine([speed, runs], time="ts", lateness="2s")
        engine.push(events)
        engine.advance("2026-01-01 00:01")["speed"]

    Raises QueryError for queries that cannot be planned together, such as two of one name, and
    SchemaError where they do not fit `schema`, or the first events.
    """

    def __init__(
        self,
        queries: Iterable[Query],
        time: TimeSpec = "ts",
        lateness: Duration = "0s",
        late: Late = "drop",
        *,
        keep: Duration | None = None,
        bad: Bad = "collect",
        schema: pa.Schema | None = None,
        rate: float | None = None,
        costs: CostModel = RECORDED,
        clock: Callable[[], int] = now,
        key_bytes: int | None = None,
        incomplete: Incomplete = "count",
        emit: str = FINAL,
        aside_bytes: int = ASIDE_BYTES,
        spill: Spill | None = None,
        state_bytes: int | None = None,
    ) -> None:
        rules = EventRules.of(time, lateness, late, keep, bad, incomplete, emit)
        limits = MemoryLimits.of(state_bytes, key_bytes, aside_bytes)
        self.observed = RateWatch()
        """The rate at which events have come."""
        self.clock = clock
        given = each_bound(each_its_name(queries), rules.for_queries)
        self.queries = {query.name: query for query in given}
        plan = replan(Plan(rate=EventRate.of(rate), costs=costs), given)[0]
        self._start(BoundPlan(plan, rules, schema, limits=limits), spill)

    def _start(self, bound: BoundPlan, spill: Spill | None = None) -> None:
        self.bound = bound
        self.assembler = bound.assembler(clock=self.clock)
        parts = self.assembler
        self.slicer = bound.slicer(encoder=parts.encoder, clock=parts.wall, spill=spill)

    # -- events ----------------------------------------------------------------------------------

    def push(self, events: Any) -> None:
        """Takes in events, in any order: an Arrow table or record batch, or a frame of pandas,
        Polars or another library that speaks Arrow."""
        table = as_table(events)
        if self.bound.schema is None:
            self.bound = self.bound.bind(table.schema)
            self.slicer.follow(self.bound)
            self.assembler.bind(self.bound)
        for sliced in self.slicer.slice(table, self.frontier):
            self.assembler.add(sliced)

    def take_late(self) -> pa.Table | None:
        """The late rows since the last call; None when there are none."""
        return self.slicer.aside.take("late")

    def take_bad(self) -> pa.Table | None:
        """The rows set aside since the last call; None when there are none."""
        return self.slicer.aside.take("bad")

    # -- windows ---------------------------------------------------------------------------------

    def advance(self, t: Instant) -> Results:
        """Promises that no event before `t` (less the lateness) will come: windows now complete."""
        results = self.assembler.advance(instant(t) - self.bound.rules.lateness)
        self._drop_drained()
        self._observe()
        return results

    def close(self, incomplete: Incomplete | None = None) -> Results:
        """Ends the input: every time and session window is complete.

        Count and user-defined windows that have not ended are counted (`open_windows`, and the
        events in them as `open_events`). With `incomplete="emit"`, by default as the engine was
        told, they are results too.
        """
        results = self.assembler.close(incomplete)
        self._drop_drained()
        return results

    # -- queries ---------------------------------------------------------------------------------

    def add(self, query: Query) -> None:
        """Adds a query while running: it starts with the first window it can answer completely."""
        if not isinstance(query, Query):
            raise QueryError("not a query", given=repr(query), hint="try ct.Query(...)")
        if query.name in self.queries:
            limits = self.assembler.limits
            leaving = query.name in limits and limits[query.name].until is not None
            raise QueryError(
                "two queries have one name",
                given=query.name,
                hint="it is leaving: wait, or remove it with drain=False"
                if leaving
                else "remove one first",
            )
        fitted = bound(query, self.bound.rules.for_queries, self.queries)
        self._follow(self.queries | {query.name: fitted})

    def remove(self, name: str, drain: bool = True) -> None:
        """Removes a query; with `drain`, once the windows that have begun are complete."""
        if name not in self.queries:
            raise QueryError(
                "no such query", given=name, hint=did_you_mean(str(name), self.queries)
            )
        state = self.assembler.states.get(self.plan.names[name][0])
        if drain and state is not None and state.newest > EARLIEST:
            self.assembler.drain(name)
            return
        self._follow({other: query for other, query in self.queries.items() if other != name})

    def plan_for(self, rate: float) -> None:
        """Goes over to what is cheapest at a rate of events, as if that rate had been observed.

        The engine does so by itself where the rate that it observes differs much from the one that
        it has planned for. No result changes, and none is lost.
        """
        told = EventRate(EventRate.of(rate).per_second, "observed")
        self._follow(self.queries, rate=told, handed=losing(self.plan, rate, self._leaving()))

    def _observe(self) -> None:
        """Plans anew where events come at quite another rate than the plan was made for."""
        events = self.slicer.counts["accepted"]
        self.observed = self.observed.after(events, self.newest)
        if self.observed.rate is None or not self.observed.differs(self.plan.rate):
            return
        self.observed, handed = self.observed.next(self.plan, self._leaving())
        if handed and self.observed.rate is not None:
            rate = EventRate(self.observed.rate, "observed")
            self._follow(self.queries, rate=rate, handed=handed)

    def _leaving(self) -> list[str]:
        return [name for name, one in self.assembler.limits.items() if one.until is not None]

    def _follow(
        self,
        queries: dict[str, Query],
        *,
        rate: EventRate | None = None,
        handed: Collection[int] = (),
        ended: Collection[str] = (),
    ) -> None:
        plan, lineage = replan(self.plan, queries.values(), rate=rate, handed=handed, ended=ended)
        self.bound = self.bound.follow(plan)  # refuses a query that does not fit the columns
        self.queries = queries
        self.slicer.follow(self.bound)
        self.assembler.follow(self.bound, lineage)

    def _drop_drained(self) -> None:
        drained = set(self.assembler.drained())
        if not drained:
            return
        stay = {name: query for name, query in self.queries.items() if name not in drained}
        self._follow(stay, ended=drained)

    # -- state -----------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        return self.bound.plan

    @property
    def frontier(self) -> int:
        """No event before it is expected, in microseconds."""
        return self.assembler.frontier

    @property
    def newest(self) -> int:
        """The newest event time so far, in microseconds."""
        return self.assembler.newest

    @property
    def counts(self) -> dict[str, int]:
        """Events, and what became of them."""
        counts = self.slicer.counts | self.assembler.counts
        counts["accepted"] -= counts["duplicates"]
        return counts

    def capacities(self) -> list[Capacity]:
        """What grows here, how large it is and may get, and what happens then."""
        return [self.slicer.aside.capacity(), *self.assembler.capacities()]

    @property
    def stats(self) -> Stats:
        """What has been done so far; counting the bytes of state takes a moment."""
        states = self.assembler.states.values()
        return Stats(
            **self.counts,
            aside_spilled=self.slicer.aside.spilled,
            aside_dropped=self.slicer.aside.dropped,
            slices=sum(state.slices for state in states),
            partials=sum(state.partials for state in states),
            operator_calls=sum(state.calls for state in states),
            state_bytes=self.assembler.held_bytes,
            missed=self.assembler.missed,
        )

    def explain(self) -> str:
        """What will happen, and why, as a tree."""
        return explain(self.plan)

    def snapshot(self) -> bytes:
        """The whole state as bytes, from which `restore` goes on as if nothing had happened."""
        assembler, tables = snapshots.save(self.assembler)
        aside, limits = self.slicer.aside, self.bound.limits
        own = None if limits.state_bytes == machine_memory() else limits.state_bytes
        record = EngineRecord(
            **msgspec.structs.asdict(assembler),
            plan=self.plan.to_bytes(),
            queries=[query.record() for query in self.queries.values()],
            rules=self.bound.rules,
            memory=GivenLimits(own, limits.key_bytes, limits.aside_bytes),
            observed=self.observed,
            sliced=SlicerRecord(self.slicer.counts, self.slicer.newest),
            aside=AsideRecord(aside.spilled, aside.dropped),
        )
        if self.bound.events is not None:
            tables["schema"] = self.bound.events.empty_table()
        for kind, held in aside.tables().items():
            tables |= {f"aside {kind} {number}": table for number, table in enumerate(held)}
        return codec.pack(record, tables)

    @classmethod
    def restore(cls, blob: bytes, *, clock: Callable[[], int] = now) -> Engine:
        """An engine in the state that `snapshot` wrote."""
        saved, tables = codec.unpack(blob, EngineRecord)
        engine = cls([], clock=clock)
        engine.observed = saved.observed
        engine.queries = {q.name: Query.of(q) for q in saved.queries}
        plan = Plan.from_bytes(saved.plan)
        schema = tables["schema"].schema if "schema" in tables else None
        given = saved.memory
        limits = MemoryLimits.of(given.state_bytes, given.key_bytes, given.aside_bytes)
        engine._start(BoundPlan(plan, saved.rules, schema, limits=limits))
        engine.slicer.counts |= saved.sliced.counts
        engine.slicer.newest = saved.sliced.newest
        for name, table in tables.items():
            if name.startswith("aside "):
                engine.slicer.aside.add(name.split()[1], table)
        engine.slicer.aside.spilled = saved.aside.spilled
        engine.slicer.aside.dropped = saved.aside.dropped
        snapshots.load(engine.assembler, saved, tables)
        return engine
