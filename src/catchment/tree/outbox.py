"""The outbox of a node: what it has to pass up, kept until that is safe there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from catchment.durable.disk import Disk, damaged


@dataclass(frozen=True)
class Record:
    """A step of a node: how far it has come, what it passes up, and what it holds back."""

    number: int
    note: dict[str, Any]
    messages: tuple[bytes, ...]
    """Together they say what the step did; none may go without the others."""
    carry: bytes


class Outbox:
    """A log of records. The last one is all that a node needs to go on after a crash."""

    def __init__(self, disk: Disk) -> None:
        self._log = disk.log("outbox")
        self.last: Record | None = None
        self._lost = self._log.gap(0)
        if self._lost is not None and self._lost.upto == self._log.last:
            raise self._lost.error()  # others may know of a step that is not known here
        self._messages: dict[int, int] = {}
        """Where the messages are that are not settled: number of the message to its record."""
        for number, note, body in self._log.entries():
            before: Record | None = self.last
            self.last = _record(number, note, body)
            if before is not None and number != before.number + 1:
                raise damaged("outbox", f"step {before.number + 1} is not there")
            self._place(self.last)
        if self._log.last is not None and (self.last is None or self.last.number < self._log.last):
            raise damaged("outbox", f"step {self._log.last} is not there")
        self.sent = self.last.note["seq"] if self.last else 0
        """The number of the last message."""

    def append(self, note: dict[str, Any], messages: Sequence[bytes], carry: bytes) -> None:
        """Writes a step down; messages in it may go out from now on, one after the other."""
        number = 1 + (self._log.last or 0)
        sent = self.sent + len(messages)
        noted = note | {"seq": sent, "sizes": [len(message) for message in messages]}
        record = Record(number, noted, tuple(messages), carry)
        self._log.append(number, noted, b"".join((*messages, carry)))
        self.last, self.sent = record, sent
        self._place(record)
        if not self._messages:
            self._log.trim(number - 1)

    def _place(self, record: Record) -> None:
        first = record.note["seq"] - len(record.messages) + 1
        for seq in range(first, record.note["seq"] + 1):
            self._messages[seq] = record.number

    def after(self, seq: int) -> Iterator[tuple[int, bytes]]:
        """The messages after one, in order."""
        record: Record | None = None
        for number in range(seq + 1, self.sent + 1):
            place = self._messages.get(number)
            if place is None:
                if self._lost is not None:
                    raise self._lost.error()  # nobody has it any more
                continue
            if record is None or record.number != place:
                record = _record(place, *self._log.read(place))
            yield number, record.messages[number - record.note["seq"] - 1]

    def note_of(self, seq: int) -> dict[str, Any] | None:
        """What was noted with a message, while it is kept."""
        place = self._messages.get(seq)
        return None if place is None else self._log.read(place)[0]

    def ending(self, seq: int) -> dict[str, Any] | None:
        """What was noted with a message, if all of its step has arrived with it."""
        note = self.note_of(seq)
        return note if note is not None and note["seq"] == seq else None

    def settle(self, seq: int) -> None:
        """Messages up to this one are safe with others; the last step stays."""
        for number in [n for n in self._messages if n <= seq]:
            del self._messages[number]
        rest = min(self._messages.values(), default=None)
        assert self.last is not None or not self._messages
        if self.last is not None:
            self._log.trim((self.last.number if rest is None else rest) - 1)

    @property
    def settled(self) -> int:
        """The last message that is not kept any more, nor any before it."""
        return min(self._messages, default=self.sent + 1) - 1

    @property
    def number(self) -> int:
        """Of the last step written down."""
        return self._log.last or 0

    @property
    def nbytes(self) -> int:
        return self._log.nbytes


def _record(number: int, note: dict[str, Any], body: bytes) -> Record:
    messages, at = [], 0
    for size in note["sizes"]:
        messages.append(body[at : at + size])
        at += size
    return Record(number, note, tuple(messages), body[at:])
