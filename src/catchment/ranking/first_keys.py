"""The first keys of windows by a sum or a count: which are wanted, and what a node tells of them.

The keys of a slice are treated as values, and their sums as how often these values occur, so they
are found as the most frequent values are. What is told of a key beside its sum is its row: the
partials from which all that queries select is computed.

    rows of a slice        as values that occur        told at once (the first 1), and the rest
    k  sum(v)  max(v)
    a  9       4           "a" 9 times                 "a" 9 times, with its row
    b  2       2           "b" twice                   others at most twice
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import structs

from catchment.engine import codec
from catchment.engine.bound_group import BoundGroup
from catchment.engine.columns import pack
from catchment.engine.partials import NODE, SELECTION, SEQ, key_columns
from catchment.operators import OperatorRef
from catchment.operators.ragged import Array, Ints, Ragged, offsets_of
from catchment.operators.values import Mask, objects
from catchment.planner.ranked import FirstKeys, first_keys, need_all_keys
from catchment.ranking.column import SAMPLE, AskedRow, list_column, rows_of
from catchment.ranking.counts import (
    CountedColumn,
    CountedRow,
    counts_in,
    listed_values,
    near_the_last,
    told_values,
)
from catchment.ranking.message import CountAnswer, CountQuestion, CountSummary, RunQuestion

CENSUS = "count(*).count"
"""The field that says how many events a row holds."""
MOST = 1 << 40
"""Sums of a slice that are less are added without loss, however many slices there are."""
_FIELD = "keys"
_SENT, _ROWS = "keys.sent", "keys.rows"
_BYTES = "keys.bytes"
_PLACE = "#place"
_SCORE = b"score"
_BOUNDS = ("slice_start", "slice_end")
_ANSWER = 1000.0
"""Bytes that a node says once, about: what columns partials have."""
_BITS = {32: pa.int32(), 64: pa.int64()}
"""Times as numbers."""


class KeyedRow(NamedTuple):
    """The keys of a slice as values, in order, their sums, and their partials."""

    counted: CountedRow
    sent: Mask
    """Which of the partials were told."""
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.counted)

    @property
    def nbytes(self) -> int:
        return self.counted.nbytes + int(self.sent.nbytes) + int(self.rows.nbytes)


class SlicedKeys(NamedTuple):
    """Partials of keys by slice and selection: `table` has a row for each, with lists of keys as
    values, in order, and of their sums."""

    table: pa.Table
    order: Ints
    """The rows of the partials, in the order of the lists; each is there once where `single`."""
    single: Mask
    """Of each slice: whether no key is there twice."""
    small: Mask
    """Of each slice: whether all sums are so small that they can be added."""
    least: Ints
    """Of each slice: the least sum."""


class KeysBySum(CountedColumn):
    """The keys of a group's slices, by a sum or a count that all its queries order by."""

    ties: ClassVar[bool] = True
    nothing: ClassVar[Any] = KeyedRow(
        CountedRow(np.empty(0, object), np.empty(0, np.int64)), np.empty(0, np.bool_), pa.table({})
    )

    def __init__(self, bound: BoundGroup, is_base: bool) -> None:
        """`is_base`: whether partials of other groups are made of those of this one."""
        self.field = _FIELD
        self.value, self.times = f"{_FIELD}.value", f"{_FIELD}.times"
        self.floats, self.texts = False, True
        self.fields = {self.value: object, self.times: np.int64, _BYTES: np.float64}
        group, self.by = bound.group, bound.group.by
        wants = [first_keys(answer) for answer in group.answers]
        some: list[FirstKeys] = [one for one in wants if one is not None]
        self.all = is_base or bool(need_all_keys(group))
        self.most = max((one.limit for one in some), default=1)
        # Once such queries have left, sums decide nothing: all keys are asked for.
        self.score = some[0].score if some else OperatorRef("count")
        self._types = {
            f"{id}.{name}": kind
            for id, operator in bound.operators.items()
            for name, kind in operator.fields.items()
        }
        self._keys = {f"key {name}": bound.key_types[name] for name in group.by}
        self._types |= self._keys

    @property
    def wants(self) -> list[Any]:
        return [self.field, self.wanted, self.score.id]

    # -- partials ----------------------------------------------------------------------------------

    def _sums(self, table: pa.Table) -> tuple[Ints, Mask]:
        """What keys are ordered by, of each partial, and whether it is small enough to be added."""
        if self.score.kind == "count":
            sums = codec.ints(table, f"{self.score.id}.count")
            return sums, sums < MOST
        approx = codec.whole(table, f"{self.score.id}.approx").to_numpy(zero_copy_only=False)
        small = np.abs(approx) < MOST
        return np.where(small, codec.ints(table, f"{self.score.id}.total"), 0), small

    def sliced(self, table: pa.Table) -> SlicedKeys:
        """Partials by slice and selection."""
        texts = texts_of(key_columns(table, self.by))
        start, end, chosen = (codec.ints(table, n) for n in (*_BOUNDS, SELECTION))
        sums, small = self._sums(table)
        listed, code = np.unique(texts, return_inverse=True)
        order = np.lexsort((code, chosen, end, start))
        bounds = [some[order] for some in (start, end, chosen)]
        new_slice = np.ones(len(order), np.bool_)
        new_slice[1:] = np.any([np.diff(some) != 0 for some in bounds], axis=0)
        new = new_slice.copy()
        new[1:] |= np.diff(code[order]) != 0
        heads, slices = np.flatnonzero(new), np.flatnonzero(new_slice)
        slice_of = np.cumsum(new_slice) - 1
        count = len(slices)
        sizes = np.bincount(slice_of[heads], minlength=count)
        offsets = pa.array(offsets_of(sizes), pa.int64())
        times = np.add.reduceat(sums[order], heads)
        values = pa.array(listed[code[order][heads]], pa.string())
        single, is_small = np.ones(count, np.bool_), np.ones(count, np.bool_)
        single[slice_of[~new]] = False
        is_small[slice_of[~small[order]]] = False
        columns: dict[str, Any] = {
            name: pa.array(some[slices])
            for name, some in zip((*_BOUNDS, SELECTION), bounds, strict=True)
        }
        columns[self.value] = pa.LargeListArray.from_arrays(offsets, values)
        columns[self.times] = pa.LargeListArray.from_arrays(offsets, pa.array(times))
        least = np.minimum.reduceat(times, np.searchsorted(slice_of[heads], np.arange(count)))
        return SlicedKeys(pa.table(columns), order, single, is_small, least)

    def priced(self, sliced: pa.Table, table: pa.Table) -> pa.Table:
        """Slices, with the bytes that each of their partials takes on the way, about."""
        some = _plain(table.slice(0, SAMPLE)).combine_chunks()
        packed = pa.Codec("zstd").compress(pack(some), asbytes=True)
        each = np.full(sliced.num_rows, len(packed) / max(some.num_rows, 1))
        return sliced.append_column(_BYTES, pa.array(each))

    def divided(
        self, table: pa.Table, sliced: SlicedKeys, chosen: Mask
    ) -> tuple[pa.Table, pa.Table]:
        """The slices that are kept back, with their partials; and the partials of all others."""
        some = sliced.table.filter(pa.array(chosen))
        ends = offsets_of(self.sizes(sliced.table))
        orders = [sliced.order[ends[n] : ends[n + 1]] for n in np.flatnonzero(chosen)]
        plain = _plain(table).replace_schema_metadata({_SCORE: self.score.id})
        rows = [
            KeyedRow(counted, self._best(counted), plain.take(order))
            for counted, order in zip(super().held(some), orders, strict=True)
        ]
        columns: dict[str, Any] = {name: some.column(name) for name in (*_BOUNDS, SELECTION)}
        events = [int(codec.ints(row.rows, CENSUS).sum()) for row in rows]
        columns |= {CENSUS: pa.array(events, pa.int64())} | self.lists(rows)
        stays = np.ones(table.num_rows, np.bool_)
        stays[np.concatenate([np.empty(0, np.int64), *orders])] = False
        return pa.table(columns), table.filter(pa.array(stays))

    def _best(self, row: CountedRow) -> Mask:
        """The keys of a slice that are told at once: as many of the first as are wanted."""
        best = np.zeros(len(row), np.bool_)
        best[np.argsort(-row.times, kind="stable")[: self.most]] = True
        return best

    # -- a node ------------------------------------------------------------------------------------

    def costs(self, table: pa.Table, searches: int, overlaps: int) -> tuple[Array, Array]:
        found = counts_in(table, self)
        sizes = found.values.lengths
        each = table.column(_BYTES).to_numpy()
        told = np.minimum(sizes, self.most)
        asked = told + (near_the_last(found, self.most) - told + self.most) * overlaps
        texts = found.values.values[:SAMPLE]
        text = sum(map(len, texts)) / max(len(texts), 1)
        return sizes * each, _ANSWER + asked * (each + text)

    def held(self, table: pa.Table) -> list[Any]:
        counted = super().held(table)
        offsets, sent = list_column(table, _SENT)
        flags = rows_of(Ragged(offsets, sent.to_numpy(zero_copy_only=False).astype(np.bool_)))
        bodies: list[Any] = table.column(_ROWS).to_pylist()
        rows = [codec.from_ipc(body) for body in bodies]
        return [KeyedRow(*row) for row in zip(counted, flags, rows, strict=True)]

    def lists(self, rows: list[Any]) -> dict[str, pa.Array[Any]]:
        made = super().lists([row.counted for row in rows])
        offsets = pa.array(offsets_of(np.array([len(row) for row in rows], np.int64)), pa.int64())
        sent = np.concatenate([np.empty(0, np.bool_), *(row.sent for row in rows)])
        made[_SENT] = pa.LargeListArray.from_arrays(offsets, pa.array(sent))
        made[_ROWS] = pa.array([codec.to_ipc(row.rows) for row in rows], pa.binary())
        return made

    def summary(self, table: pa.Table, searches: int) -> CountSummary:
        held = self.held(table)
        told = [np.flatnonzero(row.sent) for row in held]
        pairs = list(zip(held, told, strict=True))
        values, texts = told_values(
            np.concatenate([np.empty(0, object), *(row.counted.values[at] for row, at in pairs)])
        )
        times = [row.counted.times for row in held]
        return CountSummary(
            self.field,
            np.array([len(row) for row in held], np.int64),
            np.array([int(each.sum()) for each in times], np.int64),
            np.array([int(row.counted.times[~row.sent].max(initial=0)) for row in held], np.int64),
            np.array([len(at) for at in told], np.int64),
            values,
            np.concatenate([np.empty(0, np.int64), *(row.counted.times[at] for row, at in pairs)]),
            texts,
            _rows_told(
                [row.rows.take(pa.array(at)) for row, at in pairs],
                np.split(np.arange(len(values)), np.cumsum([len(at) for at in told])[:-1]),
            ),
        )

    def answer(self, question: RunQuestion | CountQuestion, rows: list[AskedRow]) -> CountAnswer:
        assert isinstance(question, CountQuestion)
        plain = [row._replace(values=row.values.counted) for row in rows]
        made = super().answer(question, plain)
        ends = offsets_of(made.sent).tolist()
        values = listed_values(made.values, made.texts)
        told, places = [], []
        for row, first, end in zip(rows, ends[:-1], ends[1:], strict=True):
            there = np.flatnonzero(made.times[first:end] > 0)
            at = np.searchsorted(row.values.counted.values, values[first:end][there])
            new = ~row.values.sent[at]
            row.values.sent[at] = True
            told.append(row.values.rows.take(pa.array(at[new])))
            places.append(first + there[new])
        return structs.replace(made, rows=_rows_told(told, places))

    # -- the root ----------------------------------------------------------------------------------

    def read_rows(self, body: bytes, told: ToldKeys) -> tuple[Ints, pa.Table, bool]:
        """The partials that came with keys and their sums, of which key each is, and whether the
        sums are those that keys are ordered by: an older plan may have had others.

        Raises ValueError for what cannot be partials of these.
        """
        try:
            table = codec.from_ipc(body)
            table.validate(full=True)
            place = codec.ints(table, _PLACE)
            bounds = [codec.ints(table, name) for name in (*_BOUNDS, SELECTION)]
            texts = texts_of(key_columns(table, self.by))
            alike = (table.schema.metadata or {}).get(_SCORE) == self.score.id.encode()
            sums, small = self._sums(table) if alike else (told.times[:0], np.empty(0, np.bool_))
        except (pa.ArrowException, KeyError, TypeError) as error:
            raise ValueError("rows that cannot be read") from error
        kinds = {field.name: field.type for field in table.schema}
        if any(kind != kinds.get(name, kind) for name, kind in self._types.items()):
            raise ValueError("rows of other types than the plan has")
        if any(table.column(name).null_count for name in kinds if name not in self._keys):
            raise ValueError("rows that lack something")
        wide = len(told.values)
        if len(np.unique(place)) < len(place) or ((place < 0) | (place >= wide)).any():
            raise ValueError("rows of keys that were not told")
        here = told.here[place]
        known = zip(bounds, (told.start, told.end, told.selection), strict=True)
        if (
            (texts != told.values[place]).any()
            or (alike and (~small | (sums != told.times[place])).any())
            or any((some != each[place])[here].any() for some, each in known)
        ):
            raise ValueError("rows that are not those of its keys")
        return place, table.drop_columns([_PLACE]), alike


