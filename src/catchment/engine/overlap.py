"""Assembling windows where nearly every key is in every slice: whole slices merge, key by key."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from catchment.engine.store import SliceStore
from catchment.operators.ragged import Array, Field, Ints, concat

_CELLS = 1 << 22
"""Slices by keys that are worked on at once: a few such tables should fit into memory."""
_SHARED = 4
"""How often a slice must be in windows of one length before they share their work."""

MergeFunctions = dict[str, np.ufunc]
_PRESENT = "?"


def reduce_full(
    low: Ints, high: Ints, store: SliceStore, ways: MergeFunctions
) -> tuple[Ints, Ints, dict[str, Field]]:
    """Merges the slices `[low, high)` of each window, by key; windows come in order of `low`."""
    keys, windows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    fields: dict[str, list[Field]] = {name: [] for name in ways}
    for part in _parts(np.flatnonzero(low < high), low, high, store):
        first = int(low[part].min())
        columns, present = store.matrix(first, int(high[part].max()), ways)
        merge = _Merge(columns | {_PRESENT: present}, ways | {_PRESENT: np.logical_or})
        merge.share(high[part] - low[part])
        for window in part.tolist():
            merged = merge.of(int(low[window]) - first, int(high[window]) - first)
            there = np.flatnonzero(merged.pop(_PRESENT))
            keys.append(there)
            windows.append(np.full(len(there), window, np.int64))
            for name, column in merged.items():
                fields[name].append(column if len(there) == len(column) else column[there])
    return np.concatenate(keys), np.concatenate(windows), {n: concat(c) for n, c in fields.items()}


def _parts(windows: Ints, low: Ints, high: Ints, store: SliceStore) -> Iterator[Ints]:
    """Windows in shares whose slices are not too many."""
    slices = max(1, _CELLS // (int(store.keys.max()) + 1))
    while len(windows):
        reach = np.maximum.accumulate(high[windows]) - low[windows[0]]
        count = max(1, int(np.searchsorted(reach, slices, side="right")))
        yield windows[:count]
        windows = windows[count:]


class _Merge:
    """Merges runs of slices: columns are slices by keys, and each has its way to merge."""

    def __init__(self, columns: dict[str, Array], ways: MergeFunctions) -> None:
        self.columns, self.ways = columns, ways
        self.running: dict[int, dict[str, tuple[Array, Array]]] = {}

    def share(self, lengths: Ints) -> None:
        """Prepares for runs of lengths of which there are many."""
        slices = len(self.columns[_PRESENT])
        for length, count in zip(*np.unique(lengths, return_counts=True), strict=True):
            if length * count >= _SHARED * slices:
                self.running[int(length)] = {
                    name: _running(column, self.ways[name], int(length))
                    for name, column in self.columns.items()
                }

    def of(self, begin: int, end: int) -> dict[str, Array]:
        running = self.running.get(end - begin)
        if running is None:
            return {n: self.ways[n].reduce(c[begin:end], axis=0) for n, c in self.columns.items()}
        if begin % (end - begin) == 0:
            return {name: forwards[end - 1] for name, (forwards, _) in running.items()}
        return {
            name: self.ways[name](backwards[begin], forwards[end - 1])
            for name, (forwards, backwards) in running.items()
        }


def _running(column: Array, way: np.ufunc, length: int) -> tuple[Array, Array]:
    """Running merges in blocks of a length, forwards and backwards.

    Any run of that length is the end of one block and the beginning of the next: so it takes two
    steps, however long it is.
    """
    forwards, backwards = np.empty_like(column), np.empty_like(column)
    for at in range(0, len(column), length):
        block = column[at : at + length]
        way.accumulate(block, axis=0, out=forwards[at : at + length])
        way.accumulate(block[::-1], axis=0, out=backwards[at : at + length][::-1])
    return forwards, backwards
