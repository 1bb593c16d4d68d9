"""The first keys of windows that the root finds by asking: whole trees under faults, against brute
force."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs

import catchment as ct
from catchment.counting import wire
from catchment.errors import StateError
from catchment.ranking.leaf import HeldGroup, answered
from catchment.ranking.message import (
    CountAnswer,
    CountSummary,
    RankNote,
    RankQuestion,
    Summary,
    ValueAnswer,
    late_rows,
)
from catchment.simulate import Faults, World
from catchment.testing.oracle import oracle
from catchment.tree.root import Root
from schedules import seed_range, share
from test_simulate import events_of, faults, flushing, moving, shape, wrongs
from test_tree_quantiles import FLAT, asked, ended, groups_of
from trees import SCHEMA, batches, charter, check, check_marked, final

ASK = {"quantiles": "ask"}
ENOUGH = share(125, 20)


def most(by: str | ct.Aggregate) -> ct.Ordering:
    return ct.Ordering(by, descending=True)


FIRST = [
    ct.Query(
        "sums",
        ct.sum("v").alias("s"),
        ct.max("v"),
        by="k",
        window=ct.tumbling("3s"),
        order_by=[most("s")],
        limit=1,
        where="v > 0",
    ),
    ct.Query(
        "slides",
        ct.count().alias("n"),
        ct.avg("v"),
        by=["k", "m"],
        window=ct.sliding("4s", "1s"),
        order_by=[most("n"), "m"],
        limit=2,
    ),
    ct.Query(
        "some",
        ct.sum("v").alias("s"),
        ct.min("v"),
        by="m",
        window=ct.sliding("3s", "2s"),
        where="v > 9",
        order_by=[most("s"), most(ct.min("v"))],
        limit=1,
    ),
    ct.Query(
        "any",  # sums may be less than nothing: what is kept back are slices where none is
        ct.sum("v").alias("s"),
        ct.count("v"),
        by=["m", {"tens": "v / 10"}],
        window=ct.tumbling("2s"),
        order_by=[most("s")],
        limit=3,
    ),
    ct.Query(
        "distinct",
        ct.count("m").alias("n"),
        ct.count_distinct("v"),
        by="k",
        window=ct.tumbling("3s"),
        order_by=[most("n")],
        limit=1,
    ),
]


def drawn(dice: random.Random) -> list[ct.Query]:
    return dice.sample(FIRST, dice.randint(1, 3))


def one_schedule(seed: int) -> World:
    """A small tree in which links, disks and processes fail; all windows are checked."""
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(1, 4))
    events = events_of(parents, seed, dice.choice([12, 60, 200]), 6)
    queries = drawn(dice)
    flush, trouble = flushing(seed, faults(dice))
    if trouble.narrow:  # rows take more than counts do, and what is not acknowledged is sent again
        trouble = replace(trouble, narrow=50_000)
    world = World(charter(parents, queries, **ASK, **flush), events, seed, trouble, until=4)
    ended(world, seed)
    check(world.deliveries, events, queries)
    return world


@pytest.mark.parametrize("part", range(4))
def test_schedules_with_faults(part: int) -> None:
    assert sum(asked(one_schedule(seed)) for seed in seed_range(ENOUGH, part, 4))


def gone_wrong(seed: int) -> World:
    """A tree whose folders and processes go wrong; what is exact is checked."""
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(1, 3))
    events = events_of(parents, seed, 60, 6)
    queries = drawn(dice)
    timeout = {"timeout": 10**6} if dice.random() < 0.5 else {}
    ruled = charter(parents, queries, **ASK, **timeout)
    world = World(ruled, events, seed, wrongs(dice), until=8)
    world.run()
    if world.stuck is not None or world.aside or timeout:
        check_marked(world.deliveries, events, queries)
        return world
    assert world.done, f"seed {seed} is not done after {world.now / 1e6:.0f} s: {world.happened}"
    check(world.deliveries, events, queries)
    return world


@pytest.mark.parametrize("part", range(2))
def test_folders_and_processes_go_wrong(part: int) -> None:
    for seed in seed_range(share(500, 8), part, 2):
        gone_wrong(seed)


def missing(seed: int) -> World:
    """Nodes that are given up for silent: what is said to be complete is exact."""
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(2, 4))
    events = events_of(parents, seed, 100, 8)
    queries = drawn(dice)
    trouble = Faults(delay=0.05, crash=0.3, cut=0.3, down=3.0)
    ruled = charter(parents, queries, **ASK, timeout=10**6)
    world = World(ruled, events, seed, trouble, until=8)
    ended(world, seed)
    check_marked(world.deliveries, events, queries)
    return world


@pytest.mark.parametrize("part", range(2))
def test_nodes_that_are_missing(part: int) -> None:
    for seed in seed_range(share(500, 8), part, 2):
        missing(seed)


def moved(seed: int) -> World:
    """Nodes move and queries come while links and processes fail."""
    dice = random.Random(seed)
    parents: dict[str, str | None] = {"root": None, "m0": "root", "m1": "root", "m2": "m1"}
    parents |= {f"l{n}": ["m0", "m1", "m2", "root"][n] for n in range(4)}
    leaves = [id for id in parents if id.startswith("l")]
    events = {id: batches(seed * 100 + n, 60, 20, 3) for n, id in enumerate(leaves)}
    queries = drawn(dice)
    trouble = faults(dice) if seed % 4 else Faults()
    world = World(charter(parents, queries, **ASK), events, seed, trouble, until=12)
    gone, _ = moving(world, dice, ["l0", "l1", "m2"], ["root", "m0", "m1"])
    ended(world, seed)
    assert gone
    check(world.deliveries, events, queries)
    return world


@pytest.mark.parametrize("seed", seed_range(share(2500, 2)))
def test_nodes_that_move(seed: int) -> None:
    moved(seed)


@pytest.mark.parametrize("first", [FIRST[0], FIRST[2], FIRST[4]], ids=lambda query: query.name)
@pytest.mark.parametrize("seed", range(4))
def test_queries_come_and_go(seed: int, first: ct.Query) -> None:
    """Also those that need all keys, more of them, or others, and take the place of the first."""
    dice = random.Random(seed)
    events = {id: batches(n, 600, 30, 10) for n, id in enumerate("abc")}
    alike: dict[str, Any] = {"by": first.by, "window": first.window, "where": first.where}
    more = [
        ct.Query("all", ct.sum("v"), ct.count("v"), **alike, order_by=[most(ct.sum("v"))]),
        ct.Query(
            "long", ct.sum("v"), **alike | {"window": ct.sliding("8s", "1s")}, order_by=[*first.by]
        ),
        ct.Query("two", ct.sum("v").alias("s"), **alike, order_by=[most("s")], limit=2),
        ct.Query("count", ct.count().alias("n"), **alike, order_by=[most("n")], limit=1),
    ]
    trouble = Faults(lost=0.1, crash=0.1) if seed % 2 else Faults()
    world = World(charter(FLAT, [first], **ASK), events, seed, trouble, until=5)

    def change(queries: list[ct.Query]) -> None:
        root = world.sites["root"].member
        if root is None or root.charter is None or world.done:
            return
        with suppress(StateError):
            root.adopt(root.charter.with_queries(queries), world.now)

    chosen = dice.sample(more, 2)
    world.after(6 * 10**5, lambda: change([first, *chosen]))
    world.after(16 * 10**5, lambda: change([first, chosen[0]] if seed % 2 else chosen))
    world.after(22 * 10**5, lambda: change([first] if seed % 2 else chosen[:1]))
    ended(world, seed)
    rows = [row for tables in events.values() for table in tables for row in table.to_pylist()]
    for query in [first, *chosen]:
        wanted = oracle([query], rows)[query.name]
        for row in final(world.deliveries, query.name):
            assert row.pop("complete") is True and row.pop("missing") is None
            assert row in wanted, (query.name, row)


def flat(events: dict[str, list[pa.Table]], queries: list[ct.Query], **settings: Any) -> World:
    """A tree without faults, run to its end."""
    world = World(charter(FLAT, queries, **{**ASK, **settings}), events, until=0)
    ended(world, 0)
    return world


def of_keys(sums: dict[str, int], least: int = 1) -> list[pa.Table]:
    """Events of one second that give keys these sums, each in two parts."""
    rows = [
        {"ts": 1000 * n, "k": key, "v": part}
        for key, total in sums.items()
        for n, part in enumerate((least, total - least))
    ]
    return [pa.Table.from_pylist(sorted(rows, key=lambda row: row["ts"]), SCHEMA)]


def ranked(order: random.Random, keys: int = 400) -> dict[str, int]:
    """Sums of keys by Zipf's law."""
    names = [f"key {n}" for n in range(keys)]
    order.shuffle(names)
    return {name: 2 + 5000 // (1 + n) for n, name in enumerate(names)}


TOP = ct.Query(
    "top",
    ct.sum("v").alias("s"),
    ct.max("v"),
    by="k",
    window=ct.tumbling("1s"),
    order_by=[most("s")],
    limit=5,
)


def other_keys_of(query: ct.Query, **change: Any) -> ct.Query:
    """A query that takes other keys of the same windows."""
    told: dict[str, Any] = {"order_by": [most("s")], "limit": 5} | change
    aggregates = (ct.sum("v").alias("s"), ct.max("v"))
    return ct.Query(f"other{len(str(change))}", *aggregates, by="k", window=query.window, **told)


WITH_ALL = ct.Query("every", ct.sum("v"), ct.max("v"), by="k", window=ct.tumbling("1s"))


@pytest.mark.parametrize("alike", [True, False])
def test_two_rounds_find_the_first_keys(alike: bool) -> None:
    """Most keys stay, and what is lacking of them does not make them first."""
    events = {id: of_keys(ranked(random.Random(0 if alike else n))) for n, id in enumerate("abc")}
    world = flat(events, [TOP], quantiles="auto")
    check(world.deliveries, events, [TOP])
    (group,) = groups_of(world)
    assert group.held and group.next - 1 <= 2 and (alike or asked(world))


@pytest.mark.parametrize(
    ("sums", "least"),
    [
        ({f"k{n}": 7 for n in range(50)}, 1),  # all are as good as the last
        ({"a": 5, "b": 3}, 1),  # fewer than are wanted, at every node
        ({f"k{n}": n - 20 for n in range(50)}, 1),  # sums below nothing
        ({f"k{n}": 0 for n in range(50)}, 0),
        ({f"k{n}": 2**60 + n for n in range(50)}, 2**60),  # sums that do not fit
        ({"": 4, "=1:a": 5, "a": 4, "\x00": 3, "!": 9, "\u00e9": 4, "\U0001f600": 4}, 1),
    ],
)
def test_strange_sums_and_keys(sums: dict[str, int], least: int) -> None:
    """One node has sums that are kept back, another has these."""
    events = {"a": of_keys(sums, least), "b": of_keys(dict.fromkeys([*sums, "more"], 6), 3)}
    events["c"] = of_keys({key: 2 + n for n, key in enumerate(sums)})
    world = flat(events, [TOP])
    check(world.deliveries, events, [TOP])
    assert any(group.held for group in groups_of(world)) == (len(sums) > TOP.output.limit)


def test_partials_of_all_kinds_are_told() -> None:
    """Sets, sketches, texts: the results are those of keys that all climbed."""
    query = ct.Query(
        "q",
        ct.count().alias("n"),
        ct.stddev("v"),
        ct.collect_set("v"),
        ct.approx_count_distinct("v"),
        ct.approx_median("v"),
        ct.max("concat(k, m)"),
        by="k",
        window=ct.sliding("2s", "1s"),
        order_by=[most("n")],
        limit=1,
    )
    events = {id: batches(n, 500, 8, 40) for n, id in enumerate("abc")}
    world, other = flat(events, [query]), flat(events, [query], quantiles="send")
    assert asked(world)
    assert final(world.deliveries, "q") == final(other.deliveries, "q") != []


def test_nothing_is_kept_back_where_others_need_all_keys() -> None:
    events = {id: of_keys(ranked(random.Random(n))) for n, id in enumerate("abc")}
    world = flat(events, [TOP, WITH_ALL])
    check(world.deliveries, events, [TOP, WITH_ALL])
    assert not any(group.held for group in groups_of(world))
    assert "all keys climb, since other groups are made" in ct.plan([TOP, WITH_ALL]).explain()
    beside = [
        TOP,
        other_keys_of(TOP, limit=None),
        other_keys_of(TOP, order_by=[most(ct.count("v"))]),
    ]
    why = "since a query takes other keys than the first by a sum or a count and queries take"
    assert why in ct.plan(beside).explain()
    assert "local: keys that cannot be among the first may stay" in ct.plan([TOP]).explain()


@pytest.mark.parametrize(
    "change",
    [
        {"having": "s > 100"},
        {"limit": None},
        {"order_by": [ct.Ordering("s")]},
        {"order_by": [most(ct.max("v"))]},
        {"order_by": [most("k"), most("s")]},
    ],
)
def test_other_queries_take_all_keys(change: dict[str, Any]) -> None:
    query = other_keys_of(TOP, **change)
    events = {id: of_keys(ranked(random.Random(n))) for n, id in enumerate("abc")}
    world = flat(events, [query])
    check(world.deliveries, events, [query])
    assert not asked(world)
    assert "may stay" not in ct.plan([query]).explain()


def other_sums(answer: CountAnswer) -> CountAnswer:
    return structs.replace(answer, times=answer.times + (answer.times > 0))


def other_keys(answer: CountAnswer) -> CountAnswer:
    return structs.replace(answer, texts=[text + "x" for text in answer.texts])


def without_rows(answer: CountAnswer) -> CountAnswer:
    return structs.replace(answer, rows=[])


def broken_rows(answer: CountAnswer) -> CountAnswer:
    return structs.replace(answer, rows=[b"no rows"])


def nothing_new(answer: CountAnswer) -> CountAnswer:
    empty, sent = np.empty(0, np.int64), np.zeros_like(answer.sent)
    rest = answer.rest + 10**6
    return structs.replace(
        answer, rest=rest, sent=sent, values=empty, times=empty, texts=[], rows=[]
    )


@pytest.mark.parametrize("change", [other_sums, other_keys, without_rows, broken_rows, nothing_new])
def test_a_node_that_lies_is_set_aside(
    change: Callable[[CountAnswer], CountAnswer], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = {id: of_keys(ranked(random.Random(n))) for n, id in enumerate("abc")}

    def answer(name: str, question: RankQuestion, held: HeldGroup) -> ValueAnswer | None:
        honest = answered(name, question, held)
        if honest is None:
            return None
        columns = [change(one) if isinstance(one, CountAnswer) else one for one in honest.columns]
        return structs.replace(honest, columns=columns)

    monkeypatch.setattr("catchment.ranking.leaf.answered", answer)
    world = flat(events, [TOP])
    root = world.sites["root"].member
    assert root is not None and isinstance(root.machine, Root) and root.machine.ranking is not None
    assert root.machine.ranking.aside
    rows = final(world.deliveries, TOP.name)
    assert rows and not any(row["complete"] for row in rows)
    assert {name for row in rows for name in row["missing"].split(", ")} <= {"a", "b", "c"}


def test_events_of_rows_that_come_too_late_are_counted() -> None:
    """A node that was given up brings slices of windows that were given without it."""
    one = np.array([0, 5])
    counts = CountSummary(
        "keys", one * 0 + 2, one * 0 + 9, one * 0 + 1, one * 0, one[:0], one[:0], []
    )
    said = Summary("g", 0, one, one + 5, one * 0, b"", [counts], np.array([3, 4]))
    notes = pa.table({"note": [wire.dump(RankNote(1, [said, said], []))]})
    assert late_rows(notes, 5) == {"g": (6, 5)}
    assert late_rows(notes, 4) == {} and late_rows(None, 5) == {}
    with pytest.raises(ValueError, match="no less than no events"):
        structs.replace(said, events=np.array([3, -1]))
