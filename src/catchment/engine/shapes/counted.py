"""Count windows: edges are known ahead in ranks, which only settled events have.

The state is how many events each key has had, and the rows between edges that windows still need.
Types that began at different times count from different events, and so are tracked apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from catchment.engine.bound_group import BoundGroup
from catchment.engine.complete import Complete
from catchment.engine.rows import Operators, Rows, concat_rows, fit, merge_fields, no_rows
from catchment.engine.settled import Ordered
from catchment.engine.shapes.base import Change, Followed, Get, Put, ShapeState
from catchment.engine.store import SliceStore
from catchment.model.plan import StoreKind
from catchment.model.window import Counted
from catchment.operators import grouped
from catchment.operators.grouping import runs, sort_order
from catchment.operators.ragged import Ints, lengths_of
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST

_READ_AS_ROWS = 4
"""Rows that windows are put together from, for each that is kept, up to which no tree is built."""


class Ranks(NamedTuple):
    """Where every key stands, for the count windows that started together.

    `rows` are those that windows still need: `start` and `end` are ranks, sorted by key, rank.
    """

    windows: tuple[Counted, ...]
    rows: Rows
    keys: Ints
    """Keys met so far, sorted."""
    total: Ints
    """Events of each key so far."""
    since: int | None = None


def ranks(windows: Sequence[Counted], operators: Operators, since: int | None) -> Ranks:
    none = np.empty(0, np.int64)
    return Ranks(tuple(windows), no_rows(operators), none, none, since)


class Ranked(NamedTuple):
    """Events that count windows rank: of each key, where they begin, and the first one's rank.

    Events of a key are in order of time, so those from before the windows started come first.
    """

    begin: Ints
    length: Ints
    rank: Ints

    def of(self, at: Ints, segment: Ints) -> Ints:
        """The ranks of events at these places, of keys with these numbers; -1 for those from before
        the windows started."""
        after = at - self.begin[segment]
        return np.where(after < 0, -1, after + self.rank[segment])


def ranked(state: Ranks, events: Ordered) -> Ranked:
    """Where every key's events stand among all of the key's."""
    early = np.zeros(len(events.heads), np.int64)
    if state.since is not None:
        early = np.add.reduceat(events.time <= state.since, events.heads, dtype=np.int64)
    before = _totals(state, events.key[events.heads])
    return Ranked(events.heads + early, events.lengths - early, before)


def _totals(state: Ranks, keys: Ints) -> Ints:
    place = np.searchsorted(state.keys, keys)
    found = np.zeros(len(keys), np.bool_)
    inside = place < len(state.keys)
    found[inside] = state.keys[place[inside]] == keys[inside]
    out = np.zeros(len(keys), np.int64)
    out[found] = state.total[place[found]]
    return out


def boundaries(state: Ranks, ranks: Ranked, events: int) -> Mask:
    """Where a count window starts or ends."""
    new = np.zeros(events, np.bool_)
    new[ranks.begin[ranks.length > 0]] = True  # what is before it is in no window
    first, end = ranks.rank, ranks.rank + ranks.length
    for step, shift in {(w.step, 0) for w in state.windows} | {
        (w.step, w.size % w.step) for w in state.windows
    }:
        low, high = -((shift - first) // step), -((shift - end) // step)
        number, key = runs(low, high)
        new[ranks.begin[key] + number * step + shift - first[key]] = True
    return new


Needs = Sequence[tuple[Sequence[int], Operators]]
"""Numbers of windows, and the operators that are merged for them."""


class Full(NamedTuple):
    """Count windows that are full: rows, `first` and `last` their bounds, their type and number."""

    rows: Rows
    kind: Ints
    number: Ints


def step(
    state: Ranks,
    events: Ordered,
    ranks: Ranked,
    rows: Rows,
    heads: Ints,
    store: StoreKind,
    operators: Operators,
    needs: Needs,
) -> tuple[Ranks, list[Full]]:
    """Takes in the rows that the events were cut to; gives the windows that are full."""
    keys = events.key[events.heads]
    before, after = ranks.rank, ranks.rank + ranks.length
    rank = ranks.of(heads, np.searchsorted(events.heads, heads, side="right") - 1)
    kept = _joined(state, rows, rank, heads, len(events), operators)
    full = [_assemble(state, kinds, kept, keys, before, after, store, own) for kinds, own in needs]
    everyone = np.union1d(state.keys, keys)
    total = _totals(state, everyone)
    total[np.searchsorted(everyone, keys)] = after
    state = state._replace(keys=everyone, total=total)
    return state._replace(rows=_needed(state, kept)), full


def _joined(
    state: Ranks, rows: Rows, rank: Ints, heads: Ints, events: int, operators: Operators
) -> Rows:
    inside = np.flatnonzero(rank >= 0)
    lengths = lengths_of(heads, events)
    fresh = rows.take(inside)
    fresh.start = rank[inside]
    fresh.end = fresh.start + lengths[inside]
    kept = concat_rows([state.rows, fresh], operators)
    return kept.take(sort_order(kept.start, kept.key))


def _assemble(
    state: Ranks,
    some: Sequence[int],
    kept: Rows,
    keys: Ints,
    before: Ints,
    after: Ints,
    store: StoreKind,
    operators: Operators,
) -> Full:
    owners, kinds, numbers = [], [], []
    for place in some:
        window = state.windows[place]
        low = np.maximum((before - window.size) // window.step + 1, 0)
        high = np.where(after >= window.size, (after - window.size) // window.step, -1)
        number, owner = runs(low, high + 1)
        owners.append(owner)
        numbers.append(number)
        kinds.append(np.full(len(number), place, np.int64))
    owner, kind, number = (np.concatenate(part) for part in (owners, kinds, numbers))
    sizes = np.array([w.size for w in state.windows], np.int64)[kind]
    start = number * np.array([w.step for w in state.windows], np.int64)[kind]
    return _merged(kept, keys[owner], kind, number, start, start + sizes, store, operators)


def _merged(
    kept: Rows,
    keys: Ints,
    kind: Ints,
    number: Ints,
    start: Ints,
    end: Ints,
    store: StoreKind,
    operators: Operators,
) -> Full:
    """Windows of keys from one rank to another, put together from the rows that are kept."""
    low, high = _places(kept, keys, start), _places(kept, keys, end)
    few = int((high - low).sum()) <= _READ_AS_ROWS * len(kept)
    shelf = SliceStore("lazy" if few else store, operators)
    shelf.append_nodes(kept, np.arange(len(kept)))
    rows, whose = shelf.gather(low, high, operators)
    groups, _ = grouped(whose, len(number))
    fields = merge_fields(rows.fields, groups, operators)
    first, last = kept.first[low], kept.last[high - 1]
    return Full(Rows(first, last, keys, first, last, fields), kind, number)


def not_full(window: Counted, totals: Ints) -> tuple[Ints, Ints]:
    """Of keys with so many events: the first window that is not full, and the last that has begun.

    >>> from catchment.windows.count import count_sliding
    >>> [n.tolist() for n in not_full(count_sliding(10, 4), np.array([0, 9, 10, 12]))]
    [[0, 0, 1, 1], [-1, 2, 2, 2]]
    """
    first = np.maximum((totals - window.size) // window.step + 1, 0)
    return first, (totals - 1) // window.step


def events_not_full(window: Counted, totals: Ints) -> tuple[int, int]:
    """How many windows have begun and are not full, and how many events are in one of them."""
    first, last = not_full(window, totals)
    begun = last >= first
    windows, events = last - first + 1, totals - first * window.step
    return int(windows[begun].sum()), int(events[begun].sum())


def open_windows(state: Ranks, store: StoreKind, operators: Operators) -> Full:
    """The windows that have begun and are not full, with the events they have so far."""
    owners, kinds, numbers = [], [], []
    for place, window in enumerate(state.windows):
        first, last = not_full(window, state.total)
        number, owner = runs(first, np.maximum(last + 1, first))
        owners.append(owner)
        numbers.append(number)
        kinds.append(np.full(len(number), place, np.int64))
    owner, kind, number = (np.concatenate(part) for part in (owners, kinds, numbers))
    start = number * np.array([w.step for w in state.windows], np.int64)[kind]
    keys, end = state.keys[owner], state.total[owner]
    return _merged(state.rows, keys, kind, number, start, end, store, operators)


def _places(kept: Rows, keys: Ints, rank: Ints) -> Ints:
    """The place of the row of a key that starts at a rank; ranks lie end to end, key by key."""
    new = np.ones(len(kept), np.bool_)
    new[1:] = kept.key[1:] != kept.key[:-1]
    heads = np.flatnonzero(new)
    owner = np.cumsum(new) - 1
    lowest = kept.start[heads]
    tails = np.concatenate([heads[1:], [len(kept)]]) - 1
    spans = kept.end[tails] - lowest + 1 if len(kept) else lowest
    base = np.cumsum(spans) - spans - lowest
    which = np.searchsorted(kept.key[heads], keys)
    return np.searchsorted(kept.start + base[owner], rank + base[which])


def _needed(state: Ranks, kept: Rows) -> Rows:
    """Drops the rows that every window that is not full starts after."""
    total = _totals(state, kept.key)
    earliest = np.full(len(kept), np.iinfo(np.int64).max)
    for window in state.windows:
        number = np.maximum((total - window.size) // window.step + 1, 0)
        earliest = np.minimum(earliest, number * window.step)
    return kept.where(kept.end > earliest)


def recode(state: Ranks, place: Ints) -> Ranks:
    """Renumbers the keys (of `rows`, the caller has)."""
    keys = place[state.keys]
    order = np.argsort(keys)
    kept = state.rows.take(np.lexsort((state.rows.start, state.rows.key)))
    return state._replace(keys=keys[order], total=state.total[order], rows=kept)


class RanksByStart(NamedTuple):
    """Types that started together: their places in the group, and where every key stands."""

    places: tuple[int, ...]
    ranks: Ranks


class CountedState(ShapeState):
    """Where every key stands, for all count windows of a group."""

    name = "ranks"

    def __init__(self, bound: BoundGroup, windows: Mapping[int, Counted]) -> None:
        super().__init__(bound, windows)
        self._windows = dict(windows)
        self._store = bound.group.store
        self._needs = bound.needs
        self._by_start = [self._new(windows, None)]

    def _new(self, windows: Mapping[int, Counted], since: int | None) -> RanksByStart:
        return RanksByStart(tuple(windows), ranks(tuple(windows.values()), self.operators, since))

    def follow(self, events: Ordered) -> Iterable[Followed]:
        return [self._followed(n, events) for n in range(len(self._by_start))]

    def _followed(self, n: int, events: Ordered) -> Followed:
        places, state = self._by_start[n]
        rank = ranked(state, events)
        needs = [
            (
                [number for number, place in enumerate(places) if place in need.places],
                need.operators,
            )
            for need in self._needs
        ]

        def settle(rows: Rows, heads: Ints, keep: bool) -> list[Complete]:
            after, full = step(
                state,
                events,
                rank,
                rows,
                heads,
                self._store,
                self.operators,
                [(kinds, operators) for kinds, operators in needs if kinds],
            )
            if keep:
                self._by_start[n] = RanksByStart(places, after)
            return [_numbered(places, some) for some in full]

        return Followed(boundaries(state, rank, len(events)), settle)

    def ended(self, place: int, until: int, frontier: int, waiting: bool) -> bool:
        rows = [state.rows for places, state in self._by_start if place in places]
        return not waiting and not any((part.first <= until).any() for part in rows)

    def unended(self, newest: int) -> Iterator[tuple[Complete, int]]:
        for places, state in self._by_start:
            full = open_windows(state, self._store, self.operators)
            for kind, window in enumerate(state.windows):
                mine = np.flatnonzero(full.kind == kind)
                some = Full(full.rows.take(mine), full.kind[mine], full.number[mine])
                yield _numbered(places, some), events_not_full(window, state.total)[1]

    def begin(self, frontier: int, newest: int) -> None:
        if newest > EARLIEST:
            self._by_start = [
                RanksByStart(places, state._replace(since=newest))
                for places, state in self._by_start
            ]

    def continue_from(self, old: CountedState | None, change: Change) -> None:
        """Count windows that started together stay together; new ones start with the next event."""
        self._by_start = []
        places = {window: place for place, window in self._windows.items()}
        for _, state in () if old is None else old._by_start:
            windows = tuple(window for window in state.windows if window in places)
            if windows:
                kept = fit(state.rows, self.operators)
                numbers = tuple(places[window] for window in windows)
                self._by_start.append(
                    RanksByStart(numbers, state._replace(windows=windows, rows=kept))
                )
        placed = {place for one in self._by_start for place in one.places}
        fresh = {place: w for place, w in self._windows.items() if place not in placed}
        if fresh:
            self._by_start.append(self._new(fresh, change.since))

    def tables(self) -> list[Rows]:
        return [state.rows for _, state in self._by_start]

    def needed_keys(self) -> list[Ints]:
        return [state.keys for _, state in self._by_start]

    def recode(self, place: Ints) -> None:
        self._by_start = [
            RanksByStart(places, recode(state, place)) for places, state in self._by_start
        ]

    def save(self, put: Put) -> None:
        for n, (_, state) in enumerate(self._by_start):
            put.rows(str(n), state.rows)
            put.ints(f"{n} totals", key=state.keys, total=state.total)
        put.record([(places, state.since) for places, state in self._by_start])

    def load(self, get: Get) -> None:
        self._by_start = []
        for n, (held, since) in enumerate(get.record(list[tuple[tuple[int, ...], int | None]])):
            places, state = self._new({place: self._windows[place] for place in held}, since)
            keys, total = get.ints(f"{n} totals", "key"), get.ints(f"{n} totals", "total")
            loaded = state._replace(rows=get.rows(str(n)), keys=keys, total=total)
            self._by_start.append(RanksByStart(places, loaded))


def _numbered(places: tuple[int, ...], full: Full) -> Complete:
    rows = full.rows
    kind = np.array(places, np.int64)[full.kind]
    return Complete(kind, rows.key, rows.first, rows.last, rows.fields, full.number)
