"""Count windows of a batch: samples tell where edges lie, before anything is shuffled.

Events stay with the task that read them, as one partial between two edges, but for the few that may
be on either side of an edge: those meet, and say exactly where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from msgspec import Struct

from catchment.counting import wire
from catchment.counting.edges import RankEdges
from catchment.counting.leaf_by_key import key_of, segments
from catchment.counting.orders import Key
from catchment.counting.slice_between_edges import SliceBetweenEdges, full_of
from catchment.counting.windows import Slice, SliceList
from catchment.engine import codec, settled
from catchment.engine.bound import BoundPlan
from catchment.engine.merger import GroupMerger
from catchment.engine.parcels import pack_partials, unpack_partials
from catchment.engine.partials import Partials, events_of, events_of_group, rows_of, stamped
from catchment.engine.rows import Rows, concat_rows
from catchment.engine.shapes.counted import events_not_full
from catchment.operators.ragged import Ints
from catchment.planner.edges import EARLIEST, LATEST
from catchment.planner.group import counts_of
from catchment.spark.records import SplitRead
from catchment.spark.tasks import Work, bodies, parcel

_SAMPLES = 256
"""So many of the events between two edges are sampled."""
_REGION, _EVENTS = "#region", "#events"

GroupKey = tuple[int, Key]
"""Group and key."""
Doubts = dict[GroupKey, Ints]
"""Spans of time in which an edge is, one after the other: begin, end, begin, end."""


FoundDoubts = list[tuple[GroupKey, Ints]]
"""The same, as one task tells it to the others."""


class Sampled(Struct, frozen=True, array_like=True):
    """Some events of a lane in one task: every so many, in order."""

    events: int
    step: int
    times: Ints


KeySamples = list[tuple[GroupKey, Sampled]]
"""What a task has sampled."""


@dataclass(frozen=True)
class SampleRanks:
    """In a task: where events of lanes are."""

    work: Work
    groups: frozenset[int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        groups = self.work.bound().merger().groups
        lanes: dict[GroupKey, list[Ints]] = {}
        for _, body in bodies(batches):
            for id, table in unpack_partials(body, SplitRead)[0].groups.items():
                if id in self.groups:
                    mine = events_of_group(table, groups[id].bound)
                    for key, times in self._of(groups[id], mine):
                        lanes.setdefault((id, key), []).append(times)
        found = [(lane, self._sampled(lane[0], times)) for lane, times in lanes.items()]
        yield parcel([(0, wire.dump(found))])

    def _of(self, held: GroupMerger, table: pa.Table) -> Iterator[tuple[Key, Ints]]:
        events = _coded(held, table)
        keys, times = codec.ints(events, settled.KEY), codec.ints(events, settled.TIME)
        for code, rows in segments(keys):
            yield key_of(held.keys, code), times[rows]

    def _sampled(self, id: int, times: list[Ints]) -> Sampled:
        """One list for all that the task has of a lane: each further one adds doubt."""
        step = max(1, RankEdges(counts_of(self.work.plan.groups[id])).longest // _SAMPLES)
        mine = np.sort(np.concatenate(times))
        return Sampled(len(mine), step, mine[::step])


@dataclass(frozen=True)
class FindDoubts:
    """In one task: where edges may be, by what all tasks have sampled."""

    work: Work
    groups: frozenset[int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        groups = self.work.plan.groups
        edges = {id: RankEdges(counts_of(groups[id])) for id in self.groups}
        found = doubts_of((body for _, body in bodies(batches)), edges)
        yield parcel([(0, wire.dump(list(found.items())))])


def doubts_of(samples: Iterator[bytes], windows: Mapping[int, RankEdges]) -> Doubts:
    """Where edges may be, by what all tasks have sampled."""
    lanes: dict[GroupKey, list[Sampled]] = {}
    for body in samples:
        for lane, sampled in wire.load(KeySamples, body):
            lanes.setdefault(lane, []).append(sampled)
    return {lane: spans(found, windows[lane[0]]) for lane, found in lanes.items()}


def spans(samples: list[Sampled], edges: RankEdges) -> Ints:
    """Where the edges of a lane are: every event before a span is before its edges, every event
    from its end on is after them.

    >>> from catchment.windows.count import count_tumbling
    >>> some = Sampled(10, 2, np.array([0, 20, 40, 60, 80]))  # an event each 10
    >>> spans([some], RankEdges([count_tumbling(5)])).tolist()
    [40, 60, 80, 4611686018427387904]
    """
    times = np.unique(np.concatenate([part.times for part in samples]))
    least, most = np.zeros(len(times), np.int64), np.zeros(len(times), np.int64)
    for part in samples:
        before = np.searchsorted(part.times, times)
        least += np.where(before > 0, (before - 1) * part.step + 1, 0)
        most += np.where(before < len(part.times), before * part.step, part.events)
    found: list[int] = []
    rank, total = edges.after(0), sum(part.events for part in samples)
    while rank <= total:
        low, high = np.searchsorted(most, rank, "right") - 1, np.searchsorted(least, rank)
        begin = int(times[low]) if low >= 0 else EARLIEST
        end = int(times[high]) if high < len(times) else LATEST
        if found and begin < found[-1]:
            found[-1] = max(found[-1], end)
        else:
            found += [begin, end]
        rank = edges.after(rank)
    return np.array(found, np.int64)


@dataclass(frozen=True)
class SliceAtEdges:
    """In a task: partials of events that are between edges, and the events that are in doubt.

    What `FindDoubts` found is beside every parcel, the same for all.
    """

    work: Work
    groups: frozenset[int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        groups = self.work.bound().merger().groups
        doubts: Doubts | None = None
        for batch in batches:
            for bucket, body in bodies(iter([batch])):
                if doubts is None:
                    doubts = dict(wire.load(FoundDoubts, batch.column(2)[0].as_py()))
                partials, note = unpack_partials(body, SplitRead)
                for id in self.groups & partials.groups.keys():
                    mine = events_of_group(partials.groups[id], groups[id].bound)
                    events = settled.ordered([_coded(groups[id], mine)])
                    near, regions = self._cut(groups[id], id, events, doubts)
                    partials.groups[id], partials.regions[id] = near, regions
                yield parcel([(bucket, pack_partials(partials, note))])

    def _cut(
        self, held: GroupMerger, id: int, events: settled.Ordered, doubts: Doubts
    ) -> tuple[pa.Table, pa.Table]:
        """The events in doubt, and the regions. Spans of doubt and regions alternate; regions are
        even."""
        place = np.zeros(len(events), np.int64)
        for begin, end in zip(events.heads, [*events.heads[1:], len(events)], strict=True):
            bounds = doubts[id, key_of(held.keys, int(events.key[begin]))]
            place[begin:end] = np.searchsorted(bounds, events.time[begin:end], "right")
        cuts = np.zeros(len(events), np.bool_)
        cuts[1:] = place[1:] != place[:-1]
        rows, heads = settled.cut_rows(events, cuts, held.bound.group, held.bound.operators)
        counts = np.diff(np.append(heads, len(events)))
        sure = place[heads] % 2 == 0
        regions = codec.rows_to_table(rows.where(sure), held.bound.operators).drop_columns(["key"])
        regions = regions.append_column(_REGION, pa.array(place[heads][sure]))
        regions = regions.append_column(_EVENTS, pa.array(counts[sure]))
        near = np.flatnonzero(place % 2 == 1)
        table = events.table.drop_columns([settled.KEY]).take(near)
        table = table.append_column(_REGION, pa.array(place[near]))
        return _keyed(held, table, events.key[near]), _keyed(held, regions, rows.key[sure])


def _keyed(held: GroupMerger, table: pa.Table, code: Ints) -> pa.Table:
    selection, keys = held.keys.selections[code], held.keys.take(code)
    return stamped(table, held.bound.group.by, held.bound.types, selection, keys, 0, 0)


# -- where a bucket is assembled ------------------------------------------------------------------


class CountWindowMerger:
    """All that tasks have cut apart for a bucket: puts count windows together."""

    def __init__(self, groups: frozenset[int], bound: BoundPlan) -> None:
        self.groups = groups
        self._held = bound.merger().groups
        self._events: dict[int, list[pa.Table]] = {}
        self._regions: dict[int, list[pa.Table]] = {}
        self.not_full = (0, 0)
        """Windows that have begun and are not full, and the events in them."""

    def take(self, partials: Partials) -> Partials:
        """Takes what is its own; the rest."""
        rest: dict[int, pa.Table] = {}
        for id, table in partials.groups.items():
            if id in self.groups:
                self._events.setdefault(id, []).append(table)
            else:
                rest[id] = table
        for id, table in partials.regions.items():
            self._regions.setdefault(id, []).append(table)
        return Partials(rest, partials.events)

    def full(self) -> Iterator[Partials]:
        """The windows that are full, as partials."""
        for id in sorted(self._events.keys() | self._regions.keys()):
            yield from (Partials({id: table}) for table in self._of(id))

    def _of(self, id: int) -> Iterator[pa.Table]:
        held = self._held[id]
        edges = RankEdges(counts_of(held.bound.group))
        rows, ranks = self._rows(id, held, edges)
        for code, mine in segments(rows.key):
            self._count(edges, int(ranks[mine].max()))
            lift, windows = SliceBetweenEdges(held.bound), []
            shelf = SliceList(edges, lift)
            places = _slices(ranks[mine], edges)
            low = 0
            for number, high in enumerate(_upto(edges, int(ranks[mine].max()))):
                chosen = rows.take(mine[places == number])
                one = lift.merge([lift.pack(chosen)])
                windows += shelf.add(Slice(low, high, one, True, ()))
                low = high
            if windows:
                yield full_of(lift, key_of(held.keys, code), windows)

    def _count(self, edges: RankEdges, total: int) -> None:
        for window in edges.windows:
            found = events_not_full(window, np.array([total], np.int64))
            self.not_full = (self.not_full[0] + found[0], self.not_full[1] + found[1])

    def _rows(self, id: int, held: GroupMerger, edges: RankEdges) -> tuple[Rows, Ints]:
        """Rows that no edge divides, and the rank of the last event of each."""
        events = [_coded(held, table, _REGION) for table in self._events.get(id, [])]
        numbers = [settled.KEY, settled.TIME, settled.ARRIVAL, _REGION]
        none = pa.schema([*(pa.field(name, pa.int64()) for name in numbers), *held.bound.values])
        near = settled.ordered([none.empty_table(), *events])
        regions = self._regions.get(id, [])
        sure = [rows_of(held, table) for table in regions]
        known = concat_rows(sure, held.bound.operators)
        ranks = _ranked(
            np.concatenate([near.key, known.key]),
            np.concatenate([codec.ints(t, _REGION) for t in (near.table, *regions)]),
            np.concatenate(
                [np.ones(len(near), np.int64), *(codec.ints(t, _EVENTS) for t in regions)]
            ),
        )
        if not len(near):
            return known, ranks
        places = _slices(ranks[: len(near)], edges)
        cuts = np.append(False, places[1:] != places[:-1])
        parts, first = settled.cut_rows(near, cuts, held.bound.group, held.bound.operators)
        last = np.append(first[1:], len(near)) - 1
        ranks = np.concatenate([ranks[last], ranks[len(near) :]])
        return concat_rows([parts, known], held.bound.operators), ranks


def _coded(held: GroupMerger, table: pa.Table, *more: str) -> pa.Table:
    """Events of a group, under the codes that their keys have here."""
    names = [settled.TIME, settled.ARRIVAL, *more, *held.bound.columns]
    return events_of(held, table, held.bound.group.by, names, None)


def _ranked(keys: Ints, places: Ints, counts: Ints) -> Ints:
    """How many events of its key there are up to each row, itself with them.

    Places are in order; in one place rows are as given. All rows of a region are between the same
    edges, so it does not matter which is first.
    """
    order = np.lexsort((places, keys))
    key, count = keys[order], counts[order]
    total = np.cumsum(count)
    heads = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
    before = np.repeat(total[heads] - count[heads], np.diff(np.append(heads, len(key))))
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = total - before
    return ranks


def _upto(edges: RankEdges, total: int) -> list[int]:
    """The ranks of all edges up to a rank."""
    found, rank = [], edges.after(0)
    while rank <= total:
        found.append(rank)
        rank = edges.after(rank)
    return found


def _slices(ranks: Ints, edges: RankEdges) -> Ints:
    """Which slice each row is in, by the rank of its last event."""
    return np.searchsorted(_upto(edges, int(ranks.max(initial=0))), ranks)
