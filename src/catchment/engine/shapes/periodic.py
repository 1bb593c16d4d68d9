"""Windows whose edges are known ahead: a range aggregation over sorted slices.

The state is the slices that open windows need: settled ones in a store, in order of time, and
those that may still get more. A window type is one or several evenly spaced series of windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from catchment.engine.bound_group import BoundGroup
from catchment.engine.complete import Complete
from catchment.engine.emitted import Emitted
from catchment.engine.levels import KeyedPartials, concat_keyed
from catchment.engine.overlap import reduce_full
from catchment.engine.rows import (
    Operators,
    Rows,
    compact,
    concat_rows,
    empty_names,
    fieldwise,
    fit,
    merge_fields,
)
from catchment.engine.shapes.base import Change, Get, Moment, Put, ShapeState, UnmergedRows
from catchment.engine.store import SliceStore
from catchment.errors import LimitError
from catchment.model.capacity import machine_memory
from catchment.model.window import Period, Periodic, Window, WindowForm, window_from_dict
from catchment.operators.grouping import Grouping, runs, sort_order
from catchment.operators.ragged import Field, Ints, take
from catchment.operators.values import Mask
from catchment.planner.cost import periods_of
from catchment.planner.edges import EARLIEST, LATEST, Edges, Series

_LOOKED_AT = 1 << 16
"""Edges of a new window type that are compared with those of older plans, at most."""

_FEW_SLICES, _MORE = 1 << 10, 1.15
"""Slices of a group that need not be merged, however old they are, and how many times as many as
after the last time there must be before it is worth it again."""

_WORTH = 4.0
"""How many times fewer slices there must be in the end: to merge them takes time."""

_BYTES_A_WINDOW = 512
"""What a window that ends in a step takes, from its bounds to its row of results, roughly."""

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
        _bounded(count)
        return expand(kinds, low, high)
    return _holding(series, starts, low, high)


def _holding(series: Series, starts: Ints, low: Ints, high: Ints) -> Windows:
    """Only the windows that hold some slice: for slices far apart against the windows."""
    kinds, numbers = [], []
    for kind in range(len(series)):
        first, last = series.holding(kind, starts)
        first, last = np.maximum(first, low[kind]), np.minimum(last, high[kind])
        _bounded(int(np.maximum(last - first + 1, 0).sum()))
        found = np.unique(runs(first, last + 1)[0])
        numbers.append(found)
        kinds.append(np.full(len(found), kind, np.int64))
    return np.concatenate(kinds), np.concatenate(numbers)


def _bounded(windows: int) -> None:
    """Refuses to end more windows at once than the machine's memory holds."""
    most = machine_memory() // _BYTES_A_WINDOW
    if windows > most:
        raise LimitError(
            "more windows end at once than memory has room for",
            given=f"{windows:,} windows, at most {most:,}",
            hint="use a longer slide, or shorter windows",
        )


def touched(series: Series, starts: Ints, after: int, upto: int) -> Windows:
    """The windows with `after < end <= upto` that hold a slice with one of these starts."""
    none = np.empty(0, np.int64), np.empty(0, np.int64)
    if not len(starts):
        return none
    low = np.maximum(series.ending_after(after), series.ending_after(int(starts.min())))
    high = np.minimum(series.ending_after(upto) - 1, series.last)
    if (low > high).all():  # as of slices that were begun before, and go on
        return none
    return _holding(series, np.unique(starts), low, high)


class Assembled(NamedTuple):
    """Rows of windows, in order of window type, then window: merged fields by key."""

    kind: Ints
    start: Ints
    end: Ints
    key: Ints
    fields: dict[str, Field]
    rows: Ints | None = None
    """Of each window, the row that it has of the fields; None: each has its own."""


