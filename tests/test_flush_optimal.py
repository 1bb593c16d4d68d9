"""The paper's lemmas and theorems, on random arrivals and against exhaustive search."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.errors import JobError
from catchment.flush.line import SendQueue
from catchment.flush.optimal import cached, eager_optimal, lazy_optimal

END = 4
"""Of the window in the tiny cases; arrivals are at whole times before it."""

Tiny = list[tuple[int, int]]
"""Arrivals: time and key."""


@st.composite
def tiny(draw: Any) -> Tiny:
    times = st.integers(0, END - 1)
    found = draw(st.lists(st.tuples(times, st.integers(0, 2)), min_size=1, max_size=5))
    return sorted(found)


def every_algorithm(arrivals: Tiny) -> Iterator[list[tuple[int, int]]]:
    """All that an edge can do: after the arrivals of each time, and last at the window's end, it
    flushes some of the keys that have something outstanding; all of them at the end."""

    def onward(time: int, outstanding: frozenset[int]) -> Iterator[list[tuple[int, int]]]:
        if time == END:
            yield [(END, key) for key in sorted(outstanding)]
            return
        there = outstanding | {key for at, key in arrivals if at == time}
        for count in range(len(there) + 1):
            for gone in itertools.combinations(sorted(there), count):
                for rest in onward(time + 1, there - frozenset(gone)):
                    yield [(time, key) for key in gone] + rest

    yield from onward(0, frozenset())


def staleness(updates: list[tuple[int, int]], line: SendQueue) -> float:
    times = np.array([at for at, _ in updates], float)
    return max(0.0, float(line.finish(times, np.ones(len(times)))[-1]) - END)


def lasts(arrivals: Tiny) -> dict[int, int]:
    return {key: max(at for at, k in arrivals if k == key) for _, key in arrivals}


@given(tiny(), st.sampled_from([0.5, 1.0, 2.0]))
def test_nobody_does_better_than_the_optimum_in_either(arrivals: Tiny, rate: float) -> None:
    line, last = SendQueue.steady(rate), lasts(arrivals)
    everything = [(len(u), staleness(u, line), u) for u in every_algorithm(arrivals)]
    least, soonest = min(n for n, _, _ in everything), min(s for _, s, _ in everything)
    times, ones = np.array(list(last.values()), float), np.ones(len(last))
    eager, lazy = eager_optimal(times, ones, line), lazy_optimal(times, ones, line, END)
    # Theorems 3 and 4: both at once, and nobody is better in either.
    for plan in (eager, lazy):
        assert len(plan.keys) == len(last) == least
        assert plan.staleness(END) == pytest.approx(soonest, abs=1e-9)
        assert (plan.depart >= times[plan.keys] - 1e-9).all()
    # Lemma 1: traffic is least exactly where each key goes once.
    for n, _, updates in everything:
        once = len({key for _, key in updates}) == len(updates)
        assert (n == least) == once
    # Lemma 2: who has as little staleness never has more outstanding than can still be sent.
    for _, stale, updates in everything:
        if stale == soonest:
            _lemma_2(arrivals, updates, soonest, rate)


def _lemma_2(arrivals: Tiny, updates: list[tuple[int, int]], soonest: float, rate: float) -> None:
    for t in range(END):
        sent = {
            key: max([at for at, k in updates if k == key and at < t], default=-1)
            for _, key in arrivals
        }
        outstanding = {key for at, key in arrivals if at < t and at > sent[key]}
        coming = {key for at, key in arrivals if at >= t}
        assert len(outstanding | coming) <= rate * (END + soonest - t) + 1e-9


@st.composite
def larger(draw: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], SendQueue, float]:
    """Last arrivals of keys, sizes of their updates, a link that may be down, a window's end."""
    seed = draw(st.integers(0, 10_000))
    dice = np.random.default_rng(seed)
    n = draw(st.integers(1, 40))
    end = 10.0
    last = dice.random(n) * end
    sizes = np.ones(n) if draw(st.booleans()) else dice.integers(1, 9, n).astype(float)
    rate = draw(st.sampled_from([0.3, 1.0, 3.0, 20.0])) * n / end
    if draw(st.booleans()):
        line = SendQueue([0.0, 4.0, 6.0], [rate, draw(st.sampled_from([0.0, rate / 3])), rate])
    else:
        line = SendQueue.steady(rate)
    return last, sizes, line, end


@given(larger(), st.integers(0, 1000))
def test_every_schedule_between_eager_and_lazy_is_optimal(given: Any, seed: int) -> None:
    last, sizes, line, end = given
    eager, lazy = eager_optimal(last, sizes, line), lazy_optimal(last, sizes, line, end)
    assert (eager.keys == lazy.keys).all()
    assert (lazy.depart >= eager.depart - 1e-6).all()
    assert lazy.staleness(end) == pytest.approx(eager.staleness(end), abs=1e-6)
    share = np.random.default_rng(seed).random(len(last))
    depart = np.maximum.accumulate(eager.depart + share * (lazy.depart - eager.depart))
    depart = np.minimum(depart, lazy.depart)  # in order, as a link is
    arrive = line.finish(depart, sizes[eager.keys])
    assert max(0.0, arrive[-1] - end) == pytest.approx(eager.staleness(end), abs=1e-6)


@given(larger())
def test_a_critical_time_where_staleness_cannot_be_avoided(given: Any) -> None:
    """Lemma 2: where staleness is above zero, from some time on the link is busy to the end."""
    last, sizes, line, end = given
    eager = eager_optimal(last, sizes, line)
    stale = eager.staleness(end)
    work = line.work(eager.depart)
    needed = np.cumsum(sizes[eager.keys][::-1])[::-1]
    until = line.work(np.array([end + stale]))[0]
    assert (work + needed <= until + 1e-6).all()
    if stale > 0:
        assert (work + needed).max() == pytest.approx(until)


@given(larger())
def test_a_lazy_cache_holds_no_less_than_an_eager_one(given: Any) -> None:
    last, sizes, line, end = given
    first = last / 2
    at = np.linspace(0, end, 50)
    gone = np.empty(len(last))
    plan = lazy_optimal(last, sizes, line, end)
    gone[plan.keys] = plan.depart
    assert (cached(first, gone, at, sizes) >= cached(first, last, at, sizes) - 1e-6).all()


@given(larger())
def test_work_and_when_are_inverse(given: Any) -> None:
    _, _, line, _ = given
    times = np.linspace(0, 20, 101)
    work = line.work(times)
    assert (np.diff(work) >= 0).all()
    assert line.work(line.when(work)) == pytest.approx(work)
    assert (line.when(work) <= times + 1e-9).all()


@pytest.mark.parametrize("rates", [[0.0], [-1.0], [5.0, 0.0], []])
def test_a_link_that_carries_nothing_for_ever_is_refused(rates: list[float]) -> None:
    with pytest.raises(JobError, match="must carry something"):
        SendQueue(list(range(len(rates))), rates)
