"""count_distinct, exact and approximate, and approximate quantiles."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from catchment.functions.base import Function, register_function
from catchment.functions.quantiles import share
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef, Ragged
from catchment.operators.hll import estimates
from catchment.operators.kll import quantiles
from catchment.operators.ragged import plain
from catchment.operators.values import to_arrow


@register_function
class CountDistinct(Function):
    """How many different values there are."""

    name = "count_distinct"
    takes = "a value that can be compared"

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("distinct", aggregate.column),)

    def accepts(self, type: pa.DataType) -> bool:
        return not pa.types.is_nested(type)

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        return pa.int64()

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        values = computed[OperatorRef("distinct", aggregate.column)]["set"]
        assert isinstance(values, Ragged)
        return to_arrow(values.lengths, pa.int64())


@register_function
class ApproxCountDistinct(CountDistinct):
    """About how many different values there are (HLL, error about 1.6 %; exact while few)."""

    name = "approx_count_distinct"
    synonyms = ("approx_distinct",)

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("hll", aggregate.column),)

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        sketches = plain(computed[OperatorRef("hll", aggregate.column)]["sketch"])
        return to_arrow(estimates(sketches), pa.int64())


@register_function
class ApproxQuantile(Function):
    """About the value below which a share q of the values lies (KLL, rank error about 1.65 %)."""

    name = "approx_quantile"
    synonyms: ClassVar[tuple[str, ...]] = ("approx_percentile", "percentile_approx")

    def check(self, aggregate: Aggregate) -> None:
        share(self.name, aggregate.params)

    def q(self, aggregate: Aggregate) -> float:
        return float(aggregate.params[0])

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("kll", aggregate.column),)

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        sketches = plain(computed[OperatorRef("kll", aggregate.column)]["sketch"])
        values = quantiles(sketches, self.q(aggregate))
        return to_arrow(values, pa.float64(), ~np.isnan(values))


@register_function
class ApproxMedian(ApproxQuantile):
    """About the middle value (KLL)."""

    name = "approx_median"
    synonyms = ()

    def check(self, aggregate: Aggregate) -> None:
        Function.check(self, aggregate)

    def q(self, aggregate: Aggregate) -> float:
        return 0.5
