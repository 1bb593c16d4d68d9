"""Which process may speak for a node: old folders, two processes, lost replies, a root's backup."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from msgspec import UNSET
from msgspec.structs import replace

import catchment as ct
from catchment.durable import records
from catchment.errors import CatchmentError, RefusedError, StateError
from catchment.measure.ports import free_port
from catchment.nodes.status import status
from catchment.simulate import World
from catchment.simulate.memory import EventsInMemory, MemoryDisk
from catchment.sources.generated import Generated
from catchment.testing.compare import assert_same, rows_of
from catchment.tree.charter import Charter, NodePlace
from catchment.tree.lives import LOST, OLD_COPY, REMOVED, TAKEN_OVER, OutdatedError, for_good
from catchment.tree.member import GRACE, Member
from catchment.tree.records import FORMAT
from catchment.tree.words import Reply
from notes import ask
from patience import PATIENCE, wait_for
from trees import QUERIES, SCHEMA, batches, charter, check

SECOND = 1_000_000
ONE: dict[str, str | None] = {"root": None, "a": "root"}
EVENTS = batches(1, 120, 60, 3)


class Pair:
    """A root and processes of its one child, which talk without a network between them."""

    def __init__(self, made: Charter | None = None) -> None:
        self.made = made or charter(ONE, QUERIES[:1]).with_schema(SCHEMA)
        self.root_disk, self.disk = MemoryDisk(), MemoryDisk()
        self.now = 5
        self.root = self.start_root()

    def start_root(self, disk: MemoryDisk | None = None) -> Member:
        self.now += 1
        self.root_disk = disk or self.root_disk
        return Member("root", self.root_disk, self.now, deliver=lambda _: None, charter=self.made)

    def start(self, disk: MemoryDisk | None = None) -> Member:
        self.now += 1
        source: Callable[[], Any] = lambda: EventsInMemory.of(EVENTS)
        return Member("a", disk or self.disk, self.now, parent="root", source=source)

    def greet(self, child: Member) -> Reply:
        reply = self.root.on_hello(child.hello(), self.now)
        child.heard(reply, self.now)
        return reply

    def work(self, child: Member, messages: int = 1) -> None:
        """Takes steps until there are so many messages, and passes each up."""
        for _ in range(messages):
            bodies: list[bytes] = []
            while not bodies:
                assert child.step(self.now)
                bodies = [*child.outgoing(self.now)]
            for body in bodies:
                child.heard(self.root.on_message("a", body, self.now), self.now)
        self.root.step(self.now)

    def begun(self) -> Member:
        child = self.start()
        self.greet(child)
        self.work(child, 3)
        return child


def refused(call: Callable[[], object], what: str) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        call()
    assert caught.value.what == what and for_good(caught.value)
    return caught.value


def test_no_step_is_taken_before_a_life_is_granted() -> None:
    pair = Pair()
    child = pair.start()
    child.adopt(pair.made, 5)
    assert not child.step(6) and not list(child.outgoing(6)) and child.machine is not None
    pair.greet(child)
    assert child.own_life.life == 1 and child.step(7)


def test_a_running_node_goes_on_without_its_parent() -> None:
    pair = Pair()
    child = pair.begun()
    child.lost()
    assert child.step(8) and child.step(9)


def test_each_start_is_a_life_and_a_new_link_is_none() -> None:
    pair = Pair()
    child = pair.begun()
    child.lost()
    assert pair.greet(child).life == 1
    again = pair.start()
    assert pair.greet(again).life == 2 and again.own_life.life == 2
    pair.work(again)
    assert pair.start().own_life.life == 2  # it is on the disk


def test_an_old_copy_of_a_folder_is_refused_for_good() -> None:
    pair = Pair()
    child = pair.begun()
    old = pair.disk.copy()
    pair.work(child, 3)
    back = pair.start(old)
    error = refused(lambda: pair.greet(back), OLD_COPY)
    assert "a: life 1 and 3 messages; its parent has heard from life 1 and has 6" in str(error)
    assert "catchment nodes rm a" in str(error)
    assert not back.step(9) and not list(back.outgoing(9))  # it cannot catch up by stepping
    assert status(pair.root, set()).refused == {"a": str(error)}
    assert back.turn_away(error) and status(back, set()).error == str(error)
    right = pair.start()
    assert pair.greet(right).life == 2
    assert status(pair.root, set()).refused is UNSET


def test_an_old_copy_is_refused_though_it_knows_of_every_message() -> None:
    pair = Pair()
    pair.begun()
    old = pair.disk.copy()
    second = pair.start()
    pair.greet(second)
    pair.root.on_beat("a", second.beat(9), 9)
    refused(lambda: pair.greet(pair.start(old)), OLD_COPY)


def test_a_folder_that_is_gone_is_refused_for_good() -> None:
    pair = Pair()
    pair.begun()
    refused(lambda: pair.greet(pair.start(MemoryDisk())), LOST)


def test_a_reply_that_is_lost_does_no_harm() -> None:
    pair = Pair()
    pair.begun()
    lost = pair.start()
    assert pair.root.on_hello(lost.hello(), 9).life == 2
    assert pair.root.on_hello(lost.hello(), 9).life == 3  # the same process asks again
    next_one = pair.start()  # and dies: the folder still holds life 1
    assert pair.greet(next_one).life == 4
    pair.work(next_one, 2)
    assert pair.root.machine is not None and pair.root.inbox is not None
    assert pair.root.inbox.received("a") == 5


def test_of_two_processes_on_copies_the_first_to_speak_goes_on() -> None:
    pair = Pair()
    pair.begun()
    one, two = pair.start(), pair.start(pair.disk.copy())
    assert [pair.greet(one).life, pair.greet(two).life] == [2, 3]
    pair.work(two)
    refused(lambda: pair.work(one), TAKEN_OVER)
    refused(lambda: pair.root.on_beat("a", one.beat(9), 9), TAKEN_OVER)
    refused(lambda: pair.greet(one), TAKEN_OVER)
    refused(lambda: pair.greet(pair.start()), OLD_COPY)  # its folder holds life 2


def test_a_copy_takes_over_only_with_all_that_the_parent_has() -> None:
    pair = Pair()
    running = pair.begun()
    copy = pair.start(pair.disk.copy())
    pair.greet(copy)  # it is offered life 2, and may begin with message 4
    pair.work(running)  # but message 4 is there by now
    refused(lambda: pair.work(copy), TAKEN_OVER)
    pair.work(running)


def test_what_was_on_its_way_from_an_earlier_life_of_the_folder_counts() -> None:
    pair = Pair()
    first = pair.begun()
    while not (late := list(first.outgoing(9))):
        first.step(9)
    second = pair.start()
    pair.greet(second)
    pair.root.on_message("a", late[0], 9)  # the folder of the second has it too
    pair.work(second, 2)
    refused(lambda: pair.root.on_message("a", late[0], 9), TAKEN_OVER)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_root_from_a_backup_says_so(restarted: bool) -> None:
    pair = Pair()
    child = pair.begun()
    old = pair.root_disk.copy()
    if restarted:
        pair.root = pair.start_root()
        pair.greet(child)
    else:
        pair.work(child)
    child.lost()
    right = pair.root_disk
    pair.root = pair.start_root(old)
    with pytest.raises(OutdatedError, match="the folder of a parent is an old copy") as caught:
        pair.greet(child)
    assert not for_good(caught.value)  # nothing is wrong with the child
    assert not pair.root.step(pair.now + 10 * GRACE)
    shown = status(pair.root, set())
    assert shown.error == str(caught.value) and "restore the newest copy" in shown.error
    pair.root = pair.start_root(right)
    pair.greet(child)
    pair.work(child, 3)
    assert status(pair.root, set()).error is UNSET


def test_a_root_from_before_a_change_of_the_charter_says_so() -> None:
    pair = Pair()
    old = pair.root_disk.copy()
    child = pair.start()
    pair.root.adopt(pair.made.with_queries(QUERIES[:2]), 5)
    pair.greet(child)
    pair.root = pair.start_root(old)
    with pytest.raises(OutdatedError, match="has version 4 of the charter, the last one here is 3"):
        pair.root.on_hello(replace(child.hello(), root=None), 9)


def test_a_root_waits_for_its_children_before_its_first_step() -> None:
    pair = Pair()
    child = pair.begun()
    while not (bodies := list(child.outgoing(9))):
        child.step(9)
    pair.root.on_message("a", bodies[0], 9)
    pair.root = pair.start_root()
    assert not pair.root.step(pair.now)
    pair.greet(child)
    assert pair.root.step(pair.now)
    pair.root = pair.start_root()
    assert not pair.root.ready(pair.now + GRACE) and pair.root.ready(pair.now + GRACE + 1)


def test_a_root_that_has_lost_its_steps_waits_for_children_that_have_ended() -> None:
    """Their last messages are in its inbox, but only they know that it has taken steps."""
    pair = Pair()
    child = pair.begun()
    while child.step(pair.now) or pair.root.step(pair.now):
        for body in child.outgoing(pair.now):
            child.heard(pair.root.on_message("a", body, pair.now), pair.now)
    assert pair.root.inbox is not None and pair.root.inbox.unfinished() == []
    pair.root = pair.start_root()
    assert pair.root.ready(pair.now)  # all was taken: it can finish without its children
    pair.root_disk.log("steps").clear()
    pair.root = pair.start_root()
    assert not pair.root.step(pair.now + GRACE)
    with pytest.raises(OutdatedError):
        pair.greet(child)
    assert not pair.root.step(pair.now + 10 * GRACE)


def test_a_claim_that_is_not_kept_up_is_forgotten() -> None:
    """A wrong hello under a node's name stops the root for no longer than the node is silent."""
    pair = Pair()
    child = pair.begun()
    with pytest.raises(OutdatedError):
        pair.root.on_hello(replace(child.hello(), life=99), 9)
    assert not pair.root.ready(9)
    pair.root.on_beat("a", child.beat(9), 9)
    assert pair.root.ready(9)


