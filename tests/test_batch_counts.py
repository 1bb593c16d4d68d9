"""Count windows of a batch whose events are cut where they were read: as if all had met."""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.counting.distributed import distributed_groups
from catchment.counting.edges import RankEdges
from catchment.engine.slicer import rank
from catchment.model.rules import EventRules
from catchment.planner.planned import NOTHING
from catchment.spark import batch_counts
from catchment.spark.assembling import Assemble
from catchment.spark.batch_counts import (
    CountWindowMerger,
    FindDoubts,
    Sampled,
    SampleRanks,
    SliceAtEdges,
    spans,
)
from catchment.spark.records import SplitRead
from catchment.spark.tasks import Work, bodies, by_bucket, parcel
from catchment.testing.compare import assert_same, rows_of
from catchment.windows.count import count_sliding, count_tumbling

pytestmark = [pytest.mark.spark, pytest.mark.hypothesis]
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("v", pa.int64())])
BUCKETS = 2

window = st.builds(count_sliding, st.integers(1, 30), st.integers(1, 30))
events = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from(["a", "b", None]), st.integers(-9, 9)),
    max_size=120,
)


def parcels_of(work: Work, splits: list[pa.Table]) -> list[pa.RecordBatch]:
    """What tasks have cut, each a split."""
    found = []
    for number, table in enumerate(splits):
        bound = work.bound()
        slicer, merger = bound.slicer(), bound.merger(number)
        for sliced in slicer.slice(table, arrival=rank(number, 0)):
            merger.add(sliced)
        found.append(
            parcel(
                list(by_bucket(work, merger.take(number), SplitRead(number, counts=slicer.counts)))
            )
        )
    return found


def assembled(
    work: Work, parcels: list[pa.RecordBatch], groups: frozenset[int]
) -> dict[str, list[dict[str, object]]]:
    """The rows of every query; with `groups`, count windows put together from what was cut."""
    rows = [row for batch in parcels for row in bodies(iter([batch]))]
    assemble = Assemble(work, partial(CountWindowMerger, groups) if groups else None)
    found: dict[str, list[dict[str, object]]] = {}
    for results, _ in assemble(iter([parcel(rows)])):
        for name, table in results.items():
            found.setdefault(name, []).extend(rows_of(table))
    return found


@given(
    st.lists(events, min_size=1, max_size=4),
    st.lists(window, min_size=1, max_size=3),
    st.integers(1, 40),
)
def test_as_if_all_events_had_met(
    parts: list[list[tuple[int, str | None, int]]], windows: list[ct.Window], samples: int
) -> None:
    splits = [
        pa.Table.from_pylist([{"ts": t, "k": k, "v": v} for t, k, v in part], SCHEMA)
        for part in parts
    ]
    queries = [ct.Query("time", ct.sum("v"), by="k", window=ct.tumbling("20us"))]
    for n, made in enumerate(windows):
        chosen = [ct.sum("v"), ct.median("v"), ct.first("v"), ct.last("v"), ct.count()]
        queries.append(ct.Query(f"all {n}", *chosen, window=made))
        queries.append(ct.Query(f"by {n}", *chosen, by="k", where="v > -5", window=made))
    planned = NOTHING.next(0, {query.name: query for query in queries})
    groups = frozenset(distributed_groups(planned, SCHEMA, "monitor"))
    work = Work(planned.plan.to_bytes(), SCHEMA, EventRules(), BUCKETS, apart=groups)
    assert groups
    parcels = parcels_of(work, splits)
    with patch.object(batch_counts, "_SAMPLES", samples):
        samples = list(SampleRanks(work, groups)(iter(parcels)))
    (doubts,) = (body for _, body in bodies(FindDoubts(work, groups)(iter(samples))))
    beside = [
        batch.append_column("d", pa.array([doubts] * len(batch), pa.binary())) for batch in parcels
    ]
    cut = list(SliceAtEdges(work, groups)(iter(beside)))
    wanted, got = assembled(work, parcels, frozenset()), assembled(work, cut, groups)
    assert wanted.keys() == got.keys()
    for query in queries:
        if query.name in wanted:
            table = pa.Table.from_pylist(got[query.name])
            assert_same(wanted[query.name], table, query.name, keys=query.keys)


@given(
    st.lists(st.lists(st.integers(0, 200), min_size=1), min_size=1, max_size=4),
    window,
    st.integers(1, 9),
)
def test_every_edge_is_in_doubt_where_it_is(
    parts: list[list[int]], made: ct.Window, step: int
) -> None:
    sorted_parts = [np.sort(np.array(part)) for part in parts]
    edges = RankEdges([made])  # type: ignore[list-item]
    bounds = spans([Sampled(len(p), step, p[::step]) for p in sorted_parts], edges)
    assert (np.diff(bounds) >= 0).all() and len(bounds) % 2 == 0
    every = np.sort(np.concatenate(sorted_parts))
    rank = edges.after(0)
    while rank <= len(every):
        # An edge is between two events: neither both before all spans' begin, nor both after.
        place = np.searchsorted(bounds, every[rank - 1], "right")
        assert place % 2 == 1 or place != np.searchsorted(
            bounds, every[rank] if rank < len(every) else 2**62, "right"
        )
        rank = edges.after(rank)


def test_few_events_are_in_doubt() -> None:
    times = np.arange(1_000_000)
    parts = [Sampled(250_000, 390, times[n::4][::390]) for n in range(4)]
    bounds = spans(parts, RankEdges([count_tumbling(100_000)])).reshape(-1, 2)
    assert len(bounds) == 10
    assert (np.diff(bounds[:-1], axis=1) < 5_000).all()
