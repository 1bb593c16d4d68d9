"""What climbs the tree: partials in columns, the frontier, and who is missing from them."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from catchment.engine.partials import NODE, SEQ, Partials
from catchment.errors import DataError
from catchment.tree import columns
from catchment.tree.behind import Behind, joined
from catchment.tree.charter import Charter

_HEAD = struct.Struct(">4sI")
_SIZES = struct.Struct(">III")
_MAGIC = b"CTM1"


@dataclass(frozen=True, slots=True)
class Head:
    """All of a message but its partials."""

    node: str
    epoch: int
    seq: int
    plan: int
    """The version by which its partials are cut."""
    frontier: int | None
    """No more is expected before it; None: the node is idle, and nobody need wait for it."""
    sure: int
    """Nothing at all is missing before it, whatever was given up waiting for."""
    missing: tuple[str, ...] = ()
    newest: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """Events read, late, bad and so on since the message before."""
    landed: tuple[int, ...] = ()
    """Moves that end below: from this message on, the frontier waits for the nodes that came."""
    ended: dict[str, int] = field(default_factory=dict)
    """The nodes whose streams have ended, and the time of the last event of each."""
    behind: Behind = field(default_factory=dict)
    """Since the message before: what nodes that were given up had cut by older plans."""

    def to_bytes(self) -> bytes:
        known = {name: getattr(self, name) for name in self.__slots__}
        lean = {name: value for name, value in known.items() if value not in ((), {})}
        return json.dumps(lean, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Head:
        held = json.loads(data)
        for names in ("missing", "landed"):
            held[names] = tuple(held.get(names, ()))
        return cls(**held)


def behind_of(head: Head, plan: int) -> Behind:
    """What a message says, or is itself, that was cut by an older plan than is in use."""
    if head.plan >= plan:
        return head.behind
    return joined([head.behind, {head.node: {str(head.plan): head.newest}}])


def encode(head: Head, partials: Partials, charter: Charter, compress: bool = True) -> bytes:
    """A message as bytes: a checksum, the head, and a record batch for each group.

    The schema does not travel: it follows from the charter. What compression would not make
    smaller travels as it is, which its length tells.
    """
    parts: list[bytes] = []
    sizes: list[list[int]] = []
    for id, table in partials.items():
        if not table.num_rows:
            continue
        body = _serialized(table, id, charter, head.plan)
        sizes.append([id, table.num_rows, len(body)])
        parts.append(body)
    text = head.to_bytes()
    index = json.dumps(sizes, separators=(",", ":")).encode() if sizes else b""
    rest = index + b"".join(parts)
    packed = pa.Codec("zstd").compress(rest, asbytes=True) if rest and compress else rest
    packed = packed if len(packed) < len(rest) else rest
    whole = struct.pack(">III", len(text), len(index), len(rest)) + text + packed
    return _HEAD.pack(_MAGIC, zlib.crc32(whole)) + whole


def head_of(data: bytes) -> Head:
    """The head of a message."""
    return _opened(data)[0]


def weight_of(data: bytes) -> tuple[int, int]:
    """How many bytes the partials of a message were before they were packed, and are now."""
    text, _, length = _SIZES.unpack_from(data, _HEAD.size)
    return length, len(data) - _HEAD.size - _SIZES.size - text


def decode(data: bytes, charter: Charter) -> tuple[Head, Partials]:
    """The inverse of `encode`; refuses bytes that are not whole."""
    head = head_of(data)
    sections = _sections(data)
    return head, {id: _table(body, rows, id, charter, head) for id, rows, body in sections}


def plain_section(data: bytes, id: int) -> pa.Table | None:
    """A section of a message that is no partials, if it has it."""
    found = (body for number, _, body in _sections(data) if number == id)
    return next((pa.ipc.open_stream(body).read_all() for body in found), None)


def _sections(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Group, rows and bytes of each section."""
    _, at, length, packed = _opened(data)
    if not length:
        return
    rest = packed
    if len(packed) < length:
        rest = pa.Codec("zstd").decompress(packed, decompressed_size=length, asbytes=True)
    for id, rows, size in json.loads(rest[:at]):
        yield id, rows, rest[at : at + size]
        at += size


def _opened(data: bytes) -> tuple[Head, int, int, bytes]:
    """The head, the lengths of index and rest, and the rest as it is packed."""
    if len(data) < _HEAD.size + _SIZES.size or not data.startswith(_MAGIC):
        raise DataError(
            "these bytes are not a message", given=f"{len(data)} bytes",
            hint="the peer is not a node of a tree, or speaks another version",
        )  # fmt: skip
    _, checksum = _HEAD.unpack_from(data)
    if zlib.crc32(memoryview(data)[_HEAD.size :]) != checksum:
        raise DataError(
            "a message is damaged or cut short", given=f"{len(data)} bytes",
            hint="it will be sent again",
        )  # fmt: skip
    text, index, length = _SIZES.unpack_from(data, _HEAD.size)
    at = _HEAD.size + _SIZES.size
    return Head.from_bytes(data[at : at + text]), index, length, data[at + text :]


def _serialized(table: pa.Table, id: int, charter: Charter, plan: int) -> bytes:
    if id < 0:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue().to_pybytes())
    schema = charter.wire(plan)[id]
    return columns.pack(table.select(schema.names).cast(schema).combine_chunks())


def _table(body: bytes, rows: int, id: int, charter: Charter, head: Head) -> pa.Table:
    if id < 0:
        return pa.ipc.open_stream(body).read_all()
    schema = charter.wire(head.plan)[id]
    table = columns.unpack(body, schema)
    if table.num_rows != rows:
        raise DataError("a message does not fit the plan", given=head.node, hint="restart it")
    number = charter.places[head.node].number if head.node in charter.places else 0
    stamps: list[tuple[str, Any]] = [(NODE, number), (SEQ, head.seq)]
    for place, (name, value) in enumerate(stamps):
        table = table.add_column(place, name, pa.repeat(pa.scalar(value, pa.int64()), rows))
    return table
