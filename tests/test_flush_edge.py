"""An edge over arrays of arrivals: nothing is lost, and it does what a plain loop does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.flush_workload import LARGE, SHAPES, arrivals, look
from catchment.flush import Flush, parse, read
from catchment.flush.bandwidth import Estimate
from catchment.flush.evictions import EVICTIONS, CachedAggregates
from catchment.flush.line import SendQueue
from catchment.flush.sizes import SliceHistory, size
from catchment.flush.watch import SliceWatch
from catchment.simulate.arrivals import Arrivals
from catchment.simulate.edge import Edge, run
from catchment.simulate.outcome import joined, merged, optimal, streaming
from catchment.simulate.wire import Wire

POLICIES = [
    "streaming",
    "batching",
    "uniform",
    "nonuniform",
    "eager(empirical)",
    "pessimistic",
    "optimistic",
    "lazy(empirical)",
    "lazy(bounded)",
    "hybrid(0.25)",
    "auto",
]


@st.composite
def few(draw: Any) -> Arrivals:
    dice = np.random.default_rng(draw(st.integers(0, 10_000)))
    n, windows = draw(st.integers(1, 150)), draw(st.integers(1, 3))
    keys = dice.integers(0, draw(st.integers(1, 20)), n)
    sizes = dice.integers(1, 9, 20).astype(float) if draw(st.booleans()) else 1.0
    return Arrivals.at(dice.random(n) * 10 * windows, keys, 10.0, windows, sizes)


@st.composite
def lines(draw: Any) -> SendQueue:
    rate = draw(st.sampled_from([0.5, 3.0, 50.0]))
    if draw(st.booleans()):  # it vanishes in mid-window
        return SendQueue([0.0, 4.0, 13.0], [rate, 0.0, rate])
    return SendQueue.steady(rate)


@settings(max_examples=max(settings.default.max_examples // 2, 1))
@given(
    few(),
    lines(),
    st.sampled_from(POLICIES),
    st.sampled_from(sorted(EVICTIONS)),
    st.booleans(),
    st.sampled_from([0.01, 1.0, 100.0, None]),
)
def test_nothing_is_lost_whatever_is_believed(
    given: Arrivals, line: SendQueue, policy: str, eviction: str, paced: bool, wrong: float | None
) -> None:
    """Each key of a window is updated after its last arrival; traffic and staleness are never
    better than the optimum's."""
    believed = Estimate() if wrong is None else wrong
    flush = Flush(parse(policy), eviction)
    edge = Edge([given], Wire(line, believed), flush, paced=paced, count=40)
    (made,) = edge.run()
    departed = {}
    for at, keys, window in edge.streams[0].departed:
        departed |= {(window, key): at for key in keys.tolist()}
    for at, key, window in zip(given.times, given.keys, given.of, strict=True):
        assert departed[int(window), int(key)] >= at
    best = optimal(given, line)
    assert (made.traffic >= best.traffic - 1e-9).all()
    assert made.least.tolist() == best.traffic.tolist()
    assert made.staleness[0] >= best.staleness[0] - 1e-6
    if policy == "batching":
        assert made.traffic.tolist() == best.traffic.tolist()


def by_hand(given: Arrivals, line: SendQueue, name: str, eviction: str) -> tuple[float, float]:
    """The paper's cache, arrival by arrival, in dicts: traffic and staleness of the last window."""
    past, sent, last_departed = None, 0, []
    for window in range(given.windows):
        begin, end = window * given.length, (window + 1) * given.length
        watch = SliceWatch(begin, end, past)
        cache: dict[int, float] = {}
        seen: dict[int, list[float]] = {}
        departed: list[float] = []
        for at, key in zip(
            given.times[given.of == window], given.keys[given.of == window], strict=True
        ):
            watch.arrived(1, int(key not in cache))
            cache[int(key)] = at
            seen.setdefault(int(key), []).append(at)
            room = size(parse(name), watch.moment(at, float(line.rates[0]), 1.0))
            while len(cache) > room:
                order = EVICTIONS[eviction](
                    CachedAggregates(
                        np.array([cache[k] for k in cache]) - begin,
                        np.array([float(len(seen[k])) for k in cache]),
                        np.zeros(len(cache)),
                        at - begin,
                        given.length,
                    )
                )
                del cache[list(cache)[int(order.argmin())]]
                departed.append(at)
        departed += [end] * len(cache)
        sent += len(departed)
        last_departed += departed
        times = [np.array(t) for t in seen.values()]
        past = SliceHistory.of(
            np.array([t[0] for t in times]) - begin,
            np.array([t[-1] for t in times]) - begin,
            np.array([float(len(t)) for t in times]),
            np.ones(len(times)),
            given.length,
            float(line.rates[0]),
        )
    finish = line.finish(np.array(last_departed), np.ones(len(last_departed)))
    return sent, max(0.0, float(finish[-1]) - given.windows * given.length) / given.length


