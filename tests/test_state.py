"""State is bounded by the open windows; counts add up; the same input gives the same bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import catchment as ct
from catchment.engine import dedup
from catchment.engine.rows import Rows
from catchment.engine.store import SliceStore
from catchment.operators import OperatorRef, operator_class
from catchment.planner import plan as make_plan
from catchment.testing.compare import rows_of
from small_tables import SECOND, seconds, starts, table, values

WINDOWS = {
    "tumbling": ct.tumbling("10s"),
    "sliding": ct.sliding("10s", "1s"),
    "eager": ct.sliding("20s", "100ms"),
    "gaps": ct.sliding("1s", "5s"),
    "session": ct.session("2s"),
    "count": ct.count_sliding(7, 3),
    "cut": ct.cut("v % 10 = 0"),
    "between": ct.between("v % 10 = 0", "v % 10 = 5"),
    "fixed": ct.fixed(0, 10**15),
}
BOUNDED = [name for name in WINDOWS if name != "fixed"]
FUNCTIONS = [ct.sum("v"), ct.max("v"), ct.first("v")]
STEP = 40
"""Events per step, in the first half of its ten seconds: sessions end in the other half."""

PAIRS = [i // 2 % 2 for i in range(STEP)]
"""Two keys, each of which has the events that open and close windows."""


def long_run(
    engine: ct.Engine, steps: int, keys: Callable[[int], list[Any]], look: Callable[[], int]
) -> list[int]:
    """Pushes steps of ten seconds of events, advances behind each, and looks at every one."""
    seen = []
    for step in range(steps):
        at = step * 10 + np.arange(STEP) / 8
        engine.push(seconds(at.tolist(), v=list(range(STEP)), k=keys(step), id=keys(step)))
        engine.advance(int((step * 10 + 3) * SECOND))
        seen.append(look())
    return seen


def bounded(seen: list[int]) -> None:
    quarter = len(seen) // 4
    middle, end = max(seen[quarter : 2 * quarter]), max(seen[-quarter:])
    assert end <= middle * 1.1 + 1000, (middle, end)


@pytest.mark.parametrize("late", ["drop", "update"])
@pytest.mark.parametrize("functions", ["constant", "growing"])
@pytest.mark.parametrize("name", BOUNDED)
def test_state_does_not_grow_with_the_stream(name: str, functions: str, late: Any) -> None:
    wanted = FUNCTIONS if functions == "constant" else [ct.median("v"), ct.count_distinct("v")]
    query = ct.Query("q", *wanted, by="k", window=WINDOWS[name])
    keep = {"keep": "30s"} if late == "update" else {}
    engine = ct.Engine([query], late=late, **keep)
    bounded(long_run(engine, 80, lambda _: PAIRS, lambda: engine.stats.state_bytes))
    assert len(engine.snapshot()) < 200_000


@pytest.mark.parametrize("name", ["tumbling", "sliding", "eager", "session", "between"])
def test_keys_that_vanish_are_forgotten(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catchment.engine.key_space._CROWD", 64)
    query = ct.Query("q", *FUNCTIONS, by="k", window=WINDOWS[name])
    engine = ct.Engine([query])
    seen = long_run(
        engine,
        200,
        lambda step: [f"{step}-{i % 20}" for i in range(STEP)],
        lambda: len(engine.assembler.states[0].keys),
    )
    bounded(seen)
    assert max(seen[100:]) < 4000 / 2


def test_keys_renumbered_are_still_the_right_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are equal whether keys are forgotten at once or never."""
    outs = []
    for crowd in (2, 10**9):
        monkeypatch.setattr("catchment.engine.key_space._CROWD", crowd)
        queries = [
            ct.Query(name, *FUNCTIONS, by="k", window=window) for name, window in WINDOWS.items()
        ]
        engine = ct.Engine(queries, late="update", keep="15s")
        found: list[Any] = []
        for step in range(30):
            at = [step * 10 + (i * 7 % 25) - 10 for i in range(STEP)]
            keys = [f"{(step * (i % 3 == 0)) // 2}-{i % 5}" for i in range(STEP)]
            engine.push(seconds(at, v=list(range(STEP)), k=keys))
            out = engine.advance((step * 10 + 5) * SECOND)
            found += [(n, sorted(map(repr, rows_of(out[n])))) for n in WINDOWS]
        out = engine.close()
        found += [(n, sorted(map(repr, rows_of(out[n])))) for n in WINDOWS]
        outs.append(found)
    assert outs[0] == outs[1]


