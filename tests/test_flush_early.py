"""The one that chooses what leaves early, and the slices that it follows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.flush import read
from catchment.flush.early import EarlySender, FlushStep, HeldRows
from catchment.flush.open_slice import OpenSlice
from catchment.operators.ragged import Ints


@dataclass
class Fixed:
    """A link as a test has it."""

    rate: float = math.inf
    ahead: float = 0.0
    heard: float = 0.0


def ints(*numbers: int) -> Ints:
    return np.array(numbers, np.int64)


def rows(keys: Ints, group: int = 0, weight: float = 1.0, size: float = 1.0) -> HeldRows:
    return HeldRows(group, 0.0, 100.0, keys, np.full(len(keys), size), weight)


def step(now: float, **other: float) -> FlushStep:
    return FlushStep(now, now, now, **other)  # type: ignore[arg-type]


# -- an open slice ---------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.integers(0, 12), max_size=8), max_size=8),
    st.booleans(),
    st.lists(st.integers(0, 12)),
)
def test_a_slice_knows_what_came(
    batches: list[list[int]], expected: bool, leave: list[int]
) -> None:
    """Against plain dicts, whether or not the keys to come were known before."""
    known = np.unique(np.array([key for batch in batches for key in batch], np.int64))
    part = OpenSlice(0.0, 100.0, None, known if expected else None)
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    count: dict[int, int] = {}
    here: set[int] = set()
    now = 0.0
    for batch in batches:
        times = now + 0.1 * np.arange(len(batch))
        part.arrived(np.array(batch, np.int64), times)
        for key, at in zip(batch, times.tolist(), strict=True):
            first.setdefault(key, at)
            last[key], count[key] = at, count.get(key, 0) + 1
            here.add(key)
        gone = sorted(here & set(leave[: len(batch)]))
        part.leave(np.searchsorted(part.keys, np.array(gone, np.int64)))
        here -= set(gone)
        now += 1.0
    seen = part.count > 0
    assert part.keys[seen].tolist() == sorted(count)
    assert part.first[seen].tolist() == [first[key] for key in sorted(count)]
    assert part.last[seen].tolist() == [last[key] for key in sorted(count)]
    assert part.count[seen].tolist() == [count[key] for key in sorted(count)]
    assert part.held_keys().tolist() == sorted(here)
    assert part.cached == len(here)


def test_rows_that_nothing_is_known_of_count_as_arrived() -> None:
    part = OpenSlice(0.0, 100.0, None)
    part.arrived(ints(2, 4, 4), np.array([1.0, 2.0, 3.0]))
    part.leave(part.places(ints(4), 3.0))
    assert part.places(ints(1, 2, 4), 9.0).tolist() == [0, 1, 2]
    assert part.last.tolist() == [9.0, 1.0, 9.0]
    assert part.count.tolist() == [1.0, 1.0, 3.0]
    assert part.cached == 3


# -- what leaves -----------------------------------------------------------------------------------


def test_a_link_that_was_never_slow_leaves_all_to_the_end() -> None:
    sender = EarlySender(read("auto"), Fixed())
    assert not sender.active
    sender.arrived(0, 0.0, 100.0, ints(1, 2), 1.0)
    assert [len(gone) for gone in sender.choose([rows(ints(1, 2))], step(1.0))] == [0]


def test_streaming_leaves_at_once_whatever_the_link_can_take() -> None:
    sender = EarlySender(read("streaming"), Fixed(rate=0.001, ahead=50.0))
    sender.arrived(0, 0.0, 100.0, ints(1, 2), 1.0)
    (gone,) = sender.choose([rows(sender.held_keys(0, 0.0))], step(1.0))
    assert gone.tolist() == [0, 1]
    assert not len(sender.held_keys(0, 0.0))
    assert sender.early == 2


def test_streaming_needs_no_word_of_what_arrived() -> None:
    """A node spares itself the work: rows that nobody told of leave all the same."""
    sender = EarlySender(read("streaming"), Fixed(rate=0.001, ahead=50.0))
    chosen = sender.choose([rows(ints(4, 7)), rows(ints(5), group=1)], step(1.0))
    assert [gone.tolist() for gone in chosen] == [[0, 1], [0]]
    assert sender.early == 3


@pytest.mark.parametrize(("paced", "wanted"), [(True, 10), (False, 99)])
def test_what_the_link_cannot_take_yet_stays_if_it_is_paced(paced: bool, wanted: int) -> None:
    """Of 100 rows the link takes one by the end; it can take 10 until the next step."""
    sender = EarlySender(read("lazy(pessimistic)"), Fixed(rate=1.0), paced=paced)
    keys = np.arange(100)
    sender.arrived(0, 0.0, 100.0, keys, 99.0)
    (gone,) = sender.choose([rows(keys)], FlushStep(99.0, 99.0, 99.0, gap=10.0))
    assert len(gone) == pytest.approx(wanted, abs=1)
    assert len(sender.held_keys(0, 0.0)) == 100 - len(gone)


def test_what_is_on_its_way_or_about_to_go_takes_room() -> None:
    link = Fixed(rate=1.0)
    keys = np.arange(100)
    for ahead, released, wanted in ((0.0, 0.0, 10), (4.0, 3.0, 3), (4.0, 7.0, 0)):
        link.ahead = ahead
        sender = EarlySender(read("lazy(pessimistic)"), link)
        sender.arrived(0, 0.0, 100.0, keys, 99.0)
        (gone,) = sender.choose([rows(keys)], FlushStep(99.0, 99.0, 99.0, released, gap=10.0))
        assert len(gone) == wanted


def test_groups_share_the_room_by_weight() -> None:
    sender = EarlySender(read("lazy(pessimistic)"), Fixed(rate=1.0))
    keys = np.arange(100)
    for group in (0, 1):
        sender.arrived(group, 0.0, 100.0, keys, 99.0)
    held = [rows(keys, 0, 4.0), rows(keys, 1, 1.0)]
    chosen = sender.choose(held, FlushStep(99.0, 99.0, 99.0, gap=10.0))
    assert [len(gone) for gone in chosen] == [8, 2]


def test_a_slice_that_has_ended_is_what_the_next_one_goes_by() -> None:
    """The eager policy holds what came often before, and lets the others go."""
    sender = EarlySender(read("eager(nonuniform)"), Fixed(rate=1e6))
    often = np.repeat(np.arange(10), 20)
    sender.arrived(0, 0.0, 100.0, often, np.linspace(1.0, 99.0, 200))
    sender.choose([], step(100.0))
    keys = np.arange(30)
    sender.arrived(0, 100.0, 200.0, keys, 150.0)
    held = HeldRows(0, 100.0, 200.0, keys, np.full(30, 1e5))
    (gone,) = sender.choose([held], step(150.0, gap=10.0))
    assert set(range(10, 30)) <= set(gone.tolist())
    assert len(gone) <= 21


def test_late_arrivals_tell_nothing_and_are_charged_to_the_next_slice() -> None:
    costs = []
    for late in (0, 3):
        sender = EarlySender(read({"budget": "1 B/h"}), Fixed(rate=1.0), each=1.0)
        sender.arrived(0, 0.0, 100.0, ints(1, 2, 3), 1.0)
        sender.choose([], step(100.0, seq=1))
        sender.acknowledged(1, 100.0)
        if late:
            sender.arrived(0, 0.0, 100.0, ints(7, 8, 9), 101.0)
        assert not len(sender.held_keys(0, 0.0))
        sender.arrived(0, 100.0, 200.0, ints(1, 2, 3), 101.0)
        sender.choose([], step(200.0, seq=2))
        sender.acknowledged(2, 200.0)
        costs.append(sender.tuner.cost or 0.0)
    assert costs[1] == pytest.approx(2 * costs[0], rel=0.02)


def test_a_slice_is_paid_for_when_its_last_message_has_arrived() -> None:
    sender = EarlySender(read({"weight": 10}), Fixed(rate=1.0), each=1.0)
    sender.arrived(0, 0.0, 100.0, ints(1, 2), 1.0)
    sender.choose([], step(100.0, seq=4))
    sender.acknowledged(3, 105.0)
    assert sender.tuner.cost is None
    sender.acknowledged(4, 110.0)
    assert sender.tuner.cost == pytest.approx(1.0 + 10 * 10 / 100)
    again = EarlySender(read({"weight": 10}), Fixed(), sender.learnt())
    assert again.tuner == sender.tuner


def test_what_is_forgotten_may_be_told_again() -> None:
    sender = EarlySender(read("lazy(pessimistic)"), Fixed(rate=1.0))
    keys = np.arange(100)
    sender.arrived(0, 0.0, 100.0, keys, 50.0)
    sender.forget(0)
    assert not len(sender.held_keys(0, 0.0))
    (gone,) = sender.choose([rows(keys)], FlushStep(99.0, 99.0, 99.0, gap=10.0))
    assert len(gone) == 10
