"""sum, count, avg."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.expression.decimals import bounded, digits_of, fitted, most_digits, quotient
from catchment.functions.base import Function, counted, register_function, some
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef
from catchment.operators.base import is_exact, is_float
from catchment.operators.limbs import decimals_of
from catchment.operators.ragged import Fields
from catchment.operators.sum import as_float, limbs_of, overflowed
from catchment.operators.values import Mask, counts, to_arrow

_WIDER = 10
"""The digits that Spark adds in front for a sum."""
_FINER = 4
"""The digits that Spark adds behind the point for a mean."""


@register_function
class SumFunction(Function):
    """The sum: double for floats, int64 for integers, else a decimal; null where it does not fit.

    The sum of decimal(p, s) is decimal(p + 10, s), of 38 digits at most. Unsigned 64-bit integers
    count as decimal(20, 0), which is how Spark reads them.
    """

    name = "sum"
    synonyms: ClassVar[tuple[str, ...]] = ("try_sum",)

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return counted(aggregate.column, "sum")

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        if is_exact(type):
            assert type is not None
            precision, scale = digits_of(type)
            return bounded(precision + _WIDER, scale, most_digits(type))
        return pa.float64() if is_float(type) else pa.int64()

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        fields = computed[OperatorRef("sum", aggregate.column)]
        valid = some(computed, aggregate.column)
        to = self.result(aggregate, type)
        if pa.types.is_decimal(to):
            return _where(valid, _total(fields, to))
        if "approx" in fields:
            valid = valid & ~overflowed(fields)
        return to_arrow(fields["total"], to, valid)


def _total(fields: Fields, to: pa.DataType) -> pa.Array[Any]:
    """An exact sum in its type."""
    made: pa.Array[Any] = fitted(decimals_of(limbs_of(fields), digits_of(to)[1]), to)
    return made


def _where(valid: Mask, values: pa.Array[Any]) -> pa.Array[Any]:
    made: pa.Array[Any] = pc.if_else(pa.array(valid), values, pa.scalar(None, values.type))
    return made


@register_function
class CountFunction(Function):
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


@register_function
class Avg(Function):
    """The mean: double; of decimal(p, s) decimal(p + 4, s + 4), of 38 digits at most.

    Unsigned 64-bit integers count as decimal(20, 0), as for sums: their mean is decimal(24, 4).

    Like Spark's, it is null where the sum does not fit its type.
    """

    name = "avg"
    synonyms: ClassVar[tuple[str, ...]] = ("mean", "average", "try_avg")

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return counted(aggregate.column, "sum")

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        if is_exact(type):
            assert type is not None
            precision, scale = digits_of(type)
            return bounded(precision + _FINER, scale + _FINER, most_digits(type))
        return pa.float64()

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        fields = computed[OperatorRef("sum", aggregate.column)]
        n = counts(computed[OperatorRef("count", aggregate.column)]["count"])
        to = self.result(aggregate, type)
        if pa.types.is_decimal(to):
            total = _total(fields, SumFunction().result(aggregate, type))
            made: pa.Array[Any] = quotient(total, pa.array(n), to)
            return made
        return to_arrow(as_float(fields, type) / np.maximum(n, 1), to, n > 0)
