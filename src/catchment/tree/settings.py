"""The settings of a tree: what its job file says of all nodes alike, as one frozen record."""

from __future__ import annotations

from msgspec import Struct, field

from catchment.counting.scheme import OURS, CountOptions
from catchment.flush.settings import Flush
from catchment.model.capacity import ASIDE_BYTES, MemoryLimits
from catchment.model.early import FINAL
from catchment.model.node_id import NodeId
from catchment.model.rules import EventRules, QueryRules, correcting
from catchment.model.settings import Incomplete, Late, MarkMode, QuantileMode
from catchment.model.time_column import TimeSpec
from catchment.sources.aside_files import ASIDE_DISK_BYTES


class TreeSettings(Struct, frozen=True):
    """How the nodes of a tree treat events; durations in microseconds."""

    time: TimeSpec = "ts"
    """The column of event times, and how they are read."""
    late: Late = "drop"
    keep: int | None = None
    """How long late events may correct results; None: for the longest window."""
    rate: float | None = None
    """Events in a second of event time that the first plan is made for; None: one is assumed."""
    lateness: int = 0
    idle: int | None = None
    """After so long without an event nobody waits for a partition; None: everybody does."""
    ahead: int | None = None
    """How far event times may be ahead of the clock."""
    timeout: int | None = None
    """After so long without a word a node is given up for missing; None: it never is."""
    flush: Flush = Flush()
    """When nodes send what."""
    count: str = "central"
    """How the edges of count windows are found."""
    count_options: CountOptions = OURS
    """How these edges are predicted, and whether nodes wait for them."""
    quantiles: QuantileMode = "auto"
    """Whether values stay where they were read until they are asked for."""
    marks: MarkMode = "ask"
    """Whether events between marks of user-defined windows stay where they were read until the root
    tells where to cut them."""
    incomplete: Incomplete = "count"
    emit: str = FINAL
    """When running values of open windows are given: of what has climbed to the root."""
    aside_bytes: int = ASIDE_BYTES
    aside_disk_bytes: int = ASIDE_DISK_BYTES
    state_bytes: int | None = None
    key_bytes: int | None = None
    tables: tuple[str, ...] = ()
    """What SQL may call the events in FROM."""
    spares: dict[NodeId, NodeId] = field(default_factory=dict)
    """Nodes that wait until another is gone, and which one."""

    @property
    def distributes_counts(self) -> bool:
        """Whether edges of count windows may be asked for, instead of sending all events."""
        corrected = correcting(self.late, self.emit) is not None
        return self.count != "central" and not corrected and self.idle is None

    @property
    def asks_values(self) -> bool:
        """Whether values may be asked for, instead of sending all of them."""
        return self.quantiles != "send" and correcting(self.late, self.emit) is None

    @property
    def asks_marks(self) -> bool:
        """Whether user-defined windows may be found by their marks, without sending all events."""
        corrected = correcting(self.late, self.emit) is not None
        return self.marks == "ask" and not corrected and self.idle is None

    @property
    def query_rules(self) -> QueryRules:
        """What the tree demands of its queries."""
        return QueryRules(self.time, self.late, self.tables, tree=True, emit=self.emit)

    @property
    def event_rules(self) -> EventRules:
        """How nodes treat events."""
        return EventRules(
            self.time,
            late=self.late,
            keep=self.keep,
            incomplete=self.incomplete,
            emit=self.emit,
        )

    @property
    def memory_limits(self) -> MemoryLimits:
        return MemoryLimits.of(self.state_bytes, self.key_bytes, self.aside_bytes)
