"""What a local node keeps for count windows, on disk: a log of what happened behind a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from catchment.counting import wire
from catchment.counting.leaf_by_key import LeafByKey, from_ipc, to_ipc
from catchment.durable.disk import Disk, damaged
from catchment.engine.merger import Merger

_SHORTEST = 4 << 20
"""A log shorter than this is never worth a snapshot."""
_NAME = "counted"


class LeafLog:
    """What a local node keeps for count windows, as of a step of its outbox.

    An entry is written before the step it belongs to: one whose step was never written down is of
    no account, nor is an earlier one of the same step.
    """

    def __init__(
        self,
        asked: Mapping[int, str],
        number: int,
        merger: Merger,
        disk: Disk,
        step: int,
        written: int | None = None,
    ) -> None:
        self._disk, self._log = disk, disk.log(_NAME)
        self._merger = merger
        self.kept = LeafByKey(number, merger.bound)
        self._words: list[list[Any]] = []
        """What happened since the last step."""
        self._ids: dict[str, int] = {}
        self._names: list[str] = []
        self._log_bytes = self._saved_bytes = 0
        self._ids = {name: id for id, name in asked.items()}
        self._restore(step, written)
        if self._names != sorted(self._ids):
            self.switch(asked)

    def _restore(self, step: int, written: int | None) -> None:
        saved, since, first = self._disk.get(_NAME), 0, 1
        if saved is not None:
            self._saved_bytes = len(saved)
            try:
                since, names, body, first = wire.load(saved)
            except (ValueError, TypeError) as error:
                raise damaged(_NAME, str(error)) from error
            self._switch(names)
            self.kept.load(body)
        lost = self._log.gap(0)
        if lost is not None:
            raise lost.error()
        entries = [*self._log.entries()]
        happened = {note["step"]: body for _, note, body in entries}
        numbers = [number for number, _, _ in entries if number >= first]
        last = first - 1 if written is None else written
        if not {*range(first, last + 1)} <= {*numbers}:
            raise damaged(_NAME, f"what is kept up to entry {last} is not all there")
        for number, body in sorted(happened.items()):
            if since < number <= step:
                self._log_bytes += len(body)
                for kind, *what in wire.load(body):
                    getattr(self, f"_{kind}")(*what)

    # -- what happens -----------------------------------------------------------------------------

    def switch(self, asked: Mapping[int, str]) -> None:
        """Goes on by another version of the plan, which the merger follows already.

        `asked` are the groups whose count windows are found by asking, and their names.
        """
        self._ids = {name: id for id, name in asked.items()}
        self._do("switch", sorted(self._ids))

    def hear(self, orders: bytes) -> None:
        """Takes orders of the root."""
        if self.kept.hear(orders):
            self._words.append(["hear", orders])

    def feed(self, frontier: int, ended: bool) -> None:
        """Takes the events that wait in the merger, and moves the frontier on."""
        waiting = {name: self._merger.take_waiting(id) for name, id in self.kept.groups.items()}
        found = {name: to_ipc([table]) for name, table in waiting.items() if table is not None}
        self._do("feed", found, frontier, ended)

    def notes(self) -> pa.Table | None:
        """What there is to say, as a section of a message."""
        self._words.append(["notes"])
        return self.kept.notes()

    def _do(self, kind: str, *what: Any) -> None:
        self._words.append([kind, *what])
        getattr(self, f"_{kind}")(*what)

    def _switch(self, names: Iterable[str]) -> None:
        self._names = sorted(names)
        groups = {name: self._ids[name] for name in self._names if name in self._ids}
        self.kept.switch(self._merger.bound, groups)

    def _hear(self, orders: bytes) -> None:
        self.kept.hear(orders)

    def _feed(self, events: dict[str, bytes], frontier: int, ended: bool) -> None:
        self.kept.feed({n: from_ipc(body) for n, body in events.items()}, frontier, ended)

    def _notes(self) -> None:
        self.kept.notes()  # it was said

    @property
    def written(self) -> int:
        """The number of the last entry of the log: with a step, it says what must be there."""
        return self._log.last or 0

    # -- on disk ----------------------------------------------------------------------------------

    def write(self, step: int) -> None:
        """Writes down what happened, as part of a step that is about to be written down."""
        if not self._words:
            return
        body = wire.dump(self._words)
        self._log.append(1 + (self._log.last or 0), {"step": step}, body)
        self._log_bytes += len(body)
        self._words = []

    def compact(self, step: int) -> None:
        """Writes all down after a step, once the log is longer than that."""
        if self._log_bytes <= max(_SHORTEST, self._saved_bytes):
            return
        last = self._log.last or 0
        saved = wire.dump([step, self._names, self.kept.to_bytes(), last + 1])
        self._disk.put(_NAME, saved)
        self._log.trim(last)
        self._log_bytes, self._saved_bytes = 0, len(saved)
