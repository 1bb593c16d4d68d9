"""Windows that begin where the one before ends: limited sessions, gaps of events, count_within."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.errors import CatchmentError
from catchment.job.window import read_window
from catchment.model.window import Window, window_from_dict
from catchment.simulate import World
from catchment.testing.compare import assert_same, rows_of
from catchment.testing.oracle import oracle, oracle_run
from catchment.testing.strategies import CHAINED, KINDS, Scenario, scenarios, to_table
from catchment.windows.count import CountWithin
from catchment.windows.session import LimitedSession, Session
from small_tables import examples
from trees import batches, charter, check

SECOND = 1_000_000


def events(times: list[int], **columns: list[Any]) -> pa.Table:
    stamps = pa.array([time * SECOND for time in times], pa.timestamp("us", "UTC"))
    return pa.table({"ts": stamps, **columns})


def windows(table: pa.Table) -> list[tuple[int, int, int]]:
    """Bounds in seconds, and the number of events, in order."""
    rows = rows_of(table)
    return sorted(
        (row["window_start"] // SECOND, row["window_end"] // SECOND, row["n"]) for row in rows
    )


def query(window: Window, **more: Any) -> ct.Query:
    return ct.Query("q", ct.count().alias("n"), window=window, **more)


def given_by(window: Window, table: pa.Table) -> list[tuple[int, int, int]]:
    engine = ct.Engine([query(window)])
    engine.push(table)
    return windows(engine.close()["q"])


def test_a_session_of_a_maximal_length() -> None:
    # ts   0  2  4  6  8  10 12 14 16
    #      x  x  x  x  x  x        x      gap 3, at most 6: the event at 6 begins the next
    #      [--------)
    #               [--------)
    #                        ^ 12 would be the end by length; the gap of the event at 10 ends it
    table = events([0, 2, 4, 6, 8, 10, 16])
    window = ct.session("3s", max_length="6s")
    assert given_by(window, table) == [(0, 6, 3), (6, 12, 3), (16, 19, 1)]


def test_a_session_of_a_minimal_number_of_events() -> None:
    table = events([0, 1, 10, 20, 21, 22])
    assert given_by(ct.session("2s", min_events=2), table) == [(0, 3, 2), (20, 24, 3)]
    assert given_by(ct.session("2s", min_events=3), table) == [(20, 24, 3)]


def test_a_session_with_gaps_from_a_column() -> None:
    # ts   0  1  2  3  4  5  6  7  8  9
    #      5     1        x     x           5 reaches to 5, where an event reaches 1 further
    table = events([0, 2, 5, 7], g=[5.0, 1.0, 1.0, 0.5])
    assert given_by(ct.session(gap_from="g"), table) == [(0, 6, 3), (7, 7, 1)]
    half = ct.session(gap_from="g / 2")
    assert [count for *_, count in given_by(half, table)] == [2, 1, 1]


def test_events_without_a_usable_gap_are_in_no_session() -> None:
    gaps = [2.0, None, -1.0, 0.0, float("nan"), float("inf"), 2.0]
    table = events([0, 1, 1, 1, 1, 1, 1], g=gaps)
    engine = ct.Engine([query(ct.session(gap_from="g")), query_of_all()])
    engine.push(table)
    results = engine.close()
    assert windows(results["q"]) == [(0, 3, 2)]
    assert windows(results["all"]) == [(0, 10, 7)]  # other queries have them all the same
    assert "g > 0" in engine.explain()


def query_of_all() -> ct.Query:
    return ct.Query("all", ct.count().alias("n"), window=ct.tumbling("10s"))


def test_so_many_events_or_so_long() -> None:
    # ts   0  1  2  3  4  5  6  7  8  9
    #      x  x  x  x              x  x     three events or four seconds
    #      [-----]
    #               [-----------)
    #                              [----------)
    window = ct.count_within(3, "4s")
    assert given_by(window, events([0, 1, 2, 3, 8, 9])) == [(0, 2, 3), (3, 7, 1), (8, 12, 2)]


def test_full_windows_of_one_instant_are_numbered() -> None:
    engine = ct.Engine([query(ct.count_within(2, "4s"))])
    engine.push(events([5] * 5))
    rows = rows_of(engine.close()["q"])
    found = [(row["window_start"], row["window_end"], row["window_index"]) for row in rows]
    at, end = 5 * SECOND, 9 * SECOND
    assert sorted(found) == [(at, at, 0), (at, at, 1), (at, end, 0)]


def test_a_window_is_given_when_its_time_has_passed() -> None:
    """Not before, as an event just as late as the gap would still be in it."""
    engine = ct.Engine([query(ct.session("3s", max_length="10s"))])
    engine.push(events([0, 3]))
    assert windows(engine.advance(6 * SECOND)["q"]) == []
    assert windows(engine.advance(6 * SECOND + 1)["q"]) == [(0, 6, 2)]
    engine.push(events([7, 10, 13, 16]))
    assert windows(engine.advance(16 * SECOND)["q"]) == []
    assert windows(engine.advance(17 * SECOND)["q"]) == [(7, 17, 4)]
    assert windows(engine.close()["q"]) == []


MIXED = [*CHAINED, *CHAINED, *(kind for kind in KINDS if kind not in ("cut", "between"))]


def run(scenario: Scenario, restart: bool) -> list[dict[str, pa.Table]]:
    engine = ct.Engine(scenario.queries, lateness=f"{scenario.lateness}us", late="drop")
    out = []
    for step in scenario.steps:
        if step[0] == "push":
            engine.push(to_table(step[1]))
        else:
            out.append(engine.close() if step[0] == "close" else engine.advance(step[1]))
        if restart and step[0] != "close":
            engine = ct.Engine.restore(engine.snapshot())
    return out


@examples(1.2)
@given(
    scenario=st.sampled_from(["none", "drop"]).flatmap(
        lambda late: scenarios(late=late, kinds=MIXED, max_queries=4, special=True)
    ),
    restart=st.booleans(),
)
def test_an_engine(scenario: Scenario, restart: bool) -> None:
    """Among windows of other shapes, batch by batch, going on from snapshots."""
    truth = oracle_run(scenario.queries, scenario.steps, lateness=scenario.lateness)
    for number, (wanted, found) in enumerate(zip(truth, run(scenario, restart), strict=True)):
        for asked in scenario.queries:
            assert_same(wanted[asked.name], found[asked.name], f"step {number}, {asked.name}")


@examples(0.6)
@given(
    window=st.sampled_from(
        [
            ct.session("3s", max_length="7s"),
            ct.session(gap_from="g", max_length="9s"),
            ct.count_within(3, "5s"),
        ]
    ),
    times=st.lists(st.integers(0, 40), min_size=2, max_size=25).map(sorted),
)
def test_one_that_is_added_counts_from_the_newest_event_on(
    window: Window, times: list[int]
) -> None:
    half = len(times) // 2
    table = events(times, g=[float(time % 4) for time in times])
    engine = ct.Engine([query_of_all(), ct.Query("m", ct.max("g"), window=ct.session("2s"))])
    engine.push(table[:half])
    engine.advance(times[0] * SECOND)
    engine.add(query(window))
    engine.push(table[half:])
    later = [row for row in table.to_pylist() if row["ts"] > table["ts"][half - 1].as_py()]
    assert_same(oracle([query(window)], later)["q"], engine.close()["q"])


def test_a_tree() -> None:
    parents = {"root": None, "m": "root", "a": "m", "b": "m", "c": "root"}
    queries = [
        ct.Query("limited", ct.sum("v"), by="k", window=ct.session("700ms", max_length="2s")),
        ct.Query("own", ct.count(), ct.max("v"), by="k", window=ct.session(gap_from="v / 50")),
        ct.Query("within", ct.median("v"), by="k", window=ct.count_within(5, "1s")),
        ct.Query("plain", ct.count(), by="k", window=ct.tumbling("1s")),
    ]
    arrived = {id: batches(n, count=120, spread=12) for n, id in enumerate("abc")}
    world = World(charter(parents, queries), arrived, until=0)
    world.run()
    assert world.done
    check(world.deliveries, arrived, queries)


def test_a_query_that_drains_gives_the_windows_that_have_begun() -> None:
    engine = ct.Engine([query(ct.session("3s", max_length="20s")), query_of_all()])
    engine.push(events([0, 2]))
    engine.advance(2 * SECOND)
    engine.remove("q", drain=True)
    engine.push(events([4, 30, 31]))
    found = windows(engine.advance(40 * SECOND)["q"])
    assert found == [(0, 7, 3)]
    assert "q" not in engine.close()


def test_python_sql_and_yaml_say_the_same() -> None:
    window = ct.session("30s", max_length="1h", min_events=3)
    assert window == LimitedSession(30 * SECOND, None, 3600 * SECOND, None, 3)
    call = "session_window(ts, '30 seconds', max_length => '1 hour', min_events => 3)"
    assert ct.sql(f"SELECT count(*) FROM e GROUP BY {call}", name="q").window == window
    assert read_window("session(30s, max_length=1h, min_events=3)", "window") == window
    assert window_from_dict(window.to_dict()) == window
    assert window.describe() == "session(30s, max_length=1h, min_events=3)"
    window = ct.session(gap_from="wait_ms / 1000")
    call = "session_window(ts, gap_from => wait_ms/1000)"
    assert ct.sql(f"SELECT count(*) FROM e GROUP BY {call}", name="q").window == window
    assert read_window({"session": {"gap_from": "wait_ms/1000"}}, "window") == window
    window = ct.count_within(1000, "10s")
    assert window == CountWithin(max_length=10 * SECOND, max_events=1000)
    for call in ("count_window(1000, within => '10 seconds')", "count_within(1000, '10s')"):
        assert ct.sql(f"SELECT count(*) FROM e GROUP BY {call}", name="q").window == window
    assert read_window("count_within(1000, 10s)", "window") == window
    assert ct.session("30s") == Session(30 * SECOND)


def test_a_query_is_the_same_when_it_is_read_again() -> None:
    made = query(ct.session(gap_from="g"), where="k = 'a'")
    assert made.where == "k = 'a' AND g > 0 AND g <= 1000000000000"
    assert ct.Query.from_dict(made.to_dict()) == made


@pytest.mark.parametrize(
    ("make", "message", "hint"),
    [
        (lambda: ct.session(), "one gap", "30 minutes"),
        (lambda: ct.session("3s", gap_from="g"), "one gap", "30 minutes"),
        (lambda: ct.session("0s", max_length="3s"), "must be positive", "longer than zero"),
        (lambda: ct.session("3s", max_length="-1s"), "must be positive", "longer than zero"),
        (lambda: ct.session("3s", min_events=0), "positive whole number", "1000"),
        (lambda: ct.session("3s", min_events=1.5), "positive whole number", "1000"),
        (lambda: ct.session(gap_from=3), "must be a text", ""),
        (lambda: ct.session(gap_from="g +"), "session gap", ""),
        (lambda: ct.count_within(0, "3s"), "positive whole number", "1000"),
        (lambda: ct.count_within(3, "0s"), "must be positive", "longer than zero"),
        (
            lambda: ct.sql(
                "SELECT count(*) FROM e GROUP BY count_window(3, 2, within => '1s')", name="q"
            ),
            "do not slide",
            "one of the two",
        ),
        (
            lambda: ct.Engine([query(ct.session("3s", max_length="9s"))], late="update"),
            "cannot be corrected",
            "drop or collect",
        ),
        (
            lambda: ct.Engine([query(ct.session(gap_from="g"))]).push(events([1], g=["1 s"])),
            "gap of a session is a number of seconds",
            "name a column of numbers",
        ),
        (
            lambda: ct.Engine([query(ct.session(gap_from="h"))]).push(events([1], g=[1.0])),
            "no such column",
            "",
        ),
        (
            lambda: ct.Engine([query(ct.session(gap_from="g"))]).push(events([1], g=[True])),
            "",
            "",
        ),
    ],
)
def test_bad_input(make: Any, message: str, hint: str) -> None:
    with pytest.raises(CatchmentError) as caught:
        make()
    assert message in caught.value.what
    assert hint in (caught.value.hint or "")


def test_events_whose_gap_is_unusable_are_counted() -> None:
    events = pa.table(
        {
            "ts": pa.array([1, 2, 3, 4, 5], pa.timestamp("s")),
            "gap": [1.0, None, -1.0, float("nan"), 0.0],
        }
    )
    visits = ct.Query("visits", ct.count().alias("n"), window=ct.session(gap_from="gap"))
    every = ct.Query("every", ct.count().alias("n"), window=ct.tumbling("1h"))
    given = ct.run(events, [visits, every], spark=False)
    assert given.counts["no_window"] == 4 and given.counts["accepted"] == 5
    assert given["visits"]["n"].to_pylist() == [1] and given["every"]["n"].to_pylist() == [5]
    engine = ct.Engine([visits])
    engine.push(events)
    assert engine.stats.no_window == 4
