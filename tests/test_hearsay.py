"""What a node says that is not so: of others, in numbers that overflow, in bytes that explode."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

import catchment as ct
from catchment.counting import wire
from catchment.counting.leaf_by_key import LaneNote, LeafNote
from catchment.counting.message import Up
from catchment.counting.orders import Key, Lane
from catchment.engine import columns
from catchment.engine.partials import Partials
from catchment.errors import CatchmentError, DataError, RefusedError
from catchment.marking.message import MarkNote
from catchment.model import records
from catchment.model.unpacking import at_most, uncompressed
from catchment.ranking.message import RankNote
from catchment.simulate.memory import MemoryDisk
from catchment.tree.charter import Charter
from catchment.tree.hearsay import credible
from catchment.tree.member import GRACE, Member
from catchment.tree.message import MOST_EVENTS, Head, checked, encode, spoken
from catchment.tree.records import Lag
from catchment.tree.words import MOST, Hello, Reply
from test_malformed import sent
from trees import SCHEMA, charter

NODES = {"root": None, "mid": "root", "a": "mid", "b": "root", "c": "root"}
QUERY = ct.Query("sums", ct.sum("v"), by="k", window=ct.tumbling("1s"))
COUNTS = ct.Query("hundreds", ct.sum("v"), by="k", window=ct.count_tumbling(100))


def a_charter(**settings: Any) -> Charter:
    return charter(NODES, [QUERY, COUNTS], **settings).with_schema(SCHEMA)


def a_root(made: Charter, disk: MemoryDisk | None = None) -> Member:
    root = Member("root", disk or MemoryDisk(), 5, deliver=lambda _: None, charter=made)
    for id in ("mid", "b", "c"):
        root.on_hello(Hello(id), 5)
    return root


def notes(*records: object) -> pa.Table:
    return pa.table({"note": pa.array([wire.dump(one) for one in records], pa.binary())})


def lied(head: Head) -> Head:
    """What is left of what a node says of others."""
    return credible(head, a_charter())


def test_of_nodes_that_are_elsewhere_nothing_is_believed() -> None:
    lag = Lag(lost=7)
    told = Head(
        "mid",
        1,
        0,
        5,
        5,
        missing=("a", "b", "nobody"),
        ended={"a": 3, "b": 4, "nobody": 5},
        behind={"a": lag, "b": Lag(lost=9), "nobody": lag},
        counts={"events": 3, "held": 1, "noise": 2},
        landed=(1, 2, 3),
    )
    found = lied(told)
    assert found.ended == {"a": 3} and found.landed == ()
    assert found.counts == {"events": 3, "held": 1}
    # What it says to lack lacks: it is itself that lacks it.
    assert found.missing == ("a", "mid")
    assert found.behind == {"a": lag, "mid": Lag(lost=9)}
    own = replace(told, missing=("a",), ended={"a": 3}, behind={"a": lag}, counts={}, landed=())
    assert lied(own) == own


def test_who_has_moved_may_be_told_of_by_others() -> None:
    moving = a_charter().moved("a", "b")
    number = moving.places["a"].move
    for child in ("mid", "b"):
        told = Head(child, 1, 0, 5, 5, missing=("a",), ended={"a": 3}, landed=(number,))
        assert credible(told, moving) == told
    stranger = Head("c", 1, 0, 5, 5, landed=(number,))
    assert credible(stranger, moving).landed == ()
    over = moving.landed([number])
    assert over.may_bring("mid", "a") and not over.may_bring("mid", "c")


def test_a_child_cannot_end_the_stream_of_another() -> None:
    """c says that b has ended: windows read by stream would be given without the events of b."""
    made = charter(
        NODES, [ct.Query("t", ct.count(), window=ct.cut("m = 'on'", reading="ordered"))]
    ).with_schema(SCHEMA)
    root = a_root(made)
    said = Head("c", 1, 0, 5, 5, ended={"b": 0, **{f"n{n}": 0 for n in range(1000)}})
    root.on_message("c", spoken(1, encode(said, Partials({}), made)), 6)
    while root.step(10 * GRACE):
        pass
    assert root.machine is not None and root.machine.last is not None  # type: ignore[attr-defined]
    assert root.machine.last.ended == {}  # type: ignore[attr-defined]


def of_another(kind: str, number: int) -> dict[str, pa.Table]:
    lane = LaneNote(Lane("hundreds", Key(0, ("x",))), wire.dump(Up(number, 1, 5, 5, 0)))
    mark = MarkNote([number], "", 0, 0, {}, [], 0, 0, 0)
    return {
        "leaf": {"notes": notes(LeafNote(number, True, []))},
        "lane": {"notes": notes(LeafNote(2, False, [lane]))},
        "ranks": {"ranks": notes(RankNote(number, [], []))},
        "marks": {"marks": notes(mark)},
    }[kind]


@pytest.mark.parametrize("kind", ["leaf", "lane", "ranks", "marks"])
def test_notes_in_the_name_of_a_node_elsewhere_are_refused(kind: str) -> None:
    made = a_charter(count="monitor")
    numbers = {id: place.number for id, place in made.places.items()}
    said = Head("mid", 1, 0, 5, 5)
    body = encode(said, Partials({}), made, **of_another(kind, numbers["b"]))
    with pytest.raises(DataError, match="it speaks for b, which is not below it"):
        checked(body, made)
    for number in (numbers["a"], numbers["mid"], 1000):  # 1000: of a node that was removed
        checked(encode(said, Partials({}), made, **of_another(kind, number)), made)


def test_counts_that_overflow_do_not_stop_a_root() -> None:
    made, disk = a_charter(), MemoryDisk()
    root = a_root(made, disk)
    said = Head("b", 1, 0, 5, 5, counts={"events": MOST})
    body = spoken(1, encode(said, Partials({}), made))
    with pytest.raises(RefusedError, match="the head of a message cannot be read"):
        root.on_message("b", body, 6)
    assert root.machine is not None
    root.machine.counts["events"] = MOST - 5  # type: ignore[attr-defined]
    for number in (1, 2):
        said = Head("b", number, 0, 5, 5, counts={"events": MOST_EVENTS, "late": MOST_EVENTS})
        root.on_message("b", spoken(1, encode(said, Partials({}), made)), 6)
        while root.step(10 * GRACE):
            pass
    root.machine.snapshot()  # type: ignore[attr-defined]
    again = Member("root", disk.copy(), 7, deliver=lambda _: None, charter=made)
    assert again.machine is not None
    assert again.machine.counts["events"] == MOST  # type: ignore[attr-defined]
    assert again.machine.counts["late"] == 2 * MOST_EVENTS  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "said",
    [
        Up(3, 1, 5, 1 << 62, 0),
        Up(3, 1, 5, 5, 0, late=1 << 60),
        Up(3, 1, 5, 5, 0, spans={1: (0, 1 << 60)}),
        MarkNote([3], "", 1, 0, {}, [], 1 << 62, 0, 0),
    ],
)
def test_numbers_that_no_sum_can_hold_are_refused(said: Any) -> None:
    with pytest.raises(DataError, match="these bytes are damaged"):
        wire.load(type(said), wire.dump(said))


@pytest.mark.parametrize("id", ["root", "mid"])
def test_a_schema_that_nobody_can_use_is_not_passed_on(id: str) -> None:
    """A relay that told of it would itself be refused by its parent, hello after hello."""
    made = charter(NODES, [QUERY])
    parent = None if id == "root" else "root"
    node = Member(id, MemoryDisk(), 5, parent=parent, deliver=lambda _: None, charter=made)
    if parent is not None:
        node.heard(Reply(life=1), 5)
    child = "b" if id == "root" else "a"
    other = pa.schema([*SCHEMA, ("other", pa.int64())]).serialize().to_pybytes()
    without = pa.schema([SCHEMA.field("ts")]).serialize().to_pybytes()
    for told, why in (
        (other.replace(b"other", b"\xff\xfeher"), "a schema cannot be read"),
        (other[: len(other) // 2], "a schema cannot be read"),
        (without, "there is no column|no such column|unknown column"),
    ):
        with pytest.raises(CatchmentError, match=why):
            node.on_hello(Hello(child, schema=told), 6)
        assert node.charter is not None and node.charter.schema is None
        assert parent is None or node.hello().schema is None
    node.on_hello(Hello(child, schema=other), 7)
    assert node.charter.schema is not None or node.hello().schema is not None


# -- bytes that stand for very many ---------------------------------------------------------------


def of_zeros(size: int) -> bytes:
    """What a node says of a lane, with two arrays that take some bytes, however long they are."""
    zeros, none = [size, 0], [1, 0]
    count = [1, 2 * size]  # numbers are packed as zigzags
    return records.pack([3, 1, 5, 5, 0, [0], {}, [none, none, none, count, zeros, zeros]])


def test_all_arrays_of_a_message_share_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them may be large; thousands of them would take more than any machine has."""
    made = a_charter(count="monitor")
    monkeypatch.setattr("catchment.tree.message.LARGEST", 1 << 20)
    lane = Lane("hundreds", Key(0, ("x",)))
    for lanes, size, why in (
        (1, 2, None),
        (500, 2, None),
        (1, 1 << 19, "too large to unpack"),
        (300, 1 << 10, "too large to unpack"),
    ):
        said = notes(LeafNote(3, False, [LaneNote(lane, of_zeros(size))] * lanes))
        body = encode(Head("b", 1, 0, 5, 5), Partials({}), made, notes=said)
        assert len(body) < 3000
        if why is None:
            checked(body, made)
        else:
            with pytest.raises(DataError, match=why):
                checked(body, made)


