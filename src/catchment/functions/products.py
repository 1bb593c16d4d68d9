"""product, geometric_mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from catchment.functions.base import Function, counted, register_function, some
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef
from catchment.operators.ragged import plain
from catchment.operators.values import counts, to_arrow


@register_function
class ProductFunction(Function):
    """The product, as double."""

    name = "product"

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return counted(aggregate.column, "product")

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        fields = computed[OperatorRef("product", aggregate.column)]
        exponent = np.clip(counts(fields["exponent"]), -(1 << 20), 1 << 20).astype(np.int32)
        with np.errstate(over="ignore", under="ignore"):
            values = np.ldexp(plain(fields["mantissa"]), exponent)
        return to_arrow(values, pa.float64(), some(computed, aggregate.column))


@register_function
class GeometricMean(Function):
    """The n-th root of the product of n values; NaN when the product is negative."""

    name = "geometric_mean"
    synonyms = ("geomean",)

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return counted(aggregate.column, "product")

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        fields = computed[OperatorRef("product", aggregate.column)]
        n = counts(computed[OperatorRef("count", aggregate.column)]["count"])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            log = np.log2(plain(fields["mantissa"])) + plain(fields["exponent"])
            values = np.exp2(log / np.maximum(n, 1))
        return to_arrow(values, pa.float64(), n > 0)
