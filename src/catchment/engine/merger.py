"""The second verb, for a whole plan: slices to fewer, held until nobody expects more of them.

Slices come from a slicer beside it, or as partials from others. What ends by the frontier is
released as partials, one row for each slice and key; the rest is held, so that what comes later for
the same slice can join it.

    Sliced   --add-->     +--------+
                          | Merger | --release(frontier)--> partials
    partials --absorb-->  +--------+ --save()--> bytes, for a restart
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from catchment.engine import codec, partials, settled, streams
from catchment.engine.batch import Batch
from catchment.engine.bound_group import BoundGroup
from catchment.engine.bound_waiting import WaitingEvents
from catchment.engine.coarser import coarser_rows
from catchment.engine.key_space import KeySpace, UsedKeys
from catchment.engine.keys import KeyIndex
from catchment.engine.memory import MemoryWatch
from catchment.engine.partials import (
    KeyedSlices,
    Partials,
    are_events,
    lanes_in,
    owned_of,
    rows_of,
)
from catchment.engine.released_sessions import ReleasedSessions
from catchment.engine.rows import Rows, compact, concat_rows, fit
from catchment.engine.shapes.states import stream_state
from catchment.engine.slicer import Sliced
from catchment.engine.slicing import SlicedGroup
from catchment.engine.streams import Owned
from catchment.engine.waiting import WaitingSet, continue_sets, waiting_sets
from catchment.model.capacity import Capacity
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST, LATEST

if TYPE_CHECKING:
    from catchment.engine.bound import BoundPlan

_UNTIDY = 1 << 18
"""Rows of a group that may pile up before they are merged."""

_PARTS = 16
"""Cuts of a stream that may pile up before their slices are merged."""

_KEYS = 1 << 20
"""Keys that are remembered beyond what is held, while somebody watches how often they come."""

_SLICES, _WAITING, _EVENTS = "slices", "waiting", "events"
_COURSES, _LANES, _WHOLE = "courses", "lanes", "whole"
"""What the tables are that a merger saves: slices of a group; events that wait, of groups that keep
them together; events of groups that drop duplicates. Of a group that is read by stream: how far
windows between marks were followed; the lanes of the other windows, and what is held of these."""

Touch = tuple[Ints, Ints, Ints]
"""Slices and keys that rows have come for: starts, ends, codes of keys."""


class GroupMerger:
    """What is held of one group, but for events that wait."""

    def __init__(self, bound: BoundGroup) -> None:
        self.bound = bound
        self.space = KeySpace()
        self.own = stream_state(bound)
        self.rows: list[Rows] = []
        self.waiting: WaitingSet | None = None
        """Where its events wait, if they do."""
        self.owned: list[Owned] = []
        """Slices that know the windows of their stream."""
        self._lanes: pa.Table | None = None
        """Lanes that are being loaded, before what is held of them."""
        self.newest = EARLIEST
        self.touched: list[Touch] = []
        self._piled = 0
        gap = bound.smallest_gap
        self.released = None if gap is None else ReleasedSessions(gap)
        """Where sessions may end anywhere in a slice: those that are open above."""

    @property
    def keys(self) -> KeyIndex:
        return self.space.keys

    @property
    def holds_slices(self) -> bool:
        """Whether it holds slices alone: neither events, nor windows of streams."""
        return self.own is None and self.waiting is None and not self.bound.group.distinct_on

    def add(self, part: SlicedGroup, watched: bool) -> None:
        """Takes in what a slicer made of events."""
        part.rows.key = self.keys.translate(part.keys, part.rows.key)
        self.add_rows(part.rows, watched)

    def absorb(self, table: pa.Table, watched: bool) -> None:
        """Takes in slices as partials."""
        if self.own is not None:
            self.owned.append(owned_of(self, table))
        else:
            self.add_rows(rows_of(self, table), watched)

    def add_rows(self, rows: Rows, watched: bool) -> None:
        self.rows.append(rows)
        self._piled += len(rows)
        if watched:
            self.touched.append((rows.start, rows.end, rows.key))
        if self._piled > _UNTIDY + 2 * len(self.rows[0]):
            self.shelf()

    def shelf(self) -> Rows:
        """What is held: one row per slice and key, in order of both."""
        operators = self.bound.operators
        rows = compact(concat_rows(self.rows, operators), operators)
        self.rows, self._piled = [rows], 0
        return rows

    def part(self, chosen: Ints, node: int, seq: int) -> pa.Table:
        """Some rows of the shelf as partials; they are held no longer."""
        rows = self.rows[0]
        stays = np.ones(len(rows), np.bool_)
        stays[chosen] = False
        self.rows, leaving = [rows.where(stays)], rows.where(~stays)
        if self.released is not None:
            self.released.add(leaving)
        return partials.take(self, leaving, node, seq)

    def discard(self, table: pa.Table) -> None:
        """Forgets rows that are held, of the slices and keys of these partials."""
        sent, held = rows_of(self, table), self.shelf()
        known = {*zip(sent.start.tolist(), sent.end.tolist(), sent.key.tolist(), strict=True)}
        bounds = zip(held.start.tolist(), held.end.tolist(), held.key.tolist(), strict=True)
        stays = np.array([slice_and_key not in known for slice_and_key in bounds], np.bool_)
        self.rows = [held.where(stays)]
        if self.released is not None:
            self.released.add(sent)

    def release(self, frontier: int, node: int, seq: int, remember: bool) -> pa.Table:
        """The partials of slices that end by the frontier."""
        rows = concat_rows(self.rows, self.bound.operators)
        return self._release(rows, rows.end <= frontier, frontier, node, seq, remember)

    def release_sessions(self, frontier: int, node: int, seq: int) -> pa.Table | None:
        """The partials of slices that must not be held back once a frontier within them is told: a
        session may end anywhere in a slice.

        All that is held of a slice and key leaves together: whoever takes over from this node
        forgets all that was read of these by then (`discard`).
        """
        if self.released is None:
            return None
        self.released.open(frontier)
        rows = self.shelf()
        passed = (rows.first < frontier) & ~self.released.keep_open(rows)
        return self._release(rows, passed, frontier, node, seq, True) if passed.any() else None

    def _release(
        self, rows: Rows, ripe: Mask, frontier: int, node: int, seq: int, remember: bool
    ) -> pa.Table:
        """Some rows as partials; the others are held."""
        leaving = rows.where(ripe)
        made = partials.take(self, leaving, node, seq)
        if self.released is not None and frontier < LATEST:
            self.released.add(leaving)
        self._piled = 0
        self.rows = [] if ripe.all() else [rows.where(~ripe)]
        needed = self.released is not None and len(self.released)
        if ripe.all() and not needed and not (remember and len(self.keys) < _KEYS):
            self.space.keys = KeyIndex()
        return made

    def follow_stream(self, settles: int) -> None:
        """Cuts the events of its stream before a time; their slices are held."""
        assert self.own is not None and self.waiting is not None
        ready = self.waiting.settle(settles, keep=True)
        events = None if ready is None else ready.of(self.bound.group)
        owned = self.own.cut(events, settles)
        self.owned += [owned] if len(owned.rows) else []
        if len(self.owned) >= _PARTS:
            self.owned = [streams.compact_owned(self._all_owned(), self.bound)]

    def _all_owned(self) -> Owned:
        """The slices that are held, in one piece."""
        assert self.own is not None
        return streams.concat_owned(self.owned, len(self.own.places), self.bound.operators)

    def window_ended(self, frontier: int) -> bool:
        """Whether slices that are held say of a window that it has ended before the frontier."""
        return any((part.ends & (part.rows.start < frontier)).any() for part in self.owned)

    def release_owned(self, frontier: int, whole: bool, node: int, seq: int) -> pa.Table:
        """Slices of settled events: those in a window all of them, since it may end anywhere in a
        slice. Events themselves leave only where nobody here sees the `whole` stream."""
        assert self.own is not None and self.waiting is not None
        if not whole and not self.owned:
            return self.waiting.release(frontier, node, seq)
        owned = self._all_owned()
        early = (owned.tags[:, 0] > 0) | (self.bound.smallest_gap is not None)
        ripe = np.where(early, owned.rows.start < frontier, owned.rows.end <= frontier)
        self.owned = [] if ripe.all() else [owned.where(~ripe)]
        return partials.take_owned(self, owned.where(ripe), node, seq)

    def save(self, node: int) -> dict[str, pa.Table]:
        """All that is held, as tables; it stays."""
        operators = self.bound.operators
        if self.own is None:
            rows = concat_rows(self.rows, operators)
            return {_SLICES: partials.take(self, rows, node, 0)} if len(rows) else {}
        made = {_COURSES: partials.take_courses(self, self.own.courses_table(), node, 0)}
        if self.own.lanes.states:
            made[_LANES] = partials.take_courses(self, self.own.lanes.table(), node, 0)
            made[_WHOLE] = pa.table({"states": [self.own.lanes.save()]})
        if self.owned:
            made[_SLICES] = partials.take_owned(self, self._all_owned(), node, 0)
        return made

    def load(self, kind: str, table: pa.Table) -> None:
        """Takes back a table that `save` gave."""
        if kind in (_COURSES, _LANES, _WHOLE):
            self._load_own(kind, table)
        else:
            self.absorb(table, watched=False)

    def _load_own(self, kind: str, table: pa.Table) -> None:
        assert self.own is not None
        if kind == _COURSES:
            self.own.load_courses(table, lanes_in(self, table))
        elif kind == _LANES:
            self._lanes = table
        else:
            states = table.column("states")[0].as_py()
            held = self._lanes
            lanes = np.empty(0, np.int64) if held is None else lanes_in(self, held)
            self.own.lanes.load(self.own.lanes.table() if held is None else held, lanes, states)

    def continue_from(self, old: GroupMerger, newest: int) -> None:
        """Goes on from what a group of an older plan holds, as this plan would have cut it."""
        operators = self.bound.operators
        self.space.keys = old.space.keys
        self.newest = max(old.newest, newest) if old.own is not None else old.newest
        if self.bound.group.slicing == "arrival":
            self.rows = [fit(rows, operators) for rows in old.rows]
        if self.own is not None and old.own is not None:
            # What was there before a window type is unknown to it.
            since = self.newest if self.newest > EARLIEST else None
            self.own.go_on_from(old.own, since)
            self.owned = [
                self.own.retagged(part, old.own, fit(part.rows, operators)) for part in old.owned
            ]

    def begin_from(self, fine: GroupMerger) -> None:
        """Goes on by itself, from what is held of the group that it was made of."""
        mine = KeyedSlices(self.bound, self.keys)
        self.rows += [coarser_rows(rows, fine.bound, fine.keys, mine) for rows in fine.rows]

    def begin(self, newest: int) -> None:
        """Starts in the middle of streams whose events so far nobody has seen."""
        self.newest = newest
        if self.own is not None:
            self.own.begin(EARLIEST, newest)

    @property
    def keeps_keys(self) -> bool:
        return self.own is not None  # how many windows a key has had is kept for good

    def used_keys(self) -> list[Ints]:
        """The keys that are referred to here; those of events that wait are not among them."""
        open_above = [] if self.released is None else [self.released.key]
        return [*(rows.key for rows in self.rows), *open_above]

    def recode(self, place: Ints) -> None:
        """Renumbers the keys."""
        for rows in self.rows:
            rows.key = place[rows.key]
        if self.released is not None:
            self.released.recode(place)
        self.touched = []

    @property
    def nbytes(self) -> int:
        """Without keys and events that wait, which others may share."""
        held = sum(rows.nbytes for rows in self.rows)
        held += sum(part.rows.nbytes + part.tags.nbytes for part in self.owned)
        held += 0 if self.released is None else self.released.nbytes
        return held + (0 if self.own is None else self.own.nbytes)


class MergerRecord(msgspec.Struct, frozen=True):
    """What a merger saves beside its tables."""

    newest: int


class Merger:
    """Holds slices of a bound plan, merged.

    With the name of a stream, all events of that stream come here, and are cut at the stream's own
    marks; without one, parts of streams are only passed on.
    """

    def __init__(
        self,
        bound: BoundPlan,
        node: int,
        stream: str | None,
    ) -> None:
        self.bound = bound
        self.node = node
        """Stamps what is released."""
        self.stream = stream
        self.newest = EARLIEST
        self.groups, self.waiting = _groups(bound)
        self.watched = False
        """Whether it is noted which slices and keys rows come for."""
        self._events: list[pa.Table] = []
        """Of groups that drop duplicates: they are found where all events meet."""
        self._memory = MemoryWatch(bound.limits)
        self.encoder = self._memory.encoder

    # -- slices in -------------------------------------------------------------------------------

    def add(self, sliced: Sliced) -> None:
        """Takes in what a slicer beside it made of events."""
        if len(sliced.batch):
            self.newest = max(self.newest, sliced.batch.span[1])
            if any(group.distinct_on for group in self.bound.plan.groups):
                self._events.append(_with_stamps(sliced.batch))
        for id, part in sliced.parts.items():
            if isinstance(part, WaitingEvents):
                self.waiting[id].add(part, sliced.stream)
            else:
                self.groups[id].add(part, self.watched)
        self._memory.came(len(sliced.batch))
        self._memory.bound_keys(self._keys_used())
        self._memory.weigh(lambda: self.held_bytes, self._merge)

    def absorb(self, partials: Partials, newest: int = EARLIEST) -> None:
        """Takes in what others sliced by the same plan; `newest` is the newest event time there."""
        self.newest = max(self.newest, newest)
        for id, table in partials.groups.items():
            if table.num_rows:
                self._absorb(id, table, self.watched)
        if partials.events is not None and partials.events.num_rows:
            self._events.append(partials.events)
        self._memory.bound_keys(self._keys_used())

    def _absorb(self, id: int, table: pa.Table, watched: bool) -> None:
        if are_events(table):
            self.waiting[id].absorb(table, self.stream)
        else:
            self.groups[id].absorb(table, watched)

    # -- partials out ----------------------------------------------------------------------------

    def take(self, seq: int = 0) -> Partials:
        """The partials of all that came since the last call."""
        return self.release(LATEST, seq)

    def release(
        self,
        frontier: int,
        seq: int = 0,
        settles: int | None = None,
        without: Collection[int] = (),
    ) -> Partials:
        """The partials of slices that end by the frontier: nobody expects more of them.

        Where the frontier runs ahead of the events, as on a node that is idle, `settles` says
        before which time no event will come: what may still get a mark before it is not cut. Sets
        of groups whose events wait may be left out for now: `without` has the ids of the first.
        So may groups that are cut by stream.
        """
        made: dict[int, pa.Table] = {}
        self._memory.forget_texts(self._keys_used())  # while it is known how many keys came
        settles = frontier if settles is None else min(frontier, settles)
        for id, group in self.groups.items():
            if group.bound.group.distinct_on:
                continue
            if group.own is not None:
                if id not in without:
                    if self.stream is not None:
                        group.follow_stream(settles)
                    made[id] = self._release_owned(group, frontier, seq)
            elif group.waiting is None:
                made[id] = group.release(frontier, self.node, seq, self.watched)
            elif group.waiting.bound.id == id and id not in without:
                made[id] = group.waiting.release(frontier, self.node, seq)
        ripe, self._events = settled.split(self._events, frontier)
        events = pa.concat_tables(ripe, promote_options="permissive") if ripe else None
        return Partials(made, events)

    @property
    def by_stream(self) -> list[int]:
        """The groups that are cut by stream."""
        found = ((id, group) for id, group in self.groups.items() if group.own is not None)
        return [id for id, group in found if not group.bound.group.distinct_on]

    def follow_streams(self, groups: Collection[int], frontier: int, settles: int) -> bool:
        """Cuts groups by stream as far as their events have settled; whether a window has ended
        before the frontier. What is cut is held until `release_streams`: nobody above needs slices
        of open windows before a frontier past them is told."""
        for id in groups:
            if self.stream is not None:
                self.groups[id].follow_stream(min(frontier, settles))
        return any(self.groups[id].window_ended(frontier) for id in groups)

    def release_streams(self, groups: Collection[int], frontier: int, seq: int = 0) -> Partials:
        """The slices before the frontier of groups that are cut by stream."""
        return Partials({id: self._release_owned(self.groups[id], frontier, seq) for id in groups})

    def _release_owned(self, group: GroupMerger, frontier: int, seq: int) -> pa.Table:
        return group.release_owned(frontier, self.stream is not None, self.node, seq)

    def release_events(self, sets: Collection[int], frontier: int, seq: int = 0) -> Partials:
        """The events before the frontier of some sets of groups whose events wait."""
        return Partials({id: self.waiting[id].release(frontier, self.node, seq) for id in sets})

    def release_sessions(self, frontier: int, seq: int = 0) -> Partials:
        """The partials of slices that have not ended and still must not be held back once the
        frontier is told: sessions that they could join may be closed by it.

        It follows `release`, which gives the slices that have ended.
        """
        made = {
            id: table
            for id, group in self.groups.items()
            if group.holds_slices
            and (table := group.release_sessions(frontier, self.node, seq)) is not None
        }
        return Partials(made)

    def touched(self) -> dict[int, list[Touch]]:
        """What rows have come for since the last call, by group."""
        found = {id: group.touched for id, group in self.groups.items() if group.touched}
        for group in self.groups.values():
            group.touched = []
        return found

    def shelf(self, id: int) -> Rows:
        """What is held of a group: one row per slice and key, in order of both."""
        return self.groups[id].shelf()

    def part(self, id: int, chosen: Ints, seq: int = 0) -> pa.Table:
        """Some rows of the shelf as partials; they are held no longer."""
        return self.groups[id].part(chosen, self.node, seq)

    def discard(self, partials: Partials) -> None:
        """Forgets rows of slices that are held, as far as partials of their slices and keys say
        that others have them."""
        for id, table in partials.groups.items():
            if table.num_rows and id in self.groups and self.groups[id].holds_slices:
                self.groups[id].discard(table)

    def take_waiting(self, id: int) -> pa.Table | None:
        """Takes the events that wait for a group alone, settled or not."""
        table = self.waiting[id].take()
        return None if table is None else partials.events_of_group(table, self.groups[id].bound)

    def take_events(self) -> Partials:
        """Takes all events that are cut elsewhere: nothing here would make fewer of them."""
        found = {
            id: table
            for id, waiting in self.waiting.items()
            if waiting.own is None and (table := waiting.take()) is not None
        }
        events, self._events = self._events, []
        joined = pa.concat_tables(events, promote_options="permissive") if events else None
        return Partials(found, joined)

    # -- state ------------------------------------------------------------------------------------

    def save(self) -> bytes:
        """All that is held, from which `load` goes on as if nothing had happened; it stays."""
        made = {
            f"{kind} {id}": table
            for id, group in self.groups.items()
            if not group.bound.group.distinct_on
            for kind, table in group.save(self.node).items()
            if table.num_rows
        }
        for id, waiting in self.waiting.items():
            if waiting.tables:
                made[f"{_WAITING} {id}"] = waiting.save(self.node)
        if self._events:
            made[_EVENTS] = pa.concat_tables(self._events, promote_options="permissive")
        return codec.pack(MergerRecord(self.newest), made, "lz4")

    def load(self, data: bytes) -> None:
        """Goes on from what a merger of the same plan saved."""
        saved, tables = codec.unpack(data, MergerRecord)
        self.newest = max(self.newest, saved.newest)
        for name, table in tables.items():
            kind, _, id = name.partition(" ")
            if kind == _EVENTS:
                self._events.append(table)
            elif kind == _WAITING:
                self.waiting[int(id)].absorb(table)
            else:
                self.groups[int(id)].load(kind, table)
        self._memory.bound_keys(self._keys_used())

    # -- plans and memory ------------------------------------------------------------------------

    def follow(self, bound: BoundPlan, lineage: Mapping[int, int]) -> None:
        """Goes on by another plan; what is held becomes what that plan would have cut."""
        old, waiting, made_of = self.groups, self.waiting, self.bound.made_of
        self.bound = bound
        self.groups, self.waiting = _groups(bound)
        continue_sets(self.waiting, waiting, lineage)
        for id, group in self.groups.items():
            if id in lineage:
                group.continue_from(old[lineage[id]], self.newest)
                fine = made_of.get(lineage[id])
                if fine is not None and id not in bound.made_of:
                    group.begin_from(old[fine])
            elif self.newest > EARLIEST:
                group.begin(self.newest)

    def _merge(self) -> None:
        for group in self.groups.values():
            group.shelf()

    @property
    def held_bytes(self) -> int:
        """Bytes held now; to count them takes a moment."""
        held = sum(group.nbytes for group in self.groups.values())
        held += sum(waiting.nbytes for waiting in self.waiting.values())
        held += sum(table.nbytes for table in self._events)
        return held + self._memory.keys_in(self._keys_used())

    def _keys_used(self) -> list[UsedKeys]:
        """The keys of groups, and who refers to them."""
        return [
            UsedKeys(group.space, [group]) for group in self.groups.values() if not group.waiting
        ] + [
            UsedKeys(waiting.space, [waiting, *(self.groups[id] for id in waiting.bound.groups)])
            for waiting in self.waiting.values()
        ]

    def capacities(self) -> list[Capacity]:
        """What grows here, how large it is and may get, and what happens then."""
        return self._memory.capacities(self.held_bytes, self._keys_used())


def _groups(bound: BoundPlan) -> tuple[dict[int, GroupMerger], dict[int, WaitingSet]]:
    """What a merger holds of each group of a bound plan, and its sets of waiting events."""
    groups = {id: GroupMerger(group) for id, group in bound.groups.items()}
    return groups, waiting_sets(bound.waiting, groups)


def _with_stamps(batch: Batch) -> pa.Table:
    """Events as they were read, with time and arrival as they are reckoned with."""
    columns = dict(zip(batch.table.schema.names, batch.table.columns, strict=True))
    stamps = {settled.TIME: pa.array(batch.times), settled.ARRIVAL: pa.array(batch.arrivals)}
    return pa.table(columns | stamps)
