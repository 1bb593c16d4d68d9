"""quantile, quantiles, quantile_disc, median, mode: exact, from all values in order."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from msgspec import structs

from catchment.errors import QueryError
from catchment.expression.decimals import digits_of
from catchment.functions.base import Function, register_function
from catchment.functions.extremes import FirstFunction
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef, Ragged
from catchment.operators.counts import counts_of, most_frequent
from catchment.operators.limbs import is_narrow
from catchment.operators.ragged import Array, Ints
from catchment.operators.values import to_arrow


def share(function: str, params: tuple[object, ...]) -> None:
    """Refuses a quantile that is not a number in [0, 1]."""
    q = params[0] if len(params) == 1 else None
    if isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1:
        raise QueryError(
            f"{function} takes one number from 0 to 1",
            given=", ".join(map(repr, params)) or None,
            hint=f'try ct.{function}("v", 0.95)',
        )


@register_function
class Quantile(Function):
    """The value below which a share q of the values lies, interpolated (Spark's percentile)."""

    name = "quantile"
    parameters = "`params` is the share q, a number from 0 to 1."
    given = "0.95"
    synonyms: ClassVar[tuple[str, ...]] = ("percentile",)

    def check(self, aggregate: Aggregate) -> None:
        share(self.name, aggregate.params)

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("sort", aggregate.column),)

    def q(self, aggregate: Aggregate) -> float:
        return float(aggregate.params[0])

    def ranks(self, aggregate: Aggregate, counts: Ints) -> list[Ints] | None:
        return [*_around(counts, self.q(aggregate))[1:]]

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        run = computed[OperatorRef("sort", aggregate.column)]["run"]
        assert isinstance(run, Ragged)
        filled = run.lengths > 0
        values = np.zeros(len(run), np.float64)
        # A decimal's values are kept in units of its last digit, where these are integers.
        unit = 10.0 ** digits_of(type)[1] if type is not None and is_narrow(type) else 1.0
        values[filled] = _interpolate(run, np.flatnonzero(filled), self.q(aggregate), unit)
        return to_arrow(values, pa.float64(), filled)


def _around(counts: Ints, q: float) -> tuple[Array, Ints, Ints]:
    """Where a quantile lies among so many values, and the places below and above."""
    position = (counts - 1) * q
    return position, np.floor(position).astype(np.int64), np.ceil(position).astype(np.int64)


def _interpolate(run: Ragged, rows: Array, q: float, unit: float) -> Array:
    position, below, above = _around(run.lengths[rows], q)
    start = run.offsets[:-1][rows]
    low = run.values[start + below].astype(np.float64) / unit
    high = run.values[start + above].astype(np.float64) / unit
    with np.errstate(invalid="ignore"):
        mixed = (above - position) * low + (position - below) * high
    values: Array = np.where((below == above) | (low == high), low, mixed)
    return values


@register_function
class Median(Quantile):
    """The middle value; of an even number, the mean of the two middle ones."""

    name = "median"
    parameters = given = ""
    synonyms = ()

    def check(self, aggregate: Aggregate) -> None:
        Function.check(self, aggregate)

    def q(self, aggregate: Aggregate) -> float:
        return 0.5


@register_function
class Quantiles(Quantile):
    """Several quantiles, as a list (Spark's percentile of an array)."""

    name = "quantiles"
    parameters = "`params` are the shares q, numbers from 0 to 1."
    given = "0.5, 0.95"
    synonyms = ()

    def check(self, aggregate: Aggregate) -> None:
        if not aggregate.params:
            share(self.name, ())
        for q in aggregate.params:
            share(self.name, (q,))

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        return pa.list_(pa.float64())

    def ranks(self, aggregate: Aggregate, counts: Ints) -> list[Ints] | None:
        each = [_around(counts, float(q)) for q in aggregate.params]
        return [rank for _, *around in each for rank in around]

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        each = [structs.replace(aggregate, params=(q,)) for q in aggregate.params]
        columns = [super(Quantiles, self).lower(one, computed, type) for one in each]
        n, width = len(columns[0]), len(columns)
        flat = pa.concat_arrays(columns).take(np.arange(n * width).reshape(width, n).T.ravel())
        filled = columns[0].is_valid().to_numpy(zero_copy_only=False)
        ends = np.concatenate([[0], np.cumsum(filled * width)])
        # Of no values there is no list: its place in the offsets is null.
        offsets = pa.array(ends, pa.int32(), mask=np.append(~filled, False))
        return pa.ListArray.from_arrays(offsets, flat.filter(flat.is_valid()))


@register_function
class QuantileDisc(Quantile):
    """The least value that at least a share q of the values does not exceed (percentile_disc).

    With a second parameter, `"desc"`, the greatest that a share q is not below.
    """

    name = "quantile_disc"
    parameters = "`params` is the share q, from 0 to 1; 'desc' behind it counts from above."
    given = "0.95"
    synonyms = ()

    def check(self, aggregate: Aggregate) -> None:
        params = aggregate.params
        share(self.name, params[:1] if params[1:] == ("desc",) else params)

    def ranks(self, aggregate: Aggregate, counts: Ints) -> list[Ints] | None:
        return [self._place(aggregate, counts)]

    def _place(self, aggregate: Aggregate, counts: Ints) -> Ints:
        place: Ints = np.maximum(np.ceil(counts * self.q(aggregate)).astype(np.int64) - 1, 0)
        return counts - 1 - place if len(aggregate.params) > 1 else place

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        run = computed[OperatorRef("sort", aggregate.column)]["run"]
        assert isinstance(run, Ragged)
        filled = run.lengths > 0
        place = self._place(aggregate, run.lengths[filled])
        unit = 10.0 ** digits_of(type)[1] if type is not None and is_narrow(type) else 1.0
        values = np.zeros(len(run), np.float64)
        values[filled] = run.values[run.offsets[:-1][filled] + place].astype(np.float64) / unit
        return to_arrow(values, pa.float64(), filled)


@register_function
class Mode(FirstFunction):
    """The most frequent value; of several, the least."""

    name = "mode"
    synonyms = ("most_frequent",)
    takes = "a value that can be ordered"

    def accepts(self, type: pa.DataType) -> bool:
        return not pa.types.is_nested(type)

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("counts", aggregate.column),)

    def most_frequent(self, aggregate: Aggregate) -> int | None:
        return 1

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        found, _ = most_frequent(counts_of(computed[self.operators(aggregate)[0]]), 1)
        filled = found.lengths > 0
        empty = None if found.values.dtype == object else 0
        values = np.full(len(found), empty, found.values.dtype)
        values[filled] = found.values
        return to_arrow(values, self.result(aggregate, type), filled)
