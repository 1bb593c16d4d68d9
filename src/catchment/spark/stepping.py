"""Steps of a node of a tree on Spark: the driver decides them, executors decode and merge.

A step is a file with all that it depends on: what was decided, and the messages it takes. So it
comes out the same however often it runs.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa

from catchment.durable.folder import Folder
from catchment.engine.parcels import pack_partials, unpack_partials
from catchment.engine.partials import Partials
from catchment.model.frontier import Frontier
from catchment.planner.edges import EARLIEST
from catchment.sources.base import Piece, Position, Source, Split
from catchment.spark.spec import Control, Spec
from catchment.tree.charter import Charter
from catchment.tree.decode import taken

_SIZE = struct.Struct(">Q")
CHARTERS = 256
"""Versions of the charter that are kept: more than a step that is done again may ask for."""


class Steps(Source):
    """Stands where a source would: its batches are the steps that the driver has decided."""

    type: Literal["steps"] = "steps"
    home: str

    def folder(self) -> Folder:
        return Folder(self.home).sub("steps")

    def check(self) -> None:
        return

    def event_schema(self) -> pa.Schema:
        schema = _charter(self.home, newest_charter(self.home)).schema
        assert schema is not None
        return schema

    def start(self) -> Position:
        return {"step": 0}

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        """The next step, as soon as it is decided: one at a time."""
        after = 1 + int(position["step"])
        known = [int(name) for name in self.folder().names()]
        following = [number for number in known if number >= after]
        return {"step": min(following)} if following else position

    def bound(self, position: Position) -> Position:
        return position

    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        _, bodies = read_step(self.folder(), end["step"])
        shares = [list(range(first, len(bodies), parallel)) for first in range(parallel)]
        return [
            Split("steps", number, {"step": end["step"], "messages": share}, len(share))
            for number, share in enumerate(shares)
            if share
        ]

    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        raise AssertionError  # its readers give partials, not events

    def commit(self, position: Position) -> None:
        """Steps before this one are done."""
        folder = self.folder()
        for name in folder.names():
            if int(name) < position["step"]:
                folder.remove(name)


def write_step(
    folder: Folder, note: dict[str, Any], bodies: list[bytes], full: Partials | None = None
) -> None:
    """Writes a step down for executors: messages, and count windows that are full by now."""
    if full:
        note, bodies = note | {"full": len(bodies)}, [*bodies, pack_partials(full)]
    head = json.dumps(note | {"sizes": [len(body) for body in bodies]}).encode()
    folder.write(f"{note['step']:012d}", _SIZE.pack(len(head)) + head + b"".join(bodies))


def read_step(folder: Folder, number: int) -> tuple[dict[str, Any], list[bytes]]:
    """What was decided, and the messages."""
    data = folder.read(f"{number:012d}") or b""
    (size,) = _SIZE.unpack_from(data)
    at = _SIZE.size + size
    note = json.loads(data[_SIZE.size : at])
    bodies = []
    for length in note["sizes"]:
        bodies.append(data[at : at + length])
        at += length
    return note, bodies


def control_of(note: dict[str, Any]) -> Control:
    """What the batch of a step is told; a node that only merges need not be told how far."""
    if "reach" not in note:
        return Control(note["step"] - 1, note["plan"], note["now"], False, Frontier())
    live = note.get("live")
    return Control(
        note["step"] - 1,
        note["plan"],
        note["now"],
        bool(note["closing"]),
        Frontier(note["reach"]),
        note["sure"],
        tuple(note["missing"]),
        None if live is None else tuple(live),
        note["behind"],
        tuple(note.get("uncounted", ())),
    )


def write_charter(home: Folder, charter: Charter) -> None:
    """Hands a charter to executors."""
    home.sub("charters").write(f"{charter.version:09d}", charter.data)
    home.sub("charters").remove(f"{charter.version - CHARTERS:09d}")
    for version, planned in charter.plans.items():
        name = f"{version:09d}"
        if home.sub("plans").read(name) is None:
            home.sub("plans").write(name, planned.to_bytes())


def newest_charter(home: str) -> int:
    return max(int(name) for name in Folder(home).sub("charters").names())


@lru_cache(maxsize=4)
def _charter(home: str, version: int) -> Charter:
    return Charter.from_bytes(Folder(home).sub("charters").read(f"{version:09d}") or b"")


class Messages:
    """The messages of a split, as they count: by the plan of the step, what is late counted."""

    def __init__(self, spec: Spec, split: Split) -> None:
        self.home = spec.home.uri
        self.note, bodies = read_step(spec.home.sub("steps"), split.body["step"])
        self.places = split.body["messages"]
        self.bodies = [bodies[place] for place in self.places]
        self.late = 0
        self.newest = EARLIEST
        self.ends: list[tuple[str, int, int]] = []
        self.counts: dict[str, int] = {}
        self.full: Partials = {}
        """Count windows that are full by now."""

    def __iter__(self) -> Iterator[Partials]:
        charter = _charter(self.home, self.note["charter"])
        for place, body in zip(self.places, self.bodies, strict=True):
            if place == self.note.get("full"):
                self.full = unpack_partials(body)[0]
                continue
            found = taken(body, self.note["plan"], charter, self.note["too_late"])
            head = found.head
            self.late += found.late
            self.newest = max(self.newest, head.newest)
            self.ends.append((head.node, head.seq, found.end))
            for name, count in head.counts.items():
                self.counts[name] = self.counts.get(name, 0) + count
            yield found.partials
