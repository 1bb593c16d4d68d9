"""Quantiles and frequent values that the root finds by asking: whole trees under faults, against
brute force."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import catchment as ct
from catchment.counting import wire
from catchment.errors import StateError
from catchment.nodes.bootstrap import founded
from catchment.nodes.status import status
from catchment.ranking.counts import CountedColumn
from catchment.ranking.leaf import HeldGroup, answered
from catchment.ranking.leaf_log import RankLog
from catchment.ranking.message import (
    CountAnswer,
    CountSummary,
    RankQuestion,
    RunAnswer,
    RunSummary,
    Summary,
    ValueAnswer,
)
from catchment.ranking.root import GroupRanks
from catchment.simulate import Faults, World
from catchment.simulate.memory import MemoryDisk
from catchment.testing.oracle import oracle
from catchment.tree.root import Root
from faulty_trees import FLAT, AskingTrees, Parents, ended, events_of
from schedules import seed_range, share
from trees import SCHEMA, batches, charter, check, final

QUANTILES = [
    ct.Query("all", ct.median("v"), ct.quantile("v", 0.95), window=ct.tumbling("3s")),
    ct.Query("low", ct.quantile_disc("v", 0.1), ct.avg("v"), by="k", window=ct.sliding("4s", "1s")),
    ct.Query(
        "both", ct.median("v"), ct.median("v * v"), ct.max("v"), window=ct.sliding("3s", "2s")
    ),
    ct.Query(
        "some", ct.quantiles("v", 0.25, 0.75), by="k", window=ct.tumbling("2s"), where="v > 9"
    ),
    ct.Query("most", ct.median("v"), ct.mode("v"), by="k", window=ct.tumbling("2s")),
]
FREQUENT = [
    ct.Query("top", ct.top_k("v", 3), ct.mode("v"), window=ct.sliding("4s", "1s")),
    ct.Query("keyed", ct.top_k("v", 2), ct.avg("v"), by="k", window=ct.tumbling("3s")),
    ct.Query("texts", ct.top_k("cast(v AS string)", 4), by="k", window=ct.sliding("3s", "2s")),
    ct.Query("beside", ct.mode("v * v"), ct.median("v"), window=ct.tumbling("2s"), where="v > 9"),
]
ASK = {"quantiles": "ask"}
ENOUGH = share(125, 20)


def drawn(dice: random.Random) -> list[ct.Query]:
    return dice.sample(QUANTILES + FREQUENT, dice.randint(1, 3))


def some_events(schedule: str, dice: random.Random, parents: Parents, seed: int) -> Any:
    """The events of each leaf in a schedule: few, of one count or another."""
    if schedule == "moved":
        leaves = [id for id in parents if id.startswith("l")]
        return {id: batches(seed * 100 + n, 60, 20, 3) for n, id in enumerate(leaves)}
    if schedule == "missing":
        return events_of(parents, seed, 100, 8)
    count = dice.choice([12, 60, 200]) if schedule == "one_schedule" else 60
    return events_of(parents, seed, count, 6)


TREES = AskingTrees(drawn, some_events, ASK)


def asked(world: World) -> int:
    """The number of the root's last question."""
    root = world.sites["root"].member
    assert root is not None and isinstance(root.machine, Root)
    return root.questions.number


def groups_of(world: World) -> list[GroupRanks]:
    """The groups that the root asks about."""
    root = world.sites["root"].member
    assert root is not None and isinstance(root.machine, Root) and root.machine.ranking is not None
    return [*root.machine.ranking.groups.values()]


@pytest.mark.parametrize("part", range(4))
def test_schedules_with_faults(part: int) -> None:
    assert sum(asked(TREES.one_schedule(seed)) for seed in seed_range(ENOUGH, part, 4))


@pytest.mark.parametrize("part", range(4))
def test_folders_and_processes_go_wrong(part: int) -> None:
    for seed in seed_range(share(500, 8), part, 4):
        TREES.gone_wrong(seed)


@pytest.mark.parametrize("part", range(4))
def test_nodes_that_are_missing(part: int) -> None:
    for seed in seed_range(share(500, 8), part, 4):
        TREES.missing(seed)


@pytest.mark.parametrize("seed", seed_range(share(2500, 1)))
def test_nodes_that_move(seed: int) -> None:
    TREES.moved(seed)


