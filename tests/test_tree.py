"""The parts of a tree, one by one: topologies, messages, disks, who is refused, who is missing."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import catchment as ct
from catchment.cli.main import app
from catchment.durable.log import FileLog
from catchment.errors import DataError, JobError, QueryError, SourceError, StateError
from catchment.flush.link import LinkEstimate
from catchment.job import JobModel, load_job
from catchment.job.topology import NodeSection, check_nodes
from catchment.model.capacity import Capacity
from catchment.nodes.bootstrap import NodeConfig, founded
from catchment.nodes.disk import FileDisk
from catchment.nodes.node_service import NodeService, check_move
from catchment.nodes.process import NodeProcess
from catchment.nodes.status import filling_of, status, unread_of
from catchment.simulate import World
from catchment.simulate.memory import EventsInMemory, MemoryDisk
from catchment.sources.base import NeverRead
from catchment.testing.compare import rows_of
from catchment.tree.charter import Charter, NodePlace
from catchment.tree.member import Member, RefusedError
from catchment.tree.message import decode, encode, head_of, heard, spoken
from catchment.tree.words import Beat, Hello, Unread, read, said
from notes import answer
from trees import GRANTED, QUERIES, SCHEMA, batches, charter, check, check_marked, final

SECOND = 1_000_000
ONE: dict[str, str | None] = {"root": None, "a": "root"}
SOURCE: dict[str, Any] = {"type": "generator", "events": 10}


def nodes(*sections: dict[str, Any]) -> list[NodeSection]:
    return [NodeSection(**section) for section in sections]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            nodes({"id": "r", "listen": "h:1"}, {"id": "a", "parent": "rr", "source": SOURCE}),
            "a node's parent is unknown (given: rr, the parent of a); did you mean 'r'?",
        ),
        (
            nodes(
                {"id": "r", "listen": "h:1"},
                {"id": "a", "parent": "b", "listen": "h:2"},
                {"id": "b", "parent": "a", "listen": "h:3"},
            ),
            "nodes go round in a circle (given: a -> b -> a)",
        ),
        (
            nodes(
                {"id": "r", "listen": "h:1"},
                {"id": "a", "parent": "r", "source": SOURCE},
                {"id": "a", "parent": "r", "source": SOURCE},
            ),
            "two nodes have one id (given: a)",
        ),
        (
            nodes({"id": "r", "listen": "h:1"}, {"id": "a", "parent": "r"}),
            "a node has neither source nor children (given: a)",
        ),
        (
            nodes({"id": "r"}, {"id": "a", "parent": "r", "source": SOURCE}),
            "a node with children must say where they find it (given: r)",
        ),
        (
            nodes({"id": "a", "source": SOURCE}, {"id": "b", "source": SOURCE}),
            "a tree has one root: one node without a parent (given: a, b)",
        ),
    ],
)
def test_nodes_that_make_no_tree(given: list[NodeSection], text: str) -> None:
    with pytest.raises(JobError) as caught:
        check_nodes(given)
    assert text in str(caught.value)


def test_a_charter_comes_back_from_its_bytes() -> None:
    made = charter(ONE).with_schema(SCHEMA)
    again = Charter.from_bytes(made.data)
    assert again.data == made.data and again.places == made.places
    assert again.plans[0].plan == made.plans[0].plan
    with pytest.raises(StateError, match="these bytes are not a charter"):
        Charter.from_bytes(b"nonsense")


SQL = "SELECT sum(v) FROM events GROUP BY"
NOT_FOR_A_TREE = {
    "processing": (
        ct.Query("q", ct.sum("v"), window=ct.tumbling("1s"), measure="processing"),
        {},
        (
            "a tree has many clocks: windows by processing time make no sense in it (given: q); "
            "use event time"
        ),
    ),
    "updates": (
        ct.Query("q", ct.sum("v"), window=ct.cut("m = 'on'", reading="local")),
        {"late": "update"},
        (
            "query 'q': windows cut on each node cannot be corrected by late events (given: "
            "reading='local' with late='update'); leave out reading, or drop or collect late events"
        ),
    ),
    "order": (
        ct.Query(
            "q",
            ct.function(
                "tree_last",
                lift=lambda v: v,
                combine=lambda a, b: b,
                lower=lambda a: a,
                commutative=False,
            )("v"),
            window=ct.cut("m = 'on'", reading="local"),
        ),
        {},
        (
            "query 'q': a function whose order matters needs all events in one order, but these "
            "windows are cut on each node (given: tree_last(v)); leave out reading, or say that "
            "the function is commutative"
        ),
    ),
    "time": (
        ct.sql(f"{SQL} window(k, '1s')", "q"),
        {},
        (
            "query 'q': its window names the column 'k', but the time column of the events is 'ts' "
            "(given: k); name ts in the window, or make k the time column of the whole job"
        ),
    ),
    "table": (
        ct.sql("SELECT sum(v) FROM rides GROUP BY window(ts, '1s')", "q"),
        {},
        "query 'q': FROM takes the events of the job (given: FROM rides); did you mean 'sites'?",
    ),
}


def a_tree(queries: list[ct.Query], **options: Any) -> JobModel:
    return load_job(
        {
            "name": "sites",
            "queries": queries,
            "checkpoint": "folder",
            "nodes": [
                {"id": "root", "listen": "127.0.0.1:1"},
                {"id": "a", "parent": "root", "source": SOURCE},
            ],
        }
        | options
    )


def office_of(member: Member) -> NodeService:
    return NodeService(member, threading.RLock(), threading.Event(), lambda: None)


@pytest.mark.parametrize("name", list(NOT_FOR_A_TREE))
def test_one_rule_for_the_queries_of_the_file_and_those_that_come_later(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, options, text = NOT_FOR_A_TREE[name]
    with pytest.raises(QueryError) as at_start:
        founded(a_tree([query], **options))
    assert str(at_start.value) == text
    for known in (False, True):  # before the first node has told its columns, and after
        made = founded(a_tree(QUERIES[:1], **options))
        office = office_of(root_of(made.with_schema(SCHEMA) if known else made))
        sent = json.loads(json.dumps({"queries": [query.to_dict()]}))
        with pytest.raises(RefusedError) as later:
            answer(office, "add query", sent)
        assert str(later.value) == text
        assert list(answer(office, "queries", {})["queries"]) == [QUERIES[0].to_dict()]
    with pytest.raises(QueryError) as inside:
        made.with_queries([*QUERIES[:1], query])
    assert str(inside.value) == text
    # As a person types it.
    monkeypatch.setattr(
        "catchment.nodes.questions.put", lambda _, question, *__: office.ask(question)
    )
    words = ["--sql", "SELECT count(*) FROM rides GROUP BY window(x, '1s')", "--name", "q"]
    done = CliRunner().invoke(app, ["queries", "add", *words, "--root", "127.0.0.1:1"])
    assert done.exit_code == 1 and "its window names the column 'x'" in done.stderr


def test_a_query_of_a_running_tree_may_name_the_job_and_must_fit_the_events() -> None:
    office = office_of(root_of(founded(a_tree(QUERIES[:1])).with_schema(SCHEMA)))
    named = ct.sql("SELECT sum(v) AS s FROM Sites GROUP BY window(ts, '1s')", "named")
    assert answer(office, "add query", {"queries": [named.to_dict()]})["added"] == ["named"]
    held = answer(office, "queries", {})["queries"][-1]
    assert held == ct.Query("named", ct.sum("v").alias("s"), window=ct.tumbling("1s")).to_dict()
    lost = ct.Query("lost", ct.sum("nothing"), window=ct.tumbling("1s"))
    with pytest.raises(RefusedError, match=r"query 'lost': no such column \(given: nothing\)"):
        answer(office, "add query", {"queries": [lost.to_dict()]})


def test_a_query_that_an_older_root_took_does_not_keep_others_out() -> None:
    """What runs already is not judged again, so that it can be removed."""
    made = founded(a_tree(QUERIES[:1]))
    clock = ct.Query("clock", ct.sum("v"), window=ct.tumbling("1s"), measure="processing")
    held = made.plans[0].next(1, {"avg": QUERIES[0], "clock": clock})
    old = dataclasses.replace(made, plans={**made.plans, 1: held})
    assert "slide" in old.with_queries([QUERIES[0], clock, QUERIES[1]]).plans[2].queries
    assert list(old.with_queries([QUERIES[0]]).plans[2].queries) == ["avg"]


def a_message() -> tuple[Charter, bytes]:
    made = charter(ONE).with_schema(SCHEMA)
    member = Member(
        "a", MemoryDisk(), 5, parent="root", source=lambda: EventsInMemory.of(batches(1))
    )
    member.adopt(made, 5)
    member.heard(GRANTED, 5)
    while member.step(5):
        pass
    return made, heard(list(member.outgoing(5))[-1])[1]


def test_a_message_that_is_not_whole_is_refused() -> None:
    made, body = a_message()
    found = decode(body, made)
    assert found.head == head_of(body)
    tables = {"notes": found.notes, "ranks": found.ranks, "marks": found.marks}
    assert encode(found.head, found.partials, made, **tables) == body
    for bad in (b"", b"garbage bytes on the line", body[:-1], body[: len(body) // 2]):
        with pytest.raises(DataError, match=r"not a message|damaged or cut short"):
            decode(bad, made)
    with pytest.raises(DataError, match="damaged or cut short"):
        decode(body[:-3] + b"xyz", made)


def root_of(made: Charter) -> Member:
    return Member("root", MemoryDisk(), 5, deliver=lambda _: None, charter=made)


def hello(node: str = "a", job: str | None = None) -> Hello:
    return Hello(node, job=job, schema=SCHEMA.serialize().to_pybytes())


def test_who_is_refused() -> None:
    made, body = a_message()
    root = root_of(made)
    with pytest.raises(RefusedError, match="no child of mine"):
        root.on_hello(hello(node="stranger"), 5)
    with pytest.raises(RefusedError, match="of another job"):
        root.on_hello(hello(job="other-1234"), 5)
    assert root.on_hello(hello(), 5).ack == 0
    head, partials, *_ = decode(body, made)
    strange = encode(msgspec.structs.replace(head, node="b"), partials, made)
    with pytest.raises(RefusedError, match="another's message"):
        root.on_message("a", spoken(1, strange), 5)


def test_a_source_is_open_once_at_a_time() -> None:
    """One that receives holds a port and a spool: opened twice, its node never read anything."""
    opened: list[EventsInMemory] = []

    class Receiving(EventsInMemory):
        def close(self) -> None:
            opened.remove(self)

    def source() -> EventsInMemory:
        if opened:
            raise SourceError("another process writes to the spool")
        opened.append(Receiving.of(batches(1)))
        return opened[0]

    member = Member("a", MemoryDisk(), 5, parent="root", source=source)
    assert member.hello().schema is not None  # what events look like is asked of the source
    first = opened[0]
    member.adopt(charter(ONE).with_schema(SCHEMA), 5)
    member.heard(GRANTED, 5)
    assert member.step(5) and opened == [first]
    member.reload(5)  # after a step that could not be finished
    assert member.step(5) and len(opened) == 1 and opened[0] is not first
    member.close()
    assert opened == []


def test_a_source_that_cannot_be_opened_is_tried_again() -> None:
    tries: list[int] = []

    def source() -> EventsInMemory:
        tries.append(1)
        if len(tries) < 3:
            raise SourceError("the port is in use")
        return EventsInMemory.of(batches(1))

    member = Member("a", MemoryDisk(), 5, parent="root", source=source)
    for act in (lambda: member.adopt(charter(ONE).with_schema(SCHEMA), 5), lambda: member.step(5)):
        with pytest.raises(SourceError, match="the port is in use"):
            act()
    member.heard(GRANTED, 5)
    assert member.step(5) and len(tries) == 3


def test_a_node_that_lost_its_folder_is_not_taken_for_itself() -> None:
    made = charter(ONE).with_schema(SCHEMA)
    root = root_of(made)
    member = Member(
        "a", MemoryDisk(), 5, parent="root", source=lambda: EventsInMemory.of(batches(1))
    )
    member.adopt(made, 5)
    member.heard(GRANTED, 5)
    root.on_hello(hello(), 5)
    member.step(5)
    for body in member.outgoing(5):
        root.on_message("a", body, 5)
    with pytest.raises(RefusedError, match="has lost its folder"):
        root.on_hello(hello(), 9)


def test_a_disk_cuts_off_what_was_half_written(tmp_path: Path) -> None:
    log = FileLog(str(tmp_path / "log"), "log")
    for number in range(1, 6):
        log.append(number, bytes(number))
    log.close()
    (path,) = (tmp_path / "log").glob("*.log")
    os.truncate(path, path.stat().st_size - 2)
    (tmp_path / "log" / "mark").unlink()  # it says that the last entry was safe
    again = FileLog(str(tmp_path / "log"), "log")
    assert [n for n, _ in again.entries()] == [1, 2, 3, 4] and again.last == 4
    again.append(5, b"new")
    assert again.read(5) == b"new"
    again.trim(4)
    again.close()
    assert FileDisk(tmp_path).log("log").last == 5


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A parent without room takes no message and acknowledges none; later all is as ever."""
    made = charter(ONE)
    events = {"a": batches(3)}
    world = World(made, events, until=0)
    world.sites["root"].disk.full = True
    world.calm = 4 * SECOND
    world.run()
    assert world.done
    check(world.deliveries, events)


