"""Takes values out of partials at a local node, and keeps them on disk for questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.counting.leaf_log import StepLog
from catchment.durable.disk import Disk
from catchment.engine import codec
from catchment.engine.merger import Merger
from catchment.engine.partials import SELECTION, Partials
from catchment.operators.ragged import offsets_of
from catchment.operators.values import Mask
from catchment.ranking.choice import chosen
from catchment.ranking.first_keys import KeysBySum
from catchment.ranking.groups import RankedGroup
from catchment.ranking.leaf import HeldGroup, LeafRanks

_NAME = "ranked"


class RankLog(StepLog[LeafRanks]):
    """What a local node keeps of values; `always` where it keeps whatever it can."""

    def __init__(
        self,
        groups: Mapping[int, str],
        number: int,
        merger: Merger,
        disk: Disk,
        written: int | None = None,
        always: bool = False,
    ) -> None:
        self._always = always
        super().__init__(_NAME, LeafRanks(number), groups, merger, disk, written)

    def hold(self, partials: Partials, frontier: int, ended: bool) -> Partials:
        """Takes values out of partials that are about to climb; their rows go without these."""
        held: dict[str, pa.Table] = {}
        made = dict(partials.groups)
        room = self.leaf.room
        for name, group in self.leaf.held.items():
            ranked, id = group.ranked, self._ids[name]
            table = made.get(id)
            if table is None or not table.num_rows or not ranked.questioned:
                continue
            if ranked.first is not None:
                some, made[id] = self._keys_held(table, group, ranked.first)
                if not some.num_rows or some.nbytes > room:
                    made[id] = table
                    continue
                room -= some.nbytes
                held[name] = some
                continue
            kept = chosen(table, ranked, self._always)
            kept &= codec.ints(table, "slice_start") >= group.needed
            fields = [field for column in ranked.columns for field in column.fields]
            wanted = table.select(
                [SELECTION, *ranked.keys.names, "slice_start", "slice_end", *fields]
            )
            some = wanted.filter(pa.array(kept))
            if not some.num_rows or some.nbytes > room:
                continue
            room -= some.nbytes
            held[name] = some
            made[id] = _without(table, ranked, kept)
        if held:
            self.keep(held, frontier, ended)
        return Partials(made, partials.events)

    def _keys_held(
        self, table: pa.Table, group: HeldGroup, column: KeysBySum
    ) -> tuple[pa.Table, pa.Table]:
        """Slices whose keys stay here, and the partials that climb."""
        sliced = column.sliced(table)
        kept = chosen(column.priced(sliced.table, table), group.ranked, self._always)
        kept &= codec.ints(sliced.table, "slice_start") >= group.needed
        # A key that is not told has a sum of one at least: nobody is asked about less.
        kept &= sliced.single & sliced.small & (sliced.least > 0)
        kept &= column.sizes(sliced.table) > column.most
        return column.divided(table, sliced, kept)

    def notes(self) -> pa.Table | None:
        return super().notes() if self.leaf.speaks else None

    @property
    def questioned(self) -> list[int]:
        """The groups of which values may be kept back."""
        return [
            self._ids[name] for name, group in self.leaf.held.items() if group.ranked.questioned
        ]


def _without(table: pa.Table, ranked: RankedGroup, kept: Mask) -> pa.Table:
    """The same rows, of which some have no values."""
    for name in (name for column in ranked.columns for name in column.fields):
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        array: Any = table.column(place).combine_chunks()
        lengths = np.where(kept, 0, array.value_lengths().to_numpy())
        rest = array.filter(pa.array(~kept)).flatten()
        offsets = pa.array(offsets_of(lengths.astype(np.int64)), pa.int32())
        lists = pa.ListArray.from_arrays(offsets, rest, type=field.type)
        table = table.set_column(place, field, lists)
    return table
