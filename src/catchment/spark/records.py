"""What the driver, executors and the job's folder hand each other, as frozen records.

    offset   what Spark writes down of a batch before it runs: `Offset`
    parcel   what a task says of its split beside partials: `Parcel`; in a batch job, `SplitRead`;
             of a streaming DataFrame of results, `StreamSplit`
    results  what a task of a batch job says of a bucket beside results: `BucketMade`
    report   what a bucket of keys says after a batch: `BucketReport`
    head     where the log of a bucket stands in Spark's state store: `LogHead`
    job.json whose folder it is: `JobIdentity`

All are read with the codec of `model/records.py`, which checks them.
"""

from __future__ import annotations

from msgspec import Struct

from catchment.model.capacity import Capacity
from catchment.model.early import FINAL
from catchment.model.frontier import Frontier
from catchment.model.settings import Late
from catchment.model.time_column import TimeSpec
from catchment.sinks.result_counts import QueryCounts
from catchment.sources.aside_files import AsideFile
from catchment.sources.base import Position
from catchment.sources.reading import UnreadRow
from catchment.spark.profile import BucketSeconds, SplitSeconds
from catchment.tree.records import Lagging, Uncounted


class Control(Struct, frozen=True):
    """What a batch is given besides events. It is in the offset, so it is the same in a retry."""

    batch: int
    plan: int
    now: int
    ended: bool
    frontier: Frontier
    complete_until: int | None = None
    """At the root of a tree: nothing is missing before it. None: this is no tree."""
    missing: tuple[str, ...] = ()
    live: tuple[str, ...] | None = None
    """At the root of a tree: the nodes that may still bring events, where each node has windows of
    its own."""
    lagging: Lagging | None = None
    """At the root of a tree: nodes whose events lack in windows of newer queries."""
    uncounted: tuple[Uncounted, ...] = ()
    """At the root of a tree: count windows that lack events of nodes that were given up."""


class PlanChange(Struct, frozen=True, omit_defaults=True):
    """How the plan of the next batch must differ, apart from queries that are added or removed."""

    handed: tuple[int, ...] = ()
    """Groups whose queries move to others, because at this rate their way of slicing costs more."""
    rate: float | None = None
    """That rate, in events a second."""
    ended: tuple[str, ...] = ()
    """Names in `Plan.former` whose windows have all been given."""


UNCHANGED = PlanChange()


class Offset(Control, frozen=True, kw_only=True):
    """What Spark writes down before a batch runs: what it is told, and how far it reads."""

    at: Position

    @classmethod
    def of(cls, at: Position, control: Control) -> Offset:
        told = {name: getattr(control, name) for name in Control.__struct_fields__}
        return cls(**told, at=at)

    @property
    def control(self) -> Control:
        """What the batch is told, without how far it reads."""
        return Control(**{name: getattr(self, name) for name in Control.__struct_fields__})


class SplitNote(Struct, frozen=True, omit_defaults=True):
    """What a task of a streaming job says of its split, to every bucket of keys."""

    number: int
    """The number of the split in its batch."""
    control: Control
    partition: str | None = None
    newest: int | None = None
    """The newest event time; None: there was none."""
    counts: dict[str, int] | None = None
    """What was counted; only the first bucket hears of it."""
    spilled: list[AsideFile] = []
    """Files of rows set aside; only the first bucket hears of them."""
    ends: list[tuple[str, int, int]] = []
    """For each message from below: its node, its number, and where its partials end."""
    seconds: SplitSeconds = SplitSeconds()
    """What it took; only the first bucket hears of it."""


class Parcel(Struct, frozen=True, omit_defaults=True):
    """What a parcel of a streaming job holds: a split's partials, or rows that were set aside."""

    split: SplitNote | None = None
    aside: str | None = None
    """The kind of the rows set aside."""


