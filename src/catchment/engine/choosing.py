"""Which of many selections each event meets, without a look at every event for every selection.

A group may have a selection for each of a hundred thousand sites. Selections that say no more than
in which ranges the value of one column is (`site = 'a'`, `k IN (1, 2)`, `v >= 3 AND v < 7`) are
looked up together: texts in a hash table, numbers in the sorted bounds of all their ranges. As the
selections of a group are disjoint, an event has at most one. Other conditions are evaluated one by
one.

Conditions that are not disjoint, as those of many alerts, are looked up together too: the bounds of
all of them part a column's values into ranges, in each of which the same conditions are met.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.engine.keys import distinct
from catchment.expression import NULL, Range, Ranges, column_ranges
from catchment.expression.values import is_text
from catchment.operators.ragged import Array, Ints
from catchment.operators.values import Mask

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_Bounds = tuple[Array, Array, Ints]
_FIRST, _LAST = (0,), NULL[0]
"""Places before all numbers, and behind them."""

RangeOwner = tuple[Range, int]
"""A range of values, and the number of the selection that has it."""


class Chooser:
    """Tells which of some disjoint selections each row meets."""

    def __init__(self, selections: tuple[str | None, ...]) -> None:
        self._selections = selections
        self._conditions: list[int] = []
        """The selections that are evaluated one by one."""
        owned: dict[tuple[str, str], list[RangeOwner]] = {}
        for number, condition in enumerate(selections):
            found = None if condition is None else column_ranges(condition)
            if found is None or not _can_look_up(found[1].kind, found[1].parts):
                self._conditions.append(number)
                continue
            column, (kind, parts) = found
            owned.setdefault((column, kind), []).extend((part, number) for part in parts)
        self._lookups = [
            (column, _TextChooser(of) if kind == "string" else _NumberChooser(of))
            for (column, kind), of in owned.items()
        ]

    def choose(self, rows: int, read: Callable[[str], Any], meets: Callable[[str], Mask]) -> Ints:
        """The number of the selection that each row meets, or -1.

        `read` gives a column, and `meets` where a condition holds.
        """
        met: Ints = np.full(rows, -1, np.int64)
        conditions = list(self._conditions)
        for column, lookup in self._lookups:
            found = _looked_up(lookup, read(column))
            if found is None:
                conditions += dict.fromkeys(lookup.numbers)
            else:
                np.copyto(met, found, where=found >= 0)
        for number in conditions:
            condition = self._selections[number]
            met[slice(None) if condition is None else meets(condition)] = number
        return met


@lru_cache(maxsize=64)
def chooser(selections: tuple[str | None, ...]) -> Chooser:
    """What chooses among selections, made once for all batches."""
    return Chooser(selections)


_MANY = 8
"""From so many conditions on one column on, they are looked up together: evaluating fewer one by
one takes less time."""
_AT_ONCE = 10
"""At most so many other conditions are combined, in a table with a place for each set of them."""


class ConditionSets:
    """Tells which of some conditions, which need not be disjoint, each row meets."""

    def __init__(self, conditions: tuple[str, ...]) -> None:
        self._conditions = conditions
        by_column: dict[str, dict[int, Ranges]] = {}
        for number, condition in enumerate(conditions):
            found = column_ranges(condition)
            if found is not None and found[1].kind == "number":
                by_column.setdefault(found[0], {})[number] = found[1]
        self._lookups = {
            column: _RangesMet(of) for column, of in by_column.items() if len(of) >= _MANY
        }

    def of(
        self, rows: int, read: Callable[[str], Any], meets: Callable[[str], Mask]
    ) -> tuple[Ints, Ints]:
        """The sets of conditions that rows meet, as bits, and the place of each row's set.

        `read` gives a column, and `meets` where a condition holds.
        """
        sets, place = np.zeros(1, np.int64), np.zeros(rows, np.int64)
        left = dict.fromkeys(range(len(self._conditions)))
        for column, lookup in self._lookups.items():
            found = lookup(read(column))
            if found is None:
                continue
            present, place = distinct(place * len(lookup.met) + found)
            before, own = np.divmod(present, len(lookup.met))
            sets = sets[before] | lookup.met[own]
            for number in lookup.numbers:
                del left[number]
        rest = iter(left)
        while some := list(islice(rest, _AT_ONCE)):
            met = np.zeros(rows, np.uint16)
            for bit, number in enumerate(some):
                met |= meets(self._conditions[number]).view(np.uint8) * np.uint16(1 << bit)
            present, place = distinct((place << len(some)) | met)
            sets = sets[present >> len(some)]
            for bit, number in enumerate(some):
                sets = sets | (present >> bit & 1) << number
        once, which = np.unique(sets, return_inverse=True)  # ranges apart may meet the same
        return (sets, place) if len(once) == len(sets) else (once, which[place])


@lru_cache(maxsize=64)
def condition_sets(conditions: tuple[str, ...]) -> ConditionSets:
    """What tells sets of conditions, made once for all batches."""
    return ConditionSets(conditions)


class _RangesMet:
    """The conditions on numbers that are met in each range between the bounds of all of them."""

    def __init__(self, conditions: dict[int, Ranges]) -> None:
        self.numbers = list(conditions)
        ends = {end for ranges in conditions.values() for part in ranges.parts for end in part}
        places = sorted({_FIRST, _LAST, *(end for end in ends if end <= _LAST)})
        between = list(pairwise(places))
        self._lookup = _NumberChooser([(part, number) for number, part in enumerate(between)])
        self.met = np.zeros(len(between) + 1, np.int64)
        """The conditions that each range meets, as bits; the last entry is for null."""
        for number, ranges in conditions.items():
            for low, high in ranges.parts:
                for place, (begin, end) in enumerate([*between, NULL]):
                    if low <= begin and end <= high:
                        self.met[place] |= 1 << number

    def __call__(self, values: Any) -> Ints | None:
        """The range of each value; None where a column's type cannot be looked up."""
        found = _looked_up(self._lookup, values)
        return None if found is None else np.where(found < 0, len(self.met) - 1, found)


