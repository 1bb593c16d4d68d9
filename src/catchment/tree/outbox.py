"""The outbox of a node: what it has to pass up, kept until that is safe there."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from catchment.tree.disk import Disk

_SIZE = struct.Struct(">Q")


@dataclass(frozen=True)
class Record:
    """A step of a node: how far it has come, what it passes up, and what it holds back."""

    number: int
    note: dict[str, Any]
    message: bytes | None
    carry: bytes


class Outbox:
    """A log of records. The last one is all that a node needs to go on after a crash."""

    def __init__(self, disk: Disk) -> None:
        self._log = disk.log("outbox")
        self.last: Record | None = None
        self._messages: dict[int, int] = {}
        """Where the messages are that are not settled: number of the message to its record."""
        for number, note, body in self._log.entries():
            self.last = _record(number, note, body)
            if self.last.message is not None:
                self._messages[note["seq"]] = number
        self.sent = self.last.note["seq"] if self.last else 0
        """The number of the last message."""

    def append(self, note: dict[str, Any], message: bytes | None, carry: bytes) -> None:
        """Writes a step down; a message in it may go out from now on."""
        number = 1 + (self._log.last or 0)
        sent = self.sent + (message is not None)
        record = Record(number, note | {"seq": sent}, message, carry)
        size = _SIZE.pack(len(message) if message is not None else 0)
        self._log.append(number, record.note | {"has": message is not None},
                         size + (message or b"") + carry)  # fmt: skip
        self.last, self.sent = record, sent
        if message is not None:
            self._messages[sent] = number
        elif not self._messages:
            self._log.trim(number - 1)

    def after(self, seq: int) -> Iterator[tuple[int, bytes]]:
        """The messages after one, in order."""
        for number in range(seq + 1, self.sent + 1):
            if number in self._messages:
                note, body = self._log.read(self._messages[number])
                message = _record(self._messages[number], note, body).message
                assert message is not None
                yield number, message

    def note_of(self, seq: int) -> dict[str, Any] | None:
        """What was noted with a message, while it is kept."""
        place = self._messages.get(seq)
        return None if place is None else self._log.read(place)[0]

    def settle(self, seq: int) -> None:
        """Messages up to this one are safe with others; the last step stays."""
        for number in [n for n in self._messages if n <= seq]:
            del self._messages[number]
        rest = min(self._messages.values(), default=None)
        assert self.last is not None or not self._messages
        if self.last is not None:
            self._log.trim((self.last.number if rest is None else rest) - 1)

    @property
    def number(self) -> int:
        """Of the last step written down."""
        return self._log.last or 0

    @property
    def nbytes(self) -> int:
        return self._log.nbytes


def _record(number: int, note: dict[str, Any], body: bytes) -> Record:
    (size,) = _SIZE.unpack_from(body)
    at = _SIZE.size + size
    message = body[_SIZE.size : at] if note["has"] else None
    return Record(number, note, message, body[at:])
