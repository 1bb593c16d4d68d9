"""Partials while they are worked on: one row per slice and key, in NumPy columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa

from catchment.operators import Computed, Grouping, Input, Operator
from catchment.operators.base import QUIET, Argument, is_exact, value_type
from catchment.operators.grouping import sort_order
from catchment.operators.limbs import is_narrow
from catchment.operators.ragged import Array, Field, Fields, Ints, Ragged, concat, nbytes, take

Operators = Mapping[str, Operator]


@dataclass(slots=True)
class Rows:
    """Slices `[start, end)` per key code, the times of their first and last event, and fields.

    A field is named `operator.field`, as in `sum(v).total`.
    """

    start: Ints
    end: Ints
    key: Ints
    first: Ints
    last: Ints
    fields: dict[str, Field] = field(default_factory=dict)
    _nbytes: int | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, columns: Iterable[Ints], fields: dict[str, Field]) -> Rows:
        """Rows of `columns()` and fields."""
        start, end, key, first, last = columns
        return cls(start, end, key, first, last, fields)

    def __len__(self) -> int:
        return len(self.start)

    def take(self, index: Ints) -> Rows:
        return Rows(
            self.start[index],
            self.end[index],
            self.key[index],
            self.first[index],
            self.last[index],
            {name: take(column, index) for name, column in self.fields.items()},
        )

    def __getitem__(self, part: slice) -> Rows:
        fields = {name: column[part] for name, column in self.fields.items()}
        return Rows.of((column[part] for column in self.columns()), fields)

    def where(self, keep: Array) -> Rows:
        return self if keep.all() else self.take(np.flatnonzero(keep))

    @property
    def nbytes(self) -> int:
        """Bytes held; found once, as fields do not change."""
        if self._nbytes is None:
            own = sum(column.nbytes for column in self.columns())
            self._nbytes = own + sum(nbytes(column) for column in self.fields.values())
        return self._nbytes

    def columns(self) -> tuple[Ints, ...]:
        return self.start, self.end, self.key, self.first, self.last


def row_bytes(rows: Rows) -> Array:
    """How large each row is: bounds, key and fields, before they are packed."""
    sizes = np.full(len(rows), 8.0 * len(rows.columns()))
    for column in rows.fields.values():
        if isinstance(column, Ragged):
            sizes += column.lengths * float(column.values.itemsize)
        elif column.dtype == object:
            texts = (len(v) if isinstance(v, bytes | str) else 8 for v in column.tolist())
            sizes += np.fromiter(texts, float, len(rows))
        else:
            sizes += column.itemsize
    return sizes


def no_rows(operators: Operators) -> Rows:
    none = np.empty(0, np.int64)
    return Rows(none, none, none, none, none, empty_fields(operators))


def empty_fields(operators: Operators) -> dict[str, Field]:
    return dict(_empty_fields(tuple(operators.values())))


@lru_cache(maxsize=1024)
def _empty_fields(operators: tuple[Operator, ...]) -> dict[str, Field]:
    return identity_fields({operator.ref.id: operator for operator in operators}, 0)


def identity_fields(operators: Operators, n: int) -> dict[str, Field]:
    """Fields of `n` rows that hold no values."""
    nothing = Grouping(np.empty(0, np.int64), n)
    none = np.empty(0, np.int64)
    out: dict[str, Fields] = {}
    for operator in operators.values():
        if operator.reads == "parts":
            assert isinstance(operator.type, pa.StructType)
            parts = tuple(_no_values(_empty_type(field.type)) for field in operator.type)
            events = Input(none, nothing, lambda: none, _no_arrivals, None, parts)
        else:
            empty = _no_values(empty_type(operator))
            events = Input(empty.values, nothing, lambda: none, _no_arrivals, empty.levels)
        out[operator.ref.id] = operator.lift(events, Computed(operators, out))
    return flat({id: out[id] for id in operators})  # without those derived on the way


def empty_type(operator: Operator) -> type:
    """The NumPy type of an operator's input values."""
    if operator.reads != "values" and is_exact(operator.type):
        return np.float64 if operator.reads == "doubles" else np.int64
    return np.float64 if operator.type is None else _empty_type(operator.type)


def _no_arrivals(rows: Ints | None = None) -> Ints:
    return np.empty(0, np.int64) if rows is None else rows


