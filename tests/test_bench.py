"""The benchmarks: baselines that are right, figures that are well formed, workloads as stated."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import benchmarks
import catchment as ct
from benchmarks import counts, engine, keyed, language, million, planning
from benchmarks.baselines import Baseline, CeBuffer, DeBucket, DeSW
from benchmarks.events import LATE_BY, SECOND, Workload, drive, tumbling, workload
from benchmarks.figure import Figure, at_least, at_most, below, exactly, plain
from benchmarks.process import importable
from benchmarks.timing import in_turns, ratio, typical
from catchment.errors import QueryError
from catchment.testing import oracle

BASELINES = (CeBuffer, DeBucket, DeSW)
AGGREGATES = (
    ct.avg("v").alias("x"),
    ct.sum("v").alias("x"),
    ct.count("v").alias("x"),
    ct.min("v").alias("x"),
    ct.max("v").alias("x"),
    ct.median("v").alias("x"),
    ct.quantile("v", 0.9).alias("x"),
)

Found = dict[tuple[str, int, int], float]
"""Query, window start and key to the result."""


def small(*, late: bool = False, keys: int = 3) -> Workload:
    return workload(400, 20, batch=70, keys=keys, late=late)


def queries(by: str) -> list[ct.Query]:
    lengths = [1_000_000, 1_500_000, 2_000_000, 3_300_000, 700_000, 5_000_000, 1_000_000] * 2
    made = tumbling(lengths, *AGGREGATES, by=by)
    shifted = ct.tumbling("2s", offset="500ms")
    return [*made, ct.Query("shifted", AGGREGATES[0], by=by or (), window=shifted)]


def found_by(kind: type[Baseline], asked: Sequence[ct.Query], load: Workload) -> Found:
    baseline = kind(asked)
    answers = []
    for table, frontier in load.steps:
        baseline.push(table)
        answers += baseline.advance(frontier)
    answers += baseline.advance(1 << 50)
    found = {
        (answer.query, answer.start, key): value
        for answer in answers
        for key, value in zip(answer.keys.tolist(), answer.values.tolist(), strict=True)
    }
    assert len(found) == sum(len(answer.keys) for answer in answers), "no window twice"
    return found


def found_by_engine(asked: Sequence[ct.Query], load: Workload) -> Found:
    ours = ct.Engine(asked)
    found: Found = {}
    for table, frontier in [*load.steps, (None, None)]:
        if table is not None:
            ours.push(table)
        for name, result in (ours.close() if frontier is None else ours.advance(frontier)).items():
            start = result["window_start"].cast("int64").to_pylist()
            key = result["k"].to_pylist() if "k" in result.column_names else [0] * len(start)
            values = map(float, result["x"].to_pylist())
            found |= {(name, *place): x for *place, x in zip(start, key, values, strict=True)}
    assert ours.stats.late == 0
    return found


def found_by_oracle(asked: Sequence[ct.Query], load: Workload) -> Found:
    rows = [row for step in load.steps for row in step.table.to_pylist()]
    return {
        (name, row["window_start"], row.get("k", 0)): float(row["x"])
        for name, results in oracle(asked, rows).items()
        for row in results
    }


def same(one: Found, other: Found) -> None:
    assert one.keys() == other.keys()
    for place, value in one.items():
        assert math.isclose(value, other[place], rel_tol=1e-9, abs_tol=1e-12), place


@pytest.mark.parametrize("late", [False, True], ids=["in order", "late"])
@pytest.mark.parametrize("by", ["", "k"], ids=["no key", "keyed"])
@pytest.mark.parametrize("kind", BASELINES)
def test_baselines_find_what_the_engine_finds(kind: type[Baseline], by: str, late: bool) -> None:
    load = small(late=late)
    same(found_by(kind, queries(by), load), found_by_engine(queries(by), load))


@pytest.mark.parametrize("kind", BASELINES)
def test_baselines_find_what_brute_force_finds(kind: type[Baseline]) -> None:
    load = small(late=True)
    same(found_by(kind, queries("k"), load), found_by_oracle(queries("k"), load))


def test_a_baseline_refuses_what_it_cannot_do() -> None:
    with pytest.raises(QueryError, match="tumbling"):
        DeSW([ct.Query("q", ct.sum("v"), window=ct.session("1s"))])
    with pytest.raises(QueryError, match="no such function"):
        found_by(CeBuffer, tumbling([SECOND], ct.variance("v")), small())


def test_a_baseline_forgets_slices() -> None:
    baseline = DeSW(tumbling([SECOND, 2 * SECOND], ct.sum("v")))
    for table, frontier in small().steps:
        baseline.push(table)
        baseline.advance(frontier)
        assert all(len(group.slices) <= 8 for group in baseline.groups)


def test_late_events_are_late_but_never_dropped() -> None:
    load = small(late=True)
    times = np.concatenate([times.astype(np.int64) for times in load.column("ts")])
    behind = np.maximum.accumulate(times) - times
    assert 0.1 < (behind > 0).mean() < 0.4
    assert behind.max() <= LATE_BY
    frontier = -(1 << 60)
    for table, after in load.steps:
        assert table["ts"].cast("int64").to_numpy().min() >= frontier
        frontier = after
    ours = ct.Engine(queries("k"))
    assert drive(ours, load.steps) > 0
    assert ours.stats.late == 0
    assert ours.stats.events == load.events


def test_pauses_end_sessions() -> None:
    load = workload(6_000, 100, batch=1_000, pauses=5)
    ours = ct.Engine([ct.Query("s", ct.count(), window=ct.session("1s"))])
    assert drive(ours, load.steps) == 4
    assert "5 pauses" in load.detail


def test_a_workload_tells_its_density() -> None:
    load = small()
    assert "400 events, 20 per second of event time, batches of 70, 3 keys" in load.detail
    assert sum(step.table.num_rows for step in load.steps) == load.events


def test_bars() -> None:
    assert at_least("a", 1.0, "x", 1, "").ok is True
    assert at_least("a", 0.9, "x", 1, "").ok is False
    assert below("a", 1.0, "x", 1, "").ok is False
    assert at_most("a", 1.0, "x", 1, "").ok is True
    assert at_most("a", 1.01, "x", 1, "").ok is False
    assert exactly("a", 2.0, "x", 2, "").ok is True
    assert plain("a", 2.0, "x", "").ok is None


def test_timing_goes_in_turns() -> None:
    calls: list[str] = []
    actions = [lambda name=name: lambda: calls.append(name) for name in "ab"]
    times = in_turns(2, actions)
    assert "".join(calls) == "ababab"  # one round to warm up, two that count
    assert len(times) == 2
    assert typical([[3.0], [1.0], [2.0]], 0) == 2.0
    assert ratio([[1.0, 4.0]], 1, 0) == 4.0


def test_counts_meet_their_bars() -> None:
    found = list(counts.figures())
    assert [figure.value for figure in found] == [2, 60]
    assert all(figure.ok for figure in found)


def test_many_queries_run_in_a_process_of_their_own() -> None:
    found = million.alone(3_000)
    assert found["read"] == 1_000
    assert found["rows"] > 0
    assert 0 < found["gigabytes"] < 4
    assert json.dumps(found)


def test_distinct_queries_are_planned_in_a_process_of_their_own() -> None:
    found = planning.alone(2_000, "running")
    assert found["queries"] == 2_000 > found["groups"]
    assert found["conditions"] > 1_000
    assert 0 < found["gigabytes"] < 4
    assert all(found[step] > 0 for step in ("make", "plan", "add", "write", "read", "explain"))


def test_processes_find_the_benchmarks_wherever_they_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    code = "import benchmarks, catchment; print(catchment.__file__)"
    with importable():
        # As Spark starts its workers: nobody hands them an environment.
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout.strip() == ct.__file__, done.stderr
        assert os.environ["PYTHONPATH"].endswith(f"{os.pathsep}elsewhere")
    assert os.environ["PYTHONPATH"] == "elsewhere"
    assert million.alone(1_000)["rows"] > 0


@pytest.mark.slow
def test_memory_is_that_of_the_process_alone() -> None:
    held = np.ones(80_000_000)  # 0.64 GB that the child must not be charged with
    assert million.alone(1_000)["gigabytes"] < 0.5
    assert held[-1] == 1


def test_run_yields_the_figures_of_a_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PARTS", (counts,))
    found = list(benchmarks.run("engine", quick=True))
    assert all(isinstance(figure, Figure) for figure in found)
    assert len({figure.name for figure in found}) == len(found)


def test_an_unknown_suite_is_refused() -> None:
    with pytest.raises(QueryError, match="no such suite"):
        list(benchmarks.run("engin"))


@pytest.mark.parametrize("suite", benchmarks.SUITES)
def test_a_suite_is_measured_whole_or_by_parts(suite: str) -> None:
    assert callable(import_module(benchmarks.SUITES[suite]).figures)
    parts = benchmarks.parts(suite)
    assert all(callable(part.figures) and part.__doc__ for part in parts.values())
    assert len(parts) == len(set(parts.values()))


def test_a_part_is_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PARTS", (counts, keyed))
    assert [figure.value for figure in benchmarks.run("engine", True, ["counts"])] == [2, 60]
    with pytest.raises(QueryError, match=r"the suite engine has no such part \(given: count\)"):
        list(benchmarks.run("engine", True, ["count"]))
    with pytest.raises(QueryError, match=r"the suite count has no such part .* leave out --only"):
        list(benchmarks.run("count", True, ["nodes"]))


def test_one_pass_reads_every_event() -> None:
    load = small()
    sums = keyed.one_pass(load)()()
    assert isinstance(sums, list) and len(sums) == len(load.steps)


def test_a_cube_sends_the_last_window_too() -> None:
    """Few events fill no window up to the last frontier: what is sent at the end counts."""
    time, sent = language.cube(2_000, 1)
    assert time.value > 0
    assert sent.value == pytest.approx(1.0, abs=0.05)