@pytest.mark.parametrize("name", ["nonuniform", "uniform", "pessimistic", "hybrid(0.25)"])
@pytest.mark.parametrize("eviction", ["lru", "lfu"])
def test_ticks_are_near_enough_to_single_arrivals(name: str, eviction: str) -> None:
    given = arrivals(LARGE, 3, 1500, seed=4)
    line = SendQueue.steady(3 * given.rate)
    made = run(given, line, parse(name), eviction, paced=False, count=1500)
    sent, stale = by_hand(given, line, name, eviction)
    assert made.traffic.sum() == pytest.approx(sent, rel=0.02)
    assert made.staleness[-1] == pytest.approx(stale, abs=0.003)


def test_streaming_in_ticks_and_without() -> None:
    given = arrivals(LARGE, 2, 500, seed=5)
    line = SendQueue.steady(2 * given.rate)
    assert streaming(given, line).traffic.sum() == len(given.times)
    ticked = run(given, line, parse("streaming"), paced=False, count=5000)
    assert ticked.traffic.sum() == pytest.approx(len(given.times), rel=0.05)


# -- what the paper says of hopping windows, levels, groups ----------------------------------------


@settings(max_examples=max(settings.default.max_examples // 4, 1))
@given(few(), st.integers(1, 5), st.sampled_from([3.0, 50.0]))
def test_windows_that_hop_are_windows_of_slices(given: Arrivals, parts: int, rate: float) -> None:
    """Section 8: with an optimal algorithm for each sub-window traffic is the least possible, as
    every sub-window is the last of some window; staleness of a window is that of its last one."""
    line = SendQueue.steady(rate)
    hops = given.hopping(parts)
    best = optimal(hops, line)
    span = 100
    cells = np.unique((given.times / hops.length).astype(int) * span + given.keys)
    assert len(np.unique(hops.of * span + hops.keys)) == len(cells)
    assert best.traffic.sum() == pytest.approx(hops.size_of(cells % span).sum())
    assert best.traffic.sum() >= optimal(given, line).traffic.sum() - 1e-9
    for policy in ("batching", "hybrid(0.25)"):
        made = run(hops, line, parse(policy), count=20)
        assert (made.traffic >= best.traffic - 1e-9).all()
        assert made.staleness[0] >= best.staleness[0] - 1e-6


def test_two_levels_lose_nothing() -> None:
    edges = [arrivals(LARGE, 3, 2000, seed=n) for n in range(3)]
    below = [
        run(a, SendQueue.steady(2 * a.rate), parse("auto"), believed=Estimate()) for a in edges
    ]
    above = merged(below)
    assert len(above.times) == sum(made.traffic.sum() for made in below)
    line = SendQueue.steady(2 * edges[0].rate)
    edge = Edge([above], Wire(line, Estimate()), read("auto"))
    (top,) = edge.run()
    wanted = {(w, k) for a in edges for w, k in zip(a.of.tolist(), a.keys.tolist(), strict=True)}
    got = {(w, k) for _, keys, w in edge.streams[0].departed for k in keys.tolist()}
    assert got == wanted
    assert top.traffic.sum() < sum(made.traffic.sum() for made in below)
    assert joined(below).staleness.max() == max(made.staleness.max() for made in below)


def test_groups_share_a_wire() -> None:
    given = arrivals(LARGE, 3, 2000, seed=1)
    short = given.hopping(4)
    wire = Wire(SendQueue.steady(3 * given.rate), Estimate())
    made = Edge([given, short], wire, read("auto")).run()
    for one, alone in zip(made, (given, short), strict=True):
        assert one.traffic.sum() >= alone.distinct().sum()
        assert one.ratio(1) < 1.3


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_workloads_look_like_the_papers(name: str) -> None:
    """Figure 2: as many keys come once, medians and their order, bursts, days and nights."""
    shape = SHAPES[name]
    seen = look(arrivals(shape, 24, 25_000, first=0))
    assert seen.once == pytest.approx(shape.once, abs=0.04)
    assert seen.median == pytest.approx(shape.median, rel=0.3)
    assert (seen.variation > 1).mean() > 0.5
    assert seen.keys.max() > 1.3 * seen.keys.min()


def test_a_large_query_is_aggregated_by_two_thirds() -> None:
    assert 2.5 < look(arrivals(LARGE, 4)).per_key < 4.0
