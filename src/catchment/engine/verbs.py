"""The three pure verbs over Arrow tables, for every runtime that is not one engine.

A partial is a row of a slice and key, stamped with the node that made it and a sequence number:
its identity. The same partial may arrive any number of times, in any order, and is merged once.
Groups that wait for their events to settle have events as partials until the root cuts them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.engine import codec, settled
from catchment.engine.binding import Types, group_types, key_type
from catchment.engine.cutter import Cutter
from catchment.engine.engine import Engine
from catchment.engine.group import bind
from catchment.engine.keys import KeyIndex
from catchment.engine.partials import (
    EVENTS,
    NODE,
    SELECTION,
    SEQ,
    Partials,
    are_events,
    key_columns,
    key_types,
    stamped,
    types_of,
)
from catchment.engine.results import Results
from catchment.engine.rows import Rows, compact
from catchment.engine.streams import (
    Owned,
    Streams,
    compact_owned,
    own_windows,
    tags_of,
    tags_to_columns,
)
from catchment.model.duration import Instant
from catchment.model.plan import Group, Plan
from catchment.operators.ragged import Ints

MERGED = -1
"""The node of partials that were merged by nobody in particular."""


def slice(
    events: pa.Table, plan: Plan, *, time: str = "ts", node: int = 0, seq: int = 0, arrival: int = 0
) -> Partials:
    """Events to partials, where they are read; holds no state.

    `arrival` is the number of the first event in its node's order of arrival.
    """
    cutter = Cutter(plan, events.schema, time=time, node=node, stream=str(node))
    cutter.cut(events, arrival)
    return cutter.take(seq)


def merge(
    parts: Iterable[Partials], plan: Plan, *, node: int = MERGED, seq: int | None = None
) -> Partials:
    """Partials to fewer: one per slice and key, stamped as made by this node.

    Associative and commutative; a partial that comes twice counts once. Without a sequence number
    the stamp follows from what was merged: the same partials give the same, others another.
    """
    collected: dict[int, list[pa.Table]] = {}
    for partials in parts:
        for id, table in partials.items():
            collected.setdefault(id, []).append(table)
    return {
        id: _merge_events(tables)
        if id == EVENTS
        else _merge_group(tables, plan.groups[id], node, seq)
        for id, tables in collected.items()
    }


def _merge_group(tables: list[pa.Table], group: Group, node: int, seq: int | None) -> pa.Table:
    types = types_of(tables[0])
    table = pa.concat_tables(tables, promote_options="permissive")
    keys = KeyIndex()
    code = keys.lookup(codec.ints(table, SELECTION), key_columns(table, group))
    if are_events(table):
        return _merge_events(tables)
    streams = Streams()
    tags = tags_of(table, len(own_windows(group)), streams) if group.slicing == "stream" else None
    identity = [codec.ints(table, name) for name in ("slice_start", NODE, SEQ)] + [code]
    identity += [] if tags is None else list(tags.T)
    kept_rows = _first_of(identity)
    if seq is None:
        seq = _digest(table)
    operators = bind(group, types, updates=False)
    bounds = [codec.ints(table, name) for name in codec.BOUNDS if name != "key"]
    rows = Rows(
        bounds[0], bounds[1], code, bounds[2], bounds[3], codec.fields_from_arrow(table, operators)
    ).take(kept_rows)
    columns_of_tags: dict[str, pa.Array[Any]] = {}
    if tags is None:
        merged = compact(rows, operators)
    else:
        owned = compact_owned(Owned(rows, tags[kept_rows]), operators)
        merged, columns_of_tags = owned.rows, tags_to_columns(owned, streams)
    plain = codec.rows_to_table(merged, operators).drop_columns(["key"])
    for name, column in columns_of_tags.items():
        plain = plain.append_column(name, column)
    selection, columns = keys.selections[merged.key], keys.take(merged.key)
    if not len(merged):
        columns = [column.slice(0, 0) for column in key_columns(table, group)]
    return stamped(plain, group, types, selection, columns, node, seq)


def _merge_events(tables: list[pa.Table]) -> pa.Table:
    """Each event once, in order of time."""
    table = pa.concat_tables(tables, promote_options="permissive")
    kept = table.take(_first_of([codec.ints(table, settled.ARRIVAL)]))
    order = np.lexsort((codec.ints(kept, settled.ARRIVAL), codec.ints(kept, settled.TIME)))
    return kept.take(order).replace_schema_metadata(tables[0].schema.metadata)


def _digest(table: pa.Table) -> int:
    """A number that follows from the stamps of partials, whatever their order and repetition."""
    stamps = np.stack([codec.ints(table, NODE), codec.ints(table, SEQ)], axis=1)
    data = np.unique(stamps, axis=0).tobytes()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") >> 1


def _first_of(identity: list[Ints]) -> Ints:
    """The first row of each identity."""
    if not len(identity[0]):
        return identity[0]
    order = np.lexsort(identity)
    new = np.ones(len(order), np.bool_)
    new[1:] = np.any([column[order][1:] != column[order][:-1] for column in identity], axis=0)
    return np.sort(order[new])


def assemble(partials: Partials, frontier: Instant | None, plan: Plan) -> Results:
    """The windows complete at the frontier (None: at the end of input) of these partials."""
    engine = Engine([])
    merged = merge([partials], plan)
    engine.adopt(plan, {group.id: _types(group, merged) for group in plan.groups})
    engine.absorb(merged)
    return engine.close() if frontier is None else engine.advance(frontier)


def _types(group: Group, merged: Partials) -> tuple[Types, dict[str, pa.DataType]]:
    """The types of a group's values and keys, as far as its partials tell."""
    if group.distinct_on and EVENTS in merged:
        schema = merged[EVENTS].schema
        return group_types(group, schema), {n: key_type(schema.field(n).type) for n in group.by}
    if group.id not in merged:
        return {None: None}, {}
    return types_of(merged[group.id]), key_types(merged[group.id], group)
