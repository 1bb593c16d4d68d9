"""Windows of one's own: edges from time (a scale) or from the events so far (a program)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.errors import CatchmentError
from catchment.model.scale import Ints, Scale
from catchment.model.window import Move, Period, Periodic, Stepped, Window, register
from catchment.simulate import World
from catchment.testing.compare import assert_same, rows_of
from catchment.testing.strategies import KINDS, drawn_window
from catchment.testing.window_laws import check_scale, check_window
from small_tables import examples
from trees import batches, charter, final

SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Squares(Scale):
    """Points at the squares of numbers, before 0 mirrored: each farther from 0 than the last."""

    unit: int = 1

    def times(self, numbers: Ints) -> Ints:
        return np.sign(numbers) * numbers * numbers * self.unit

    @property
    def pace(self) -> float:
        return 30.0 * self.unit

    def reach(self, points: int) -> int:
        return 1 << 62


@register
@dataclass(frozen=True, slots=True)
class BetweenSquares(Periodic):
    kind = "between_squares"

    length: int = 1
    slide: int = 1
    offset: int = 0
    unit: int = 1

    @property
    def periods(self) -> tuple[Period, ...]:
        scale = Squares(self.unit)
        return (Period(self.length, self.slide, self.offset, scale=scale),)


@register
@dataclass(frozen=True, slots=True)
class Budget(Stepped):
    """Events until their values add up to a budget; a window lasts `most` at most."""

    kind = "budget"

    budget: int = 10
    most: int | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        return ("v",)

    def step(self, state: Any, time: int, values: tuple[Any, ...]) -> tuple[Any, Move]:
        (value,) = values
        if value is None:
            return state, "skip"
        if value < 0:
            return {"sum": 0, "first": time}, "begin"
        known = {"sum": 0, "first": time} if state is None else dict(state)
        known["sum"] += value
        return (None, "end") if known["sum"] >= self.budget else (known, "join")

    def until(self, state: Any) -> int | None:
        if self.most is None or state is None:
            return None
        return int(state["first"]) + self.most


def table(rows: list[tuple[int, int, Any]]) -> pa.Table:
    times, keys, values = zip(*rows, strict=True) if rows else ((), (), ())
    stamps = pa.array(times, pa.timestamp("us", "UTC"))
    return pa.table(
        {"ts": stamps, "k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int64())}
    )


ROWS = st.lists(
    st.tuples(st.integers(-40, 150), st.integers(0, 2), st.none() | st.integers(-1, 7)),
    min_size=1,
    max_size=30,
)


@examples(0.4)
@given(ROWS, st.integers(1, 3), st.integers(1, 3), st.integers(-2, 2))
def test_edges_from_time(rows: list[Any], length: int, slide: int, offset: int) -> None:
    check_window(BetweenSquares(length, slide, offset), table(rows), by="k", rounds=3)


@examples(0.4)
@given(ROWS, st.integers(1, 15), st.none() | st.integers(1, 30))
def test_edges_from_the_events_so_far(rows: list[Any], budget: int, most: int | None) -> None:
    check_window(Budget(budget, most), table(rows), by="k", rounds=4)


@pytest.mark.parametrize("kind", KINDS)
def test_our_own_windows_keep_the_laws(kind: str) -> None:
    dice = random.Random(kind)
    rows = [(dice.randrange(40), dice.randrange(3), dice.randrange(8)) for _ in range(40)]
    events = table(rows)
    marks = pa.array([dice.random() < 0.3 for _ in rows])
    events = events.append_column("m", marks).append_column("n", events.column("v"))
    window = drawn_window(dice, [kind], unit=1, readings=["global"])
    check_window(window, events, by="k", rounds=4)


def test_the_last_point_by_a_time_is_found_wherever_it_is() -> None:
    times = np.array([-(10**15), -1, 0, 1, 35, 36, 37, 10**15])
    numbers = Squares().numbers(times)
    assert numbers[1:7].tolist() == [-1, 0, 1, 5, 6, 6]
    check_scale(Squares(), times)


@dataclass(frozen=True, slots=True)
class Broken(Squares):
    """A scale that breaks a law."""

    how: str = ""

    def times(self, numbers: Ints) -> Ints:
        made = Squares.times(self, numbers)
        if self.how == "order":
            return np.where(numbers % 5 == 0, made - 60, made)
        return made + len(numbers) if self.how == "company" else made

    def numbers(self, times: Ints) -> Ints:
        found = Squares(self.unit).numbers(times)
        return found - 1 if self.how == "answers" else found

    def reach(self, points: int) -> int:
        return 20 if self.how == "reach" else 1 << 62

    @property
    def grain(self) -> int:
        return 2 if self.how == "grain" else 1


@pytest.mark.parametrize("how", ["order", "company", "answers", "reach", "grain"])
def test_a_scale_that_breaks_a_law_is_found(how: str) -> None:
    check_scale(Broken(how=""), np.arange(0, 200, 7))
    with pytest.raises(AssertionError):
        check_scale(Broken(how=how), np.arange(0, 200, 7))


_CALLS: Iterator[int] = iter(range(10**9))


@register
@dataclass(frozen=True, slots=True)
class Moody(Budget):
    """A program that breaks a law."""

    kind = "moody"

    how: str = ""

    def step(self, state: Any, time: int, values: tuple[Any, ...]) -> tuple[Any, Move]:
        if self.how == "chance":
            return state, "join" if next(_CALLS) % 2 else "begin"
        if self.how == "state":
            return (1, 2), "join"  # a tuple comes back as a list
        if self.how == "move":
            return state, "jump"  # type: ignore[return-value]
        return Budget.step(self, state, time, values)

    def until(self, state: Any) -> int | None:
        return "soon" if self.how == "until" else None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("chance", "the same twice|program says|rows expected"),
        ("state", "cannot be written down"),
        ("move", "moves are join, begin, end, skip"),
        ("until", "must be a time or None"),
    ],
)
def test_a_program_that_breaks_a_law_is_found(how: str, told: str) -> None:
    rows = [(time, time % 2, 3) for time in range(20)]
    check_window(Moody(), table(rows), by="k")
    with pytest.raises((AssertionError, CatchmentError), match=told):
        check_window(Moody(how=how), table(rows), by="k")


def test_a_program_is_told_what_was_given_and_what_to_do() -> None:
    engine = ct.Engine([ct.Query("q", ct.count(), window=Moody(how="move"))])
    engine.push(table([(1, 0, 1)]))
    with pytest.raises(
        ct.QueryError, match="step of the window moody must give a state and a move"
    ):
        engine.advance(10)


def test_windows_by_a_program_cannot_be_corrected() -> None:
    with pytest.raises(ct.QueryError, match="cannot be corrected by late"):
        ct.Engine([ct.Query("q", ct.count(), window=Budget())], late="update")


def test_explain_says_that_events_climb() -> None:
    plan = ct.plan([ct.Query("q", ct.count(), window=Budget())])
    assert "intermediate: pass events on in order" in ct.explain(plan)
    plan = ct.plan([ct.Query("q", ct.count(), window=BetweenSquares())])
    assert "pass events on" not in ct.explain(plan)


def test_a_tree() -> None:
    """Both kinds, with windows of other shapes, over nodes: the same as in one process."""
    parents = {"root": None, "m": "root", "a": "m", "b": "m", "c": "root"}
    queries = [
        ct.Query("budget", ct.sum("v"), by="k", window=Budget(200, 3 * SECOND)),
        ct.Query(
            "squares", ct.sum("v"), ct.median("v"), by="k", window=BetweenSquares(unit=SECOND)
        ),
        ct.Query("plain", ct.count(), by="k", window=ct.tumbling("1s")),
    ]
    arrived = {id: batches(n, count=120, spread=12) for n, id in enumerate("abc")}
    world = World(charter(parents, queries), arrived, until=0)
    world.run()
    assert world.done
    engine = ct.Engine(queries)
    for id in "abc":  # nodes are in order of their ids where times are equal
        for batch in arrived[id]:
            engine.push(batch)
    truth = engine.close()
    for query in queries:
        rows = final(world.deliveries, query.name)
        for row in rows:
            assert row.pop("complete") is True and row.pop("missing") is None
        assert len(rows) > 10
        assert_same(rows_of(truth[query.name]), pa.Table.from_pylist(rows), query.name)


def test_one_that_is_added_counts_from_the_newest_event_on() -> None:
    engine = ct.Engine([ct.Query("all", ct.sum("v"), by="k", window=ct.tumbling("100us"))])
    engine.push(table([(1, 0, 9), (2, 0, 9)]))
    engine.advance(1)
    window: Window = Budget(10)
    engine.add(ct.Query("q", ct.count().alias("n"), by="k", window=window))
    engine.push(table([(3, 0, 4), (4, 0, 4), (5, 0, 4), (6, 0, 4)]))
    rows = rows_of(engine.close()["q"])
    assert [(row["window_start"], row["window_end"], row["n"]) for row in rows] == [(3, 5, 3)]
    assert engine.stats.open_windows == 1