def dead_then_back(late: str) -> tuple[World, dict[str, list[pa.Table]]]:
    """A node that is away for longer than others wait for it."""
    parents: dict[str, str | None] = {"root": None, "a": "root", "b": "root"}
    made = charter(parents, QUERIES[:2], late=late, keep=3600 * SECOND, timeout=SECOND)
    events = {"a": batches(1, 100), "b": batches(2, 100)}
    world = World(made, events, until=0)
    world.after(0.6 * SECOND, lambda: world.crash("a", 8))
    world.calm = 12 * SECOND
    world.run()
    assert world.done
    return world, events


def test_results_without_a_dead_node_say_so_and_are_corrected() -> None:
    world, events = dead_then_back("update")
    early = [
        row
        for delivery in world.deliveries.values()
        for row in rows_of(delivery.results.get("avg", pa.table({})))
    ]
    assert {row["missing"] for row in early if not row["complete"]} == {"a"}
    check(world.deliveries, events, QUERIES[:2])


def test_results_are_corrected_where_only_a_dead_node_has_events() -> None:
    """The others have ended without an event: that makes nothing late."""
    parents: dict[str, str | None] = {"root": None, "a": "root", "b": "root"}
    events = {"a": batches(1), "b": [SCHEMA.empty_table()]}
    made = charter(parents, QUERIES[:4], late="update", keep=3600 * SECOND, timeout=SECOND)
    world = World(made, events, until=0)
    world.crash("a", 5)
    world.run()
    check(world.deliveries, events, QUERIES[:4])


