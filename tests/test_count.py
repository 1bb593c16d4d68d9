"""Count windows over nodes: every window holds the events that one node would put there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.count_simulation import Counting, CountingFaults, CountingSite, NodeArrivals
from catchment.counting.scheme import CountOptions, Predictor
from catchment.counting.status import status
from catchment.model.window import Counted
from catchment.windows.count import count_sliding, count_tumbling
from counting import Ids, expected, ids, ranked, stream
from schedules import share

EXACT = ("monitor", "sync", "async", "auto", "central")
SCHEDULES = share(125, 8)
PREDICTORS = st.sampled_from(["pace", "last"])
TICK = 1_000


def outcome(world: Counting) -> dict[tuple[int, int], list[int]]:
    """By window and number: the ids of its events; none may come twice."""
    found = {}
    for _, window in world.run().emitted:
        assert (window.kind, window.number) not in found
        assert window.exact and not window.missing
        found[window.kind, window.number] = sorted(ids(window.partial).tolist())
    return found


def check(
    windows: Sequence[Counted], streams: dict[int, NodeArrivals], scheme: str, **options: object
) -> Counting:
    world = Counting(windows, streams, Ids(), scheme, tick=TICK, **options)  # type: ignore[arg-type]
    assert outcome(world) == expected(ranked(streams), windows)
    return world


def nodes(seed: int, count: int, events: int, **options: int) -> dict[int, NodeArrivals]:
    dice = np.random.default_rng(seed)
    return {node: stream(dice, node, events, 100_000, **options) for node in range(count)}


@pytest.mark.parametrize("predictor", ["pace", "last"])
@pytest.mark.parametrize("scheme", EXACT)
def test_every_scheme_is_exact(scheme: str, predictor: Predictor) -> None:
    check([count_tumbling(700)], nodes(1, 3, 2500), scheme, options=CountOptions(predictor))


@pytest.mark.parametrize("scheme", EXACT)
def test_windows_of_several_queries_share_slices(scheme: str) -> None:
    windows = [count_sliding(700, 200), count_tumbling(450), count_sliding(100, 350)]
    check(windows, nodes(2, 3, 1500), scheme)


@pytest.mark.parametrize("scheme", EXACT)
def test_ties_at_the_edge_are_ranked_by_node_and_arrival(scheme: str) -> None:
    check([count_tumbling(300)], nodes(3, 4, 800, ties=20_000), scheme)


@pytest.mark.parametrize("scheme", EXACT)
def test_a_node_without_events_and_a_burst(scheme: str) -> None:
    dice = np.random.default_rng(4)
    streams = {
        0: stream(dice, 0, 0, 1),
        1: stream(dice, 1, 2000, 100_000),
        2: stream(dice, 2, 3000, 2_000, start=50_000),
    }
    check([count_tumbling(400)], streams, scheme)


def test_all_events_of_a_node_may_come_before_anything_is_said() -> None:
    streams = {0: stream(np.random.default_rng(0), 0, 2, 1)}
    check([count_tumbling(1)], streams, "monitor", delay=1)


troubles = st.builds(
    CountingFaults,
    lost=st.sampled_from([0.0, 0.1, 0.4]),
    twice=st.sampled_from([0.0, 0.2]),
    jitter=st.sampled_from([0, 5_000, 30_000]),
    crash=st.sampled_from([0.0, 0.01, 0.05]),
    down=st.sampled_from([2_000, 20_000]),
)
window = st.builds(count_sliding, st.integers(1, 300), st.integers(1, 300))


@pytest.mark.hypothesis
@settings(max_examples=SCHEDULES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_schedules(data: st.DataObject) -> None:
    dice = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    disorder = data.draw(st.sampled_from([0, 3_000]))
    ties = data.draw(st.sampled_from([1, 100, 30_000]))
    sizes = data.draw(st.lists(st.integers(0, 250), min_size=1, max_size=4))
    streams = {
        node: stream(
            dice,
            node,
            events,
            data.draw(st.sampled_from([1, 5_000, 100_000])),
            disorder=disorder,
            ties=ties,
            start=data.draw(st.sampled_from([0, 40_000])),
        )
        for node, events in enumerate(sizes)
    }
    windows = data.draw(st.lists(window, min_size=1, max_size=3))
    check(
        windows,
        streams,
        data.draw(st.sampled_from(EXACT)),
        lateness=disorder,
        options=data.draw(st.builds(CountOptions, PREDICTORS, st.integers(1, 8))),
        troubles=data.draw(st.none() | troubles),
        seed=data.draw(st.integers(0, 99)),
        delay=data.draw(st.sampled_from([1, 1_000, 20_000])),
    )


def test_what_got_lost_is_said_again_though_there_is_much_to_say() -> None:
    dice = np.random.default_rng(25405)
    spans = [(5_000, 40_000), (100_000, 40_000), (5_000, 40_000), (100_000, 0)]
    streams = {
        node: stream(dice, node, events, spans[node][0], ties=30_000, start=spans[node][1])
        for node, events in enumerate([160, 192, 250, 131])
    }
    troubles = CountingFaults(lost=0.0, twice=0.0, jitter=5_000, crash=0.01, down=20_000)
    windows = [count_sliding(119, 22), count_sliding(131, 57)]
    options = {"options": CountOptions("last"), "troubles": troubles, "seed": 29, "delay": 20_000}
    check(windows, streams, "central", **options)


def test_what_got_lost_is_said_again_though_nodes_answer() -> None:
    """The root has crashed and lost events that nodes have sent: they say so, and send no more."""
    dice = np.random.default_rng(171688)
    starts = [0, 40_000, 40_000, 0]
    streams = {
        node: stream(dice, node, events, 100_000, disorder=3_000, ties=100, start=starts[node])
        for node, events in enumerate([213, 237, 37, 84])
    }
    troubles = CountingFaults(crash=0.05, down=20_000)
    windows = [count_sliding(197, 89), count_sliding(299, 8), count_sliding(185, 1)]
    options = {"options": CountOptions("last"), "troubles": troubles, "seed": 93, "delay": 1}
    world = check(windows, streams, "auto", lateness=3_000, **options)
    assert world.measured.messages < 5_000


def included(world: Counting, size: int) -> dict[int, list[int]]:
    """The ids in each tumbling window; every event is in at most one."""
    found = {w.number: ids(w.partial).tolist() for _, w in world.run().emitted}
    everything = [id for ids in found.values() for id in ids]
    assert len(set(everything)) == len(everything)
    return found


def in_order(found: dict[int, list[int]], streams: dict[int, NodeArrivals], size: int) -> None:
    """Windows without a gap hold the events that are in any window in the one order of all."""
    there = {id for ids in found.values() for id in ids}
    ids = [id for id in ranked(streams) if id in there]
    assert {n: sorted(ids) for n, ids in found.items()} == {
        n: sorted(ids[n * size : (n + 1) * size]) for n in found
    }


@pytest.mark.parametrize("scheme", EXACT)
def test_a_node_that_joins_is_counted_from_then_on(scheme: str) -> None:
    streams = nodes(5, 2, 1500)
    late = stream(np.random.default_rng(6), 7, 800, 50_000, start=50_000)
    world = Counting([count_tumbling(250)], streams, Ids(), scheme, tick=TICK)
    world.after(50_000, lambda: world.join(7, late))
    found = included(world, 250)
    in_order(found, streams | {7: late}, 250)
    joined = {id for ids in found.values() for id in ids if id % 1000 == 7}
    assert len(joined) > 500


@pytest.mark.parametrize("scheme", EXACT)
def test_a_node_that_dies_for_good_is_given_up(scheme: str) -> None:
    streams = nodes(8, 3, 1500)
    world = Counting([count_tumbling(250)], streams, Ids(), scheme, tick=TICK, timeout=10_000)
    world.after(50_000, lambda: world.kill(1))
    found = included(world, 250)
    named = [window for _, window in world.measured.emitted if window.missing]
    assert named and {window.missing for window in named} == {(1,)}
    whole = {n: ids for n, ids in found.items() if len(ids) == 250}
    assert len(found) - len(whole) <= 1  # what it had and did not send, at most of one window
    assert sum(len(ids) for ids in found.values()) > 3000


@pytest.mark.parametrize("scheme", EXACT)
def test_a_node_that_returns_goes_on_with_what_is_not_late(scheme: str) -> None:
    streams = nodes(9, 3, 1500)
    world = Counting([count_tumbling(250)], streams, Ids(), scheme, tick=TICK, timeout=8_000)

    def away() -> None:
        world.sites[1].until = world.now + 25_000

    world.after(40_000, away)
    found = included(world, 250)
    back = [id for n, ids in found.items() for id in ids if id % 1000 == 1]
    late = world.root.views[1].late
    assert late > 0 and len(back) + late <= 1500
    assert max(id // 1000 for id in back) > 1200  # it is in the windows at the end again
    assert status(world.root).missing == []


def test_memory_is_bounded() -> None:
    streams = nodes(10, 3, 3000)
    world = check([count_tumbling(600)], streams, "async", limit=900)
    assert world.measured.most_buffered < 900 + 200


def test_a_clock_that_is_wrong_is_named_and_harms_nobody() -> None:
    streams = nodes(11, 3, 2000)
    ahead = NodeArrivals(streams[2].times + 400_000, streams[2].comes, streams[2].data)
    streams[2] = ahead
    world = Counting([count_tumbling(300)], streams, Ids(), "monitor", tick=TICK)
    skewed = world.sites[2].counter
    read = world._read

    def fast(site: CountingSite) -> None:
        waits = site.counter.blocked
        read(site)
        if site.counter is skewed and not waits and skewed.frontier < 2**61:
            skewed.advance(world.now + 400_000)

    world._read = fast  # type: ignore[method-assign]
    named: list[dict[int, str]] = []
    world.after(70_000, lambda: named.append(status(world.root).clocks))
    assert outcome(world) == expected(ranked(streams), [count_tumbling(300)])
    assert named == [{2: "ahead"}]


def test_bad_options_are_refused() -> None:
    from catchment.counting.root import RootCounter
    from catchment.errors import QueryError

    with pytest.raises(QueryError, match="no such scheme"):
        RootCounter([0], [count_tumbling(3)], Ids(), "asink")
    for size, step in ((0, 1), (-3, 1), (3, 0)):
        with pytest.raises(QueryError):
            count_sliding(size, step)
