"""Keys as small integers: codes local to a batch, and codes that last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from catchment.engine.texts import Texts
from catchment.operators.grouping import sort_rows
from catchment.operators.ragged import Ints

_NAN = object()
"""All NaNs are one key, though no NaN equals another."""


class LocalKeys:
    """The keys of a batch's events, as codes in `0..count`; not every code need occur.

    A code is made of the places of its values in `parts`; or, with `joint`, is the place of the
    whole key in all of them. Codes with the same `origin` mean the same in every batch.
    """

    def __init__(
        self,
        codes: Ints | None,
        parts: list[pa.Array[Any]],
        origin: object | None = None,
        joint: bool = False,
    ) -> None:
        self.codes = codes
        self.parts = parts
        self.origin = origin
        self.joint = joint
        self.count = math.prod(len(part) for part in (parts[:1] if joint else parts))

    def at(self, rows: Ints) -> LocalKeys:
        """The keys of some of the events, under the same codes."""
        codes = None if self.codes is None else self.codes.take(rows)
        return LocalKeys(codes, self.parts, self.origin, self.joint)

    def take(self, codes: Ints) -> list[pa.Array[Any]]:
        """The key columns of these codes."""
        if self.joint:
            return [part.take(codes) for part in self.parts]
        columns = []
        for part in reversed(self.parts):
            codes, place = np.divmod(codes, len(part))
            columns.append(part.take(place))
        return columns[::-1]


_SPARE, _FEW = 8, 1 << 16
"""Texts that are remembered for each key in use, and those that are remembered in any case."""


class Encoder:
    """Encodes the key columns of batch after batch, remembering texts it has seen."""

    def __init__(self) -> None:
        self._texts: dict[str, Texts] = {}

    @property
    def nbytes(self) -> int:
        return sum(texts.nbytes for texts in self._texts.values())

    def forget(self, used: int | None = None) -> None:
        """Forgets texts that are many more than the keys in use; without a number, all.

        What is forgotten is learned again when it comes again, so this is worth its while only
        where most of a table stands for keys that do not come any more.
        """
        most = -1 if used is None else max(_FEW, _SPARE * used)
        self._texts = {name: texts for name, texts in self._texts.items() if len(texts) <= most}

    def encode(self, name: str, array: pa.Array[Any]) -> LocalKeys:
        """Codes of one key column."""
        if not Texts.takes(array):
            return encode([array])
        texts = self._texts.get(name)
        if texts is None:
            texts = self._texts[name] = Texts()
        codes = texts.encode(array)
        return LocalKeys(codes, [texts.values], texts.identity)


def encode(arrays: Sequence[pa.Array[Any]]) -> LocalKeys:
    """Codes of the rows of one or more key columns; null is a key like any other."""
    return joined([LocalKeys(*_alone(array)) for array in arrays])


def joined(columns: Sequence[LocalKeys]) -> LocalKeys:
    """Codes of rows by several key columns, from the codes by each of them."""
    if not columns:
        return LocalKeys(None, [])
    if len(columns) == 1:
        return columns[0]
    keys = _occurring(columns[0])
    for column in map(_occurring, columns[1:]):
        (part,) = column.parts
        assert keys.codes is not None and column.codes is not None
        both = keys.codes * max(len(part), 1) + column.codes
        if keys.count * len(part) <= max(4 * len(both), 1 << 16) and not keys.joint:
            keys = LocalKeys(both, [*keys.parts, part])
            continue
        # Codes of all that could occur would be too many: number those that do.
        present, place = np.unique(both, return_inverse=True)
        before, after = np.divmod(present, max(len(part), 1))
        parts = [*keys.take(before), part.take(after)]
        keys = LocalKeys(place.astype(np.int64, copy=False), parts, joint=True)
    return keys


def _occurring(keys: LocalKeys) -> LocalKeys:
    """The codes of one column, without those of texts that were seen in other batches only."""
    if keys.origin is None or keys.codes is None:
        return keys
    present, codes = distinct(keys.codes)
    return LocalKeys(codes, [keys.parts[0].take(present)])


def _alone(array: pa.Array[Any]) -> tuple[Ints, list[pa.Array[Any]]]:
    codes, part = _encode(array)
    return codes, [part]


def _encode(array: pa.Array[Any]) -> tuple[Ints, pa.Array[Any]]:
    kind = array.type
    if pa.types.is_integer(kind) and not array.null_count and len(array):
        found = _encode_dense(array) or _encode_sorted(array)
        if found is not None:
            return found
    if pa.types.is_floating(kind):
        array = _one_nan_one_zero(array)
    if isinstance(array, pa.DictionaryArray):
        return _recode(array)
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int64), pa.nulls(1)
    try:
        encoded = array.dictionary_encode(null_encoding="encode")
        return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return _encode_objects(array)


def _encode_dense(array: pa.Array[Any]) -> tuple[Ints, pa.Array[Any]] | None:
    """Integers in a range about as small as their number are their own codes."""
    values = array.to_numpy()
    low, high = int(values.min()), int(values.max())
    if high - low >= max(4096, len(array)):
        return None
    codes = values if low == 0 else values - values.dtype.type(low)
    every = np.arange(high - low + 1).astype(values.dtype) + values.dtype.type(low)
    return codes.astype(np.int64, copy=False), pa.array(every, array.type)


_WORD = 63
"""Bits of a value and of its row that are sorted as one."""
_SAMPLE = 1 << 12
"""Values that are looked at before it is decided how they are encoded."""
_DISTINCT = 0.99
"""From this share of distinct values in a sample on, there are hundreds of thousands of keys."""


def _encode_sorted(array: pa.Array[Any]) -> tuple[Ints, pa.Array[Any]] | None:
    """Integers of which few repeat, by a sort: with so many keys a hash table is larger than the
    processor's cache, and takes several times as long. None: a hash table is the better way."""
    values = array.to_numpy()
    sample = values[:: max(1, len(values) // _SAMPLE)]
    if len(sample) < _SAMPLE or len(np.unique(sample)) < _DISTINCT * len(sample):
        return None
    low = values.min()
    if (int(values.max()) - int(low)).bit_length() + len(values).bit_length() > _WORD:
        return None
    distance = (values - low).astype(np.int64)
    rows, (ordered,) = sort_rows(np.arange(len(values)), distance)
    new = np.ones(len(values), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    codes = np.empty(len(values), np.int64)
    codes[rows] = np.cumsum(new) - 1
    return codes, pa.array(ordered[new].astype(values.dtype) + low, array.type)


def _one_nan_one_zero(array: pa.Array[Any]) -> pa.Array[Any]:
    valid = array.is_valid()
    values = array.fill_null(0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 + 0.0 is 0.0
    values[np.isnan(values)] = np.nan
    null = ~valid.to_numpy(zero_copy_only=False)
    made: pa.Array[Any] = pa.array(values, array.type, mask=null)
    return made


def _recode(array: pa.DictionaryArray[Any, Any]) -> tuple[Ints, pa.Array[Any]]:
    """A dictionary column: its indices, unless its dictionary repeats a value."""
    place, values = _encode(array.dictionary)
    missing = len(values)
    if array.indices.null_count:
        known = values.to_pylist()
        if None in known:
            missing = known.index(None)
        else:
            values = pa.concat_arrays([values, pa.nulls(1, values.type)])
    place = np.append(place, missing)
    indices = array.indices.fill_null(len(array.dictionary)) if array.null_count else array.indices
    return place[indices.to_numpy().astype(np.int64)], values


def _encode_objects(array: pa.Array[Any]) -> tuple[Ints, pa.Array[Any]]:
    seen: dict[Any, int] = {}
    first: list[int] = []
    codes = np.empty(len(array), np.int64)
    for row, value in enumerate(array.to_pylist()):
        frozen = _frozen(value)
        code = seen.setdefault(frozen, len(seen))
        if code == len(first):
            first.append(row)
        codes[row] = code
    return codes, array.take(np.array(first, np.int64))


def _frozen(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, dict):
        return tuple((_frozen(k), _frozen(v)) for k, v in value.items())
    return _NAN if isinstance(value, float) and value != value else value


def distinct(codes: Ints) -> tuple[Ints, Ints]:
    """The codes that occur, in order, and for each row the place of its own among them.

    >>> [part.tolist() for part in distinct(np.array([7, 2, 7]))]
    [[2, 7], [1, 0, 1]]
    """
    size = int(codes.max()) + 1 if len(codes) else 0
    if size > 4 * len(codes) + 1024:
        present, place = np.unique(codes, return_inverse=True)
        return present, place.astype(np.int64, copy=False)
    seen = np.zeros(size, np.bool_)
    seen[codes] = True
    present = np.flatnonzero(seen)
    if len(present) == size:
        return present, codes
    where = np.empty(size, np.int64)
    where[present] = np.arange(len(present))
    return present, where[codes]


_RECENT = 4


class _Recent(NamedTuple):
    """Keys that were looked up not long ago, and their codes."""

    selections: Ints
    columns: list[pa.Array[Any]]
    codes: Ints

    def is_of(self, selections: Ints, columns: list[pa.Array[Any]]) -> bool:
        return np.array_equal(self.selections, selections) and all(
            mine.equals(other) for mine, other in zip(self.columns, columns, strict=True)
        )


_KEY_BYTES, _VALUE_BYTES = 130, 65
"""What Python takes for a key, and for each of its values."""


class KeyIndex:
    """Lasting codes of (selection, key), in order of first sight.

    The first keys that come need not be looked for: they are put into the dictionary only when
    others come. So whoever brings all its keys at once never makes one.
    """

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}
        self._size = 0
        self._selections: list[Ints] = []
        self._columns: list[list[pa.Array[Any]]] = []
        self._origin: object | None = None
        self._known = np.empty(0, np.int64)
        self._recent: list[_Recent] = []

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Bytes held, about: Python's share is a measured mean."""
        columns = [column for part in self._columns for column in part]
        width = len(self._columns[0]) if self._columns else 0
        python = (_KEY_BYTES + _VALUE_BYTES * width) * len(self._codes)
        return python + sum(column.nbytes for column in columns) + self._known.nbytes

    def translate(self, keys: LocalKeys, codes: Ints) -> Ints:
        """The lasting codes of a batch's (`selection * count + key`), one look-up for each key."""
        if keys.origin is None or (len(codes) and int(codes.max()) >= keys.count):
            local, place = distinct(codes)
            columns = keys.take(local % keys.count)
            return self._lookup_distinct(local // keys.count, columns)[place]
        if self._origin is not keys.origin:
            self._origin, self._known = keys.origin, np.empty(0, np.int64)
        if len(self._known) < keys.count:
            more = np.full(keys.count + len(self._known), -1, np.int64)
            more[: len(self._known)] = self._known
            self._known = more
        lasting = self._known[codes]
        if (lasting < 0).any():
            fresh, _ = distinct(codes[lasting < 0])
            none = np.zeros(len(fresh), np.int64)
            self._known[fresh] = self._lookup_distinct(none, keys.take(fresh))
            lasting = self._known[codes]
        return lasting

    def unlink(self) -> None:
        """Forgets what codes of texts stand for, and what was looked up not long ago."""
        self._origin, self._known, self._recent = None, np.empty(0, np.int64), []

    def codes_of(self, selections: Ints, columns: list[pa.Array[Any]]) -> Ints:
        """The codes of keys that come many times, from senders that repeat themselves."""
        for known in self._recent:
            if known.is_of(selections, columns):
                return known.codes.copy()
        keys = encode(columns)
        codes = selections * keys.count
        codes = self.translate(keys, codes if keys.codes is None else codes + keys.codes)
        self._recent = [_Recent(selections, columns, codes), *self._recent[: _RECENT - 1]]
        return codes

    def _lookup_distinct(self, selections: Ints, columns: list[pa.Array[Any]]) -> Ints:
        """The same as `lookup`, of keys that all differ."""
        if self._size:
            return self.lookup(selections, columns)
        self._add(selections, columns)
        return np.arange(self._size)

    def _add(self, selections: Ints, columns: list[pa.Array[Any]]) -> None:
        if len(selections):
            self._selections.append(selections)
            self._columns.append(columns)
            self._size += len(selections)

    def lookup(self, selections: Ints, columns: list[pa.Array[Any]]) -> Ints:
        """The codes of these keys, new ones where they are new."""
        known = self._codes
        if len(known) < self._size:
            first_keys = _keys(self.selections, self.take(np.arange(self._size)))
            known.update(zip(first_keys, range(self._size), strict=True))
        keys = _keys(selections, columns)
        new = [row for row, key in enumerate(keys) if key not in known]
        if new:
            first: dict[Any, int] = {}
            for row in new:
                first.setdefault(keys[row], row)
            known.update(zip(first, range(len(known), len(known) + len(first)), strict=True))
            rows = np.fromiter(first.values(), np.int64, len(first))
            self._add(selections[rows], [column.take(rows) for column in columns])
        return np.fromiter(map(known.__getitem__, keys), np.int64, len(keys))

    @property
    def selections(self) -> Ints:
        if len(self._selections) > 1:
            self._selections = [np.concatenate(self._selections)]
        return self._selections[0] if self._selections else np.empty(0, np.int64)

    def take(self, codes: Ints) -> list[pa.Array[Any]]:
        """The key columns of these codes."""
        if len(self._columns) > 1:
            self._columns = [[pa.concat_arrays(c) for c in zip(*self._columns, strict=True)]]
        if not self._columns:
            return []
        return [column.take(codes) for column in self._columns[0]]

    def only(self, codes: Ints) -> KeyIndex:
        """An index of these codes alone, numbered anew in this order."""
        kept = KeyIndex()
        if len(codes):
            kept._lookup_distinct(self.selections[codes], self.take(codes))
        return kept


def _keys(selections: Ints, columns: list[pa.Array[Any]]) -> list[Any]:
    """Selections and keys as Python values."""
    return list(zip(selections.tolist(), *map(_values, columns), strict=True))


def _values(column: pa.Array[Any]) -> list[Any]:
    """A key column as Python values that compare as keys do."""
    kind = column.type
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    values = column.to_pylist()
    if pa.types.is_floating(kind) or pa.types.is_nested(kind):
        return [_frozen(value) for value in values]
    return values
