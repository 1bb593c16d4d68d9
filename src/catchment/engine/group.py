"""The state of one query group: what its windows still need, and nothing else."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from catchment.engine import counted, marked, sessions, settled
from catchment.engine.batch import Batch
from catchment.engine.bound_group import BoundGroup
from catchment.engine.complete import Complete, number_alike
from catchment.engine.keys import KeyIndex
from catchment.engine.ledger import Ledger
from catchment.engine.owning import Owning
from catchment.engine.periodic import assemble_periodic, due, touched
from catchment.engine.repeats import Repeats
from catchment.engine.rows import Rows, compact, concat_rows, no_rows
from catchment.engine.slicer import ALONE, WaitingGroup, lasting_events, sliced_group
from catchment.engine.slicing import SlicedGroup
from catchment.engine.store import Store
from catchment.engine.streams import Owned
from catchment.model.window import Counted, Gap, Marked, Window
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask
from catchment.planner.cost import periods_of
from catchment.planner.edges import EARLIEST, Series

_UNTIDY = 1 << 16
"""Rows that may pile up between two frontiers before they are merged."""

_CROWD = 1 << 12
"""Keys below which none is forgotten."""


class Era(NamedTuple):
    """Events up to the time `until` may have been cut at the edges of these windows only."""

    windows: tuple[Window, ...]
    until: int


class GroupState:
    """Assembles the windows of one group out of its slices.

    Results are final up to `horizon`; between it and the frontier, late events may still change
    them, and `ledger` knows what was said. Without updates the two are one and there is no ledger.
    """

    def __init__(self, bound: BoundGroup) -> None:
        self.bound = bound
        self.group = group = bound.group
        self.operators = bound.operators
        self.keys = KeyIndex()
        self.store = Store(group.store, self.operators)
        self.pending: list[Rows] = []
        self.fresh: list[Rows] = []
        self.ready: list[Complete] = []
        """Windows that were put together elsewhere."""
        self.waiting: list[pa.Table] = []
        self.late: list[Ints] = []
        self.repeats = (
            Repeats(group.distinct_on, group.distinct_within) if group.distinct_on else None
        )
        self.frontier = self.kept_from = self.newest = EARLIEST
        self.known_since: dict[str, int] = {}
        """When operators began that came with a query added later."""
        self.eras: list[Era] = []
        """The older plans by which events were cut whose slices may still be there."""
        self.slices = self.partials = self.calls = 0
        self._tidy, self._crowd = 0, _CROWD
        windows = list(enumerate(group.windows))
        self.kinds = np.array([n for n, w in windows for _ in w.periods], np.int64)
        """Of each series, the place of its window type."""
        self.series = Series(periods_of(group.windows))
        self.sessions = {
            n: sessions.sessions(w.gap, self.operators, None)
            for n, w in windows
            if isinstance(w, Gap)
        }
        self.marks = {
            n: marked.marks(w, self.operators, None)
            for n, w in windows
            if isinstance(w, Marked) and group.slicing != "stream"
        }
        self.own = Owning(group, self.operators) if group.slicing == "stream" else None
        self.live: Collection[str] | None = None
        """The streams that may still bring events; None: all that did."""
        self.ranks: list[tuple[tuple[int, ...], counted.Ranks]] = []
        counts = {n: w for n, w in windows if isinstance(w, Counted)}
        if counts:
            state = counted.ranks(tuple(counts.values()), self.operators, None)
            self.ranks.append((tuple(counts), state))
        self.ledger = Ledger(group.windows) if bound.updates else None

    # -- slices in -------------------------------------------------------------------------------

    def add_events(self, batch: Batch) -> Mask:
        """Takes in events of a group that drops duplicates: says which repeat others."""
        assert self.repeats is not None
        kept = batch.chosen(self.group)
        unique = self.repeats.accept(batch, kept)
        repeated = np.zeros(len(batch), np.bool_)
        repeated[np.arange(len(batch)) if kept.rows is None else kept.rows] = ~unique
        self.add(sliced_group(self.bound, batch, kept.where(unique)), ALONE)
        return repeated

    def add(self, part: SlicedGroup | WaitingGroup, stream: str) -> None:
        """Takes in what a slicer made of events of a stream."""
        if isinstance(part, WaitingGroup):
            streams = None if self.own is None else self.own.streams
            events = lasting_events(part, self.keys, streams, stream)
            times = events.column(settled.TIME).to_numpy()
            self.saw(times, times)
            self.waiting += [events] if len(times) else []
            return
        rows = part.rows
        self.calls += part.calls
        rows.key = self.keys.translate(part.keys, rows.key)
        self.saw(rows.first, rows.last)
        self.absorb(rows)

    def saw(self, first: Ints, last: Ints) -> None:
        """Notes how far time has come, and which windows said already may have changed."""
        if len(last):
            self.newest = max(self.newest, int(last.max()))
        if self.ledger is not None and len(self.series):
            self.late.append(first[first < self.frontier])

    def absorb(self, rows: Rows) -> None:
        """Takes in partials, made here or elsewhere."""
        if not len(rows):
            return
        self.partials += len(rows)
        if self.sessions:
            self.fresh.append(rows)
        if len(self.series):
            self.pending.append(rows)
        self._tidy += len(rows)
        if self._tidy > _UNTIDY + 2 * sum(len(rows) for rows in self.pending[:1]):
            self.tidy()

    def take_in(self, owned: Owned) -> None:
        """Takes in slices that know their windows, cut here or elsewhere."""
        assert self.own is not None
        self.own.take_in(owned, self.frontier)
        self.absorb(owned.rows.where(~owned.ends))

    def tidy(self) -> None:
        """Merges what has piled up."""
        self._tidy = 0
        if len(self.pending) > 1:
            self.pending = [compact(concat_rows(self.pending, self.operators), self.operators)]
        for n, state in self.sessions.items():
            rows = concat_rows(self.fresh, self.operators)
            self.sessions[n] = sessions.step(state, rows, EARLIEST, self.operators)[0]
        self.fresh = []

    # -- assemble --------------------------------------------------------------------------------

    def advance(self, frontier: int, horizon: int, sure: int) -> list[Complete]:
        """The windows complete at the frontier; those complete at the horizon are final.

        What ended after `sure` may lack events that somebody has not sent yet.
        """
        done, self.ready = self.ready, []
        done += self._settle(horizon, keep=True)[0] if self.own is None else self._streams(frontier)
        fresh, self.fresh = concat_rows(self.fresh, self.operators), []
        done += self._sessions(fresh, horizon, keep=True)
        loose = no_rows(self.operators)
        if self.ledger is not None:
            passing, loose = self._settle(frontier, keep=False)
            done += passing + self._sessions(loose, frontier, keep=False)
        done += self._periodic(loose, frontier, horizon, sure)
        self.frontier = max(self.frontier, frontier)
        if self.repeats is not None:
            self.repeats.forget(horizon)
        if self.ledger is not None:
            done = self.ledger.changes(done, horizon, self.operators, sure)
        return [windows for windows in done if len(windows)]

    def cut_streams(self, time: int) -> Owned | None:
        """Cuts the events before a time at the marks of their stream."""
        events = self._take(time, keep=True)
        if events is None or self.own is None:
            return None
        self.calls += len(events) * len(self.operators)
        return self.own.cut(events)

    def _streams(self, frontier: int) -> list[Complete]:
        assert self.own is not None
        owned = self.cut_streams(frontier)
        if owned is not None:
            self.take_in(owned)
        return self.own.complete(frontier, self.live)

    def _settle(self, time: int, *, keep: bool) -> tuple[list[Complete], Rows]:
        """Cuts the events before a time, for good with `keep`: windows that ended, and the rows."""
        events = self._take(time, keep=keep)
        if events is None:
            return [], no_rows(self.operators)
        cuts = np.zeros(len(events), np.bool_)
        followed = {n: marked.track(state, events) for n, state in self.marks.items()}
        for track in followed.values():
            cuts |= marked.boundaries(track)
        ranked = [counted.ranked(state, events) for _, state in self.ranks]
        for (_, state), rank in zip(self.ranks, ranked, strict=True):
            cuts |= counted.boundaries(state, rank)
        rows, heads = settled.cut_rows(events, cuts, self.group, self.operators)
        out: list[Complete] = []
        marks, ranks = self.marks, self.ranks
        self.marks, self.ranks = {}, []
        for n, open_ in marks.items():
            self.marks[n], done = marked.step(
                open_, events, followed[n], rows, heads, self.operators
            )
            ended = _of(n, done, done.start, done.end)
            # All events of one instant settle together, so that equals are numbered together.
            ended.index = number_alike(done.key, done.start, done.end)
            out.append(ended)
        for (kinds, tally), rank in zip(ranks, ranked, strict=True):
            tally, full = counted.step(
                tally, events, rank, rows, heads, self.group.store, self.operators
            )
            self.ranks.append((kinds, tally))
            out.append(_counted(kinds, full))
        if keep:
            self.calls += len(events) * len(self.operators)
            self.absorb(rows)
        else:
            self.marks, self.ranks = marks, ranks
        return out, rows

    def _take(self, time: int, *, keep: bool) -> settled.Ordered | None:
        """The waiting events before a time, in order."""
        early, later = [], []
        for table in self.waiting:
            before = table.column(settled.TIME).to_numpy() < time
            early.append(table.filter(pa.array(before)))
            later.append(table.filter(pa.array(~before)))
        if keep:
            self.waiting = [table for table in later if table.num_rows]
        early = [table for table in early if table.num_rows]
        return settled.ordered(early) if early else None

    def _sessions(self, rows: Rows, time: int, *, keep: bool) -> list[Complete]:
        out = []
        for n, state in self.sessions.items():
            after, done = sessions.step(state, rows, time, self.operators)
            if keep:
                self.sessions[n] = after
            out.append(_of(n, done, done.first, done.last + state.gap))
        return out

    def _periodic(self, loose: Rows, frontier: int, horizon: int, sure: int) -> list[Complete]:
        if not len(self.series):
            return []
        pending = compact(concat_rows(self.pending, self.operators), self.operators)
        # Rows settle in order of their start, as far as none that starts earlier is unfinished.
        unfinished = pending.start[pending.end > horizon]
        stop = int(unfinished.min()) if len(unfinished) else None
        done = len(pending) if stop is None else int(np.searchsorted(pending.start, stop))
        if len(self.store) and done and pending.start[0] <= self.store.starts[-1]:
            done = 0  # a slice that was settled got more: it stays loose until all are forgotten
        before = len(self.store)
        self.store.append(pending[:done])
        self.slices += len(self.store) - before
        rest = pending[done:]
        self.pending = [rest] if len(rest) else []
        self._tidy = 0
        if len(loose):
            rest = compact(concat_rows([rest, loose], self.operators), self.operators)
        starts = np.concatenate([self.store.starts, rest.start])
        kind, number = due(self.series, self.frontier, frontier, starts)
        if self.late:
            again = touched(self.series, np.concatenate(self.late), EARLIEST, self.frontier)
            kind, number = np.concatenate([kind, again[0]]), np.concatenate([number, again[1]])
            self.late = []
        if self.ledger is not None and self.ledger.doubtful:
            kind, number = self._with_confirmed(kind, number, sure)
        exact = self.group.way == "accumulators"
        out = []
        if len(kind):
            found = assemble_periodic(
                (kind, number), self.series, self.store, rest, self.operators, exact
            )
            kinds = self.kinds[found.kind]
            out.append(Complete(kinds, found.key, found.start, found.end, found.fields))
        self._forget(max(horizon, EARLIEST))
        return out

    def _with_confirmed(self, kind: Ints, number: Ints, sure: int) -> tuple[Ints, Ints]:
        """Windows, and those that were doubtful and are no more, each once."""
        assert self.ledger is not None
        lengths = self.series.lengths.tolist()
        places = {
            place: row for row, place in enumerate(zip(self.kinds.tolist(), lengths, strict=True))
        }
        found = set(zip(kind.tolist(), number.tolist(), strict=True))
        for window, _, start, end, _ in self.ledger.confirmed(sure):
            row = places.get((window, end - start))
            if row is not None:
                offset, slide = int(self.series.offsets[row]), int(self.series.slides[row])
                found.add((row, (start - offset) // slide))
        pairs = np.array(sorted(found), np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def _forget(self, horizon: int) -> None:
        """Drops the slices that no window can need."""
        needed = self.series.needed_from(horizon)
        self.kept_from = max(self.kept_from, needed)
        self.store.trim(needed)
        self.pending = [rows.where(rows.start >= needed) for rows in self.pending]

    # -- housekeeping ----------------------------------------------------------------------------

    def begin(self, frontier: int, newest: int) -> None:
        """Starts a group in the middle of a stream, whose events so far it has not seen."""
        self.frontier, self.kept_from, self.newest = frontier, frontier, newest
        if newest <= EARLIEST:
            return
        self.kept_from = newest + 1
        first = -((self.series.offsets - (newest + 1)) // self.series.slides)
        self.series.first = np.maximum(self.series.first, first)
        self.sessions = {n: s._replace(since=newest) for n, s in self.sessions.items()}
        self.marks = {n: m._replace(since=newest) for n, m in self.marks.items()}
        self.ranks = [(kinds, tally._replace(since=newest)) for kinds, tally in self.ranks]
        if self.own is not None:
            self.own.begin(newest)

    def collect_keys(self, at_once: bool = False) -> None:
        """Forgets the keys that nothing refers to, once they are most of all keys, or at once."""
        if self.own is not None or (len(self.keys) < self._crowd and not at_once):
            return  # how many windows a key has had is kept for good
        live = np.unique(np.concatenate([np.empty(0, np.int64), *self._keys()]))
        self._crowd = max(_CROWD, 2 * len(live))
        if len(live) == len(self.keys) or (2 * len(live) > len(self.keys) and not at_once):
            return
        place = np.full(len(self.keys), -1, np.int64)
        place[live] = np.arange(len(live))
        self.keys = self.keys.only(live)
        self._recode(place)

    def _keys(self) -> list[Ints]:
        found = [self.store.keys, *(rows.key for rows in self._tables())]
        found += [table.column(settled.KEY).to_numpy() for table in self.waiting]
        found += [m.seen for m in self.marks.values()] + [tally.keys for _, tally in self.ranks]
        found += [windows.key for windows in self.ready]
        if self.ledger is not None:
            found.append(np.array(self.ledger.keys, np.int64))
        return found

    def _tables(self) -> list[Rows]:
        tables = [*self.pending, *self.fresh]
        tables += [state.open for state in self.sessions.values()]
        tables += [mark.open for mark in self.marks.values()]
        tables += [] if self.own is None else self.own.tables
        return tables + [tally.kept for _, tally in self.ranks]

    def _recode(self, place: Ints) -> None:
        self.store.recode(place)
        for rows in {id(rows): rows for rows in self._tables()}.values():
            rows.key = place[rows.key]
        for windows in self.ready:
            windows.key = place[windows.key]
        self.waiting = [settled.recode(table, place) for table in self.waiting]
        self.marks = {n: m._replace(seen=np.sort(place[m.seen])) for n, m in self.marks.items()}
        self.ranks = [(kinds, counted.recode(tally, place)) for kinds, tally in self.ranks]
        if self.ledger is not None:
            self.ledger.recode(place)

    @property
    def nbytes(self) -> int:
        tables = {id(rows): rows.nbytes for rows in self._tables()}
        waiting = sum(table.nbytes for table in self.waiting)
        said = 200 * len(self.ledger.said) if self.ledger is not None else 0
        repeats = 0 if self.repeats is None else self.repeats.nbytes
        held = self.store.nbytes + sum(tables.values()) + waiting
        held += 0 if self.own is None else self.own.nbytes
        return held + said + repeats + self.keys.nbytes


def _of(window: int, rows: Rows, start: Ints, end: Ints) -> Complete:
    return Complete(np.full(len(rows), window, np.int64), rows.key, start, end, rows.fields)


def _counted(kinds: tuple[int, ...], full: counted.Full) -> Complete:
    rows = full.rows
    kind = np.array(kinds, np.int64)[full.kind]
    return Complete(kind, rows.key, rows.first, rows.last, rows.fields, full.number)
