"""What a streaming job is: all that driver and executors must agree on."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from catchment.counting.distributed import distributed_groups
from catchment.durable.folder import Folder
from catchment.engine.bound import BoundPlan
from catchment.errors import StateError
from catchment.functions.user import define_all, defined
from catchment.model.capacity import ASIDE_BYTES, MemoryLimits
from catchment.model.early import FINAL
from catchment.model.query import ALONE
from catchment.model.rules import EventRules
from catchment.model.settings import Incomplete, Late
from catchment.model.time_column import TimeSpec
from catchment.operators.user import Monoid
from catchment.planner.planned import Planned
from catchment.sinks.base import Sink
from catchment.sources.aside_files import ASIDE_DISK_BYTES, AsidePlace
from catchment.sources.base import Source
from catchment.spark.as_text import AsText


@dataclass(frozen=True)
class Spec(AsText):
    """A streaming job. Its home holds plans, progress, queries and the source's notes."""

    job: str
    """A name and some random letters, the same over restarts."""
    home: Folder
    source: Source | None
    """None: the events are a user's own streaming DataFrame."""
    sinks: tuple[Sink, ...]
    schema: pa.Schema
    time: TimeSpec
    late: Late
    keep: int | None
    lateness: int
    idle: int | None
    ahead: int | None
    buckets: int
    labels: tuple[int, ...]
    """A grouping key for each bucket that Spark puts into a partition of its own."""
    parallel: int
    rate: float | None
    """Events in a second of event time that the first plan is made for; None: one is assumed."""
    tree: bool = False
    """Whether this is a node of a tree: its plans come from the root, and partials say how many
    events they hold."""
    count_scheme: str | None = None
    """Which count windows of a tree are found by asking nodes, whose events wait apart."""
    node: int = 0
    """The number of its first partition, by which events rank."""
    stream: str = ALONE
    """Whose events it reads, of the nodes of a tree."""
    functions: dict[str, Monoid] = field(default_factory=defined)
    incomplete: Incomplete = "count"
    """What becomes of windows that are open at the end: counted, or emitted too."""
    emit: str = FINAL
    """When running values of open windows are given."""
    aside_bytes: int = ASIDE_BYTES
    aside_disk_bytes: int = ASIDE_DISK_BYTES
    state_bytes: int | None = None
    key_bytes: int | None = None
    aside_home: Folder | None = None
    """Where rows set aside are kept, if not in the job's home."""
    metered: bool = False
    """Whether results are counted by query, for metrics."""

    def aside_place(self, batch: int) -> AsidePlace:
        """Where a task of a batch writes rows set aside that are too many to hand on."""
        tasks = max(self.parallel, 1)
        memory, disk = self.aside_bytes // tasks, self.aside_disk_bytes // tasks
        return AsidePlace(self.aside, batch, memory, disk)

    @property
    def aside(self) -> Folder:
        """Where rows set aside are kept."""
        return self.aside_home or self.home.sub("aside")

    @property
    def event_rules(self) -> EventRules:
        """How events are treated."""
        return EventRules(
            self.time,
            late=self.late,
            keep=self.keep,
            incomplete=self.incomplete,
            emit=self.emit,
        )

    def bound(self, version: int) -> BoundPlan:
        """A version of the plan, bound to the columns of the events."""
        memory = self.aside_place(0).memory
        limits = MemoryLimits.of(self.state_bytes, self.key_bytes, memory)
        planned = self.plan(version)
        asked = (
            {}
            if self.count_scheme is None
            else distributed_groups(planned, self.schema, self.count_scheme)
        )
        return BoundPlan(
            planned.plan,
            self.event_rules,
            self.schema,
            census=self.tree,
            limits=limits,
            apart=asked,
            made_of=planned.made_of,
        )

    def plan(self, version: int) -> Planned:
        define_all(self.functions)
        return _planned(self.home.uri, version)


@lru_cache(maxsize=8)
def _planned(home: str, version: int) -> Planned:
    data = Folder(home).sub("plans").read(f"{version:09d}")
    if data is None:
        raise StateError(
            "a plan of this job is missing",
            given=f"{home}/plans/{version:09d}",
            hint="the checkpoint must be on storage that driver and executors all reach",
        )
    return Planned.from_bytes(data)


def forget_plans() -> None:
    """Reads plans anew when they are asked for again."""
    _planned.cache_clear()
