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
from catchment.engine.batch import Batch
from catchment.engine.binding import (
    Types,
    bind_types,
    columns_of,
    conform,
)
from catchment.engine.engine import Engine
from catchment.engine.group import GroupState, bind
from catchment.engine.keys import KeyIndex
from catchment.engine.results import Results
from catchment.engine.rows import Rows, compact
from catchment.engine.slicing import Slicer
from catchment.engine.times import out_of_range, times_of
from catchment.model.duration import Instant
from catchment.model.plan import Group, Plan
from catchment.operators.ragged import Ints

Partials = dict[int, pa.Table]
"""A table of partials by group id."""

MERGED = -1
"""The node of partials that were merged by nobody in particular."""

_NODE_BITS = 40
_TYPES = b"catchment types"


def slice(
    events: pa.Table, plan: Plan, *, time: str = "ts", node: int = 0, seq: int = 0, arrival: int = 0
) -> Partials:
    """Events to partials, where they are read; holds no state.

    `arrival` is the number of the first event in its node's order of arrival.
    """
    schema, types = bind_types(plan, events.schema, time)
    needed = set().union({time}, *(columns_of(group) for group in plan.groups))
    read = conform(events, schema, needed)
    times, good = times_of(read.column(time))
    far = out_of_range(times)
    if far.any():
        good = ~far if good is None else good & ~far
    if good is not None:
        read, times = read.filter(pa.array(good)), times[good]
    batch = Batch(read, times, (node << _NODE_BITS) + arrival)
    return {
        group.id: _slice_group(batch, group, types[group.id], node, seq) for group in plan.groups
    }


def _slice_group(batch: Batch, group: Group, types: Types, node: int, seq: int) -> pa.Table:
    chosen = batch.chosen(group)
    if group.slicing == "arrival":
        operators = bind(group, types, updates=False)
        sliced = Slicer(group, operators).slice(batch, chosen)
        rows = compact(sliced.rows, operators)  # rows of one stamp must differ in slice or key
        selection, code = sliced.selections(rows.key)
        columns = sliced.keys.take(code)
        table = codec.rows_to_table(rows, operators).drop_columns(["key"])
    else:
        state = GroupState(group, types, updates=False)
        state.push(batch)
        table = state.waiting[0] if state.waiting else _no_events(state)
        code = codec.ints(table, settled.KEY)
        selection, columns = state.keys.selections[code], state.keys.take(code)
        table = table.drop_columns([settled.KEY])
    if not table.num_rows:
        columns = [column.slice(0, 0) for column in batch.keys(group.by).parts]
    return _stamped(table, group, types, selection, columns, node, seq)


def _no_events(state: GroupState) -> pa.Table:
    none = np.empty(0, np.int64)
    columns = {settled.KEY: none, settled.TIME: none, settled.ARRIVAL: none}
    values = {t: pa.nulls(0, state.types[t]) for t in state.columns}  # type: ignore[arg-type]
    marks = {"?" + text: pa.nulls(0, pa.bool_()) for text in state.conditions}
    return pa.table({name: pa.array(c) for name, c in columns.items()} | values | marks)


def _stamped(
    table: pa.Table, group: Group, types: Types, selection: Ints, keys: list[pa.Array[Any]],
    node: int, seq: int,
) -> pa.Table:  # fmt: skip
    rows = table.num_rows
    stamp = {
        "node": pa.array(np.full(rows, node, np.int64)),
        "seq": pa.array(np.full(rows, seq, np.int64)),
        "selection": pa.array(selection),
    }
    columns = {f"key {name}": column for name, column in zip(group.by, keys, strict=True)}
    whole = pa.table(stamp | columns | dict(zip(table.schema.names, table.columns, strict=True)))
    known = pa.schema([pa.field(text, kind) for text, kind in types.items() if text and kind])
    return whole.replace_schema_metadata({_TYPES: known.serialize().to_pybytes()})


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
        id: _merge_group(tables, plan.groups[id], node, seq) for id, tables in collected.items()
    }