def assemble_periodic(
    windows: Windows,
    series: Series,
    store: SliceStore,
    loose: Rows,
    operators: Operators,
    exact: bool,
) -> Assembled:
    """The rows of these windows from settled slices and loose ones (sorted by start).

    With `exact`, partials are whole windows: only those that start where the window starts count.
    """
    kind, number = windows
    start = series.start_of(kind, number)
    end = series.end_of(kind, number)
    last = start + 1 if exact else end
    # Windows that hold the same slices are merged once, as those that reach over a long pause.
    bound, place = _distinct(*(_before(time, store, loose) for time in (start, last)))
    large = not all(operator.small for operator in operators.values())
    if large:  # in the order in which windows come, so that as a rule nothing is to be moved
        order = np.argsort(bound)
        bound, place = bound[order], np.argsort(order)[place]
    key, window, fields = _reduce(start[bound], last[bound], store, loose, operators)
    if len(bound) == len(start) and (np.diff(bound) > 0).all():
        return Assembled(kind[window], start[window], end[window], key, fields)
    # Hand the rows to each window that has them.
    begins = np.searchsorted(window, np.arange(len(bound) + 1))
    index, owner = runs(begins[place], begins[place + 1])
    bounds = kind[owner], start[owner], end[owner], key[index]
    if large:  # to copy them, and to lower each copy, would take longer than all the rest
        return Assembled(*bounds, fields, index)
    return Assembled(*bounds, {name: take(column, index) for name, column in fields.items()})


def _of_kinds(chosen: Mask, kind: Ints, number: Ints) -> Windows:
    """The windows of some types only."""
    rows = np.flatnonzero(chosen[kind])
    return kind[rows], number[rows]


def _before(time: Ints, store: SliceStore, loose: Rows) -> Ints:
    """How many slices, settled or loose, start before each time."""
    return np.searchsorted(store.starts, time) + np.searchsorted(loose.start, time)


def _distinct(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """One window of each pair of bounds, and for each window the place of its pair."""
    order = np.lexsort((end, start))
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(start[order]) != 0) | (np.diff(end[order]) != 0)
    place = np.empty(len(order), np.int64)
    place[order] = np.cumsum(new) - 1
    return order[new], place


def _reduce(
    low: Ints, high: Ints, store: SliceStore, loose: Rows, operators: Operators
) -> tuple[Ints, Ints, dict[str, Field]]:
    """Merges the slices that start in `[low, high)` of each window, by key, in order of window."""
    slices = np.searchsorted(store.starts, low), np.searchsorted(store.starts, high)
    ways = fieldwise(operators)
    settled = not len(loose) or int(loose.start[0]) >= int(high.max())
    if ways is not None and settled and store.full(*slices):
        return reduce_full(*slices, store, ways)
    if settled:
        return _by_window(*store.gather_in_order(*slices, operators), operators)
    rows, owner = store.gather(*slices, operators)
    index, more = runs(np.searchsorted(loose.start, low), np.searchsorted(loose.start, high))
    fields = {name: loose.fields[name] for name in empty_names(operators)}
    rows = concat_keyed([rows, KeyedPartials(loose.key, fields).take(index)], operators)
    owner = np.concatenate([owner, more])
    order = sort_order(rows.key, owner)
    return _by_window(rows.take(order), owner[order], operators)


def _by_window(
    rows: KeyedPartials, owner: Ints, operators: Operators
) -> tuple[Ints, Ints, dict[str, Field]]:
    """Merges rows that come in order of window and key: keys, windows, and fields."""
    if not len(owner):
        return rows.key, owner, rows.fields
    new = np.ones(len(owner), np.bool_)
    new[1:] = (owner[1:] != owner[:-1]) | (rows.key[1:] != rows.key[:-1])
    heads = np.flatnonzero(new)
    if len(heads) == len(owner):
        return rows.key, owner, rows.fields
    groups = Grouping(None, len(heads), starts=heads, rows=len(owner))
    return rows.key[heads], owner[heads], merge_fields(rows.fields, groups, operators)


