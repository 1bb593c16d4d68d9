"""A digest of which events a partial holds, to tell whether a window has changed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, register_operator
from catchment.operators.grouping import Grouping
from catchment.operators.ragged import Fields, plain


@register_operator
class Digest(Operator):
    """The sum, modulo 2^64, of a mixed number of every event: equal sets have equal digests."""

    kind = "digest"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"digest": pa.int64()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        mixed = events.arrivals().astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return {"digest": events.groups.add((mixed ^ (mixed >> np.uint64(31))).view(np.int64))}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        return {"digest": groups.add(plain(rows[self.ref]["digest"]))}

    def fieldwise(self) -> dict[str, np.ufunc]:
        return {"digest": np.add}
