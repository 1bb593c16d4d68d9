"""Partials as Arrow tables: stamped by who made them, and taken back into a group's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.engine import codec, settled, streams
from catchment.engine.binding import Types
from catchment.engine.complete import Complete
from catchment.engine.group import GroupState
from catchment.engine.owning import Owning
from catchment.engine.rows import Rows, compact
from catchment.model.plan import Group
from catchment.operators.ragged import Ints

Partials = dict[int, pa.Table]
"""A table of partials by group id; the events of groups without duplicates are under EVENTS."""

EVENTS = -1
"""Repeats are found where all events meet: until then groups with `distinct_on` share events."""


def waiting_id(group: int) -> int:
    """Under which a node keeps the events of a group that it has not cut yet."""
    return -2 - 2 * group


def courses_id(group: int) -> int:
    """Under which a node keeps how far it has followed the windows of its stream."""
    return -3 - 2 * group


NODE, SEQ, SELECTION = "#node", "#seq", "#selection"
"""Stamps. Events that wait have columns of the users' names: none can be the same as these."""

_KIND, _NUMBER = "#kind", "#number"
"""Of count windows that are full: which of the group's windows, and the how manieth."""
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
        table = pa.concat_tables(waiting) if waiting else state.waiting_schema.empty_table()
        code = codec.ints(table, settled.KEY)
        table = table.drop_columns([settled.KEY])
        if state.own is not None:
            stream, code = streams.parts_of(code)
            table = table.append_column(streams.STREAM, state.own.streams.column(stream))
    return _keyed(state, table, code, keys, node, seq)


def take_owned(
    state: GroupState, owned: streams.Owned, keys: dict[str, pa.DataType], node: int, seq: int
) -> pa.Table:
    """Slices that know their windows, as a table."""
    assert state.own is not None
    merged = streams.compact_owned(owned, state.operators)
    table = codec.rows_to_table(merged.rows, state.operators).drop_columns(["key"])
    for name, column in streams.tags_to_columns(merged, state.own.streams).items():
        table = table.append_column(name, column)
    return _keyed(state, table, merged.rows.key, keys, node, seq)


def take_courses(state: GroupState, keys: dict[str, pa.DataType], node: int, seq: int) -> pa.Table:
    """How far a node has followed its stream's windows, as a table."""
    assert state.own is not None
    table = state.own.courses_table()
    stream, code = streams.parts_of(codec.ints(table, "lane"))
    table = table.drop_columns(["lane"])
    table = table.append_column(streams.STREAM, state.own.streams.column(stream))
    if not len(state.keys) and table.num_rows:  # only when types began, of no key at all
        columns: list[pa.Array[Any]] = [
            pa.nulls(table.num_rows).cast(keys[name]) for name in state.group.by
        ]
        return stamped(table, state.group, state.types, np.zeros_like(code), columns, node, seq)
    return _keyed(state, table, code, keys, node, seq)


def _keyed(
    state: GroupState, table: pa.Table, code: Ints, keys: dict[str, pa.DataType], node: int,
    seq: int,
) -> pa.Table:  # fmt: skip
    selection, columns = state.keys.selections[code], state.keys.take(code)
    if not table.num_rows:
        columns = [pa.nulls(0).cast(keys[name]) for name in state.group.by]
    return stamped(table, state.group, state.types, selection, columns, node, seq)


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
    if are_events(table):
        state.waiting.append(events_of(state, table))
        times = codec.ints(table, settled.TIME)
        state.saw(times, times)
        return
    if _NUMBER in table.schema.names:
        _take_full(state, table)
        return
    if state.own is not None:
        owned = owned_of(state, table)
        state.saw(owned.rows.first, owned.rows.last)
        state.take_in(owned)
        return
    rows = rows_of(state, table)
    state.saw(rows.first, rows.last)
    state.absorb(rows)


def full_windows(
    state: GroupState, kinds: Ints, numbers: Ints, rows: Rows, selection: Ints,
    keys: list[pa.Array[Any]],
) -> pa.Table:  # fmt: skip
    """Count windows that are full already, a row each, as partials of their group."""
    table = codec.rows_to_table(rows, state.operators).drop_columns(["key"])
    table = table.append_column(_KIND, pa.array(kinds))
    table = table.append_column(_NUMBER, pa.array(numbers))
    return stamped(table, state.group, state.types, selection, keys, 0, 0)


def _take_full(state: GroupState, table: pa.Table) -> None:
    rows = rows_of(state, table)
    kinds, numbers = codec.ints(table, _KIND), codec.ints(table, _NUMBER)
    state.ready.append(Complete(kinds, rows.key, rows.first, rows.last, rows.fields, numbers))


def are_events(table: pa.Table) -> bool:
    """Whether partials are events that wait to be cut."""
    return settled.TIME in table.schema.names


def rows_of(state: GroupState, table: pa.Table) -> Rows:
    """Partials of a group that slices on arrival, under the codes that its keys have here."""
    code = _codes(state, table)
    bounds = [codec.ints(table, name) for name in codec.BOUNDS if name != "key"]
    fields = codec.fields_from_arrow(table, state.operators)
    return Rows(bounds[0], bounds[1], code, bounds[2], bounds[3], fields)


def events_of(state: GroupState, table: pa.Table, stream: str | None = None) -> pa.Table:
    """Events that wait, of a group that cuts them once they are settled.

    Whoever reads a stream knows its name better than those who read a part of it.
    """
    rest = table.select([settled.TIME, settled.ARRIVAL, *_payload(state)])
    codes = _codes(state, table) if state.own is None else _lanes(state.own, state, table, stream)
    return rest.add_column(0, settled.KEY, pa.array(codes))


def owned_of(state: GroupState, table: pa.Table) -> streams.Owned:
    """Slices that know their windows."""
    assert state.own is not None
    tags = streams.tags_of(table, len(state.own.places), state.own.streams)
    return streams.Owned(rows_of(state, table), tags)


def load_courses(state: GroupState, table: pa.Table) -> None:
    """Goes on following a stream's windows from where `take_courses` wrote it down."""
    assert state.own is not None
    state.own.load_courses(table, _lanes(state.own, state, table, None))


def _lanes(own: Owning, state: GroupState, table: pa.Table, stream: str | None) -> Ints:
    codes = _codes(state, table)
    if stream is not None:
        return streams.lane(own.streams.code(stream), codes)
    return streams.lane(own.streams.codes(codec.whole(table, streams.STREAM)), codes)


def _codes(state: GroupState, table: pa.Table) -> Ints:
    return state.keys.codes_of(codec.ints(table, SELECTION), key_columns(table, state.group))


def _payload(state: GroupState) -> list[str]:
    return state.columns + ["?" + text for text in state.conditions]


def ends_of(table: pa.Table) -> Ints:
    """When each partial is past: the end of its slice, or just after its event."""
    if are_events(table):
        return codec.ints(table, settled.TIME) + 1
    return codec.ints(table, "slice_end")


def split_at(partials: Partials, time: int) -> tuple[Partials, Partials]:
    """Partials that are past by a time, and the others."""
    past: Partials = {}
    rest: Partials = {}
    for id, table in partials.items():
        ended = (ends_of(table) <= time) & ~streams.tells_ends(table)
        if not ended.any():
            rest[id] = table
            continue
        past[id], rest[id] = table.filter(pa.array(ended)), table.filter(pa.array(~ended))
    return past, rest


def events_in(table: pa.Table) -> int:
    """How many events partials hold, of an engine that takes a census."""
    if are_events(table):
        return table.num_rows
    return int(codec.ints(table, "count(*).count").sum())
