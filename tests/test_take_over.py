"""A node is gone for good, and another goes on in its place."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pydantic import Field, PrivateAttr

import catchment as ct
from catchment.errors import CatchmentError, JobError, RefusedError, SourceError, StateError
from catchment.measure.ports import free_port
from catchment.model import records
from catchment.model.query import Query
from catchment.nodes.bootstrap import founded
from catchment.nodes.node_service import NodeService, check_move
from catchment.nodes.questions import ReplaceNode
from catchment.simulate import Faults, World
from catchment.simulate.memory import EventsInMemory, MemoryDisk
from catchment.sources.base import Piece, Position, Split
from catchment.sources.generated import Generated
from catchment.testing import oracle
from catchment.testing.compare import assert_same, rows_of
from catchment.tree import inbox, outflow
from catchment.tree.lives import for_good
from catchment.tree.local import Local
from catchment.tree.member import Member
from catchment.tree.root import Root
from catchment.tree.words import NodeProgress, Reply, TakeOver, read, said
from faulty_trees import HOUR, faults, flushing, shape
from notes import ask
from patience import PATIENCE, wait_for
from schedules import seed_range, share
from trees import QUERIES, READ, READ_OTHERS, SCHEMA, batches, charter, check, check_marked

FEW = share(625, 2)
WIDE = ct.Query("wide", ct.sum("v"), by="k", window=ct.sliding("2s", "500ms"))
LONG = ct.Query("long", ct.sum("v"), ct.count(), by="k", window=ct.tumbling("10s"))
VISITS = ct.Query("short_visits", ct.sum("v"), by="k", window=ct.session("100ms"))
PLAIN = [WIDE, LONG, QUERIES[3], VISITS]
"""Windows of time, short and long, and sessions."""
ORDERED = [QUERIES[4], QUERIES[5], QUERIES[6], *READ, *READ_OTHERS[1:]]
"""Windows that follow from the order of events, of all nodes and of each, and of one node."""


class FromNowOn(EventsInMemory):
    """Events that a process which starts anew does not get again."""

    replays = False


class InPartitions(EventsInMemory):
    """Each table is a partition, of which the next few events are read, by the dice."""

    _dice: random.Random = PrivateAttr(default_factory=random.Random)
    _most: int = PrivateAttr(1)

    @classmethod
    def thrown(cls, tables: list[pa.Table], dice: random.Random, most: int) -> InPartitions:
        made = cls()
        made._batches, made._dice, made._most = tables, dice, most
        return made

    def start(self) -> Position:
        return dict.fromkeys(self.partitions({}), 0)

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        return {
            name: min(n + self._dice.randint(0, self._most), self._batches[int(name)].num_rows)
            for name, n in position.items()
        }

    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        return [Split(name, n, (n, end[name])) for name, n in start.items() if end[name] > n]

    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        first, last = split.body
        table = self._batches[int(split.partition)].slice(first, last - first)
        yield Piece(table if columns is None else table.select(columns))

    def ended(self, position: Position) -> bool:
        return all(n == self._batches[int(name)].num_rows for name, n in position.items())

    def partitions(self, position: Position) -> list[str]:
        return [str(number) for number in range(len(self._batches))]


def in_partitions(tables: list[pa.Table], count: int, dice: random.Random) -> list[pa.Table]:
    """The same events, dealt out to so many partitions."""
    whole = pa.concat_tables(tables)
    dealt = [dice.randrange(count) for _ in range(whole.num_rows)]
    return [whole.filter(pa.array([to == part for to in dealt])) for part in range(count)]


def replacing(world: World, dice: random.Random, often: int = 1) -> list[str]:
    """Has nodes that read events be gone for good, now and then; who came in their place."""
    came: list[str] = []

    def go() -> None:
        root = world.sites["root"].member
        if world.done:
            return
        if root is None or root.charter is None:
            world.after(10**5, go)
            return
        leaves = [place.id for place in root.charter.places.values() if place.source]
        old, new = dice.choice(leaves), f"n{len(came)}"
        newer = root.charter.replaced(old, new)
        parent = newer.places[new].parent
        assert parent is not None
        try:
            root.adopt(newer, world.now)
        except StateError:  # its disk is full
            world.after(10**5, go)
            return
        world.replace(old, new, parent)
        came.append(new)
        if len(came) < often:
            world.after(dice.randint(1, 20) * 10**5, go)

    world.after(dice.randint(1, 20) * 10**5, go)
    return came


def one_take_over(
    seed: int, queries: list[Query], trouble: Faults, partitions: int = 0, **settings: Any
) -> tuple[World, dict[str, list[pa.Table]], list[str]]:
    """A tree in which nodes are replaced while they read; who came in their place.

    Who reads `partitions` reads other batches each time it starts; 0: always the same.
    """
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(1, 3))
    leaves = [id for id in parents if id.startswith("l")]
    count = dice.choice([12, 60, 120])
    events = {id: batches(seed * 100 + n, count, 6, 3) for n, id in enumerate(leaves)}
    parts = random.Random(-1 - seed)
    source = EventsInMemory.of
    if partitions:
        events = {id: in_partitions(made, partitions, parts) for id, made in events.items()}

        def source(tables: list[pa.Table]) -> EventsInMemory:
            return InPartitions.thrown(tables, parts, parts.choice([1, 3, 10, 40]))

    ruled = charter(parents, queries, **settings)
    world = World(ruled, events, seed, trouble, until=4, source=source)
    came = replacing(world, dice, dice.choice([1, 1, 3]))
    world.run()
    assert world.done, f"seed {seed} is not done after {world.now / 1e6:.0f} s"
    return world, events, came


@pytest.mark.parametrize("part", range(2))
def test_every_event_counts_once(part: int) -> None:
    came = 0
    for seed in seed_range(FEW, part, 2):
        queries = PLAIN if seed % 4 < 2 else ORDERED
        partitions = seed // 4 % 4
        trouble = Faults(delay=0.05)
        world, events, new = one_take_over(seed, queries, trouble, partitions, marks="send")
        check(world.deliveries, events, queries)
        root = world.sites["root"].member
        assert root is not None and isinstance(root.machine, Root)
        rows = sum(table.num_rows for tables in events.values() for table in tables)
        assert root.machine.counts["events"] == rows, seed
        came += len(new)
    assert came or FEW < 8  # of a few schedules, all may be over before anybody is replaced


@pytest.mark.parametrize("part", range(2))
def test_and_so_it_does_when_all_goes_wrong(part: int) -> None:
    """Messages are lost, nodes crash, links are narrow, rows leave before their slices end."""
    for seed in seed_range(1000 + FEW, 1000 + part, 2):
        dice = random.Random(seed)
        flush, trouble = flushing(seed, faults(dice))
        late = dice.choice(["drop", "update"])
        settings = {"late": late, "keep": HOUR, "timeout": 10**6} if late == "update" else {}
        partitions = seed // 2 % 4
        world, events, _ = one_take_over(seed, PLAIN, trouble, partitions, **settings, **flush)
        check(world.deliveries, events, PLAIN)


@pytest.mark.parametrize("seed", [19])
def test_once_were_wrong(seed: int) -> None:
    """19: a node was replaced that had not yet taken over itself."""
    world, events, _ = one_take_over(seed, PLAIN, Faults(delay=0.05))
    check(world.deliveries, events, PLAIN)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_kept_back_until_it_is_asked_for_is_lost_and_said(seed: int) -> None:
    queries = [
        ct.Query("mid", ct.median("v"), by="k", window=ct.tumbling("2s")),
        QUERIES[4],
        ct.Query("tens", ct.sum("v"), window=ct.count_tumbling(10)),
        WIDE,
    ]
    settings = {"count": "async", "quantiles": "ask", "timeout": 5 * 10**6}
    world, events, _ = one_take_over(seed, queries, Faults(delay=0.05), **settings)
    check_marked(world.deliveries, events, queries[:2])
    check(world.deliveries, events, [WIDE])


def test_what_cannot_be_read_again_is_lost_and_said() -> None:
    events = {id: batches(n, 120, 20, 2) for n, id in enumerate(("a", "b"))}
    tree = charter({"root": None, "a": "root", "b": "root"}, [WIDE])
    world = World(tree, events, source=FromNowOn.of, until=0)

    def go() -> None:
        root = world.sites["root"].member
        assert root is not None and root.charter is not None
        root.adopt(root.charter.replaced("a", "c"), world.now)
        world.sites["a"].batches = events["a"][40:]  # what comes from now on
        world.replace("a", "c", "root")

    world.after(6 * 10**5, go)
    world.run()
    assert world.done
    check_marked(world.deliveries, events, [WIDE])
    named = {
        row["missing"]
        for delivery in world.deliveries.values()
        for row in delivery.results["wide"].to_pylist()
    }
    assert named == {None, "a"}


def test_rows_sent_ahead_that_are_too_many_to_keep_are_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox, "AHEAD_BYTES", 0)
    for seed in range(12):
        world, events, _ = one_take_over(seed, PLAIN, Faults(delay=0.05))
        check_marked(world.deliveries, events, PLAIN)


# -- spares ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_spare_takes_over_by_itself_if_it_is_there(seed: int, ready: bool) -> None:
    """A node dies; whoever is its spare takes over, or, if that is dead too, nobody does, and the
    node may come back."""
    parents = {"root": None, "m": "root", "a": "m", "b": "root"}
    events = {id: batches(10 * seed + n, 150, 6, 2) for n, id in enumerate(("a", "b"))}
    settings = {"late": "update", "keep": HOUR, "timeout": 10**6, "spares": {"s": "a"}}
    world = World(charter(parents, PLAIN, **settings), events, seed, Faults(delay=0.02), until=3)
    if ready:
        world.join("s", "m", events["a"])
    world.after(15 * 10**5, lambda: world.crash("a", 10**6 if ready else 5))
    world.run()
    assert world.done
    root = world.sites["root"].member
    assert root is not None and root.charter is not None
    assert ("s" in root.charter.places, "a" in root.charter.places) == (ready, not ready)
    check(world.deliveries, events, PLAIN)


def spare_job(**changes: Any) -> dict[str, Any]:
    source = {"type": "generator", "events": 100}
    spare = {"id": "s", "parent": "root", "spare_of": "a", "source": source} | changes
    nodes: list[dict[str, Any]] = [
        {"id": "root", "listen": "127.0.0.1:7401"},
        {"id": "m", "parent": "root", "listen": "127.0.0.1:7402"},
        {"id": "a", "parent": "root", "source": source},
        {"id": "b", "parent": "m", "source": source},
        spare,
    ]
    return {"queries": JOB_QUERIES, "nodes": nodes, "timeout": "5s"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"spare_of": "c"}, r"of no node of the tree \(given: s, the spare of c\)"),
        ({"spare_of": "b"}, r"must have the parent of its node .*root and m.* say parent: m"),
        ({"spare_of": "m"}, "only nodes that read events and have no children"),
        ({"spare_of": "s"}, r"a spare has no spare"),
        ({"listen": "127.0.0.1:7403"}, "only nodes that read events and have no children"),
        ({"source": None}, "only nodes that read events and have no children"),
    ],
)
def test_spares_that_could_not_take_over(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(JobError, match=words):
        founded(ct.load_job(spare_job(**changes)))


def test_a_spare_needs_a_timeout_and_has_no_place_before_it_is_needed() -> None:
    job = spare_job()
    made = founded(ct.load_job(job))
    assert [*made.places] == ["root", "m", "a", "b"]
    assert made.settings.spares == {"s": "a"}
    with pytest.raises(JobError, match=r"how long is that.*timeout: 30s"):
        founded(ct.load_job({**job, "timeout": None}))


def test_a_node_with_a_spare_stays_where_it_is() -> None:
    plan = charter({"root": None, "m": "root", "a": "m", "b": "root"}, spares={"s": "b"})
    plan = plan.with_place(replace(plan.places["m"], listen="127.0.0.1:1"))
    with pytest.raises(JobError, match=r"a node that has a spare cannot move \(given: b to m\)"):
        check_move(plan, "b", "m")


# -- bad input ------------------------------------------------------------------------------------


def service(linked: set[str] | None = None, queries: list[Query] = PLAIN) -> NodeService:
    """The root of a small tree: a under m, b under the root."""
    parents = {"root": None, "m": "root", "a": "m", "b": "root"}
    member = Member("root", MemoryDisk(), 0, charter=charter(parents, queries), deliver=print)
    made = NodeService(member, threading.RLock(), threading.Event(), lambda: None)
    made.links = lambda: linked or set()
    return made


def replace_node(old: str, new: str, made: NodeService) -> None:
    made.ask(records.encode(ReplaceNode(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("c", "d", r"no such node \(given: c\)"),
        ("a", "b", r"two nodes have one id \(given: b\)"),
        ("a", "a", r"two nodes have one id \(given: a\)"),
        ("a", "B", "differ by nothing but capitals"),
        ("a", "../d", "id"),
        ("m", "d", r"only a node that reads events .* \(given: m\).* nodes mv"),
        ("root", "d", r"only a node that reads events .* newest copy"),
        ("b", "d", r"this node is there: only one that is gone .* \(given: b\); stop it first"),
    ],
)
def test_what_cannot_be_replaced(old: str, new: str, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        replace_node(old, new, service(linked={"b"}))


def test_windows_of_a_stream_that_came_later_cannot_be_taken_over() -> None:
    made = service()
    before = made.member.charter
    assert before is not None
    made.member.adopt(before.with_queries([*PLAIN, READ[0]]), 0)
    with pytest.raises(RefusedError, match=r"came later.*\(given: mine\); remove a and add c"):
        replace_node("a", "c", made)


def test_a_node_that_was_replaced_is_refused_for_good() -> None:
    made = service()
    old = Member("b", MemoryDisk(), 0, parent="root", source=lambda: EventsInMemory.of(batches(1)))
    old.heard(made.member.on_hello(old.hello(), 0), 0)
    replace_node("b", "c", made)
    words = r"has taken over .* b: c is in its place"
    with pytest.raises(RefusedError, match=words):
        made.member.on_beat("b", old.beat(0), 0)
    with pytest.raises(RefusedError, match=words) as refused:
        made.member.on_hello(old.hello(), 0)
    assert for_good(refused.value)
    assert old.turn_away(refused.value) and old.refused is not None
    with pytest.raises(RefusedError, match=r"another node has taken over .* choose another id"):
        replace_node("c", "b", made)


def taking_over(events: list[pa.Table], told: TakeOver) -> Local:
    disk, plan = MemoryDisk(), charter({"root": None, "b": "root"}, PLAIN)
    plan = plan.with_schema(events[0].schema).replaced("b", "c")
    member = Member("c", disk, 0, parent="root", source=lambda: EventsInMemory.of(events))
    word = said(Reply(life=1, charter=plan.data, take_over=told))
    member.heard(read(Reply, word), 0)
    assert isinstance(member.machine, Local)
    return member.machine


def catch_up(new: Local) -> None:
    while new.replay is not None:
        assert new.step(0)


def at(key: str, *millis: int) -> pa.Table:
    """Events at these times, in this order."""
    rows = [{"ts": 1000 * ms, "k": key, "v": ms, "m": None} for ms in millis]
    return pa.Table.from_pylist(rows, SCHEMA)


class UpTo(InPartitions):
    """Reads batches whose ends are given, until there are no more."""

    ends: list[Position] = Field(default_factory=list)

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        return next(
            (end for end in self.ends if end != position and covers(end, position)), position
        )


def covers(end: Position, position: Position) -> bool:
    return all(end[name] >= n for name, n in position.items())


def one_after_another(
    tables: list[pa.Table], before: list[Position], after: list[Position], queries: list[Query]
) -> World:
    """A node that reads some batches and is gone, and another that reads other ones to the end."""
    ends = [before]

    def source(made: list[pa.Table]) -> UpTo:
        found = UpTo(ends=ends[0])
        found._batches = made
        return found

    world = World(
        charter({"root": None, "a": "root"}, queries), {"a": tables}, until=0, source=source
    )

    def go() -> None:
        root = world.sites["root"].member
        assert root is not None and root.charter is not None
        ends[0] = after
        root.adopt(root.charter.replaced("a", "b"), world.now)
        world.replace("a", "b", "root")

    world.after(3 * 10**6, go)
    world.run()
    assert world.done
    check(world.deliveries, {"a": tables}, queries)
    root = world.sites["root"].member
    assert root is not None and isinstance(root.machine, Root)
    counts = root.machine.counts
    assert (counts["events"], counts["late"]) == (sum(map(len, tables)), 0)
    return world


def test_a_slice_that_is_sent_ahead_is_sent_whole() -> None:
    """A partition may be ahead of the other: of a slice, it has brought what is before the frontier
    and what is after it."""
    tables = [at("a", 0, 610, 650, 2000), at("a", 0, 630, 2000)]
    before = [{"0": 2, "1": 1}, {"0": 3, "1": 2}]
    one_after_another(tables, before, [*before, {"0": 4, "1": 3}], [LONG, VISITS])


def test_what_is_read_again_in_smaller_batches_is_not_late() -> None:
    table = at("a", 100, 3100, 3050, 3070, 7000)
    ends = [{"0": n} for n in range(1, 6)]
    one_after_another([table], [{"0": 1}, {"0": 4}], ends, [WIDE, LONG])


def test_a_partition_that_was_not_read_yet_is_not_taken_for_another() -> None:
    tables = [at("a", 100, 200, 3000), at("a", 150, 250, 3100)]
    ends = [{"0": 0, "1": 2}, {"0": 2, "1": 2}, {"0": 3, "1": 3}]
    one_after_another(tables, [{"0": 2, "1": 0}], ends, PLAIN)


def test_another_source_is_found_out() -> None:
    one, other = batches(1), batches(2)
    disk = MemoryDisk()
    plan = charter({"root": None, "b": "root"}, PLAIN).with_schema(one[0].schema)
    local = Local("b", disk, plan, EventsInMemory.of(one))
    for _ in range(5):
        local.step(0)
    assert local.flow.note is not None
    told = TakeOver("b", local.flow.note.last, local.flow.note.newest, dict(local.read))
    new = taking_over(other, told)
    with pytest.raises(SourceError, match=r"does not hold what the node before has read.* b read"):
        catch_up(new)
    new = taking_over(one, told)
    catch_up(new)
    assert new.flow.merger.newest >= local.flow.merger.newest


def test_who_does_not_say_how_far_it_has_read_cannot_be_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outflow, "READ_BYTES", 10)
    made, events = service(), batches(1)
    old = Member("b", MemoryDisk(), 0, parent="root", source=lambda: EventsInMemory.of(events))
    for _ in range(2):
        old.heard(made.member.on_hello(old.hello(), 0), 0)
    while old.step(0):
        pass
    for body in old.outgoing(0):
        made.member.on_message("b", body, 0)
    assert made.member.step(10**9)
    replace_node("b", "c", made)
    new = Member("c", MemoryDisk(), 0, parent="root", source=lambda: EventsInMemory.of(events))
    with pytest.raises(RefusedError, match=r"nobody knows how much .* c, after b\); it ran on"):
        made.member.on_hello(new.hello(), 0)


def test_a_source_that_ends_too_soon_is_said() -> None:
    one = batches(1)
    told = TakeOver("b", NodeProgress(0, 0, 0), 0, {"events": 10**6})
    new = taking_over(one, told)
    catch_up(new)
    assert new.flow.behind["b"].lost == 0


# -- processes ------------------------------------------------------------------------------------

REAL = [
    ct.Query("short", ct.sum("v"), ct.count(), by="player", window=ct.tumbling("700ms")),
    ct.Query("long", ct.sum("v"), ct.count(), by="player", window=ct.tumbling("5s")),
    ct.Query("visits", ct.sum("v"), ct.count(), by="player", window=ct.session("10ms")),
]
JOB_QUERIES = [
    {"name": name, "select": ["sum(v)", "count(*)"], "by": "player", "window": window}
    for name, window in (
        ("short", "tumbling(700ms)"),
        ("long", "tumbling(5s)"),
        ("visits", "session(10ms)"),
    )
]


@pytest.mark.slow
def test_a_real_site_is_killed_and_another_takes_over(tmp_path: Path) -> None:
    address, results = f"127.0.0.1:{free_port()}", tmp_path / "out"
    base = {"type": "generator", "rate": 500, "keys": 4, "per_batch": 50, "pace": 500}
    sources = {f"e{n}": {**base, "seed": n, "events": 4000} for n in (1, 2)}
    # It must not have ended when it is killed, however long a command takes to start.
    sources["e1"] |= {"partitions": 2, "pace": 50}

    def job(path: Path, sites: dict[str, Any]) -> Path:
        nodes: list[dict[str, Any]] = [{"id": "root", "listen": address, "engine": "embedded"}]
        nodes += [
            {"id": id, "parent": "root", "engine": "embedded", "source": source}
            for id, source in sites.items()
        ]
        made = {"name": "over", "queries": JOB_QUERIES, "checkpoint": str(tmp_path / "state")}
        made["timeout"] = "10m"  # the new node may take long to start, on a busy machine
        sinks = [{"type": "parquet", "path": str(results)}]
        path.write_text(json.dumps({**made, "nodes": nodes, "sinks": sinks}))
        return path

    first = job(tmp_path / "first.yaml", sources)
    again = sources["e1"] | {"pace": 2000}
    second = job(tmp_path / "second.yaml", {"e2": sources["e2"], "e3": again})
    running: dict[str, subprocess.Popen[bytes]] = {}

    def cli(*words: str) -> list[str]:
        return [sys.executable, "-m", "catchment.cli.main", *words]

    def start(id: str, path: Path) -> None:
        with (tmp_path / f"{id}.txt").open("ab") as log:
            running[id] = subprocess.Popen(cli("node", id, str(path)), stdout=log, stderr=log)

    def received(id: str) -> int:
        try:
            found = ask(address, "status", {}, timeout=10)
        except CatchmentError:
            return -1
        return int(found.get("children", {}).get(id, {}).get("received", -1))

    try:
        for id in ("root", "e1", "e2"):
            start(id, first)
        wait_for(lambda: received("e1") >= 4, 0.05)
        command = cli("nodes", "replace", "e1", "e3", "--job", str(first))
        alive = subprocess.run(command, capture_output=True, text=True, check=False)
        assert alive.returncode and "this node is there" in " ".join(alive.stderr.split())
        running["e1"].send_signal(signal.SIGKILL)
        running["e1"].wait()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "e3 takes over from e1" in done.stdout
        start("e1", first)
        assert running["e1"].wait(PATIENCE) != 0
        assert "another node has taken over" in (tmp_path / "e1.txt").read_text()
        start("e3", second)
        assert running["root"].wait(2 * PATIENCE) == 0, (tmp_path / "root.txt").read_text()
    finally:
        for process in running.values():
            if process.poll() is None:
                process.kill()
            process.wait()
    rows = [row for source in sources.values() for row in generated(source)]
    for query in REAL:
        wanted = oracle([query], rows)[query.name]
        found = rows_of(ds.dataset(results / query.name, format="parquet").to_table())
        assert all(row["complete"] for row in found)
        held = [{name: row[name] for name in wanted[0]} for row in found]
        assert_same(wanted, pa.Table.from_pylist(held), query.name, keys=query.keys)


def generated(source: dict[str, Any]) -> list[dict[str, Any]]:
    made = Generated.model_validate({**source, "pace": None})
    end = made.bound(made.start())
    splits = made.splits(made.start(), end, 1)
    pieces = [piece for split in splits for piece in made.read(split, None, None)]
    return [row for piece in pieces for row in rows_of(piece.events)]
