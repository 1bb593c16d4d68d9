"""variance, stddev, and their population forms; skewness, kurtosis."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from catchment.functions.base import Function, counted, register_function
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef
from catchment.operators.central import central_moments
from catchment.operators.ragged import Array, Ints, plain
from catchment.operators.values import counts, to_arrow


@register_function
class Variance(Function):
    """The sample variance; null for fewer than two values."""

    name = "variance"
    synonyms: ClassVar[tuple[str, ...]] = ("var_samp", "variance_samp")
    less: ClassVar[int] = 1
    root: ClassVar[bool] = False

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return counted(aggregate.column, "sum", "squares")

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        squares = plain(computed[OperatorRef("squares", aggregate.column)]["squares"])
        n = counts(computed[OperatorRef("count", aggregate.column)]["count"])
        values = squares / np.maximum(n - self.less, 1)
        return to_arrow(np.sqrt(values) if self.root else values, pa.float64(), n > self.less)


@register_function
class VariancePop(Variance):
    """The population variance."""

    name = "variance_pop"
    synonyms: ClassVar[tuple[str, ...]] = ("var_pop",)
    less = 0


@register_function
class Stddev(Variance):
    """The sample standard deviation; null for fewer than two values."""

    name = "stddev"
    synonyms = ("stddev_samp", "std")
    root = True


@register_function
class StddevPop(VariancePop):
    """The population standard deviation."""

    name = "stddev_pop"
    synonyms = ()
    root = True


@register_function
class Skewness(Function):
    """The third standardized moment, of the population; null where values do not vary."""

    name = "skewness"

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("moments", aggregate.column),)

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        fields = computed[OperatorRef("moments", aggregate.column)]
        n, second, third, fourth = central_moments(fields)
        varies = second != 0
        spread = np.where(varies, second, 1) / np.maximum(n, 1)
        values = self.of(n, spread, third, fourth)
        return to_arrow(values, pa.float64(), varies)

    def of(self, n: Ints, variance: Array, third: Array, fourth: Array) -> Array:
        values: Array = third / np.maximum(n, 1) / (variance * np.sqrt(variance))
        return values


@register_function
class Kurtosis(Skewness):
    """The fourth standardized moment less 3, of the population; null where values do not vary."""

    name = "kurtosis"

    def of(self, n: Ints, variance: Array, third: Array, fourth: Array) -> Array:
        values: Array = fourth / np.maximum(n, 1) / (variance * variance) - 3.0
        return values
