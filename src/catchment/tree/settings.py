"""The settings of a tree: what its job file says of all nodes alike, as one frozen record."""

from __future__ import annotations

from msgspec import Struct

from catchment.flush.settings import Flush
from catchment.model.capacity import ASIDE_BYTES, MemoryLimits
from catchment.model.rules import EventRules, QueryRules
from catchment.model.settings import Incomplete, Late
from catchment.sources.aside_files import ASIDE_DISK_BYTES


class TreeSettings(Struct, frozen=True):
    """How the nodes of a tree treat events; durations in microseconds."""

    time: str = "ts"
    """The column of event times."""
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
    incomplete: Incomplete = "count"
    aside_bytes: int = ASIDE_BYTES
    aside_disk_bytes: int = ASIDE_DISK_BYTES
    state_bytes: int | None = None
    key_bytes: int | None = None
    tables: tuple[str, ...] = ()
    """What SQL may call the events in FROM."""

    @property
    def distributes_counts(self) -> bool:
        """Whether edges of count windows may be asked for, instead of sending all events."""
        return self.count != "central" and self.late != "update" and self.idle is None

    @property
    def query_rules(self) -> QueryRules:
        """What the tree demands of its queries."""
        return QueryRules(self.time, self.late, self.tables, tree=True)

    @property
    def event_rules(self) -> EventRules:
        """How nodes treat events."""
        return EventRules(self.time, late=self.late, keep=self.keep, incomplete=self.incomplete)

    @property
    def memory_limits(self) -> MemoryLimits:
        return MemoryLimits.of(self.state_bytes, self.key_bytes, self.aside_bytes)
