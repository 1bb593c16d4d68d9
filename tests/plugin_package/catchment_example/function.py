"""A function over an operator of this package and one of Catchment's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from catchment.functions import Function
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef


class RootMeanSquare(Function):
    """The square root of the mean of the squares."""

    name = "rms"

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return OperatorRef("power", aggregate.column), OperatorRef("count", aggregate.column)

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        power, count = (computed[ref] for ref in self.operators(aggregate))
        n = np.asarray(count["count"])
        values = np.sqrt(np.asarray(power["squares"]) / np.maximum(n, 1))
        return pa.array(values, mask=n == 0)
