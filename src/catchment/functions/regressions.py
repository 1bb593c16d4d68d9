"""covar_pop, covar_samp, corr and the functions of linear regression, of pairs (y, x).

All are of the pairs in which neither is null, and doubles but for the count. Where Spark divides by
zero they are null, as in Spark.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from catchment.functions.base import Function, register_function
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef
from catchment.operators.base import is_numeric
from catchment.operators.central import Pairs, pairs_of
from catchment.operators.ragged import Array
from catchment.operators.values import Mask, to_arrow


class _OfPairs(Function):
    columns = 2
    takes = "two numbers"

    @property
    def names(self) -> str:
        return "yx"

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("comoments", aggregate.column),)

    def accepts(self, type: pa.DataType) -> bool:
        return isinstance(type, pa.StructType) and all(is_numeric(field.type) for field in type)

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        pairs = pairs_of(computed[OperatorRef("comoments", aggregate.column)])
        values, valid = self.of(pairs)
        return to_arrow(values, self.result(aggregate, type), valid & self.known(pairs))

    def known(self, pairs: Pairs) -> Mask:
        """Where there are pairs."""
        return np.asarray(pairs.n > 0)

    @abstractmethod
    def of(self, pairs: Pairs) -> tuple[Array, Mask]:
        """The results, and where there are any."""


class _PartOfPairs(_OfPairs):
    """One of the numbers that pairs are reduced to, as it is."""

    part: ClassVar[str]

    def of(self, pairs: Pairs) -> tuple[Array, Mask]:
        return getattr(pairs, self.part), _always(pairs)


def _always(pairs: Pairs) -> Mask:
    return np.ones(len(pairs.n), np.bool_)


@register_function
class CovarPop(_OfPairs):
    """The population covariance."""

    name = "covar_pop"

    def of(self, pairs: Pairs) -> tuple[Array, Mask]:
        return pairs.sxy / np.maximum(pairs.n, 1), _always(pairs)


@register_function
class CovarSamp(_OfPairs):
    """The sample covariance; null for fewer than two pairs."""

    name = "covar_samp"

    def of(self, pairs: Pairs) -> tuple[Array, Mask]:
        return pairs.sxy / np.maximum(pairs.n - 1, 1), pairs.n > 1


@register_function
class Corr(_OfPairs):
    """Pearson's coefficient of correlation; null where one of both does not vary."""

    name = "corr"

    def of(self, pairs: Pairs) -> tuple[Array, Mask]:
        spread = np.sqrt(pairs.sxx) * np.sqrt(pairs.syy)
        return pairs.sxy / np.where(spread == 0, 1, spread), (spread != 0) & (pairs.n > 1)


@register_function
class RegrCount(_OfPairs):
    """How many pairs there are."""

    name = "regr_count"

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        return pa.int64()

    def known(self, pairs: Pairs) -> Mask:
        return _always(pairs)

    def of(self, pairs: Pairs) -> tuple[Array, Mask]:
        return pairs.n, _always(pairs)


@register_function
class RegrAvgX(_PartOfPairs):
    """The mean of x."""

    name = "regr_avgx"
    part = "mean_x"


@register_function
class RegrAvgY(_PartOfPairs):
    """The mean of y."""

    name = "regr_avgy"
    part = "mean_y"


@register_function
class RegrSxx(_PartOfPairs):
    """The sum of the squares of x less its mean."""

    name = "regr_sxx"
    part = "sxx"


@register_function
class RegrSyy(_PartOfPairs):
    """The sum of the squares of y less its mean."""

    name = "regr_syy"
    part = "syy"


@register_function
class RegrSxy(_PartOfPairs):
    """The sum of the products of x and y, each less its mean."""

    name = "regr_sxy"
    part = "sxy"


def _slope(pairs: Pairs) -> tuple[Array, Mask]:
    varies = pairs.sxx != 0
    return pairs.sxy / np.where(varies, pairs.sxx, 1), varies


@register_function
class RegrSlope(_OfPairs):
    """The slope of the line of least squares; null where x does not vary."""

    name = "regr_slope"

    def of(self, pairs: Pairs) -> tuple[Array, Mask]:
        return _slope(pairs)


@register_function
class RegrIntercept(_OfPairs):
    """Where the line of least squares is at x = 0; null where x does not vary."""

    name = "regr_intercept"

    def of(self, pairs: Pairs) -> tuple[Array, Mask]:
        slope, varies = _slope(pairs)
        return pairs.mean_y - slope * pairs.mean_x, varies


@register_function
class RegrR2(_OfPairs):
    """How much of y the line explains: null where x does not vary, 1 where only y does not."""

    name = "regr_r2"

    def of(self, pairs: Pairs) -> tuple[Array, Mask]:
        slope, varies = _slope(pairs)
        flat = pairs.syy == 0
        share = slope * (pairs.sxy / np.where(flat, 1, pairs.syy))
        return np.where(flat, 1.0, share), varies
