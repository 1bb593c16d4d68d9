"""KLL sketches, for approximate quantiles: the operator, and the bytes of DataSketches.

A sketch is a number of *levels*. A value of level h stands for 2**h values near it, so of many
values few are kept:

    level 0    all values, while there is room for them
    level 1    of level 0, once it is full: every second value, in order
    level 2    of level 1, likewise, and so on

Which of two neighbours goes up is decided by what is there, in place of the dice that DataSketches
throws: the same partials always give the same sketch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.native import Kernels, kernels
from catchment.operators.base import Computed, Input, InputForm, Operator, register_operator
from catchment.operators.grouping import Grouping
from catchment.operators.ragged import (
    Array,
    Fields,
    Ints,
    Ragged,
    offsets_of,
    plain,
    spans,
)
from catchment.operators.sketches import WORD, bytes_of, check, known, merge_sketches, words_of
from catchment.operators.sort import order_within, sort_within

KLL_K = 200
"""The size parameter: a rank error of about 1.65 %; so many values are kept as they are."""
_LEAST_ROOM = 8
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""Every bit of a number multiplied by this changes the first bits of the product."""
_MOST_LEVELS = 60


def _capacity(depth: int) -> int:
    """The room of a level so far below the highest: two thirds of the one above it, rounded."""
    return max(_LEAST_ROOM, (2 * KLL_K * (1 << depth) // int(3**depth) + 1) // 2)


_CAPACITIES = np.array([_capacity(depth) for depth in range(_MOST_LEVELS)])
_ROOM = offsets_of(_CAPACITIES)
"""What a sketch of so many levels may hold."""
KllItems = np.dtype[np.float64] | np.dtype[np.int64] | np.dtype[np.float32]
"""What a sketch holds, as it is written."""
DOUBLES, WHOLE, FLOATS = np.dtype("<f8"), np.dtype("<i8"), np.dtype("<f4")
# The first two words: size of the preamble, version, family, flags, k, the least room of a level.
_HEAD, _SINGLE_HEAD = 0x020F0105, 0x040F0202
_SORTED = 0x02000000
_SIZES = _LEAST_ROOM << 16 | KLL_K
_PREAMBLE, _SINGLE_PREAMBLE = 5, 2
EMPTY = bytes((2, 1, 15, 1, KLL_K, 0, _LEAST_ROOM, 0))
"""The sketch of no values, whatever they would be."""


@register_operator
class Kll(Operator):
    """A KLL sketch of doubles; None for a group without values. NaN is passed over."""

    kind = "kll"
    small = False
    reads: ClassVar[InputForm] = "doubles"
    items: ClassVar[KllItems] = DOUBLES

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"sketch": pa.binary()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        values, groups = events.values.astype(self.items, copy=False), events.groups
        if self.items.kind == "f":
            values = np.add(values, 0.0)  # -0.0 is 0.0
        numbers = ~np.isnan(values)
        if not numbers.all():
            values, groups = values[numbers], groups.select(numbers)
        run = sort_within(values, groups)
        out = np.full(len(run), None, object)
        rows = np.flatnonzero(run.lengths)
        run = run.take(rows) if len(rows) < len(run) else run
        out[rows] = _sketched(run, self.items)
        return {"sketch": out}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        union = partial(_union, items=self.items)
        return {"sketch": merge_sketches(plain(rows[self.ref]["sketch"]), groups, union)}


@register_operator
class KllWhole(Kll):
    """A KLL sketch of whole numbers of 64 bits; None for a group without values."""

    kind = "kll_whole"
    reads = "values"
    items = WHOLE


@dataclass(frozen=True, slots=True)
class _KllLevels:
    """Of each sketch, how many values it has seen, the ends of these, and its levels, in order."""

    count: Ints
    least: Array
    greatest: Array
    levels: list[Ragged]

    @property
    def heights(self) -> Ints:
        """How many levels each sketch has."""
        filled = [np.where(run.lengths > 0, h + 1, 1) for h, run in enumerate(self.levels)]
        heights: Ints = np.maximum.reduce(filled)
        return heights


def quantiles(sketches: Array, q: float) -> Array:
    """About the value below which a share q of the values lies; NaN of no values."""
    out = np.full(len(sketches), np.nan)
    rows = known(sketches)
    if not len(rows):
        return out
    parts = sketches[rows].tolist()
    found = _compiled_quantiles(parts, q)
    out[rows] = _quantiles(parts, q) if found is None else found
    return out


def _compiled_quantiles(parts: Sequence[bytes], q: float) -> Array | None:
    compiled = _kernels(DOUBLES)
    if compiled is None:
        return None
    words = words_of(parts, _SINGLE_PREAMBLE + _words_in(DOUBLES))
    return compiled.quantiles(words.values, words.offsets, q, _ROOM)


def _quantiles(parts: Sequence[bytes], q: float) -> Array:
    read = _read(parts, DOUBLES)
    order = _order(read, len(parts))
    weights = np.cumsum(np.left_shift(1, read.level[order]))
    last = np.cumsum(np.bincount(read.part, minlength=len(parts))) - 1
    before = np.append(0, weights[last[:-1]])
    at = np.searchsorted(weights, before + (q * read.count).astype(np.int64), side="right")
    found: Array = read.values[order[np.minimum(at, last)]]
    return found


def _order(read: _KllParts, sketches: int) -> Ints:
    """The values of each sketch in order. Those of one level, as of few values, mostly are."""
    values, part = read.values, read.part
    falls = np.flatnonzero((values[1:] < values[:-1]) & (part[1:] == part[:-1]))
    order = np.arange(len(values), dtype=np.int64)
    if len(falls):
        apart = np.zeros(sketches, np.bool_)
        apart[part[falls]] = True
        some = np.flatnonzero(apart[part])
        order[some] = some[order_within(values[some], part[some])]
    return order


def as_floats(sketches: Array) -> Array:
    """Sketches of doubles as those of the floats of 32 bits next to them."""
    out = np.full(len(sketches), None, object)
    rows = known(sketches)
    if len(rows):
        alone = Grouping(np.arange(len(rows), dtype=np.int64), len(rows))
        out[rows] = _written(_levels(_read(sketches[rows].tolist(), DOUBLES), alone), FLOATS)
    return out


def _kernels(items: KllItems) -> Kernels | None:
    """The compiled loops, which read and write words as they are in memory."""
    plain = items in (DOUBLES, WHOLE) and sys.byteorder == "little"
    return kernels(1, least=1) if plain else None


def _sketched(run: Ragged, items: KllItems) -> Array:
    """The sketch of each row of values, which are in order; no row is empty."""
    compiled = _kernels(items)
    made = None if compiled is None else compiled.sketch_kll(run.values, run.offsets, _ROOM)
    if made is not None:
        words, offsets = made
        return bytes_of(Ragged(offsets, words))
    ends = run.values[run.offsets[:-1]], run.values[run.offsets[1:] - 1]
    return _written(_compressed(_KllLevels(run.lengths, *ends, [run])), items)


def _union(parts: Sequence[bytes], groups: Grouping, items: KllItems) -> Array:
    """The union of the sketches of each group; no group is empty."""
    compiled = _kernels(items)
    if compiled is not None:
        words = words_of(parts, _SINGLE_PREAMBLE + _words_in(items))
        order, starts, _ = groups.segments
        bounds, doubles = np.append(starts, len(order)), items == DOUBLES
        made = compiled.unite_kll(words.values, words.offsets, order, bounds, _ROOM, doubles)
        if made is not None:
            return bytes_of(Ragged(made[1], made[0]))
    return _written(_compressed(_levels(_read(parts, items), groups)), items)


def _levels(read: _KllParts, groups: Grouping) -> _KllLevels:
    """All values of the sketches of each group, level by level."""
    codes = groups.codes[read.part]
    levels = []
    for level in range(int(read.level.max()) + 1):
        here = read.level == level
        levels.append(sort_within(read.values[here], Grouping(codes[here], groups.n)))
    ends = groups.min(read.least), groups.max(read.greatest)
    return _KllLevels(groups.add(read.count), *ends, levels)


def _compressed(sketches: _KllLevels) -> _KllLevels:
    """Sketches that hold no more than there is room for."""
    heights = sketches.heights
    held = np.sum([run.lengths for run in sketches.levels], axis=0)
    if (held <= _ROOM[heights]).all():
        return sketches
    levels: list[Ragged] = []
    rising: Ragged | None = None
    while len(levels) < len(sketches.levels) or rising is not None:
        level = len(levels)
        run = _joined(sketches.levels[level : level + 1], rising)
        room = _CAPACITIES[np.maximum(heights - 1 - level, 0)]
        full = (held > _ROOM[heights]) & (run.lengths >= room)
        rising = None
        if full.any():
            heights = heights + (full & (heights == level + 1))
            run, rising = _halved(run, full, sketches.count + level)
            held = held - rising.lengths
        levels.append(run)
    return replace(sketches, levels=levels)


def _joined(known: list[Ragged], rising: Ragged | None) -> Ragged:
    if rising is None or not known:
        return known[0] if rising is None else rising
    if not len(known[0].values):
        return rising
    rows = np.arange(len(rising))
    both = [known[0], rising]
    codes = np.concatenate([np.repeat(rows, run.lengths) for run in both])
    values = np.concatenate([run.values for run in both])
    return sort_within(values, Grouping(codes, len(rows)))


def _halved(run: Ragged, full: npt.NDArray[np.bool_], salt: Ints) -> tuple[Ragged, Ragged]:
    """What stays of each row, and what rises: of a full row, one of each two neighbours.

    Of an odd number, the first or the last stays.
    """
    begin, length = run.offsets[:-1], run.lengths
    odd = full & (length % 2 == 1)
    dice = np.zeros(len(run), np.int64)
    middle = run.values[begin[full] + length[full] // 2].view(np.uint64)
    dice[full] = (middle ^ salt[full].view(np.uint64)) * _SPREAD >> np.uint64(62)
    skip = odd & (dice > 1)
    pairs = np.where(full, length // 2, 0)
    first = begin + skip + (dice & 1)
    bounds = zip(first[full].tolist(), (first + 2 * pairs)[full].tolist(), strict=True)
    rising = np.concatenate([run.values[low:high:2] for low, high in bounds])
    stays = np.where(full, odd, length)
    kept = run.values[spans(np.where(odd & ~skip, begin + length - 1, begin), stays)]
    return Ragged(offsets_of(stays), kept), Ragged(offsets_of(pairs), rising)


@dataclass(frozen=True, slots=True)
class _KllParts:
    """Sketches as they are read: of each, count and ends; of each value kept, sketch and level."""

    count: Ints
    least: Array
    greatest: Array
    part: Ints
    level: Ints
    values: Array


def _words_in(items: KllItems) -> int:
    """How many words a value takes."""
    return items.itemsize // WORD.itemsize


def _read(parts: Sequence[bytes], items: KllItems) -> _KllParts:
    size = _words_in(items)
    single_words, two_ends = _SINGLE_PREAMBLE + size, 2 * size
    words = words_of(parts, single_words)
    begin, length = words.offsets[:-1], words.lengths
    first, second = (words.values[begin + place].astype(np.int64) for place in range(2))
    single = (first == _SINGLE_HEAD) & (length == single_words)
    check((single | (first | _SORTED == _HEAD)) & (second == _SIZES), parts)
    check(single | (length > _PREAMBLE + two_ends), parts)
    heights = np.ones(len(parts), np.int64)
    heights[~single] = words.values[begin[~single] + _PREAMBLE - 1] >> 16
    ends = np.where(single, _SINGLE_PREAMBLE, _PREAMBLE + heights)
    preamble = np.where(single, _SINGLE_PREAMBLE, ends + two_ends)
    kept = (length - preamble) // size
    good = (heights > 0) & (heights <= _MOST_LEVELS) & (length == preamble + size * kept)
    check(good & (kept > 0), parts)
    sizes = _level_sizes(words, heights, ~single)
    levels = Grouping(None, len(parts), starts=np.cumsum(heights) - heights, rows=len(sizes))
    check((levels.min(sizes) >= 0) & (levels.add(sizes) == kept), parts)
    count = _item(words, begin + 2, WHOLE)
    return _KllParts(
        np.where(single, 1, count),
        _item(words, begin + ends, items),
        _item(words, begin + np.where(single, ends, ends + size), items),
        np.repeat(np.arange(len(parts)), kept),
        np.repeat(spans(0 * heights, heights), sizes),
        words.values[spans(begin + preamble, size * kept)].view(items),
    )


def _level_sizes(words: Ragged, heights: Ints, many: npt.NDArray[np.bool_]) -> Ints:
    """How many values each level of each sketch has; those of a single value have one level."""
    sizes = np.ones(heights.sum(), np.int64)
    levels = heights[many]
    begins = words.values[spans(words.offsets[:-1][many] + _PREAMBLE, levels)].astype(np.int64)
    ends = np.append(begins[1:], 0)[: len(begins)]
    ends[np.cumsum(levels) - 1] = _ROOM[levels]
    sizes[np.repeat(many, heights)] = ends - begins
    return sizes


def _item(words: Ragged, at: Ints, items: KllItems) -> Array:
    """One value of each sketch."""
    return words.values[_places(at, items)].reshape(-1).view(items)


def _places(at: Ints, items: KllItems) -> Array:
    """The places of the words of each value."""
    return at[:, np.newaxis] + np.arange(_words_in(items))


def _written(sketches: _KllLevels, items: KllItems) -> Array:
    size = _words_in(items)
    heights = sketches.heights
    held = np.sum([run.lengths for run in sketches.levels], axis=0)
    single = sketches.count == 1
    ends = np.where(single, _SINGLE_PREAMBLE, _PREAMBLE + heights)
    preamble = np.where(single, _SINGLE_PREAMBLE, ends + 2 * size)
    offsets = offsets_of(preamble + size * held)
    begin, many = offsets[:-1], ~single
    words = np.empty(offsets[-1], WORD)
    words[begin] = np.where(single, _SINGLE_HEAD, _HEAD)
    words[begin + 1] = _SIZES
    at = begin[many]
    words[_places(at + 2, WHOLE)] = sketches.count[many].view(WORD).reshape(-1, 2)
    words[at + _PREAMBLE - 1] = heights[many] << 16 | KLL_K
    for place, end in ((0, sketches.least), (size, sketches.greatest)):
        written = end[many].astype(items, copy=False).view(WORD)
        words[_places((begin + ends)[many] + place, items)] = written.reshape(-1, size)
    level_begin, value_begin = _ROOM[heights] - held, begin + preamble
    for level, run in enumerate(sketches.levels):
        there = many & (level < heights)
        words[begin[there] + _PREAMBLE + level] = level_begin[there]
        values = run.values.astype(items, copy=False).view(WORD)
        words[spans(value_begin, size * run.lengths)] = values
        level_begin, value_begin = level_begin + run.lengths, value_begin + size * run.lengths
    return bytes_of(Ragged(offsets, words))
