"""Sessions in a tree: slices of open sessions are held back, and every session is exact."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import catchment as ct
from catchment.engine.bound import BoundPlan
from catchment.engine.released_sessions import ReleasedSessions
from catchment.engine.rows import Rows
from catchment.engine.shapes.session import fuse
from catchment.errors import StateError
from catchment.model.query import Query
from catchment.model.rules import EventRules
from catchment.simulate import Faults, World
from catchment.testing import oracle
from catchment.tree.root import Root
from faulty_trees import HOUR, ended, faults, shape, wrongs
from schedules import SCHEDULES, seed_range, share
from trees import SCHEMA, SECOND, charter, check, check_marked, final

SOME = share(80, 16)
"""Schedules of this file, of all of them."""


def sessions(dice: random.Random) -> list[Query]:
    """Sessions, mostly beside windows that share their slices."""
    gaps = dice.sample(["150ms", "300ms", "700ms", "1s", "2s"], dice.randint(1, 2))
    made = [
        ct.Query(f"visits {gap}", ct.sum("v"), ct.count(), by="k", window=ct.session(gap))
        for gap in gaps
    ]
    if dice.random() < 0.7:
        width = dice.choice(["100ms", "500ms", "1s", "3s"])
        made.append(ct.Query("avg", ct.sum("v"), ct.count(), by="k", window=ct.tumbling(width)))
    if dice.random() < 0.3:
        made.append(ct.Query("medians", ct.median("v"), by="k", window=ct.session("500ms")))
    return made


def bursts(seed: int, spread: int, late: int) -> list[pa.Table]:
    """Events in bursts with pauses between them, up to `late` microseconds out of order."""
    dice = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for key in "abcd"[: dice.randint(1, 4)]:
        at = dice.randrange(SECOND)
        while at < spread * SECOND:
            for _ in range(dice.randint(1, 6)):
                rows.append({"ts": at // 1000 * 1000, "k": key, "v": dice.randrange(9), "m": None})
                at += dice.choice([0, 1000, 150_000, 300_000, dice.randrange(400_000)])
            at += dice.choice([700_000, 1_000_000, dice.randrange(3 * SECOND)])
    rows.sort(key=lambda row: row["ts"] + (dice.randrange(late) if late else 0))
    tables = []
    while rows:
        part = dice.randint(1, 8)
        tables.append(pa.Table.from_pylist(rows[:part], SCHEMA))
        rows = rows[part:]
    return tables or [SCHEMA.empty_table()]


def one_schedule(seed: int) -> World:
    """A tree with faults whose queries are sessions; all windows are checked."""
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(1, 4))
    late = dice.choice(["drop", "update"])
    settings: dict[str, Any] = {}
    if late == "update":
        settings = {"late": late, "keep": HOUR, "timeout": dice.choice([10**6, 10**5])}
    disorder = dice.choice([0, 200_000, 1_500_000])
    queries = sessions(dice)
    leaves = [id for id in parents if id.startswith("l")]
    events = {id: bursts(seed * 100 + n, 6, disorder) for n, id in enumerate(leaves)}
    trouble = faults(dice) if dice.random() < 0.8 else Faults()
    ruled = charter(parents, queries, **settings, lateness=disorder)
    world = World(ruled, events, seed, trouble, until=6)
    ended(world, seed)
    check(world.deliveries, events, queries)
    return world


@pytest.mark.timeout(max(900, SCHEDULES))
@pytest.mark.parametrize("part", range(8))
def test_schedules_of_sessions(part: int) -> None:
    for seed in seed_range(SOME, part, 8):
        one_schedule(seed)


def gone_wrong(seed: int) -> None:
    """The same where folders and processes go wrong."""
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(1, 3))
    settings: dict[str, Any] = {}
    if dice.random() < 0.5:
        settings = {"late": "update", "keep": HOUR, "timeout": 10**6}
    queries = sessions(dice)
    leaves = [id for id in parents if id.startswith("l")]
    events = {id: bursts(seed * 100 + n, 6, 0) for n, id in enumerate(leaves)}
    world = World(charter(parents, queries, **settings), events, seed, wrongs(dice), until=8)
    world.run()
    if world.stuck is not None or world.aside:
        check_marked(world.deliveries, events, queries)
        return
    assert world.done, f"seed {seed} is not done: {world.happened}"
    check(world.deliveries, events, queries)


@pytest.mark.timeout(max(900, SCHEDULES))
@pytest.mark.parametrize("part", range(4))
def test_folders_of_sessions_go_wrong(part: int) -> None:
    for seed in seed_range(SOME // 2, part, 4):
        gone_wrong(seed)


def given_up(seed: int) -> int:
    """Nodes are away for longer than others wait, and bring what is too late then: sessions that
    are said to be complete are right all the same."""
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(2, 4))
    queries = sessions(dice)
    leaves = [id for id in parents if id.startswith("l")]
    events = {id: bursts(seed * 100 + n, 8, 0) for n, id in enumerate(leaves)}
    trouble = replace(faults(dice), crash=0.3, down=2.0)
    settings = {"late": "drop", "timeout": dice.choice([3, 6, 10]) * 10**5}
    world = World(charter(parents, queries, **settings), events, seed, trouble, until=8)
    ended(world, seed)
    check_marked(world.deliveries, events, queries)
    root = world.sites["root"].member
    assert root is not None and isinstance(root.machine, Root)
    return root.machine.counts["late"]


@pytest.mark.timeout(max(900, SCHEDULES))
@pytest.mark.parametrize("part", range(2))
def test_sessions_of_nodes_that_were_given_up(part: int) -> None:
    assert sum(given_up(seed) for seed in seed_range(max(SOME // 4, 8), part, 2))


def joined_by_others(seed: int) -> None:
    """Queries come while sessions are open: theirs are exact where they began after that."""
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(2, 4))
    queries = sessions(dice)
    leaves = [id for id in parents if id.startswith("l")]
    events = {id: bursts(seed * 100 + n, 12, 0) for n, id in enumerate(leaves)}
    trouble = faults(dice) if seed % 3 else Faults()
    world = World(charter(parents, queries), events, seed, trouble, until=10)
    added: list[Query] = []

    def join() -> None:
        world.after(3 * 10**5, join)
        root = world.sites["root"].member
        if root is None or root.charter is None or world.done or len(added) == 3:
            return
        gap = dice.choice(["200ms", "700ms"])
        new = ct.Query(f"new{len(added)}", ct.max("v"), by="k", window=ct.session(gap))
        known = root.charter.plans[root.charter.plan].queries.values()
        with suppress(StateError):  # its disk may be full
            root.adopt(root.charter.with_queries([*known, new]), world.now)
            added.append(new)

    world.after(5 * 10**5, join)
    ended(world, seed)
    check(world.deliveries, events, queries)
    rows = [row for tables in events.values() for table in tables for row in table.to_pylist()]
    for new in added:
        wanted = oracle([new], rows)[new.name]
        # A node that went over late lacks in windows of newer queries, and they say so.
        for row in [row for row in final(world.deliveries, new.name) if row.pop("complete")]:
            assert row.pop("missing") is None
            assert row in wanted, (new.name, row)


@pytest.mark.timeout(max(900, SCHEDULES))
@pytest.mark.parametrize("part", range(4))
def test_sessions_join_while_others_are_open(part: int) -> None:
    for seed in [3800132] * (part == 0) + [*seed_range(SOME // 4, part, 4)]:
        joined_by_others(seed)


def messages_of(queries: list[Query]) -> tuple[int, int]:
    """Messages and bytes on the links of a tree whose keys never pause."""
    parents: dict[str, str | None] = {"root": None, "m": "root", "l0": "m", "l1": "m", "l2": "root"}
    dice = random.Random(7)
    events: dict[str, list[pa.Table]] = {}
    for id in ("l0", "l1", "l2"):
        times = sorted(dice.randrange(6 * SECOND) for _ in range(900))
        rows = [{"ts": t, "k": dice.choice("abc"), "v": t % 97, "m": None} for t in times]
        events[id] = [pa.Table.from_pylist(rows[n : n + 20], SCHEMA) for n in range(0, 900, 20)]
    world = World(charter(parents, queries), events, until=0)
    ended(world, 0)
    check(world.deliveries, events, queries)
    members = [site.member for id, site in world.sites.items() if id != "root"]
    flows = [member.flow for member in members if member is not None and member.flow is not None]
    return sum(flow.outbox.sent for flow in flows), sum(world.bytes.values())


def test_a_session_adds_few_messages_and_bytes() -> None:
    without = [ct.Query("avg", ct.avg("v"), by="k", window=ct.tumbling("1s"))]
    beside = [*without, ct.Query("visits", ct.avg("v"), by="k", window=ct.session("1s"))]
    (few, small), (more, larger) = messages_of(without), messages_of(beside)
    assert more <= 1.5 * few
    assert larger <= 1.3 * small


# -- what may be held back ------------------------------------------------------------------------


def slices(spans: list[tuple[int, int]]) -> Rows:
    """Slices of one key, by their first and last events."""
    first = np.array([span[0] for span in spans], np.int64)
    last = np.array([span[1] for span in spans], np.int64)
    return Rows(first, last + 1, np.zeros(len(spans), np.int64), first, last, {})


@pytest.mark.parametrize("seed", range(200))
def test_what_is_held_back_cannot_change_what_is_closed(seed: int) -> None:
    """Whatever others have sent, what is closed above is the same with what is held back here."""
    dice = random.Random(seed)
    gap = dice.randint(1, 6)

    def some(most: int) -> list[tuple[int, int]]:
        starts = [dice.randrange(30) for _ in range(dice.randint(0, most))]
        return [(start, start + dice.randrange(gap + 1)) for start in starts]

    mine, others, held = some(4), some(4), slices(some(3))
    frontier = dice.randrange(30)
    known = ReleasedSessions(gap)
    known.add(slices(mine))
    known.open(frontier)
    passed = held.first < frontier
    stays = held.where(~passed | known.keep_open(held))
    above = slices([*mine, *others])
    closed = fuse(above, gap, {})
    whole = fuse(
        Rows.of(
            [np.concatenate(c) for c in zip(above.columns(), stays.columns(), strict=True)], {}
        ),
        gap,
        {},
    )
    spans = [
        sorted(
            (int(a), int(b))
            for a, b in zip(rows.first, rows.last, strict=True)
            if b + gap < frontier
        )
        for rows in (closed, whole)
    ]
    assert spans[0] == spans[1]


def test_all_of_a_slice_and_key_leaves_together() -> None:
    """Where it leaves before the slice ends, whoever takes over forgets all that was read of it.

    one partition   x           x
    another                   x
    frontier                  |
    """
    queries = [ct.Query("visits", ct.count(), by="k", window=ct.session("10s"))]
    bound = BoundPlan(ct.plan(queries), EventRules(), SCHEMA)
    merger = bound.merger()
    slicer = bound.slicer(encoder=merger.encoder)
    for times in ((1, 9), (8,)):
        rows = [{"ts": at * SECOND, "k": "a", "v": 1, "m": None} for at in times]
        for sliced in slicer.slice(pa.Table.from_pylist(rows, SCHEMA)):
            merger.add(sliced)
    assert merger.release(8 * SECOND).rows == 0
    (left,) = merger.release_sessions(8 * SECOND).groups.values()
    assert left["count(*).count"].to_pylist() == [3]
