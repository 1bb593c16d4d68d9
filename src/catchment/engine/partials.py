"""Partials as Arrow tables: stamped by who made them, and taken back into a group's state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from catchment.engine import codec, settled, streams
from catchment.engine.bound_group import BoundGroup, ValueTypes
from catchment.engine.bound_waiting import BoundWaiting, choice_of
from catchment.engine.keys import KeyIndex
from catchment.engine.rows import Rows, compact
from catchment.engine.shapes.streams import StreamsState
from catchment.model.window import STREAM
from catchment.operators.ragged import Ints


@dataclass(frozen=True, slots=True)
class Partials:
    """What was sliced by one plan."""

    groups: dict[int, pa.Table] = field(default_factory=dict)
    """A table of partials for each group that has some, by the id of the group. Groups whose events
    wait together have one table of events, by the id of the first."""
    events: pa.Table | None = None
    """Events for the groups that drop duplicates, as they were read. Repeats are found where all
    events meet: until then these groups share events, and have no partials."""
    regions: dict[int, pa.Table] = field(default_factory=dict)
    """By the id of a group of count windows in a batch: one row for the events of a key between
    two edges, where `groups` has the events that may be on either side of an edge."""

    @property
    def tables(self) -> list[pa.Table]:
        """All tables: those of the groups, then the regions and the events."""
        events = [] if self.events is None else [self.events]
        return [*self.groups.values(), *self.regions.values(), *events]

    @property
    def rows(self) -> int:
        return sum(table.num_rows for table in self.tables)


def joined_partials(parts: Iterable[Partials]) -> Partials:
    """All rows of some partials, in their order."""
    found: dict[int, list[pa.Table]] = {}
    events: list[pa.Table] = []
    for part in parts:
        for id, table in part.groups.items():
            found.setdefault(id, []).append(table)
        events += [] if part.events is None else [part.events]
    groups = {id: _concatenated(tables) for id, tables in found.items()}
    return Partials(groups, _concatenated(events) if events else None)


def _concatenated(tables: list[pa.Table]) -> pa.Table:
    if len(tables) == 1:
        return tables[0]
    whole = pa.concat_tables(tables, promote_options="permissive")
    return whole.replace_schema_metadata(tables[0].schema.metadata)


NODE, SEQ, SELECTION = "#node", "#seq", "#selection"
"""Stamps. Events that wait have columns of the users' names: none can be the same as these."""
CENSUS = "count(*).count"
"""The field by which partials tell how many events they hold."""

_KIND, _NUMBER = "#kind", "#number"
"""Columns of count windows that are full: the place of the window type in the group, and the number
of the window among those of its key."""
_TYPES = b"catchment types"


class KeyHolder(Protocol):
    """What has keys under codes of its own; `own` where streams are told apart."""

    own: StreamsState | None

    @property
    def keys(self) -> KeyIndex: ...


class SliceHolder(KeyHolder, Protocol):
    """What holds slices of a bound group under codes of its own."""

    bound: BoundGroup


class KeyedSlices:
    """Slices of a group under codes of keys, and nothing else."""

    own: StreamsState | None = None

    def __init__(self, bound: BoundGroup, keys: KeyIndex | None = None) -> None:
        self.bound = bound
        self.keys = KeyIndex() if keys is None else keys  # one without keys counts as False


class EventHolder(KeyHolder, Protocol):
    """What holds events that wait, of groups that share them."""

    bound: BoundWaiting


def take(holder: SliceHolder, rows: Rows, node: int, seq: int) -> pa.Table:
    """A group's slices as a table."""
    bound = holder.bound
    merged = compact(rows, bound.operators)  # rows of one stamp must differ in slice or key
    table = codec.rows_to_table(merged, bound.operators).drop_columns(["key"])
    return _keyed(holder, table, merged.key, node, seq)


def take_events(holder: EventHolder, waiting: list[pa.Table], node: int, seq: int) -> pa.Table:
    """Events that wait, as a table: each once, whichever of the groups want it."""
    bound = holder.bound
    table = pa.concat_tables(waiting) if waiting else bound.schema.empty_table()
    code = codec.ints(table, settled.KEY)
    table = table.drop_columns([settled.KEY])
    if holder.own is not None:
        stream, code = streams.parts_of(code)
        table = table.append_column(STREAM, holder.own.streams.column(stream))
    keys = holder.keys.take(code)
    if not table.num_rows:
        keys = _no_keys(bound.by, bound.key_types)
    return stamped(table, bound.by, bound.types, None, keys, node, seq)


