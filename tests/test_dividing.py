"""Partials of a bucket, divided by key where they are many: the same results, in less memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.engine.parcels import divided, pack_partials, share_out, share_sizes
from catchment.engine.partials import Partials
from catchment.engine.slicer import rank
from catchment.errors import StateError
from catchment.model.rules import EventRules
from catchment.planner import plan as make_plan
from catchment.spark import dividing, tasks
from catchment.spark.assembling import Assemble
from catchment.spark.dividing import PackedShares, at_once
from catchment.spark.local_parcels import FileParcels
from catchment.spark.records import SplitRead
from catchment.spark.tasks import SHARES, Work, bodies, by_bucket, parcel, ready, share_of
from catchment.testing.compare import assert_same, rows_of

pytestmark = pytest.mark.spark

SECOND = 1_000_000
QUERIES = [
    ct.Query("sums", ct.sum("v"), ct.count(), by="k", window=ct.sliding("4s", "2s")),
    ct.Query("pairs", ct.max("v"), by=["k", "t"], window=ct.tumbling("3s")),
    ct.Query("texts", ct.avg("v"), by="t", window=ct.session("1s")),
    ct.Query("hundreds", ct.sum("v"), ct.last("v"), by="k", window=ct.count_tumbling(3)),
    ct.Query("all", ct.sum("v"), window=ct.tumbling("1s")),
    ct.Query("marks", ct.count(), window=ct.cut("v = 7")),
    ct.sql(
        "SELECT k, sum(v) AS s FROM events GROUP BY k, window(ts, '4 seconds') "
        "ORDER BY s DESC, k LIMIT 3",
        "top",
    ),
    ct.sql(
        "SELECT t, count(*) AS n FROM events GROUP BY ROLLUP(t), window(ts, '4 seconds')",
        "subtotals",
    ),
    ct.Query("once", ct.count(), by="k", window=ct.tumbling("5s"), distinct_on=["k", "v"]),
]


def events(rows: int, keys: int, seed: int = 1) -> pa.Table:
    dice = np.random.default_rng(seed)
    numbers = dice.integers(0, keys, rows)
    return pa.table(
        {
            "ts": pa.array(np.sort(dice.integers(0, 20 * SECOND, rows)), pa.timestamp("us", "UTC")),
            "k": pa.array(numbers, mask=numbers == 0),
            "t": pa.array([None if n % 7 == 0 else f"key {n % 50}" for n in numbers.tolist()]),
            "v": pa.array(dice.integers(0, 50, rows)),
        }
    )


def worked(queries: list[ct.Query], schema: pa.Schema, **options: Any) -> Work:
    return Work(make_plan(queries).to_bytes(), schema, EventRules(), 2, **options)


def parcels_of(work: Work, splits: list[pa.Table]) -> Iterator[tuple[int, bytes]]:
    """What tasks hand on, each of a split."""
    for number, table in enumerate(splits):
        bound = work.bound()
        merger = bound.merger(number)
        slicer = bound.slicer(encoder=merger.encoder)
        pieces = 0
        for low in range(0, table.num_rows, 500):
            for sliced in slicer.slice(table.slice(low, 500), arrival=rank(number, low)):
                merger.add(sliced)
                note = SplitRead(number, pieces)
                yield from by_bucket(work, ready(merger, sliced, number), note)
                pieces += 1
        yield from by_bucket(work, merger.take(number), SplitRead(number, pieces, slicer.counts))


def assembled(
    work: Work, parcels: list[tuple[int, bytes]]
) -> tuple[dict[str, pa.Table], dict[str, int], int]:
    """Tables by query, what was counted, and how many shares there were."""
    tables: dict[str, list[pa.Table]] = {}
    counts: dict[str, int] = {}
    shares = 0
    for bucket in range(work.buckets):
        mine = [row for row in parcels if share_of(row[0], work.buckets)[0] == bucket]
        for results, made in Assemble(work)(iter([parcel(mine)] if mine else [])):
            shares += 1
            for name, count in made.counts.items():
                counts[name] = counts.get(name, 0) + count
            for name in work.plan.names:
                tables.setdefault(name, []).append(results[name])
    return {name: pa.concat_tables(parts) for name, parts in tables.items()}, counts, shares


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a few thousand events pass."""
    monkeypatch.setattr(tasks, "_DIVIDED", 300)
    monkeypatch.setattr(tasks, "_FEW", 100)
    monkeypatch.setattr(dividing, "_LEAST", 2_000)
    monkeypatch.setattr(dividing, "_AT_ONCE", 24_000)
    monkeypatch.setattr(dividing, "_IN_MEMORY", 30_000)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("keys", [2, 5_000])
