"""The parts of flushing: sizes by the paper's formulas, evictions, bandwidth, sharing, tuning."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catchment.flush import parse, read
from catchment.flush.bandwidth import Estimate, probe
from catchment.flush.evictions import EVICTIONS, CachedAggregates, KeyHistory, first_out
from catchment.flush.sharing import DAY, Meter, shares
from catchment.flush.sizes import GRID, SizeInputs, SliceHistory, size
from catchment.flush.tuner import Spent, Tuner, cost_of
from catchment.flush.watch import SliceWatch

COUNTS = np.array([1.0, 1.0, 2.0, 5.0])
PAST = SliceHistory.of(
    first=np.array([10.0, 20.0, 5.0, 0.0]),
    last=np.array([10.0, 20.0, 70.0, 90.0]),
    count=COUNTS,
    sizes=np.ones(4),
    length=100.0,
    bandwidth=0.5,
)


def moment(**changes: Any) -> SizeInputs:
    plain = {
        "done": 0.3,
        "left": 70.0,
        "rate": 0.2,
        "misses": 0.25,
        "bandwidth": 0.5,
        "each": 1.0,
        "past": PAST,
    }
    return SizeInputs(**(plain | changes))


def waiting(done: float, often: float) -> float:
    return float(1 - done**often - (1 - done) ** often)


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("streaming", 0.0),
        ("batching", math.inf),
        ("uniform", 4 * waiting(0.3, 9 / 4)),
        ("nonuniform", waiting(0.3, 2) + waiting(0.3, 5)),
        ("eager(empirical)", 2.0),
        ("pessimistic", (0.5 - 0.2) * 70),
        ("optimistic", (0.5 - 0.25 * 0.2) * 70),
        ("lazy(bounded)", 0.5 * 70 - min(0.25 * 0.2 * 70, 2 * (1 - 0.3) + 1 - 0.3**2 + 1 - 0.3**5)),
        ("lazy(empirical)", 4.0),
        ("hybrid(0.25)", 0.25 * (0.5 - 0.05) * 70 + 0.75 * (waiting(0.3, 2) + waiting(0.3, 5))),
    ],
)
def test_sizes_are_the_papers(policy: str, wanted: float) -> None:
    assert size(parse(policy), moment()) == pytest.approx(wanted)


def test_sizes_count_bytes() -> None:
    for name in ("uniform", "nonuniform"):
        assert size(parse(name), moment(each=50.0)) == pytest.approx(
            50 * size(parse(name), moment())
        )
    many = moment(each=50.0, bandwidth=25.0)
    assert size(parse("pessimistic"), many) == pytest.approx(
        50 * size(parse("pessimistic"), moment())
    )


def test_sizes_at_the_edges_of_a_slice() -> None:
    for name in ("uniform", "nonuniform"):
        assert size(parse(name), moment(done=0.0)) == 0
        assert size(parse(name), moment(done=1.0, left=0.0)) == 0
    for name in ("pessimistic", "optimistic", "lazy(bounded)"):
        assert size(parse(name), moment(left=0.0)) == 0
        assert size(parse(name), moment(bandwidth=0.01, misses=1.0)) == 0
        assert size(parse(name), moment(bandwidth=math.inf)) == math.inf
    first = moment(past=None)
    assert size(parse("hybrid(0.25)"), first) == size(parse("optimistic"), first)


def test_optimal_caches_of_the_slice_before() -> None:
    assert PAST.eager[round(0.15 * (GRID - 1))] == 2  # the keys of 2 and 5 arrivals
    assert PAST.lazy[round(0.85 * (GRID - 1))] == 4  # 4 updates at 0.5/s need the last 8 s
    assert PAST.lazy[round(0.95 * (GRID - 1))] == 2


@given(st.floats(0, 1), st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_an_eager_size_is_never_more_than_all_keys(done: float, counts: list[int]) -> None:
    n = len(counts)
    past = SliceHistory.of(
        np.zeros(n), np.ones(n), np.array(counts, float), np.ones(n), 1.0, math.inf
    )
    for name in ("uniform", "nonuniform", "eager(empirical)"):
        found = size(parse(name), moment(done=done, past=past))
        assert 0 <= found <= n + 1e-9


# -- evictions ------------------------------------------------------------------------------------


def test_who_goes_first() -> None:
    held = CachedAggregates(
        last=np.array([9.0, 1.0, 5.0, 9.9]),
        count=np.array([1.0, 9.0, 1.0, 1.0]),
        before=np.array([0.0, 0.0, 0.0, 0.0]),
        now=10.0,
        length=100.0,
    )
    assert EVICTIONS["lru"](held).argmin() == 1
    assert EVICTIONS["lfu"](held).argmin() == 2
    assert EVICTIONS["likely"](held).argmin() == 2
    known = CachedAggregates(held.last, held.count, np.array([0.0, 0.0, 20.0, 0.0]), 10.0, 100.0)
    assert EVICTIONS["likely"](known).argmin() == 0


@example([(0.0, 2)], 5e-324)
@given(st.lists(st.tuples(st.floats(0, 9), st.integers(1, 9)), min_size=1), st.floats(0, 300))
def test_as_few_leave_as_will_do(rows: list[tuple[float, int]], surplus: float) -> None:
    order, sizes = np.array([o for o, _ in rows]), np.array([float(s) for _, s in rows])
    gone = first_out(order, sizes, surplus)
    assert len(set(gone.tolist())) == len(gone)
    if len(gone):
        assert sizes[gone].sum() >= min(surplus, sizes.sum()) - 1e-6
        assert sizes[gone[:-1]].sum() < surplus
        stay = np.setdiff1d(np.arange(len(rows)), gone)
        assert not len(stay) or order[gone].max() <= order[stay].min()
    else:
        assert surplus < 1e-6


@pytest.mark.slow
def test_memory_fades() -> None:
    memory = KeyHistory()
    assert memory.recall(np.array([1])).tolist() == [0]
    memory.learn(np.array([5, 1]), np.array([10.0, 1.0]))
    memory.learn(np.array([1]), np.array([2.0]))
    assert memory.recall(np.array([1, 5, 7])).tolist() == pytest.approx([2.7, 7.0, 0.0])
    for _ in range(20):
        memory.learn(np.empty(0, np.int64), np.empty(0))
    assert memory.recall(np.array([1, 5])).tolist() == [0, 0]


# -- the link -------------------------------------------------------------------------------------


def test_an_estimate_follows_the_link() -> None:
    found = Estimate.begun(None)
    assert found.rate == math.inf
    found.measured(100.0, 1.0)
    assert found.rate == 100
    for _ in range(5):
        found.measured(1.0, 1.0)
    assert found.rate < 1.5
    for _ in range(50):
        found.measured(1.0, 1.0)
    assert found.rate == pytest.approx(1.0, rel=0.05)
    assert found.error < 0.1
    for one in (found, Estimate()):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=Estimate) == one


@pytest.mark.parametrize("wrong", [0.01, 100.0])
def test_what_a_job_file_says_is_only_a_start(wrong: float) -> None:
    found = Estimate.begun(wrong * 50.0)
    found.measured(50.0, 1.0)
    assert found.rate == 50.0
    assert found.error == pytest.approx(abs(wrong - 1))
    found.measured(0.0, 1.0)
    found.measured(1.0, 0.0)
    assert found.rate == 50.0


def test_a_link_that_does_not_matter_is_not_asked() -> None:
    assert probe(1000.0, math.inf, 1e9, 100.0) == 0
    assert probe(1000.0, 1e6, 1e9, 100.0) == 0
    assert probe(1000.0, 10.0, 1.0, 100.0) == 0
    assert 0 < probe(1000.0, 10.0, 50.0, 100.0) < 10


@given(
    st.floats(0, 100),
    st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 9)), min_size=1, max_size=8),
)
def test_shares_are_fair(capacity: float, groups: list[tuple[float, float]]) -> None:
    wanted, weights = zip(*groups, strict=True)
    given = shares(capacity, wanted, weights)
    want, weigh = np.array(wanted), np.array(weights)
    assert (given >= 0).all() and (given <= want + 1e-9).all()
    assert given.sum() == pytest.approx(min(capacity, want.sum()))
    short = given < want - 1e-6
    if short.any():  # whoever wants more gets the same for his weight, and nobody more
        level = given[short] / weigh[short]
        assert level == pytest.approx(level[0])
        assert (given / weigh <= level[0] + 1e-6).all()


def test_a_meter_lets_a_day_pass() -> None:
    meter = Meter.full(10.0, 0.0)
    assert meter.allowance(0.0) == 10 * DAY
    meter.spend(10 * DAY + 100, 0.0)
    assert meter.allowance(5.0) == -50
    assert meter.allowance(1.0) == -50  # a clock that steps back
    assert meter.allowance(20.0) == pytest.approx(140)
    assert meter.allowance(10 * DAY) == 10 * DAY


def test_a_watch_sees_misses_and_rates() -> None:
    watch = SliceWatch(100.0, 200.0, None)
    assert watch.moment(100.0, 1.0, 1.0).rate == 0
    watch.arrived(1000, 1000)
    watch.arrived(1000, 100)
    now = watch.moment(150.0, 2.0, 3.0)
    assert (now.done, now.left, now.rate) == (0.5, 50.0, 40.0)
    assert 0.1 < now.misses < 0.15
    over = watch.moment(250.0, 2.0, 3.0)
    assert (over.done, over.left) == (1.0, 0.0)


# -- tuning ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("best", [0.0, 0.3, 0.6, 1.0])
def test_hill_climbing_finds_the_valley(best: float) -> None:
    tuner, dice = Tuner(), np.random.default_rng(1)
    for _ in range(60):
        tuner.spent(1 + 0.5 * (tuner.alpha - best) ** 2 + 0.001 * dice.normal())
    assert tuner.home == pytest.approx(best, abs=0.15)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(tuner), type=Tuner) == tuner


def test_a_change_is_noticed() -> None:
    tuner = Tuner()
    for _ in range(60):
        tuner.spent(1 + abs(tuner.alpha - 1.0))
    assert tuner.home > 0.85
    for _ in range(60):
        tuner.spent(2 + abs(tuner.alpha - 0.0))
    assert tuner.home < 0.15


def test_where_nothing_is_to_be_gained_nothing_is_tried_for_long() -> None:
    tuner = Tuner()
    used = [tuner.spent(1.0) for _ in range(200)]
    assert sum(alpha != 0.75 for alpha in used) < 30


def test_goals() -> None:
    spent = Spent(traffic=1.2, staleness=3.0, length=60.0, rate=500.0)
    assert cost_of(read({"weight": 4.0}))(spent) == pytest.approx(1.2 + 4 * 0.05)
    assert cost_of(read({"staleness": "3s"}))(spent) == pytest.approx(1.2)
    assert cost_of(read({"staleness": "2s"}))(spent) > 10
    assert cost_of(read({"budget": "500 B/s"}))(spent) == pytest.approx(0.05)
    assert cost_of(read({"budget": "400 B/s"}))(spent) > 10