def test_what_comes_too_late_is_counted() -> None:
    world, events = dead_then_back("drop")
    rows = final(world.deliveries, "avg")
    assert any(not row["complete"] for row in rows)
    root = world.sites["root"].member
    assert root is not None and root.machine is not None
    counts: dict[str, int] = root.machine.counts  # type: ignore[union-attr]
    counted = sum(row["count(*)"] for row in rows)
    read = sum(table.num_rows for tables in events.values() for table in tables)
    assert counts["events"] == read and counts["late"] > 0
    assert counted + counts["late"] == read


@pytest.mark.parametrize("under", ["root", "m"])
def test_windows_that_lack_what_came_too_late_say_so(under: str) -> None:
    """A sliding window may be open still when slices of it come that ended before the frontier."""
    wide = ct.Query("wide", ct.sum("v"), ct.count(), by="k", window=ct.sliding("10s", "1s"))
    parents: dict[str, str | None] = {"root": None, "m": "root", "a": under, "b": "root", "c": "m"}
    made = charter(parents, [wide], late="drop", timeout=SECOND // 2)
    events = {id: batches(n, 400, 40) for n, id in enumerate("abc", start=1)}
    world = World(made, events, until=0)
    world.after(0.6 * SECOND, lambda: world.crash("a", 1.5))
    world.calm = 12 * SECOND
    world.run()
    assert world.done
    check_marked(world.deliveries, events, [wide])
    rows = final(world.deliveries, "wide")
    assert {row["missing"] for row in rows if not row["complete"]} <= {"a", "m", "a, m"}
    assert [row["complete"] for row in rows].count(True) > 24  # what ended before it was away


def test_a_query_comes_while_the_tree_runs_and_another_goes() -> None:
    parents: dict[str, str | None] = {"root": None, "m": "root", "a": "m", "b": "root"}
    made = charter(parents, QUERIES[:2])
    events = {"a": batches(1, 300, 60, 4), "b": batches(2, 300, 60, 4)}
    world = World(made, events, until=0)
    new = ct.Query("new", ct.max("v"), ct.count(), by="k", window=ct.tumbling("2s"))

    def change() -> None:
        root = world.sites["root"].member
        assert root is not None and root.charter is not None
        root.adopt(root.charter.with_queries([QUERIES[0], new]), world.now)

    world.after(1.5 * SECOND, change)
    world.run()
    assert world.done
    check(world.deliveries, events, QUERIES[:1])
    rows = final(world.deliveries, "new")
    assert rows
    since = min(row["window_start"] for row in rows)
    every = [row for tables in events.values() for table in tables for row in table.to_pylist()]
    wanted = [row for row in ct.testing.oracle([new], every)["new"] if row["window_start"] >= since]
    assert len(rows) == len(wanted)
    by = {(row["k"], row["window_start"]): row["max(v)"] for row in wanted}
    assert by == {(row["k"], row["window_start"]): row["max(v)"] for row in rows}


@pytest.mark.parametrize("cut", ["a", "m"])
def test_what_a_silent_node_cut_by_an_older_plan_lacks_and_windows_say_so(cut: str) -> None:
    parents: dict[str, str | None] = {"root": None, "m": "root", "a": "m", "b": "root"}
    made = charter(parents, QUERIES[:1], late="update", keep=3600 * SECOND, timeout=SECOND)
    events = {"a": batches(1, 1000, 100, 7), "b": batches(2, 1000, 100, 3)}
    world = World(made, events, until=0)
    new = ct.Query("new", ct.max("v"), ct.count(), by="k", window=ct.tumbling("2s"))

    def silence() -> None:
        world.sites[cut].cut_until = world.now + 3 * SECOND

    def change() -> None:
        root = world.sites["root"].member
        assert root is not None and root.charter is not None
        root.adopt(root.charter.with_queries([QUERIES[0], new]), world.now)

    world.after(1.5 * SECOND, silence)
    world.after(3.2 * SECOND, change)
    world.calm = 12 * SECOND
    world.run()
    assert world.done
    check(world.deliveries, events, QUERIES[:1])
    rows = final(world.deliveries, "new")
    every = [row for tables in events.values() for table in tables for row in table.to_pylist()]
    wanted = {
        (row["k"], row["window_start"]): row["max(v)"]
        for row in ct.testing.oracle([new], every)["new"]
    }
    got = {(row["k"], row["window_start"]): row for row in rows}
    short = [at for at, row in got.items() if row["max(v)"] != wanted[at]]
    assert short and {got[at]["missing"] for at in short} == {cut}
    assert [row for row in rows if row["complete"]]


@pytest.mark.parametrize(
    ("id", "parent", "text"),
    [
        ("root", "m", "the root cannot move"),
        ("a", "b", "this node has no place for children"),
        ("a", "n", "a node with children must say where they find it"),
        ("a", "m", "this node is there already"),
        ("m", "o", "nodes would go round in a circle"),
        ("b", "root", "this node is on its way already"),
    ],
)
def test_moves_that_cannot_be(id: str, parent: str, text: str) -> None:
    parents: dict[str, str | None] = {
        "root": None,
        "m": "root",
        "n": "m",
        "o": "m",
        "a": "m",
        "b": "m",
        "c": "n",
        "d": "o",
    }
    made = charter(parents)
    places = {
        name: dataclasses.replace(
            place, listen=None if place.source or name == "n" else f"h:{place.number}"
        )
        for name, place in made.places.items()
    }
    made = dataclasses.replace(made, places=places).moved("b", "o")
    with pytest.raises(JobError, match=text):
        check_move(made, id, parent)


def test_no_node_moves_under_one_that_has_ended() -> None:
    """Nobody would listen there: the node, and the root with it, would wait for good."""
    parents: dict[str, str | None] = {"root": None, "m": "root", "n": "m", "b": "n", "a": "root"}
    made = charter(parents, QUERIES[:1])
    places = {
        name: dataclasses.replace(place, listen=None if place.source else f"h:{place.number}")
        for name, place in made.places.items()
    }
    events = {"a": batches(1, 60), "b": batches(2, 60)}
    world = World(dataclasses.replace(made, places=places), events, until=0)
    world.sites["a"].down_until = 30 * SECOND  # it has not begun when all of m is over
    world.sites["a"].member = None
    said: list[str] = []

    def ask() -> None:
        root = world.sites["root"].member
        assert root is not None
        before = root.charter
        for parent in ("m", "n"):
            with pytest.raises(RefusedError) as error:
                answer(office_of(root), "move node", {"id": "a", "parent": parent})
            said.append(str(error.value))
        assert root.charter is before

    world.after(20 * SECOND, ask)
    world.run()
    assert world.done
    assert said == [
        "this node has passed on all it ever will, and takes nobody in "
        f"(given: a to {parent}); choose a parent that still waits for events"
        for parent in ("m", "n")
    ]
    check(world.deliveries, events, QUERIES[:1])


def test_a_node_that_begins_with_a_farewell_goes_to_its_new_parent(tmp_path: Path) -> None:
    """It has no life yet, and none was granted: nothing is wrong with its disk."""
    root = root_of(charter({"root": None, "m": "root", "b": "m", "a": "root"}, QUERIES[:1]))
    assert root.charter is not None
    root.adopt(root.charter.moved("a", "m"), 1)
    process = NodeProcess(NodeConfig("a", tmp_path, "h:1", None, None, (), None, None, "embedded"))
    process.host = office_of(root)  # it answers as the former parent does, then as a stranger
    troubles: list[str | None] = []

    def watch(process: NodeProcess) -> None:
        if process.last_error not in troubles[-1:]:
            troubles.append(process.last_error)
        if len(troubles) == 2:
            process.stop()

    process.watchers.append(watch)
    process.run()
    assert process.member.moved is not None and process.member.moved.to == "m"
    assert troubles[0] is None
    assert troubles[1] is not None and "this node is no child of mine" in troubles[1]


def test_what_is_on_its_way_is_counted_under_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledgements come on the link's own thread: a node once ended when one came just then."""
    process = NodeProcess(NodeConfig("a", tmp_path, "h:1", None, None, (), None, None, "embedded"))
    made = charter({"root": None, "a": "root", "b": "a"}, QUERIES[:1]).with_schema(SCHEMA)
    process.host = office_of(root_of(made))
    free: list[bool] = []

    def look() -> None:
        free.append(process.lock.acquire(blocking=False))
        if free[-1]:
            process.lock.release()

    def flying(_: LinkEstimate) -> int:
        other = threading.Thread(target=look)
        other.start()
        other.join()
        return 0

    monkeypatch.setattr(LinkEstimate, "flying", property(flying))
    process.watchers.append(lambda process: process.stop() if free else None)
    process.run()
    assert free and not any(free)


def test_a_node_joins_and_another_leaves() -> None:
    parents: dict[str, str | None] = {"root": None, "a": "root", "b": "root"}
    made = charter(parents, QUERIES[:1], timeout=None)
    events = {"a": batches(1, 60), "b": batches(2, 60)}
    world = World(made, events, until=0)
    world.sites["b"].down_until = 1 << 60  # it never comes
    world.sites["b"].member = None

    def leave() -> None:
        root = world.sites["root"].member
        assert root is not None and root.charter is not None
        charter = root.charter.without("b").with_place(NodePlace("c", 7, "root", True))
        root.adopt(charter, world.now)
        world.join("c", "root", batches(3, 60))

    world.after(SECOND, leave)
    world.run()
    assert world.done
    check(world.deliveries, {"a": events["a"], "c": batches(3, 60)}, QUERIES[:1])


def one_above_another() -> tuple[Member, Member, Member]:
    """A root, a node below it, and a node below that one, after all of their events."""
    parents: dict[str, str | None] = {"root": None, "m": "root", "a": "m", "b": "root"}
    world = World(charter(parents, QUERIES[:1]), {"a": batches(1, 60), "b": batches(2, 60)})
    world.run()
    root, mid, leaf = (world.sites[id].member for id in ("root", "m", "a"))
    assert root is not None and mid is not None and leaf is not None
    return root, mid, leaf


def carry_up(root: Member, mid: Member, leaf: Member) -> None:
    """Beats go up, level by level, as they travel."""
    mid.on_beat("a", read(Beat, said(leaf.beat(0))), 0)
    root.on_beat("m", read(Beat, said(mid.beat(0))), 0)


def test_what_a_node_never_read_is_told_at_the_root() -> None:
    """Beats carry it up, level by level, and it is gone once the node has read the rest."""
    root, mid, leaf = one_above_another()
    leaf.unread = unread_of(
        [NeverRead("x.csv", "it grew", 12, 2), NeverRead("y.csv", "a column is missing", 5, 3)]
    )
    wanted = {"a": Unread(2, "x.csv: it grew", 17, 5)}
    for _ in range(2):
        carry_up(root, mid, leaf)
        assert status(root, set()).never_read_by_nodes == wanted
        leaf.unread, wanted = None, {}


def test_what_is_getting_full_on_a_node_is_told_at_the_root() -> None:
    root, mid, leaf = one_above_another()
    half = Capacity("outbox", 512, 1024, "bytes", "nothing more is read")
    nearly = Capacity("spool", 9, 10, "bytes", "nothing is acknowledged")
    leaf.fills = filling_of([half, Capacity("inbox", 511, 1024, "bytes", "children wait"), nearly])
    wanted = {"a": [nearly, half]}
    for _ in range(2):
        carry_up(root, mid, leaf)
        assert status(root, set()).filling_by_nodes == wanted
        leaf.fills, wanted = (), {}
