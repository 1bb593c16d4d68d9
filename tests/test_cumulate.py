"""Windows that grow, on every runtime, against brute force written out here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.job.window import read_window
from catchment.model.window import window_from_dict
from catchment.simulate import World
from catchment.testing.compare import assert_same, rows_of
from catchment.windows.cumulate import Cumulate
from trees import SECOND, batches, charter, check

Bounds = tuple[int, int]


def brute_force(times: list[int], size: int, step: int, offset: int = 0) -> dict[Bounds, int]:
    """Straight from the definition: how many events each window holds, of those with any."""
    found: dict[Bounds, int] = {}
    for k in range(min(times) // size - 2, max(times) // size + 2):
        for j in range(1, size // step + 1):
            start = offset + k * size
            end = start + j * step
            count = sum(start <= time < end for time in times)
            if count:
                found[start, end] = count
    return found


def counted(table: pa.Table) -> dict[Bounds, int]:
    rows = rows_of(table)
    found = {(row["window_start"], row["window_end"]): row["n"] for row in rows}
    assert len(found) == len(rows)
    return found


def query(size: int, step: int, offset: int = 0) -> ct.Query:
    window = ct.cumulate(f"{size}us", f"{step}us", offset=f"{offset}us")
    return ct.Query("q", ct.count().alias("n"), window=window)


def events(times: list[int]) -> pa.Table:
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC"))})


def test_the_windows() -> None:
    # ts    0   1   2   3   4   5   6   7   8   9
    #           x       x               x            size 6, step 2
    #       [-------)[0, 2)
    #       [---------------)[0, 4)
    #       [-----------------------)[0, 6)
    #                               [-------)[6, 8) ... [6, 12)
    engine = ct.Engine([query(6, 2)])
    engine.push(events([1, 3, 7]))
    assert counted(engine.advance(6)["q"]) == {(0, 2): 1, (0, 4): 2, (0, 6): 2}
    assert counted(engine.close()["q"]) == {(6, 8): 1, (6, 10): 1, (6, 12): 1}


def test_results_are_in_order_of_their_bounds() -> None:
    engine = ct.Engine([query(6, 2)])
    engine.push(events([1, 3, 7]))
    bounds = list(counted(engine.close()["q"]))
    assert bounds == [(0, 2), (0, 4), (0, 6), (6, 8), (6, 10), (6, 12)]


@given(
    times=st.lists(st.integers(-30, 60), min_size=1, max_size=25),
    step=st.integers(1, 7),
    steps=st.integers(1, 6),
    offset=st.integers(0, 9),
    batch=st.integers(1, 6),
)
def test_an_engine(times: list[int], step: int, steps: int, offset: int, batch: int) -> None:
    """Events in any order, the frontier as far as it may go after each batch."""
    size = step * steps
    engine = ct.Engine([query(size, step, offset)])
    found: dict[Bounds, int] = {}
    for at in range(0, len(times), batch):
        engine.push(events(times[at : at + batch]))
        rest = times[at + batch :]
        given = counted((engine.advance(min(rest)) if rest else engine.close())["q"])
        assert not given.keys() & found.keys()
        found |= given
    assert found == brute_force(times, size, step, offset % size)


@given(times=st.lists(st.integers(0, 40), min_size=1, max_size=20), late=st.integers(0, 40))
def test_a_late_event_corrects_every_window_that_it_is_in(times: list[int], late: int) -> None:
    engine = ct.Engine([query(12, 4)], late="update", keep="1h")
    engine.push(events(times))
    held = counted(engine.advance(50)["q"])
    engine.push(events([late]))
    changed = counted(engine.advance(50)["q"])
    assert held | changed == brute_force([*times, late], 12, 4)
    assert all(start <= late < end for start, end in changed)


def test_one_added_to_a_running_engine_shares_its_slices() -> None:
    engine = ct.Engine([ct.Query("each", ct.count().alias("n"), window=ct.tumbling("2us"))])
    engine.push(events([0, 1, 3, 7]))
    engine.advance(2)
    engine.add(query(12, 4))
    assert len(engine.plan.groups) == 1
    engine.push(events([9, 13]))
    added = counted(engine.close()["q"])
    truth = brute_force([0, 1, 3, 7, 9, 13], 12, 4)
    assert added.items() <= truth.items()
    assert added.keys() >= {(12, 16), (12, 20), (12, 24)}


def test_a_tree() -> None:
    parents = {"root": None, "m": "root", "a": "m", "b": "m", "c": "root"}
    window = ct.cumulate("4s", "1s")
    queries = [
        ct.Query("so_far", ct.sum("v"), ct.median("v"), by="k", window=window),
        ct.Query("visits", ct.count(), by="k", window=ct.session("700ms")),
    ]
    arrived = {id: batches(n, count=120, spread=12) for n, id in enumerate("abc")}
    world = World(charter(parents, queries), arrived, until=0)
    world.run()
    assert world.done
    check(world.deliveries, arrived, queries)


@pytest.mark.spark
def test_spark(spark: Any, tmp_path: Path) -> None:
    """A batch of an Arrow table and of a DataFrame, and a streaming job."""
    import pyarrow.parquet as pq

    from catchment.sinks.parquet import ParquetSink
    from catchment.sources.parquet_file import Parquet

    table = pa.concat_tables(batches(3, count=400))
    queries = [ct.Query("q", ct.sum("v"), ct.count(), by="k", window=ct.cumulate("4s", "1s"))]
    engine = ct.Engine(queries)
    engine.push(table)
    truth = rows_of(engine.close()["q"])
    assert_same(truth, ct.run(table, queries, spark=spark)["q"], "arrow")
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(table, folder / "0.parquet")
    frame = spark.read.parquet(str(folder))
    assert_same(truth, ct.run(frame, queries, spark=spark)["q"], "frame")
    job = ct.Job(
        name="growing",
        queries=queries,
        trigger="available-now",
        source=Parquet(path=str(folder)),
        checkpoint=str(tmp_path / "state"),
        sinks=[ParquetSink(path=str(tmp_path / "out"))],
    )
    job.start(spark).wait()
    newest = max(table.column("ts").cast(pa.int64()).to_pylist())
    done = [row for row in truth if row["window_end"] <= newest]
    assert len(done) > 40
    assert_same(done, ParquetSink(path=str(tmp_path / "out")).read("q"), "stream")


def test_python_sql_and_yaml_say_the_same() -> None:
    window = ct.cumulate("1h", "10min", offset="5min")
    text = "SELECT count(*) FROM events GROUP BY cumulate_window(ts, '1 hour', '10 min', '5 min')"
    assert ct.sql(text, name="q").window == window
    assert read_window("cumulate(1h, 10min, offset=5min)", "window") == window
    options = {"size": "1h", "step": "10min", "offset": "5min"}
    assert read_window({"cumulate": options}, "window") == window
    assert window_from_dict(window.to_dict()) == window
    assert window.describe() == "cumulate(1h, 10m, offset=5m)"


def test_a_step_as_long_as_the_size_is_a_tumbling_window() -> None:
    assert ct.cumulate("5s", "5s", offset="1s") == ct.tumbling("5s", offset="1s")
    assert ct.cumulate("5s", "1s", offset="7s") == Cumulate(5 * SECOND, SECOND, 2 * SECOND)


def test_a_day_by_seconds() -> None:
    """Many windows of one start are as cheap as their results."""
    engine = ct.Engine([ct.Query("q", ct.count().alias("n"), window=ct.cumulate("1d", "1s"))])
    engine.push(events([second * SECOND for second in range(0, 86_400, 3_600)]))
    found = counted(engine.close()["q"])
    assert len(found) == 86_400 and found[0, 86_400 * SECOND] == 24