def numbers(values: list[float | None], start: int = 0) -> list[pa.Table]:
    """Events with these values, one every millisecond."""
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("v", pa.float64())])
    rows = [
        {"ts": start + 1000 * n, "k": "xy"[n % 2], "v": value} for n, value in enumerate(values)
    ]
    return [pa.Table.from_pylist(rows, schema)]


def skewed(dice: random.Random) -> dict[str, list[pa.Table]]:
    """Numbers of which few are frequent, and most are not; others at each node."""
    return {
        id: numbers([(int(dice.expovariate(0.05)) + 10 * n) / 7 for _ in range(900)])
        for n, id in enumerate("abc")
    }


STRANGE = [math.nan, math.inf, -math.inf, -0.0, 0.0, None, 5e-324, 1e308, -1e308, 1.5]
FLOATS = [
    ct.Query("p", ct.median("v"), ct.quantile_disc("v", 0.9), window=ct.tumbling("1s")),
    ct.Query("k", ct.median("v"), ct.min("v"), ct.count("v"), by="k", window=ct.tumbling("1s")),
]


TOPS = [
    ct.Query("p", ct.top_k("v", 3), ct.mode("v"), ct.count("v"), window=ct.tumbling("1s")),
    ct.Query("k", ct.top_k("v", 2), by="k", window=ct.tumbling("1s")),
]
KINDS = pytest.mark.parametrize("queries", [FLOATS, TOPS], ids=["quantiles", "frequent"])


@KINDS
@pytest.mark.parametrize(
    "choices", [STRANGE, [math.nan], [None], [7.0], [math.inf, -math.inf], [-0.0, 0.0]]
)
def test_strange_values(choices: list[float | None], queries: list[ct.Query]) -> None:
    dice = random.Random(7)
    events = {id: numbers(dice.choices(choices, k=300)) for id in "abc"}
    check(TREES.flat(events, queries).deliveries, events, queries)


@pytest.mark.parametrize(
    "choices", [["", "a", "\u00e9", "\U0001f600", "ab", "A", None], [None], ["x"]]
)
def test_strange_texts(choices: list[str | None]) -> None:
    """Also longer lists than there are values, and texts that are ordered by their characters."""
    dice = random.Random(7)
    queries = [
        ct.Query("t", ct.top_k("m", 3), ct.mode("m"), window=ct.tumbling("2s")),
        ct.Query("all", ct.top_k("m", 1000), by="k", window=ct.sliding("2s", "1s")),
    ]
    events = {
        id: [
            pa.Table.from_pylist(
                [{"ts": 9000 * n, "k": "x", "v": n, "m": dice.choice(choices)} for n in range(400)],
                SCHEMA,
            )
        ]
        for id in "abc"
    }
    world = TREES.flat(events, queries)
    check(world.deliveries, events, queries)
    assert bool(asked(world)) == (len(choices) > 1)


def test_texts_that_nobody_needs_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catchment.ranking.root._KEYS", 5)
    query = ct.Query("t", ct.top_k("concat(k, cast(v AS string))", 3), window=ct.tumbling("1s"))
    events = {id: batches(n, 500, 8, 40) for n, id in enumerate("abc")}
    world = TREES.flat(events, [query])
    check(world.deliveries, events, [query])
    (group,) = groups_of(world)
    assert len(group.texts) < 200 and asked(world)


def test_counts_of_other_values_climb() -> None:
    query = ct.Query("q", ct.top_k("v > 9", 2), ct.mode("v > 9"), window=ct.tumbling("2s"))
    events = {id: batches(n, 100, 8, 40) for n, id in enumerate("abc")}
    world = TREES.flat(events, [query])
    check(world.deliveries, events, [query])
    assert not asked(world)


def test_as_many_of_each_value_everywhere() -> None:
    """Nothing is left out of what may be among the first: all is asked for, and ties are right."""
    events = {
        id: numbers([float(value) for value in range(-150, 150)], n) for n, id in enumerate("abc")
    }
    world = TREES.flat(events, TOPS)
    check(world.deliveries, events, TOPS)
    assert asked(world)


def test_two_rounds_find_the_most_frequent_values() -> None:
    events = skewed(random.Random(5))
    world = TREES.flat(events, TOPS[:1])
    check(world.deliveries, events, TOPS[:1])
    (group,) = groups_of(world)
    assert group.next - 1 == 2