class SplitRead(Struct, frozen=True, omit_defaults=True):
    """What a task of a batch job says of its split."""

    number: int = 0
    """The number of the split. Partials of splits are taken in the order of these numbers."""
    piece: int = 0
    """The number of the piece in its split. Pieces are taken in this order."""
    counts: dict[str, int] = {}
    unread: list[UnreadRow] = []
    spilled: list[AsideFile] = []
    seconds: SplitSeconds | None = None
    """What it took, where that is told: at its end."""


class StreamSplit(Struct, frozen=True, omit_defaults=True):
    """What a task says of the rows of a streaming DataFrame, to every bucket of keys."""

    number: int
    """The number of the task. Partials of tasks are taken in the order of these numbers."""
    piece: int = 0
    """The number of the piece in its task. Pieces are taken in this order."""
    newest: int | None = None
    """The newest event time; None: there was none, or more is to come."""
    now: int | None = None
    """The time of the batch, where windows go by it."""
    counts: dict[str, int] = {}
    """What was counted; only the first bucket hears of it."""


class BucketMade(Struct, frozen=True, omit_defaults=True):
    """What a task of a batch job says of a bucket that it has assembled."""

    counts: dict[str, int] = {}
    """What its splits counted, and the assembler."""
    unread: list[UnreadRow] = []
    spilled: list[AsideFile] = []
    rows: int = 0
    """Result rows of all queries."""
    pieces: int = 0
    """The number of pieces that the results are in."""
    seconds: BucketSeconds = BucketSeconds()
    splits: list[SplitSeconds] = []
    """What the splits took, where it was told."""


class StepNote(Struct, frozen=True):
    """What one batch does to a bucket, besides its partials: all that its results depend on."""

    plan: int
    frontier: int
    newest: int
    now: int
    ended: bool
    complete_until: int | None = None
    live: tuple[str, ...] | None = None


class LogHead(Struct, frozen=True):
    """Where the log of a bucket stands in Spark's state store, and the snapshot before it."""

    plan: int
    """The plan version of the snapshot or, without one, of the first batch."""
    first: int = 0
    next: int = 0
    bytes: int = 0
    """The bytes of the entries from `first` to `next`."""
    chunks: int = 0
    """The number of chunks of the snapshot; 0: there is none yet."""
    size: int = 0
    base: str = ""
    """The tag of the snapshot."""
    tag: str = ""
    """The tag of the last entry."""
    origin: str = ""
    """What the state was made for, where no job's folder says it."""


class BucketReport(Struct, frozen=True):
    """What a bucket says to the driver after a batch."""

    bucket: int
    control: Control
    frontier: Frontier
    results: int
    """Rows of results."""
    duplicates: int
    missed: int
    drained: list[str]
    """Queries that leave and whose windows have all ended here."""
    counts: list[dict[str, int]]
    """What the splits counted."""
    spilled: list[AsideFile]
    open_windows: int
    open_events: int
    limits: list[Capacity]
    seconds: BucketSeconds
    splits: list[SplitSeconds]
    """What the splits took, where it was told."""
    tallies: dict[str, QueryCounts] = {}
    """What there was of each query, where metrics are served."""


class JobCounts(Struct, frozen=True):
    """What a job has counted over all its batches."""

    events: int = 0
    accepted: int = 0
    late: int = 0
    bad: int = 0
    duplicates: int = 0
    updates: int = 0
    results: int = 0
    open_windows: int = 0
    open_events: int = 0
    aside_dropped: int = 0
    missed: int = 0
    """Slices of nodes of a tree that were given up, too late for their windows."""


class FolderFormat(Struct, frozen=True):
    """The format of a job's folder, whatever else a newer version may say of the job."""

    format: int


class JobIdentity(FolderFormat, frozen=True):
    """Whose folder it is, and what may not change as long as it is."""

    job: str
    """A name and some random letters, the same over restarts."""
    name: str
    source: str
    """The type of the source."""
    time: TimeSpec
    late: Late
    buckets: int
    tables: tuple[str, ...]
    """What SQL may call the events."""
    emit: str = FINAL
    """When running values of open windows are given."""
