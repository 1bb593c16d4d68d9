"""Partials and results on their way between processes: as bytes, and shared out by key."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar, overload

import msgspec
import numpy as np
import pyarrow as pa

from catchment.engine import codec, settled
from catchment.engine.bound import BoundPlan
from catchment.engine.keys import encode
from catchment.engine.narrow import narrowed, widened
from catchment.engine.partials import Partials, are_events, key_columns, without_stamps
from catchment.engine.results import Limit, ResultColumns, Results
from catchment.model import records
from catchment.model.plan import Plan
from catchment.operators.grouping import stable_order
from catchment.operators.ragged import Ints

_EVENTS, _REGIONS = "events", "regions "


class NoNote(msgspec.Struct, frozen=True):
    """Stands where partials have no note."""


_T = TypeVar("_T")


def pack_partials(
    partials: Partials,
    note: object = NoNote(),
    compression: codec.Compression | None = "lz4",
) -> bytes:
    """Partials as bytes, with a note.

    Slices repeat so much that to compress them saves time; of events that wait, it would not: their
    numbers are made narrow.
    """
    tables = {str(id): table for id, table in partials.groups.items() if table.num_rows}
    plain = [name for name, table in tables.items() if are_events(table)]
    tables |= {name: narrowed(tables[name]) for name in plain}
    if partials.events is not None and partials.events.num_rows:
        tables[_EVENTS] = partials.events
    tables |= {f"{_REGIONS}{id}": table for id, table in partials.regions.items() if table.num_rows}
    return codec.pack(note, tables, compression, plain)


@overload
def unpack_partials(data: bytes) -> tuple[Partials, NoNote]: ...
@overload
def unpack_partials(data: bytes, kind: type[_T]) -> tuple[Partials, _T]: ...
def unpack_partials(data: bytes, kind: type[Any] = NoNote) -> tuple[Partials, Any]:
    """The inverse: the partials, and the note, which must be of this kind."""
    note, tables = codec.unpack(data, kind)
    return partials_of(tables), note


def partials_of(tables: dict[str, pa.Table]) -> Partials:
    """Partials by the names that their tables have in a parcel."""
    events, found, regions = None, dict[int, pa.Table](), dict[int, pa.Table]()
    for name, table in tables.items():
        if name == _EVENTS:
            events = table
        elif name.startswith(_REGIONS):
            regions[int(name.removeprefix(_REGIONS))] = table
        else:
            found[int(name)] = widened(table) if are_events(table) else table
    return Partials(found, events, regions)


def share_out(partials: Partials, plan: Plan, buckets: int) -> dict[int, Partials]:
    """Partials by bucket: all of a key's in one, and all without keys in the first.

    Those of groups that take all keys of a window together are in the first, too.

    A group's number changes with the plan, so it must not say where the group's state is.
    """
    shares: dict[int, dict[int, pa.Table]] = {}
    for id, table in partials.groups.items():
        if not table.num_rows:
            continue
        group = plan.groups[id]
        alone = not group.by or buckets == 1 or group.whole
        waits = are_events(table)
        columns = key_columns(table, group.by) if waits or not alone else []
        encoded = [_encoded(column) for column in columns] if waits else []
        if waits:
            table = without_stamps(table, group.by, encoded)
        if alone:
            shares.setdefault(0, {})[id] = table
            continue
        for bucket, share in _divided(table, _places(encoded or columns, buckets)).items():
            shares.setdefault(bucket, {})[id] = share
    made = {bucket: Partials(groups) for bucket, groups in shares.items()}
    if partials.events is not None and partials.events.num_rows:
        made[0] = Partials(shares.get(0, {}), partials.events)
    return made


def divided(partials: Partials, plan: Plan, buckets: int, shares: int) -> dict[int, Partials]:
    """The partials of one of so many buckets, divided further: as `share_out` would have divided
    them into `buckets * shares`. What has no keys, takes all keys of a window together, or drops
    duplicates, is all in the first."""
    made: dict[int, dict[int, pa.Table]] = {}
    for id, table in partials.groups.items():
        group = plan.groups[id]
        if not group.by or group.whole:
            made.setdefault(0, {})[id] = table
            continue
        place = _places(key_columns(table, group.by), buckets * shares) // buckets
        for share, part in _divided(table, place).items():
            made.setdefault(share, {})[id] = part
    found = {share: Partials(groups) for share, groups in made.items()}
    if partials.events is not None or partials.regions:
        found[0] = Partials(made.get(0, {}), partials.events, partials.regions)
    return found


def _divided(table: pa.Table, place: Ints) -> dict[int, pa.Table]:
    """The rows of each place that has some, in their order."""
    table = settled.take(table, stable_order(place))
    ends = np.cumsum(np.bincount(place)).tolist()
    bounds = enumerate(pairwise([0, *ends]))
    return {at: table.slice(low, high - low) for at, (low, high) in bounds if low < high}


def _encoded(column: pa.Array[Any]) -> pa.DictionaryArray[Any, Any]:
    """The distinct values of a column, and which of them each row has."""
    if not pa.types.is_nested(column.type):
        encoded = column.dictionary_encode()
        assert isinstance(encoded, pa.DictionaryArray)
        return encoded
    keys = encode([column])
    assert keys.codes is not None
    return pa.DictionaryArray.from_arrays(keys.codes, keys.parts[0])


def _places(columns: Sequence[pa.Array[Any]], buckets: int) -> Ints:
    """A bucket for each row of key columns that depends on the values alone, in every process
    alike."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        if pa.types.is_integer(column.type) and not column.null_count:
            marks = _marks(column)[:-1]
        else:
            encoded = column if isinstance(column, pa.DictionaryArray) else _encoded(column)
            values = _marks(encoded.dictionary)
            marks = values[
                encoded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)
            ]
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + marks
    mixed ^= mixed >> np.uint64(29)
    return (mixed % np.uint64(buckets)).astype(np.int64)


