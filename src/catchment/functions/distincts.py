"""Functions of the different values: count_distinct, exact and approximate, sum_distinct and
avg_distinct; and approximate quantiles."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, localcontext
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from catchment.expression.decimals import digits_of, quotient
from catchment.functions.base import Function, register_function
from catchment.functions.quantiles import share
from catchment.functions.sums import Avg, SumFunction
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef, Ragged
from catchment.operators.base import is_float, value_type
from catchment.operators.hll import estimates
from catchment.operators.kll import quantiles
from catchment.operators.ragged import plain
from catchment.operators.values import to_arrow


def _values(aggregate: Aggregate, computed: Computed) -> Ragged:
    """The different values of each group."""
    values = computed[OperatorRef("distinct", aggregate.column)]["set"]
    assert isinstance(values, Ragged)
    return values


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
        values = _values(aggregate, computed)
        return to_arrow(values.lengths, pa.int64())


@register_function
class SumDistinct(SumFunction):
    """The sum of the different values, of the type that `sum` has."""

    name = "sum_distinct"
    synonyms = ()

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("distinct", aggregate.column),)

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        assert type is not None
        values = _values(aggregate, computed)
        return _sums(values, type, self.result(aggregate, type))


@register_function
class AvgDistinct(Avg):
    """The mean of the different values, of the type that `avg` has."""

    name = "avg_distinct"
    synonyms = ()

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("distinct", aggregate.column),)

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        assert type is not None
        values = _values(aggregate, computed)
        n, to = values.lengths, self.result(aggregate, type)
        if pa.types.is_decimal(to):
            total = _sums(values, type, SumFunction().result(aggregate, type))
            mean: pa.Array[Any] = quotient(total, pa.array(n), to)
            return mean
        means = [_mean(row) for row in _rows(values, type)]
        return pa.array(means, to)


def _rows(values: Ragged, type: pa.DataType) -> Iterator[list[Any]]:
    """The values of each row, as Python has them: exact, and of any size."""
    flat = to_arrow(values.values, value_type(type)).to_pylist()
    ends = values.offsets.tolist()
    return (flat[low:high] for low, high in pairwise(ends))


def _mean(row: list[Any]) -> float | None:
    if not row:
        return None
    return float(sum(row)) / len(row) if isinstance(row[0], Decimal) else sum(row) / len(row)


def _sums(values: Ragged, type: pa.DataType, to: pa.DataType) -> pa.Array[Any]:
    """The sum of each row; null of no values, and where it does not fit."""
    if is_float(type):
        filled = values.lengths > 0
        sums = np.zeros(len(values), np.float64)
        if filled.any():
            heads = values.offsets[:-1][filled]
            sums[filled] = np.add.reduceat(values.values.astype(np.float64), heads)
        return to_arrow(sums, to, filled)
    with localcontext(prec=_DIGITS):
        sums_of = [sum(row, start=_zero(type)) if row else None for row in _rows(values, type)]
    if pa.types.is_decimal(to):
        precision, scale = digits_of(to)
        most = Decimal(10) ** (precision - scale)
        fitting = [None if s is None or abs(s) >= most else s for s in sums_of]
        return pa.array(fitting, to)
    whole = [None if s is None or not -(2**63) <= s < 2**63 else s for s in sums_of]
    return pa.array(whole, to)


_DIGITS = 200
"""More than a sum of decimals can have."""


def _zero(type: pa.DataType) -> Any:
    """What sums of values of a type begin with."""
    return Decimal(0) if pa.types.is_decimal(type) else 0


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
    parameters = "`params` is the share q, a number from 0 to 1."
    given = "0.95"
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
    parameters = given = ""
    synonyms = ()

    def check(self, aggregate: Aggregate) -> None:
        Function.check(self, aggregate)

    def q(self, aggregate: Aggregate) -> float:
        return 0.5
