"""Words and messages that are not what they should be: refused whole, never fatal later."""

from __future__ import annotations

import random
import struct
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import catchment as ct
from catchment.durable.disk import Disk
from catchment.engine.coarser import with_coarser
from catchment.engine.partials import Partials
from catchment.errors import CatchmentError, DataError, JobError, RefusedError, StateError
from catchment.job.topology import NodeSection, check_nodes
from catchment.model import records
from catchment.model.node_id import LONGEST, alike, node_id
from catchment.nodes.disk import FileDisk
from catchment.nodes.status import status
from catchment.simulate.memory import EventsInMemory, MemoryDisk
from catchment.tree.charter import Charter, NodePlace
from catchment.tree.inbox import Inbox, log_of
from catchment.tree.member import GRACE, Member
from catchment.tree.message import Head, checked, encode, heard, spoken
from catchment.tree.records import Received
from catchment.tree.words import Beat, Hello, Reply, read
from notes import note
from trees import EVERY_READING, QUERIES, SCHEMA, batches, charter

ONE: dict[str, str | None] = {"root": None, "a": "root"}
_SIZES = struct.Struct(">III")
LATER = 10 * GRACE

DISTINCT = ct.Query(
    "once", ct.count(), by="k", distinct_on=["v"], distinct_within="5s", window=ct.tumbling("2s")
)
COUNTED = [ct.Query("hundreds", ct.sum("v"), window=ct.count_tumbling(100))]


@cache
def sent(kind: str) -> tuple[Charter, tuple[bytes, ...]]:
    """Messages of a node that reads, as they are in its outbox."""
    queries: Any = {
        "many": [*QUERIES, DISTINCT],
        "read": EVERY_READING,
        "counted": COUNTED,
        "cube": [
            ct.Query("fine", ct.sum("v"), by=["k", "m"], window=ct.tumbling("1s")),
            ct.Query("coarse", ct.sum("v"), by="k", window=ct.tumbling("2s")),
        ],
        "asked": [ct.Query("mid", ct.median("v"), by="k", window=ct.tumbling("2s")), QUERIES[3]],
    }[kind]
    settings: Any = {"counted": {"count": "monitor"}, "asked": {"quantiles": "ask"}}.get(kind, {})
    made = charter(ONE, queries, **settings).with_schema(SCHEMA)
    tables = batches(1, 600 if kind == "counted" else 60)
    member = Member("a", MemoryDisk(), 5, parent="root", source=lambda: EventsInMemory.of(tables))
    member.adopt(made, 5)
    member.heard(Reply(life=1), 5)
    while member.step(5):
        pass
    assert member.flow is not None
    return made, tuple(body for _, body in member.flow.outbox.after(0))


def a_root(made: Charter, disk: Disk) -> Member:
    return Member("root", disk, 5, deliver=lambda _: None, charter=made)


def sealed(magic: bytes, head: bytes, index: int, rest: bytes, pack: bool) -> bytes:
    """A message of any parts, under a checksum that fits."""
    packed = pa.Codec("zstd").compress(rest, asbytes=True) if pack and rest else rest
    packed = packed if len(packed) < len(rest) else rest
    whole = _SIZES.pack(len(head), index, len(rest)) + head + packed
    return struct.pack(">4sI", magic, zlib.crc32(whole)) + whole


def parts(body: bytes) -> tuple[bytes, int, bytes]:
    text, index, length = _SIZES.unpack_from(body, 8)
    at = 8 + _SIZES.size + text
    rest = body[at:]
    if len(rest) < length:
        rest = pa.Codec("zstd").decompress(rest, decompressed_size=length, asbytes=True)
    return body[at - text : at], index, rest


def mutated(dice: random.Random, data: bytes) -> bytes:
    """Some bytes changed, dropped or doubled."""
    made = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 8])):
        at = dice.randrange(len(made)) if made else 0
        kind = dice.choice(["flip", "set", "drop", "double", "cut"])
        if kind == "flip" and made:
            made[at] ^= 1 << dice.randrange(8)
        elif kind == "set" and made:
            made[at] = dice.choice([0, 0x7F, 0x80, 0xFF])
        elif kind == "drop":
            del made[at : at + dice.randint(1, 8)]
        elif kind == "double":
            made[at:at] = made[at : at + dice.randint(1, 16)]
        elif dice.random() < 0.2:
            del made[at:]
    return bytes(made)


def other(dice: random.Random, value: Any) -> Any:
    """Another value in the place of one in a head."""
    strange = [None, -1, 0, 2**63, -(2**63), 2**80, 1.5, "x", "../x", "", [], {}, {"a": -5}, True]
    if isinstance(value, int) and dice.random() < 0.5:
        return value + dice.choice([-1, 1, 1000])
    return dice.choice(strange)


