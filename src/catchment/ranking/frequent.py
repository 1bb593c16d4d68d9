"""Which values are the most frequent, where it is known in part only how often each occurs.

A *source* says how often some values occur in it, and its *rest*: the most that any other value
occurs. The values of a *case* are those of all its sources, and how often one occurs is the sum:

    source     known                rest        least   most
    one        a 9, b 5             4       a     9      11     a occurs 9 times, and in the other
    other      c 8, b 3             2       b     8       8     source not more than 2 times
                                            c     8      12
                                            others        6

With k values in search, the k-th greatest sum that is known for certain is the *mark* (TPUT: Cao
and Wang, Efficient Top-K Query Calculation in Distributed Networks, 2004). First all values must be
known that may reach it: a value that no source has told occurs at most as often as all rests
together. Where that reaches the mark, sources are asked for all values above a number so low that
their rests together do not. Then those values are left, the *candidates*, that may reach the mark
with what is not known of them, and sources are asked how often these occur. So two questions find
all, whatever the values are. All cases are searched at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from catchment.operators.ragged import Ints, Ragged, offsets_of
from catchment.operators.values import Mask
from catchment.ranking.search import KnownPlaces

_NONE = -(1 << 62)
"""The mark that every value reaches."""
_EVERY_VALUE = np.iinfo(np.int64).max
"""More than any value: of equals, each comes before it."""


class DoubtfulCounts(NamedTuple):
    """What is to be asked, by case: values that occur more than `above` times, and up to `upto`
    times; of others, how often they occur."""

    case: Ints
    above: Ints
    upto: Ints
    """More frequent values are known of all sources that can be asked."""
    others: Ragged


class FoundCounts(NamedTuple):
    """What a search found out about each case."""

    values: Ragged
    """The most frequent values, in order, as far as they are known, and how often they occur."""
    times: Ints
    unknown: Mask
    """Of each case: whether what is unknown may change it, of all sources."""
    questioned: Mask
    """The same, of sources that can be asked."""
    doubts: DoubtfulCounts
    doubtful: Mask
    """Of each source: whether something is asked of it."""
    unseen: Mask
    """Of each source: whether it is asked for more of its most frequent values."""


class _ValueSums(NamedTuple):
    """Of each value of each case, in order: how often it occurs at least."""

    case: Ints
    value: Ints
    least: Ints
    number: Ints
    """Of each known count, the value that it is of."""


def most_frequent_of(
    known: KnownPlaces,
    owner: Ints,
    rest: Ints,
    gone: Mask,
    most: int,
    *,
    ties: bool = False,
    whole: Mask | None = None,
) -> FoundCounts:
    """Looks for so many of the most frequent values of each case, of equals the least.

    `known` has values as places, and how often each occurs; each is told once of a source. `owner`
    is the case of each source, from 0 on, and `gone` are the sources that nobody can ask. With
    `ties`, all that are as frequent as the last are looked for; of the cases in `whole`, all values
    are.
    """
    cases = int(owner.max()) + 1
    sums = _sums(known, owner)
    place = _places(sums, cases)
    first = (place < most) & (sums.least > 0)
    full = np.bincount(sums.case[first], minlength=cases) == most
    last = first & (place == most - 1)
    mark, limit = np.full(cases, _NONE, np.int64), np.zeros(cases, np.int64)
    mark[sums.case[last]], limit[sums.case[last]] = sums.least[last], sums.value[last]
    assert (mark[~full] == _NONE).all()
    if ties:
        limit[:] = _EVERY_VALUE
    if whole is not None:
        mark[whole] = _NONE
    every = _CaseDoubts(sums, known, owner, rest, mark, limit)
    ask = _CaseDoubts(sums, known, owner, np.where(gone, 0, rest), mark, limit)
    above = np.where(ask.unseen, _threshold(ask.rest, owner, np.maximum(mark, 1) - 1), ask.upto)
    others = ask.candidate & ~ask.unseen[sums.case]
    questioned = ask.unseen.copy()
    questioned[sums.case[others]] = True
    unknown = every.unseen.copy()
    unknown[sums.case[every.candidate]] = True
    wanted = np.bincount(sums.case[others], minlength=cases)
    has = np.bincount(known.source[others[sums.number]], minlength=len(owner))
    unseen = ask.unseen[owner] & (ask.rest > above[owner])
    doubtful = unseen | ((ask.rest > 0) & (has < wanted[owner]))
    case = np.flatnonzero(questioned)
    doubts = DoubtfulCounts(
        case,
        above[case],
        ask.upto[case],
        Ragged(offsets_of(wanted[case]), sums.value[others]),
    )
    lengths = np.bincount(sums.case[first], minlength=cases)
    values = Ragged(offsets_of(lengths), sums.value[first])
    times = sums.least[first]
    return FoundCounts(values, times, unknown, questioned, doubts, doubtful, unseen)


def _sums(known: KnownPlaces, owner: Ints) -> _ValueSums:
    source, value, times = known
    case = owner[source]
    order = np.lexsort((value, case))
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(case[order]) != 0) | (value[order][1:] != value[order][:-1])
    heads = np.flatnonzero(new)
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(new) - 1
    least = np.add.reduceat(times[order], heads) if len(heads) else times
    return _ValueSums(case[order][heads], value[order][heads], least, number)


def _places(sums: _ValueSums, cases: int) -> Ints:
    """The place of each value among those of its case, the most frequent first, then the least."""
    order = np.lexsort((sums.value, -sums.least, sums.case))
    begins = offsets_of(np.bincount(sums.case, minlength=cases))[:-1]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - begins[sums.case[order]]
    return place


class _CaseDoubts:
    """What may reach the marks of cases, by the rests of their sources."""

    def __init__(
        self, sums: _ValueSums, known: KnownPlaces, owner: Ints, rest: Ints, mark: Ints, limit: Ints
    ) -> None:
        self.rest = rest
        together = np.zeros(len(mark), np.int64)
        np.add.at(together, owner, rest)
        self.upto = np.zeros(len(mark), np.int64)
        np.maximum.at(self.upto, owner, rest)
        self.unseen = together >= np.maximum(mark, 1)
        """Of each case: whether values may be among the first that no source has told."""
        told = np.zeros(len(sums.case), np.int64)
        np.add.at(told, sums.number, rest[known.source])
        open_rest = together[sums.case] - told
        most = sums.least + open_rest
        mark, limit = mark[sums.case], limit[sums.case]
        # One that only reaches the mark comes behind the last of the first unless it is less.
        self.candidate = (open_rest > 0) & ((most > mark) | ((most == mark) & (sums.value < limit)))
        """Of each value: whether it may be among the first, with what is unknown of it."""


def _threshold(rest: Ints, owner: Ints, most: Ints) -> Ints:
    """Of each case the greatest number such that its rests, none above it, are no more together
    than `most`."""
    low = np.zeros(len(most), np.int64)
    high = np.full(len(most), int(rest.max(initial=0)) + 1, np.int64)
    while (high - low > 1).any():
        middle = (low + high) // 2
        together = np.zeros(len(most), np.int64)
        np.add.at(together, owner, np.minimum(rest, middle[owner]))
        good = together <= most
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return low


def rest_of(known: KnownPlaces, size: Ints, total: Ints, rest: Ints) -> Ints:
    """The rests of sources, as small as what is known of them says: where one value is as frequent
    as can be, all others that are not known occur once."""
    left, lacks = _left(known, size, total)
    return np.where(left > 0, np.clip(lacks - left + 1, 0, rest), 0)


def _left(known: KnownPlaces, size: Ints, total: Ints) -> tuple[Ints, Ints]:
    """How many different values of each source are not known, and how often they occur in all."""
    told = np.bincount(known.source[known.value > 0], minlength=len(size))
    occur = np.zeros(len(size), np.int64)
    np.add.at(occur, known.source, known.value)
    return size - told, total - occur


def untrue(known: KnownPlaces, size: Ints, total: Ints, rest: Ints) -> Ints:
    """The sources whose counts do not agree with each other; `known` is in order.

    `size` are how many different values they have, and `total` how many in all.
    """
    left, lacks = _left(known, size, total)
    # Each value that is not known occurs, and not more often than the rest.
    wrong = (left < 0) | ((left == 0) & (lacks != 0))
    wrong |= (left > 0) & ((rest < 1) | (lacks < left) | (lacks > left * np.maximum(rest, 1)))
    twice = (known.source[1:] == known.source[:-1]) & (known.place[1:] == known.place[:-1])
    wrong[known.source[1:][twice]] = True
    return np.flatnonzero(wrong)
