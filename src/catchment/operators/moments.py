"""Sums of squared differences from the mean, for variance and standard deviation."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, OperatorRef, register_operator
from catchment.operators.grouping import Grouping
from catchment.operators.ragged import Array, Fields
from catchment.operators.sum import as_float


@register_operator
class Squares(Operator):
    """The sum of `(value - mean) ** 2`; shares its sums and counts with every other function.

    Differences from the mean keep their digits where sums of squares would cancel.
    """

    kind = "squares"
    reads = "doubles"

    @classmethod
    def requires(cls, ref: OperatorRef) -> tuple[OperatorRef, ...]:
        return OperatorRef("sum", ref.column), OperatorRef("count", ref.column)

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"squares": pa.float64()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        mean = self._mean(lifted)[1]
        return {"squares": events.groups.squares(events.values, mean)}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        counts, means = self._mean(rows)
        mean = self._mean(merged)[1]
        difference = means - mean[groups.codes]
        squares = rows[self.ref]["squares"]
        assert isinstance(squares, np.ndarray)
        between = np.where(counts > 0, counts * difference * difference, 0.0)
        return {"squares": groups.add(squares + between)}

    def _mean(self, computed: Computed) -> tuple[Array, Array]:
        total, count = self.requires(self.ref)
        counts = computed[count]["count"]
        assert isinstance(counts, np.ndarray)
        return counts, as_float(computed[total], self.type) / np.maximum(counts, 1)
