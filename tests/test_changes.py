"""Queries that come and go: what they answer is right and whole, and others do not notice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import catchment as ct
from catchment.functions import make
from catchment.model.window import Counted, Gap, Periodic
from catchment.testing.compare import assert_same, rows_of, same
from catchment.testing.oracle import oracle_run
from catchment.testing.strategies import KINDS, UNITS, Scenario, queries, scenarios, to_table
from small_tables import SECOND, examples, seconds, starts, table, values

Row = dict[str, Any]
NEVER = -(1 << 62)


class Run:
    """An engine and the oracle side by side; queries other than the one that changes must agree."""

    def __init__(self, scenario: Scenario, changing: ct.Query, from_start: bool) -> None:
        self.scenario, self.changing = scenario, changing
        self.others = [q for q in scenario.queries if q.name != changing.name]
        given = [*self.others, changing] if from_start else self.others
        self.engine = ct.Engine(given, **scenario.settings)
        self.expected = oracle_run(self.others, scenario.steps, **scenario.settings)
        self.rows: list[tuple[int, Row]] = []
        """What the changing query gave, by number of result."""
        self.number = 0

    def step(self, step: tuple[Any, ...]) -> None:
        if step[0] == "push":
            self.engine.push(to_table(step[1]))
            return
        out = self.engine.close() if step[0] == "close" else self.engine.advance(step[1])
        for name, rows in self.expected[self.number].items():
            assert_same(rows, out[name], f"{name}, unaffected by {self.changing.name}")
        try:
            mine = rows_of(out[self.changing.name])
        except KeyError:
            mine = []
        self.rows += [(self.number, row) for row in mine]
        self.number += 1


def matching(row: Row, rows: Sequence[Row]) -> int | None:
    for place, other in enumerate(rows):
        if row.keys() == other.keys() and all(same(other[c], row[c]) for c in row):
            return place
    return None


def later_than(scenario: Scenario, newest: int) -> list[tuple[Any, ...]]:
    return [
        ("push", [row for row in step[1] if row["ts"] > newest]) if step[0] == "push" else step
        for step in scenario.steps
    ]


def left_of(rows: list[tuple[int, Row]], truth: list[Any], name: str) -> list[Row] | None:
    """What is true but was not given; None when something given is not true."""
    left = [row for result in truth for row in result[name]]
    for _, row in rows:
        place = matching(row, left)
        if place is None:
            return None
        left.pop(place)
    return left


def added(scenario: Scenario, query: ct.Query, at: int) -> None:
    """Adds the query before a step; what it answers is right, each once, and none is missed."""
    run = Run(scenario, query, from_start=False)
    newest = NEVER
    for number, step in enumerate(scenario.steps):
        if number == at:
            newest = run.engine.newest
            run.engine.add(query)
        run.step(step)
    truths = [oracle_run([query], scenario.steps, **scenario.settings)]
    if isinstance(query.window, Counted) and newest > NEVER:
        # Ranks start anew, unless the same windows are counted for another query already.
        shared = [other.window for other in scenario.queries]
        again = oracle_run([query], later_than(scenario, newest), **scenario.settings)
        truths = [again, *(truths if query.window in shared else [])]
    if query.window.reading == "ordered":
        for _, row in [*run.rows, *((0, r) for step in truths[0] for r in step[query.name])]:
            del row["window_index"]  # windows are numbered from the first that the query saw
    lefts = [left_of(run.rows, truth, query.name) for truth in truths]
    truth, left = next(
        ((t, found) for t, found in zip(truths, lefts, strict=True) if found is not None),
        (truths[0], None),
    )
    assert left is not None, f"wrong: {run.rows}\nnot among {truths}"
    reach = newest + (query.window.gap if isinstance(query.window, Gap) else 0)
    if isinstance(query.window, Periodic | Gap | Counted):
        first = sum(step[0] != "push" for step in scenario.steps[:at])
        late = [row for result in truth[first:] for row in result[query.name]]
        missed = [r for r in left if r["window_start"] > reach and matching(r, late) is not None]
        assert not missed, f"missed: {missed}"


def small(data: st.DataObject, late: list[str], kinds: Sequence[str] = KINDS) -> Scenario:
    """A scenario small enough to read when it fails."""
    mode = data.draw(st.sampled_from(late))
    return data.draw(scenarios(late=mode, kinds=kinds, max_queries=3, max_events=20))


def drawn(data: st.DataObject, scenario: Scenario, kind: str) -> ct.Query:
    """A query that often shares its keys, selection or functions with one that is there."""
    times = [row["ts"] for row in scenario.events]
    assume(len(times) > 2)
    unit = max(unit for unit in UNITS if all(time % unit == 0 for time in times))
    assume(max(times) - min(times) <= 100 * unit)
    made = data.draw(queries(unit, min(times) // unit, max_size=1, kinds=[kind]))[0]
    like = data.draw(st.sampled_from(scenario.queries))
    aggregates = like.aggregates if data.draw(st.booleans()) else made.aggregates
    shared = like if data.draw(st.integers(0, 3)) else made
    return ct.Query("new", *aggregates, window=made.window, by=shared.by, where=shared.where)


@pytest.mark.parametrize("kind", KINDS)
@examples(0.4)
@given(data=st.data())
def test_a_query_added_on_the_way(kind: str, data: st.DataObject) -> None:
    scenario = small(data, ["none", "drop"])
    query = drawn(data, scenario, kind)
    added(scenario, query, data.draw(st.integers(0, len(scenario.steps) - 1)))


@pytest.mark.parametrize("kind", ["tumbling", "sliding"])
@examples(0.4)
@given(data=st.data())
def test_a_query_added_among_periodic_windows(kind: str, data: st.DataObject) -> None:
    scenario = small(data, ["none"], kinds=["tumbling", "sliding", "session"])
    added(scenario, drawn(data, scenario, kind), data.draw(st.integers(0, len(scenario.steps) - 1)))


@examples(0.4)
@given(data=st.data())
def test_the_same_query_added_again(data: st.DataObject) -> None:
    """A copy of a query that is there answers every window that is still open or to come."""
    scenario = small(data, ["none"], kinds=["tumbling", "sliding", "fixed"])
    like = data.draw(st.sampled_from(scenario.queries))
    at = data.draw(st.integers(0, len(scenario.steps) - 1))
    copy = ct.Query(
        "new",
        *like.aggregates,
        window=like.window,
        by=like.by,
        where=like.where,
        distinct_on=like.distinct_on,
        distinct_within=f"{like.distinct_within or 1}us",
    )
    run = Run(scenario, copy, from_start=False)
    for number, step in enumerate(scenario.steps):
        if number == at:
            run.engine.add(copy)
        run.step(step)
    first = sum(step[0] != "push" for step in scenario.steps[:at])
    due = [(n, r) for n, result in enumerate(run.expected) for r in result[like.name] if n >= first]
    assert len(run.rows) == len(due)
    for (_, row), n in zip(run.rows, [n for n, _ in run.rows], strict=True):
        assert matching(row, [r for m, r in due if m == n]) is not None


@examples(0.4)
@given(data=st.data())
def test_a_query_removed_on_the_way(data: st.DataObject) -> None:
    """With drain it gives exactly the windows that began by then; without, nothing more."""
    scenario = small(data, ["none", "drop"])
    query = data.draw(st.sampled_from(scenario.queries))
    drain, at = data.draw(st.booleans()), data.draw(st.integers(0, len(scenario.steps) - 1))
    run = Run(scenario, query, from_start=True)
    newest = NEVER
    for number, step in enumerate(scenario.steps):
        if number == at:
            newest = run.engine.newest
            run.engine.remove(query.name, drain=drain)
            if not drain:
                assert query.name not in run.engine.queries
        run.step(step)
    first = sum(step[0] != "push" for step in scenario.steps[:at])
    truth = oracle_run([query], scenario.steps, **scenario.settings)
    for number, result in enumerate(truth):
        found = [row for n, row in run.rows if n == number]
        expected = result[query.name]
        if number >= first:
            expected = [r for r in expected if drain and r["window_start"] <= newest]
        assert len(found) == len(expected), (number, found, expected)
        assert all(matching(row, expected) is not None for row in found)
    if isinstance(query.window, Periodic | Gap):
        assert query.name not in run.engine.queries


@examples(0.4)
@given(data=st.data())
def test_a_snapshot_after_changes(data: st.DataObject) -> None:
    """An engine restored after adding and removing goes on as the one that was not."""
    scenario = small(data, ["none"], kinds=["tumbling", "sliding", "session", "cut"])
    query = drawn(data, scenario, data.draw(st.sampled_from(KINDS)))
    gone = data.draw(st.sampled_from(scenario.queries)).name
    at = data.draw(st.integers(0, len(scenario.steps) - 1))
    engine = ct.Engine(scenario.queries, **scenario.settings)
    other = engine
    for number, step in enumerate(scenario.steps):
        if number == at:
            engine.add(query)
            engine.remove(gone)
            other = ct.Engine.restore(engine.snapshot())
        for each in {id(e): e for e in (engine, other)}.values():
            if step[0] == "push":
                each.push(to_table(step[1]))
        if step[0] == "push":
            continue
        outs = [
            each.close() if step[0] == "close" else each.advance(step[1])
            for each in {id(e): e for e in (engine, other)}.values()
        ]
        assert set(outs[0]) == set(outs[-1])
        for name in outs[0]:
            one, two = (sorted(map(repr, rows_of(out[name]))) for out in (outs[0], outs[-1]))
            assert one == two, name
    assert engine.queries.keys() == other.queries.keys()


# By hand.

SUM = ct.Query("sum", ct.sum("v").alias("x"), window=ct.tumbling("10s"))


def running(*queries_: ct.Query, at: Sequence[float] = (1, 12), **settings_: Any) -> ct.Engine:
    """An engine in the middle of things: events at these seconds, each of value its second."""
    engine = ct.Engine(queries_, **settings_)
    engine.push(seconds(at, v=[int(s) for s in at], n=[int(s) for s in at]))
    return engine


def finish(engine: ct.Engine, *at: float) -> ct.Results:
    engine.push(seconds(at, v=[int(s) for s in at], n=[int(s) for s in at]))
    return engine.close()


def test_kept_slices_serve_a_window_on_their_edges() -> None:
    engine = running(SUM)
    engine.add(ct.Query("new", ct.sum("v").alias("y"), window=ct.tumbling("20s")))
    assert values(finish(engine, 15), "new") == [(1 + 12 + 15,)]


def test_an_edge_inside_a_kept_slice_is_not_answered() -> None:
    engine = running(SUM)
    engine.add(ct.Query("new", ct.sum("v").alias("y"), window=ct.tumbling("5s")))
    # [0, 10) is cut by 5. [10, 20) would be by 15, but holds nothing after 12: [10, 15) is whole.
    assert starts(finish(engine, 16, 21), "new") == [10 * SECOND, 15 * SECOND, 20 * SECOND]


def test_slices_that_are_gone_serve_nobody() -> None:
    engine = running(SUM)
    engine.advance(11 * SECOND)
    engine.add(ct.Query("new", ct.sum("v").alias("y"), window=ct.tumbling("20s")))
    assert starts(finish(engine, 15, 25), "new") == [20 * SECOND]


def test_new_operators_start_after_the_newest_event() -> None:
    engine = running(SUM)
    engine.add(ct.Query("new", ct.max("v").alias("y"), window=ct.tumbling("10s")))
    found = finish(engine, 15, 25)
    assert values(found, "new") == [(25,)]
    assert values(found, "sum") == [(1,), (27,), (25,)]


@pytest.mark.parametrize("window", [ct.tumbling("10s"), ct.tumbling("20s")])
def test_operators_added_a_moment_ago_have_seen_nothing_either(window: Any) -> None:
    engine = running(SUM)
    engine.add(ct.Query("new", ct.max("v").alias("y"), window=ct.tumbling("10s")))
    engine.add(ct.Query("newer", ct.max("v").alias("z"), window=window))
    found = finish(engine, 11, 21, 41)
    assert 0 not in starts(found, "newer")
    assert 10 * SECOND not in starts(found, "newer")
    assert (41,) in values(found, "newer")


def test_an_operator_dropped_and_added_again() -> None:
    most = ct.Query("max", ct.max("v").alias("y"), window=ct.tumbling("10s"))
    engine = running(SUM, most)
    engine.remove("max", drain=False)
    engine.push(seconds([13], v=[13], n=[13]))
    engine.add(most)
    assert values(finish(engine, 11, 21), "max") == [(1,), (13,), (21,)]


@pytest.mark.parametrize("function", ["median", "mode", "count_distinct"])
@pytest.mark.parametrize("window", [ct.tumbling("20s"), ct.session("20s"), ct.count_tumbling(3)])
def test_a_sort_takes_over_from_what_it_contains(function: str, window: Any) -> None:
    """A sort stands in for count, min and max: those there before must keep what they have seen."""
    old = ct.Query("old", ct.avg("v"), ct.min("v"), ct.max("v"), ct.count("v"), window=window)
    engine = running(old)
    engine.add(ct.Query("new", make(function, "v"), window=ct.tumbling("5s")))
    assert values(finish(engine, 14), "old") == [(9.0, 1, 14, 3)]


@pytest.mark.parametrize("drain", [True, False])
def test_what_a_sort_contains_takes_over_again(drain: bool) -> None:
    old = ct.Query("old", ct.avg("v"), ct.min("v"), ct.max("v"), window=ct.tumbling("20s"))
    engine = running(old, ct.Query("median", ct.median("v"), window=ct.tumbling("5s")))
    engine.remove("median", drain=drain)
    engine.advance(18 * SECOND)
    assert values(finish(engine, 18), "old") == [((1 + 12 + 18) / 3, 1, 18)]


@pytest.mark.parametrize("count", ["count_tumbling", "cut", "between"])
@pytest.mark.parametrize("new", ["column", "condition", "count", "session", "tumbling"])
def test_events_that_wait_lack_what_a_new_query_reads(count: str, new: str) -> None:
    window = {
        "count_tumbling": ct.count_tumbling(1),
        "cut": ct.cut("v > 0"),
        "between": ct.between("v > 0", "v > 0"),
    }[count]
    engine = running(ct.Query("old", ct.sum("v").alias("x"), window=window))
    added_query = {
        "column": ct.Query("new", ct.max("n"), window=window),
        "condition": ct.Query("new", ct.sum("v"), window=ct.cut("n > 1")),
        "count": ct.Query("new", ct.last("n"), window=ct.count_tumbling(2)),
        "session": ct.Query("new", ct.sum("n"), window=ct.session("1s")),
        "tumbling": ct.Query("new", ct.sum("n"), window=ct.tumbling("1s")),
    }[new]
    engine.add(added_query)
    engine.advance(12 * SECOND + 1)
    found = finish(engine, 14, 16, 18)
    assert found["old"].num_rows > 0
    assert found["new"].num_rows > 0


def test_a_window_beside_a_fixed_one() -> None:
    """The slices around a fixed window have no bounds: they must not be laid out edge by edge."""
    engine = running(ct.Query("old", ct.count(), window=ct.fixed(0, 10 * SECOND)))
    engine.add(ct.Query("new", ct.count(), window=ct.tumbling("1s")))
    assert 25 * SECOND in starts(finish(engine, 25), "new")


def test_a_window_after_a_fixed_one_is_over() -> None:
    engine = running(ct.Query("old", ct.count(), window=ct.fixed(0, 10 * SECOND)))
    engine.advance(20 * SECOND)
    engine.add(ct.Query("new", ct.count(), window=ct.tumbling("5s")))
    assert starts(finish(engine, 21, 26, 40), "new")[-2:] == [25 * SECOND, 40 * SECOND]


def test_an_event_that_opens_and_closes_tells_nothing_of_what_was_before() -> None:
    """Whether a window is open is unknown until an event that only ends one."""
    query = ct.Query("new", ct.count(), window=ct.between("a", "b"))
    engine = ct.Engine([ct.Query("old", ct.count(), window=ct.tumbling("1s"))])
    engine.push(table([1], a=[False], b=[False]))
    engine.add(query)
    # At 2 it opens (none was open): 3 opens nothing, 4 ends it.
    engine.push(table([2, 3, 4], a=[True, True, False], b=[True, False, True]))
    found = rows_of(engine.close()["new"])
    assert [(row["window_start"], row["window_end"]) for row in found] in ([], [(2, 4)])


def test_processing_time_has_its_own_clock() -> None:
    """A query on the wall clock starts with the first window of that clock that it sees whole."""
    clock = [1001 * SECOND]
    engine = running(SUM, at=[5], clock=lambda: clock[0])
    engine.add(ct.Query("new", ct.sum("v"), window=ct.tumbling("10s"), measure="processing"))
    for clock[0], at in ((1003 * SECOND, 6), (1012 * SECOND, 7)):
        engine.push(seconds([at], v=[at], n=[at]))
    assert values(engine.close(), "new") == [(7,)]


def test_processing_time_drains_by_its_own_clock() -> None:
    clock = [1001 * SECOND]
    query = ct.Query("q", ct.sum("v"), window=ct.tumbling("10s"), measure="processing")
    engine = running(SUM, query, at=[5], clock=lambda: clock[0])
    engine.remove("q")
    clock[0] = 1020 * SECOND
    assert values(engine.advance(6 * SECOND), "q") == [(5,)]


def test_a_query_is_added_before_any_event() -> None:
    engine = ct.Engine([SUM])
    engine.add(ct.Query("new", ct.max("v"), window=ct.count_tumbling(1)))
    assert values(finish(engine, 1, 2), "new") == [(1,), (2,)]


def test_a_query_that_does_not_fit_is_not_added() -> None:
    engine = running(SUM)
    with pytest.raises(ct.SchemaError, match="no such column"):
        engine.add(ct.Query("new", ct.sum("nope"), window=ct.tumbling("10s")))
    assert list(engine.queries) == ["sum"]
    assert values(finish(engine, 13), "sum") == [(1,), (25,)]


def test_all_queries_leave_and_one_comes() -> None:
    engine = running(SUM)
    engine.remove("sum", drain=False)
    engine.push(seconds([14], v=[14], n=[14]))
    engine.add(SUM)
    assert starts(finish(engine, 15, 22), "sum") == [20 * SECOND]
