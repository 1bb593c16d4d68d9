"""Assembling windows whose edges are known ahead: a range aggregation over sorted slices."""

from __future__ import annotations

import numpy as np

from catchment.engine.levels import Keyed, concat_keyed
from catchment.engine.overlap import reduce_full
from catchment.engine.rows import Operators, Rows, fieldwise, merge_fields
from catchment.engine.store import Store
from catchment.operators.grouping import grouped, runs
from catchment.operators.ragged import Field, Ints, take
from catchment.planner.edges import Series

Windows = tuple[Ints, Ints]
"""Window types (numbers in a series), and the numbers of their windows."""


def expand(kinds: Ints, low: Ints, high: Ints) -> Windows:
    """All windows number `low..high` (both included) of each type."""
    numbers, owner = runs(low, high + 1)
    return kinds[owner], numbers


def due(series: Series, after: int, upto: int, starts: Ints) -> Windows:
    """The windows with `after < end <= upto` that may hold a slice with one of these starts."""
    if not len(series) or not len(starts):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    kinds = np.arange(len(series), dtype=np.int64)
    earliest, latest = int(starts.min()), int(starts.max())
    low = np.maximum(series.ending_after(after), series.ending_after(earliest))
    high = np.minimum(series.ending_after(upto) - 1, series.starting_by(latest))
    count = int(np.maximum(high - low + 1, 0).sum())
    overlaps = -(-series.lengths // series.slides)
    if count <= 64 + 4 * len(starts) * int(overlaps.sum()):
        return expand(kinds, low, high)
    return _holding(series, starts, low, high)


def _holding(series: Series, starts: Ints, low: Ints, high: Ints) -> Windows:
    """Only the windows that hold some slice: for slices far apart against the windows."""
    kinds, numbers = [], []
    for kind in range(len(series)):
        last = np.floor_divide(starts - series.offsets[kind], series.slides[kind])
        reach = starts - series.offsets[kind] - series.lengths[kind]
        first = np.floor_divide(reach, series.slides[kind]) + 1
        first, last = np.maximum(first, low[kind]), np.minimum(last, high[kind])
        found = np.unique(runs(first, last + 1)[0])
        numbers.append(found)
        kinds.append(np.full(len(found), kind, np.int64))
    return np.concatenate(kinds), np.concatenate(numbers)


def touched(series: Series, starts: Ints, after: int, upto: int) -> Windows:
    """The windows with `after < end <= upto` that hold a slice with one of these starts."""
    low = series.ending_after(after)
    high = np.minimum(series.ending_after(upto) - 1, series.last)
    return _holding(series, np.unique(starts), low, high)


class Assembled:
    """Rows of windows, in order of window type, then window: merged fields by key."""

    def __init__(
        self, kind: Ints, start: Ints, end: Ints, key: Ints, fields: dict[str, Field]
    ) -> None:
        self.kind, self.start, self.end, self.key, self.fields = kind, start, end, key, fields


def assemble_periodic(
    windows: Windows, series: Series, store: Store, loose: Rows, operators: Operators, exact: bool
) -> Assembled:
    """The rows of these windows from settled slices and loose ones (sorted by start).

    With `exact`, partials are whole windows: only those that start where the window starts count.
    """
    kind, number = windows
    start = series.start_of(kind, number)
    end = start + series.lengths[kind]
    bound, place = _distinct(start, end)
    low, high = start[bound], (start[bound] + 1) if exact else end[bound]
    key, window, fields = _reduce(low, high, store, loose, operators)
    if len(bound) == len(start) and (np.diff(bound) > 0).all():
        return Assembled(kind[window], start[window], end[window], key, fields)
    # Windows of equal bounds were computed once: hand the rows to each window that has them.
    begins = np.searchsorted(window, np.arange(len(bound) + 1))
    index, owner = runs(begins[place], begins[place + 1])
    return Assembled(
        kind[owner],
        start[owner],
        end[owner],
        key[index],
        {name: take(column, index) for name, column in fields.items()},
    )


def _distinct(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """One window of each pair of bounds, and for each window the place of its pair."""
    order = np.lexsort((end, start))
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(start[order]) != 0) | (np.diff(end[order]) != 0)
    place = np.empty(len(order), np.int64)
    place[order] = np.cumsum(new) - 1
    return order[new], place


def _reduce(
    low: Ints, high: Ints, store: Store, loose: Rows, operators: Operators
) -> tuple[Ints, Ints, dict[str, Field]]:
    """Merges the slices that start in `[low, high)` of each window, by key, in order of window."""
    slices = np.searchsorted(store.starts, low), np.searchsorted(store.starts, high)
    ways = fieldwise(operators)
    settled = not len(loose) or int(loose.start[0]) >= int(high.max())
    if ways is not None and settled and store.full(*slices):
        return reduce_full(*slices, store, ways)
    rows, owner = store.gather(*slices)
    if len(loose):
        index, more = runs(np.searchsorted(loose.start, low), np.searchsorted(loose.start, high))
        rows = concat_keyed([rows, Keyed(loose.key, loose.fields).take(index)], operators)
        owner = np.concatenate([owner, more])
    if not len(owner):
        return rows.key, owner, rows.fields
    keys = int(rows.key.max()) + 1
    groups, present = grouped(owner * keys + rows.key, len(low) * keys)
    window, key = np.divmod(present, keys)
    return key, window, merge_fields(rows.fields, groups, operators)