@KINDS
def test_all_values_in_one_node(queries: list[ct.Query]) -> None:
    dice = random.Random(3)
    events = {"a": numbers([dice.randrange(400) / 7 for _ in range(900)])}
    events |= {id: numbers([1e9] * 4) for id in "bc"}
    world = TREES.flat(events, queries)
    check(world.deliveries, events, queries)
    assert asked(world)


def test_a_value_in_doubt_everywhere_is_found_in_two_rounds() -> None:
    dice = random.Random(5)
    events = {id: numbers([dice.random() for _ in range(900)]) for id in "abc"}
    world = TREES.flat(events, FLOATS[:1])
    check(world.deliveries, events, FLOATS[:1])
    (group,) = groups_of(world)
    assert group.next - 1 == 2


@KINDS
@pytest.mark.parametrize("mode", ["auto", "send"])
def test_values_that_cost_less_than_questions_climb(mode: str, queries: list[ct.Query]) -> None:
    dice = random.Random(5)
    events = {id: numbers([dice.random() for _ in range(50)]) for id in "abc"}
    world = TREES.flat(events, queries, quantiles=mode)
    check(world.deliveries, events, queries)
    assert not asked(world)


@pytest.mark.parametrize(
    ("low", "high", "held"), [(1, 800, False), (200, 3, False), (100, 5, True)]
)
def test_counts_stay_where_that_costs_less(low: int, high: int, held: bool) -> None:
    """Not where values are few, or none is more frequent than others: all would be asked for."""
    values = [float(v) for v in range(high)] * low
    values += [v / 3 for v in range(400)] if held else []
    events = {id: numbers([*values]) for id in "abc"}
    world = TREES.flat(events, TOPS, quantiles="auto")
    check(world.deliveries, events, TOPS)
    assert any(group.held for group in groups_of(world)) == held


