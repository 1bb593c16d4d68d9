"""Windows over many streams: what each reading means, and what climbs for it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import catchment as ct
from catchment.engine.merger import Merger
from catchment.engine.partials import are_events
from catchment.engine.slicer import Slicer
from catchment.errors import QueryError
from catchment.flush import read
from catchment.job import load_job
from catchment.job.window import read_window
from catchment.planner.edges import LATEST
from catchment.simulate import World
from catchment.simulate.memory import EventsInMemory, MemoryDisk
from catchment.testing.compare import assert_same, rows_of
from catchment.tree.charter import Charter, NodePlace
from catchment.tree.member import GRACE, Member
from catchment.tree.message import decode, heard
from trees import (
    BY_NODE,
    EVERY_READING,
    GRANTED,
    READ,
    READ_OTHERS,
    SCHEMA,
    batches,
    charter,
    check,
    final,
)

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


def counting(window: Any) -> ct.Query:
    return ct.Query("q", ct.count().alias("n"), window=window)


def test_local_windows_of_every_type() -> None:
    """Each node has its own, as if there were no other."""
    streams = {"a": ONE_STREAM, "b": OTHER_STREAM}
    assert results(counting(ct.tumbling("8s", reading="local")), **streams) == [
        ("a", 0, 8, 7),
        ("a", 8, 16, 4),
        ("b", 0, 8, 4),
        ("b", 8, 16, 6),
    ]
    assert results(counting(ct.fixed(2 * SECOND, 9 * SECOND, reading="local")), **streams) == [
        ("a", 2, 9, 6),
        ("b", 2, 9, 4),
    ]
    assert results(counting(ct.session("1s", reading="local")), **streams) == [
        ("a", 0, 4, 4),
        ("a", 5, 9, 4),
        ("a", 11, 14, 3),
        ("b", 1, 4, 3),
        ("b", 7, 14, 7),
    ]
    assert results(counting(ct.count_sliding(4, 5, reading="local")), **streams) == [
        ("a", 0, 3, 4),
        ("a", 6, 11, 4),
        ("b", 1, 7, 4),
        ("b", 9, 12, 4),
    ]


def test_sessions_and_counts_go_by_their_number_when_ordered() -> None:
    streams = {"a": ONE_STREAM, "b": OTHER_STREAM}
    sessions = results(counting(ct.session("1s", reading="ordered")), **streams)
    assert sessions == [(0, 4, 7), (5, 14, 11), (11, 14, 3)]
    counts = results(counting(ct.count_tumbling(3, reading="ordered")), **streams)
    assert counts == [(0, 3, 6), (3, 9, 6), (7, 12, 6)]


def test_sessions_and_counts_of_equal_bounds_are_one_when_aligned() -> None:
    streams = {"a": "... ...", "b": "... ....", "c": ". ."}
    sessions = results(counting(ct.session("1s", reading="aligned")), **streams)
    assert sessions == [(0, 1, 1), (0, 3, 6), (2, 3, 1), (4, 7, 3), (4, 8, 4)]
    counts = results(counting(ct.count_tumbling(3, reading="aligned")), **streams)
    assert counts == [(0, 2, 6), (4, 6, 6)]


def test_any_end_closes_the_window_of_all_streams() -> None:
    """A stream takes part from where it has begun the window itself.

    a   ( . .         ( . . )
    b     . ( )   .     . .         that at 1 is before it begins, that at 3 ends it for both
    c           )                   closes what nobody has begun
    """
    streams = {"a": "(..   (..)", "b": " .() .  ..", "c": "     )"}
    assert results(between("any"), **streams) == [(0, 3, 5), (6, 9, 4)]
    assert results(between("global"), **streams) == [(0, 3, 6), (6, 9, 5)]


def test_the_end_belongs_to_the_window_whosever_it_is() -> None:
    assert results(between("any"), a="(..", b="  .)") == [(0, 3, 4)]


def test_of_marks_at_one_instant_the_order_of_nodes_decides() -> None:
    """The end of `a` comes before the beginning of `b`, and that of `b` before the end of `c`."""
    assert results(between("any"), a="(.)", b=" .(.", c=" .)") == [(0, 2, 3), (2, 2, 2)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ct.session("1s", reading="gaps"), ct.session("1s")),
        (ct.tumbling("1s", reading="aligned"), ct.tumbling("1s")),
        (ct.cut("m = 'on'", reading="any"), ct.cut("m = 'on'")),
    ],
)
def test_readings_that_are_the_global_one(one: Any, other: Any) -> None:
    assert one == other
    assert one.reading == "global"


def test_whole_windows_climb_of_counts_and_ordered_sessions() -> None:
    """No node sends an event, or asks where an edge is."""
    queries = [
        ct.Query("sevens", ct.sum("v"), by="k", window=ct.count_tumbling(7, reading="local")),
        ct.Query("rounds", ct.sum("v"), by="k", window=ct.session("700ms", reading="ordered")),
    ]
    sent, plan = climbing(queries)
    assert [group.slicing for group in plan.groups] == ["stream", "stream"]
    assert "send each once it has ended" in plan.explain()
    assert not any(are_events(table) for partials in sent for table in partials.tables)
    read = [row | {"#stream": "a"} for table in batches(1) for row in table.to_pylist()]
    true = ct.testing.oracle(queries, read)
    for name, (group, _) in plan.names.items():
        tables = [partials.groups[group] for partials in sent if group in partials.groups]
        ends = [end for table in tables for end in table.column("#closed 0").to_pylist()]
        open_ones = sum(end < 0 for end in ends)
        assert len(ends) - open_ones == len(true[name]) > 10
        assert open_ones <= 3  # at the end of the input, one for each key


@pytest.mark.parametrize("reading", ["local", "ordered"])
def test_count_windows_of_streams_that_are_not_full_at_the_end(reading: str) -> None:
    query = counting(ct.count_sliding(4, 2, reading=reading))
    given = {"a": events("......."), "b": events(".....")}
    world = World(charter(TWO, [query], incomplete="emit"), given, until=0)
    world.run()
    root = world.sites["root"].member
    assert root is not None
    counts = root.machine.counts  # type: ignore[union-attr]
    # Of `a` those that begin with events 4 and 6, of `b` with 2 and 4.
    assert counts["open_events"] == 3 + 3
    rows = [row for row in final(world.deliveries, "q") if not row["complete"]]
    found = sorted((row.get("node"), row["window_index"], row["n"]) for row in rows)
    local = [("a", 2, 3), ("a", 3, 1), ("b", 1, 3), ("b", 2, 1)]
    assert found == (local if reading == "local" else [(None, 2, 4), (None, 3, 1)])


@pytest.mark.parametrize("query", BY_NODE, ids=lambda query: query.name)
def test_late_events_correct_windows_of_one_node(query: ct.Query) -> None:
    rows = [row for table in batches(3, 60) for row in table.to_pylist()]
    engine = ct.Engine([query], late="update", keep="1h")
    engine.push(pa.Table.from_pylist(rows[::2], SCHEMA))
    said = rows_of(engine.advance(rows[-1]["ts"])[query.name])
    engine.push(pa.Table.from_pylist(rows[1::2], SCHEMA))
    said += rows_of(engine.close()[query.name])
    kept = {}
    for row in said:
        kept[row.get("k"), row["window_start"], row["window_end"]] = row
    last = [row for row in kept.values() if not row["retracted"]]
    assert any(row["revision"] for row in last)
    stripped = [{n: v for n, v in r.items() if n not in ("revision", "retracted")} for r in last]
    true = ct.testing.oracle([query], rows[::2] + rows[1::2])[query.name]
    assert sorted(map(str, stripped)) == sorted(map(str, true))


def test_a_node_that_starts_anew_goes_on_counting() -> None:
    """Between any two events a node is stopped, and goes on from what it wrote down."""
    queries = READ_OTHERS[2:6]
    made = charter(ONE, queries).with_schema(SCHEMA)
    bound = made.bound(0)
    tables = batches(4, 60)
    slicer, merger, assembler = bound.slicer("a"), bound.merger(stream="a"), bound.assembler()
    found: dict[str, list[dict[str, Any]]] = {query.name: [] for query in queries}
    arrival = 0
    for table in tables:
        feed(slicer, merger, table, arrival)
        arrival += table.num_rows
        merger = bound.merger(stream="a", state=merger.save())
        assembler.absorb(merger.release(merger.newest), merger.newest)
        for name, rows in assembler.advance(merger.newest).items():
            found[name] += rows_of(rows)
    assembler.absorb(merger.release(LATEST), merger.newest)
    for name, rows in assembler.close().items():
        found[name] += rows_of(rows)
    events_read = [row | {"#stream": "a"} for t in tables for row in t.to_pylist()]
    for name, true in ct.testing.oracle(queries, events_read).items():
        assert sorted(map(str, found[name])) == sorted(map(str, true)), name


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


def ticks(marks: dict[int, str], count: int) -> list[pa.Table]:
    """A stream with an event each tenth of a second; some of them are marks."""
    rows = [{"ts": n * SECOND // 10, "k": "x", "v": n, "m": marks.get(n)} for n in range(count)]
    return [pa.Table.from_pylist([row], SCHEMA) for row in rows]


def reader(made: Charter, id: str, tables: list[pa.Table]) -> Member:
    """A node that reads a batch in each step."""
    member = node(id, tables)
    member.adopt(made, 5)
    member.heard(GRANTED, 5)
    return member


def node(id: str, tables: list[pa.Table]) -> Member:
    return Member(id, MemoryDisk(), 5, parent="root", source=lambda: EventsInMemory.of(tables))


@pytest.mark.parametrize("reading", ["local", "aligned", "ordered", "gaps"])
def test_slices_of_open_windows_stay_until_time_or_a_window_ends(reading: str) -> None:
    """
    seconds     0         1         2
    events      ..(.................).....
    messages    |         |         |  |     the first, each second, the end of the window
    """
    query = ct.Query("q", ct.sum("v"), window=between(reading).window)
    made = charter(ONE, [query]).with_schema(SCHEMA)
    member, told, slices = reader(made, "a", ticks({2: "on", 22: "off"}, 28)), [], 0
    for step in range(28):
        member.step(5)
        bodies = [body for _, body in map(heard, member.outgoing(5))]
        told += [step] * len(bodies)
        tables = [decode(body, made)[1].groups.get(0) for body in bodies]
        slices += sum(table.num_rows for table in tables if table is not None)
    # An event is settled when a later one was read: `off` is cut in the step after it.
    assert told == [0, 10, 20, 23]
    assert slices <= 2 * len(told)


def test_by_the_policy_streaming_slices_of_open_windows_leave_in_each_step() -> None:
    made = charter(ONE, [between("local")], flush=read({"policy": "streaming"}))
    member = reader(made.with_schema(SCHEMA), "a", ticks({2: "on"}, 9))
    for _ in range(9):
        member.step(5)
    assert len([*member.outgoing(5)]) == 9


@pytest.mark.parametrize(
    "window",
    [
        *(between(reading).window for reading in ("local", "aligned", "gaps")),
        ct.session("200ms", reading="aligned"),
    ],
    ids=str,
)
def test_the_root_asks_when_others_have_passed_a_window_that_ended(window: ct.Window) -> None:
    """Nothing ends at `b`, which would tell its time after a second."""
    given = {"a": ticks({2: "on", 4: "off"}, 5 if window.session_gap else 9), "b": ticks({}, 9)}
    query = ct.Query("q", ct.count(), by="k", window=window)
    made = charter(TWO, [query]).with_schema(SCHEMA)
    out: list[Any] = []
    root = Member("root", MemoryDisk(), 0, deliver=out.append, charter=made)
    nodes = {id: node(id, tables) for id, tables in given.items()}
    now = GRACE + SECOND
    for one in nodes.values():
        one.heard(root.on_hello(one.hello(), now), now)
    for _ in range(9):
        for id, one in nodes.items():
            one.step(now)
            for body in one.outgoing(now):
                one.heard(root.on_message(id, body, now), now)
            one.heard(root.on_beat(id, one.beat(now), now), now)
        while root.step(now):
            pass
    assert sum(delivery.results["q"].num_rows for delivery in out if "q" in delivery.results)


def test_a_window_of_streams_adds_few_messages_and_bytes() -> None:
    tables = {id: ticks({40 + n: "on", 90 + n: "off"}, 200) for n, id in enumerate("abc")}
    plain = ct.Query("avg", ct.avg("v"), by="k", window=ct.tumbling("1s"))
    beside = ct.Query("q", ct.avg("v"), by="k", window=between("gaps").window)
    sent, size = [], []
    for queries in ([plain], [plain, beside]):
        world = World(charter(DEEP, queries), tables, until=0)
        world.run()
        check(world.deliveries, tables, queries)
        members = [site.member for id, site in world.sites.items() if id != "root"]
        flows = [member.flow for member in members if member is not None]
        sent.append(sum(flow.outbox.sent for flow in flows if flow is not None))
        size.append(sum(world.bytes.values()))
    assert sent[1] <= 1.5 * sent[0]
    assert size[1] <= 2 * size[0]


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
    given = {id: batches(n, 160, 40, 4) for n, id in enumerate("abc")}
    first = [SHARING[0], *READ[:there]]
    later = [*READ, *BY_NODE, READ_OTHERS[2], *READ_OTHERS[5:]]
    world = World(charter(DEEP, first), given, until=0)

    def change() -> None:
        root = world.sites["root"].member
        assert root is not None and root.charter is not None
        root.adopt(root.charter.with_queries([SHARING[0], *later]), world.now)

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
    for query in later[there:]:
        rows = [trimmed(row) for row in final(world.deliveries, query.name)]
        true = [trimmed(row) for row in ct.testing.oracle([query], every)[query.name]]
        assert rows
        if query.window.reading != "ordered":
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


@pytest.mark.parametrize("query", EVERY_READING, ids=lambda query: query.name)
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
            "no such reading of a window (given: 'lokal'); did you mean 'local'?",
        ),
        (
            lambda: ct.sql(
                "SELECT count(*) FROM e GROUP BY event_window(at => m, reading => 'lokal')",
                name="q",
            ),
            "no such reading of a window (given: 'lokal'); did you mean 'local'?",
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
            "no such reading of a window (given: 'lokal'); did you mean 'local'?",
        ),
        (lambda: ct.cut("m", reading="gaps"), "follow each other without a gap"),
        (
            lambda: ct.tumbling("1s", reading="ordered"),
            "tumbling(1s) cannot be read like this (given: reading='ordered'); it can be read as g",
        ),
        (lambda: ct.session("1s", reading="any"), "it can be read as global, local, aligned, ord"),
        (lambda: ct.count_tumbling(9, reading="gaps"), "it can be read as global, local, aligned"),
        (
            lambda: ct.Query("q", ct.count(), window=replace(ct.session("1s"), reading="any")),
            "session(1s, reading=any) cannot be read like this",
        ),
        (
            lambda: ct.sql(
                "SELECT k, count(*) AS n FROM e GROUP BY k, window(ts, '1s', reading => 'local') "
                "ORDER BY n LIMIT 1",
                name="q",
            ),
            "these windows are each node's own (given: tumbling(1s, reading=local)); leave out",
        ),
        (
            lambda: ct.Query(
                "q",
                ct.max("n"),
                window=ct.tumbling("1s", reading="local"),
                source=counting(ct.tumbling("1s")),
            ),
            "the results that it reads are of no node (given: reading='local'); leave out reading",
        ),
        (
            lambda: ct.Query("q", ct.count(), window=ct.tumbling("1s"), by="#stream"),
            "a key column may not be called '#stream'",
        ),
        (
            lambda: ct.Engine(
                [counting(ct.session("1s", reading="ordered"))], late="update", keep="1m"
            ),
            "cannot be corrected by late events (given: reading='ordered' with late='update')",
        ),
        (
            lambda: ct.Query("q", ct.count(), window=ct.cut("m", reading="local"), distinct_on="k"),
            "repeats are found where all events meet",
        ),
        (
            lambda: ct.Query(
                "q", ct.count(), window=ct.cut("m", reading="local"), measure="processing"
            ),
            "windows that tell nodes apart are in event time",
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


@pytest.mark.parametrize(
    ("python", "sql", "text"),
    [
        (
            ct.sliding("4s", "2s", reading="local"),
            "window(ts, '4s', '2s', reading => 'local')",
            "sliding(4s, 2s, reading=local)",
        ),
        (
            ct.tumbling("1d", zone="Europe/Berlin", reading="local"),
            "window(ts, '1 day', zone => 'Europe/Berlin', reading => 'local')",
            "tumbling(1d, zone=Europe/Berlin, reading=local)",
        ),
        (
            ct.cumulate("4s", "2s", reading="local"),
            "cumulate_window(ts, '4s', '2s', reading => 'local')",
            "cumulate(4s, 2s, reading=local)",
        ),
        (
            ct.session("4s", reading="ordered"),
            "session_window(ts, '4s', reading => 'ordered')",
            "session(4s, reading=ordered)",
        ),
        (
            ct.count_sliding(4, 2, reading="local"),
            "count_window(4, 2, reading => 'local')",
            "count_sliding(4, 2, reading=local)",
        ),
        (
            ct.count_within(4, "2s", reading="aligned"),
            "count_window(4, within => '2s', reading => 'aligned')",
            "count_within(4, 2s, reading=aligned)",
        ),
        (
            ct.between("v > 1", "v < 0", reading="any"),
            "event_window(start => v > 1, end => v < 0, reading => 'any')",
            "between(v > 1, v < 0, reading=any)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_readings_of_every_type_in_every_front_end(python: Any, sql: str, text: str) -> None:
    made = ct.sql(f"SELECT count(*) FROM events GROUP BY {sql}", name="q")
    assert made.window == python
    assert read_window(text, "queries.0.window") == python
    query = ct.Query("q", ct.count(), window=python)
    assert ct.Query.from_dict(query.to_dict()) == query
    assert f"reading={python.reading}" in python.describe()


def test_a_window_without_a_reading_is_written_down_as_ever() -> None:
    """Definitions are told apart by what is written down: those of running jobs must not change."""
    assert ct.tumbling("1s").to_dict() == {
        "kind": "tumbling",
        "length": SECOND,
        "slide": SECOND,
        "offset": 0,
    }
    assert ct.cut("m").to_dict()["reading"] == "global"


def test_a_window_of_all_nodes_is_made_of_those_of_each() -> None:
    """By key and node, and by key: only the finer partials climb."""
    mine, all_ = (
        ct.Query(name, ct.sum("v"), by="k", window=ct.tumbling("2s", reading=reading))
        for name, reading in (("mine", "local"), ("all", "global"))
    )
    sent, plan = climbing([mine, all_])
    assert len(plan.groups) == 2
    assert {id for partials in sent for id, t in partials.groups.items() if t.num_rows} == {0}


def test_an_engine_alone_is_one_stream() -> None:
    table = pa.concat_tables(events(ONE_STREAM))
    engine = ct.Engine([between("local")])
    engine.push(table)
    rows = rows_of(engine.close()["q"])
    assert {row["node"] for row in rows} == {"0"} and len(rows) == 3


def test_events_of_before_a_query_need_not_say_whose_they_are() -> None:
    """By `any` a window needs the stream of its events; those that wait already have none."""
    there = ct.Query("there", ct.count(), window=ct.between("m = 'on'", "m = 'off'"))
    engine = ct.Engine([there], lateness="3s")
    tables = events(".(..).(..).(..).")
    engine.push(pa.concat_tables(tables[:8]))
    engine.add(between("any"))
    engine.push(pa.concat_tables(tables[8:]))
    rows = rows_of(engine.close()["q"])
    assert [(row["window_start"] // SECOND, row["n"]) for row in rows] == [(11, 4)]
