"""Steps of a node of a tree on Spark: the driver decides them, executors decode and merge.

A step is a file with all that it depends on: what was decided, and the messages it takes. So it
comes out the same however often it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

import pyarrow as pa

from catchment.durable.disk import damaged
from catchment.durable.folder import Folder
from catchment.engine.parcels import pack_partials, unpack_partials
from catchment.engine.partials import Partials
from catchment.model import records
from catchment.model.frontier import Frontier
from catchment.planner.edges import EARLIEST
from catchment.sources.base import Piece, Position, Source, Split
from catchment.spark.records import Control
from catchment.spark.spec import Spec
from catchment.tree.charter import Charter
from catchment.tree.decode import taken
from catchment.tree.records import RelayStep, RootStep, StepFile

CHARTERS = 256
"""Versions of the charter that are kept: more than a step that is done again may ask for."""


class StepShare(NamedTuple):
    """Some messages of a step."""

    step: int
    messages: list[int]
    """Their places among the step's messages."""


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
        after = 1 + position["step"]
        known = [int(name) for name in self.folder().names()]
        following = [number for number in known if number >= after]
        return {"step": min(following)} if following else position

    def bound(self, position: Position) -> Position:
        return position

    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        step = read_step(self.folder(), end["step"])
        count = len(step.bodies) + (step.full is not None)
        shares = [list(range(first, count, parallel)) for first in range(parallel)]
        return [
            Split("steps", number, StepShare(end["step"], share), len(share))
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
    folder: Folder, step: RelayStep | RootStep, bodies: list[bytes], full: Partials
) -> None:
    """Writes a step down for executors: messages, and count windows that are full by now."""
    made = StepFile(step, tuple(bodies), pack_partials(full) if full.rows else None)
    folder.write(f"{step.step:012d}", records.pack(made))


def read_step(folder: Folder, number: int) -> StepFile:
    """What was decided, and the messages."""
    name = f"{number:012d}"
    return records.unpack(StepFile, folder.read(name) or b"", f"step {name}", damaged)


def control_of(step: RelayStep | RootStep) -> Control:
    """What the batch of a step is told; a node that only merges need not be told how far."""
    if isinstance(step, RelayStep):
        return Control(step.step - 1, step.plan, step.now, False, Frontier())
    return Control(
        step.step - 1,
        step.plan,
        step.now,
        step.closing,
        Frontier(step.reach),
        step.complete_until,
        step.view.missing,
        step.live,
        step.lagging,
        step.uncounted,
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


class StepMessages:
    """The messages of a split, as they count: by the plan of the step, what is late counted."""

    def __init__(self, spec: Spec, split: Split) -> None:
        self.home = spec.home.uri
        share: StepShare = split.body
        file = read_step(spec.home.sub("steps"), share.step)
        self.step, places = file.step, share.messages
        self.bodies = [file.bodies[place] for place in places if place < len(file.bodies)]
        self.late = 0
        self.newest = EARLIEST
        self.ends: list[tuple[str, int, int]] = []
        self.counts: dict[str, int] = {}
        self.full = Partials()
        """Count windows that are full by now, where this split has them."""
        if file.full is not None and len(file.bodies) in places:
            self.full = unpack_partials(file.full)[0]

    def __iter__(self) -> Iterator[Partials]:
        charter = _charter(self.home, self.step.charter)
        for body in self.bodies:
            at_root = isinstance(self.step, RootStep)
            found = taken(body, self.step.plan, charter, self.step.too_late, at_root=at_root)
            head = found.head
            self.late += found.late
            self.newest = max(self.newest, head.newest)
            self.ends.append((head.node, head.seq, found.end))
            for name, count in head.counts.items():
                self.counts[name] = self.counts.get(name, 0) + count
            yield found.partials