@pytest.mark.parametrize("queries", [QUANTILES, FREQUENT], ids=["quantiles", "frequent"])
def test_nodes_hold_so_much_and_no_more(
    queries: list[ct.Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catchment.ranking.leaf.HELD", 2000)
    events = {id: batches(n, 800, 8, 40) for n, id in enumerate("abc")}
    world = TREES.flat(events, queries)
    check(world.deliveries, events, queries)
    assert asked(world)


def changed(answer: ValueAnswer, change: Callable[[Any], Any]) -> ValueAnswer:
    """The same, of which each part is changed."""
    return msgspec.structs.replace(answer, columns=[change(part) for part in answer.columns])


def higher(answer: RunAnswer) -> RunAnswer:
    return msgspec.structs.replace(answer, values=answer.values + 1)


def fewer(answer: RunAnswer) -> RunAnswer:
    """The two ends only, whatever was asked for."""
    ends = np.cumsum(answer.sent)
    firsts, lasts = answer.values[ends - answer.sent], answer.values[ends - 1]
    both = np.stack([firsts, lasts], axis=1)
    keep = np.stack([np.ones(len(ends), bool), answer.sent > 1], axis=1)
    return msgspec.structs.replace(answer, sent=np.minimum(answer.sent, 2), values=both[keep])


def beyond(answer: RunAnswer) -> RunAnswer:
    """Places that its rows do not have."""
    far = 10**6
    return msgspec.structs.replace(answer, first=answer.first + far, last=answer.last + far)


def more_often(answer: CountAnswer) -> CountAnswer:
    return msgspec.structs.replace(answer, times=answer.times + 1)


def nothing_new(answer: CountAnswer) -> CountAnswer:
    """As if nothing were left to tell that is frequent."""
    empty = np.empty(0, np.int64)
    sent = np.zeros_like(answer.sent)
    return msgspec.structs.replace(answer, sent=sent, values=empty, times=empty, texts=[])


def no_answer(answer: CountAnswer) -> CountAnswer:
    """The same, and what is left is as frequent as before."""
    return msgspec.structs.replace(nothing_new(answer), rest=answer.rest + 10**6)


def other_values(answer: CountAnswer) -> CountAnswer:
    return msgspec.structs.replace(answer, values=answer.values + 10**6)


def other_kind(answer: CountAnswer) -> CountAnswer:
    """Texts in place of numbers."""
    sent, one = np.ones_like(answer.sent), np.zeros(len(answer.sent), np.int64)
    return msgspec.structs.replace(answer, sent=sent, values=one, times=one, texts=["x"])


@pytest.mark.parametrize(
    ("change", "queries"),
    [
        *((change, FLOATS) for change in (higher, fewer, beyond)),
        *(
            (change, TOPS)
            for change in (more_often, nothing_new, no_answer, other_values, other_kind)
        ),
    ],
)
def test_a_node_that_lies_is_set_aside(
    change: Callable[[Any], Any], queries: list[ct.Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = skewed(random.Random(5))

    def answer(name: str, question: RankQuestion, held: HeldGroup) -> ValueAnswer | None:
        honest = answered(name, question, held)
        return None if honest is None else changed(honest, change)

    monkeypatch.setattr("catchment.ranking.leaf.answered", answer)
    world = TREES.flat(events, queries)
    root = world.sites["root"].member
    assert root is not None and isinstance(root.machine, Root) and root.machine.ranking is not None
    assert root.machine.ranking.aside
    named = status(root, set()).not_asked
    assert named and named.keys() <= root.machine.charter.places.keys()
    rows = [row for query in queries for row in final(world.deliveries, query.name)]
    assert rows and not any(row["complete"] for row in rows)
    assert {name for row in rows for name in row["missing"].split(", ")} <= {"a", "b", "c"}


@KINDS
def test_answers_that_never_come(queries: list[ct.Query], monkeypatch: pytest.MonkeyPatch) -> None:
    events = skewed(random.Random(5))
    monkeypatch.setattr("catchment.ranking.leaf.answered", lambda *_: None)
    world = TREES.flat(events, queries, timeout=3 * 10**6)
    rows = [row for query in queries for row in final(world.deliveries, query.name)]
    assert rows and not any(row["complete"] for row in rows)
    assert {row["missing"] for row in rows} == {"a, b, c"}


@pytest.mark.parametrize(
    "first",
    [
        QUANTILES[1],
        ct.Query("one", ct.mode("v"), ct.avg("v"), by="k", window=ct.sliding("4s", "1s")),
    ],
    ids=["quantile", "mode"],
)
@pytest.mark.parametrize("seed", range(4))
def test_queries_come_and_go(seed: int, first: ct.Query) -> None:
    """Also those that need all values, or more of them, and join those that are asked for."""
    dice = random.Random(seed)
    events = {id: batches(n, 600, 30, 10) for n, id in enumerate("abc")}
    window = ct.sliding("4s", "1s")
    more = [
        ct.Query("mode", ct.mode("v"), by="k", window=window),
        ct.Query("top", ct.top_k("v * v", 3), ct.top_k("v", 2), by="k", window=window),
        ct.Query("more", ct.quantile("v", 0.3), ct.median("v * v"), by="k", window=window),
        ct.Query("long", ct.median("v"), by="k", window=ct.tumbling("6s")),
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
    world.after(16 * 10**5, lambda: change([first, chosen[1]]))
    ended(world, seed)
    check(world.deliveries, events, [first])
    rows = [row for tables in events.values() for table in tables for row in table.to_pylist()]
    for query in chosen:
        wanted = {(row["k"], row["window_start"]): row for row in oracle([query], rows)[query.name]}
        for row in final(world.deliveries, query.name):
            right = wanted[row["k"], row["window_start"]]
            assert row["complete"] and {name: row[name] for name in right} == right


@pytest.mark.parametrize(("engine", "asks"), [("embedded", "auto"), ("spark", "send")])
def test_a_root_on_spark_does_not_ask(engine: str, asks: str) -> None:
    query = {"name": "q", "select": ["median(v)"], "window": "tumbling(1s)"}
    source = {"type": "generator", "rate": 10}
    nodes = [
        {"id": "root", "listen": "127.0.0.1:7400"},
        {"id": "a", "parent": "root", "source": source},
    ]
    job = ct.load_job({"queries": [query], "nodes": nodes})
    assert founded(job, engine).settings.quantiles == asks


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"size": np.array([1 << 40])}, "does not hold so many"),
        ({"size": np.array([1])}, "are told, or all"),
        ({"values": np.array([2, 1])}, "rise, and are as many"),
        ({"sent": np.array([3])}, "rise, and are as many"),
        ({"sent": np.array([2, 2])}, "one entry in each column"),
    ],
)
def test_summaries_that_cannot_be_are_refused(change: dict[str, Any], why: str) -> None:
    right: dict[str, Any] = {"field": "sort(v).run", "size": np.array([9])}
    right |= {"sent": np.array([2]), "values": np.array([1, 2])}
    wire.load(RunSummary, wire.dump(RunSummary(**right)))
    with pytest.raises(ValueError, match=why):
        RunSummary(**(right | change))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"size": np.array([1 << 40])}, "does not hold so many"),
        ({"size": np.array([1])}, "as many values are told as there are"),
        ({"values": np.array([1, 1])}, "rise, and are as many"),
        ({"sent": np.array([3])}, "rise, and are as many"),
        ({"rest": np.array([0])}, "that are not told occur"),
        ({"total": np.array([8])}, "each value of a row occurs"),
        ({"times": np.array([4, 0])}, "each value of a row occurs"),
        ({"times": np.array([4])}, "one entry in each column"),
        ({"texts": ["a", "b"], "values": np.array([1, 2])}, "texts are as many"),
        ({"texts": ["b", "a"], "values": np.array([0, 1])}, "texts are told in order"),
    ],
)
def test_counts_that_cannot_be_are_refused(change: dict[str, Any], why: str) -> None:
    right: dict[str, Any] = {"field": "counts(v)", "size": np.array([9]), "total": np.array([20])}
    right |= {"rest": np.array([3]), "sent": np.array([2]), "values": np.array([1, 2])}
    right |= {"times": np.array([4, 5]), "texts": []}
    wire.load(CountSummary, wire.dump(CountSummary(**right)))
    with pytest.raises(ValueError, match=why):
        CountSummary(**(right | change))


