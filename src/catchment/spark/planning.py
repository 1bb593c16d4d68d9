"""Planning the next batch, on the driver: how far to read, by which plan, from which frontier.

All that a batch depends on is in its offset, which Spark writes down before the batch runs. So a
batch that runs again after a crash does the same, whatever has changed since.
"""

from __future__ import annotations

from msgspec import Struct

from catchment.durable.folder import Folder
from catchment.engine.times import now
from catchment.errors import StateError
from catchment.model import records
from catchment.model.costs import EventRate
from catchment.model.frontier import Frontier
from catchment.model.query import Query
from catchment.planner.observed import RateWatch
from catchment.planner.planned import NOTHING
from catchment.sources.base import Position, Split
from catchment.sources.watch import SourceWatch
from catchment.spark.queries import PlansFromRoot, Queries
from catchment.spark.records import UNCHANGED, Control, JobCounts, Offset, PlanChange
from catchment.spark.spec import Spec
from catchment.spark.stepping import Steps, control_of, read_step

_TICK = 1_000_000
"""How often windows by the wall clock are looked after while no events come, in microseconds."""


class StepPlanner:
    """Plans the batches of a node whose steps its driver decides."""

    def __init__(self, spec: Spec) -> None:
        assert isinstance(spec.source, Steps)
        self.spec, self.source, self.until_now = spec, spec.source, False

    def first(self) -> Offset:
        control = Control(-1, 0, now(), ended=False, frontier=Frontier())
        return Offset.of(self.source.start(), control)

    def next(self, start: Offset) -> Offset:
        """The offset of the next step; the same as before while none is decided."""
        at = self.source.latest(start.at)
        if at == start.at:
            return start
        step = read_step(self.source.folder(), at["step"]).step
        return Offset.of(at, control_of(step))

    def splits(self, start: Offset, end: Offset) -> list[tuple[int, Split | None]]:
        """What executors read of a step; at least one, if empty."""
        found = self.source.splits(start.at, end.at, self.spec.parallel)
        return [(self.spec.node, split) for split in found] or [(self.spec.node, None)]

    def commit(self, end: Offset) -> None:
        self.source.commit(end.at)


def planner_of(spec: Spec) -> BatchPlanner | StepPlanner:
    return StepPlanner(spec) if isinstance(spec.source, Steps) else BatchPlanner(spec)


PLANS_BEHIND = 64
"""Versions of the plan that the log of a bucket may reach back: then a snapshot takes its place."""
PLANS_KEPT = 4 * PLANS_BEHIND
"""Versions of the plan that are kept: more than a batch that runs again may ask for."""


class BatchPlanner:
    """Plans batches. The offset is the source's position and the control of the batch."""

    def __init__(self, spec: Spec) -> None:
        assert spec.source is not None  # a streaming DataFrame plans its batches itself
        self.spec = spec
        self.source = spec.source
        self.source.open(spec.home.sub("source"))
        self.queries = PlansFromRoot(spec) if spec.tree else Queries(spec)
        self.until_now = False
        self._bound: Position | None = None
        self._watch = SourceWatch(spec.home.sub("source"), self.source)

    def first(self) -> Offset:
        """Before the first batch. The plan of batch 0 was made when the job was."""
        known = Frontier().knowing(self.source.partitions(self.source.start()), now())
        control = Control(-1, self.queries.first(), now(), ended=False, frontier=known)
        return Offset.of(self.source.start(), control)

    def next(self, start: Offset) -> Offset:
        """The offset of the next batch; the same as before when there is nothing to do."""
        if start.ended:
            return start
        if self.until_now and self._bound is None:
            self._bound = self.source.bound(start.at)
        at = self.source.latest(start.at, self._bound)
        self._watch.look(at == start.at and self._bound is not None)
        frontier, asked = self._after(start)
        plan = self.queries.changed(start.plan, asked)
        ended = at == start.at and self.source.ended(at)
        clock = max(now(), start.now)
        moved = at != start.at or plan != start.plan or ended
        if not moved and not self._due(start, frontier, clock):
            return start
        names = [*self.source.partitions(at)]
        names += [s.partition for s in self.source.splits(start.at, at, self.spec.parallel)]
        control = Control(start.batch + 1, plan, clock, ended, frontier.knowing(names, clock))
        return Offset.of(at, control)

    def _after(self, before: Control) -> tuple[Frontier, PlanChange]:
        """What the driver wrote down after the batch before, before it committed: the frontier, and
        what is asked of the plan."""
        if before.batch < 0:
            return before.frontier, UNCHANGED
        progress = Progress.load(self.spec, before.batch)
        return progress.frontier, progress.plan_change

    def _due(self, before: Control, frontier: Frontier, clock: int) -> bool:
        """Whether time alone changes something: a partition gone idle, windows by the clock."""
        spec = self.spec
        if frontier.after({}, clock, spec.lateness, spec.idle).value > frontier.value:
            return True
        by_clock = any(g.measure == "processing" for g in spec.plan(before.plan).plan.groups)
        return by_clock and clock - before.now >= _TICK

    def splits(self, start: Offset, end: Offset) -> list[tuple[int, Split | None]]:
        """What the batch reads, each with the number of its partition; at least one, if empty."""
        frontier = end.frontier
        found = self.source.splits(start.at, end.at, self.spec.parallel)
        first = self.spec.node
        return [(first + frontier.number(s.partition), s) for s in found] or [(first, None)]

    def commit(self, end: Offset) -> None:
        self.source.commit(end.at)


class Progress(Struct, frozen=True):
    """What is known after a batch, kept in the job's home."""

    batch: int
    frontier: Frontier
    counts: JobCounts
    ended: bool
    plan: int
    """The plan version of the next batch, where the offset does not have it."""
    now: int
    drained: tuple[str, ...] = ()
    """Queries that leave and whose windows have all ended."""
    observed: RateWatch = RateWatch()
    """The rate at which events have come."""
    plan_change: PlanChange = UNCHANGED
    """What is asked of the plan of the next batch."""

    @classmethod
    def newest(cls, home: Folder, most: int = 1) -> list[Progress]:
        """The progress of the last batches, at most so many, the oldest first."""
        folder = home.sub("progress")
        found = []
        for name in folder.names()[-most:]:
            data = folder.read(name)
            if data is not None:  # it may have been removed meanwhile
                found.append(records.decode(cls, data, f"the progress of batch {int(name[:9])}"))
        return found

    @classmethod
    def load(cls, spec: Spec, batch: int) -> Progress:
        data = spec.home.sub("progress").read(f"{batch:09d}.json")
        if data is None:
            raise StateError(
                "the progress of a batch is missing",
                given=f"{spec.home.shown}/progress/{batch:09d}",
                hint="the job's folder was changed by hand, or is of another job",
            )
        return records.decode(cls, data, f"the progress of batch {batch}")

    def save(self, spec: Spec) -> None:
        folder = spec.home.sub("progress")
        folder.write(f"{self.batch:09d}.json", records.encode(self))
        folder.remove(f"{self.batch - KEPT:09d}.json")
        if self.plan >= PLANS_KEPT:
            spec.home.sub("plans").remove(f"{self.plan - PLANS_KEPT:09d}")


KEPT = 200
"""Progress of so many batches is kept: more than Spark may ask to run again."""


def first_plan(spec: Spec, queries: list[Query]) -> None:
    """Writes the plan of the first batch."""
    named = {query.name: query for query in queries}
    planned = NOTHING.next(0, named, rate=EventRate.of(spec.rate))
    spec.home.sub("plans").write(f"{0:09d}", planned.to_bytes())
