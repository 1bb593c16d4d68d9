"""Counts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, register_operator
from catchment.operators.grouping import Grouping
from catchment.operators.ragged import Fields, plain


@register_operator
class Count(Operator):
    """How many values are not null; without a column, how many events."""

    kind = "count"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"count": pa.int64()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        return {"count": events.groups.count}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        return {"count": groups.add(plain(rows[self.ref]["count"]))}

    def fieldwise(self) -> dict[str, np.ufunc]:
        return {"count": np.add}
