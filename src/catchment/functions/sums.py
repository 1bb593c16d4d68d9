"""sum, count, avg."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from catchment.functions.base import Function, counted, register_function, some
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef
from catchment.operators.base import is_float
from catchment.operators.sum import as_float, overflowed
from catchment.operators.values import counts, to_arrow


class Sum(Function):
    """The sum: double for floats, int64 for integers (null where it does not fit)."""

    name = "sum"

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return counted(aggregate.column, "sum")

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        return pa.float64() if is_float(type) else pa.int64()

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        fields = computed[OperatorRef("sum", aggregate.column)]
        valid = some(computed, aggregate.column)
        if "approx" in fields:
            valid = valid & ~overflowed(fields)
        return to_arrow(fields["total"], self.result(aggregate, type), valid)


class Count(Function):
    """How many values are not null; without a column, how many events."""

    name = "count"
    needs_column = False

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return counted(aggregate.column)

    def accepts(self, type: pa.DataType) -> bool:
        return True

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        return pa.int64()

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        return to_arrow(computed[OperatorRef("count", aggregate.column)]["count"], pa.int64())


class Avg(Function):
    """The mean, as double."""

    name = "avg"
    synonyms = ("mean", "average")

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return counted(aggregate.column, "sum")

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        total = as_float(computed[OperatorRef("sum", aggregate.column)])
        n = counts(computed[OperatorRef("count", aggregate.column)]["count"])
        return to_arrow(total / np.maximum(n, 1), pa.float64(), n > 0)


register_function(Sum())
register_function(Count())
register_function(Avg())
