"""Decodes a message for the node that takes it in.

The bytes of a message and a version of the plan go in. Its partials come out as that version would
have cut them, without slices that have ended too long ago, which are counted as late.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from catchment.engine.partials import Partials, ends_of, events_in, split_at
from catchment.planner.edges import EARLIEST
from catchment.tree.charter import Charter
from catchment.tree.message import Head, decode


@dataclass(frozen=True)
class TakenMessage:
    """What a message brings."""

    head: Head
    partials: Partials
    late: int
    """Events that come too late for any result."""
    end: int
    """The end of the last slice among its partials."""
    notes: pa.Table | None = None
    """The notes on count windows that it carries."""


def taken(body: bytes, plan: int, charter: Charter, too_late: int = EARLIEST) -> TakenMessage:
    """A message by a version of the plan; slices that end by `too_late` are only counted."""
    head, partials, notes = decode(body, charter)
    late, rest = split_at(_upgraded(partials, head.plan, plan, charter), too_late)
    # Every group has the same events, but for those that its conditions leave out.
    held = [events_in(table) for table in late.tables if table.num_rows]
    ends = [int(ends_of(table).max()) for table in rest.tables if table.num_rows]
    return TakenMessage(head, rest, max(held, default=0), max(ends, default=EARLIEST), notes)


def _upgraded(partials: Partials, cut: int, plan: int, charter: Charter) -> Partials:
    """Partials cut by an older version of the plan, as far as they serve a newer one."""
    if cut >= plan:
        return partials
    merger = charter.bound(cut).merger()
    merger.absorb(partials)
    for version in range(cut + 1, plan + 1):
        planned = charter.plans[version]
        merger.follow(charter.bound(version), planned.lineage)
    return merger.take()
