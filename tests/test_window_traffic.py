"""Traffic and staleness of windows, as the parents of nodes see them."""

from __future__ import annotations

import random

import pytest

import catchment as ct
from catchment.nodes.status import status
from catchment.planner import plan
from catchment.planner.edges import EARLIEST, LATEST
from catchment.simulate import World
from catchment.tree.window_traffic import ChildTraffic
from trees import QUERIES, batches, charter

SECOND = 1_000_000
SHORT = ct.Query("short", ct.sum("v"), by="k", window=ct.tumbling("2s"))
SLIDING = ct.Query("sliding", ct.sum("v"), by="k", window=ct.sliding("5s", "1s"))
VISITS = ct.Query("visits", ct.count(), by="k", window=ct.session("700ms"))


def name_of(query: ct.Query) -> str:
    return query.window.describe()


def test_windows_are_counted_when_a_message_has_passed_their_ends() -> None:
    """
    ends of 2 s windows    2     4     6     8
    messages at            3 s       5 s    9 s by the clock, frontiers 3.0, 4.5 and 8.0
    """
    made, seen = plan([SHORT]), ChildTraffic()
    seen.came(0, made, {0: 3}, 90, 3 * SECOND, 3 * SECOND)
    first = seen.windows[name_of(SHORT)]
    assert (first.rows, first.nbytes, first.windows) == (3, 90, 0)  # where it began is not known
    seen.came(0, made, {0: 2}, 60, 4_500_000, 5 * SECOND)
    second = seen.windows[name_of(SHORT)]
    assert (second.rows, second.windows, second.staleness_seconds) == (5, 1, 1.0)
    seen.came(0, made, {}, 40, 8 * SECOND, 9 * SECOND)
    third = seen.windows[name_of(SHORT)]
    assert (third.rows, third.nbytes, third.windows) == (5, 150, 3)
    assert (third.staleness_seconds, third.staleness_seconds_total) == (1.0, 1.0 + 3.0 + 1.0)


def test_frontiers_that_stand_go_back_or_say_nothing_pass_no_window() -> None:
    made, seen = plan([SHORT, VISITS]), ChildTraffic()
    for frontier in (5 * SECOND, None, 5 * SECOND, SECOND, EARLIEST, LATEST):
        seen.came(0, made, {}, 10, frontier, 9 * SECOND)
    assert not seen.windows


def test_a_newer_plan_has_other_windows() -> None:
    seen = ChildTraffic()
    seen.came(0, plan([SHORT]), {0: 3}, 90, SECOND, SECOND)
    seen.came(1, plan([SLIDING]), {0: 2}, 90, 2 * SECOND, 2 * SECOND)
    assert [*seen.windows] == [name_of(SLIDING)]


def test_only_so_many_window_types_are_told_apart() -> None:
    queries = [ct.Query(f"q{n}", ct.sum("v"), window=ct.tumbling(f"{n}s")) for n in range(1, 100)]
    made, seen = plan(queries), ChildTraffic()
    seen.came(0, made, dict.fromkeys(range(len(made.groups)), 1), 90, SECOND, SECOND)
    assert len(seen.windows) == 64


@pytest.mark.parametrize("seed", range(10))
def test_every_end_is_passed_once(seed: int) -> None:
    dice = random.Random(seed)
    made, seen = plan([SHORT, SLIDING]), ChildTraffic()
    begin = at = dice.randrange(10**7)
    seen.came(0, made, {}, 1, at, at)
    for _ in range(30):
        at += dice.randrange(3 * SECOND)
        seen.came(0, made, {}, 1, at, at + SECOND)
    for query, slide in ((SHORT, 2), (SLIDING, 1)):
        ends = [end for end in range(0, at + 1, slide * SECOND) if begin < end]
        found = seen.windows[name_of(query)]
        assert found.windows == len(ends)
        assert found.staleness_seconds_total >= len(ends)


def test_roots_and_nodes_in_between_show_them() -> None:
    parents = {"root": None, "m": "root", "a": "m", "b": "m"}
    events = {id: batches(n) for n, id in enumerate("ab")}
    world = World(charter(parents, [SHORT, QUERIES[3]]), events, until=0)
    world.run()
    for id, children in (("root", {"m"}), ("m", {"a", "b"})):
        member = world.sites[id].member
        assert member is not None
        shown = status(member, set()).children
        assert shown and shown.keys() == children
        for child in shown.values():
            assert child.windows
            found = child.windows[name_of(SHORT)]
            assert found.rows and 0 < found.nbytes <= child.nbytes
            assert 0 < found.windows <= 10
            assert child.windows[name_of(QUERIES[3])].rows
