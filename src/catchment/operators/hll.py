"""HLL sketches, for approximate distinct counts: the operator, and the bytes of DataSketches.

A hash becomes a *coupon* of 32 bits: the number of leading zeros of one half, plus one, above 26
bits of the other. A sketch is one of

    a list or a set    of coupons, in order, as long as these are few
    registers          one byte for each value of the last 12 bits: the greatest number among the
                       coupons that end with them

Which of them, and every byte, follows from the set of values alone, however it was cut and merged.
The estimate of registers is therefore the one that does not depend on the order of updates; the
flag "out of order" says so to DataSketches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import datasketches as ds
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, register_operator
from catchment.operators.grouping import Grouping
from catchment.operators.murmur import hash_numbers, hash_texts
from catchment.operators.ragged import Array, Fields, Ints, Ragged, offsets_of, plain, spans
from catchment.operators.sketches import WORD, bytes_of, check, known, merge_sketches, words_of
from catchment.operators.sort import few_within, sort_within, unique_within

Coupons = npt.NDArray[np.uint32]
Registers = npt.NDArray[np.uint8]

HLL_LOG2 = 12
"""The size parameter: an error of about 1.6 %; the first few hundred values are kept as is."""
_SLOTS = 1 << HLL_LOG2
_ADDRESS_BITS = 26
_ADDRESS = np.uint32((1 << _ADDRESS_BITS) - 1)
LIST_MOST = 7
SET_MOST = 384
"""Coupons that a list and a set may hold: a set is at most three quarters full, and of 512."""
_SET_STEPS = np.array([24, 48, 96, 192, SET_MOST])
_SET_LEAST_LOG2 = 5
# The first two words: sizes of the preamble, versions, log2 of the table, flags, count, mode.
_LIST_HEAD = (0x0C070102, 0x08000803)
_SET_HEAD = (0x0C070103, 0x09000800)
_REGISTERS_HEAD = (0x0C07010A, 0x0A001800)
_OUT_OF_ORDER = 0x00001000
_LIST_PREAMBLE, _SET_PREAMBLE, _REGISTERS_PREAMBLE = 2, 3, 10
_REGISTER_WORDS = _REGISTERS_PREAMBLE + _SLOTS // 4
_HALVES = 0.5 ** np.arange(256)
_SMALL = 32
"""Numbers below this are added up apart from the others: then no sum is rounded."""
_HALVES_OF_SMALL = np.where(np.arange(256) < _SMALL, _HALVES, 0.0)
_NUMBERS_AT_ONCE, _TABLES_AT_ONCE = 1 << 15, 64
"""What is hashed and summed together: few enough to stay in the cache of a core."""
_ALL_BITS = (1 << 64) - 1


@register_operator
class Hll(Operator):
    """An HLL sketch; None for a group without values."""

    kind = "hll"
    small = False

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"sketch": pa.binary()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        values, groups = events.values, events.groups
        few = few_within(values, groups)
        if few is not None:
            values = few.values
            groups = Grouping(np.repeat(np.arange(groups.n), few.lengths), groups.n)
        if events.levels is None:
            coupons = _coupons_of_numbers(values)
        else:
            coupons = coupons_of(*_hash_levels(events.levels))[values]
        return {"sketch": _written(unique_within(sort_within(coupons, groups)))}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        return {"sketch": merge_sketches(plain(rows[self.ref]["sketch"]), groups, _union)}


def estimates(sketches: Array) -> Ints:
    """About how many distinct values each sketch has seen."""
    out = np.zeros(len(sketches), np.int64)
    rows = known(sketches)
    parts = sketches[rows].tolist()
    read = _read(parts)
    out[rows] = read.count
    for part in np.flatnonzero(read.dense).tolist():
        out[rows[part]] = round(ds.hll_sketch.deserialize(parts[part]).get_estimate())
    return out


def _coupons_of_numbers(values: Array) -> Coupons:
    out = np.empty(len(values), np.uint32)
    for begin in range(0, len(values), _NUMBERS_AT_ONCE):
        part = slice(begin, begin + _NUMBERS_AT_ONCE)
        out[part] = coupons_of(*hash_numbers(values[part]))
    return out


def _hash_levels(levels: Array) -> tuple[Any, Any]:
    """Numbers of any type as numbers, what is neither number nor text as text."""
    values = levels.tolist()
    kinds = set(map(type, values))
    if kinds <= {str, bytes}:
        return hash_texts(values)
    if kinds <= {int, bool}:
        return hash_numbers(np.array([value & _ALL_BITS for value in values], np.uint64))
    if kinds == {float}:
        return hash_numbers(np.array(values, np.float64))
    return hash_texts([str(value) for value in values])


def coupons_of(low: npt.NDArray[np.uint64], high: npt.NDArray[np.uint64]) -> Coupons:
    """The coupons of hashes, given as their two halves."""
    # Without the bit below its first, no number is rounded up to the next power of two, and the
    # exponent of the double tells the place of that bit.
    exponent = (high & ~(high >> np.uint64(1))).astype(np.float64).view(np.int64) >> 52
    number = np.minimum(1087 - exponent, 63).astype(np.uint32)
    coupons: Coupons = number << np.uint32(_ADDRESS_BITS)
    coupons |= low.astype(np.uint32) & _ADDRESS
    return coupons


def _union(parts: Sequence[bytes], groups: Grouping) -> Array:
    read = _read(parts)
    codes = np.repeat(groups.codes, read.coupons.lengths)
    coupons = unique_within(sort_within(read.coupons.values, Grouping(codes, groups.n)))
    rows = np.flatnonzero(read.dense)
    tables = map(read.registers, rows.tolist())
    return _written(coupons, groups.codes[rows].tolist(), tables)


@dataclass(frozen=True, slots=True)
class _HllParts:
    """Sketches as words; the coupons of those that keep coupons, and how many these are."""

    words: Ragged
    dense: npt.NDArray[np.bool_]
    count: Ints
    coupons: Ragged

    def registers(self, row: int) -> Registers:
        begin, end = self.words.offsets[row : row + 2]
        return self.words.values[begin + _REGISTERS_PREAMBLE : end].view(np.uint8)


def _read(parts: Sequence[bytes]) -> _HllParts:
    words = words_of(parts, _LIST_PREAMBLE + 1)
    begin, length = words.offsets[:-1], words.lengths
    first, second, third = (words.values[begin + place].astype(np.int64) for place in range(3))
    listed = (first == _LIST_HEAD[0]) & (second & 0xFF00FFFF == _LIST_HEAD[1])
    a_set = (first == _SET_HEAD[0]) & (second & 0xFFFFFF00 == _SET_HEAD[1])
    dense = (first == _REGISTERS_HEAD[0]) & (second | _OUT_OF_ORDER == _REGISTERS_HEAD[1])
    count = np.where(listed, second >> 16 & 0xFF, np.where(a_set, third, 0))
    preamble = np.where(listed, _LIST_PREAMBLE, _SET_PREAMBLE)
    wanted = np.where(dense, _REGISTER_WORDS, preamble + count)
    check((listed | a_set | dense) & (length == wanted), parts)
    values = words.values[spans(begin + preamble, count)]
    return _HllParts(words, dense, count, Ragged(offsets_of(count), values))


def _written(
    coupons: Ragged, owners: Sequence[int] = (), tables: Iterable[Registers] = ()
) -> Array:
    """The sketch of each row of coupons, which are in order, and of the tables that it owns."""
    dense = coupons.lengths > SET_MOST
    dense[list(owners)] = True
    rows = np.flatnonzero(dense)
    registers = _registers(coupons if len(rows) == len(coupons) else coupons.take(rows))
    for place, table in zip(np.searchsorted(rows, owners).tolist(), tables, strict=True):
        np.maximum(registers[place], table, out=registers[place])
    out = np.full(len(coupons), None, object)
    out[rows] = _write_registers(registers)
    few = np.flatnonzero(~dense & (coupons.lengths > 0))
    out[few] = _write_coupons(coupons if len(few) == len(coupons) else coupons.take(few))
    return out


def _registers(coupons: Ragged) -> Registers:
    """The registers of each row of coupons, which are in order."""
    slots = (coupons.values & np.uint32(_SLOTS - 1)).astype(np.int64)
    if len(coupons) > 1:
        slots += np.repeat(np.arange(len(coupons)) * _SLOTS, coupons.lengths)
    registers = np.zeros(len(coupons) * _SLOTS, np.uint8)
    # Of those with one slot the last, which is the greatest, stays.
    registers[slots] = coupons.values >> np.uint32(_ADDRESS_BITS)
    return registers.reshape(len(coupons), _SLOTS)


def _write_coupons(coupons: Ragged) -> Array:
    count = coupons.lengths
    a_set = count > LIST_MOST
    preamble = np.where(a_set, _SET_PREAMBLE, _LIST_PREAMBLE)
    offsets = offsets_of(preamble + count)
    begin = offsets[:-1]
    words = np.empty(offsets[-1], WORD)
    words[begin] = np.where(a_set, _SET_HEAD[0], _LIST_HEAD[0])
    log2 = _SET_LEAST_LOG2 + np.searchsorted(_SET_STEPS, count)
    words[begin + 1] = np.where(a_set, _SET_HEAD[1] + log2, _LIST_HEAD[1] + (count << 16))
    words[begin[a_set] + 2] = count[a_set]
    words[spans(begin + preamble, count)] = coupons.values
    return bytes_of(Ragged(offsets, words))


def _write_registers(registers: Registers) -> Array:
    """The preamble repeats the sums of 2**-register, in two parts, and how many are zero."""
    words = np.zeros((len(registers), _REGISTER_WORDS), WORD)
    words[:, :2] = _REGISTERS_HEAD
    for begin in range(0, len(registers), _TABLES_AT_ONCE):
        part = slice(begin, begin + _TABLES_AT_ONCE)
        table = registers[part]
        sums = np.zeros((len(table), 2), "<f8")
        sums[:, 0] = _HALVES_OF_SMALL[table].sum(axis=1)
        if (table >= _SMALL).any():
            sums[:, 1] = (_HALVES - _HALVES_OF_SMALL)[table].sum(axis=1)
        words[part, 4:8] = sums.view(WORD)
        words[part, 8] = _SLOTS - np.count_nonzero(table, axis=1)
    words[:, _REGISTERS_PREAMBLE:] = registers.view(WORD)
    offsets = np.arange(len(registers) + 1) * _REGISTER_WORDS
    return bytes_of(Ragged(offsets, words.reshape(-1)))
