"""What climbs the tree: partials in columns, the frontier, and who is missing from them."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from catchment.engine.partials import EVENTS, NODE, SEQ, Partials
from catchment.errors import DataError
from catchment.tree.charter import Charter

_HEAD = struct.Struct(">4sIII")
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
    reach: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of a node that merges: the epoch and the last message of each child that is in here."""

    def to_bytes(self) -> bytes:
        known = {name: getattr(self, name) for name in self.__slots__}
        lean = {name: value for name, value in known.items() if value not in ((), {})}
        return json.dumps(lean, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Head:
        held = json.loads(data)
        held["missing"] = tuple(held.get("missing", ()))
        held["reach"] = {child: (e, s) for child, (e, s) in held.get("reach", {}).items()}
        return cls(**held)


def encode(head: Head, partials: Partials, charter: Charter) -> bytes:
    """A message as bytes: a checksum, the head, and a record batch for each group.

    The schema does not travel: it follows from the charter.
    """
    parts: list[bytes] = []
    sizes: list[list[int]] = []
    for id, table in partials.items():
        if not table.num_rows:
            continue
        body = _serialized(table, id, charter, head.plan)
        sizes.append([id, table.num_rows, len(body)])
        parts.append(body)
    index = json.dumps(sizes, separators=(",", ":")).encode() if sizes else b""
    text = head.to_bytes()
    rest = text + index + b"".join(parts)
    packed = pa.Codec("zstd").compress(rest, asbytes=True)
    whole = struct.pack(">I", len(rest)) + packed
    return _HEAD.pack(_MAGIC, zlib.crc32(whole), len(text), len(index)) + whole


def head_of(data: bytes) -> Head:
    """The head of a message."""
    rest, size, _ = _opened(data)
    return Head.from_bytes(rest[:size])


def decode(data: bytes, charter: Charter) -> tuple[Head, Partials]:
    """The inverse of `encode`; refuses bytes that are not whole."""
    rest, size, index = _opened(data)
    head = Head.from_bytes(rest[:size])
    partials: Partials = {}
    at = size + index
    for id, rows, length in json.loads(rest[size:at]) if index else []:
        body = pa.py_buffer(rest[at : at + length])
        partials[id] = _table(body, rows, id, charter, head)
        at += length
    return head, partials


def _opened(data: bytes) -> tuple[bytes, int, int]:
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise DataError(
            "these bytes are not a message", given=f"{len(data)} bytes",
            hint="the peer is not a node of a tree, or speaks another version",
        )  # fmt: skip
    _, checksum, size, index = _HEAD.unpack_from(data)
    whole = data[_HEAD.size :]
    if zlib.crc32(whole) != checksum:
        raise DataError(
            "a message is damaged or cut short", given=f"{len(data)} bytes",
            hint="it will be sent again",
        )  # fmt: skip
    (length,) = struct.unpack_from(">I", whole)
    rest = pa.Codec("zstd").decompress(whole[4:], decompressed_size=length, asbytes=True)
    return rest, size, index


def _serialized(table: pa.Table, id: int, charter: Charter, plan: int) -> bytes:
    if id == EVENTS:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue().to_pybytes())
    schema = charter.wire(plan)[id]
    lean = table.select(schema.names).cast(schema).combine_chunks()
    return bytes(lean.to_batches()[0].serialize().to_pybytes())


def _table(body: pa.Buffer, rows: int, id: int, charter: Charter, head: Head) -> pa.Table:
    if id == EVENTS:
        return pa.ipc.open_stream(body).read_all()
    schema = charter.wire(head.plan)[id]
    batch = pa.ipc.read_record_batch(body, schema)
    if batch.num_rows != rows:
        raise DataError("a message does not fit the plan", given=head.node, hint="restart it")
    number = charter.places[head.node].number if head.node in charter.places else 0
    table = pa.Table.from_batches([batch])
    stamps: list[tuple[str, Any]] = [(NODE, number), (SEQ, head.seq)]
    for place, (name, value) in enumerate(stamps):
        table = table.add_column(place, name, pa.repeat(pa.scalar(value, pa.int64()), rows))
    return table
