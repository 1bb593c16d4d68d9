"""Takes events that mark nothing out of what a local node sends, and keeps them on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from catchment.counting.leaf_log import StepLog
from catchment.durable.disk import Disk
from catchment.engine import codec, settled
from catchment.engine.merger import Merger
from catchment.engine.partials import Partials
from catchment.marking.choice import cost_more
from catchment.marking.leaf import LeafMarks
from catchment.marking.message import MarkNote, notes_in, section
from catchment.marking.rows import marking

_NAME = "marked"


class KeptBack(NamedTuple):
    """What is left to send, how many events are kept, and how many come too late."""

    partials: Partials
    held: int
    late: int


class MarkLog(StepLog[LeafMarks]):
    """What a local node keeps of the events between marks."""

    def __init__(
        self,
        sets: Mapping[int, str],
        number: int,
        merger: Merger,
        disk: Disk,
        written: int | None = None,
    ) -> None:
        super().__init__(_NAME, LeafMarks(number), sets, merger, disk, written)

    def hold(self, partials: Partials, nodes: int, frontier: int, ended: bool) -> KeptBack:
        """Takes events out of partials that are about to climb; marks go on.

        So many nodes are told of each mark: where that costs more, all events climb.

        Events of rounds that are over are late, marks too: the root would not take them.
        """
        kept: dict[str, pa.Table] = {}
        made = dict(partials.groups)
        late, room = 0, self.leaf.room
        for name, held in self.leaf.held.items():
            table = made.get(self._ids[name])
            if table is None or not table.num_rows:
                continue
            past = codec.ints(table, settled.TIME) < held.done
            if past.any():
                late += int(past.sum())
                table = made[self._ids[name]] = table.filter(pa.array(~past))
            marks = marking(table, held.waiting.bound)
            some = settled.take(table, np.flatnonzero(~marks))
            dear = cost_more(table.num_rows - some.num_rows, nodes, some.num_rows)
            if some.num_rows and some.nbytes <= room and not dear:
                room -= some.nbytes
                kept[name] = some.replace_schema_metadata(table.schema.metadata)
                made[self._ids[name]] = table.filter(pa.array(marks))
        if kept:
            self.keep(kept, frontier, ended)
        count = sum(table.num_rows for table in kept.values())
        return KeptBack(Partials(made, partials.events), count, late)

    def notes(self) -> pa.Table | None:
        return super().notes() if self.leaf.speaks else None

    def with_left(self, notes: list[pa.Table]) -> list[pa.Table]:
        """Notes that are about to leave, with the events that are kept after their message."""
        left = self.leaf.left
        return [section([replace(note, left=left) for note in notes_in(one)]) for one in notes]

    def over(self) -> pa.Table:
        """What a node says with its last message: it keeps nothing, and need not be asked."""
        note = MarkNote([self.leaf.number], "", 0, 0, {}, [], 0, 0, 0)
        return section([note])

    def newly_late(self) -> int:
        """How many kept events came too late, since the last call."""
        late, self.leaf.late = self.leaf.late, 0
        return late
