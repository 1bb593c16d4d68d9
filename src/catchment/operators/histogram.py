"""Histograms of a few bins whose places follow the values (Ben-Haim and Tom-Tov).

A partial is a list of bins in order, each the mean of the values in it and how many they are. While
different values are no more than bins, every value has a bin of its own and nothing is lost. Where
there are more, neighbours that are close are made one, in rounds:

    bins        . .   .    . . .        .
    closest     +-+        +-+-+             as many gaps as there are bins too many
    this round  +-+        +-+               of a stretch of such gaps, every second one

Each round halves the bins that are too many, so a row of n bins takes about log2(n) rounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, register_operator
from catchment.operators.grouping import Grouping, sort_order
from catchment.operators.ragged import Array, Fields, Ints, Ragged, offsets_of
from catchment.operators.sort import counted_within, order_within, sort_within


class Bins(NamedTuple):
    """The bins of each row: their means, in order, and how many values each has."""

    means: Ragged
    sizes: Ints


@register_operator
class Histogram(Operator):
    """At most as many bins as the parameter says. NaN and the infinities have no place."""

    kind = "histogram"
    small = False
    reads = "doubles"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"mean": pa.list_(pa.float64()), "size": pa.list_(pa.int64())}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        values, groups = events.values.astype(np.float64, copy=False), events.groups
        placed = np.isfinite(values)
        if not placed.all():
            values, groups = values[placed], groups.select(placed)
        bins = Bins(*counted_within(sort_within(values, groups)))
        return _fields(_fewer(bins, self.ref.params[0]))

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        own = bins_of(rows[self.ref])
        codes = np.repeat(groups.codes, own.means.lengths)
        order = order_within(own.means.values, codes)
        lengths = np.bincount(codes, minlength=groups.n).astype(np.int64, copy=False)
        means = Ragged(offsets_of(lengths), own.means.values[order])
        together = _joined(Bins(means, own.sizes[order]), _equal(means))
        return _fields(_fewer(together, self.ref.params[0]))


def bins_of(fields: Fields) -> Bins:
    means, sizes = fields["mean"], fields["size"]
    assert isinstance(means, Ragged) and isinstance(sizes, Ragged)
    return Bins(means, sizes.values)


def _fields(bins: Bins) -> Fields:
    return {"mean": bins.means, "size": Ragged(bins.means.offsets, bins.sizes)}


def _fewer(bins: Bins, most: int) -> Bins:
    """Bins of which no row has more than `most`."""
    while (bins.means.lengths > most).any():
        bins = _joined(bins, _close(bins, most))
    return bins


def _gaps(means: Ragged) -> tuple[Ints, Array, Ints]:
    """Of each bin that has one before it in its row: its place, how far apart they are, the row."""
    codes = np.repeat(np.arange(len(means), dtype=np.int64), means.lengths)
    places = np.flatnonzero(codes[1:] == codes[:-1]) + 1
    with np.errstate(over="ignore"):
        gaps = means.values[places] - means.values[places - 1]
    return places, gaps, codes[places]


def _equal(means: Ragged) -> Ints:
    """The bins that are equal to the one before."""
    places, gaps, _ = _gaps(means)
    equal: Ints = places[gaps == 0]
    return equal


def _close(bins: Bins, most: int) -> Ints:
    """The bins that go to the one before them in this round."""
    places, gaps, codes = _gaps(bins.means)
    by_gap = np.argsort(gaps, kind="stable")
    order = by_gap[sort_order(codes[by_gap])]
    begins = np.searchsorted(codes[order], codes[order])
    rank = np.arange(len(order)) - begins
    surplus = bins.means.lengths - most
    chosen = np.sort(places[order[rank < surplus[codes[order]]]])
    # Of places that follow each other, every second one.
    starts = np.flatnonzero(np.diff(chosen, prepend=-2) > 1)
    inner = np.arange(len(chosen)) - np.repeat(starts, np.diff(starts, append=len(chosen)))
    joined: Ints = chosen[inner % 2 == 0]
    return joined


def _joined(bins: Bins, places: Ints) -> Bins:
    """The bins at these places together with those before them."""
    if not len(places):
        return bins
    begins = np.ones(len(bins.sizes), np.bool_)
    begins[places] = False
    heads = np.flatnonzero(begins)
    sizes = np.add.reduceat(bins.sizes, heads)
    first = bins.means.values[heads]
    # Means are found by differences from one of them: those of equal bins are exactly theirs.
    apart = bins.means.values - np.repeat(first, np.diff(heads, append=len(begins)))
    means = first + np.add.reduceat(apart * bins.sizes, heads) / sizes
    return Bins(Ragged(np.searchsorted(heads, bins.means.offsets), means), sizes)