def test_a_fixed_window_is_dropped_when_it_is_over() -> None:
    engine = ct.Engine([ct.Query("q", ct.median("v"), window=ct.fixed(0, 100 * SECOND))])
    seen = long_run(engine, 40, lambda _: [0] * STEP, lambda: engine.stats.state_bytes)
    assert max(seen[20:]) < max(seen[:10]) / 2


def test_repeats_are_forgotten_after_their_horizon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "_CROWD", 64)
    query = ct.Query(
        "q", ct.count(), window=ct.tumbling("10s"), distinct_on="id", distinct_within="20s"
    )
    engine = ct.Engine([query])
    bounded(
        long_run(
            engine,
            120,
            lambda step: [step * STEP + i for i in range(STEP)],
            lambda: engine.stats.state_bytes,
        )
    )


def test_a_key_that_comes_often_keeps_few_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """One value that is accepted again and again must not remember every time it was."""
    monkeypatch.setattr(dedup, "_CROWD", 64)
    query = ct.Query(
        "q", ct.count(), window=ct.tumbling("10s"), distinct_on="id", distinct_within="1ms"
    )
    engine = ct.Engine([query])
    bounded(
        long_run(
            engine,
            120,
            lambda _: [1] * STEP,
            lambda: len(engine.snapshot()),
        )
    )


# The eager store.


REFS = [OperatorRef(kind, "v") for kind in ("max", "count")]
OPERATORS = {ref.id: operator_class(ref.kind)(ref, pa.int64()) for ref in REFS}


def store_of(kind: Any, slices: int, keys: int) -> SliceStore:
    start = np.repeat(np.arange(slices, dtype=np.int64), keys)
    key = np.tile(np.arange(keys, dtype=np.int64), slices)
    numbers = (start * 7919 + key * 31) % 1009
    made = SliceStore(kind, OPERATORS)
    for slices_of in np.array_split(np.arange(slices), 7):
        cut = np.flatnonzero(np.isin(start, slices_of))
        values_of = {"max(v).value": numbers[cut], "count(v).count": np.ones(len(cut), np.int64)}
        made.append(Rows(start[cut], start[cut] + 1, key[cut], start[cut], start[cut], values_of))
    return made


@pytest.mark.parametrize("trimmed", [0, 1, 137, 512])
def test_the_tree_reads_few_nodes(trimmed: int) -> None:
    slices, keys = 1001, 3
    eager, lazy = store_of("eager", slices, keys), store_of("lazy", slices, keys)
    for store in (eager, lazy):
        store.trim(trimmed)
    left = slices - trimmed
    source = np.random.default_rng(5)
    low = source.integers(0, left, 200)
    high = np.minimum(low + source.integers(0, left, 200), left)
    rows, owner = eager.gather(low, high, OPERATORS)
    plain_rows, plain_owner = lazy.gather(low, high, OPERATORS)
    most = 2 * math.log2(slices) + 2
    for window in range(len(low)):
        mine, plain = rows.take(np.flatnonzero(owner == window)), plain_owner == window
        assert plain.sum() == (high - low)[window] * keys
        for key in range(keys):
            of_key = np.flatnonzero(mine.key == key)
            assert len(of_key) <= most
            expected = plain_rows.take(np.flatnonzero(plain & (plain_rows.key == key))).fields
            found: Any = mine.take(of_key).fields
            assert found["count(v).count"].sum() == (high - low)[window]
            assert [*found["max(v).value"]] == [] or (
                found["max(v).value"].max() == np.asarray(expected["max(v).value"]).max()
            )