def test_shares_give_what_all_at_once_gives(keys: int) -> None:
    splits = [events(1_200, keys, seed) for seed in (1, 2)]
    whole = pa.concat_tables(splits)
    work = worked(QUERIES, whole.schema)
    parcels = list(parcels_of(work, splits))
    tables, counts, shares = assembled(work, parcels)
    assert shares > work.buckets
    # Events of one time are in the order of their nodes: of two splits, of their arrival.
    wanted = ct.run(whole, QUERIES, spark=False)
    assert counts["events"] == whole.num_rows
    for name in ("duplicates", "results", "open_windows", "open_events"):
        assert counts[name] == wanted.counts[name], name
    for query in QUERIES:
        if query.name != "hundreds":  # ranks of equal times differ: the splits are two nodes here
            table = wanted[query.name]
            keys_of = table.schema.names[: table.schema.get_field_index("window_start")]
            assert_same(rows_of(table), tables[query.name], query.name, keys=keys_of)
    assert tables["hundreds"].num_rows == wanted["hundreds"].num_rows


@pytest.mark.usefixtures("small")
def test_slices_that_merging_would_not_reduce_are_handed_on() -> None:
    """Of many keys, parcels leave before the split is read; of few, one for each bucket does."""
    query = ct.Query("q", ct.sum("v"), by="k", window=ct.tumbling("1h"))
    for keys, early in ((100_000, True), (5, False)):
        table = events(3_000, keys)
        work = worked([query], table.schema)
        numbers = [number for number, _ in parcels_of(work, [table])]
        assert (len(numbers) > 3) == early
        assert any(number >= work.buckets for number in numbers) == early