class PeriodicRecord(msgspec.Struct, frozen=True):
    """What a snapshot holds of periodic windows besides tables."""

    first: list[int]
    """For each series, the number of the first window that is not complete."""
    kept_from: int
    slices: int
    eras: list[tuple[list[WindowForm], int]]
    """The windows of each era, as `Window.to_dict` gives them, and its end."""


class Era(NamedTuple):
    """Events up to the time `until` may have been cut at the edges of these windows only."""

    windows: tuple[Window, ...]
    until: int


class AgeRange(NamedTuple):
    """How long ago open windows may have begun: from `first` to `last` microseconds before now,
    only these."""

    first: int
    last: int
    windows: tuple[Periodic, ...]
    edges: Edges


def age_bounds(reaches: Sequence[int]) -> list[int]:
    """The ages at which ranges of windows with these reaches begin, the oldest first, each at most
    half of the one before."""
    bounds: list[int] = []
    for reach in sorted(set(reaches), reverse=True):
        if not bounds or 2 * reach <= bounds[-1]:
            bounds.append(reach)
    return bounds


def age_ranges(windows: Sequence[Periodic]) -> list[AgeRange]:
    """The ranges of some windows. In the newest one, which is not among them, all windows may
    begin."""
    reaches = [_reach(window) for window in windows]
    found = []
    for first, last in pairwise(age_bounds(reaches)):
        longer = tuple(w for w, reach in zip(windows, reaches, strict=True) if reach > last)
        found.append(AgeRange(first, last, longer, Edges(periods_of(longer))))
    return found


def _few_are_long(windows: Sequence[Periodic]) -> bool:
    """Whether old slices could be merged into far fewer, if no two windows had an edge in common:
    to count the edges that there really are takes much longer."""
    reaches = np.array([_reach(window) for window in windows])
    edges = [sum(1 / p.pace for p in window.periods if not p.only) for window in windows]
    bounds = age_bounds(reaches.tolist())
    left = bounds[-1] * sum(edges)
    for first, last in pairwise(bounds):
        left += (first - last) * float(np.dot(edges, reaches > last))
    return bounds[0] * sum(edges) > _WORTH * left


