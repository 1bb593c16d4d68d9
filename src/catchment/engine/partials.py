"""Partials as Arrow tables: stamped by who made them, and taken back into a group's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.engine import codec, settled
from catchment.engine.binding import Types
from catchment.engine.group import GroupState
from catchment.engine.rows import Rows, compact
from catchment.model.plan import Group
from catchment.operators.ragged import Ints

Partials = dict[int, pa.Table]
"""A table of partials by group id; the events of groups without duplicates are under EVENTS."""

EVENTS = -1
"""Repeats are found where all events meet: until then groups with `distinct_on` share events."""

NODE, SEQ, SELECTION = "#node", "#seq", "#selection"
"""Stamps. Events that wait have columns of the users' names: none can be the same as these."""

_TYPES = b"catchment types"


def take(
    state: GroupState, rows: Rows, waiting: list[pa.Table], keys: dict[str, pa.DataType],
    node: int, seq: int,
) -> pa.Table:  # fmt: skip
    """A group's partials as a table: of rows, or of events that wait."""
    if state.group.slicing == "arrival":
        merged = compact(rows, state.operators)  # rows of one stamp must differ in slice or key
        code = merged.key
        table = codec.rows_to_table(merged, state.operators).drop_columns(["key"])
    else:
        table = pa.concat_tables(waiting) if waiting else no_events(state)
        code = codec.ints(table, settled.KEY)
        table = table.drop_columns([settled.KEY])
    selection, columns = state.keys.selections[code], state.keys.take(code)
    if not table.num_rows:
        columns = [pa.nulls(0).cast(keys[name]) for name in state.group.by]
    return stamped(table, state.group, state.types, selection, columns, node, seq)


def no_events(state: GroupState) -> pa.Table:
    none = np.empty(0, np.int64)
    columns = {settled.KEY: none, settled.TIME: none, settled.ARRIVAL: none}
    values = {t: pa.nulls(0, state.types[t]) for t in state.columns}  # type: ignore[arg-type]
    marks = {"?" + text: pa.nulls(0, pa.bool_()) for text in state.conditions}
    return pa.table({name: pa.array(c) for name, c in columns.items()} | values | marks)


def stamped(
    table: pa.Table, group: Group, types: Mapping[str | None, pa.DataType | None],
    selection: Ints, keys: list[pa.Array[Any]], node: int, seq: int,
) -> pa.Table:  # fmt: skip
    """The table with its stamp, its keys and the types of its values."""
    rows = table.num_rows
    stamp = {
        NODE: pa.array(np.full(rows, node, np.int64)),
        SEQ: pa.array(np.full(rows, seq, np.int64)),
        SELECTION: pa.array(selection),
    }
    columns = {f"key {name}": column for name, column in zip(group.by, keys, strict=True)}
    whole = pa.table(stamp | columns | dict(zip(table.schema.names, table.columns, strict=True)))
    known = pa.schema([pa.field(text, kind) for text, kind in types.items() if text and kind])
    return whole.replace_schema_metadata({_TYPES: known.serialize().to_pybytes()})


def types_of(table: pa.Table) -> Types:
    """The types of the aggregated expressions, which partials carry along."""
    known = pa.ipc.read_schema(pa.py_buffer(table.schema.metadata[_TYPES]))
    return {None: None} | {field.name: field.type for field in known}


def key_columns(table: pa.Table, group: Group) -> list[pa.Array[Any]]:
    return [codec.whole(table, f"key {name}") for name in group.by]


def key_types(table: pa.Table, group: Group) -> dict[str, pa.DataType]:
    return {name: table.schema.field(f"key {name}").type for name in group.by}


def absorb(state: GroupState, table: pa.Table) -> None:
    """Takes partials into a group's state; each must come once."""
    if not table.num_rows:
        return
    if state.group.slicing == "settled":
        state.waiting.append(events_of(state, table))
        times = codec.ints(table, settled.TIME)
        state.saw(times, times)
        return
    rows = rows_of(state, table)
    state.saw(rows.first, rows.last)
    state.absorb(rows)


def rows_of(state: GroupState, table: pa.Table) -> Rows:
    """Partials of a group that slices on arrival, under the codes that its keys have here."""
    code = _codes(state, table)
    bounds = [codec.ints(table, name) for name in codec.BOUNDS if name != "key"]
    fields = codec.fields_from_arrow(table, state.operators)
    return Rows(bounds[0], bounds[1], code, bounds[2], bounds[3], fields)


def events_of(state: GroupState, table: pa.Table) -> pa.Table:
    """Events that wait, of a group that cuts them once they are settled."""
    rest = table.select([settled.TIME, settled.ARRIVAL, *_payload(state)])
    return rest.add_column(0, settled.KEY, pa.array(_codes(state, table)))


def _codes(state: GroupState, table: pa.Table) -> Ints:
    return state.keys.codes_of(codec.ints(table, SELECTION), key_columns(table, state.group))


def _payload(state: GroupState) -> list[str]:
    return state.columns + ["?" + text for text in state.conditions]


def ends_of(table: pa.Table) -> Ints:
    """When each partial is past: the end of its slice, or just after its event."""
    if settled.TIME in table.schema.names:
        return codec.ints(table, settled.TIME) + 1
    return codec.ints(table, "slice_end")


def split_at(partials: Partials, time: int) -> tuple[Partials, Partials]:
    """Partials that are past by a time, and the others."""
    past: Partials = {}
    rest: Partials = {}
    for id, table in partials.items():
        ended = ends_of(table) <= time
        if not ended.any():
            rest[id] = table
            continue
        past[id], rest[id] = table.filter(pa.array(ended)), table.filter(pa.array(~ended))
    return past, rest


def events_in(table: pa.Table) -> int:
    """How many events partials hold, of an engine that takes a census."""
    if settled.TIME in table.schema.names:
        return table.num_rows
    return int(codec.ints(table, "count(*).count").sum())