def test_a_node_that_was_removed_and_added_again_begins_anew() -> None:
    pair = Pair()
    child = pair.begun()
    gone = pair.root.charter
    assert gone is not None
    again = gone.without("a").with_place(NodePlace("a", 7, "root", True, added=gone.version + 2))
    pair.root.adopt(again, 9)
    refused(lambda: pair.root.on_hello(child.hello(), 9), REMOVED)
    fresh = pair.start(MemoryDisk())
    assert pair.greet(fresh).life == 1
    pair.work(fresh, 2)
    assert pair.root.inbox is not None and pair.root.inbox.received("a") == 2


def test_a_node_takes_its_life_along_when_it_moves() -> None:
    parents: dict[str, str | None] = {"root": None, "m": "root", "b": "m", "a": "root"}
    events = {"a": EVENTS, "b": batches(2, 60, 20, 3)}
    world = World(charter(parents, QUERIES[:1]), events, until=0)
    copies: list[MemoryDisk] = []

    def move() -> None:
        root = world.sites["root"].member
        assert root is not None and root.charter is not None
        copies.append(world.sites["a"].disk.copy())
        root.adopt(root.charter.moved("a", "m"), world.now)

    world.after(SECOND, move)
    world.after(3 * SECOND, lambda: world.crash("a", 0.1))
    world.after(5 * SECOND, lambda: world.put_back("a", copies[0]))
    world.calm = 6 * SECOND
    world.run()
    assert world.done
    check(world.deliveries, events, QUERIES[:1])
    middle = world.sites["m"].member
    assert middle is not None and middle.lives.of("a", 0).life >= 2


