"""Count windows in trees whose root asks where edges are, against brute force."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec import UNSET
from msgspec.structs import replace

import catchment as ct
from catchment.counting import distributed, leaf_by_key
from catchment.counting.local import LocalCounter
from catchment.counting.message import Ask, AskList, Down, Up
from catchment.counting.place import at
from catchment.counting.scheme import SCHEMES as ALL_SCHEMES
from catchment.counting.scheme import CountOptions
from catchment.nodes.status import status
from catchment.simulate import Faults, World
from catchment.simulate.memory import EventsInMemory, MemoryDisk
from catchment.tree.charter import Charter, NodePlace
from catchment.tree.local import Local
from catchment.tree.member import Member
from catchment.tree.root import Root
from faulty_trees import events_of, faults, shape
from schedules import seed_range, share
from test_limits import granted
from trees import QUERIES, SECOND, batches, charter, check, check_marked, final

pytestmark = pytest.mark.slow

SCHEDULES = share(1250, 2)
COUNTED = [
    QUERIES[5],
    QUERIES[6],
    ct.Query("by m", ct.sum("v"), by="m", window=ct.tumbling("2s")),
    ct.Query("forties", ct.median("v"), ct.count(), window=ct.count_sliding(40, 30)),
    ct.Query("seconds", ct.avg("v"), by="k", window=ct.tumbling("1s")),
    ct.Query("visits", ct.count(), ct.max("v"), window=ct.session("300ms")),
    ct.Query("chosen", ct.count_distinct("v"), where="v > 20", window=ct.count_tumbling(15)),
]
FLAT: dict[str, str | None] = {"root": None, "m": "root", "a": "m", "b": "m", "c": "root"}


@pytest.mark.parametrize("seed", seed_range(SCHEDULES))
def test_every_window_is_exact_whatever_goes_wrong(seed: int) -> None:
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(1, 4))
    events = events_of(parents, seed, 40)
    world = World(charter(parents, COUNTED, count="monitor"), events, seed, faults(dice), until=15)
    world.run()
    assert world.done, f"seed {seed} is not done after {world.now / 1e6:.0f} s"
    check(world.deliveries, events, COUNTED)


DECO = CountOptions("last", 1, wait=True)
"""As the paper has it."""


@pytest.mark.parametrize("scheme", ["monitor", "sync", "async"])
@pytest.mark.parametrize("seed", seed_range(share(2500, 1)))
def test_deco_as_written(seed: int, scheme: str) -> None:
    """By its predictor, one window to look back on, and nodes that wait: exact, whatever fails."""
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(1, 4))
    events = events_of(parents, seed, 40)
    ruled = charter(parents, COUNTED, count=scheme, count_options=DECO)
    world = World(ruled, events, seed, faults(dice), until=15)
    world.run()
    assert world.done, f"seed {seed} is not done after {world.now / 1e6:.0f} s"
    check(world.deliveries, events, COUNTED)


@pytest.mark.parametrize("wait", [False, True])
def test_a_node_waits_for_the_root_where_it_is_told_to(wait: bool) -> None:
    query = ct.Query("many", ct.sum("v"), window=ct.count_tumbling(1_000))
    source = lambda: EventsInMemory.of(batches(1, 20))
    member = Member("a", MemoryDisk(), 5, parent="root", source=source)
    options = CountOptions("last", 1, wait)
    granted(
        member, charter({"root": None, "a": "root"}, [query], count="sync", count_options=options)
    )
    machine = member.machine
    assert member.step(5) and isinstance(machine, Local) and machine.flow.counting is not None
    ((counter, _),) = machine.flow.counting.leaf.lanes.values()
    ask = Ask(1, at(0), at(1), 1)
    counter.down = Down(1, ALL_SCHEMES.index("sync"), 0, {}, AskList.of([ask]), waits=True)
    assert not machine.flow.crowded  # it has not answered yet
    counter.answered = {1}
    read = machine.at
    for _ in range(3):
        member.step(5)
    assert (machine.at == read) == machine.flow.crowded == wait
    counter.down = None  # the next order has come
    while member.step(5):
        pass
    assert machine.ended and machine.at != read


def test_what_is_not_verified_says_so() -> None:
    """`approx` takes predictions for true: windows have about their size and are not called
    complete, but for the first ones, which are found by asking."""
    queries = [ct.Query("sum", ct.sum("v"), ct.count(), window=ct.count_tumbling(400))]
    events = {id: large(n) for n, id in enumerate("abc")}
    world = World(charter(FLAT, queries, count="approx"), events, until=0)
    world.run()
    assert world.done
    rows = final(world.deliveries, "sum")
    exact = [row for row in rows if row["complete"]]
    rough = [row for row in rows if not row["complete"]]
    assert len(exact) < 5 < len(rough)
    assert {row["missing"] for row in rough} == {"a, b, c"}
    assert all(abs(row["count(*)"] - 400) < 40 for row in rough)


def large(node: int, events: int = 6_000) -> list[pa.Table]:
    dice = np.random.default_rng(node)
    times = np.sort(dice.integers(0, 20_000_000, events))
    table = pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": pa.array(dice.choice(["a", "b"], events)),
            "v": pa.array(dice.integers(0, 10**6, events)),
            "m": pa.nulls(events, pa.string()),
        }
    )
    return [table.slice(begin, 100) for begin in range(0, events, 100)]


def test_large_windows_cost_a_fraction_of_the_events() -> None:
    queries = [ct.Query("sum", ct.sum("v"), window=ct.count_tumbling(4_000))]
    events = {id: large(n) for n, id in enumerate("abc")}
    sent = {}
    for scheme in ("central", "auto"):
        world = World(charter(FLAT, queries, count=scheme), events, until=0)
        world.run()
        assert world.done
        check(world.deliveries, events, queries)
        sent[scheme] = world.bytes["m"] + world.bytes["c"]
    assert sent["auto"] < 0.2 * sent["central"]


def test_what_cannot_be_asked_for_climbs_as_events() -> None:
    ruled = charter(FLAT, COUNTED, count="monitor").with_schema(batches(1)[0].schema)
    assert len(ruled.distributed_groups(0)) == 4
    assert charter(FLAT, COUNTED).with_schema(batches(1)[0].schema).distributed_groups(0) == {}
    small = charter(FLAT, COUNTED, count="auto").with_schema(batches(1)[0].schema)
    assert small.distributed_groups(0) == {}
    updating = charter(FLAT, COUNTED, count="monitor", late="update")
    assert updating.with_schema(batches(1)[0].schema).distributed_groups(0) == {}


def test_a_function_whose_order_matters_gets_all_events_in_order() -> None:
    path = ct.function(
        "t_steps",
        lift=str,
        combine=lambda a, b: a + b,
        lower=str,
        result=pa.string(),
        commutative=False,
    )
    queries = [ct.Query("path", path("v"), window=ct.count_tumbling(20)), COUNTED[0]]
    ruled = charter(FLAT, queries, count="monitor")
    plan = ruled.plans[0].plan
    asked = ruled.with_schema(batches(1)[0].schema).distributed_groups(0)
    assert [plan.names[query.name][0] in asked for query in queries] == [False, True]
    events = {id: batches(n, 90) for n, id in enumerate("abc")}
    world = World(ruled, events, 1, Faults(), until=0)
    world.run()
    assert world.done
    check(world.deliveries, events, queries[1:])
    rows = [row for tables in events.values() for t in tables for row in t.to_pylist()]
    steps = [str(row["v"]) for row in sorted(rows, key=lambda row: row["ts"])]  # nodes in order
    wanted = ["".join(steps[n : n + 20]) for n in range(0, len(steps) - 19, 20)]
    assert [row["t_steps(v)"] for row in final(world.deliveries, "path")] == wanted


def test_a_node_that_is_away_is_named_and_counted_again() -> None:
    events = {id: batches(n, 150) for n, id in enumerate("abc")}
    for id in "ab":  # read slowly, so that the third catches up with them when it is back
        nothing = [events[id][0][:0]] * 9
        events[id] = [table for batch in events[id] for table in (batch, *nothing)]
    ruled = charter(FLAT, COUNTED, count="monitor", timeout=2_000_000)
    world = World(ruled, events, 3, Faults(), until=60)
    world.after(300_000, lambda: world.crash("c", 4.0))
    world.run()
    assert world.done
    rows = final(world.deliveries, "forties")
    assert len(rows) > 8 and all(row["count(*)"] == 40 for row in rows)
    assert any(not row["complete"] and "c" in row["missing"] for row in rows)
    assert rows[-1]["complete"]


SCHEMES = ("monitor", "sync", "async", "auto")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_exact_in_a_tree(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "LARGE", 1)
    events = {id: batches(n, 150, size=40) for n, id in enumerate("abc")}
    world = World(charter(FLAT, COUNTED, count=scheme), events, 5, Faults(), until=0)
    world.run()
    assert world.done
    check(world.deliveries, events, COUNTED)


@pytest.mark.parametrize("seed", seed_range(share(2500, 1)))
@pytest.mark.parametrize("scheme", SCHEMES[1:])
def test_every_scheme_is_exact_whatever_goes_wrong(
    scheme: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "LARGE", 1)
    dice = random.Random(100 + seed)
    parents = shape(dice, dice.randint(1, 4))
    events = events_of(parents, seed, 80)
    world = World(charter(parents, COUNTED, count=scheme), events, seed, faults(dice), until=15)
    world.run()
    assert world.done, f"seed {seed} is not done after {world.now / 1e6:.0f} s"
    check(world.deliveries, events, COUNTED)


@pytest.mark.parametrize("seed", seed_range(share(2500, 1)))
def test_queries_come_and_go_while_edges_are_asked_for(seed: int) -> None:
    """What was there goes on as if nothing had happened; what comes counts from then on."""
    dice = random.Random(seed)
    events = {id: batches(10 * seed + n, 500, 40, 10) for n, id in enumerate("abc")}
    ruled = charter(FLAT, [*COUNTED[:4], QUERIES[0]], count="monitor")
    world = World(ruled, events, seed, faults(dice) if seed else Faults(), until=20)
    new = ct.Query("new", ct.count(), ct.min("v"), window=ct.count_sliding(30, 20))
    began: dict[str, int] = {}

    def change(queries: list[ct.Query]) -> None:
        root = world.sites["root"].member
        full = world.sites["root"].disk.full
        if full or root is None or root.charter is None or root.charter.schema is None:
            world.after(100_000, lambda: change(queries))
        else:
            root.adopt(root.charter.with_queries(queries), world.now)

    def watch() -> None:
        for id in events:
            member = world.sites[id].member
            flow = getattr(None if member is None else member.machine, "flow", None)
            if flow is not None and flow.plan == 0:
                began[id] = (member.machine.at or {"batch": 0})["batch"]  # type: ignore[union-attr]
        world.after(1_000, watch)

    first = [COUNTED[1], COUNTED[3], QUERIES[0], new]
    watch()
    world.after(1_500_000, lambda: change(first))
    world.after(3_500_000, lambda: change([COUNTED[3], QUERIES[0], new, COUNTED[6]]))
    world.run()
    assert world.done
    check(world.deliveries, events, [COUNTED[3], QUERIES[0]])
    check(
        world.deliveries, {id: tables[began.get(id, 0) :] for id, tables in events.items()}, [new]
    )


@pytest.mark.parametrize("crash", ["", "root", "a"])
def test_all_count_queries_go_and_others_come(crash: str) -> None:
    events = {id: batches(n, 900, 60, 8) for n, id in enumerate("abc")}
    world = World(charter(FLAT, [COUNTED[3], QUERIES[0]], count="monitor"), events, until=20)
    new = ct.Query("new", ct.count(), ct.sum("v"), window=ct.count_tumbling(25))

    def change(*queries: ct.Query) -> None:
        root = world.sites["root"].member
        assert root is not None and root.charter is not None
        root.adopt(root.charter.with_queries(queries), world.now)

    world.after(1_500_000, lambda: change(QUERIES[0]))
    world.after(2_500_000, lambda: change(QUERIES[0], new))
    if crash:
        world.after(2_200_000, lambda: world.crash(crash, 0.1))
        world.after(3_200_000, lambda: world.crash(crash, 0.1))
    world.run()
    assert world.done
    check(world.deliveries, events, [QUERIES[0]])
    rows = final(world.deliveries, "new")
    assert len(rows) > 30 and {row["count(*)"] for row in rows} == {25}


def test_a_count_query_without_events_comes_after_a_node_has_ended() -> None:
    """Nobody is asked anything then: that all have ended must be known all the same."""
    events = {"a": batches(1, 400, 40, 3), "b": batches(2, 1, 3, 3)}
    parents: dict[str, str | None] = {"root": None, "a": "root", "b": "root"}
    none = ct.Query("none", ct.count(), window=ct.count_tumbling(9), where="v > 1000")
    world = World(charter(parents, QUERIES[:1], count="monitor"), events, until=0)

    def change() -> None:
        root = world.sites["root"].member
        assert root is not None and root.charter is not None
        root.adopt(root.charter.with_queries([*QUERIES[:1], none]), world.now)

    world.after(8 * 10**5, change)
    world.run()
    assert world.done and not final(world.deliveries, "none")
    check(world.deliveries, events, QUERIES[:1])


def test_a_node_reads_no_further_than_the_root_can_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf_by_key, "_FEW", 0)
    queries = [ct.Query("sum", ct.sum("v"), window=ct.count_tumbling(300))]
    events = {id: large(n, 4_000) for n, id in enumerate("abc")}
    world = World(charter(FLAT, queries, count="monitor"), events, until=30)
    world.after(1_000_000, lambda: world.crash("c", 20.0))
    most = []

    def watch() -> None:
        member = world.sites["a"].member
        flow = getattr(None if member is None else member.machine, "flow", None)
        if flow is not None:
            most.append(sum(lane.events for lane, _ in flow.counting.leaf.lanes.values()))
        world.after(10_000, watch)

    watch()
    world.run()
    assert world.done
    check(world.deliveries, events, queries)
    assert 1_200 < max(most) < 1_500  # four strides and a batch


def test_status_says_how_edges_are_found() -> None:
    events = {id: batches(n, 40) for n, id in enumerate("abc")}
    world = World(charter(FLAT, COUNTED, count="monitor"), events, until=0)
    world.run()
    member = world.sites["root"].member
    assert member is not None and isinstance(member.machine, Root)
    assert member.machine.counting is not None
    said = member.machine.counting.status()
    assert said and all(lane.scheme == "monitor" for lane in said.values())


def test_a_node_that_joins_and_one_that_moves() -> None:
    events = {id: batches(n, 120) for n, id in enumerate("abc")}
    world = World(charter(FLAT, COUNTED, count="monitor"), events, 4, Faults(), until=15)

    def adopted(change: Callable[[Charter], Charter]) -> None:
        root = world.sites["root"].member
        assert root is not None and root.charter is not None
        root.adopt(change(root.charter), world.now)

    def come() -> None:
        adopted(lambda ruled: ruled.with_place(NodePlace("d", 9, "m", source=True)))
        world.join("d", "m", batches(9, 60))

    world.after(400_000, come)
    world.after(700_000, lambda: adopted(lambda ruled: ruled.moved("a", "root")))
    world.run()
    assert world.done
    rows = final(world.deliveries, "forties")
    assert len(rows) >= 11 and all(row["count(*)"] == 40 and row["complete"] for row in rows)


LIES = {
    "counts": ("async", "it counts|does not rise|does not answer"),
    "settled": ("monitor", "it counts|does not rise|does not answer"),
    "samples": ("monitor", "it counts|does not rise|does not answer"),
    "pieces": ("monitor", "does not hold so many"),
    "bytes": ("monitor", "cannot be read"),
    "nothing": ("monitor", "does not answer"),
}


def lying(kind: str, liar: int) -> Any:
    """What a node says of a lane that is not true."""
    true = LocalCounter._up

    def up(self: LocalCounter) -> Up:
        said = true(self)
        if self.node != liar:
            return said
        if kind == "counts":
            return replace(said, counts={place: n + 3 for place, n in said.counts.items()})
        if kind == "settled":
            return replace(said, settled=said.settled + 5)
        if kind == "nothing":
            return replace(said, answers=None, answered=[], pieces=[])
        if kind == "samples" and said.answers is not None:
            answers = replace(said.answers, low=said.answers.low + 4, high=said.answers.high + 4)
            return replace(said, answers=answers)
        if kind == "pieces":
            made = [
                replace(piece, high=piece.high - 1) if piece.high > piece.low + 1 else piece
                for piece in said.pieces
            ]
            return replace(said, pieces=made)
        if kind == "bytes":
            cut = [replace(piece, data=piece.data[: len(piece.data) // 2]) for piece in said.pieces]
            return replace(said, pieces=cut)
        return said

    return up


@pytest.mark.parametrize("kind", LIES)
def test_a_node_that_lies_is_set_aside_and_named(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it, the others' windows go on, and no window is wrong and complete."""
    scheme, words = LIES[kind]
    parents = {"root": None, "a": "root", "b": "root", "c": "root"}
    monkeypatch.setattr(LocalCounter, "_up", lying(kind, list(parents).index("b")))
    events = {id: batches(n, 800, 20, 8) for n, id in enumerate("abc")}
    queries = [ct.Query("c", ct.sum("v"), ct.count(), window=ct.count_tumbling(100))]
    ruled = charter(parents, queries, count=scheme, timeout=3 * SECOND)
    world = World(ruled, events, until=0)
    world.run()
    assert world.done
    check_marked(world.deliveries, events, queries)
    rows = final(world.deliveries, "c", once=False)
    assert len(rows) >= 15  # the others have 1,600 events
    assert all(row["complete"] or tuple(row["missing"]) == ("b",) for row in rows)
    assert not rows[-1]["complete"]
    root = world.sites["root"].member
    assert root is not None
    said = status(root, set()).not_asked
    assert said is not UNSET and set(said) == {"b"} and re.search(words, said["b"])


def test_many_edges_are_looked_for_at_once() -> None:
    """Of twenty lengths: one after the other, each edge would take one round or more."""
    parents = {"root": None, "a": "root", "b": "root"}
    events = {id: batches(n, 4_000, 20, 40) for n, id in enumerate("ab")}
    queries = [
        ct.Query(f"c{n}", ct.sum("v"), window=ct.count_tumbling(1_000 + 30 * n)) for n in range(20)
    ]
    world = World(charter(parents, queries, count="monitor"), events, until=0)
    world.run()
    assert world.done
    check(world.deliveries, events, queries)
    root = world.sites["root"].member
    assert root is not None and isinstance(root.machine, Root)
    assert root.machine.counting is not None
    (said,) = root.machine.counting.status().values()
    assert said.edges > 80 and 2 * said.rounds < said.edges
