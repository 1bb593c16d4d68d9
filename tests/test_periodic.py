"""Windows in time: types of several series, and windows that hold the same events."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import catchment as ct
from catchment.engine import assembler
from catchment.engine.complete import Spans, to_block
from catchment.engine.results import Block
from catchment.engine.shapes import periodic
from catchment.model.window import Period, Periodic, Window, register
from catchment.planner.edges import EARLIEST, LATEST, Series
from catchment.testing.compare import assert_same, rows_of
from catchment.testing.oracle import Step, oracle_run
from catchment.testing.strategies import to_table


@register
@dataclass(frozen=True, slots=True)
class TwoShifts(Periodic):
    """Of every ten microseconds the first three, and three from the fifth on."""

    kind = "two_shifts"

    @property
    def periods(self) -> tuple[Period, ...]:
        return (Period(3, 10), Period(3, 10, 5))


@register
@dataclass(frozen=True, slots=True)
class OnceAndAgain(Periodic):
    """One window from 4 to 7, and one of the same length in every ten microseconds."""

    kind = "once_and_again"

    @property
    def periods(self) -> tuple[Period, ...]:
        return (Period(3, 3, 4, only=True), Period(3, 10, 10))


def confirmed(window: Window) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """The windows said while somebody's events may be missing, and those said again thereafter."""
    query = ct.Query("q", ct.count().alias("n"), window=window)
    engine = ct.Engine([query], late="update", keep="1h")
    times = pa.array([1, 6, 11, 12, 16], pa.timestamp("us", "UTC"))
    engine.push(pa.table({"ts": times}))
    doubtful = rows_of(engine.assembler.advance(20, complete_until=0)["q"])
    assert {row["revision"] for row in doubtful} == {0}
    again = rows_of(engine.assembler.advance(20, complete_until=20)["q"])
    return (
        sorted((row["window_start"], row["n"]) for row in doubtful),
        sorted((row["window_start"], row["n"], row["revision"]) for row in again),
    )


def test_doubtful_windows_of_series_of_equal_length_are_all_confirmed() -> None:
    # ts    0   2   4   6   8   10  12  14  16  18
    #         x         x         x x       x
    #       [-----)   [-----)   [-----)   [-----)
    doubtful, again = confirmed(TwoShifts())
    assert doubtful == [(0, 1), (5, 1), (10, 2), (15, 1)]
    assert again == [(0, 1, 1), (5, 1, 1), (10, 2, 1), (15, 1, 1)]


def test_a_single_window_is_not_taken_for_one_of_a_series_of_its_length() -> None:
    # ts    0   2   4   6   8   10  12  14  16  18
    #         x         x         x x       x
    #       [-----) [-----)     [-----)
    doubtful, again = confirmed(OnceAndAgain())
    assert doubtful == [(0, 1), (4, 1), (10, 2)]
    assert again == [(0, 1, 1), (4, 1, 1), (10, 2, 1)]


def alike() -> list[ct.Query]:
    """Windows of one group with large partials; over few events, most of them hold the same."""
    windows = [ct.tumbling("60us"), ct.tumbling("120us"), ct.sliding("180us", "60us")]
    aggregates = [ct.median("v").alias("median"), ct.count_distinct("k").alias("keys")]
    return [
        ct.Query(f"q{number}", *aggregates[number % 2 :], by="k", window=window)
        for number, window in enumerate(windows)
    ]


SUBTOTALS = ct.Query(
    "subtotals",
    ct.median("v"),
    by="k",
    window=ct.sliding("180us", "60us"),
    grouping_sets=[["k"], []],
)


@pytest.mark.parametrize(
    ("queries", "settings"),
    [(alike(), {}), ([SUBTOTALS], {}), (alike(), {"late": "update", "keep": "1h"})],
    ids=["windows of three types", "subtotals", "late events update"],
)
def test_windows_that_hold_the_same_slices_share_large_partials(
    queries: list[ct.Query], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # ts    0    60   120  180  240  300  360
    #            xxxxx                              pushed first
    #                      x                        pushed then
    random = Random(5)
    early = [{"ts": random.randrange(60, 120), "k": random.choice("ab"), "v": n} for n in range(40)]
    steps: list[Step] = [
        ("push", early),
        ("advance", 130),
        ("push", [{"ts": 185, "k": "b", "v": 7}]),
        ("advance", 1_000),
    ]
    blocks: list[Block] = []

    def kept(*given: Any) -> tuple[Block, Spans]:
        block, spans = to_block(*given)
        blocks.append(block)
        return block, spans

    monkeypatch.setattr(assembler, "to_block", kept)
    engine = ct.Engine(queries, **settings)
    expected = iter(oracle_run(queries, steps, **settings))
    for step in steps:
        if step[0] == "push":
            engine.push(to_table(step[1]))
            continue
        results = engine.advance(step[1])
        for name, rows in next(expected).items():
            assert_same(rows, results[name], f"{step}, query {name}")
    assert any(block.rows is not None for block in blocks)


def test_a_slice_that_goes_on_touches_no_window_that_was_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    #  windows    0-----------60-----------120
    #  slices       ^10         ^60
    #  said up to                    ^ 80
    series = Series([Period(60, 60)])
    kinds, numbers = periodic.touched(series, np.array([10, 60]), EARLIEST, 80)
    assert kinds.tolist() == [0] and numbers.tolist() == [0]
    monkeypatch.delattr(periodic, "_holding")  # to look for windows is what costs
    for starts in ([60], []):
        kinds, numbers = periodic.touched(series, np.array(starts, np.int64), EARLIEST, 80)
        assert not len(kinds) and not len(numbers)


def test_series_on_one_scale_answer_as_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    days = ct.tumbling("1d", zone="Europe/Berlin").periods
    alone, among = Series(days), Series([*days, Period(60, 60)])
    kind, number = np.array([0, 0]), np.array([20_000, 20_001])
    now = 1_790_000_000_000_000
    for time in (now, EARLIEST, LATEST):
        assert alone.ending_after(time)[0] == among.ending_after(time)[0]
        assert alone.starting_by(time)[0] == among.starting_by(time)[0]
    assert alone.start_of(kind, number).tolist() == among.start_of(kind, number).tolist()
    assert alone.end_of(kind, number).tolist() == among.end_of(kind, number).tolist()
    times = np.array([now, now + 86_400_000_000])
    both = zip(alone.holding(0, times), among.holding(0, times), strict=True)
    assert all(one.tolist() == other.tolist() for one, other in both)
    monkeypatch.setattr(np, "clip", None)  # a frontier is one number: it needs no arrays
    assert alone.ending_after(now).shape == (1,)