class PeriodicState(ShapeState):
    """The slices that open windows need, and which windows of each series are asked for.

    Between horizon and frontier, late events may change windows that were said: `emitted` knows
    them, and those that late events touch are assembled again.
    """

    name = "periodic"

    def __init__(
        self, bound: BoundGroup, windows: Mapping[int, Periodic], emitted: Emitted | None
    ) -> None:
        super().__init__(bound, windows)
        self._windows = tuple(windows.values())
        self._emitted = emitted
        self._exact = bound.group.way == "accumulators"
        counts = [len(window.periods) for window in self._windows]
        ends = np.cumsum(counts).tolist()
        self._place_of = np.repeat(np.array(self.places, np.int64), counts)
        """For each series, the place of its window type."""
        self._rows_of = {
            window: slice(end - count, end)
            for window, count, end in zip(self._windows, counts, ends, strict=True)
        }
        """For each window type, its series."""
        self._series = Series(periods_of(self._windows))
        self._needs = [
            (np.isin(self._place_of, need.places) if len(bound.needs) > 1 else None, need.operators)
            for need in bound.needs
        ]
        """Which series need which operators; None: all do."""
        self._store = SliceStore(bound.group.store, self.operators)
        self._pending = UnmergedRows()
        self._late: list[Ints] = []
        self._kept_from = EARLIEST
        self._eras: list[Era] = []
        """The edges that slices have which may still be there, where these are not all edges of
        the plan: an older one cut them, or they were merged."""
        self._enough = _FEW_SLICES

    def absorb(self, rows: Rows) -> None:
        self._pending.add(rows)
        if self._pending.untidy(self._pending.rows[0].nbytes):
            self.merge()

    def merge(self) -> None:
        self._pending.rows = [compact(self._pending.emptied(self.operators), self.operators)]

    def late(self, times: Ints) -> None:
        self._late.append(times)

    def complete(self, moment: Moment) -> list[Complete]:
        kind, number = self._due(moment)
        out = []
        if len(kind):  # until some window ends, slices need not be merged
            rest = self._settle(moment.horizon)
            if len(moment.loose):
                rest = compact(concat_rows([rest, moment.loose], self.operators), self.operators)
            for mine, operators in self._needs:
                own = (kind, number) if mine is None else _of_kinds(mine, kind, number)
                if not len(own[0]):
                    continue
                found = assemble_periodic(
                    own, self._series, self._store, rest, operators, self._exact
                )
                places = self._place_of[found.kind]
                bounds = found.key, found.start, found.end
                out.append(Complete(places, *bounds, found.fields, rows=found.rows))
        self._forget(max(moment.horizon, EARLIEST))
        return out

    def _settle(self, horizon: int) -> Rows:
        """Moves slices that have ended by the horizon into the store; gives the others."""
        pending = compact(self._pending.emptied(self.operators), self.operators)
        # Rows settle in order of their start, as far as none that starts earlier is unfinished.
        unfinished = pending.start[pending.end > horizon]
        stop = int(unfinished.min()) if len(unfinished) else None
        done = len(pending) if stop is None else int(np.searchsorted(pending.start, stop))
        if len(self._store) and done and pending.start[0] <= self._store.starts[-1]:
            done = 0  # a slice that was settled got more: it stays loose until all are forgotten
        before = len(self._store)
        self._store.append(pending[:done])
        self.slices += len(self._store) - before
        rest = pending[done:]
        self._pending.rows = [rest] if len(rest) else []
        return rest

    def _due(self, moment: Moment) -> Windows:
        """The windows that end now, and those said already that may have changed."""
        pending = [rows.start for rows in self._pending.rows]
        starts = np.concatenate([self._store.starts, *pending, moment.loose.start])
        kind, number = due(self._series, moment.before, moment.ahead, starts)
        if self._late:
            again = touched(self._series, np.concatenate(self._late), EARLIEST, moment.before)
            kind, number = np.concatenate([kind, again[0]]), np.concatenate([number, again[1]])
            self._late = []
        if self._emitted is not None and self._emitted.doubtful:
            kind, number = self._with_confirmed(kind, number, self._emitted, moment.complete_until)
        if len(self._windows) < len(self._series):  # several series of a type are given as one
            starts = self._series.start_of(kind, number)
            order = np.lexsort((self._series.lengths[kind], starts, self._place_of[kind]))
            kind, number = kind[order], number[order]
        return kind, number

    def _with_confirmed(
        self, kind: Ints, number: Ints, emitted: Emitted, complete_until: int
    ) -> Windows:
        """Windows, and those that were doubtful and are no more, each once."""
        bounds = {
            (place, start, end) for place, _, start, end, _ in emitted.confirmed(complete_until)
        }
        if not bounds:
            return kind, number
        alike: dict[tuple[int, int | None], list[int]] = {}
        types = zip(self._place_of.tolist(), self._series.lengths.tolist(), strict=True)
        for row, (place, length) in enumerate(types):
            known = length if self._series.plain(row) else None
            alike.setdefault((place, known), []).append(row)
        found = set(zip(kind.tolist(), number.tolist(), strict=True))
        for place, start, end in bounds:
            rows = [*alike.get((place, end - start), []), *alike.get((place, None), [])]
            found.update(self._bounded(start, end, rows))
        pairs = np.array(sorted(found), np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def _bounded(self, start: int, end: int, rows: list[int]) -> Iterator[tuple[int, int]]:
        """Of these series, those that have windows of these bounds, and their numbers.

        A type may have several series of one length, which begin at different times.
        """
        series, kinds = self._series, np.array(rows, np.int64)
        last = series.place(kinds, start) - series.offsets[kinds]
        before = series.place(kinds, start - 1) - series.offsets[kinds]
        low, high = before // series.slides[kinds] + 1, last // series.slides[kinds]
        low, high = np.maximum(low, series.first[kinds]), np.minimum(high, series.last[kinds])
        kind, number = expand(kinds, low, high)
        fits = series.end_of(kind, number) == end
        yield from zip(kind[fits].tolist(), number[fits].tolist(), strict=True)

    def _forget(self, horizon: int) -> None:
        """Drops the slices that no window can need."""
        needed = self._series.needed_from(horizon)
        self._kept_from = max(self._kept_from, needed)
        self._store.trim(needed)
        if len(self._store) > self._enough and self._age_ranges and horizon < LATEST:
            self._merge_old(horizon)
        self._pending.rows = [rows.where(rows.start >= needed) for rows in self._pending.rows]

    @cached_property
    def _age_ranges(self) -> list[AgeRange]:
        """The ranges whose slices are merged; none where that would leave most of them."""
        if self._exact or len(self._windows) < 2 or not _few_are_long(self._windows):
            return []
        ranges = age_ranges(self._windows)
        rate = Edges(periods_of(self._windows)).rate
        left = sum((age.first - age.last) * age.edges.rate for age in ranges)
        left += ranges[-1].last * rate if ranges else 0.0
        return ranges if ranges and ranges[0].first * rate > _WORTH * left else []

    def _merge_old(self, horizon: int) -> None:
        """Merges slices of the past at whose edges no window begins that is still open.

        Windows of a month that begin each minute need slices of a minute, and windows of a second
        need their slices for a second only.
        """
        starts = self._store.starts
        new = np.ones(len(starts), np.bool_)
        for age in self._age_ranges:
            until = horizon - age.last
            begin, stop = np.searchsorted(starts, [horizon - age.first, until]).tolist()
            if stop < begin + 2:
                continue
            some = starts[begin:stop]
            edges = age.edges.around(some, int(some[0]), int(some[-1]))
            place = np.searchsorted(edges, some, side="right")
            new[begin + 1 : stop] = place[1:] != place[:-1]
            known = {era.windows: era.until for era in self._eras}
            known[age.windows] = max(until - 1, known.get(age.windows, EARLIEST))
            self._eras = [Era(*era) for era in known.items()]
        rows = self._store.all_rows()
        first = starts[np.maximum.accumulate(np.where(new, np.arange(len(starts)), 0))]
        rows.start = first[np.searchsorted(starts, rows.start)]
        self._store = SliceStore(self._store.kind, self.operators)
        self._store.append(compact(rows, self.operators))
        self._eras = [era for era in self._eras if era.until >= self._kept_from]
        self._enough = max(_FEW_SLICES, int(_MORE * len(self._store)))

    def ended(self, place: int, until: int, frontier: int, waiting: bool) -> bool:
        return all(
            until + period.reach <= frontier - 1 or (period.only and period.offset > until)
            for period in self._windows[self.places.index(place)].periods
        )

    # -- plans -----------------------------------------------------------------------------------

    def begin(self, frontier: int, newest: int) -> None:
        self._kept_from = frontier
        if newest > EARLIEST:
            self._kept_from = newest + 1
            self._series.first = np.maximum(
                self._series.first, self._series.starting_by(newest) + 1
            )

    def continue_from(self, old: PeriodicState | None, change: Change) -> None:
        started = change.newest > EARLIEST
        if old is not None:
            self._late, self.slices = old._late, old.slices
            self._kept_from, self._eras = old._kept_from, old._eras
            self._pending.rows = [fit(rows, self.operators) for rows in old._pending.rows]
            self._store.append(fit(old._store.all_rows(), self.operators))
        if started:
            # Without windows like these no slice was kept; after the newest event, none was
            # forgotten.
            self._eras = _eras(self._eras, change, self._kept_from)
            unseen = change.newest + 1
            self._kept_from = unseen if old is None else min(self._kept_from, unseen)
        for window, mine in self._rows_of.items():
            known = None if old is None else old._rows_of.get(window)
            if old is not None and known is not None:
                self._series.first[mine] = old._series.first[known]
            elif started:
                first = [
                    first_answerable(period, self._kept_from, change.frontier, self._eras)
                    for period in window.periods
                ]
                self._series.first[mine] = np.maximum(self._series.first[mine], first)

    # -- keys and tables -------------------------------------------------------------------------

    def tables(self) -> list[Rows]:
        return self._pending.rows

    def needed_keys(self) -> list[Ints]:
        return [self._store.keys]

    def recode(self, place: Ints) -> None:
        self._store.recode(place)

    @property
    def nbytes(self) -> int:
        return self._store.nbytes

    def save(self, put: Put) -> None:
        put.rows("pending", concat_rows(self._pending.rows, self.operators))
        put.rows("store", self._store.all_rows())
        put.ints("late", time=np.concatenate([np.empty(0, np.int64), *self._late]))
        first = self._series.first.tolist()
        eras = [([w.to_dict() for w in era.windows], era.until) for era in self._eras]
        put.record(PeriodicRecord(first, self._kept_from, self.slices, eras))

    def load(self, get: Get) -> None:
        self._pending.rows = [get.rows("pending")]
        self._store.append(get.rows("store"))
        self._late = [get.ints("late", "time")]
        saved = get.record(PeriodicRecord)
        self._series.first = np.array(saved.first, np.int64)
        self._kept_from, self.slices = saved.kept_from, saved.slices
        self._eras = [
            Era(tuple(window_from_dict(window) for window in windows), until)
            for windows, until in saved.eras
        ]


def _reach(window: Periodic) -> int:
    """How far before its end a window begins, at most."""
    return max(period.reach for period in window.periods)


def _eras(eras: list[Era], change: Change, kept_from: int) -> list[Era]:
    """The plans by which slices were cut that the next plan starts from.

    Events that wait are cut by the plan that is there when they settle. What others cut may still
    be on its way: so it is not the slices that are here that tell.
    """
    windows = tuple(window for window in change.windows if window.periods)
    latest = {era.windows: era.until for era in eras}
    latest[windows] = max(change.cut_until, latest.get(windows, change.cut_until))
    return [Era(*era) for era in latest.items() if era[1] >= kept_from]


def first_answerable(period: Period, kept_from: int, frontier: int, eras: list[Era]) -> int:
    """The number of the first window from which on all windows of a new series are complete.

    A window is complete if all slices that may hold its events are kept, and if none of them lies
    across its start or its end: each of the two is an edge of every plan by which events at or
    after it were cut.
    """
    series = Series([period])
    number = int(series.starting_by(kept_from - 1)[0]) + 1
    first = max(number, int(series.ending_after(max(frontier, EARLIEST))[0]))
    for era in eras:
        edges = Edges(periods_of(era.windows))
        for edge in (period.offset, period.offset + period.length):
            first = max(first, _after_last_uncut(edge, period, edges, first, era.until))
    return first


def _after_last_uncut(edge: int, period: Period, edges: Edges, first: int, until: int) -> int:
    """The number after that of the last window whose edge by a time is not among these edges.

    `edge` is the one of the window with number 0, on the scale of the period. Edges are looked at
    from the last backwards: where the slide is a multiple of an older one, all of them may be cut.
    """
    at = until if period.scale is None else int(period.scale.numbers(np.array([until]))[0])
    last = 0 if period.only else (at - edge) // period.slide
    if last < first or (period.only and edge > until):
        return first
    if not period.only and edges.holds(period, edge):
        return first
    low = last if period.only else max(first, last - _LOOKED_AT)
    times = edge + np.arange(low, last + 1) * period.slide
    if period.scale is not None:
        times = period.scale.times(times)
    uncut = np.flatnonzero(~edges.covers(times))
    if len(uncut):
        return low + int(uncut[-1]) + 1
    return low