def test_all_columns_of_a_message_share_the_room() -> None:
    table = pa.table({"a": np.zeros(10_000, np.int64), "b": np.arange(10_000)})
    body = columns.pack(table)
    assert len(body) < 100
    with at_most(400_000):
        assert columns.unpack(body, table.schema) == table
        columns.unpack(body, table.schema)
        with pytest.raises(DataError, match="too large to unpack"):
            columns.unpack(body, table.schema)


def packed_twice(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def test_what_arrow_itself_would_unpack_is_refused() -> None:
    """The buffers of a compressed batch say how long they are: an exabyte, if they like."""
    table = pa.table({"t": pa.array(["x"] * 100_000)})
    stream = packed_twice(table)
    (_, batch) = pa.ipc.MessageReader.open_stream(stream)
    assert not uncompressed(memoryview(batch.metadata))
    lean = pa.BufferOutputStream()
    batch.serialize_to(lean)
    body = bytes(lean.getvalue().to_pybytes())
    twice = columns.pack(table)[:12]
    head = struct.pack(">III", table.num_rows, 0, len(body))
    assert len(twice) == len(head)
    with pytest.raises(DataError, match="compressed twice"):
        columns.unpack(head + body, table.schema)
    assert columns.unpack(columns.pack(table), table.schema) == table


def test_events_that_are_packed_twice_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made, bodies = sent("many")
    with_events = [body for body in bodies if checked(body, made).partials.events is not None]
    assert with_events, "a query that drops duplicates has events sent"
    found = checked(with_events[0], made)
    monkeypatch.setattr("catchment.tree.message.codec.to_ipc", packed_twice)
    body = encode(found.head, Partials({}, found.partials.events), made)
    with pytest.raises(DataError, match="compressed twice"):
        checked(body, made)


def test_dictionaries_are_looked_at_too() -> None:
    table = pa.table({"d": pa.array(["x", "y"] * 5000).dictionary_encode()})
    plain, packed = pa.BufferOutputStream(), packed_twice(table)
    with pa.ipc.new_stream(plain, table.schema) as writer:
        writer.write_table(table)
    for stream, wanted in ((plain.getvalue(), [True] * 3), (packed, [True, False, False])):
        found = [*pa.ipc.MessageReader.open_stream(stream)]
        assert [uncompressed(memoryview(one.metadata)) for one in found] == wanted