def events_of_group(table: pa.Table, bound: BoundGroup) -> pa.Table:
    """The waiting events that one group wants, with the selection that each meets."""
    choice = choice_of(bound.group.selections)
    selection = np.zeros(table.num_rows, np.int64)
    if choice is not None and len(bound.group.selections) > 1:
        selection = codec.ints(table, choice)
    elif choice is not None:
        selection -= ~codec.whole(table, choice).to_numpy(zero_copy_only=False)
    table = table.append_column(SELECTION, pa.array(selection))
    if (selection < 0).any():
        table = settled.take(table, np.flatnonzero(selection >= 0))
    keys = [f"key {name}" for name in bound.group.by]
    marks = ["?" + text for text in bound.conditions]
    return table.select([SELECTION, *keys, settled.TIME, settled.ARRIVAL, *bound.columns, *marks])


def take_owned(holder: SliceHolder, owned: streams.Owned, node: int, seq: int) -> pa.Table:
    """Slices that know their windows, as a table."""
    assert holder.own is not None
    operators = holder.bound.operators
    merged = streams.compact_owned(owned, holder.bound)
    table = codec.rows_to_table(merged.rows, operators).drop_columns(["key"])
    for name, column in streams.tags_to_columns(merged, holder.own.streams).items():
        table = table.append_column(name, column)
    return _keyed(holder, table, merged.rows.key, node, seq)


def take_courses(holder: SliceHolder, table: pa.Table, node: int, seq: int) -> pa.Table:
    """How far a node has followed its stream's windows, as a table in which lanes have names."""
    assert holder.own is not None
    bound = holder.bound
    stream, code = streams.parts_of(codec.ints(table, "lane"))
    table = table.drop_columns(["lane"])
    table = table.append_column(STREAM, holder.own.streams.column(stream))
    if not len(holder.keys) and table.num_rows:  # only when types began, of no key at all
        columns = [pa.nulls(table.num_rows).cast(bound.key_types[name]) for name in bound.group.by]
        return stamped(table, bound.group.by, bound.types, np.zeros_like(code), columns, node, seq)
    return _keyed(holder, table, code, node, seq)


def _keyed(holder: SliceHolder, table: pa.Table, code: Ints, node: int, seq: int) -> pa.Table:
    bound = holder.bound
    selection, columns = holder.keys.selections[code], holder.keys.take(code)
    if not table.num_rows:
        columns = _no_keys(bound.group.by, bound.key_types)
    return stamped(table, bound.group.by, bound.types, selection, columns, node, seq)


def _no_keys(by: Sequence[str], types: Mapping[str, pa.DataType]) -> list[pa.Array[Any]]:
    return [pa.nulls(0).cast(types[name]) for name in by]


def stamped(
    table: pa.Table,
    by: Sequence[str],
    types: ValueTypes,
    selection: Ints | None,
    keys: list[pa.Array[Any]],
    node: int,
    seq: int,
) -> pa.Table:
    """The table with its stamp, its keys and the types of its values."""
    rows = table.num_rows
    stamp = {
        NODE: pa.array(np.full(rows, node, np.int64)),
        SEQ: pa.array(np.full(rows, seq, np.int64)),
    }
    stamp |= {} if selection is None else {SELECTION: pa.array(selection)}
    columns = {f"key {name}": column for name, column in zip(by, keys, strict=True)}
    whole = pa.table(stamp | columns | dict(zip(table.schema.names, table.columns, strict=True)))
    return whole.replace_schema_metadata({_TYPES: _serialized(tuple(types.items()))})


@lru_cache(maxsize=1024)
def _serialized(types: tuple[tuple[str | None, pa.DataType | None], ...]) -> bytes:
    """The types of a group's values as bytes, which are the same at every step."""
    known = pa.schema([pa.field(text, kind) for text, kind in types if text and kind])
    return known.serialize().to_pybytes()


def without_stamps(
    table: pa.Table, by: Sequence[str], keys: Sequence[pa.DictionaryArray[Any, Any]]
) -> pa.Table:
    """Events that wait, for a way on which none comes twice: with keys as these columns, without
    stamps."""
    for name, column in zip(by, keys, strict=True):
        if not pa.types.is_nested(column.type.value_type):  # of these, Arrow writes no dictionaries
            place = table.schema.get_field_index(f"key {name}")
            table = table.set_column(place, f"key {name}", column)
    return table.drop_columns([NODE, SEQ])


def types_of(table: pa.Table) -> dict[str | None, pa.DataType | None]:
    """The types of the aggregated expressions, which partials carry along."""
    known = pa.ipc.read_schema(pa.py_buffer(table.schema.metadata[_TYPES]))
    return {None: None} | {field.name: field.type for field in known}


