"""Workloads at the edge of reason: slower, or a clear error; never wrong, never out of memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catchment as ct
from catchment.durable.folder import Folder
from catchment.errors import LimitError, SchemaError, SourceError, StateError
from catchment.sources.parquet_file import Parquet

DAY = 86_400 * 10**6


def events(times: np.ndarray, **columns: object) -> pa.Table:
    return pa.table({"ts": pa.array(times, pa.timestamp("us")), **columns})


def spread(count: int) -> np.ndarray:
    return np.sort(np.random.default_rng(1).integers(0, DAY, count))


def test_windows_of_a_microsecond_over_a_day() -> None:
    times = spread(50_000)
    query = ct.Query("q", ct.sum("v").alias("s"), window=ct.tumbling("1us"))
    found = ct.run(events(times, v=np.arange(len(times))), query, spark=False)["q"]
    starts, place = np.unique(times, return_inverse=True)
    sums = np.bincount(place, np.arange(len(times)))
    assert found["window_start"].cast(pa.int64()).to_pylist() == starts.tolist()
    assert found["s"].to_pylist() == sums.astype(int).tolist()


def test_edges_of_several_series_far_apart() -> None:
    times = spread(3_000)
    windows = [ct.tumbling("3us"), ct.sliding("7us", "5us"), ct.tumbling("1s")]
    queries = [ct.Query(f"q{n}", ct.count().alias("n"), window=w) for n, w in enumerate(windows)]
    together = ct.run(events(times), queries, spark=False)
    for query in queries:
        alone = ct.run(events(times), query, spark=False)
        assert together[query.name].equals(alone[query.name]), query.name
    third = np.unique(times // 3, return_counts=True)
    assert together["q0"]["n"].to_pylist() == third[1].tolist()


@pytest.mark.parametrize("count", [2, 40])
def test_more_windows_than_memory_holds_are_refused(count: int) -> None:
    query = ct.Query("q", ct.count().alias("n"), window=ct.sliding("1d", "1us"))
    with pytest.raises(LimitError, match="more windows end at once than memory has room for"):
        ct.run(events(spread(count)), query, spark=False)


def test_a_column_that_changes_its_type() -> None:
    engine = ct.Engine([ct.Query("q", ct.sum("v").alias("s"), window=ct.tumbling("1s"))])
    engine.push(events(np.array([0, 1]), v=[1, 2]))
    for values in (["a", "b"], [[1], [2]]):
        with pytest.raises(SchemaError, match="v"):
            engine.push(events(np.array([2, 3]), v=values))
    engine.push(events(np.array([4, 5]), v=[3, 4]))
    assert engine.close()["q"]["s"].to_pylist() == [10]


@pytest.mark.parametrize("values", [["a", "b"], [1.5, 2.5], [[1], [2]]])
def test_a_file_whose_column_has_another_type(tmp_path: Path, values: list[object]) -> None:
    """A batch refuses it by name; a stream leaves it aside, says why, and goes on."""
    for name, column in (("a", [1, 2]), ("b", values)):
        pq.write_table(events(np.array([0, 1]), v=column), tmp_path / f"{name}.parquet")
    query = ct.Query("q", ct.sum("v").alias("s"), window=ct.tumbling("1s"))
    with pytest.raises(SourceError, match=r"b\.parquet.*column 'v' is .*, not int64"):
        ct.run(tmp_path, query, spark=False)
    source = Parquet(path=str(tmp_path))
    with tempfile.TemporaryDirectory() as home:
        source.open(Folder(home))
        taken = source.splits(source.start(), source.latest(source.start()), 1)
        told = source.never_read()
        source.close()
    assert len(taken) == 1
    assert [(Path(one.origin).name, one.rows, one.waiting) for one in told] == [
        ("b.parquet", 2, True)
    ]
    assert "column 'v' is" in told[0].reason


def test_keys_that_each_come_once() -> None:
    count = 300_000
    keys = np.random.default_rng(2).permutation(count)
    query = ct.Query("q", ct.count().alias("n"), by="k", window=ct.tumbling("1h"))
    found = ct.run(events(spread(count), k=keys), query, spark=False)["q"]
    assert found.num_rows == count
    assert set(found["n"].to_pylist()) == {1}


def test_one_key_with_all_events() -> None:
    times = spread(300_000)
    query = ct.Query("q", ct.count().alias("n"), by="k", window=ct.session("1h"))
    found = ct.run(events(times, k=np.zeros(len(times))), query, spark=False)["q"]
    assert found["n"].to_pylist() == [len(times)]


def test_memory_too_small_for_open_windows() -> None:
    query = ct.Query("q", ct.median("v").alias("m"), by="k", window=ct.tumbling("1d"))
    values = np.random.default_rng(3).random(300_000)
    given = events(spread(len(values)), v=values, k=np.zeros(len(values)))
    with pytest.raises(StateError, match="the state takes more memory than it may"):
        ct.run(given, query, spark=False, state_bytes=1_000_000)
    # Eight bytes for each value are needed, and not much more.
    found = ct.run(given, query, spark=False, state_bytes=3_000_000)["q"]
    assert found["m"].to_pylist() == [pytest.approx(np.median(values))]
