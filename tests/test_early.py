"""Early results: running values of open windows, when they change or every so often."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.errors import CatchmentError
from catchment.job import load_job
from catchment.model.early import emit_of, period_of
from catchment.model.window import Gap, Window
from catchment.simulate import World
from catchment.sinks.rows import latest
from catchment.testing.compare import assert_same, rows_of
from catchment.testing.oracle import oracle
from catchment.testing.strategies import PERIODIC, Scenario, scenarios, to_table
from small_tables import examples
from trees import batches, charter

MARKS = ("revision", "retracted", "complete")


def events(*times: int) -> pa.Table:
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC"))})


def query(window: Window, name: str = "q") -> ct.Query:
    return ct.Query(name, ct.count().alias("n"), window=window)


def said(table: pa.Table) -> list[tuple[Any, ...]]:
    """Bounds, count, and the three marks, in order."""
    names = ("window_start", "window_end", "n", *MARKS)
    return sorted((tuple(row[name] for name in names) for row in rows_of(table)), key=repr)


def test_running_values_of_a_window() -> None:
    # ts   0 1 2 3 4 5 6 7 8 9 10
    #        x x       x              frontier at 3, 7, 7 again, 10
    engine = ct.Engine([query(ct.tumbling("10us"))], emit="changes")
    engine.push(events(1, 2))
    assert said(engine.advance(3)["q"]) == [(0, 10, 2, 0, False, False)]
    engine.push(events(6))
    assert said(engine.advance(7)["q"]) == [(0, 10, 3, 1, False, False)]
    assert said(engine.advance(8)["q"]) == []  # nothing has changed
    assert said(engine.advance(10)["q"]) == [(0, 10, 3, 2, False, True)]
    assert said(engine.close()["q"]) == []


def test_running_values_every_so_often() -> None:
    engine = ct.Engine([query(ct.tumbling("100us"))], emit=ct.every("10us"))
    found = []
    for at in range(0, 100, 4):
        engine.push(events(at))
        found += [(at, row[2], row[5]) for row in said(engine.advance(at)["q"])]
    # The first step of all, and those in which the frontier passed a multiple of ten.
    assert [at for at, _, _ in found] == [0, 12, 20, 32, 40, 52, 60, 72, 80, 92]
    assert all(count == at // 4 + 1 and not complete for at, count, complete in found)
    assert said(engine.close()["q"]) == [(0, 100, 25, 10, False, True)]


def test_a_session_that_grows_takes_its_former_bounds_back() -> None:
    engine = ct.Engine([query(ct.session("5us"))], emit="changes")
    engine.push(events(1))
    assert said(engine.advance(1)["q"]) == [(1, 6, 1, 0, False, False)]
    engine.push(events(4))
    assert said(engine.advance(4)["q"]) == [
        (1, 6, None, 1, True, False),
        (1, 9, 2, 0, False, False),
    ]
    assert said(engine.advance(9)["q"]) == []  # an event at 9 would still be in it
    assert said(engine.advance(10)["q"]) == [(1, 9, 2, 1, False, True)]


def run(scenario: Scenario, emit: str, restart: bool) -> list[tuple[int, Any, list[Any]]]:
    """The step, the frontier and the rows so far after each advance; the events accepted by then
    are those of the pushes before."""
    engine = ct.Engine(scenario.queries, emit=emit)
    out = []
    for number, step in enumerate(scenario.steps):
        if step[0] == "push":
            engine.push(to_table(step[1]))
            continue
        results = engine.close() if step[0] == "close" else engine.advance(step[1])
        out.append((number, step[1] if step[0] != "close" else None, results))
        if restart and step[0] != "close":
            engine = ct.Engine.restore(engine.snapshot())
    return out


def bare(table: pa.Table) -> pa.Table:
    """Results without their marks."""
    return table.drop_columns([n for n in (*MARKS, "missing") if n in table.column_names])


def told(parts: list[pa.Table], asked: ct.Query) -> pa.Table:
    """What a sink that keeps the latest has."""
    return latest(pa.concat_tables(parts), asked.keys)


@examples(0.8)
@given(
    scenario=scenarios(
        late="none",
        kinds=[*PERIODIC, "session"],
        readings=["global", "local"],
        max_queries=3,
        max_events=25,
    ),
    emit=st.sampled_from(["changes", "changes", "every(7us)", "every(3s)"]),
    restart=st.booleans(),
)
def test_what_was_said_last_is_the_answer_over_all_events_so_far(
    scenario: Scenario, emit: str, restart: bool
) -> None:
    """Whenever running values are given; and what is complete is never taken back."""
    kept: dict[str, list[pa.Table]] = {asked.name: [] for asked in scenario.queries}
    sure: dict[str, dict[Any, Any]] = {asked.name: {} for asked in scenario.queries}
    before = -(1 << 62)
    for number, at, results in run(scenario, emit, restart):
        period = period_of(emit)
        frontier = (1 << 62) if at is None else max(before, at)
        speaks = at is None or not period or frontier // period > before // period
        before = frontier
        so_far = [row for step in scenario.steps[:number] if step[0] == "push" for row in step[1]]
        for asked in scenario.queries:
            kept[asked.name].append(results[asked.name])
            for row in rows_of(results[asked.name]):
                bounds = (*(row[key] for key in asked.by), row["window_start"], row["window_end"])
                end, last = row["window_end"], isinstance(asked.window, Gap)
                assert row["complete"] == (end < frontier if last else end <= frontier)
                assert bounds not in sure[asked.name], "a complete window was said again"
                if row["complete"] and not row["retracted"]:
                    sure[asked.name][bounds] = row
            if speaks:
                held = bare(told(kept[asked.name], asked))
                assert_same(oracle([asked], so_far)[asked.name], held, f"{asked.name} at {at}")


def test_the_final_results_are_those_of_an_engine_that_gives_no_others() -> None:
    tables = batches(3, count=300, spread=20)
    queries = [
        ct.Query("t", ct.sum("v"), ct.median("v"), by="k", window=ct.tumbling("3s")),
        ct.Query("d", ct.sum("v"), window=ct.tumbling("1d", zone="Europe/Berlin")),
        ct.Query("s", ct.avg("v"), by="k", window=ct.session("700ms")),
        ct.Query("c", ct.first("v"), by="k", window=ct.count_tumbling(7)),
        ct.Query("b", ct.count(), by="k", window=ct.between("m = 'on'", "m = 'off'")),
    ]
    for emit in ("changes", "every(2s)"):
        plain, early = ct.Engine(queries), ct.Engine(queries, emit=emit)
        truth: dict[str, list[pa.Table]] = {asked.name: [] for asked in queries}
        given_: dict[str, list[pa.Table]] = {asked.name: [] for asked in queries}
        for number, table in enumerate(tables):
            at = min(int(t["ts"].cast(pa.int64()).to_numpy().min()) for t in tables[number:])
            for engine, out in ((plain, truth), (early, given_)):
                engine.push(table)
                results = engine.advance(at)
                for name in out:
                    out[name].append(results[name])
        for engine, out in ((plain, truth), (early, given_)):
            results = engine.close()
            for name in out:
                out[name].append(results[name])
        for asked in queries:
            held = told(given_[asked.name], asked)
            assert set(held["complete"].to_pylist()) <= {True}
            kept = latest(pa.concat_tables(truth[asked.name]), asked.keys)
            assert_same(rows_of(kept), bare(held), f"{emit} {asked.name}")


def test_late_events_correct_early_results_too() -> None:
    engine = ct.Engine([query(ct.tumbling("10us"))], emit="changes", late="update", keep="100us")
    engine.push(events(5, 15))
    assert len(said(engine.advance(12)["q"])) == 2
    engine.push(events(3))
    assert said(engine.advance(13)["q"]) == [(0, 10, 2, 1, False, True)]


def test_a_tree() -> None:
    """The root gives running values of what has climbed; in the end all are there, complete."""
    parents = {"root": None, "m": "root", "a": "m", "b": "m", "c": "root"}
    queries = [
        ct.Query("fast", ct.sum("v"), by="k", window=ct.tumbling("1s")),
        ct.Query("slow", ct.sum("v"), by="k", window=ct.tumbling("8s")),
    ]
    arrived = {id: batches(n, count=200, spread=20) for n, id in enumerate("abc")}
    world = World(charter(parents, queries, emit="changes"), arrived, until=0)
    world.run()
    assert world.done
    rows = [row for some in arrived.values() for table in some for row in table.to_pylist()]
    early = 0
    for asked in queries:
        parts = [
            d.results[asked.name]
            for _, d in sorted(world.deliveries.items())
            if asked.name in d.results
        ]
        whole = pa.concat_tables(parts)
        assert whole["missing"].null_count == len(whole)
        early += sum(not complete for complete in whole["complete"].to_pylist())
        held = told(parts, asked)
        assert set(held["complete"].to_pylist()) == {True}
        assert_same(oracle([asked], rows)[asked.name], bare(held))
    assert early > 20


def test_a_job_file_says_it() -> None:
    form = {"queries": [{"name": "n", "select": ["count(*)"], "window": "tumbling(1s)"}]}
    job = load_job(form | {"emit": "every(10 seconds)"})
    assert job.engine_options()["emit"] == job.stream_options()["emit"] == "every(10s)"
    assert load_job(form).engine_options()["emit"] == "final"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: ct.Engine([query(ct.tumbling("1s"))], emit="sometimes"),
            "no such choice for emit",
        ),
        (lambda: ct.Engine([query(ct.tumbling("1s"))], emit=5), "no such choice for emit"),
        (lambda: emit_of("every()"), "is empty"),
        (lambda: emit_of("every(soon)"), "not a duration"),
        (lambda: ct.every("0s"), "must be positive"),
        (lambda: ct.every("-1s"), "must be positive"),
        (
            lambda: ct.Engine([query(ct.count_within(3, "1s"))], emit="changes"),
            "emit='changes'.*give final results only",
        ),
        (
            lambda: ct.Engine([query(ct.cut("v > 1", reading="local"))], emit="every(1s)"),
            r"emit='every\(1s\)'",
        ),
        (
            lambda: load_job(
                {
                    "emit": "often",
                    "queries": [{"name": "n", "select": ["count(*)"], "window": "tumbling(1s)"}],
                }
            ),
            "no such choice for emit",
        ),
    ],
)
def test_bad_input(make: Any, told: str) -> None:
    with pytest.raises(CatchmentError, match=told):
        make()


def test_final_results_alone_have_no_marks() -> None:
    """Without early results, results have no marks."""
    engine = ct.Engine([query(ct.tumbling("10us"))])
    engine.push(events(1))
    assert rows_of(engine.close()["q"]) == [{"window_start": 0, "window_end": 10, "n": 1}]
