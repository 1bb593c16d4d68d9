"""Trees of nodes for tests: charters, events of many nodes, and what a sink ends up with."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

import catchment as ct
from catchment.model.query import Query
from catchment.sinks.base import Delivery
from catchment.testing.compare import assert_same, rows_of
from catchment.testing.oracle import STREAM, oracle
from catchment.tree.charter import Charter, NodePlace
from catchment.tree.settings import TreeSettings
from catchment.tree.words import Reply

SECOND = 1_000_000
GRANTED = Reply(life=1)
"""What a parent answers to the first hello of a node, in short."""
SCHEMA = pa.schema(
    [("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("v", pa.int64()), ("m", pa.string())]
)

QUERIES = [
    ct.Query("avg", ct.avg("v"), ct.count(), by="k", window=ct.tumbling("2s")),
    ct.Query("slide", ct.sum("v"), ct.max("v"), by="k", window=ct.sliding("5s", "1s")),
    ct.Query("all", ct.median("v"), ct.count_distinct("v"), window=ct.tumbling("3s")),
    ct.Query("visits", ct.count(), ct.min("v"), by="k", window=ct.session("700ms")),
    ct.Query(
        "trips", ct.sum("v"), ct.first("v"), by="k", window=ct.between("m = 'on'", "m = 'off'")
    ),
    ct.Query("tens", ct.avg("v"), ct.last("v"), window=ct.count_tumbling(10)),
    ct.Query("fives", ct.sum("v"), by="k", window=ct.count_sliding(5, 2)),
]


READ = [
    ct.Query(
        "mine", ct.sum("v"), ct.first("v"), by="k", window=ct.cut("m = 'on'", reading="local")
    ),
    ct.Query(
        "equal",
        ct.avg("v"),
        ct.count(),
        by="k",
        window=ct.between("m = 'on'", "m = 'off'", reading="aligned"),
    ),
    ct.Query(
        "stages", ct.sum("v"), ct.max("v"), by="k", window=ct.cut("m = 'off'", reading="ordered")
    ),
    ct.Query(
        "turns",
        ct.count(),
        ct.last("v"),
        window=ct.between("m = 'on'", "m = 'off'", reading="ordered"),
    ),
    ct.Query(
        "busy",
        ct.median("v"),
        ct.count(),
        by="k",
        window=ct.between("m = 'on'", "m = 'off'", reading="gaps"),
    ),
]
"""User-defined windows that each node has for itself, in every reading."""

BY_NODE = [
    ct.Query("own", ct.sum("v"), ct.median("v"), by="k", window=ct.tumbling("2s", reading="local")),
    ct.Query("calls", ct.count(), ct.min("v"), window=ct.session("700ms", reading="local")),
]
"""Windows of which the node is one more key."""

READ_OTHERS = [
    *BY_NODE,
    ct.Query(
        "rounds", ct.count(), ct.max("v"), by="k", window=ct.session("700ms", reading="ordered")
    ),
    ct.Query(
        "sevens", ct.avg("v"), ct.last("v"), by="k", window=ct.count_tumbling(7, reading="local")
    ),
    ct.Query("fours", ct.sum("v"), window=ct.count_sliding(4, 3, reading="ordered")),
    ct.Query(
        "short", ct.count(), by="k", window=ct.session("1s", max_length="2s", reading="aligned")
    ),
    ct.Query(
        "first_end",
        ct.sum("v"),
        ct.count(),
        by="k",
        window=ct.between("m = 'on'", "m = 'off'", reading="any"),
    ),
]
"""Windows of the other types that each node has for itself, and those that any end closes."""
EVERY_READING = [*READ, *READ_OTHERS]


def charter(
    parents: Mapping[str, str | None], queries: Iterable[Query] = QUERIES, **settings: Any
) -> Charter:
    """A charter for nodes and their parents; nodes without children read events."""
    places = {
        id: NodePlace(id, number, parent, id not in parents.values())
        for number, (id, parent) in enumerate(parents.items())
    }
    return Charter("job", 1, TreeSettings(**settings), places).with_queries(queries)


def batches(seed: int, count: int = 200, spread: int = 20, size: int = 12) -> list[pa.Table]:
    """Events of one node in order of time, in batches of different sizes."""
    dice = random.Random(seed)
    times = sorted(dice.randrange(spread * SECOND) for _ in range(count))
    rows = [
        {
            "ts": t // 1000 * 1000,
            "k": dice.choice("abc"),
            "v": dice.randrange(-9, 99),
            "m": dice.choice(["on", "off", None, None]),
        }
        for t in times
    ]
    tables = []
    while rows:
        part = dice.randint(1, size)
        tables.append(pa.Table.from_pylist(rows[:part], SCHEMA))
        rows = rows[part:]
    return tables or [SCHEMA.empty_table()]


def final(deliveries: Mapping[int, Delivery], name: str, once: bool = True) -> list[dict[str, Any]]:
    """The last word on every window, as a sink that upserts would hold it.

    A root that has lost messages may say a window again; otherwise each comes `once`.
    """
    held: dict[Any, dict[str, Any]] = {}
    for number in sorted(deliveries):
        delivery = deliveries[number]
        if name not in delivery.results:
            continue
        for row in rows_of(delivery.results[name]):
            bounds = ("window_start", "window_end", "window_index")
            identity = tuple(row.get(c) for c in (*delivery.keys[name], *bounds))
            revision = row.pop("revision", 0)
            known = held.get(identity)
            assert not once or known is None or revision > known["#"], f"{name}: {identity} twice"
            held[identity] = row | {"#": revision}
    rows = [row for row in held.values() if not row.pop("retracted", False)]
    return [{n: value for n, value in row.items() if n != "#"} for row in rows]


def rows_with_streams(events: Mapping[str, list[pa.Table]]) -> list[dict[str, Any]]:
    """All events as rows, which say whose they are."""
    return [
        row | {STREAM: id}
        for id, tables in events.items()
        for table in tables
        for row in table.to_pylist()
    ]


def check(
    deliveries: Mapping[int, Delivery],
    events: Mapping[str, list[pa.Table]],
    queries: Iterable[Query] = QUERIES,
) -> None:
    """Each window is there once, equal to brute force over all events, and nobody is missing."""
    rows = rows_with_streams(events)
    for query in queries:
        wanted = oracle([query], rows)[query.name]
        got = final(deliveries, query.name)
        for row in got:
            assert row.pop("complete") is True and row.pop("missing") is None, (query.name, row)
        table = pa.Table.from_pylist(got) if got else pa.table({})
        assert_same(wanted, table, query.name, keys=query.keys)


def check_marked(
    deliveries: Mapping[int, Delivery],
    events: Mapping[str, list[pa.Table]],
    queries: Iterable[Query],
) -> None:
    """Each window that is said to be complete is equal to brute force; others may be anything."""
    rows = rows_with_streams(events)
    for query in queries:
        wanted = oracle([query], rows)[query.name]
        for row in final(deliveries, query.name, once=False):
            if row.pop("complete"):
                del row["missing"]
                assert row in wanted, (query.name, row)
