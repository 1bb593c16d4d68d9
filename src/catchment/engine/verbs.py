"""The three verbs over Arrow tables: plain calls of what every runtime runs.

`slice` is a `Slicer` beside a `Merger`, `merge` a `Merger`, and `assemble` an `Assembler`, each
made for one call. Only one thing is added here: a partial is a row of a slice and key, stamped with
the node that made it and a sequence number, its identity; the same partial may arrive any number of
times, in any order, and is merged once. (Nodes and Spark know what they have
taken by whole messages.) Groups that wait for their events to settle have events as partials until
the root cuts them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from catchment.engine import codec, settled
from catchment.engine.binding import group_types
from catchment.engine.binding import key_types as key_types_of
from catchment.engine.bound import BoundPlan, GroupTypes
from catchment.engine.keys import KeyIndex
from catchment.engine.partials import (
    NODE,
    SELECTION,
    SEQ,
    Partials,
    are_events,
    joined_partials,
    key_columns,
    key_types,
    types_of,
)
from catchment.engine.results import Results
from catchment.engine.slicer import rank
from catchment.engine.streams import Streams, own_windows, tags_of
from catchment.errors import StateError
from catchment.model.duration import Instant, instant
from catchment.model.plan import Group, Plan
from catchment.model.rules import EventRules
from catchment.model.time_column import TimeSpec
from catchment.operators.ragged import Ints
from catchment.planner.together import waiting_together

MERGED = -1
"""The node of partials that were merged by nobody in particular."""


def slice(
    events: pa.Table,
    plan: Plan,
    *,
    time: TimeSpec = "ts",
    node: int = 0,
    seq: int = 0,
    arrival: int = 0,
) -> Partials:
    """Events to partials, where they are read; holds no state.

    `events` is an Arrow table, `plan` what `ct.plan` gives, `time` the column of event time. `node`
    and `seq`, its sequence number, stamp the partials; `arrival` is the number of the first event
    in its node's order of arrival.

        parts = [ct.slice(table, plan, node=n) for n, table in enumerate(tables)]
        ct.assemble(ct.merge(parts, plan), None, plan)["speed"]

    Raises SchemaError where the queries of the plan do not fit the columns of the events.
    """
    bound = BoundPlan(plan, EventRules.of(time), events.schema)
    slicer, merger = bound.slicer(str(node)), bound.merger(node)
    for sliced in slicer.slice(events, arrival=rank(node, arrival)):
        merger.add(sliced)
    return merger.take(seq)


def merge(
    parts: Iterable[Partials], plan: Plan, *, node: int = MERGED, seq: int | None = None
) -> Partials:
    """Partials to fewer: one per slice and key, stamped as made by this node.

    `parts` are what `ct.slice` and `ct.merge` gave by the same `plan`; `seq` is a sequence number.

    Associative and commutative; a partial that comes twice counts once. Without a sequence number
    the stamp follows from what was merged: the same partials give the same, others another. What
    came once is merged by a `Merger`, as every node between the sources and the root does it.

        ct.merge([ct.merge([a, b], plan), c], plan)  # the same as ct.merge([c, b, a, a], plan)

    Raises StateError for partials of groups that the plan does not have.
    """
    whole = joined_partials(parts)
    unknown = [id for id in whole.groups if id >= len(plan.groups)]
    if unknown:
        raise StateError(
            "the partials are of another plan",
            given=f"group {unknown[0]} of {len(plan.groups)}",
            hint="slice and merge by one plan",
        )
    once = Partials(
        {id: _once(table, plan.groups[id]) for id, table in whole.groups.items()},
        None if whole.events is None else _events_once(whole.events),
    )
    merger = BoundPlan.of_partials(plan, _known(plan, once)).merger(node)
    merger.absorb(once)
    made = merger.take(_digest(once.groups.values()) if seq is None else seq)
    groups = {id: made.groups.get(id, table) for id, table in once.groups.items()}
    return Partials(groups, once.events if made.events is None else made.events)


def _events_once(table: pa.Table) -> pa.Table:
    """Events, each once."""
    return table.take(_first_of([codec.ints(table, settled.ARRIVAL)]))


def _once(table: pa.Table, group: Group) -> pa.Table:
    """Partials of a group, each identity once."""
    if are_events(table):
        return _events_once(table)
    keys = KeyIndex().lookup(codec.ints(table, SELECTION), key_columns(table, group.by))
    identity = [codec.ints(table, name) for name in ("slice_start", NODE, SEQ)] + [keys]
    if group.slicing == "stream":
        identity += list(tags_of(table, len(own_windows(group)), Streams()).T)
    return table.take(_first_of(identity))


def _digest(tables: Iterable[pa.Table]) -> int:
    """A number that follows from the stamps of partials, whatever their order and repetition."""
    stamps = [(codec.ints(table, NODE), codec.ints(table, SEQ)) for table in tables]
    none = np.empty((0, 2), np.int64)
    data = np.unique(np.concatenate([none, *(np.stack(s, axis=1) for s in stamps)]), axis=0)
    return int.from_bytes(hashlib.blake2b(data.tobytes(), digest_size=8).digest(), "big") >> 1


def _first_of(identity: list[Ints]) -> Ints:
    """The first row of each identity."""
    if not len(identity[0]):
        return identity[0]
    order = np.lexsort(identity)
    new = np.ones(len(order), np.bool_)
    new[1:] = np.any([column[order][1:] != column[order][:-1] for column in identity], axis=0)
    return np.sort(order[new])


def assemble(partials: Partials, frontier: Instant | None, plan: Plan) -> Results:
    """The windows complete at the frontier (None: at the end of input) of these partials.

    `partials` are what `ct.slice` or `ct.merge` gave by the same `plan`; `frontier` is a time.

        ct.assemble(ct.slice(events, plan), "2026-01-01 00:01", plan)["speed"]

    Raises QueryError for a frontier that is no time.
    """
    merged = merge([partials], plan)
    assembler = BoundPlan.of_partials(plan, _known(plan, merged)).assembler()
    assembler.absorb(merged)
    return assembler.close() if frontier is None else assembler.advance(instant(frontier))


def _known(plan: Plan, partials: Partials) -> dict[int, GroupTypes]:
    """The types of values and keys of those groups that partials tell of."""
    known: dict[int, GroupTypes] = {}
    told = {id: ids[0] for ids in waiting_together(plan.groups) for id in ids}
    for group in plan.groups:
        id = told.get(group.id, group.id)
        if group.distinct_on and partials.events is not None:
            schema = partials.events.schema
            known[group.id] = group_types(group, schema), key_types_of(group, schema)
        elif id in partials.groups:
            table = partials.groups[id]
            known[group.id] = types_of(table), key_types(table, group.by)
    return known