def _merge_group(tables: list[pa.Table], group: Group, node: int, seq: int | None) -> pa.Table:
    types = types_of(tables[0])
    table = pa.concat_tables(tables, promote_options="permissive")
    keys = KeyIndex()
    code = keys.lookup(codec.ints(table, "selection"), _key_columns(table, group))
    if group.slicing == "settled":
        identity = [codec.ints(table, settled.ARRIVAL)]
        kept = table.take(_first_of(identity))
        order = np.lexsort((codec.ints(kept, settled.ARRIVAL), codec.ints(kept, settled.TIME)))
        return kept.take(order).replace_schema_metadata(tables[0].schema.metadata)
    identity = [codec.ints(table, name) for name in ("slice_start", "node", "seq")] + [code]
    kept_rows = _first_of(identity)
    if seq is None:
        seq = _digest(table)
    operators = bind(group, types, updates=False)
    bounds = [codec.ints(table, name) for name in codec.BOUNDS if name != "key"]
    rows = Rows(
        bounds[0], bounds[1], code, bounds[2], bounds[3], codec.fields_from_arrow(table, operators)
    )
    merged = compact(rows.take(kept_rows), operators)
    plain = codec.rows_to_table(merged, operators).drop_columns(["key"])
    selection, columns = keys.selections[merged.key], keys.take(merged.key)
    if not len(merged):
        columns = [column.slice(0, 0) for column in _key_columns(table, group)]
    return _stamped(plain, group, types, selection, columns, node, seq)


def _digest(table: pa.Table) -> int:
    """A number that follows from the stamps of partials, whatever their order and repetition."""
    stamps = np.stack([codec.ints(table, "node"), codec.ints(table, "seq")], axis=1)
    data = np.unique(stamps, axis=0).tobytes()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") >> 1


def _key_columns(table: pa.Table, group: Group) -> list[pa.Array[Any]]:
    return [codec.whole(table, f"key {name}") for name in group.by]


def _first_of(identity: list[Ints]) -> Ints:
    """The first row of each identity."""
    if not len(identity[0]):
        return identity[0]
    order = np.lexsort(identity)
    new = np.ones(len(order), np.bool_)
    new[1:] = np.any([column[order][1:] != column[order][:-1] for column in identity], axis=0)
    return np.sort(order[new])


def types_of(table: pa.Table) -> Types:
    """The types of the aggregated expressions, which partials carry along."""
    known = pa.ipc.read_schema(pa.py_buffer(table.schema.metadata[_TYPES]))
    return {None: None} | {field.name: field.type for field in known}


def assemble(partials: Partials, frontier: Instant | None, plan: Plan) -> Results:
    """The windows complete at the frontier (None: at the end of input) of these partials."""
    engine = Engine([])
    merged = merge([partials], plan)
    engine.adopt(
        plan, {id: (types_of(t), _key_types(t, plan.groups[id])) for id, t in merged.items()}
    )
    for id, table in merged.items():
        absorb(engine.states[id], table)
    return engine.close() if frontier is None else engine.advance(frontier)


def _key_types(table: pa.Table, group: Group) -> dict[str, pa.DataType]:
    return {name: table.schema.field(f"key {name}").type for name in group.by}


def absorb(state: GroupState, table: pa.Table) -> None:
    """Takes merged partials into a group's state."""
    group = state.group
    code = state.keys.lookup(codec.ints(table, "selection"), _key_columns(table, group))
    if group.slicing == "settled":
        rest = table.select([settled.TIME, settled.ARRIVAL, *_payload(state)])
        if table.num_rows:
            state.waiting.append(rest.add_column(0, settled.KEY, pa.array(code)))
        return
    bounds = [codec.ints(table, name) for name in codec.BOUNDS if name != "key"]
    fields = codec.fields_from_arrow(table, state.operators)
    state.absorb(Rows(bounds[0], bounds[1], code, bounds[2], bounds[3], fields))


def _payload(state: GroupState) -> list[str]:
    return state.columns + ["?" + text for text in state.conditions]