@pytest.mark.parametrize("id", ["a", "m", "root"])
def test_an_old_copy_of_any_folder_ends_in_exact_windows(id: str) -> None:
    """The node is refused, or says that its folder is old; with the right folder all is exact."""
    parents: dict[str, str | None] = {"root": None, "m": "root", "a": "m", "b": "root"}
    events = {"a": EVENTS, "b": batches(2, 60, 20, 3)}
    world = World(charter(parents, QUERIES[:2]), events, until=8)
    copies: list[MemoryDisk] = []
    world.after(SECOND, lambda: copies.append(world.sites[id].disk.copy()))
    world.after(4 * SECOND, lambda: world.put_back(id, copies[0]))
    world.run()
    assert world.done and world.stuck is None
    said = "is outdated" if id == "root" else "is turned away"
    assert [text for text in world.happened if said in text]
    check(world.deliveries, events, QUERIES[:2])


@pytest.mark.parametrize("name", ["identity", "life", "lives", "moved", "charter"])
def test_a_note_that_is_damaged_is_said(name: str) -> None:
    pair = Pair()
    pair.begun()
    pair.disk.put(name, b"")
    with pytest.raises(StateError, match=r"damaged|not a charter"):
        pair.start()


def test_a_folder_of_another_format_is_refused() -> None:
    pair = Pair()
    pair.begun()
    pair.disk.put("identity", b'{"node":"a"}')
    ours = f"reads format {FORMAT}"
    with pytest.raises(StateError, match=rf"another version.*a: format 2 or older.*{ours}"):
        pair.start()
    for other in (FORMAT - 1, FORMAT + 1):
        records.put(pair.disk, "identity", {"node": "a", "format": other})
        with pytest.raises(StateError, match=rf"another version.*a: format {other}.*{ours}"):
            pair.start()


