"""Nodes that flush early: results do not change, links are learnt, messages fit them."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import catchment as ct
from catchment.engine.partials import Partials
from catchment.errors import JobError
from catchment.flush import read
from catchment.flush.compressing import Compressing
from catchment.flush.learnt import NOTHING
from catchment.flush.link import LinkEstimate
from catchment.job import load_job
from catchment.model.frontier import Frontier
from catchment.nodes.bootstrap import founded
from catchment.nodes.status import status
from catchment.simulate import Faults, World
from catchment.simulate.memory import EventsInMemory, MemoryDisk
from catchment.tree.charter import Charter
from catchment.tree.early_flush import holds_back
from catchment.tree.local import Local
from catchment.tree.member import Member
from catchment.tree.message import Head, decode, encode, weight_of
from catchment.tree.outbox import Outbox
from catchment.tree.records import NOWHERE, FlowNote, LocalPlace
from catchment.tree.words import Beat, Reply
from schedules import seed_range, share
from trees import GRANTED, QUERIES, SCHEMA, batches, charter, check

pytestmark = pytest.mark.slow

TREE: dict[str, str | None] = {"root": None, "m": "root", "a": "m", "b": "m", "c": "root"}
SCHEDULES = share(2500, 1)
EAGER = [
    "streaming",
    "eager(uniform)",
    "eager(empirical)",
    {"policy": "hybrid(0.25)", "bandwidth": "60 B/s"},
    {"bandwidth": "40 B/s", "weight": 100},
    {"policy": "lazy(pessimistic)", "bandwidth": "30 B/s"},
]


def early(world: World) -> int:
    members = [site.member for site in world.sites.values()]
    flows = [getattr(member.machine, "flow", None) for member in members if member is not None]
    return sum(flow.early.sender.early for flow in flows if flow is not None)


WITH_SESSIONS = [*QUERIES[:2], QUERIES[3], ct.Query("any", ct.sum("v"), window=ct.session("400ms"))]


@pytest.mark.parametrize("queries", [QUERIES[:3], WITH_SESSIONS], ids=["periodic", "sessions"])
@pytest.mark.parametrize("flush", EAGER, ids=str)
def test_what_leaves_early_changes_no_result(flush: object, queries: list[ct.Query]) -> None:
    gone = 0
    for seed in seed_range(SCHEDULES):
        dice = random.Random(seed)
        late = {"late": "update", "keep": 10**9, "timeout": 10**6} if seed % 3 == 0 else {}
        made = charter(TREE, queries, **late, flush=read(flush))
        events = {id: batches(seed * 10 + n, 60, 12, 4) for n, id in enumerate("abc")}
        trouble = Faults(
            delay=0.05,
            lost=0.1,
            twice=0.1,
            crash=dice.choice([0, 0.1]),
            cut=0.1,
            narrow=dice.choice([0, 1000]),
        )
        world = World(made, events, seed, trouble, until=8)
        world.run()
        assert world.done
        check(world.deliveries, events, queries)
        gone += early(world)
    assert gone > 5


def test_auto_sends_as_before_where_waiting_costs_nothing() -> None:
    events = {id: batches(n) for n, id in enumerate("abc")}
    sent = []
    for flush in ("batching", "auto"):
        made = charter(TREE, QUERIES[:3], flush=read(flush))
        world = World(made, events, 1, until=0)
        world.run()
        check(world.deliveries, events, QUERIES[:3])
        sent.append(world.bytes)
        assert early(world) == 0
    assert sent[0] == sent[1]


def test_which_groups_hold_back() -> None:
    def held(queries: list[ct.Query]) -> set[str]:
        plan = ct.plan(queries)
        return {name for name, (id, _) in plan.names.items() if holds_back(plan.groups[id])}

    assert held(QUERIES[:3]) == {"avg", "slide", "all"}
    # Counts and marks need events: their groups have no slices that could leave early.
    assert held(QUERIES) == {"avg", "slide", "all", "visits"}


# -- large messages on slow links -----------------------------------------------------------------


def many(keys: int) -> list[pa.Table]:
    rows = [{"ts": n * 10, "k": f"key {n}", "v": n * 7919 % 1000, "m": None} for n in range(keys)]
    last = {"ts": 10_000_000, "k": "end", "v": 0, "m": None}
    return [pa.Table.from_pylist(rows, SCHEMA), pa.Table.from_pylist([last], SCHEMA)]


def test_a_large_step_becomes_messages_that_fit_the_link() -> None:
    parents: dict[str, str | None] = {"root": None, "m": "root", "a": "m"}
    section = {"policy": "batching", "bandwidth": "1 kB/s"}
    made = charter(parents, QUERIES[:1], flush=read(section))
    events = {"a": many(40_000)}
    world = World(made, events, 1, Faults(narrow=200_000, crash=0.05, lost=0.05), until=10)
    world.run()
    assert world.done
    check(world.deliveries, events, QUERIES[:1])
    site = world.sites["a"].member
    assert site is not None and isinstance(site.machine, Local)
    assert site.machine.flow.outbox.sent >= 4


def note_at(frontier: int) -> FlowNote:
    """What a node notes with a step, of which only the frontier matters here."""
    place = LocalPlace(None, Frontier(), False, False)
    return FlowNote(
        place, frontier, 0, 0, 0, None, {}, {}, {}, NOTHING, last=NOWHERE, before=NOWHERE
    )


def test_an_outbox_gives_back_all_messages_of_a_step() -> None:
    disk = MemoryDisk()
    outbox = Outbox(disk)
    outbox.append(note_at(1), [], b"held")
    outbox.append(note_at(2), [b"one", b"", b"three"], b"rest")
    outbox.append(note_at(3), [b"four"], b"")
    for box in (outbox, Outbox(disk)):
        assert list(box.after(0)) == [(1, b"one"), (2, b""), (3, b"three"), (4, b"four")]
        assert list(box.after(2)) == [(3, b"three"), (4, b"four")]
        assert box.last is not None and box.last.carry == b""
        # Only with its last message has all of a step arrived.
        assert box.ending(2) is None
        assert box.ending(3) == box.note_of(1) == note_at(2)
    outbox.settle(1)
    assert list(Outbox(disk).after(1)) == [(2, b""), (3, b"three"), (4, b"four")]


def partials_of(made: Charter, events: pa.Table) -> Partials:
    """What a node would send of events, all of it."""
    bound = made.bound(made.plan)
    slicer, merger = bound.slicer(), bound.merger()
    for sliced in slicer.slice(events):
        merger.add(sliced)
    return merger.take()


def test_what_does_not_shrink_travels_as_it_is() -> None:
    made = charter(TREE, QUERIES[:1]).with_schema(SCHEMA)
    partials = partials_of(made, many(3000)[0])
    head = Head("a", 1, made.plan, 0, 0)
    small, plain = encode(head, partials, made), encode(head, partials, made, compress=False)
    assert len(small) < len(plain)
    assert weight_of(plain)[0] == weight_of(plain)[1] == weight_of(small)[0] > weight_of(small)[1]
    one, other = (decode(body, made).partials.groups[0] for body in (small, plain))
    assert one.equals(other)


def test_compression_by_what_it_gains() -> None:
    auto = Compressing("auto")
    assert auto.wanted()
    auto.tried(1000, 300)
    assert auto.wanted()
    for _ in range(30):
        auto.tried(1000, 1001)
    assert [auto.wanted() for _ in range(34)].count(True) == 2
    assert Compressing("on").wanted() and not Compressing("off").wanted()


# -- what is learnt of a link ---------------------------------------------------------------------


def test_a_link_is_learnt_from_acknowledgements() -> None:
    link = LinkEstimate(read("auto"))
    link.sent(1, 500, 0.0)
    link.acknowledged(1, 0.02)
    assert link.rate == np.inf  # small, and soon back: that says nothing
    link.sent(2, 40_000, 1.0)
    link.acknowledged(2, 2.02)
    assert link.rate == pytest.approx(40_000)
    link.sent(3, 2_000, 3.0)
    link.acknowledged(3, 3.021)
    assert link.rate == pytest.approx(40_000)  # a little may pass at once
    link.sent(4, 40_000, 4.0)
    link.sent(5, 40_000, 4.0)
    assert link.flying == 80_000
    link.acknowledged(4, 5.02)
    link.acknowledged(5, 6.02)  # began when the one before was through
    assert link.rate == pytest.approx(40_000, rel=0.01)
    assert LinkEstimate(read("auto"), link.learnt()).rate == link.rate
    assert json.loads(json.dumps(link.shown()))["bandwidth"] == round(link.rate)


def test_a_stalled_acknowledgement_is_forgiven() -> None:
    link = LinkEstimate(read("auto"))
    link.sent(0, 500, 0.0)
    link.acknowledged(0, 0.01)
    for n in (1, 2):
        link.sent(n, 500, 10.0 * n)
        link.acknowledged(n, 10.0 * n + 5.01)
    assert link.rate == np.inf
    link.sent(3, 500, 30.0)
    link.acknowledged(3, 35.01)  # three times in a row: it is slow
    assert link.rate == pytest.approx(100)
    for n in range(4, 30):
        link.sent(n, 500, 36.0 + n)
        link.acknowledged(n, 36.02 + n)
    assert link.rate > 1_000


def test_a_message_is_no_larger_than_a_link_carries_in_a_moment() -> None:
    assert LinkEstimate(read({"bandwidth": "1 kB/s"})).largest == LinkEstimate(read("auto")).largest
    link = LinkEstimate(read("auto"))
    link.estimate.measured(100_000, 1.0)
    assert link.largest == 50_000
    link.sent(1, 60_000, 0.0)
    assert link.open(0.0)
    link.sent(2, 60_000, 0.0)
    assert not link.open(0.0)
    link.lost()
    assert link.open(0.0) and link.ahead == 120_000


def test_a_meter_holds_messages_back_and_survives_a_crash() -> None:
    link = LinkEstimate(read({"meter": "86400 B/day"}))
    assert link.open(0.0)
    link.sent(1, 90_000, 0.0)
    link.acknowledged(1, 0.1)
    assert not link.open(10.0)
    again = LinkEstimate(read({"meter": "86400 B/day"}), link.learnt())
    assert not again.open(20.0)
    assert again.open(4000.0)
    assert again.rate == 1.0


# -- in job files and for people ------------------------------------------------------------------

JOB: dict[str, Any] = {
    "queries": [{"name": "n", "select": ["count(*)"], "window": "tumbling(1s)"}],
    "checkpoint": "folder",
    "nodes": [
        {"id": "root", "listen": "127.0.0.1:7401"},
        {"id": "a", "parent": "root", "source": {"type": "parquet", "path": "events"}},
    ],
}


@pytest.mark.parametrize(
    ("flush", "what"),
    [
        ("hybrid(3)", "must be from 0 to 1"),
        ({"budget": "-1 MB/h"}, "the budget must be more than nothing"),
        ({"bandwidth": "0 B/s"}, "the bandwidth must be more than nothing"),
        ({"priorities": {"m": 2}}, "a priority for a query that is not there (given: m)"),
    ],
)
def test_bad_sections_are_refused_before_the_start(flush: object, what: str) -> None:
    with pytest.raises(JobError) as error:
        load_job({**JOB, "flush": flush})
    assert what in str(error.value)


def test_the_charter_and_the_status_have_the_policy() -> None:
    job = load_job({**JOB, "flush": {"policy": "hybrid(0.25)", "priorities": {"n": 2}}})
    assert founded(job).settings.flush.policy.alpha == 0.25
    assert str(founded(load_job(JOB)).settings.flush) == "auto"
    events = {"a": batches(1)}
    made = charter({"root": None, "a": "root"}, flush=read("hybrid(0.25)"))
    world = World(made, events, until=0)
    world.run()
    root, site = world.sites["root"].member, world.sites["a"].member
    assert root is not None and site is not None
    assert status(root, set()).flush == "hybrid(0.25)"
    assert status(site, set()).link == {
        "bandwidth": None,
        "error": None,
        "early rows": 0,
        "alpha": 0.25,
    }
    said = Beat(life=1, charter=made.version, link={"bandwidth": 9, "error": 0.5})
    root.on_beat("a", said, 0)
    children = status(root, set()).children
    assert children and children["a"].link == {"bandwidth": 9, "error": 0.5}


def test_sketches_stay_small_while_sets_are() -> None:
    """Section 9: a distinct count keeps few values as they are."""
    query = ct.Query("q", ct.approx_count_distinct("v"), window=ct.tumbling("10s"))
    made = charter(TREE, [query]).with_schema(SCHEMA)
    sizes = {}
    for count in (5, 100, 20_000):
        (table,) = partials_of(made, many(count)[0]).tables
        sizes[count] = sum(len(s) for s in table.column("hll(v).sketch").to_pylist())
    assert sizes[5] < 60 < sizes[100] < 4200


def test_what_a_parent_has_no_room_for_goes_again() -> None:
    made = charter({"root": None, "a": "root"}, [QUERIES[5]]).with_schema(SCHEMA)
    events = batches(3, 160_000, 16000, 160_000)
    member = Member("a", MemoryDisk(), 5, parent="root", source=lambda: EventsInMemory.of(events))
    member.adopt(made, 5)
    member.heard(GRANTED, 5)
    while member.step(5):
        pass
    sent = list(member.outgoing(5))
    assert sent and not list(member.outgoing(6))
    assert not member.machine.flow.link.open(6e-6)  # so much is on its way that no more may go
    member.heard(Reply(ack=0, again=True), 7)
    assert list(member.outgoing(8)) == sent
