"""Decodes a message for the node that takes it in.

The bytes of a message and a version of the plan go in. Its partials come out as that version would
have cut them, without slices that have ended too long ago, which are counted as late.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from catchment.engine import codec
from catchment.engine.bound import BoundPlan
from catchment.engine.coarser import with_coarser
from catchment.engine.partials import Partials, are_events, ends_of, events_in, split_at
from catchment.planner.edges import EARLIEST
from catchment.ranking.message import late_rows
from catchment.tree.charter import Charter
from catchment.tree.message import Head, decode


@dataclass(frozen=True)
class TakenMessage:
    """What a message brings."""

    head: Head
    partials: Partials
    late: int
    """Events that come too late for any result."""
    late_until: dict[int, int]
    """The groups that lack these events where they should be, and up to which time."""
    end: int
    """The end of the last slice among its partials."""
    notes: pa.Table | None = None
    """The notes on count windows that it carries."""
    ranks: pa.Table | None = None
    """The notes on values that nodes keep back."""
    marks: pa.Table | None = None
    """The notes on events between marks."""


def taken(
    body: bytes, plan: int, charter: Charter, too_late: int = EARLIEST, *, at_root: bool = False
) -> TakenMessage:
    """A message by a version of the plan; slices that end by `too_late` are only counted.

    At the root it has the partials of all groups, those too that are made of others.
    """
    head, partials, notes, ranks, marks = decode(body, charter)
    partials = upgraded(partials, head.plan, plan, charter)
    if at_root:
        partials = with_coarser(partials, charter.bound(plan))
    late, rest = split_at(partials, too_late)
    # Every group has the same events, but for those that its conditions leave out.
    held = {id: events_in(table) for id, table in late.groups.items() if table.num_rows}
    events = 0 if late.events is None else late.events.num_rows
    until = _late_until(late, charter.bound(plan))
    groups = {name: id for id, name in charter.ranked_groups(plan).items()}
    for name, (count, end) in late_rows(ranks, too_late).items():
        if name in groups:
            id = groups[name]
            held[id] = held.get(id, 0) + count
            until[id] = max(until.get(id, EARLIEST), end)
    return TakenMessage(
        head,
        rest,
        max([events, *held.values()]),
        until | _straddling(rest, charter.bound(plan), too_late),
        _end_of(rest),
        notes,
        ranks,
        marks,
    )


def last_end(body: bytes, charter: Charter) -> int:
    """The end of the last slice of a message."""
    return _end_of(decode(body, charter).partials)


def _end_of(partials: Partials) -> int:
    ends = [_last_end(table) for table in partials.tables if table.num_rows]
    return max(ends, default=EARLIEST)


def _last_end(table: pa.Table) -> int:
    return int(ends_of(table).max())


def _late_until(late: Partials, bound: BoundPlan) -> dict[int, int]:
    """The groups that a table is for: one of events may be for several."""
    found: dict[int, int] = {}
    for id, table in late.groups.items():
        serves = bound.waiting[id].groups if id in bound.waiting else [id]
        found |= dict.fromkeys(serves, _last_end(table))
    if late.events is not None:
        deduplicated = [group.id for group in bound.plan.groups if group.distinct_on]
        found |= dict.fromkeys(deduplicated, _last_end(late.events))
    return found


def _straddling(rest: Partials, bound: BoundPlan, too_late: int) -> dict[int, int]:
    """The groups with sessions of which a slice begins too late and ends in time: it is taken, but
    a session that its first events would have joined may have been given without them."""
    return {
        id: too_late
        for id, table in rest.groups.items()
        if bound.groups[id].smallest_gap is not None
        and not are_events(table)
        and table.num_rows
        and int(codec.ints(table, "slice_first").min()) < too_late
    }


def upgraded(partials: Partials, cut: int, plan: int, charter: Charter) -> Partials:
    """Partials cut by an older version of the plan, as far as they serve a newer one."""
    if cut >= plan:
        return partials
    merger = charter.bound(cut).merger()
    merger.absorb(partials)
    for version in range(cut + 1, plan + 1):
        planned = charter.plans[version]
        merger.follow(charter.bound(version), planned.lineage)
    return merger.take()
