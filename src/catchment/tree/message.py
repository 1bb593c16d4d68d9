"""What climbs the tree: partials in columns, the frontier, and who is missing from them.

    | life | magic | checksum | sizes | head | index and sections, packed |
    |<---->|<--------------------- a message ------------------------->|

A message is written down once, in the outbox, and may go out in a later life than it was made in:
so the life of the speaker stands before the message and is no part of it (`spoken`, `heard`).

`checked` understands a message whole (its head, every section, the schema of the partials by the
plan that cut them, their bounds) or raises: a parent calls it before it writes anything down.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

import pyarrow as pa
from msgspec import Meta, Struct, field

from catchment.counting import wire
from catchment.counting.leaf_by_key import LeafNote
from catchment.counting.message import Up
from catchment.engine import codec, columns, settled
from catchment.engine.columns import unpack
from catchment.engine.partials import CENSUS, NODE, SELECTION, SEQ, Partials
from catchment.errors import CatchmentError, DataError
from catchment.marking.message import MarkNote
from catchment.marking.rows import GroupRows, events_schema
from catchment.model import records
from catchment.model.node_id import NodeId
from catchment.model.unpacking import at_most, uncompressed, unpacks
from catchment.planner.edges import EARLIEST, LATEST
from catchment.ranking.message import RankNote
from catchment.tree.charter import Charter
from catchment.tree.records import Behind, Lag, PlansBegun
from catchment.tree.stale_plan import joined
from catchment.tree.words import MOST, EventTime, Name, NonNegative, PartitionsRead

_HEAD = struct.Struct(">4sI")
_SIZES = struct.Struct(">III")
_LIFE = struct.Struct(">QI")
"""The life, and a checksum of it and of what the message begins with."""
_MAGIC = b"CTM6"

LARGEST = 1 << 30
"""Bytes that a message may unpack to."""
_SECTIONS = 4096
_NUMBERS = ("slice_start", "slice_end", settled.TIME, settled.ARRIVAL, SELECTION)
MOST_EVENTS = 1 << 40
"""Events that a message tells of at most: so no sum of what nodes say overflows."""
_LONGEST_HEAD = 8 << 20
"""Bytes of a head."""
_FOREIGN: tuple[type[Exception], ...] = (
    pa.ArrowException,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)
"""What libraries raise when bytes are not what they should be."""


class Head(Struct, frozen=True, array_like=True, omit_defaults=True):
    """All of a message but its partials."""

    node: NodeId
    seq: Annotated[int, Meta(ge=0, le=MOST)]
    plan: Annotated[int, Meta(ge=0, le=MOST)]
    """The version by which its partials are cut."""
    frontier: EventTime | None
    """No more is expected before it; None: the node is idle, and nobody need wait for it."""
    complete_until: EventTime
    """Nothing is missing before it, also nothing of nodes that are no longer waited for."""
    missing: tuple[NodeId, ...] = ()
    newest: EventTime = 0
    counts: dict[Name, Annotated[int, Meta(ge=0, le=MOST_EVENTS)]] = field(default_factory=dict)
    """Events read, late, bad and so on since the message before."""
    landed: tuple[NonNegative, ...] = ()
    """Moves that end below: from this message on, the frontier waits for the nodes that came."""
    ended: dict[NodeId, EventTime] = field(default_factory=dict)
    """The nodes whose streams have ended, and the time of the last event of each."""
    behind: Behind = field(default_factory=dict)
    """Since the message before: what nodes that were given up had cut by older plans."""
    read: PartitionsRead | None = None
    """Of a node that reads events: how much of its source is in this message and those before."""


class MessageSection(Struct, frozen=True, array_like=True):
    """Where the rows of a table are in a message."""

    of: NonNegative | Literal["events", "notes", "ranks", "marks"]
    """The group whose partials they are; events of groups that drop duplicates; notes on count
    windows; on values that nodes keep back; or on events between marks."""
    rows: Annotated[int, Meta(ge=0, le=1 << 31)]
    size: Annotated[int, Meta(ge=0, le=LARGEST)]


class DecodedMessage(NamedTuple):
    """A message, decoded."""

    head: Head
    partials: Partials
    notes: pa.Table | None
    """What is said of events that are counted."""
    ranks: pa.Table | None = None
    """What is said of values that are kept back."""
    marks: pa.Table | None = None
    """What is said of events between marks."""


_INDEX: Any = Annotated[list[MessageSection], Meta(max_length=_SECTIONS)]
_NOTES: Any = Annotated[list[bytes], Meta(max_length=1 << 20)]


def spoken(life: int, message: bytes) -> bytes:
    """A message as a node in a life says it."""
    return _LIFE.pack(life, _mark(life, message)) + message


def heard(data: bytes) -> tuple[int, bytes]:
    """The life of the speaker, and the message."""
    if len(data) < _LIFE.size:
        raise _no_message(data)
    life, mark = _LIFE.unpack_from(data)
    message = data[_LIFE.size :]
    if mark != _mark(life, message):
        raise _no_message(data)
    return life, message


def _mark(life: int, message: bytes) -> int:
    return zlib.crc32(message[: _HEAD.size], life & 0xFFFFFFFF) ^ (life >> 32)


def behind_of(head: Head, plan: int, before: int, begun: PlansBegun) -> Behind:
    """Events cut by older plans than the one in use: as the message tells, its own, and those that
    its node has cut by the version of the message before.

    A node holds back slices that have not ended, so its parent may not hear of what it cut by a
    version before it goes over to a newer one. The parent waits for that message and knows of these
    events when it begins with the newer version, unless the node was silent then: `begun` is what
    it knew.
    """
    found = [head.behind]
    if head.plan < plan:
        found.append({head.node: Lag({head.plan: head.newest})})
    passed = range(before + 1, head.plan + 1) if before >= 0 else range(0)
    if any(head.newest > begun.get(version, LATEST) for version in passed):
        found.append({head.node: Lag({before: head.newest})})
    return joined(found)


def encode(
    head: Head,
    partials: Partials,
    charter: Charter,
    compress: bool = True,
    notes: pa.Table | None = None,
    ranks: pa.Table | None = None,
    marks: pa.Table | None = None,
) -> bytes:
    """A message as bytes: a checksum, the head, and a record batch for each table.

    The schema does not travel: it follows from the charter. What compression would not make
    smaller travels as it is, which its length tells.
    """
    parts: list[bytes] = []
    sections: list[MessageSection] = []

    def add(
        of: int | Literal["events", "notes", "ranks", "marks"], table: pa.Table, body: bytes
    ) -> None:
        sections.append(MessageSection(of, table.num_rows, len(body)))
        parts.append(body)

    for id, table in partials.groups.items():
        if table.num_rows:
            schema = charter.wire(head.plan)[id]
            sent = table.select(schema.names).cast(schema).combine_chunks()
            add(id, table, columns.pack(sent))
    if partials.events is not None and partials.events.num_rows:
        add("events", partials.events, codec.to_ipc(partials.events))
    if notes is not None and notes.num_rows:
        add("notes", notes, _noted(notes))
    if ranks is not None and ranks.num_rows:
        add("ranks", ranks, _noted(ranks))
    if marks is not None and marks.num_rows:
        add("marks", marks, _noted(marks))
    text = records.pack(head)
    index = records.encode(sections) if sections else b""
    rest = index + b"".join(parts)
    packed = pa.Codec("zstd").compress(rest, asbytes=True) if rest and compress else rest
    packed = packed if len(packed) < len(rest) else rest
    whole = _SIZES.pack(len(text), len(index), len(rest)) + text + packed
    return _HEAD.pack(_MAGIC, zlib.crc32(whole)) + whole


def head_of(data: bytes) -> Head:
    """The head of a message."""
    return _opened(data)[0]


def weight_of(data: bytes) -> tuple[int, int]:
    """How many bytes the partials of a message were before they were packed, and are now."""
    text, _, length = _SIZES.unpack_from(data, _HEAD.size)
    return length, len(data) - _HEAD.size - _SIZES.size - text


def decode(data: bytes, charter: Charter) -> DecodedMessage:
    """The inverse of `encode`; refuses bytes that are not whole or do not fit the charter."""
    try:
        head = head_of(data)
        if head.plan not in charter.plans or charter.schema is None:
            raise _misfit(head, f"version {head.plan} of the plan is not known here")
        groups: dict[int, pa.Table] = {}
        others: dict[str, pa.Table] = {}
        for section, body in _sections(data):
            if section.of in groups or section.of in others:
                raise _misfit(head, f"two sections of {_named(section.of)}")
            if isinstance(section.of, int):
                table = groups[section.of] = _group_table(body, section.of, charter, head)
            elif section.of == "events":
                table = others[section.of] = _events_in(body)
            else:
                table = others[section.of] = _notes_in(body)
            if table.num_rows != section.rows:
                told = f"{section.rows} are told"
                raise _misfit(head, f"{table.num_rows} rows of {_named(section.of)}, {told}")
        partials = Partials(groups, others.get("events"))
        said = (others.get(name) for name in ("notes", "ranks", "marks"))
        return DecodedMessage(head, partials, *said)
    except CatchmentError:
        raise
    except _FOREIGN as error:
        raise DataError("a message cannot be read", given=_brief(error)) from error


def checked(data: bytes, charter: Charter) -> DecodedMessage:
    """A message that is whole and makes sense by the charter; raises otherwise.

    All that is packed in it may take so many bytes together as a message may.
    """
    with at_most(2 * LARGEST):
        return _checked(data, charter)


def _checked(data: bytes, charter: Charter) -> DecodedMessage:
    found = decode(data, charter)
    head, partials, notes, ranks, marks = found
    try:
        if head.frontier is not None and head.complete_until > head.frontier:
            raise _misfit(head, "it is complete beyond what it says to expect")
        for id, table in partials.groups.items():
            if id in charter.plans[head.plan].made_of:
                raise _misfit(head, f"group {id} is made of another one")
            _check_rows(head, id, table)
            _check_selections(head, id, table, charter)
        if partials.events is not None:
            _check_events(head, partials.events, charter)
            _check_rows(head, "events", partials.events)
        for note in _each(notes):
            leaf = wire.load(LeafNote, note)
            _check_speaker(head, leaf.node, charter)
            for said in leaf.said:
                _check_speaker(head, wire.load(Up, said.up).node, charter)
        for note in _each(ranks):
            _check_speaker(head, wire.load(RankNote, note).node, charter)
        for note in _each(marks):
            mark = wire.load(MarkNote, note)
            for number in mark.nodes:
                _check_speaker(head, number, charter)
            _check_mark_note(head, mark, charter)
    except CatchmentError:
        raise
    except _FOREIGN as error:
        raise DataError("a message cannot be read", given=_brief(error)) from error
    return found


def notes_of(data: bytes, of: Literal["notes", "ranks", "marks"] = "notes") -> pa.Table | None:
    """What a message says of events that are counted, of values that are kept back, or of events
    between marks, if it does."""
    found = (body for section, body in _sections(data) if section.of == of)
    return next((_notes_in(body) for body in found), None)


def _sections(data: bytes) -> Iterator[tuple[MessageSection, bytes]]:
    """Each section, and its bytes."""
    _, at, length, packed = _opened(data)
    if not length:
        return
    rest = packed
    if len(packed) < length:
        unpacks(length)
        rest = pa.Codec("zstd").decompress(packed, decompressed_size=length, asbytes=True)
    index: list[MessageSection] = records.decode(
        _INDEX, rest[:at], "the index of a message", _unreadable
    )
    if at + sum(section.size for section in index) != len(rest):
        raise DataError(
            "the sections of a message are not as long as it says", given=f"{len(rest)} bytes"
        )
    for section in index:
        yield section, rest[at : at + section.size]
        at += section.size


def _opened(data: bytes) -> tuple[Head, int, int, bytes]:
    """The head of a message, the lengths of index and rest, and the rest, still packed."""
    if len(data) < _HEAD.size + _SIZES.size or not data.startswith(_MAGIC):
        raise _no_message(data)
    _, checksum = _HEAD.unpack_from(data)
    if zlib.crc32(memoryview(data)[_HEAD.size :]) != checksum:
        raise DataError(
            "a message is damaged or cut short",
            given=f"{len(data)} bytes",
            hint="it will be sent again",
        )
    text, index, length = _SIZES.unpack_from(data, _HEAD.size)
    at = _HEAD.size + _SIZES.size
    if at + text > len(data) or index > length or length > LARGEST or text > _LONGEST_HEAD:
        raise DataError(
            "the parts of a message are not as long as it says", given=f"{len(data)} bytes"
        )
    head = records.unpack(Head, data[at : at + text], "the head of a message", _unreadable)
    return head, index, length, data[at + text :]


def _unreadable(what: str, why: str) -> CatchmentError:
    return DataError(f"{what} cannot be read", given=why)


def _noted(notes: pa.Table) -> bytes:
    """What nodes say, a note after the other."""
    return wire.dump(notes.column("note").to_pylist())


def _notes_in(body: bytes) -> pa.Table:
    """The inverse of `_noted`."""
    return pa.table({"note": pa.array(wire.load(_NOTES, body), pa.binary())})


def _events_in(body: bytes) -> pa.Table:
    """The events of groups that drop duplicates."""
    for message in pa.ipc.MessageReader.open_stream(body):
        if not uncompressed(memoryview(message.metadata)):
            raise DataError("events are compressed twice", given=f"{len(body)} bytes")
    return codec.from_ipc(body)


def _group_table(body: bytes, id: int, charter: Charter, head: Head) -> pa.Table:
    """Partials of a group, with their stamps."""
    schema = charter.wire(head.plan).get(id)
    if schema is None:
        raise _misfit(head, f"group {id}, which the plan does not have")
    table = columns.unpack(body, schema)
    number = charter.places[head.node].number if head.node in charter.places else 0
    stamps: list[tuple[str, Any]] = [(NODE, number), (SEQ, head.seq)]
    for place, (name, value) in enumerate(stamps):
        column = pa.repeat(pa.scalar(value, pa.int64()), table.num_rows)
        table = table.add_column(place, name, column)
    return table


def _named(of: int | str) -> str:
    return f"group {of}" if isinstance(of, int) else of


def _check_rows(head: Head, of: int | str, table: pa.Table) -> None:
    """Partials, or events, whose columns are whole and whose times and numbers are sane."""
    table.validate(full=True)
    what = _named(of)
    for name in {*_NUMBERS} & {*table.schema.names}:
        if table.column(name).null_count:
            raise _misfit(head, f"nulls in {name} of {what}")
        found = codec.ints(table, name)
        if len(found) and (int(found.min()) < EARLIEST or int(found.max()) > LATEST):
            raise _misfit(head, f"numbers in {name} of {what} that are out of all bounds")
    bounded = "slice_start" in table.schema.names
    if bounded and (codec.ints(table, "slice_start") > codec.ints(table, "slice_end")).any():
        raise _misfit(head, f"slices of {what} that end before they begin")
    if CENSUS in table.schema.names and (codec.ints(table, CENSUS) < 0).any():
        raise _misfit(head, f"less than no events in {what}")


def _check_selections(
    head: Head, id: int, table: pa.Table, charter: Charter, plan: int | None = None
) -> None:
    """Selections that the plan has; of events that wait, also none, and marks that are known."""
    if not table.num_rows:
        return
    bound, least = charter.bound(head.plan if plan is None else plan), 0
    selections = {SELECTION: bound.groups[id].group.selections}
    if settled.TIME in table.schema.names:
        selections, least = bound.waiting[id].choices, -1
        marks = {"?" + text for text in bound.waiting[id].conditions}
        for name in [*marks, *selections]:
            if table.column(name).null_count:
                raise _misfit(head, f"nulls in {name} of group {id}")
    for name, known in selections.items():
        chosen = codec.ints(table, name)
        if chosen.min() < least or chosen.max() >= len(known):
            raise _misfit(head, f"a selection of group {id} that the plan does not have")


def _check_speaker(head: Head, number: int, charter: Charter) -> None:
    """A note of the sender itself or of a node below it. Numbers that are not known are of nodes
    that were removed: nobody takes their notes."""
    id = charter.id_of(number)
    if id is not None and not charter.may_bring(head.node, id):
        raise _misfit(head, f"it speaks for {id}, which is not below it")


def _check_mark_note(head: Head, note: MarkNote, charter: Charter) -> None:
    """Slices and events of groups that the plan has, by the version that made them."""
    if not note.slices and not note.sent:
        return
    if note.plan not in charter.plans:
        raise _misfit(head, f"slices by version {note.plan} of the plan, which is not known here")
    bound = charter.bound(note.plan)
    for id, told in note.slices.items():
        if id not in bound.groups:
            raise _misfit(head, f"slices of group {id}, which the plan does not have")
        table = unpack(told.rows, GroupRows(bound.groups[id]).schema)
        _check_rows(head, id, table)
        _check_selections(head, id, table, charter, note.plan)
    names = {name: id for id, name in charter.cut_sets(note.plan).items()}
    for body in note.sent:
        if note.set not in names:
            raise _misfit(head, f"events of {note.set}, which do not wait for marks")
        table = unpack(body, events_schema(bound, names[note.set]))
        _check_rows(head, names[note.set], table)
        _check_selections(head, names[note.set], table, charter, note.plan)


def _check_events(head: Head, table: pa.Table, charter: Charter) -> None:
    assert charter.schema is not None
    known = {field.name: field.type for field in charter.schema}
    known |= {settled.TIME: pa.int64(), settled.ARRIVAL: pa.int64()}
    found = {field.name: field.type for field in table.schema}
    if not {settled.TIME, settled.ARRIVAL} <= found.keys() or len(found) < table.num_columns:
        raise _misfit(head, "events without a time or a rank")
    for name, kind in found.items():
        if name not in known or known[name] != kind:
            raise _misfit(head, f"events with a column {name} of type {kind}")


def _each(notes: pa.Table | None) -> Iterator[bytes]:
    """What nodes say, if there is any: it must be readable to the last."""
    for note in () if notes is None else notes.column("note"):
        yield note.as_py()


def _misfit(head: Head, why: str) -> DataError:
    return DataError(
        "a message does not fit the plan",
        given=f"{head.node}, message {head.seq}: {why}",
        hint="the node may run another version of Catchment, or its disk may be damaged",
    )


def _no_message(data: bytes) -> DataError:
    return DataError(
        "these bytes are not a message",
        given=f"{len(data)} bytes",
        hint="the peer is not a node of a tree, or speaks another version",
    )


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
