"""User-defined windows that the root finds by their marks: whole trees under faults, against brute
force."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec import UNSET
from msgspec.structs import replace

import catchment as ct
from catchment.marking.leaf import HeldSet
from catchment.marking.message import EdgesWord, MarkNote
from catchment.marking.rows import GroupRows
from catchment.model.plan import Group
from catchment.nodes.status import status
from catchment.planner.marked import why_events
from catchment.simulate import Faults, World
from catchment.tree.root import Root
from faulty_trees import FLAT, AskingTrees, ended, faults, shape
from schedules import seed_range, share
from trees import SCHEMA, SECOND, batches, charter, check, check_marked, final

ON, OFF = "m = 'on'", "m = 'off'"
MARKED = [
    ct.Query("trips", ct.sum("v"), ct.first("v"), ct.count(), by="k", window=ct.between(ON, OFF)),
    ct.Query("parts", ct.avg("v"), ct.max("v"), by="k", window=ct.cut(ON)),
    ct.Query("whole", ct.sum("v"), ct.last("v"), ct.median("v"), window=ct.cut(OFF)),
    ct.Query("some", ct.sum("v"), by="k", window=ct.between(ON, OFF), where="v > 9"),
    ct.Query("others", ct.min("v"), by="k", window=ct.cut("v > 90"), where="v <= 9 OR v > 90"),
    ct.Query("same", ct.sum("v"), window=ct.between("m IS NOT NULL", "m IS NOT NULL")),
]
steps = ct.function(
    "t_marked_steps",
    lift=str,
    combine=lambda a, b: a + b,
    lower=str,
    result=pa.string(),
    commutative=False,
)
LISTED = ct.Query("list", ct.collect_list("v"), by="k", window=ct.between(ON, OFF))
IN_ORDER = ct.Query("steps", steps("v"), by="k", window=ct.between(ON, OFF))


def drawn(dice: random.Random) -> list[ct.Query]:
    return dice.sample(MARKED, dice.randint(1, 3))


def thinned(seed: int, tables: list[pa.Table], share_of_marks: float, tick: int) -> list[pa.Table]:
    """The same events with fewer marks, at times that many of them share."""
    dice = random.Random(seed)
    made = []
    for table in tables:
        rows = table.to_pylist()
        for row in rows:
            row["m"] = row["m"] if dice.random() < share_of_marks else None
        made.append(pa.Table.from_pylist(rows, SCHEMA))
        times = pa.array([int(row["ts"].timestamp() * SECOND) // tick * tick for row in rows])
        made[-1] = made[-1].set_column(0, SCHEMA.field(0), times.cast(SCHEMA.field(0).type))
    return made


def some_events(dice: random.Random, parents: dict[str, str | None], seed: int) -> Any:
    """Events with few marks or many, of all leaves alike or not, and often at one instant."""
    count, spread = dice.choice([12, 60, 200]), dice.choice([3, 6, 20])
    tick = dice.choice([1000, 250_000, 1_000_000])
    leaves = [id for id in parents if id.startswith("l")]
    return {
        id: thinned(n, batches(seed * 100 + n, count, spread), dice.choice([0.0, 0.1, 1.0]), tick)
        for n, id in enumerate(leaves)
    }


def check_missing(world: World, events: dict[str, list[pa.Table]], queries: list[ct.Query]) -> None:
    """Windows that are said to be complete are exact, unless events were dropped as late.

    Such events are no marks: what begins after them follows from the marks that are left. A
    run ends when a node is refused for good; a root that is down just then tells nothing of them.
    """
    root = world.sites["root"].member
    if root is None and world.stuck is not None:
        return
    assert root is not None and isinstance(root.machine, Root)
    if not root.machine.counts["late"]:
        check_marked(world.deliveries, events, queries)


TREES = AskingTrees(drawn, lambda _, *given: some_events(*given), exact=check_missing)


def rounds(world: World) -> int:
    """The number of the root's last word about marks."""
    root = world.sites["root"].member
    assert root is not None and isinstance(root.machine, Root)
    return root.edges.number