def test_a_summary_of_another_kind_sets_a_node_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers where the plan has texts: the root goes on without the node, and says so."""
    query = ct.Query("t", ct.top_k("cast(v AS string)", 3), window=ct.tumbling("2s"))
    events = {id: batches(n, 300, 8, 40) for n, id in enumerate("abc")}
    honest = CountedColumn.summary

    def summary(self: CountedColumn, table: pa.Table, searches: int) -> CountSummary:
        return msgspec.structs.replace(honest(self, table, searches), texts=[])

    monkeypatch.setattr(CountedColumn, "summary", summary)
    world = TREES.flat(events, [query])
    rows = final(world.deliveries, query.name)
    assert rows and {row["missing"] for row in rows} == {"a, b, c"}


def test_rows_of_a_summary_are_as_many_in_each_column() -> None:
    one = np.array([0])
    run = RunSummary("sort(v).run", one + 2, one + 2, np.array([1, 2]))
    right: dict[str, Any] = {"group": "g", "first": 0, "start": one, "end": one + 5}
    right |= {"selection": one, "keys": b"", "columns": [run]}
    wire.load(Summary, wire.dump(Summary(**right)))
    with pytest.raises(ValueError, match="one entry in each column"):
        Summary(**(right | {"end": np.array([1, 2])}))


def test_rows_have_the_same_numbers_after_a_restart() -> None:
    """Rows of a group that has left are met again in the log, and had numbers as well."""
    queries = [
        ct.Query("a", ct.median("v"), by="k", window=ct.tumbling("10s")),
        ct.Query("b", ct.median("v"), window=ct.tumbling("10s")),
    ]
    made = charter({"root": None, "n": "root"}, queries, quantiles="ask").with_schema(SCHEMA)
    later = made.with_queries(queries[1:])
    disk = MemoryDisk()
    merger = made.bound(made.plan).merger(stream="n")
    log = RankLog(made.ranked_groups(made.plan), 1, merger, disk, None, True)
    for sliced in merger.bound.slicer("n", encoder=merger.encoder).slice(batches(1, 50, 9, 50)[0]):
        merger.add(sliced)
    log.hold(merger.release(10_000_000), 10_000_000, False)
    log.notes()
    log.write()
    merger.follow(later.bound(later.plan), later.plans[later.plan].lineage)
    log.switch(later.ranked_groups(later.plan))
    log.write()
    again = later.bound(later.plan).merger(stream="n")
    groups = later.ranked_groups(later.plan)
    restarted = RankLog(groups, 1, again, disk, log.written, True)
    assert numbers_in(log) == numbers_in(restarted) != {"b": []}


def numbers_in(log: RankLog) -> dict[str, list[int]]:
    """The numbers of the rows that are held, by group."""
    return {
        name: [row.number for rows in held.rows.values() for row in rows]
        for name, held in log.leaf.held.items()
    }
