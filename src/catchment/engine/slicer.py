"""The first verb, for a whole plan: the events of a stream to slices, bad and late ones set aside.

A table of events goes in. Out come pieces, each a `Sliced`: for every group of the plan either rows
of slice and key, or the events themselves where slices begin and end in the data. Keys are codes
local to the piece, which a merger or an assembler translates into its own.

    events --conform--> times --bad, late--> batch --group by group--> Sliced
                                  |
                               set aside
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from catchment.engine.batch import Batch
from catchment.engine.binding import conform
from catchment.engine.bound_group import BoundGroup
from catchment.engine.bound_waiting import WaitingEvents
from catchment.engine.heap import keep_freed_memory
from catchment.engine.keys import Encoder
from catchment.engine.set_aside import SetAside, Spill
from catchment.engine.slicing import SlicedGroup
from catchment.engine.times import FARTHEST, out_of_range, refuse_bad, times_of
from catchment.errors import SchemaError
from catchment.expression.lookup import refresh as refresh_lookups
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST

if TYPE_CHECKING:
    from catchment.engine.bound import BoundPlan

_PIECE = 1 << 20
"""Rows worked on at once: few enough that what one step computes is still in the processor's cache
for the next."""
_LARGE = 1 << 16
"""Events of a batch whose arrays are worth keeping: a small node, which reads fewer at once, shall
stay small."""
_NODE_BITS = 44
"""Events rank by node and then by arrival: half a million nodes of ten million million events."""


def rank(node: int, arrival: int) -> int:
    """The place of an event in the order of arrival over all nodes."""
    return (node << _NODE_BITS) + arrival


class Sliced(NamedTuple):
    """A piece of events, and what each group makes of it.

    Groups whose events wait together have one part, by the id of the first. Groups that drop
    duplicates have none: they need the events where all of them meet.
    """

    stream: str
    batch: Batch
    """The events that take part, at their own times."""
    at_clock: Batch
    """The same events at the time of the clock."""
    parts: dict[int, SlicedGroup | WaitingEvents]

    def events_of(self, group: BoundGroup) -> Batch:
        """The events at the times that a group goes by."""
        return self.at_clock if group.group.measure == "processing" else self.batch


class Slicer:
    """Slices the events of one stream by a bound plan."""

    def __init__(
        self,
        bound: BoundPlan,
        stream: str,
        encoder: Encoder,
        clock: Callable[[], int],
        spill: Spill | None,
    ) -> None:
        self.bound = bound
        self.stream = stream
        self.clock = clock
        self.encoder = encoder
        """Remembers texts of keys for the merger or assembler that takes the slices."""
        self.aside = SetAside(bound.limits.aside_bytes, spill)
        names = ("events", "accepted", "late", "bad", "updates", "no_window")
        self.counts = dict.fromkeys(names, 0)
        self.newest = EARLIEST
        """The newest event time so far."""
        self.ceiling = FARTHEST
        """No event's time may be this late; runtimes may lower it to what their clock says."""

    def slice(
        self,
        events: Any,
        frontier: int = EARLIEST,
        arrival: int | None = None,
    ) -> Iterator[Sliced]:
        """The pieces of a table of events, in any order of time.

        Events before the frontier are late. `arrival` is the rank of the first event; without it,
        events are ranked as they come here.
        """
        table = as_table(events)
        refresh_lookups()
        if table.num_rows >= _LARGE:
            keep_freed_memory()
        if self.bound.rules.bad == "fail":
            refuse_bad(table, self.bound.rules.time)
        first = self.counts["events"] if arrival is None else arrival
        for begin in range(0, max(table.num_rows, 1), _PIECE):
            yield self._piece(table.slice(begin, _PIECE), frontier, first + begin)

    def unread(self, rows: pa.Table) -> None:
        """Counts rows that could not be read as events, and sets them aside."""
        self.counts["events"] += rows.num_rows
        self.counts["bad"] += rows.num_rows
        self.aside.add("unread", rows)

    def follow(self, bound: BoundPlan) -> None:
        """Goes on by another plan."""
        self.bound = bound

    def _piece(self, table: pa.Table, frontier: int, arrival: int) -> Sliced:
        assert self.bound.schema is not None
        rules = self.bound.rules
        read = conform(table, self.bound.schema, self.bound.columns, rules.time)
        times, good = times_of(read.column(rules.time_name))
        batch = Batch(read, times, arrival, self.encoder, self.stream)
        self.counts["events"] += len(times)
        if len(batch) and not -FARTHEST < batch.span[0] <= batch.span[1] < self.ceiling:
            far = out_of_range(times, self.ceiling)
            good = ~far if good is None else good & ~far
        if good is not None:
            bad = table.filter(pa.array(~good))
            self.counts["bad"] += bad.num_rows
            self.aside.add("bad", bad)
        fit = self._on_time(table, batch, good, frontier)
        batch = batch if fit is None else batch.where(fit)
        if len(batch):
            self.newest = max(self.newest, batch.span[1])
            self.counts["accepted"] += len(batch)
            if rules.late == "update" and batch.span[0] < frontier:
                self.counts["updates"] += int((batch.times < frontier).sum())
            for condition in self.bound.requirements:
                self.counts["no_window"] += int((~batch.mask(condition)).sum())
        by_clock = any(g.measure == "processing" for g in self.bound.plan.groups)
        made = Sliced(self.stream, batch, batch.at(self.clock()) if by_clock else batch, {})
        if len(batch):
            for shared in self.bound.shared:
                events = made.at_clock if shared.measure == "processing" else batch
                made.parts.update(shared.slice(events))
        for id, bound in self.bound.by_selections.items():
            if bound.group.distinct_on or id in made.parts or id in self.bound.made_of:
                continue
            events = made.events_of(bound)
            waiting = self.bound.waiting.get(id)
            if waiting is not None:
                made.parts[id] = waiting.events(events)
            elif bound.group.slicing == "arrival":
                made.parts[id] = bound.slicer.slice(events, events.chosen(bound.group.selections))
        return made

    def _on_time(
        self, table: pa.Table, batch: Batch, good: Mask | None, frontier: int
    ) -> Mask | None:
        """Which events take part (None: all); the late are counted, and collected if so asked."""
        oldest = frontier - self.bound.keep
        if not len(batch) or batch.span[0] >= oldest:
            return good
        late = batch.times < oldest if good is None else good & (batch.times < oldest)
        self.counts["late"] += int(late.sum())
        if self.bound.rules.late == "collect" and late.any():
            self.aside.add("late", table.filter(pa.array(late)))
        return ~late if good is None else good & ~late


def is_frame(events: object) -> bool:
    """Whether events are a table, of Arrow or of a library that speaks Arrow's C interface, or
    columns by their names."""
    known = isinstance(events, pa.Table | pa.RecordBatch | dict)
    return known or hasattr(events, "__arrow_c_stream__")


def as_table(events: Any) -> pa.Table:
    """Events as an Arrow table: a table, a record batch, a frame of pandas, Polars and others, or
    columns by their names."""
    if isinstance(events, pa.Table):
        return events
    if isinstance(events, pa.RecordBatch):
        return pa.Table.from_batches([events])
    if not is_frame(events):
        raise SchemaError(
            "events must be an Arrow table or record batch, a frame, or columns by their names",
            given=type(events).__name__,
            hint="try pa.table({...}); ct.run(..., spark=False) reads files too",
        )
    try:
        return pa.table(events)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise SchemaError(
            "events cannot become an Arrow table",
            given=type(events).__name__,
            hint=str(error).splitlines()[0],
        ) from error
