"""Window types of several series, as a type of one's own may have them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

import catchment as ct
from catchment.model.window import Period, Periodic, Window, register
from catchment.testing.compare import rows_of


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
