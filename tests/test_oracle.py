"""The oracle itself, against windows worked out by hand. One letter or number is one event."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given

from catchment.engine import Engine
from catchment.errors import QueryError
from catchment.model.query import Aggregate, Query
from catchment.model.window import Window
from catchment.testing.compare import assert_same
from catchment.testing.oracle import OracleResults, Row, oracle, oracle_run
from catchment.testing.strategies import Scenario, scenarios, to_table
from catchment.windows import (
    between,
    count_sliding,
    count_tumbling,
    cumulate,
    cut,
    fixed,
    session,
    sliding,
    tumbling,
)

TOTAL = Aggregate("sum", "v", (), "total")


def q(window: Window, **rest: object) -> Query:
    return Query("q", TOTAL, window=window, **rest)  # type: ignore[arg-type]


def at(*times: int, **columns: object) -> list[Row]:
    """Events whose values 1, 2, 4, ... tell in every sum which events it holds."""
    return [{"ts": t, "v": 2**i, **columns} for i, t in enumerate(times)]


def spans(rows: list[Row]) -> list[tuple[int, int, int]]:
    return sorted((r["window_start"], r["window_end"], r["total"]) for r in rows)


def totals(window: Window, events: list[Row], **rest: object) -> list[tuple[int, int, int]]:
    return spans(oracle([q(window, **rest)], events)["q"])


# Windows over a whole input.


def test_tumbling() -> None:
    # time   0    5    10   15   20
    # event  1   2     4             8        v = 1, 2, 4, 8
    #        [---------)[--------)[--------)
    assert totals(tumbling("10us"), at(0, 4, 10, 29)) == [(0, 10, 3), (10, 20, 4), (20, 30, 8)]


def test_tumbling_with_offset_before_the_epoch() -> None:
    # time   -12 -10      -2   0
    # event   1     2      4             windows start at ..., -12, -2, 8, ...
    assert totals(tumbling("10us", offset="8us"), at(-12, -3, -2)) == [(-12, -2, 3), (-2, 8, 4)]


def test_sliding_overlaps() -> None:
    # time    0    5    10   15
    # event   1      2  4                length 10, slide 5
    #     [--------)
    #          [--------)
    #               [--------)
    #                    [--------)
    expected = [(-5, 5, 1), (0, 10, 3), (5, 15, 6), (10, 20, 4)]
    assert totals(sliding("10us", "5us"), at(0, 7, 10)) == expected


def test_sliding_with_gaps_leaves_events_out() -> None:
    # time    0  3      10 13
    # event   1  2      4 8              length 3, slide 10: [0, 3), [10, 13)
    assert totals(sliding("3us", "10us"), at(0, 3, 10, 12)) == [(0, 3, 1), (10, 13, 12)]


def test_fixed_is_one_window() -> None:
    assert totals(fixed(5, 15), at(4, 5, 14, 15, 25)) == [(5, 15, 6)]


def test_session_joins_at_exactly_the_gap() -> None:
    # time    0    5    10   15   20
    # event   1    2          4            gap 5: 0 and 5 share, 11 is 6 later
    #         [---------)[------)
    assert totals(session("5us"), at(0, 5, 11)) == [(0, 10, 3), (11, 16, 4)]


def test_cut_runs_from_marker_to_marker() -> None:
    # time    1  2  3  4  5
    # event   .  .  M  .  M              the last window has no next marker: no result
    #         [-----)[----)
    events = [{"ts": t, "v": 2**t, "m": t in (3, 5)} for t in range(1, 6)]
    assert totals(cut("m"), events) == [(1, 3, 6), (3, 5, 24)]


def test_cut_at_the_very_first_event_opens_no_empty_window() -> None:
    events = [{"ts": t, "v": 1, "m": t in (1, 3)} for t in (1, 2, 3)]
    assert totals(cut("m"), events) == [(1, 3, 2)]


def test_between_takes_both_ends_and_ignores_what_is_outside() -> None:
    # time    1  2  3  4  5  6  7
    # event   e  s  .  s  e  .  s        [2, 5]; the window of 7 never ends
    text = dict(enumerate("es.se.s", 1))
    events = [{"ts": t, "v": 2**t, "c": c} for t, c in text.items()]
    assert totals(between("c = 's'", "c = 'e'"), events) == [(2, 5, 4 + 8 + 16 + 32)]


def test_between_an_event_that_meets_both_opens_first_and_ends_next() -> None:
    events = [{"ts": t, "v": 1, "m": True} for t in (1, 2, 3)]
    assert totals(between("m", "m"), events) == [(1, 2, 2)]


def test_count_windows_rank_by_time_then_arrival() -> None:
    # arrival  a:5 b:1 c:5 d:3 e:9       ranks: b d a c e
    events = at(5, 1, 5, 3, 9)
    rows = oracle([q(count_tumbling(2))], events)["q"]
    assert spans(rows) == [(1, 3, 2 + 8), (5, 5, 1 + 4)]
    assert [r["window_index"] for r in rows] == [0, 1]


def test_count_sliding_with_a_step_past_its_size() -> None:
    rows = oracle([q(count_sliding(2, 3))], at(1, 2, 3, 4, 5, 6))["q"]
    assert [(r["window_index"], r["total"]) for r in rows] == [(0, 3), (1, 24)]


def test_keys_null_is_a_key_and_minus_zero_is_zero() -> None:
    keys = [None, None, 0.0, -0.0, math.nan, -math.nan]
    events = [{"ts": 1, "v": 2**i, "k": k} for i, k in enumerate(keys)]
    assert totals(tumbling("9us"), events, by="k") == [(0, 9, 3), (0, 9, 12), (0, 9, 48)]


def test_where_a_null_condition_is_not_met() -> None:
    events = [{"ts": 1, "v": v} for v in (None, 1, 2, 4)]
    assert totals(tumbling("9us"), events, where="v <> 2") == [(0, 9, 5)]


def test_distinct_looks_both_ways_in_time_and_only_at_accepted_events() -> None:
    # arrival   20 30 10 31               within 10: 30 and 10 repeat 20; 31 is free
    events = at(20, 30, 10, 31, id=1)
    rest = {"distinct_on": "id", "distinct_within": "10us"}
    assert totals(fixed(0, 99), events, **rest) == [(0, 99, 1 + 8)]


def test_times_may_be_datetimes_and_a_null_time_is_set_aside() -> None:
    events = [
        {"ts": datetime(1970, 1, 1, tzinfo=UTC), "v": 1},
        {"ts": datetime(1970, 1, 1, 0, 0, 0, 3), "v": 2},  # naive means UTC
        {"ts": None, "v": 4},
    ]
    assert totals(tumbling("2us"), events) == [(0, 2, 1), (2, 4, 2)]


def test_processing_time_is_refused() -> None:
    with pytest.raises(QueryError, match="the oracle has no clock"):
        oracle([q(tumbling("1us"), measure="processing")], [])


# Frontier steps.


def runs(window: Window, *steps: object, **settings: object) -> list[OracleResults]:
    """An int is an advance, a list a push; a close comes last."""
    made = [("advance", s) if isinstance(s, int) else ("push", s) for s in steps]
    return oracle_run([q(window)], [*made, ("close",)], **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("window", "last_open", "span"),
    [
        (tumbling("10us"), 9, (0, 10, 7)),  # complete when end <= frontier
        (session("5us"), 12, (3, 12, 7)),  # complete when last + gap < frontier
        (count_tumbling(3), 7, (3, 7, 7)),  # complete when the last event is earlier than it
    ],
)
def test_when_a_window_is_complete(
    window: Window, last_open: int, span: tuple[int, int, int]
) -> None:
    results = runs(window, at(3, 5, 7), last_open, last_open + 1)
    assert [spans(r["q"]) for r in results] == [[], [span], []]


def test_marked_windows_wait_for_settled_events() -> None:
    # time    1  2  3                     the marker at 3 settles when the frontier is past it
    events = [{"ts": t, "v": 1, "m": t == 3} for t in (1, 2, 3)]
    assert [spans(r["q"]) for r in runs(cut("m"), events, 3, 4)] == [[], [(1, 3, 2)], []]


def test_late_events_are_dropped_after_lateness() -> None:
    # frontier = 12 - 4 = 8: 7 is late, 8 is not
    results = runs(tumbling("10us"), at(1), 12, at(7, 8), lateness=4)
    assert [spans(r["q"]) for r in results] == [[], [(0, 10, 1 + 2)]]


def test_the_frontier_never_goes_back() -> None:
    results = runs(tumbling("10us"), 20, 5, at(7, 21))
    assert spans(results[-1]["q"]) == [(20, 30, 2)]


def versions(rows: list[Row]) -> list[tuple[int, int, int | None, int]]:
    """Start, end, total and revision; a retracted window has no total."""
    for row in rows:
        assert row["retracted"] == (row["total"] is None)
    found = [(r["window_start"], r["window_end"], r["total"], r["revision"]) for r in rows]
    return sorted(found, key=lambda f: f[:2])


def test_update_revises_and_forgets() -> None:
    # frontier 20, keep 15: 4 is too old, 5 revises [0, 10), 12 makes [10, 20)
    late = [{"ts": 4, "v": 64}, {"ts": 5, "v": 8}, {"ts": 12, "v": 16}]
    results = runs(tumbling("10us"), at(1), 20, late, 20, late="update", keep=15)
    assert [versions(r["q"]) for r in results] == [
        [(0, 10, 1, 0)],
        [(0, 10, 9, 1), (10, 20, 16, 0)],
        [],
    ]


HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("window", "probe", "keep"),
    [
        (tumbling("10us"), tumbling("1us"), 10),
        (sliding("6us", "2us"), tumbling("1us"), 6),
        (fixed(0, 30), tumbling("1us"), 30),
        (cumulate("12us", "4us"), tumbling("1us"), 12),
        (session("7us"), tumbling("1us"), 7),
        (between("v > 0", "v > 2"), count_tumbling(1), HOUR),
        (cut("v > 0"), count_tumbling(1), HOUR),
    ],
    ids=lambda value: value.kind if isinstance(value, Window) else str(value),
)
def test_what_is_kept_by_default(window: Window, probe: Window, keep: int) -> None:
    """An event so much older than the frontier still counts; one a microsecond older does not.

    The oracle and the engine work it out apart. The windows of `probe` hold an event each.
    """
    queries = [q(window), Query("probe", TOTAL, window=probe)]
    late = [{"ts": 50 - keep - 1, "v": 2}, {"ts": 50 - keep, "v": 4}]
    steps = [("push", at(48)), ("advance", 50), ("push", late), ("close",)]
    found = oracle_run(queries, steps, late="update")
    assert {row["total"] for rows in found for row in rows["probe"]} - {None} == {1, 4}
    engine = Engine(queries, late="update")
    tables = []
    for events in (at(48), late):
        times = pa.array([row["ts"] for row in events], pa.timestamp("us", "UTC"))
        engine.push(pa.table({"ts": times, "v": [row["v"] for row in events]}))
        tables.append(engine.advance(50)["probe"])
    tables.append(engine.close()["probe"])
    assert {n for table in tables for n in table["total"].to_pylist()} - {None} == {1, 4}


def test_update_fuses_sessions() -> None:
    # time    0         10               gap 5: two sessions, until 5 comes
    #         [----)    [----)
    #         [--------------)
    late = [{"ts": 5, "v": 4}]
    results = runs(session("5us"), at(0, 10), 20, late, 20, late="update", keep=50)
    assert versions(results[1]["q"]) == [(0, 5, None, 1), (0, 15, 7, 0), (10, 15, None, 1)]


def test_update_shifts_count_windows() -> None:
    # ranks   1 2 | 3 4  ->  1 x | 2 3 | 4     x = 8
    late = [{"ts": 1, "v": 8}]
    steps = (at(1, 2, 3), 9, late, 9)
    results = runs(count_tumbling(2), *steps, late="update", keep=50)
    assert versions(results[0]["q"]) == [(1, 2, 3, 0)]
    assert versions(results[1]["q"]) == [(1, 1, 9, 0), (1, 2, None, 1), (2, 3, 6, 0)]
    indexes = {row["window_end"]: row["window_index"] for row in results[1]["q"]}
    assert indexes == {1: 0, 2: 0, 3: 1}


def test_update_a_window_may_come_back() -> None:
    # first   . . . . s . e        [5, 7]
    # then    . s . . s . e        [2, 7]: a late start takes its place
    # then    . s e . s . e        [2, 3] and [5, 7] again, its third version
    def event(time: int, mark: str) -> list[Row]:
        return [{"ts": time, "v": 1, "c": mark}]

    steps = (event(5, "s") + event(7, "e"), 9, event(2, "s"), 9, event(3, "e"), 9)
    results = runs(between("c = 's'", "c = 'e'"), *steps, late="update", keep=50)
    assert [versions(r["q"]) for r in results] == [
        [(5, 7, 2, 0)],
        [(2, 7, 3, 0), (5, 7, None, 1)],
        [(2, 3, 2, 0), (2, 7, None, 1), (5, 7, 2, 2)],
        [],
    ]


# Comparison and strategies.


def test_the_difference_is_readable() -> None:
    expected = [{"k": "a", "window_start": 0, "window_end": 9, "n": 1, "m": 0.5}]
    given_rows = [
        {"k": "a", "window_start": 0, "window_end": 9, "n": 2, "m": 0.5 + 1e-12},
        {"k": "b", "window_start": 0, "window_end": 9, "n": 2, "m": None},
    ]
    with pytest.raises(AssertionError) as caught:
        assert_same(expected, pa.Table.from_pylist(given_rows), "here")
    assert str(caught.value).splitlines() == [
        "here: 1 rows expected, 2 given",
        "  k='a', window_start=0, window_end=9: n expected 1, given 2",
        "  surplus: k='b', window_start=0, window_end=9, n=2, m=None",
    ]


def test_missing_rows_and_columns_are_named() -> None:
    expected = [{"window_start": 0, "window_end": 9, "n": 1}]
    with pytest.raises(AssertionError, match="missing: window_start=0"):
        assert_same(expected, pa.table({}))
    table = pa.table({"window_start": [0], "window_end": [9], "n": [1], "z": [1]})
    with pytest.raises(AssertionError, match="surplus column: z"):
        assert_same(expected, table)


@given(scenarios(special=True, huge=True, approximate=True))
def test_every_scenario_can_be_run(scenario: Scenario) -> None:
    results = oracle_run(scenario.queries, scenario.steps, **scenario.settings)
    assert len(results) == sum(step[0] != "push" for step in scenario.steps)
    assert to_table(scenario.events).num_rows == len(scenario.events) == len(scenario.nodes)


@given(scenarios(late="none"))
def test_frontier_steps_do_not_change_results(scenario: Scenario) -> None:
    steps = oracle_run(scenario.queries, scenario.steps, **scenario.settings)
    whole = oracle(scenario.queries, scenario.events)
    for name, rows in whole.items():
        together = [row for step in steps for row in step[name]]
        assert sorted(map(repr, together)) == sorted(map(repr, rows))


@given(scenarios(late="update"))
def test_updates_end_where_the_whole_input_does(scenario: Scenario) -> None:
    """With nothing too old, the last version of every window is its row in the whole input."""
    settings = {**scenario.settings, "keep": 10**15}
    final: dict[tuple[object, ...], Row] = {}
    identity = ("k", "j", "window_start", "window_end", "window_index")
    for step in oracle_run(scenario.queries, scenario.steps, **settings):
        for name, rows in step.items():
            for row in rows:
                final[name, *(row.get(c) for c in identity)] = row
    standing = [name for (name, *_), row in final.items() if not row["retracted"]]
    for name, rows in oracle(scenario.queries, scenario.events).items():
        assert len({tuple(row.get(c) for c in identity) for row in rows}) == len(rows)
        assert standing.count(name) == len(rows)
