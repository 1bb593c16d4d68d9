"""An operator: the sum of squares."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from catchment.operators import Computed, Fields, Grouping, Input, Operator


class Power(Operator):
    """The sum of the squares of values."""

    kind = "power"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"squares": pa.float64()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        values = events.values.astype(np.float64)
        return {"squares": events.groups.add(values * values)}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        return {"squares": groups.add(rows[self.ref]["squares"])}
