"""The laws of windows, to be held against a window type of one's own.

A window type says where its edges are; that the engine cuts and assembles there is Catchment's
business. What the type itself must keep to is checked here: that it is a plain value which travels,
that a scale's two answers agree, that a program says the same whenever it is asked, and that its
results are the same however events come: in which batches, with what restarts, merged in which way.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.engine import Engine
from catchment.engine.times import times_of
from catchment.functions import make
from catchment.model.arrays import Ints
from catchment.model.query import Query
from catchment.model.scale import Scale
from catchment.model.window import Period, Stepped, Window, window_from_dict
from catchment.testing.compare import assert_same, rows_of
from catchment.testing.laws import check_laws

_AROUND = np.arange(-8, 9, dtype=np.int64)
_BOUNDS = ("window_start", "window_end")


def check_window(
    window: Window,
    events: pa.Table,
    *,
    by: str | None = None,
    time: str = "ts",
    rounds: int = 10,
    seed: int = 0,
) -> None:
    """Fails unless a window keeps the laws, over these events.

    Give it events with ties, events of several keys (`by`), and quiet times in between; of a scale,
    events wherever points are unevenly spaced.

    >>> from catchment.windows import tumbling
    >>> times = pa.array([1, 2, 2, 9], pa.timestamp("us"))
    >>> check_window(tumbling("4us"), pa.table({"ts": times}))
    """
    check_form(window)
    moments, good = times_of(events.column(time))
    assert good is None, "the events of a check have times, all of them"
    for period in window.periods:
        if period.scale is not None:
            check_scale(period.scale, moments)
    keys = () if by is None else (by,)
    query = Query("q", make("count").alias("n"), window=window, by=keys)
    whole = _run(query, events, time, [])
    if window.periods:
        _check_contents(window.periods, whole, events, keys, time)
    if isinstance(window, Stepped):
        _check_program(window, whole, events, keys, time)
    dice = random.Random(seed)
    in_order = events.sort_by(time)
    for number in range(rounds):
        cuts = sorted(dice.choices(range(events.num_rows + 1), k=dice.randint(1, 6)))
        found = _run(query, in_order, time, cuts, restarts=number % 2 == 1)
        assert_same(rows_of(whole), found, f"round {number}, batches cut at {cuts}")
    if not window.bounded_by_events:
        check_laws(query, events, time=time, rounds=rounds, seed=seed)


def check_form(window: Window) -> None:
    """Fails unless a window is a value that travels: frozen, hashable, read back as it was."""
    again = copy.deepcopy(window)
    assert again == window and hash(again) == hash(window), "equal windows must be equal values"
    assert window.kind, "a window type has a kind"
    assert window_from_dict(window.to_dict()) == window, "to_dict must say all of a window"
    assert isinstance(window.describe(), str)
    assert window.periods == again.periods, "the series of equal windows must be equal"
    for period in window.periods:
        assert period.slide > 0 and period.length > 0, (
            "a series goes on, and its windows have a length"
        )


def check_scale(scale: Scale, times: Ints) -> None:
    """Fails unless points are in order, and both answers agree around these times."""
    again = copy.deepcopy(scale)
    assert again == scale and hash(again) == hash(scale), "equal scales must be equal values"
    assert scale.pace > 0, "the pace of a scale is a positive time"
    moments = np.unique(np.concatenate([times, times - 1, times + 1]))
    numbers = scale.numbers(moments)
    assert numbers.dtype == np.int64 and numbers.shape == moments.shape
    assert (scale.times(numbers) <= moments).all(), (
        "a point is later than the time it was asked for"
    )
    assert (scale.times(numbers + 1) > moments).all(), "a later point has been reached already"
    near = np.unique(numbers[:, None] + _AROUND)
    points = scale.times(near)
    assert points.dtype == np.int64 and (np.diff(points) >= 0).all(), "points must be in order"
    alone = [int(scale.times(np.array([number]))[0]) for number in near[:64].tolist()]
    assert alone == points[:64].tolist(), "a point must be the same whatever is asked with it"
    assert (points % scale.grain == 0).all(), "every point is a multiple of the grain"
    for count in (1, 2, 5):
        spans = scale.times(near + count) - points
        assert (spans <= scale.reach(count)).all(), f"{count} points took longer than their reach"


def _run(
    query: Query, events: pa.Table, time: str, cuts: list[int], restarts: bool = False
) -> pa.Table:
    """The results over batches, the frontier as far as the next batch allows after each."""
    engine = Engine([query], time=time, incomplete="emit")
    rows = events.num_rows
    found = []
    for low, high in zip([0, *cuts], [*cuts, rows], strict=True):
        engine.push(events.slice(low, high - low))
        if high < rows:
            later, _ = times_of(events.slice(high).column(time))
            found.append(engine.advance(int(later.min()))[query.name])
        if restarts:
            engine = Engine.restore(engine.snapshot())
    found.append(engine.close()[query.name])
    return pa.concat_tables(found, promote_options="permissive")


def _members(
    events: pa.Table, keys: tuple[str, ...], time: str
) -> dict[tuple[Any, ...], list[tuple[int, int]]]:
    """The time and the row of each key's events, in order."""
    moments, _ = times_of(events.column(time))
    found: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    names = [events.column(key).to_pylist() for key in keys]
    for row, moment in enumerate(moments.tolist()):
        found.setdefault(tuple(name[row] for name in names), []).append((moment, row))
    return {key: sorted(rows) for key, rows in found.items()}


