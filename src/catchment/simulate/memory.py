"""A disk in memory that outlives its node's crashes, and a source of events in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pydantic import PrivateAttr

from catchment.durable.log import LostEntries
from catchment.durable.volatile import VolatileFiles
from catchment.errors import StateError
from catchment.nodes.disk import FileDisk
from catchment.sources.base import Piece, Position, Source, Split


class MemoryLog:
    """Entries in a dict."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self._entries: dict[int, bytes] = {}
        self._last: int | None = None
        self._bytes = 0

    def copy(self, disk: MemoryDisk) -> MemoryLog:
        made = MemoryLog(disk)
        made._entries, made._last, made._bytes = dict(self._entries), self._last, self._bytes
        return made

    def tamper(self, dice: random.Random) -> None:
        """Empties it, cuts its end off, or loses one entry."""
        numbers = sorted(self._entries)
        kind = dice.choice(["empty", "cut", "one"])
        gone = numbers
        if kind == "cut" and numbers:
            gone = numbers[dice.randrange(len(numbers)) :]
        elif kind == "one" and numbers:
            gone = [dice.choice(numbers)]
        for number in gone:
            self._bytes -= len(self._entries.pop(number))
        self._last = max(self._entries, default=None if kind == "empty" else self._last)

    def append(self, number: int, body: bytes) -> None:
        self._disk.check()
        self._entries[number] = body
        self._bytes += len(body)
        self._last = number

    def entries(self) -> Iterator[tuple[int, bytes]]:
        return iter([*self._entries.items()])

    def read(self, number: int) -> bytes:
        return self._entries[number]

    def gap(self, after: int) -> LostEntries | None:
        return None

    def rewind(self, number: int) -> None:
        for new in [n for n in self._entries if n > number]:
            self._bytes -= len(self._entries.pop(new))
        self._last = number

    def trim(self, number: int) -> None:
        for old in [n for n in self._entries if n <= number]:
            self._bytes -= len(self._entries.pop(old))

    def clear(self) -> None:
        self._entries, self._last, self._bytes = {}, None, 0

    @property
    def last(self) -> int | None:
        return self._last

    @property
    def nbytes(self) -> int:
        return self._bytes


class MemoryDisk:
    """Notes and logs; `full` makes it refuse."""

    dead = False

    def __init__(self) -> None:
        self._logs: dict[str, MemoryLog] = {}
        self._notes: dict[str, bytes] = {}
        self.full = False

    def copy(self) -> MemoryDisk:
        """What a backup would hold."""
        made = MemoryDisk()
        made._notes = dict(self._notes)
        made._logs = {name: log.copy(made) for name, log in self._logs.items()}
        return made

    def tamper(self, dice: random.Random) -> str:
        """Something happens to one of its files; which."""
        name = dice.choice(sorted({*self._logs, *self._notes}))
        if name in self._logs:
            self._logs[name].tamper(dice)
        elif dice.random() < 0.5:
            del self._notes[name]
        else:
            self._notes[name] = self._notes[name][: dice.randrange(len(self._notes[name]))]
        return name

    def check(self) -> None:
        if self.full:
            raise StateError("a file of the node cannot be written", hint="no space left on device")

    def log(self, name: str) -> MemoryLog:
        return self._logs.setdefault(name, MemoryLog(self))

    def put(self, name: str, data: bytes) -> None:
        self.check()
        self._notes[name] = data

    def get(self, name: str) -> bytes | None:
        return self._notes.get(name)

    def damage(self) -> list[str]:
        return []

    def fail_soon(self, _: random.Random) -> None:
        return

    def crashed(self, _: random.Random) -> MemoryDisk:
        """What a crash leaves: all of it."""
        return self


class VolatileDisk(FileDisk):
    """The folder of a node as it is, on files that lose what was not synced when power fails."""

    def __init__(self, files: VolatileFiles | None = None) -> None:
        self.volatile = VolatileFiles() if files is None else files
        super().__init__(Path("home"), self.volatile, segment=4096)

    @property
    def full(self) -> bool:
        return self.volatile.full

    @full.setter
    def full(self, full: bool) -> None:
        self.volatile.full = full

    @property
    def dead(self) -> bool:
        """Whether the power has failed in the middle of something."""
        return self.volatile.dead

    def fail_soon(self, dice: random.Random) -> None:
        """Lets the power fail in the middle of what comes next."""
        self.volatile.cut_after(dice.randrange(60))

    def crashed(self, dice: random.Random) -> VolatileDisk:
        """What a crash leaves."""
        self.volatile.crash(dice)
        return VolatileDisk(self.volatile)


class EventsInMemory(Source):
    """Events in memory that become available batch by batch, and then end."""

    type: Literal["events"] = "events"
    _batches: list[pa.Table] = PrivateAttr(default_factory=list)

    @classmethod
    def of(cls, batches: list[pa.Table]) -> EventsInMemory:
        made = cls()
        made._batches = batches
        return made

    def check(self) -> None:
        return

    def event_schema(self) -> pa.Schema:
        schema: pa.Schema = self._batches[0].schema
        return schema

    def start(self) -> Position:
        return {"batch": 0, "arrival": 0}

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        batch = position["batch"]
        if batch == len(self._batches):
            return position
        return {
            "batch": batch + 1,
            "arrival": position["arrival"] + self._batches[batch].num_rows,
        }

    def bound(self, position: Position) -> Position:
        return position

    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        return [
            Split("events", start["arrival"], {"batch": batch})
            for batch in range(start["batch"], end["batch"])
        ]

    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        table = self._batches[split.body["batch"]]
        yield Piece(table if columns is None else table.select(columns))

    def ended(self, position: Position) -> bool:
        return bool(position["batch"] == len(self._batches))

    def partitions(self, position: Position) -> list[str]:
        return ["events"]