@pytest.mark.parametrize("left", [0, 2])
def test_a_root_whose_inbox_lacks_what_its_steps_have_taken_does_not_start(left: int) -> None:
    """Such a root would give other results again, and then take what comes once more."""
    pair = Pair()
    pair.begun()
    pair.root_disk.log("inbox-a").rewind(left)
    said = rf"inbox-a: step \d+ has taken message 3, the last one there is {left}\); restore"
    with pytest.raises(StateError, match=said):
        pair.start_root()


# -- processes ------------------------------------------------------------------------------------

JOB_QUERIES = [
    {"name": "mean", "select": ["avg(v)", "count(*)"], "by": "player", "window": "tumbling(1s)"}
]


class Tree:
    """A root and two sites as processes."""

    def __init__(self, home: Path) -> None:
        self.home, self.address = home, f"127.0.0.1:{free_port()}"
        self.sources = {
            f"e{n}": {
                "type": "generator",
                "seed": n,
                "rate": 500,
                "keys": 4,
                "events": 8000,
                "per_batch": 50,
                "pace": 500,
            }
            for n in (1, 2)
        }
        nodes: list[dict[str, Any]] = [{"id": "root", "listen": self.address, "engine": "embedded"}]
        nodes += [
            {"id": id, "parent": "root", "engine": "embedded", "source": source}
            for id, source in self.sources.items()
        ]
        self.job = home / "job.yaml"
        self.job.write_text(
            json.dumps(
                {
                    "name": "lives",
                    "queries": JOB_QUERIES,
                    "checkpoint": str(home / "state"),
                    "nodes": nodes,
                    "sinks": [{"type": "parquet", "path": str(home / "out")}],
                }
            )
        )
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, id: str) -> None:
        command = [sys.executable, "-m", "catchment.cli.main", "node", id, str(self.job)]
        with (self.home / f"{id}.txt").open("ab") as log:
            self.running[id] = subprocess.Popen(command, stdout=log, stderr=log)

    def said(self, id: str) -> str:
        return (self.home / f"{id}.txt").read_text()

    def kill(self, id: str) -> None:
        process = self.running[id]
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()

    def received(self, id: str) -> int:
        try:
            found = ask(self.address, "status", {}, timeout=10)
        except CatchmentError:
            return -1
        return int(found.get("children", {}).get(id, {}).get("received", -1))

    def until(self, id: str, count: int) -> None:
        wait_for(
            lambda: self.received(id) >= count, 0.05, lambda: self.said("root") + self.said(id)
        )

    def status(self) -> str:
        command = [sys.executable, "-m", "catchment.cli.main", "status", "--job", str(self.job)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def folder(self, id: str) -> Path:
        return self.home / "state" / id


@pytest.mark.slow
def test_a_real_site_with_an_old_folder_is_refused_and_the_right_one_is_exact(
    tmp_path: Path,
) -> None:
    tree = Tree(tmp_path)
    try:
        for id in ("root", "e1", "e2"):
            tree.start(id)
        tree.until("e1", 3)
        tree.kill("e1")
        shutil.copytree(tree.folder("e1"), tmp_path / "old")
        before = tree.received("e1")
        tree.start("e1")
        tree.until("e1", before + 3)
        tree.kill("e1")
        tree.folder("e1").rename(tmp_path / "right")
        shutil.copytree(tmp_path / "old", tree.folder("e1"))
        tree.start("e1")
        assert tree.running["e1"].wait(PATIENCE) != 0
        assert "the folder of this node is an old copy" in tree.said("e1")
        assert "the folder of this node is an old copy" in tree.said("root")
        assert "refused: e1: the folder of this node is an old copy" in tree.status()
        shutil.rmtree(tree.folder("e1"))
        (tmp_path / "right").rename(tree.folder("e1"))
        tree.start("e1")
        assert tree.running["root"].wait(PATIENCE) == 0, tree.said("root") + tree.said("e1")
    finally:
        for id in tree.running:
            tree.kill(id)
    query = ct.load_job({"queries": JOB_QUERIES}).build()[0]
    engine = ct.Engine([query])
    plain = [
        {n: v for n, v in s.items() if n not in ("type", "pace")} for s in tree.sources.values()
    ]
    engine.push(pa.concat_tables([Generated(**s).generator(0).table(8000) for s in plain]))
    wanted = engine.close()["mean"]
    found = ds.dataset(tmp_path / "out" / "mean", format="parquet").to_table()
    rows = [{n: v for n, v in row.items() if n in wanted.column_names} for row in rows_of(found)]
    assert all(row["complete"] for row in rows_of(found))
    assert_same(rows_of(wanted), pa.Table.from_pylist(rows), "mean", keys=query.by)