def _given(whole: pa.Table, keys: tuple[str, ...]) -> list[tuple[Any, ...]]:
    rows = rows_of(whole)
    return sorted(
        (tuple(row[key] for key in keys), *(row[name] for name in _BOUNDS), row["n"])
        for row in rows
    )


def _check_contents(
    periods: tuple[Period, ...],
    whole: pa.Table,
    events: pa.Table,
    keys: tuple[str, ...],
    time: str,
) -> None:
    """Every window that holds an event is given, with all of its events."""
    wanted: list[tuple[Any, ...]] = []
    for key, rows in _members(events, keys, time).items():
        bounds = {bound for moment, _ in rows for one in periods for bound in _holding(one, moment)}
        for start, end in bounds:
            wanted.append((key, start, end, sum(start <= moment < end for moment, _ in rows)))
    assert _given(whole, keys) == sorted(wanted), (
        "windows do not hold the events between their edges"
    )


def _holding(period: Period, moment: int) -> Iterator[tuple[int, int]]:
    """The bounds of a series' windows that hold a moment, looked for one by one."""

    def at(number: int) -> int:
        scale = period.scale
        return number if scale is None else int(scale.times(np.array([number]))[0])

    if period.only:
        numbers = iter([0])
    else:
        about = moment
        if period.scale is not None:
            about = int(period.scale.numbers(np.array([moment]))[0])
        last = (about - period.offset) // period.slide
        first = (about - period.offset - period.length) // period.slide
        numbers = iter(range(first, last + 2))
    for number in numbers:
        place = period.offset + number * period.slide
        start, end = at(place), at(place + period.length)
        if start <= moment < end:
            yield start, end


def _check_program(
    window: Stepped, whole: pa.Table, events: pa.Table, keys: tuple[str, ...], time: str
) -> None:
    """What the engine gives is what the program says of each key's events, told in plain words."""
    read = [events.column(text).to_pylist() for text in window.reads if text in events.column_names]
    assert len(read) == len(window.reads), "name columns in `reads` of a window that is checked"
    wanted: list[tuple[Any, ...]] = []
    for key, rows in _members(events, keys, time).items():
        for start, end, held in _walked(window, [(m, tuple(c[r] for c in read)) for m, r in rows]):
            wanted.append((key, start, end, held))
    assert _given(whole, keys) == sorted(wanted), "windows are not those that the program says"


def _walked(
    window: Stepped, events: list[tuple[int, tuple[Any, ...]]]
) -> Iterator[tuple[int, int, int]]:
    """Start, end and number of events of each window of a key; an open one ends after its last."""
    state: Any = None
    start = last = held = 0
    for moment, values in events:
        until = window.until(state) if held else None
        if until is not None and until <= moment:
            yield start, until, held
            state, held = None, 0
        told = window.step(copy.deepcopy(state), moment, values)
        assert told == window.step(copy.deepcopy(state), moment, values), (
            "a program must say the same twice"
        )
        state, move = told
        if move == "skip":
            continue
        if move == "begin" and held:
            yield start, moment, held
            held = 0
        start, last, held = (start if held else moment), moment, held + 1
        if move == "end":
            yield start, moment, held
            held = 0
    if held:
        until = window.until(state)
        yield start, last + 1 if until is None else until, held