class ToldKeys(NamedTuple):
    """Keys that were told, their sums, and the slices that they are of, where these are `here`."""

    values: Array
    times: Ints
    start: Ints
    end: Ints
    selection: Ints
    here: Mask


def key_column(bound: BoundGroup, is_base: bool) -> KeysBySum | None:
    """What is asked of a group whose queries take first keys; None where it cannot be: keys are no
    plain values, or sums no whole numbers of 64 bits."""
    if not all(_is_plain(bound.key_types[name]) for name in bound.group.by):
        return None
    column = KeysBySum(bound, is_base)
    operator = bound.operators[column.score.id]
    whole = {"total", "approx"} if column.score.kind == "sum" else {"count"}
    return column if whole == {*operator.fields} and bound.group.by else None


def _is_plain(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))
    )


def texts_of(keys: list[pa.Array[Any]]) -> Array:
    """A text for each key, other ones for other keys.

    >>> texts_of([pa.array(["a", None, "b"]), pa.array([0.0, -0.0, 2.5])]).tolist()
    ['=1:a=3:0.0', '!=3:0.0', '=1:b=3:2.5']
    """
    texts = [""] * len(keys[0])
    key: Any
    for key in keys:
        if pa.types.is_dictionary(key.type):
            key = key.dictionary_decode()
        if pa.types.is_temporal(key.type):
            key = key.view(_BITS[key.type.bit_width])
        found = key.to_pylist()
        if pa.types.is_floating(key.type):
            found = [None if value is None else value + 0.0 for value in found]
        parts = ["!" if value is None else f"={len(text := str(value))}:{text}" for value in found]
        texts = [text + part for text, part in zip(texts, parts, strict=True)]
    return objects(texts)


def _plain(table: pa.Table) -> pa.Table:
    return table.drop_columns([NODE, SEQ]).replace_schema_metadata(None)


def _rows_told(parts: list[pa.Table], places: list[Ints]) -> list[bytes]:
    """Partials as bytes, each with the place of its key among those that are told; those that were
    cut by plans with other columns are apart."""
    alike: list[list[pa.Table]] = []
    for part, place in zip(parts, places, strict=True):
        if not part.num_rows:
            continue
        placed = part.append_column(_PLACE, pa.array(place))
        for tables in alike:
            if tables[0].schema.equals(placed.schema, check_metadata=True):
                tables.append(placed)
                break
        else:
            alike.append([placed])
    return [codec.to_ipc(pa.concat_tables(tables).combine_chunks()) for tables in alike]