def key_columns(table: pa.Table, by: Sequence[str]) -> list[pa.Array[Any]]:
    return [codec.whole(table, f"key {name}") for name in by]


def key_types(table: pa.Table, by: Sequence[str]) -> dict[str, pa.DataType]:
    return {name: table.schema.field(f"key {name}").type for name in by}


def full_windows(
    bound: BoundGroup,
    kinds: Ints,
    numbers: Ints,
    rows: Rows,
    selection: Ints,
    keys: list[pa.Array[Any]],
) -> pa.Table:
    """Count windows that are full already, a row each, as partials of their group."""
    table = codec.rows_to_table(rows, bound.operators).drop_columns(["key"])
    table = table.append_column(_KIND, pa.array(kinds))
    table = table.append_column(_NUMBER, pa.array(numbers))
    return stamped(table, bound.group.by, bound.types, selection, keys, 0, 0)


def full_in(table: pa.Table) -> tuple[Ints, Ints] | None:
    """For full count windows: the place of each one's type in the group, and its number."""
    if _NUMBER not in table.schema.names:
        return None
    return codec.ints(table, _KIND), codec.ints(table, _NUMBER)


def are_events(table: pa.Table) -> bool:
    """Whether partials are events that wait to be cut."""
    return settled.TIME in table.schema.names


def rows_of(holder: SliceHolder, table: pa.Table) -> Rows:
    """Partials of a group that slices on arrival, under the codes that its keys have here."""
    code = _codes(holder, table, holder.bound.group.by)
    bounds = [codec.ints(table, name) for name in codec.BOUNDS if name != "key"]
    fields = codec.fields_from_arrow(table, holder.bound.operators)
    return Rows(bounds[0], bounds[1], code, bounds[2], bounds[3], fields)


def events_of(
    holder: KeyHolder, table: pa.Table, by: Sequence[str], names: Sequence[str], stream: str | None
) -> pa.Table:
    """Events that wait, with these columns, under the codes that their keys have here.

    Whoever reads a stream knows its name better than those who read a part of it.
    """
    codes = _codes(holder, table, by)
    if holder.own is not None:
        codes = _lanes(holder.own, table, codes, stream)
    return table.select([*names]).add_column(0, settled.KEY, pa.array(codes))


def owned_of(holder: SliceHolder, table: pa.Table) -> streams.Owned:
    """Slices that know their windows."""
    assert holder.own is not None
    tags = streams.tags_of(table, len(holder.own.places), holder.own.streams)
    return streams.Owned(rows_of(holder, table), tags)


def lanes_in(holder: SliceHolder, table: pa.Table) -> Ints:
    """The lanes that `take_courses` wrote down, by the numbers that they have here."""
    assert holder.own is not None
    codes = _codes(holder, table, holder.bound.group.by)
    return _lanes(holder.own, table, codes, None)


def _lanes(own: StreamsState, table: pa.Table, codes: Ints, stream: str | None) -> Ints:
    if stream is not None:
        return streams.lane(own.streams.code(stream), codes)
    return streams.lane(own.streams.codes(codec.whole(table, STREAM)), codes)


def _codes(holder: KeyHolder, table: pa.Table, by: Sequence[str]) -> Ints:
    keys = key_columns(table, by)
    if SELECTION in table.schema.names:
        return holder.keys.codes_of(codec.ints(table, SELECTION), keys)
    return holder.keys.codes_of(np.zeros(table.num_rows, np.int64), keys)


def ends_of(table: pa.Table) -> Ints:
    """When each partial is past: the end of its slice, or just after its event."""
    if are_events(table):
        return codec.ints(table, settled.TIME) + 1
    return codec.ints(table, "slice_end")


def split_at(partials: Partials, time: int) -> tuple[Partials, Partials]:
    """Partials that are past by a time, and the others."""
    groups = {id: split_past(table, time) for id, table in partials.groups.items()}
    events = (None, None) if partials.events is None else split_past(partials.events, time)
    past = {id: table for id, (table, _) in groups.items() if table is not None}
    rest = {id: table for id, (_, table) in groups.items()}
    return Partials(past, events[0]), Partials(rest, events[1])


def split_past(table: pa.Table, time: int) -> tuple[pa.Table | None, pa.Table]:
    """The rows that are past by a time, if there are any, and the others."""
    ended = (ends_of(table) <= time) & ~streams.tells_ends(table)
    if not ended.any():
        return None, table
    return table.filter(pa.array(ended)), table.filter(pa.array(~ended))


def events_in(table: pa.Table) -> int:
    """How many events partials hold, of an engine that takes a census."""
    if are_events(table):
        return table.num_rows
    return int(codec.ints(table, "count(*).count").sum())
