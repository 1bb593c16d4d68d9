"""variance, stddev, and their population forms."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from catchment.functions.base import Function, counted, register_function
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef
from catchment.operators.ragged import plain
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