def _no_values(dtype: type) -> Argument:
    """No values of a NumPy type; those that are objects come as ranks."""
    if dtype is object:
        return Argument(np.empty(0, np.int64), None, np.empty(0, object))
    return Argument(np.empty(0, dtype), None, None)


def _empty_type(type: pa.DataType) -> type:
    kind = value_type(type)
    if kind in (pa.int64(), pa.float64()):
        return np.int64 if kind == pa.int64() else np.float64
    narrow = pa.types.is_temporal(kind) and kind.bit_width in (32, 64)
    return np.int64 if narrow or pa.types.is_boolean(kind) or is_narrow(kind) else object


def flat(fields: Mapping[str, Fields]) -> dict[str, Field]:
    return {f"{id}.{name}": c for id, columns in fields.items() for name, c in columns.items()}


def computed(operators: Operators, fields: Mapping[str, Field]) -> Computed:
    """Fields by operator, ready to merge or to lower."""
    nested = {
        id: {name: fields[whole] for name, whole in names}
        for id, names in _layout(tuple(operators.values()))
    }
    return Computed(operators, nested)


def concat_rows(parts: Sequence[Rows], operators: Operators) -> Rows:
    parts = [part for part in parts if len(part)]
    if not parts:
        return no_rows(operators)
    if len(parts) == 1:
        return parts[0]
    columns = [np.concatenate(column) for column in zip(*(p.columns() for p in parts), strict=True)]
    fields = {name: concat([p.fields[name] for p in parts]) for name in empty_names(operators)}
    return Rows.of(columns, fields)


def empty_names(operators: Operators) -> list[str]:
    """The names of all fields."""
    return [whole for _, names in _layout(tuple(operators.values())) for _, whole in names]


@lru_cache(maxsize=1024)
def _layout(operators: tuple[Operator, ...]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The fields of each operator: their names, and those that they have among all fields."""
    ids = [operator.ref.id for operator in operators]
    return [
        (id, [(name, f"{id}.{name}") for name in operator.fields])
        for id, operator in zip(ids, operators, strict=True)
    ]


@QUIET
def merge_fields(
    fields: Mapping[str, Field], groups: Grouping, operators: Operators
) -> dict[str, Field]:
    """One row per group of rows."""
    rows = computed(operators, fields)
    merged: dict[str, Fields] = {}
    done = Computed(operators, merged)
    for id, operator in operators.items():
        merged[id] = operator.merge(rows, groups, done)
    return flat({id: merged[id] for id in operators})


def merge_rows(rows: Rows, groups: Grouping, operators: Operators) -> Rows:
    """One row per group; a group's rows have one key."""
    order, starts, _ = groups.segments
    head = order[starts] if len(starts) else starts
    return Rows(
        groups.min(rows.start),
        groups.max(rows.end),
        rows.key[head],
        groups.min(rows.first),
        groups.max(rows.last),
        merge_fields(rows.fields, groups, operators),
    )


def fit(rows: Rows, operators: Operators) -> Rows:
    """Rows with the fields of these operators: what they lack holds no values."""
    missing = identity_fields(operators, len(rows))
    fields = {name: rows.fields.get(name, column) for name, column in missing.items()}
    return Rows.of(rows.columns(), fields)


def compact(rows: Rows, operators: Operators) -> Rows:
    """One row per slice start and key, sorted by start, then key."""
    if len(rows) < 2:
        return rows
    if not _in_order(rows):
        rows = rows.take(sort_order(rows.key, rows.start))
    new = np.ones(len(rows), np.bool_)
    new[1:] = (rows.start[1:] != rows.start[:-1]) | (rows.key[1:] != rows.key[:-1])
    if new.all():
        return rows
    starts = np.flatnonzero(new)
    return merge_rows(rows, Grouping(None, len(starts), starts=starts, rows=len(rows)), operators)


def _in_order(rows: Rows) -> bool:
    """Whether rows are sorted by start and key already, as those of one sender mostly are."""
    later = rows.start[1:] > rows.start[:-1]
    same = (rows.start[1:] == rows.start[:-1]) & (rows.key[1:] >= rows.key[:-1])
    return bool((later | same).all())


def fieldwise(operators: Operators) -> dict[str, np.ufunc] | None:
    """How each field merges, where all merge field by field with one NumPy function."""
    ways: dict[str, np.ufunc] = {}
    for id, operator in operators.items():
        own = operator.fieldwise()
        if own is None:
            return None
        ways |= {f"{id}.{name}": way for name, way in own.items()}
    return ways