def malformed(dice: random.Random, body: bytes) -> bytes:
    head, index, rest = parts(body)
    kind = dice.choice(["bytes", "head", "value", "sections", "sizes"])
    if kind == "bytes":
        return mutated(dice, body)
    if kind == "head":
        head = mutated(dice, head)
    elif kind == "value":
        told = msgspec.msgpack.decode(head)
        told += [None] * (len(Head.__struct_fields__) - len(told))
        place = dice.randrange(len(told))
        told[place] = other(dice, told[place])
        with suppress(OverflowError):  # a number that no message can hold
            head = msgspec.msgpack.encode(told)
    elif kind == "sections":
        rest = mutated(dice, rest)
    else:
        index = dice.choice([0, 1, len(rest), 2**31])
    return sealed(body[:4], head, index, rest, dice.random() < 0.5)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["many", "read", "counted", "asked"]))
def test_no_malformed_message_stops_a_root(seed: int, kind: str) -> None:
    dice = random.Random(seed)
    made, bodies = sent(kind)
    disk = MemoryDisk()
    root = a_root(made, disk)
    root.on_hello(Hello("a"), 5)
    last = dice.randrange(len(bodies))
    for body in bodies[:last]:
        root.on_message("a", spoken(1, body), 6)
    try:
        root.on_message("a", spoken(1, malformed(dice, bodies[last])), 6)
    except RefusedError:
        root.on_message("a", spoken(1, bodies[last]), 6)  # the real one is taken all the same
        assert root.inbox is not None and root.inbox.received("a") == last + 1
    for body in bodies[last + 1 :]:
        root.on_message("a", spoken(1, body), 6)
    while root.step(7):
        pass
    again = a_root(made, disk.copy())
    while again.step(LATER):
        pass
    again.on_hello(Hello("a", 1, living=True, sent=len(bodies)), LATER)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_malformed_word_stops_a_root(seed: int) -> None:
    dice = random.Random(seed)
    made, _ = sent("many")
    root = a_root(made, MemoryDisk())
    root.on_hello(Hello("a"), 5)
    words: list[dict[str, Any]] = [
        records.plain(Hello("a", 1, True, 3, 1, "job", 2, moved=None)),
        records.plain(Beat(1, 2)),
    ]
    word = dice.choice(words)
    names = [*Hello.__struct_fields__, *Beat.__struct_fields__, "strange"]
    for _ in range(dice.randint(1, 4)):
        name = dice.choice(names)
        word = word | {name: other(dice, word.get(name))}
    for call in (
        lambda: root.on_hello(read(Hello, note(word)), 6),
        lambda: root.on_beat("a", read(Beat, note(word)), 6),
    ):
        try:
            call()
        except CatchmentError:
            continue
    child = Member(
        "a", MemoryDisk(), 5, parent="root", source=lambda: EventsInMemory.of(batches(1))
    )
    reply = records.plain(Reply(ack=0, life=1))
    for _ in range(dice.randint(0, 3)):
        name = dice.choice(Reply.__struct_fields__)
        reply = reply | {name: other(dice, reply.get(name))}
    try:
        child.heard(read(Reply, note(reply)), 6)
    except CatchmentError:
        return


def waiting(made: Charter, bodies: tuple[bytes, ...], disk: Disk) -> Member:
    """A root whose inbox holds all messages, none of them taken."""
    root = a_root(made, disk)
    root.on_hello(Hello("a"), 5)
    for body in bodies:
        root.on_message("a", spoken(1, body), 6)
    return root


def test_what_cannot_be_read_later_is_set_aside_and_the_rest_goes_on(tmp_path: Path) -> None:
    made, bodies = sent("many")
    disk = FileDisk(tmp_path)
    waiting(made, bodies[:2], disk)
    log = log_of(disk, "a")
    log.append(3, Received(b"nonsense"))  # as an earlier version wrote it down
    log.append(4, Received(bodies[3]))
    disk.close()
    for _ in range(2):  # and the same once more
        disk = FileDisk(tmp_path)
        root = a_root(made, disk)
        assert root.inbox is not None and root.inbox.received("a") == 4
        children = status(root, set()).children
        assert children and children["a"].set_aside == {
            "3": "these bytes are not a message (given: 8 bytes); the peer is not a "
            "node of a tree, or speaks another version"
        }
        disk.close()
    disk = FileDisk(tmp_path)
    told: list[Any] = []
    root = Member("root", disk, 5, deliver=told.append, charter=made)
    for body in bodies[4:]:
        root.on_hello(Hello("a", 1, living=True, sent=len(bodies)), 6)
        root.on_message("a", spoken(1, body), 6)
    while root.step(LATER):
        pass
    rows = [row for d in told for row in d.results.get("avg", pa.table({})).to_pylist()]
    assert rows and {row["missing"] for row in rows if not row["complete"]} == {"a"}
    disk.close()


