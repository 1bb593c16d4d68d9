"""Between which values a rank must lie, of values that are known in part only.

A *source* is a sorted run of which some places are known, the first and the last always. The values
of a *case* are those of all its sources. For a known value x, each source says the least and the
most of its values that can be up to x:

    place    0   1   2   3   4   5   6   7          values up to 5: at least 3, at most 6
    value    1   .   5   .   .   .   8   9          (the unknown ones lie between 5 and 8)

So the value of rank r is above each x that has at most r values up to it, and is no more than each
x that has at least r + 1. Places that are unknown, between two that are known, are a *gap*. Where
no gap reaches between the two bounds, the upper bound is the value. All cases are searched at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from catchment.operators.ragged import Ints
from catchment.operators.values import Mask


class KnownPlaces(NamedTuple):
    """What is known: `source` holds the value `value` at `place` of its run.

    Of counts, the place is a value, and `value` how often it occurs.
    """

    source: Ints
    place: Ints
    value: Ints

    def take(self, chosen: Ints | Mask) -> KnownPlaces:
        return KnownPlaces(self.source[chosen], self.place[chosen], self.value[chosen])


def in_order(known: KnownPlaces) -> KnownPlaces:
    """The same in order of source and place, each place once; of those that differ, both."""
    order = np.lexsort((known.value, known.place, known.source))
    known = known.take(order)
    new = np.ones(len(order), np.bool_)
    new[1:] = (
        (np.diff(known.source) != 0) | (np.diff(known.place) != 0) | (np.diff(known.value) != 0)
    )
    return known.take(new)


def contradictory(known: KnownPlaces) -> Ints:
    """The sources whose values do not rise with their places; `known` is in order."""
    same = known.source[1:] == known.source[:-1]
    falls = same & (known.value[1:] < known.value[:-1])
    twice = same & (known.place[1:] == known.place[:-1])
    return np.unique(known.source[1:][falls | twice])


def unknown_yet(known: KnownPlaces, told: KnownPlaces) -> Mask:
    """Which of what is told is of places that are not known."""
    source, place = (np.concatenate([known[n], told[n]]) for n in range(2))
    later = np.arange(len(source)) >= len(known.source)
    order = np.lexsort((later, place, source))
    same = (np.diff(source[order]) == 0) & (place[order][1:] == place[order][:-1])
    new = np.ones(len(source), np.bool_)
    new[order[1:][same]] = False
    return new[len(known.source) :]


class DoubtfulSpans(NamedTuple):
    """Values between which ranks lie, those of a case that overlap joined: not the bounds
    themselves, but whatever is between them is in doubt."""

    case: Ints
    low: Ints
    """Of the value that is too low; None below the least of all: see `open`."""
    open: Mask
    """Whether there is no such value: all that is less than the upper bound is in doubt."""
    high: Ints
    places: Ints
    """Unknown places that may hold such values, of sources that can be asked."""
    sources: Ints
    """Sources among these."""


class Found(NamedTuple):
    """What a search found out about each rank that was wanted."""

    value: Ints
    """The value of the rank; where it is in doubt, the least that it cannot exceed."""
    unknown: Ints
    """Unknown places that may change it, of all sources."""
    questioned: Ints
    """Unknown places that may change it, in sources that can be asked."""
    doubts: DoubtfulSpans
    doubtful: Mask
    """For each source, whether it has unknown places in doubt."""


def search(known: KnownPlaces, owner: Ints, gone: Mask, case: Ints, rank: Ints) -> Found:
    """Looks for ranks of cases; `owner` is the case of each source, `gone` those nobody can ask.

    `known` is in order and has the first and the last place of each source. Cases are numbered from
    0, and each has at least one value; ranks count from 0.
    """
    source, place, value = known
    count, cases = len(value), int(owner.max()) + 1
    last = np.ones(count, np.bool_)
    last[:-1] = source[1:] != source[:-1]
    first = np.ones(count, np.bool_)
    first[1:] = last[:-1]
    following = np.empty(count, np.int64)
    following[:-1] = place[1:]
    following[last] = place[last] + 1
    before = np.empty(count, np.int64)
    before[1:] = place[:-1]
    before[first] = -1
    # Of the gap behind each known place: how many places, unless all of them hold one value.
    gap = following - place - 1
    gap[:-1][~last[:-1] & (value[1:] == value[:-1])] = 0
    of = owner[source]
    order = np.lexsort((value, of))
    rank_of = np.empty(count, np.int64)
    rank_of[order] = np.arange(count)
    sorted_value, sorted_of = value[order], of[order]
    new = np.ones(count, np.bool_)
    new[1:] = (sorted_value[1:] != sorted_value[:-1]) | (sorted_of[1:] != sorted_of[:-1])
    head = np.maximum.accumulate(np.where(new, np.arange(count), 0))
    """For each place in the order, where values equal to it begin."""
    least = np.cumsum((place - before)[order])
    most = np.cumsum((following - place)[order])
    sizes = np.bincount(of[last], place[last] + 1, cases).astype(np.int64)
    target = (np.cumsum(sizes) - sizes)[case] + rank
    high = head[np.searchsorted(least, target + 1)]
    low = head[np.searchsorted(most, target, side="right")]
    """The first of the values that are not too low."""
    begin_of, end_of = head[rank_of], np.full(count, -1, np.int64)
    end_of[:-1] = begin_of[1:]  # of the gap behind a place, the value at its other end
    asked = np.where(gone[source], 0, gap)
    unknown, askable = (_between(some, begin_of, end_of, last, low, high) for some in (gap, asked))
    doubts, doubtful = _doubts(asked, begin_of, end_of, known, owner, order, low, high, askable > 0)
    return Found(sorted_value[high], unknown, askable, doubts, doubtful)


def _between(gap: Ints, begin_of: Ints, end_of: Ints, last: Mask, low: Ints, high: Ints) -> Ints:
    """How many places of gaps reach between the bounds of each rank.

    A gap does if it begins below the upper bound and ends above the value that is too low; one that
    ends by the lower bound also begins below the upper one.
    """
    count = len(gap)
    begins, ends = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    inner = ~last & (gap > 0)
    np.add.at(begins, begin_of[inner] + 1, gap[inner])
    np.add.at(ends, end_of[inner] + 1, gap[inner])
    begins, ends = np.cumsum(begins), np.cumsum(ends)
    return begins[high] - ends[low]


def _doubts(
    gap: Ints,
    begin_of: Ints,
    end_of: Ints,
    known: KnownPlaces,
    owner: Ints,
    order: Ints,
    low: Ints,
    high: Ints,
    open_ones: Mask,
) -> tuple[DoubtfulSpans, Mask]:
    """The spans between bounds, joined where they overlap, and what is in doubt there."""
    low, high = low[open_ones], high[open_ones]
    by_low = np.lexsort((high, low))
    low, high = low[by_low], np.maximum.accumulate(high[by_low]) if len(high) else high
    new = np.ones(len(low), np.bool_)
    new[1:] = low[1:] > high[:-1]
    heads = np.flatnonzero(new)
    low = low[heads]
    high = np.maximum.reduceat(high, heads) if len(heads) else high
    inner = np.flatnonzero(gap > 0)
    at = np.searchsorted(low, end_of[inner], side="right") - 1
    hit = at >= 0
    hit[hit] = high[at[hit]] > begin_of[inner[hit]]
    inner, at = inner[hit], at[hit]
    # A gap may reach over several spans: each of them is told of it.
    first = np.searchsorted(high, begin_of[inner], side="right")
    spans = at - first + 1
    index = np.repeat(np.arange(len(inner)), spans)
    each = np.arange(len(index)) - np.repeat(np.cumsum(spans) - spans, spans) + first[index]
    places = np.zeros(len(low), np.int64)
    np.add.at(places, each, gap[inner[index]])
    pairs = np.unique(each * len(owner) + known.source[inner[index]])
    sources = np.bincount(pairs // max(len(owner), 1), minlength=len(low))
    doubtful = np.zeros(len(owner), np.bool_)
    doubtful[known.source[inner]] = True
    case = owner[known.source[order[low]]] if len(low) else low
    below = np.maximum(low - 1, 0)
    lowest = (low == 0) | (owner[known.source[order[below]]] != case) if len(low) else low > 0
    bound = np.where(lowest, 0, known.value[order[below]]) if len(low) else low
    upper = known.value[order[high]] if len(low) else high
    return DoubtfulSpans(case, bound, lowest, upper, places, sources.astype(np.int64)), doubtful
