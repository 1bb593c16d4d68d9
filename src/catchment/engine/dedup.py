"""Deduplication: an event that repeats another is dropped, within a horizon of event time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from catchment.engine.batch import Batch, Chosen
from catchment.engine.codec import ints, whole
from catchment.engine.keys import KeyIndex, encode
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST

_CROWD = 1024
"""Values below which none is forgotten."""


_OFTEN = 8
"""Times of one value below which none is forgotten."""


class Deduplicator:
    """The times of accepted events, by the values that make an event unique."""

    def __init__(self, columns: tuple[str, ...], within: int) -> None:
        self.columns = columns
        self.within = within
        self.index = KeyIndex()
        self.times: dict[int, list[int]] = {}
        self._crowd = _CROWD
        self._oldest = EARLIEST

    def accept(self, batch: Batch, chosen: Chosen) -> Mask:
        """Which chosen events repeat none accepted before, at most `within` away in time."""
        rows = chosen.rows
        arrays = [batch.read(name) for name in self.columns]
        local = encode(arrays if rows is None else [array.take(rows) for array in arrays])
        assert local.codes is not None
        selection = chosen.selection
        code = local.codes if selection is None else selection * local.count + local.codes
        present, place = np.unique(code, return_inverse=True)
        keys = self.index.lookup(present // local.count, local.take(present % local.count))[place]
        return self._accept(keys, chosen.of(batch.times))

    def _accept(self, keys: Ints, times: Ints) -> Mask:
        kept = np.zeros(len(times), np.bool_)
        for row, (key, time) in enumerate(zip(keys.tolist(), times.tolist(), strict=True)):
            accepted = self.times.setdefault(key, [])
            if len(accepted) > _OFTEN:
                accepted[:] = [t for t in accepted if t + self.within >= self._oldest]
            if all(abs(time - other) > self.within for other in accepted):
                accepted.append(time)
                kept[row] = True
        return kept

    def forget(self, time: int) -> None:
        """Drops what no event from a time on can be near, once it may be half of all."""
        self._oldest = time
        if len(self.times) < self._crowd:
            return
        near = {
            key: [t for t in times if t + self.within >= time] for key, times in self.times.items()
        }
        live = {key: times for key, times in near.items() if times}
        self.index = self.index.only(np.fromiter(live, np.int64, len(live)))
        self.times = dict(enumerate(live.values()))
        self._crowd = max(_CROWD, 2 * len(live))

    def save(self, prefix: str, tables: dict[str, pa.Table]) -> list[list[int]]:
        everyone = np.arange(len(self.index), dtype=np.int64)
        columns = {f"value {n}": c for n, c in enumerate(self.index.take(everyone))}
        tables[prefix + "repeats"] = pa.table(
            {"selection": pa.array(self.index.selections)} | columns
        )
        return [self.times.get(key, []) for key in range(len(self.index))]

    def load(self, prefix: str, tables: dict[str, pa.Table], times: list[list[int]]) -> None:
        table = tables[prefix + "repeats"]
        columns = [whole(table, name) for name in table.schema.names]
        self.index.lookup(ints(table, "selection"), columns[1:])
        self.times = dict(enumerate(times))

    @property
    def nbytes(self) -> int:
        return 200 * len(self.times)