def test_the_plan_takes_the_tree_where_windows_have_many_slices() -> None:
    query = ct.Query("q", ct.max("v"), window=WINDOWS["eager"])
    assert make_plan([query]).groups[0].store == "eager"
    few = ct.Query("q", ct.max("v"), window=ct.tumbling("10s"))
    assert make_plan([few]).groups[0].store == "lazy"


# Late events and counts.

QUERY = ct.Query("q", ct.sum("v").alias("s"), window=ct.tumbling("10s"))


def late_run(late: Any, **settings: Any) -> tuple[ct.Engine, list[ct.Results]]:
    engine = ct.Engine([QUERY], late=late, **settings)
    engine.push(seconds([1, 11], v=[1, 2], x=["a", "b"]))
    first = engine.advance(12 * SECOND)
    times = [3 * SECOND, None, 12 * SECOND, 12 * SECOND - 1]
    engine.push(table(times, v=[4, 8, 16, 32], x=["c", "d", "e", "f"]))
    return engine, [first, engine.close()]


def test_late_events_are_dropped_and_counted() -> None:
    engine, (first, last) = late_run("drop")
    assert (values(first, "q"), values(last, "q")) == ([(1,)], [(18,)])
    stats = engine.stats
    assert (stats.events, stats.accepted, stats.late, stats.bad) == (6, 3, 2, 1)
    assert engine.take_late() is None


def test_late_events_are_handed_back_whole() -> None:
    engine, (_, last) = late_run("collect")
    assert values(last, "q") == [(18,)]
    rows = engine.take_late()
    assert rows is not None
    assert rows.column_names == ["ts", "v", "x"]
    assert rows["x"].to_pylist() == ["c", "f"]
    assert engine.take_late() is None
    assert engine.stats.late == 2


def test_late_rows_survive_a_snapshot() -> None:
    engine, _ = late_run("collect")
    rows = ct.Engine.restore(engine.snapshot()).take_late()
    assert rows is not None and rows["x"].to_pylist() == ["c", "f"]


def test_late_events_correct_what_was_said() -> None:
    engine, (first, last) = late_run("update", keep="1h")
    assert values(first, "q") == [(1, 0, False)]
    assert sorted(values(last, "q")) == [(5, 1, False), (50, 0, False)]
    stats = engine.stats
    assert (stats.accepted, stats.late, stats.bad, stats.updates) == (5, 0, 1, 2)


def test_lateness_holds_the_frontier_back() -> None:
    engine, (first, last) = late_run("drop", lateness="10s")
    assert (values(first, "q"), values(last, "q")) == ([], [(5,), (50,)])
    assert engine.stats.late == 0


@pytest.mark.parametrize("late", ["drop", "update", "collect"])
def test_the_counts_add_up(late: Any) -> None:
    queries = [
        ct.Query("a", ct.count(), window=ct.tumbling("5s"), distinct_on="id"),
        ct.Query("b", ct.count(), window=ct.session("2s"), distinct_on="id", distinct_within="3s"),
    ]
    engine = ct.Engine(queries, late=late, lateness="1s")
    source = np.random.default_rng(3)
    for step in range(20):
        at: list[Any] = (step * 5 + source.integers(-9, 6, 30)).tolist()
        times = [None if source.random() < 0.1 else t * SECOND for t in at]
        engine.push(table(times, id=source.integers(0, 9, 30).tolist()))
        engine.advance(step * 5 * SECOND)
        stats = engine.stats
        assert stats.accepted + stats.late + stats.bad + stats.duplicates == stats.events
    engine.close()
    stats = engine.stats
    assert stats.events == 600 and stats.bad and stats.duplicates
    assert (stats.updates if late == "update" else stats.late) > 0
    assert stats.to_dict() == {f.name: getattr(stats, f.name) for f in fields(stats)}
    assert all(isinstance(v, int) and v >= 0 for v in stats.to_dict().values())