def test_a_message_that_cannot_be_taken_in_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    made, bodies = sent("many")
    root = waiting(made, bodies, MemoryDisk())
    real = Inbox.take

    def take(self: Inbox, id: str, head: Any, *ends: int, **told: bool) -> None:
        if head.seq == 2:
            raise KeyError("poison")
        real(self, id, head, *ends, **told)

    monkeypatch.setattr(Inbox, "take", take)
    while root.step(LATER):
        pass
    assert root.inbox is not None and root.inbox.children["a"].taken == len(bodies)
    assert root.inbox.aside["a"].keys() == {2}
    assert (
        "a message cannot be taken in (given: a, message 2: KeyError: 'poison')"
        in (root.inbox.aside["a"][2])
    )


def test_messages_that_do_not_fit_the_plan() -> None:
    made, bodies = sent("many")
    head = checked(bodies[0], made).head
    with pytest.raises(DataError, match="version 7 of the plan is not known here"):
        checked(encode_as(made, head, plan=7), made)
    with pytest.raises(DataError, match="complete beyond what it says to expect"):
        checked(encode_as(made, head, frontier=5, complete_until=6), made)
    with pytest.raises(DataError, match="head of a message cannot be read"):
        checked(encode_as(made, head, node="../../victim"), made)
    with pytest.raises(DataError, match="head of a message cannot be read"):
        checked(encode_as(made, head, counts={"events": -1}), made)
    with pytest.raises(DataError, match="not a message"):
        heard(b"short")


def test_partials_that_follow_from_others_are_refused() -> None:
    made, bodies = sent("cube")
    found = next(one for body in bodies if (one := checked(body, made)).partials.rows)
    assert {*found.partials.groups} == {0} and made.plans[0].made_of == {1: 0}
    forged = with_coarser(found.partials, made.bound(0))
    with pytest.raises(DataError, match="group 1 is made of another one"):
        checked(encode(found.head, forged, made), made)


def encode_as(made: Charter, head: Any, **changes: Any) -> bytes:
    return encode(msgspec.structs.replace(head, **changes), Partials(), made)


# -- ids ------------------------------------------------------------------------------------------

NO_IDS = [
    "",
    ".",
    "..",
    ".hidden",
    "-rf",
    "_x",
    "a/b",
    "a\\b",
    "x/../../victim",
    "a b",
    "a\n",
    "a\0b",
    "ä",
    "a" * (LONGEST + 1),
    "admin",
]


@pytest.mark.parametrize("id", NO_IDS)
def test_what_is_no_id_is_refused_at_every_entrance(id: str, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="this cannot be the id of a node"):
        node_id(id)
    with pytest.raises((JobError, ValueError), match=r"id"):
        NodeSection(id=id)  # type: ignore[call-arg]
    with pytest.raises(JobError, match="this cannot be the id of a node"):
        Member(id, MemoryDisk(), 5)
    made, _ = sent("many")
    root = a_root(made, FileDisk(tmp_path))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RefusedError, match=r"cannot be understood|no child of mine"):
        root.on_hello(read(Hello, note({"node": id})), 5)
    if id != "admin":
        bad = made.with_place(NodePlace(id, 7, "root", True)).data
        with pytest.raises(StateError, match=r"these bytes are not a charter .*places"):
            Charter.from_bytes(bad)
    assert sorted(tmp_path.rglob("*")) == before


def test_ids_that_differ_by_capitals_only() -> None:
    assert alike("Site", ["site"]) == "site" and alike("site", ["site", "other"]) is None
    sections: list[Any] = [
        {"id": "root", "listen": "h:1"},
        *(
            {"id": id, "parent": "root", "source": {"type": "generator", "events": 1}}
            for id in ("Site", "site")
        ),
    ]
    with pytest.raises(JobError, match="two ids differ by nothing but capitals"):
        check_nodes([NodeSection(**section) for section in sections])


def test_a_word_says_what_is_wrong_with_it() -> None:
    with pytest.raises(RefusedError, match=r"a hello cannot be understood .*`\$.sent`"):
        read(Hello, note({"node": "a", "sent": -1}))
    with pytest.raises(RefusedError, match="a beat cannot be understood"):
        read(Beat, note({"refused": {"../a": "why"}}))
