"""HLL sketches, for approximate distinct counts: the operator, and the bytes of DataSketches.

Every value becomes a *coupon* (`operators/coupons.py`): a number of zeros above 26 bits. A sketch
is one of

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

import datasketches as ds
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.native import kernels
from catchment.operators.base import Computed, Input, Operator, register_operator
from catchment.operators.coupons import ADDRESS_BITS, Coupons
from catchment.operators.grouping import Grouping
from catchment.operators.ragged import Array, Fields, Ints, Ragged, offsets_of, plain, spans
from catchment.operators.sketches import WORD, bytes_of, check, known, merge_sketches, words_of
from catchment.operators.sort import few_within, sort_within, unique_within

Registers = npt.NDArray[np.uint8]

HLL_LOG2 = 12
"""The size parameter: an error of about 1.6 %; the first few hundred values are kept as is."""
_SLOTS = 1 << HLL_LOG2
LIST_MOST = 7
SET_MOST = 384
"""Coupons that a list and a set may hold: a set is at most three quarters full, and of 512."""
_SET_STEPS = np.array([24, 48, 96, 192, SET_MOST])
_SET_LEAST_LOG2 = 5
# The first two words: sizes of the preamble, versions, log2 of the table, flags, count, mode.
_LIST_HEAD = (0x0C070102, 0x08000803)
_SET_HEAD = (0x0C070103, 0x09000800)
_REGISTERS_HEAD = (0x0C07010A, 0x0A001800)
EMPTY = bytes((2, 1, 7, HLL_LOG2, 3, 0x0C, 0, 8))
"""The sketch of no values."""
_OUT_OF_ORDER = 0x00001000
_LIST_PREAMBLE, _SET_PREAMBLE, _REGISTERS_PREAMBLE = 2, 3, 10
_REGISTER_WORDS = _REGISTERS_PREAMBLE + _SLOTS // 4
_SMALL = 32
"""Numbers below this are added up apart from the others: then no sum is rounded."""
_TABLES_AT_ONCE = 64
"""What is summed together: few enough to stay in the cache of a core."""
_MANY = SET_MOST + 64
"""Coupons of a row, on average, from which it is tried whether they fill more registers than a set
has coupons: then they need not be sorted."""


@register_operator
class Hll(Operator):
    """An HLL sketch; None for a group without values."""

    kind = "hll"
    small = False
    reads = "hashes"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"sketch": pa.binary()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        values, groups = events.values, events.groups
        if events.levels is not None:
            few = few_within(values, groups)
            if few is not None:
                values = few.values
                groups = Grouping(np.repeat(np.arange(groups.n), few.lengths), groups.n)
            values = events.levels[values]
        return {"sketch": _sketches(values.astype(np.uint32, copy=False), groups)}

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


def _sketches(coupons: Coupons, groups: Grouping) -> Array:
    """The sketch of each group of coupons."""
    if len(coupons) <= _MANY * groups.n:
        return _written(unique_within(sort_within(coupons, groups)))
    registers = _raised(coupons, groups)
    full = _filled(registers) > SET_MOST
    if full.all():
        return _write_registers(registers)
    out = np.full(groups.n, None, object)
    out[full] = _write_registers(registers[full])
    rest = np.flatnonzero(~full[groups.codes])
    some = Grouping(groups.codes[rest], groups.n)
    out[~full] = _written(unique_within(sort_within(coupons[rest], some)))[~full]
    return out


def _raised(coupons: Coupons, groups: Grouping) -> Registers:
    """The registers of each group of coupons, in any order."""
    registers = np.zeros((groups.n, _SLOTS), np.uint8)
    if groups.kernels is not None:
        groups.kernels.raise_registers(coupons, groups.codes, registers)
        return registers
    slots = (coupons & np.uint32(_SLOTS - 1)).astype(np.int64)
    slots += groups.codes * _SLOTS
    numbers = (coupons >> np.uint32(ADDRESS_BITS)).astype(np.uint8)
    np.maximum.at(registers.reshape(-1), slots, numbers)
    return registers


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
    registers[slots] = coupons.values >> np.uint32(ADDRESS_BITS)
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


def _powers(registers: Registers) -> Array:
    """2**-register, of which a double has only the exponent."""
    exponents = registers.astype(np.int64)
    np.subtract(1023, exponents, out=exponents)
    exponents <<= 52
    return exponents.view(np.float64)


def _summed(registers: Registers) -> tuple[Array, Ints]:
    """The sums of 2**-register of each table, of small ones and of the others, and how many are
    not zero."""
    compiled = kernels(registers.size)
    if compiled is not None:
        return compiled.sum_registers(registers)
    sums = np.zeros((len(registers), 2))
    for begin in range(0, len(registers), _TABLES_AT_ONCE):
        part = slice(begin, begin + _TABLES_AT_ONCE)
        table = registers[part]
        powers = _powers(table)
        if table.max() >= _SMALL:
            large = np.where(table < _SMALL, 0.0, powers)
            sums[part, 1] = large.sum(axis=1)
            powers -= large
        sums[part, 0] = powers.sum(axis=1)
    return sums, _filled(registers)


def _filled(registers: Registers) -> Ints:
    """How many registers of each row are not zero."""
    bits = np.packbits(registers != 0, axis=1).view(np.uint64)
    filled: Ints = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    return filled


def _write_registers(registers: Registers) -> Array:
    """The preamble repeats the sums of 2**-register, in two parts, and how many are zero."""
    words = np.zeros((len(registers), _REGISTER_WORDS), WORD)
    words[:, :2] = _REGISTERS_HEAD
    sums, filled = _summed(registers)
    words[:, 4:8] = sums.astype("<f8", copy=False).view(WORD)
    words[:, 8] = _SLOTS - filled
    words[:, _REGISTERS_PREAMBLE:] = registers.view(WORD)
    offsets = np.arange(len(registers) + 1) * _REGISTER_WORDS
    return bytes_of(Ragged(offsets, words.reshape(-1)))