def test_repeats_across_batches_and_their_horizon() -> None:
    query = ct.Query(
        "q",
        ct.count().alias("n"),
        window=ct.tumbling("1h"),
        distinct_on=["id", "k"],
        distinct_within="10s",
    )
    engine = ct.Engine([query])
    for at, repeat in ((0, False), (10, True), (11, False), (5, True), (21, True), (22, False)):
        before = engine.stats.duplicates
        engine.push(seconds([at], id=[1], k=pa.array([None], pa.string())))
        assert (engine.stats.duplicates > before) is repeat, at
        engine = ct.Engine.restore(engine.snapshot())
    engine.push(seconds([22, 22, 22], id=[1, 2, 1], k=["a", None, None]))
    assert values(engine.close(), "q") == [(5,)]


def test_slices_partials_and_calls() -> None:
    queries = [
        ct.Query("a", ct.avg("v"), by="k", window=ct.tumbling("1s")),
        ct.Query("b", ct.sum("v"), by="k", window=ct.tumbling("2s")),
    ]
    engine = ct.Engine(queries)
    engine.push(seconds([0, 0.5, 1, 3, 3], v=[1] * 5, k=["a", "a", "b", "a", "b"]))
    engine.close()
    stats = engine.stats
    assert (stats.slices, stats.partials, stats.operator_calls) == (3, 4, 10)
    assert stats.results == 4 + 4


# Processing time.


def test_the_clock_is_the_measure() -> None:
    clock = [100 * SECOND]
    query = ct.Query("q", ct.sum("v").alias("s"), window=ct.tumbling("10s"), measure="processing")
    engine = ct.Engine([query], clock=lambda: clock[0])
    engine.push(seconds([5], v=[1]))
    clock[0] = 109 * SECOND
    engine.push(seconds([99], v=[2]))
    assert engine.advance(0)["q"].num_rows == 0
    clock[0] = 110 * SECOND
    engine.push(seconds([50], v=[4]))
    found = engine.advance(0)
    assert values(found, "q") == [(3,)] and starts(found, "q") == [100 * SECOND]
    engine = ct.Engine.restore(engine.snapshot(), clock=lambda: clock[0])
    found = engine.close()
    assert values(found, "q") == [(4,)] and starts(found, "q") == [110 * SECOND]


def test_a_clock_set_back_loses_no_event() -> None:
    clock = [100 * SECOND]
    query = ct.Query("q", ct.sum("v").alias("s"), window=ct.tumbling("10s"), measure="processing")
    engine = ct.Engine([query], clock=lambda: clock[0])
    engine.push(seconds([5], v=[1]))
    clock[0] = 110 * SECOND
    assert values(engine.advance(0), "q") == [(1,)]
    clock[0] = 109 * SECOND
    engine.push(seconds([6], v=[2]))
    assert sum(s for (s,) in values(engine.close(), "q")) == 2


# Determinism.


def test_the_same_input_gives_the_same_bytes() -> None:
    functions = [
        ct.sum("v"),
        ct.variance("v"),
        ct.median("v"),
        ct.first("v"),
        ct.mode("k"),
        ct.approx_count_distinct("id"),
        ct.approx_quantile("v", 0.9),
    ]
    source = np.random.default_rng(1)
    count = 4000
    batches = [
        table(
            (step * SECOND + source.integers(-SECOND, SECOND, count)).tolist(),
            v=source.normal(size=count),
            k=source.choice(list("abc"), count).tolist(),
            id=source.integers(0, 999, count),
            w=list(range(count)),
        )
        for step in range(3)
    ]
    windows = [ct.tumbling("1s"), ct.session("1s"), ct.count_sliding(50, 30), ct.cut("w % 100 = 0")]
    queries = [ct.Query(f"q{n}", *functions, by="k", window=w) for n, w in enumerate(windows)]
    outputs = []
    for _ in range(2):
        engine = ct.Engine(queries, lateness="1s", late="update")
        shown: list[Any] = []
        for step, events in enumerate(batches):
            engine.push(events)
            out = engine.advance(step * SECOND)
            shown += [out[query.name] for query in queries] + [engine.snapshot()]
        out = engine.close()
        outputs.append([*shown, *(out[query.name] for query in queries)])
    for one, two in zip(*outputs, strict=True):
        assert one == two if isinstance(one, bytes) else one.equals(two)