def test_slices_that_a_task_holds_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much merging would still reduce them: here to a few keys."""
    query = ct.Query("q", ct.sum("v"), by="k", window=ct.tumbling("1s"))
    table = events(3_000, 2)
    work = worked([query], table.schema)
    found = []
    for many in (1 << 20, 5):
        monkeypatch.setattr(tasks, "_MANY", many)
        found.append([number for number, _ in parcels_of(work, [table])])
    assert len(found[0]) <= work.buckets < len(found[1])


@given(st.integers(1, 5), st.lists(st.integers(-9, 9) | st.none(), min_size=1), st.booleans())
def test_dividing_twice_is_dividing_once(buckets: int, keys: list[int | None], text: bool) -> None:
    values = pa.array([None if k is None else f"k{k}" for k in keys] if text else keys)
    table = pa.table(
        {
            "ts": pa.array(range(len(keys)), pa.timestamp("us", "UTC")),
            "k": values.cast(pa.string() if text else pa.int64()),
        }
    )
    query = ct.Query("q", ct.count(), by="k", window=ct.tumbling("1s"))
    other = ct.Query("r", ct.count(), window=ct.tumbling("1s"))
    plan = make_plan([query, other])
    partials = ct.slice(table, plan)
    once = share_out(partials, plan, buckets * SHARES)
    twice = {
        bucket + buckets * share: part
        for bucket, some in share_out(partials, plan, buckets).items()
        for share, part in divided(some, plan, buckets, SHARES).items()
    }
    assert once.keys() == twice.keys()
    sizes = {
        bucket: share_sizes(some, plan, buckets, SHARES)
        for bucket, some in share_out(partials, plan, buckets).items()
    }
    for place, part in once.items():
        assert part.rows == sizes[place % buckets][place // buckets]
        assert part.groups.keys() == twice[place].groups.keys()
        for id, rows in part.groups.items():
            assert rows.equals(twice[place].groups[id])


def test_a_spool_gives_back_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dividing, "_IN_MEMORY", 100)
    given = [(n % 3 or None, bytes([n]) * (n * 7 % 60)) for n in range(1, 40)]
    with PackedShares() as spool:
        for share, body in given:
            spool.add(share, body)
        assert spool.size == sum(len(body) for _, body in given)
        assert 0 < spool.in_memory <= 100  # the others are in a file
        assert list(spool.take(1)) == [body for share, body in given if share == 1]
        assert list(spool.take(1)) == []
        assert spool.size_of(None) == sum(len(body) for share, body in given if share is None)
        rest = [body for share, body in given if share != 1]
        assert [*spool.take(None), *spool.take(2)] == sorted(rest, key=lambda b: b[:1] and b[0] % 3)
        assert spool.size == 0


def test_large_parcels_are_left_in_files(tmp_path: Path) -> None:
    files = FileParcels(str(tmp_path))
    few, many = b"few", bytes(1 << 16)
    assert files.put("0-0", few) == few and not list(tmp_path.iterdir())
    reference = files.put("0-1", many)
    assert files.put("0-1", many) == reference and len(reference) < 1000  # a task that runs again
    assert [path.name for path in tmp_path.iterdir()] == ["0-1"]
    assert FileParcels(str(tmp_path / "gone")).put("0-0", many) == many
    with PackedShares() as spool:
        for body in (few, reference):
            spool.add(2, body)
        assert spool.size == spool.size_of(2) == len(few) + len(many)
        assert spool.in_memory == len(few)
        assert list(spool.look(2)) == list(spool.take(2)) == [few, many]
        assert spool.size == spool.in_memory == 0


def test_memory_that_is_too_little_is_said() -> None:
    table = events(4_000, 1_000)
    keyed = ct.Query("q", ct.median("v"), by="k", window=ct.tumbling("1h"))
    alone = ct.Query("a", ct.median("v"), window=ct.tumbling("1h"))
    for query in (keyed, alone):
        work = worked([query], table.schema, state_bytes=1_000)
        with pytest.raises(StateError, match=r"even divided by key.*allow more with state_bytes"):
            assembled(work, list(parcels_of(work, [table])))
    work = worked([keyed], table.schema, state_bytes=1 << 30)
    assert assembled(work, list(parcels_of(work, [table])))[1]["results"] > 0


@pytest.mark.usefixtures("small")
def test_less_memory_means_smaller_shares() -> None:
    table = events(3_000, 100_000)
    query = ct.Query("q", ct.sum("v"), by="k", window=ct.tumbling("1h"))
    found = []
    for state_bytes in (None, 48_000):
        work = worked([query], table.schema, state_bytes=state_bytes)
        found.append(assembled(work, list(parcels_of(work, [table])))[2])
    assert found[1] > found[0]
    assert at_once(1) == 2_000 and at_once(1 << 40) == 24_000


def test_bodies_are_those_of_parcels() -> None:
    assert list(bodies(iter([parcel([(3, b"x"), (0, b"")])]))) == [(3, b"x"), (0, b"")]


@pytest.mark.usefixtures("small")
def test_what_is_of_one_key_is_not_packed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share of one key is larger than what is assembled at once, and stays one share."""
    rows = 0

    def counted(partials: Partials, note: SplitRead) -> bytes:
        nonlocal rows
        rows += partials.rows
        return pack_partials(partials, note)

    monkeypatch.setattr(dividing, "pack_partials", counted)
    query = ct.Query("q", ct.count(), by="k", window=ct.cut("v > 100"))
    table = events(4_000, 1)
    work = worked([query], table.schema)
    parcels = list(parcels_of(work, [table]))
    assert sum(len(body) for _, body in parcels) > dividing._AT_ONCE
    _, counts, shares = assembled(work, parcels)
    assert (counts["events"], shares, rows) == (4_000, 1, 0)
