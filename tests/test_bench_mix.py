"""The suite of mixes: other systems answer alike, mixes have every kind, figures have bars."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catchment as ct
from benchmarks import (
    mix_batch,
    mix_driver,
    mix_engine,
    mix_files,
    mix_keys,
    mix_random,
    mix_sql,
    mix_stream,
)
from benchmarks.events import Workload
from benchmarks.process import peak_bytes
from benchmarks.spark_data import FILES, Files
from benchmarks.spark_stream import BATCH
from catchment import functions
from catchment.cli import demo
from catchment.cli.demo_queries import mix
from catchment.errors import CatchmentError
from catchment.functions import built_in
from catchment.model.window import Window
from schedules import in_soak

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = [query.name for query in mix()]


@cache
def load() -> Workload:
    return mix_engine.batches(demo.EVENTS, 100_000, size=40_000)


@cache
def answers() -> dict[str, pa.Table]:
    engine = ct.Engine(mix(), lateness="2s")
    for step in load().steps:
        engine.push(step.table)
    return dict(engine.close())


def test_every_query_of_the_demo_is_asked_of_the_others() -> None:
    assert sorted(mix_sql.for_duckdb()) == sorted(mix_sql.for_spark()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_duckdb_answers_as_the_engine_does(name: str) -> None:
    text = mix_sql.for_duckdb()[name]
    theirs = mix_engine.in_memory(load()).sql(text).to_arrow_table()
    assert theirs.num_rows > 0, "a comparison of nothing"
    mix_sql.agree(name, answers()[name], theirs)


@pytest.mark.spark
@in_soak
def test_spark_answers_as_the_engine_does(spark: SparkSession) -> None:
    from catchment.spark.session import frame_of

    frame_of(spark, pa.concat_tables([step.table for step in load().steps])).createTempView(
        "events"
    )
    try:
        for name, text in mix_sql.for_spark().items():
            mix_sql.agree(name, answers()[name], spark.sql(text).toArrow())
    finally:
        spark.catalog.dropTempView("events")


@pytest.mark.spark
@in_soak
def test_spark_answers_from_files(spark: SparkSession) -> None:
    with mix_files.demo_files(80_000) as files:
        assert len(files.paths) == FILES
        found = list(mix_batch.compared(spark, files, runs=1))
        assert [figure.bar for figure in found] == [25, 4]
        queries = [query for query in mix() if query.name in mix_stream.STREAMED]
        streamed = mix_stream.streamed(spark, files, queries)
        assert len(queries) == len(mix_stream.STREAMED)
        assert streamed.batches == streamed.empty + FILES // BATCH
        assert streamed.rate > 0 and streamed.seconds > 0


def test_the_cause_of_a_failure_is_told() -> None:
    text = "An error occurred\n  at x\nCaused by: a\n  at y\nCaused by: results too large\n at z"
    assert mix_files.error_line(ValueError(text)) == "Caused by: results too large"
    assert mix_files.error_line(ValueError("no room\nleft")) == "no room"
    assert mix_files.error_line(ValueError()) == "ValueError"


def many(paths: list[str]) -> int:
    return len(paths)


@pytest.mark.slow
def test_a_job_that_fails_has_no_speed() -> None:
    def fails(paths: list[str]) -> int:
        raise CatchmentError("no room left")

    load = Files(Path("nowhere"), 10, 10, 10)
    found = mix_keys.against("keys", fails, many, 1.5, load, runs=1)
    assert (found.value, found.ok) == (0.0, False) and "no room left" in found.detail
    assert mix_keys.against("keys", many, many, 1e-9, load, runs=2).ok is True
    with pytest.raises(CatchmentError, match="Spark finds other windows"):
        mix_keys.against("keys", lambda paths: 7, many, 1.5, load, runs=1)


@pytest.mark.parametrize(
    ("peak", "failed", "ok"), [(110, "", True), (130, "", False), (110, "too large", False)]
)
def test_the_driver_must_neither_grow_nor_fail(
    peak: int, failed: str, ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alone(folder: str, slides: int) -> dict[str, Any]:
        events = pq.read_metadata(Path(folder) / "events.parquet").num_rows
        if slides == 1:
            return {"bytes": 100, "rows": events, "failed": ""}
        return {"bytes": peak, "rows": 0 if failed else events * slides, "failed": failed}

    monkeypatch.setattr(mix_driver, "alone", alone)
    (found,) = mix_driver.figures(quick=True)
    assert found.ok is ok and found.value == peak / 100
    assert failed in found.detail


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_the_peak_of_a_process_is_known() -> None:
    assert peak_bytes(os.getpid()) > 10_000_000
    with pytest.raises(CatchmentError, match="the peak of a process's memory is not known"):
        peak_bytes(1 << 30)


def test_other_answers_are_noticed() -> None:
    ours = answers()["speed"]
    mix_sql.agree("speed", ours, ours)
    with pytest.raises(CatchmentError, match="speed: 10 and 9 rows"):
        mix_sql.agree("speed", ours, ours.slice(1))
    place = ours.column_names.index("mean")
    wrong = ours.set_column(place, "mean", pa.array([0.0] * ours.num_rows))
    with pytest.raises(CatchmentError, match="speed: mean by up to"):
        mix_sql.agree("speed", ours, wrong)
    place = ours.column_names.index("player")
    other = ours.set_column(place, "player", pa.array(["nobody"] * ours.num_rows))
    with pytest.raises(CatchmentError, match="speed: other values of player"):
        mix_sql.agree("speed", ours, other)


def test_all_results_are_read_however_late_the_events() -> None:
    """The frontier trails, and goes past the last window: no event is late, no window is missed."""
    rows = mix_engine.together(mix(), load())()()
    assert rows == sum(table.num_rows for table in answers().values())
    assert rows == mix_engine.apart(mix(), load())()()


@pytest.mark.slow
def test_figures_of_the_demo_have_bars() -> None:
    found = [*mix_engine.of_the_demo(60_000, runs=1), mix_engine.late(60_000, runs=1)]
    assert [figure.bar for figure in found] == [3, 6, 0.6]
    assert all(figure.value > 0 for figure in found)


def test_a_mix_is_drawn_by_seed() -> None:
    drawn = [mix_random.mix(Random(seed), 20) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_mixes_have_windows_of_every_kind_and_many_functions() -> None:
    queries = mix_random.mix(Random(1), 1000)
    kinds = {query.window.kind for query in queries}
    assert kinds == {type(window).kind for window in _windows()}
    asked = {aggregate.function for query in queries for aggregate in query.aggregates}
    known = {name for name in vars(built_in) if not name.startswith("_")}
    # Mixes are those that earlier figures were measured with; newer functions are not among them.
    assert asked < known and all(name in functions.FUNCTIONS for name in asked)
    assert len(asked) == 21
    assert {len(query.by) for query in queries} == {0, 1, 2}


def _windows() -> list[Window]:
    return [query.window for query in mix()] + [ct.cumulate("10s", "5s")]


def test_a_mix_gives_the_same_rows_together_and_apart() -> None:
    sample = mix_random.sample(20_000, 1_000)
    queries = mix_random.mix(Random(3), 30)
    rows = mix_engine.together(queries, sample)()()
    assert rows == mix_engine.apart(queries, sample)()() > 0
    outcome = mix_random.measured(queries, sample, runs=1)
    assert outcome.queries == 30 and outcome.times > 0