def _can_look_up(kind: str, parts: tuple[Range, ...]) -> bool:
    return kind == "number" or (kind == "string" and all(_point(part) for part in parts))


def _point(part: Range) -> bool:
    """Whether a range has one value."""
    low, high = part
    return len(low) == len(high) == 3 and low[1] == high[1]


class _TextChooser:
    """Selections by the text that a column has."""

    def __init__(self, owned: list[RangeOwner]) -> None:
        self.numbers = [number for _, number in owned]
        self._values = pa.array([low[1] for (low, _), _ in owned], pa.string())
        self._found = np.array([*self.numbers, -1], np.int64)

    def __call__(self, values: Any) -> Ints | None:
        if not is_text(values.type):
            return None
        places: Any = pc.index_in(values, value_set=self._values.cast(values.type))
        known: Ints = pc.fill_null(places, len(self._values)).to_numpy(zero_copy_only=False)
        return self._found[known]


class _NumberChooser:
    """Selections by the range that the number in a column is in."""

    def __init__(self, owned: list[RangeOwner]) -> None:
        owned = sorted(owned)
        self.numbers = [number for _, number in owned]
        self._ranges = [part for part, _ in owned]
        self._bounds: dict[bool, _Bounds] = {}
        """For whole numbers and for doubles, once a column of such is seen."""

    def __call__(self, values: Any) -> Ints | None:
        kind = values.type
        whole = pa.types.is_integer(kind) and kind != pa.uint64()
        if not (whole or pa.types.is_float64(kind) or pa.types.is_float32(kind)):
            return None
        plain: Array = (
            pc.fill_null(values, 0)
            .cast(pa.int64() if whole else pa.float64())
            .to_numpy(zero_copy_only=False)
        )
        if whole not in self._bounds:
            self._bounds[whole] = self._bounds_of(_whole if whole else _double)
        lows, highs, numbers = self._bounds[whole]
        if not len(lows):
            return np.full(len(plain), -1, np.int64)
        place = np.searchsorted(lows, plain, side="right") - 1
        inside = (place >= 0) & (plain <= highs[place])
        if not whole:  # NaN is greater than all numbers
            inside |= np.isnan(plain) & (highs[place] == np.inf)
        if values.null_count:
            inside &= pc.is_valid(values).to_numpy(zero_copy_only=False)
        return np.where(inside, numbers[place], -1)

    def _bounds_of(self, bounds: Callable[[Range], tuple[Any, Any]]) -> _Bounds:
        """The first and the last value of each range that has any, and its selection."""
        found = [(*bounds(part), n) for part, n in zip(self._ranges, self.numbers, strict=True)]
        kept = [each for each in found if each[0] <= each[1]]
        lows, highs, numbers = zip(*kept, strict=True) if kept else ((), (), ())
        return np.array(lows), np.array(highs), np.array(numbers, np.int64)


def _whole(part: Range) -> tuple[int, int]:
    """The first and the last whole number of a range."""
    low, high = part
    first, last = _SMALLEST, _LARGEST
    if len(low) > 1:
        first = math.floor(low[1]) + 1 if low[2] else math.ceil(low[1])
    if len(high) > 1:
        last = math.floor(high[1]) if high[2] else math.ceil(high[1]) - 1
    return first, last


def _double(part: Range) -> tuple[float, float]:
    """The first and the last double of a range; infinity where it has no bound."""
    low, high = part
    first, last = -math.inf, math.inf
    if len(low) > 1:
        first = math.nextafter(low[1], math.inf) if low[2] else float(low[1])
    if len(high) > 1:
        last = float(high[1]) if high[2] else math.nextafter(high[1], -math.inf)
    return first, last


def _looked_up(lookup: _TextChooser | _NumberChooser, values: Any) -> Ints | None:
    """The selections of a column's values, or -1; None where its type cannot be looked up."""
    if not isinstance(values, pa.DictionaryArray):
        return lookup(values)
    found = lookup(values.dictionary)
    if found is None:
        return None
    indices: Any = values.indices.cast(pa.int64())
    codes: Ints = pc.fill_null(indices, len(found)).to_numpy(zero_copy_only=False)
    numbers: Ints = np.append(found, -1)[codes]
    return numbers
