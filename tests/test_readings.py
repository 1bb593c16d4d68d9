"""User-defined windows over many streams: what each reading means, and what climbs for it."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import catchment as ct
from catchment.engine.merger import Merger
from catchment.engine.partials import are_events
from catchment.engine.slicer import Slicer
from catchment.errors import QueryError
from catchment.job import load_job
from catchment.job.window import read_window
from catchment.planner.edges import LATEST
from catchment.simulate import World
from catchment.simulate.memory import EventsInMemory, MemoryDisk
from catchment.testing.compare import assert_same, rows_of
from catchment.tree.charter import Charter, NodePlace
from catchment.tree.member import Member
from catchment.tree.message import decode, heard
from trees import GRANTED, READ, SCHEMA, batches, charter, check, final

SECOND = 1_000_000
ONE: dict[str, str | None] = {"root": None, "a": "root"}
TWO: dict[str, str | None] = {"root": None, "a": "root", "b": "root"}
DEEP: dict[str, str | None] = {"root": None, "m": "root", "a": "m", "b": "m", "c": "root"}


def events(text: str) -> list[pa.Table]:
    """A stream drawn as text: a character a second, `(` and `)` mark, `.` is any event."""
    marks = {"(": "on", ")": "off", ".": None}
    rows = [
        {"ts": at * SECOND, "k": "x", "v": at, "m": marks[what]}
        for at, what in enumerate(text)
        if what != " "
    ]
    return [pa.Table.from_pylist([row], SCHEMA) for row in rows]


def results(query: ct.Query, **streams: str) -> list[tuple[Any, ...]]:
    """Start, end and events of each window, in seconds, of a tree with a node for each stream."""
    parents: dict[str, str | None] = {"root": None} | dict.fromkeys(streams, "root")
    given = {id: events(text) for id, text in streams.items()}
    world = World(charter(parents, [query]), given, until=0)
    world.run()
    assert world.done
    check(world.deliveries, given, [query])
    rows = final(world.deliveries, query.name)
    named = [(row["node"],) if "node" in row else () for row in rows]
    return sorted(
        (*name, row["window_start"] // SECOND, row["window_end"] // SECOND, row["n"])
        for name, row in zip(named, rows, strict=True)
    )


def between(reading: str) -> ct.Query:
    window = ct.between("m = 'on'", "m = 'off'", reading=reading)
    return ct.Query("q", ct.count().alias("n"), window=window)


def cut(reading: str) -> ct.Query:
    return ct.Query("q", ct.count().alias("n"), window=ct.cut("m = 'on'", reading=reading))


#                         0         1
#                         0123456789012345
ONE_STREAM, OTHER_STREAM = "(..) (..)  (.)", " (.)   (.....)"


def test_local_windows_are_each_nodes_own() -> None:
    found = results(between("local"), a=ONE_STREAM, b=OTHER_STREAM)
    assert found == [
        ("a", 0, 3, 4),
        ("a", 5, 8, 4),
        ("a", 11, 13, 3),
        ("b", 1, 3, 3),
        ("b", 7, 13, 7),
    ]


def test_windows_of_equal_bounds_are_one_when_aligned() -> None:
    found = results(between("aligned"), a="(..) (.)", b="(..)  (.)", c="( .)")
    assert found == [(0, 3, 11), (5, 7, 3), (6, 8, 3)]


def test_windows_go_by_their_number_when_ordered() -> None:
    found = results(between("ordered"), a=ONE_STREAM, b=OTHER_STREAM)
    assert found == [(0, 3, 7), (5, 13, 11), (11, 13, 3)]


def test_windows_that_overlap_are_one_by_gaps() -> None:
    found = results(between("gaps"), a=ONE_STREAM, b=OTHER_STREAM)
    assert found == [(0, 3, 7), (5, 13, 14)]


def test_windows_that_touch_are_one_by_gaps() -> None:
    assert results(between("gaps"), a="(..)", b="   (..)") == [(0, 6, 8)]
    assert results(between("gaps"), a="(..)", b="    (..)") == [(0, 3, 4), (4, 7, 4)]


def test_a_cut_ends_the_window_of_its_own_stream() -> None:
    streams = {"a": "..(..(..", "b": "...(...."}
    assert results(cut("local"), **streams) == [
        ("a", 0, 2, 2),
        ("a", 2, 5, 3),
        ("b", 0, 3, 3),
    ]
    assert results(cut("global"), **streams) == [(0, 2, 4), (2, 3, 3), (3, 5, 3)]
    assert results(cut("ordered"), **streams) == [(0, 3, 5), (2, 5, 3)]


def test_an_ordered_window_waits_for_every_stream_that_goes_on() -> None:
    """The stream of `b` is silent about windows: nothing is known to be complete until it ends."""
    given = {"a": events("().()."), "b": events("......")}
    world = World(charter(TWO, [between("ordered")]), given, until=0)
    world.run()
    assert world.done
    last = max(world.deliveries)
    assert [n for n in world.deliveries if world.deliveries[n].results] == [last]
    check(world.deliveries, given, [between("ordered")])


def test_a_stream_that_has_ended_is_not_waited_for() -> None:
    """`b` has ended without a window; the windows of `a` go out while `a` goes on."""
    given = {"a": events("()." * 15), "b": events("..")}
    for reading in ("ordered", "gaps"):
        for parents in (TWO, {"root": None, "m": "root", "a": "m", "b": "m"}):
            world = World(charter(parents, [between(reading)]), given, until=0)
            world.run()
            assert world.done and len(world.deliveries) > 3
            check(world.deliveries, given, [between(reading)])


SHARING = [
    ct.Query("fixed", ct.avg("v"), by="k", window=ct.tumbling("2s")),
    ct.Query("visits", ct.sum("v"), by="k", window=ct.session("700ms")),
    *(query for query in READ if query.by == ("k",)),
]


def climbing(queries: list[ct.Query]) -> tuple[list[dict[int, pa.Table]], Any]:
    """The partials of every message that a node which reads sends up, and the plan."""
    made = charter(ONE, queries).with_schema(SCHEMA)
    member = Member(
        "a", MemoryDisk(), 5, parent="root", source=lambda: EventsInMemory.of(batches(1))
    )
    member.adopt(made, 5)
    member.heard(GRANTED, 5)
    while member.step(5):
        pass
    return [decode(body, made)[1] for _, body in map(heard, member.outgoing(5))], made.plans[0].plan


def test_no_event_climbs_and_windows_that_each_node_cuts_share_their_slices() -> None:
    sent, plan = climbing(SHARING)
    ahead, *cut_here = plan.groups
    assert (ahead.slicing, len(ahead.windows)) == ("arrival", 2)
    assert {group.slicing for group in cut_here} == {"stream"}
    group = cut_here[0]  # the others hold sorted values
    tables = [partials.groups[group.id] for partials in sent if group.id in partials.groups]
    assert tables and len(group.windows) > 2
    assert not any(are_events(table) for partials in sent for table in partials.tables)
    # Cut once for all: fewer slices than events, though there are two marks in four events.
    slices = sum(table.num_rows for table in tables)
    ends = sum(
        sum(v > 0 for v in table.column(name).to_pylist())
        for table in tables
        for name in table.schema.names
        if name.startswith("#closed")
    )
    read = sum(table.num_rows for table in batches(1))
    assert 0 < slices - ends <= read
    assert "with the windows they are in" in plan.explain()


def test_events_of_the_default_reading_do_climb() -> None:
    sent, plan = climbing([between("global")])
    assert plan.groups[0].slicing == "settled"
    assert any(are_events(table) for partials in sent for table in partials.tables)


def test_what_needs_one_order_does_not_share_with_what_each_node_cuts() -> None:
    plain = ct.Query("plain", ct.count(), by="k", window=ct.cut("m = 'on'"))
    plan = ct.plan([*SHARING, plain])
    alone = plan.groups[plan.names["plain"][0]]
    assert (alone.slicing, len(alone.answers)) == ("settled", 1)


def test_a_relay_merges_slices_that_are_in_no_window() -> None:
    """Without marks nothing says whose a slice is, and those of many nodes become one."""
    quiet = {id: events("." * 20) for id in "ab"}
    queries = [SHARING[0], READ[1]]
    parents: dict[str, str | None] = {"root": None, "m": "root", "a": "m", "b": "m"}
    world = World(charter(parents, queries), quiet, until=0)
    world.run()
    check(world.deliveries, quiet, queries)
    partials = world.sites["root"].member.machine.assembler.states[0].partials  # type: ignore[union-attr]
    assert partials == 10


@pytest.mark.slow
@pytest.mark.parametrize("there", [0, 2])
def test_a_query_with_a_reading_comes_while_the_tree_runs(there: int) -> None:
    """Alone, or into a group whose streams are cut at marks already."""
    given = {id: batches(n, 240, 60, 4) for n, id in enumerate("abc")}
    first = [SHARING[0], *READ[:there]]
    world = World(charter(DEEP, first), given, until=0)

    def change() -> None:
        root = world.sites["root"].member
        assert root is not None and root.charter is not None
        root.adopt(root.charter.with_queries([SHARING[0], *READ]), world.now)

    world.after(SECOND, change)
    world.run()
    assert world.done
    check(world.deliveries, given, first)
    every = [
        row | {"#stream": id}
        for id, tables in given.items()
        for table in tables
        for row in table.to_pylist()
    ]
    for query in READ[there:]:
        rows = [trimmed(row) for row in final(world.deliveries, query.name)]
        true = [trimmed(row) for row in ct.testing.oracle([query], every)[query.name]]
        assert rows
        if query.window.reading != "ordered":  # type: ignore[attr-defined]
            assert all(row in true for row in rows), query.name
        if query.name == "mine":  # from the first that a node has seen begin, none is missed
            for id in "abc":
                mine = [row for row in rows if (row["node"], row["k"]) == (id, "a")]
                since = min(row["window_start"] for row in mine)
                same = [row for row in true if (row["node"], row["k"]) == (id, "a")]
                assert len(mine) == sum(row["window_start"] >= since for row in same)


def trimmed(row: dict[str, Any]) -> dict[str, Any]:
    return {n: v for n, v in row.items() if n not in ("complete", "missing")}


@pytest.mark.slow
def test_a_query_leaves_and_the_others_go_on() -> None:
    given = {id: batches(n, 120, 30, 4) for n, id in enumerate("abc")}
    world = World(charter(DEEP, [*SHARING, READ[3]]), given, until=0)
    left = [SHARING[1], SHARING[-1], READ[3]]

    def change() -> None:
        root = world.sites["root"].member
        assert root is not None and root.charter is not None
        root.adopt(root.charter.with_queries(left), world.now)

    world.after(1.5 * SECOND, change)
    world.run()
    assert world.done
    check(world.deliveries, given, left)


def feed(slicer: Slicer, merger: Merger, events: pa.Table, arrival: int) -> None:
    for sliced in slicer.slice(events, arrival=arrival):
        merger.add(sliced)


def restarted(merger: Merger, made: Charter) -> Merger:
    """As a node goes on after a crash: from what it wrote down."""
    return made.bound(1).merger(stream=merger.stream, state=merger.save())


@pytest.mark.parametrize("reading", ["local", "aligned", "gaps"])
def test_a_query_that_joins_a_group_knows_not_what_was_open(reading: str) -> None:
    """The second `(` is inside a window that began before the query did: it opens none."""
    window = ct.between("m = 'on'", "m = 'off'", reading=reading)
    late = ct.Query("late", ct.count().alias("n"), window=window)
    there = ct.Query("there", ct.count(), window=ct.cut("v % 4 = 0", reading="local"))
    made = charter(ONE, [there]).with_schema(SCHEMA).with_queries([there, late])
    tables = events(".(..(.)..(..).")
    bound = made.bound(0)
    slicer, merger, assembler = bound.slicer("a"), bound.merger(stream="a"), bound.assembler()
    for part, upto in ((tables[:3], 3), (tables[3:], 100)):
        if upto == 100:
            slicer.follow(made.bound(1))
            merger.follow(made.bound(1), made.plans[1].lineage)
            assembler.follow(made.bound(1), made.plans[1].lineage)
            merger = restarted(merger, made)
        feed(slicer, merger, pa.concat_tables(part), 0 if upto == 3 else 3)
        assembler.absorb(merger.release(upto * SECOND), merger.newest)
    rows = rows_of(assembler.close()["late"])
    found = [(row["window_start"] // SECOND, row["n"]) for row in rows]
    assert found == [(9, 4)]


def test_slices_cut_by_an_older_plan_serve_a_newer_one() -> None:
    first = charter(ONE, SHARING).with_schema(SCHEMA)
    left = [SHARING[-1], SHARING[0]]
    made = first.with_queries(left)
    given = {"a": batches(5)}
    bound = made.bound(0)
    slicer, merger, later = bound.slicer("a"), bound.merger(stream="a"), bound.merger()
    feed(slicer, merger, pa.concat_tables(given["a"]), 0)
    later.absorb(merger.take())
    later.follow(made.bound(1), made.plans[1].lineage)
    assembler = made.bound(1).assembler()
    assembler.absorb(later.take())
    out = assembler.close()
    rows = [row | {"#stream": "a"} for row in pa.concat_tables(given["a"]).to_pylist()]
    for name, true in ct.testing.oracle(left, rows).items():
        assert_same(true, out[name], name)


def test_a_node_that_leaves_is_not_waited_for() -> None:
    given = {"a": events("()." * 20), "b": events("()." * 20)}
    world = World(charter(TWO, [between("ordered")], timeout=None), given, until=0)
    world.sites["b"].down_until = 1 << 60  # it never comes
    world.sites["b"].member = None

    def leave() -> None:
        root = world.sites["root"].member
        assert root is not None and root.charter is not None
        root.adopt(root.charter.without("b").with_place(NodePlace("c", 7, "root", True)), world.now)
        world.join("c", "root", events("()."))

    world.after(SECOND, leave)
    world.run()
    assert world.done
    check(world.deliveries, {"a": given["a"], "c": events("().")}, [between("ordered")])


def test_events_out_of_order_within_the_lateness() -> None:
    """A mark that comes late, but not too late, must not find its slice cut already."""
    dice = random.Random(4)
    given = {}
    for n, id in enumerate("abc"):
        rows = [row for table in batches(n, 150) for row in table.to_pylist()]
        rows.sort(key=lambda row: row["ts"].timestamp() + dice.random() * 2)
        given[id] = [pa.Table.from_pylist(rows[at : at + 5], SCHEMA) for at in range(0, 150, 5)]
    queries = [*SHARING, READ[3]]
    world = World(charter(DEEP, queries, lateness=2 * SECOND), given, until=0)
    world.run()
    assert world.done
    check(world.deliveries, given, queries)


def test_an_idle_node_does_not_cut_what_may_still_get_a_mark() -> None:
    made = charter(ONE, [between("local")]).with_schema(SCHEMA)
    bound = made.bound(0)
    slicer, merger = bound.slicer("a"), bound.merger(stream="a")
    rows = [table.to_pylist()[0] for table in events("(.......).")]
    feed(slicer, merger, pa.Table.from_pylist(rows[:5] + rows[6:], SCHEMA), 0)
    early = merger.release(LATEST, settles=5 * SECOND).groups[0]
    assert sum(early.column("count(*).count").to_pylist()) == 5
    rows[5]["m"] = "off"
    feed(slicer, merger, pa.Table.from_pylist(rows[5:6], SCHEMA), 9)
    rest = merger.release(LATEST, settles=20 * SECOND).groups[0]
    assert [end for end in rest.column("#closed 0").to_pylist() if end > 0] == [5 * SECOND]


@pytest.mark.parametrize("query", READ, ids=lambda query: query.name)
def test_what_a_dead_node_brings_too_late(query: ct.Query) -> None:
    """Each window comes once, whatever was given up waiting for."""
    given = {"a": batches(1, 100), "b": batches(2, 100)}
    world = World(charter(TWO, [query, SHARING[0]], timeout=SECOND), given, until=0)
    world.after(0.6 * SECOND, lambda: world.crash("a", 8))
    world.calm = 12 * SECOND
    world.run()
    assert world.done
    rows = final(world.deliveries, query.name)  # asserts that each is there once
    assert rows and any(not row["complete"] for row in final(world.deliveries, "fixed"))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: ct.cut("m", reading="lokal"),
            "no such reading of a user-defined window (given: 'lokal'); did you mean 'local'?",
        ),
        (
            lambda: ct.sql(
                "SELECT count(*) FROM e GROUP BY event_window(at => m, reading => 'lokal')",
                name="q",
            ),
            "no such reading of a user-defined window (given: 'lokal'); did you mean 'local'?",
        ),
        (
            lambda: load_job(
                {
                    "queries": [
                        {
                            "name": "q",
                            "select": ["count(*)"],
                            "window": {"cut": {"at": "m", "reading": "lokal"}},
                        },
                    ]
                }
            ).build(),
            "no such reading of a user-defined window (given: 'lokal'); did you mean 'local'?",
        ),
        (lambda: ct.cut("m", reading="gaps"), "follow each other without a gap"),
        (
            lambda: ct.Query("q", ct.count(), window=ct.cut("m", reading="local"), distinct_on="k"),
            "repeats are found where all events meet",
        ),
        (
            lambda: ct.Query(
                "q", ct.count(), window=ct.cut("m", reading="local"), measure="processing"
            ),
            "windows cut on each node are in event time",
        ),
        (
            lambda: ct.Query("q", ct.count(), window=ct.cut("m", reading="local"), by="node"),
            "a key column may not be called 'node'",
        ),
        (
            lambda: ct.Engine([between("gaps")], late="update"),
            "cannot be corrected by late events (given: reading='gaps' with late='update')",
        ),
        (lambda: charter(ONE, READ, late="update"), "cannot be corrected by late events"),
    ],
)
def test_what_is_refused(make: Any, text: str) -> None:
    with pytest.raises(QueryError) as caught:
        make()
    assert text in str(caught.value)


def test_a_reading_in_every_front_end() -> None:
    python = ct.between("v > 1", "v < 0", reading="gaps")
    sql = ct.sql(
        "SELECT count(*) FROM events GROUP BY "
        "event_window(start => v > 1, end => v < 0, reading => 'gaps')",
        name="q",
    )
    assert sql.window == python
    assert read_window("between(v > 1, v < 0, reading=gaps)", "queries.0.window") == python
    whole = {"between": {"start": "v > 1", "end": "v < 0", "reading": "gaps"}}
    assert read_window(whole, "queries.0.window") == python


def test_an_engine_alone_is_one_stream() -> None:
    table = pa.concat_tables(events(ONE_STREAM))
    engine = ct.Engine([between("local")])
    engine.push(table)
    rows = rows_of(engine.close()["q"])
    assert {row["node"] for row in rows} == {"0"} and len(rows) == 3