def _marks(values: pa.Array[Any]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """A number for each value, and a last one for null."""
    if pa.types.is_integer(values.type):
        whole = values.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False)
        marks = whole.astype(np.int64).view(np.uint64)
    else:
        texts = (repr(value).encode() for value in values.to_pylist())
        marks = np.fromiter((zlib.crc32(text) for text in texts), np.uint64, len(values))
    marks = np.append(marks, np.uint64(0x5BD1E995))
    marks = (marks ^ (marks >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    return marks ^ (marks >> np.uint64(27))


class ResultTables:
    """Result rows as they were made elsewhere; stands where a block would."""

    def __init__(self, tables: Mapping[tuple[int, int], pa.Table], complete: bool = True) -> None:
        self._tables = tables
        self.complete = complete

    def __len__(self) -> int:
        return max((table.num_rows for table in self._tables.values()), default=0)

    def table(self, shape: ResultColumns, answer: int, low: int, high: int) -> pa.Table:
        form = shape.forms[answer]
        if form.common:
            return self._tables[form.number, 0].slice(low, high - low)
        return self._tables[form.number, low]


class ResultsRecord(msgspec.Struct, frozen=True):
    """What results are besides tables."""

    spans: list[tuple[int, int, int, int, int, int]]
    """Table, group, window, selection, and the first row and the one after the last."""
    limits: dict[str, Limit]
    note: msgspec.Raw
    unended: list[int]
    """The tables of windows that have not ended."""


def pack_results(results: Results, note: object = NoNote()) -> bytes:
    """Results as bytes, with a note: each table that answers share once."""
    tables: dict[str, pa.Table] = {}
    spans: list[tuple[int, int, int, int, int, int]] = []
    places: dict[int, int] = {}
    unended: set[int] = set()
    for (group, window, selection), parts in results.parts.items():
        for block, low, high in parts:
            number = places.setdefault(id(block), len(places))
            spans.append((number, group, window, selection, low, high))
            if not block.complete:
                unended.add(number)
            shape = results.shapes[group]
            for answer, _ in results.names.of((group, window, selection)):
                form = shape.forms[answer]
                name = f"{number} {form.number} {0 if form.common else low}"
                if name not in tables:
                    bounds = (0, len(block)) if form.common else (low, high)
                    tables[name] = block.table(shape, answer, *bounds)
    said = msgspec.Raw(records.encode(note))
    record = ResultsRecord(spans, dict(results.limits), said, sorted(unended))
    return codec.pack(record, tables, "lz4")


@overload
def unpack_results(data: bytes, bound: BoundPlan) -> tuple[Results, NoNote]: ...
@overload
def unpack_results(data: bytes, bound: BoundPlan, kind: type[_T]) -> tuple[Results, _T]: ...
def unpack_results(data: bytes, bound: BoundPlan, kind: type[Any] = NoNote) -> tuple[Results, Any]:
    """The results that an assembler of the same bound plan gave, and the note."""
    record, tables = codec.unpack(data, ResultsRecord)
    sheets: dict[int, dict[tuple[int, int], pa.Table]] = {}
    for name, table in tables.items():
        number, form, low = map(int, name.split())
        sheets.setdefault(number, {})[form, low] = table
    results = bound.no_results(record.limits)
    made = {
        number: ResultTables(held, number not in record.unended) for number, held in sheets.items()
    }
    for number, group, window, selection, low, high in record.spans:
        if number in made:
            results.add(group, made[number], [(window, selection, low, high)])
    return results, records.decode(kind, record.note, "the note of results")
