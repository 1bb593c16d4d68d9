"""The outbox of a node: a log of its steps, with the messages for its parent.

A step goes in as one record: how far the node has come, the messages it sends, and what it holds
back. Messages come out in order of their numbers, as often as the parent needs them, until the
parent has said that it may forget them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from catchment.durable.disk import Disk, damaged
from catchment.durable.records import RecordLog
from catchment.tree.records import FlowNote, OutboxEntry


class Outbox:
    """A log of steps. The last one is all that a node needs to go on after a crash."""

    def __init__(self, disk: Disk) -> None:
        self._log: RecordLog[OutboxEntry] = RecordLog(disk, "outbox", OutboxEntry)
        self.last: OutboxEntry | None = None
        self._lost = self._log.gap(0)
        if self._lost is not None and self._lost.upto == self._log.last:
            raise self._lost.error()  # others may know of a step that is not known here
        self._messages: dict[int, int] = {}
        """Where the messages are that are not settled: number of the message to its entry."""
        before = 0
        for number, entry in self._log.entries():
            if self.last is not None and number != before + 1:
                raise damaged("outbox", f"step {before + 1} is not there")
            self.last, before = entry, number
            self._place(number, entry)
        if before < self._log.last:
            raise damaged("outbox", f"step {self._log.last} is not there")
        self.sent = 0 if self.last is None else self.last.seq
        """The number of the last message."""

    def append(self, note: FlowNote, messages: Sequence[bytes], carry: bytes) -> None:
        """Writes a step down; messages in it may go out from now on, one after the other."""
        number, sent = self.number + 1, self.sent + len(messages)
        entry = OutboxEntry(note, sent, tuple(messages), carry)
        self._log.append(number, entry)
        self.last, self.sent = entry, sent
        self._place(number, entry)
        if not self._messages:
            self._log.trim(number - 1)

    def _place(self, number: int, entry: OutboxEntry) -> None:
        for seq in range(entry.seq - len(entry.messages) + 1, entry.seq + 1):
            self._messages[seq] = number

    def after(self, seq: int) -> Iterator[tuple[int, bytes]]:
        """The messages after one, in order."""
        entry: OutboxEntry | None = None
        at = 0
        for number in range(seq + 1, self.sent + 1):
            place = self._messages.get(number)
            if place is None:
                if self._lost is not None:
                    raise self._lost.error()  # nobody has it any more
                continue
            if entry is None or at != place:
                entry, at = self._log.read(place), place
            yield number, entry.messages[number - entry.seq - 1]

    def note_of(self, seq: int) -> FlowNote | None:
        """What was noted with a message, while it is kept."""
        place = self._messages.get(seq)
        return None if place is None else self._log.read(place).note

    def ending(self, seq: int) -> FlowNote | None:
        """What was noted with a message, if all of its step has arrived with it."""
        place = self._messages.get(seq)
        entry = None if place is None else self._log.read(place)
        return entry.note if entry is not None and entry.seq == seq else None

    def settle(self, seq: int) -> None:
        """Forgets messages up to this one, which are safe further up; the record of the last step
        stays."""
        for number in [n for n in self._messages if n <= seq]:
            del self._messages[number]
        if self.last is not None:
            self._log.trim(min(self._messages.values(), default=self.number) - 1)

    @property
    def settled(self) -> int:
        """The last message that is not kept any more, nor any before it."""
        return min(self._messages, default=self.sent + 1) - 1

    @property
    def number(self) -> int:
        """The number of the last step that was written."""
        return self._log.last

    @property
    def nbytes(self) -> int:
        return self._log.nbytes