@pytest.fixture(autouse=True, params=["slices", "events"])
def cheaper(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether nodes send slices wherever they can, or as it costs less: of few events, events."""
    if request.param == "slices":
        monkeypatch.setattr("catchment.marking.choice.EDGE_BYTES", 0)
    return str(request.param)


@pytest.mark.parametrize("part", range(4))
def test_schedules_with_faults(part: int) -> None:
    assert sum(rounds(TREES.one_schedule(seed)) for seed in seed_range(share(125, 20), part, 4))


@pytest.mark.parametrize("part", range(4))
def test_folders_and_processes_go_wrong(part: int) -> None:
    for seed in [3920012] * (part == 0) + [*seed_range(share(500, 8), part, 4)]:
        TREES.gone_wrong(seed)


@pytest.mark.parametrize("part", range(4))
def test_nodes_that_are_missing(part: int) -> None:
    for seed in seed_range(share(500, 8), part, 4):
        TREES.missing(seed)


@pytest.mark.parametrize("seed", seed_range(share(2500, 1)))
def test_nodes_that_move(seed: int) -> None:
    TREES.moved(seed)


def few_marks(share_of_marks: float = 0.2, tick: int = 1000) -> dict[str, list[pa.Table]]:
    return {id: thinned(n, batches(n, 300, 8), share_of_marks, tick) for n, id in enumerate("abc")}


def test_marks_climb_and_slices_follow() -> None:
    events = few_marks()
    world = TREES.flat(events, MARKED)
    check(world.deliveries, events, MARKED)


@pytest.mark.parametrize("seed", [3, 22, 24, 37])
def test_marks_at_the_time_up_to_which_all_is_there(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event just at the end of a window may be in it: these were said to be complete."""
    monkeypatch.setattr(
        "catchment.tree.settings.TreeSettings.asks_marks", property(lambda _: False)
    )
    TREES.missing(seed)


def test_only_marks_climb_at_first() -> None:
    """Of many events with few marks, what climbs is small."""
    bytes_of = {}
    for mode in ("ask", "send"):
        events = {
            id: thinned(n, batches(n, 6000, 8, 400), 0.01, 1000) for n, id in enumerate("abc")
        }
        world = TREES.flat(events, MARKED[:2], marks=mode)
        check(world.deliveries, events, MARKED[:2])
        bytes_of[mode] = sum(world.bytes.values())
        assert bool(rounds(world)) == (mode == "ask")
    assert bytes_of["ask"] < 0.4 * bytes_of["send"]


@pytest.mark.parametrize("marks", [0.0, 1.0])
def test_no_marks_and_a_mark_on_every_event(marks: float) -> None:
    every = ct.Query("every", ct.sum("v"), by="k", window=ct.cut("v IS NOT NULL"))
    queries = [every] if marks else MARKED[:3]
    events = few_marks(marks)
    sizes = {}
    for mode in ("ask", "send"):
        world = TREES.flat(events, queries, marks=mode)
        check(world.deliveries, events, queries)
        sizes[mode] = sum(world.bytes.values())
    assert sizes["ask"] <= 1.05 * sizes["send"]


def test_all_events_at_one_instant() -> None:
    events = few_marks(0.3, 10 * SECOND)
    world = TREES.flat(events, MARKED)
    check(world.deliveries, events, MARKED)


def test_a_clock_that_is_wrong_by_hours() -> None:
    events = few_marks()
    late = pa.scalar(3 * 3600 * SECOND, pa.duration("us"))
    for n, table in enumerate(events["b"]):
        times = pa.compute.add(table.column("ts"), late)
        events["b"][n] = table.set_column(0, SCHEMA.field(0), times)
    world = TREES.flat(events, MARKED)
    check(world.deliveries, events, MARKED)


def test_nodes_hold_so_much_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catchment.marking.leaf.HELD", 3000)
    events = few_marks()
    world = TREES.flat(events, MARKED)
    check(world.deliveries, events, MARKED)


def test_rounds_begin_without_marks_where_many_events_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("catchment.marking.root.MANY", 50)
    events = few_marks(0.0)
    world = TREES.flat(events, MARKED[:2])
    check(world.deliveries, events, MARKED[:2])
    assert rounds(world) > 2


@pytest.mark.parametrize(
    "settings", [{"marks": "send"}, {"late": "update"}, {"idle": 10**9}, {"emit": "changes"}]
)
def test_where_all_events_climb(settings: dict[str, Any]) -> None:
    events = few_marks()
    world = TREES.flat(events, MARKED[:2], **settings)
    if "emit" not in settings:
        check(world.deliveries, events, MARKED[:2])
    assert not rounds(world)


@pytest.mark.parametrize("needing", [IN_ORDER, LISTED])
def test_functions_that_need_all_events_have_them(needing: ct.Query) -> None:
    queries = [needing, MARKED[0]]
    events = few_marks()
    world = TREES.flat(events, queries)
    check(world.deliveries, events, [LISTED, MARKED[0]] if needing is LISTED else [MARKED[0]])
    assert not rounds(world)
    assert "local: all events climb, since" in ct.explain(queries)
    assert "local: marks climb, other events stay" in ct.explain(MARKED)


def test_of_many_groups_each_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of a hundred thousand queries are explained too."""
    queries = [
        ct.Query(f"q{n}", ct.sum("v"), by=("k",), where=f"v % {n} = 1", window=ct.cut("v > 9"))
        for n in range(2, 40)
    ]
    looked_at = list[int]()

    def counting(group: Group) -> str | None:
        looked_at.append(group.id)
        return why_events(group)

    monkeypatch.setattr(sys.modules["catchment.planner.explain"], "why_events", counting)
    assert "and 29 more, each kept once" in ct.explain(queries)
    assert len(looked_at) == len(set(looked_at)) == len(queries)


@pytest.mark.parametrize("seed", seed_range(share(1250, 2)))
def test_queries_that_come_while_events_are_kept(seed: int) -> None:
    """One that shares their events, one that needs all of them, one that leaves."""
    dice = random.Random(seed)
    parents = shape(dice, 3)
    leaves = [id for id in parents if id.startswith("l")]
    events = {
        id: thinned(n, batches(seed * 9 + n, 200, 8), 0.2, 1000) for n, id in enumerate(leaves)
    }
    trouble = faults(dice) if seed % 2 else Faults()
    world = World(charter(parents, MARKED[:1]), events, seed, trouble, until=4)
    for n, new in enumerate([MARKED[1], IN_ORDER], start=1):

        def add(new: ct.Query = new) -> None:
            root = world.sites["root"].member
            if root is not None and root.charter is not None and root.charter.schema is not None:
                known = root.charter.plans[root.charter.plan].queries
                root.adopt(root.charter.with_queries([*known.values(), new]), world.now)

        world.after(n * dice.random(), add)
    ended(world, seed)
    check(world.deliveries, events, MARKED[:1])


LIES = {
    "fewer rows": "its slices hold",
    "more events": "events, counts",
    "fewer events": "its slices hold",
    "events that are gone": "by what it said before",
    "more kept": "by what it said before",
    "an edge that nobody told": "behind an edge",
}


def lying(kind: str, liar: int) -> Any:
    """What a node answers that does not say what is true, from its second round on."""
    true = HeldSet.answer

    def answer(self: HeldSet, word: EdgesWord, number: int, *rest: Any) -> tuple[MarkNote, int]:
        if number == liar and word.number > 1 and kind == "events that are gone":
            kept = [table.slice(table.num_rows // 2) for table in self.waiting.tables]
            self.waiting.tables = [table for table in kept if table.num_rows]
        note, late = true(self, word, number, *rest)
        if number != liar or word.number == 1 or not note.slices:
            return note, late
        if kind == "more kept":
            return replace(note, let_go=note.let_go + 3), late
        lies = {"more events": 1, "fewer events": -1}
        if kind in lies:
            return replace(note, events=note.events + lies[kind]), late
        slices = {}
        for id, one in note.slices.items():
            group = GroupRows(self.bound.groups[id])
            rows = group.unpack(one.rows)
            if kind == "fewer rows":
                rows = rows.where(np.arange(len(rows)) % 2 == 0)
            elif kind == "an edge that nobody told":
                rows.start, rows.end = rows.start + 1000, rows.end + 1000
            slices[id] = replace(one, rows=group.pack(rows))
        return replace(note, slices=slices), late

    return answer


@pytest.mark.parametrize("liar", ["a", "b"])
@pytest.mark.parametrize("kind", LIES)
def test_a_node_that_lies_is_set_aside_and_named(
    kind: str, liar: str, cheaper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says is found out at its parent, which is the root or a node in between."""
    if cheaper == "events":
        return  # slices are what it lies about
    number = list(FLAT).index(liar)
    monkeypatch.setattr(HeldSet, "answer", lying(kind, number))
    events = few_marks()
    queries = [MARKED[0], MARKED[1]]
    world = TREES.flat(events, queries)
    check_marked(world.deliveries, events, queries)
    rows = [row for query in queries for row in final(world.deliveries, query.name, once=False)]
    named = [row for row in rows if not row["complete"]]
    assert named and all(tuple(row["missing"]) == (liar,) for row in named), named[:3]
    assert any(row["complete"] for row in rows)
    root = world.sites["root"].member
    assert root is not None
    said = status(root, set()).not_asked
    assert said is not UNSET and set(said) == {liar} and LIES[kind] in said[liar]
