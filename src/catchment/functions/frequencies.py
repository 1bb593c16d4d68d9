"""top_k, approx_top_k, histogram_numeric, quantile_dd: from how often values occur."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from catchment.errors import QueryError
from catchment.functions.base import Function, register_function
from catchment.functions.quantiles import share
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef
from catchment.operators.base import value_type
from catchment.operators.counts import ValueCounts, counts_of, most_frequent, numbers_of
from catchment.operators.histogram import bins_of
from catchment.operators.ragged import Ragged, plain
from catchment.operators.values import to_arrow

MOST_ITEMS = 1_000_000
"""The most values that top_k gives, and that approx_top_k keeps track of."""
MOST_BINS = 10_000
"""The most bins of a histogram."""
_USUAL_ITEMS, _USUAL_TRACKED = 5, 10_000
"""What Spark takes where nothing is said."""
_USUAL_ERROR = 0.01
LEAST_ERROR, MOST_ERROR = 0.0001, 0.5
"""The relative errors that may be asked for: of the least, doubles take 7 million buckets."""


def whole_number(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


@register_function
class TopK(Function):
    """The k most frequent values and how often each occurs, exactly, the most frequent first.

    It is a list of structs `item` and `count`, of no values an empty one. Of values that are
    equally frequent, the least come first.
    """

    name = "top_k"
    parameters = "`params` is k, a whole number from 1 on; without it, 5."
    given = "10"
    takes = "a value that can be ordered"

    def check(self, aggregate: Aggregate) -> None:
        if len(aggregate.params) > 1 or not whole_number(_k(aggregate), 1, MOST_ITEMS):
            raise QueryError(
                f"top_k takes a column and how many values, from 1 to {MOST_ITEMS:,}",
                given=aggregate.text,
                hint='try ct.top_k("v", 10)',
            )

    def accepts(self, type: pa.DataType) -> bool:
        return not pa.types.is_nested(type)

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("counts", aggregate.column),)

    def most_frequent(self, aggregate: Aggregate) -> int | None:
        k: int = _k(aggregate)
        return k

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        return pa.list_(_counted_item(type))

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        found = counts_of(computed[self.operators(aggregate)[0]])
        return self._listed(most_frequent(found, _k(aggregate)), aggregate, type)

    def _listed(
        self, found: ValueCounts, aggregate: Aggregate, type: pa.DataType | None
    ) -> pa.Array[Any]:
        kind = _counted_item(type)
        items = to_arrow(found.values.values, value_type(type)).cast(kind.field("item").type)
        columns = [items, to_arrow(found.times, pa.int64())]
        flat: Any = pa.StructArray.from_arrays(columns, fields=list(kind))
        return pa.ListArray.from_arrays(pa.array(found.values.offsets, pa.int32()), flat)


def _counted_item(type: pa.DataType | None) -> pa.StructType:
    assert type is not None
    item = value_type(type) if pa.types.is_dictionary(type) else type
    return pa.struct([("item", item), ("count", pa.int64())])


def _k(aggregate: Aggregate) -> Any:
    return aggregate.params[0] if aggregate.params else _USUAL_ITEMS


@register_function
class ApproxTopK(TopK):
    """About the k most frequent values and how often each occurs (Misra and Gries).

    Only so many values are kept track of as the second parameter says; while there are no more
    different ones, it is exact. Else a count is too high by at most the number of values divided by
    those kept track of. Nulls do not count.
    """

    name = "approx_top_k"
    parameters = (
        "`params` are k, without it 5, and how many values are kept track of, without it 10,000."
    )
    given = "10, 1000"

    def check(self, aggregate: Aggregate) -> None:
        k, tracked = _k(aggregate), _tracked(aggregate)
        good = whole_number(k, 1, MOST_ITEMS) and whole_number(tracked, k, MOST_ITEMS)
        if len(aggregate.params) > 2 or not good:
            raise QueryError(
                "approx_top_k takes a column, how many values, and as many or more to keep track "
                f"of, up to {MOST_ITEMS:,}",
                given=aggregate.text,
                hint='try ct.approx_top_k("v", 10, 1000)',
            )

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("frequent", aggregate.column, (_tracked(aggregate),)),)

    def most_frequent(self, aggregate: Aggregate) -> int | None:
        return None

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        fields = computed[self.operators(aggregate)[0]]
        values, times = most_frequent(counts_of(fields), _k(aggregate))
        lacks = np.repeat(plain(fields["lacks"]), values.lengths)
        return self._listed(ValueCounts(values, times + lacks), aggregate, type)


def _tracked(aggregate: Aggregate) -> Any:
    return aggregate.params[1] if len(aggregate.params) > 1 else _USUAL_TRACKED


@register_function
class HistogramNumeric(Function):
    """A histogram of n bins whose places follow the values (Ben-Haim and Tom-Tov).

    It is a list of structs in order: `x`, the mean of the values in a bin, and `y`, how many these
    are, as double; of no values it is null. While there are no more than n different values, each
    has a bin of its own. As in Spark, `x` has the type of the column where that is a whole number
    or a float, and is cut off at the point; of decimals it is a double. NaN and the infinities have
    no place.
    """

    name = "histogram_numeric"
    parameters = "`params` is the number of bins, from 2 on."
    given = "20"

    def check(self, aggregate: Aggregate) -> None:
        params = aggregate.params
        if len(params) != 1 or not whole_number(params[0], 2, MOST_BINS):
            raise QueryError(
                f"histogram_numeric takes a column and a number of bins, from 2 to {MOST_BINS:,}",
                given=aggregate.text,
                hint='try ct.histogram_numeric("v", 20)',
            )

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("histogram", aggregate.column, aggregate.params),)

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        return pa.list_(_bin(type))

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        bins = bins_of(computed[self.operators(aggregate)[0]])
        kind = _bin(type)
        x_type = kind.field("x").type
        means = bins.means.values
        x = pa.array(np.trunc(means) if pa.types.is_integer(x_type) else means)
        y = pa.array(bins.sizes.astype(np.float64))
        flat: Any = pa.StructArray.from_arrays([x.cast(x_type, safe=False), y], fields=list(kind))
        ends, empty = bins.means.offsets, bins.means.lengths == 0
        # Of no values there is no list: its place in the offsets is null.
        offsets = pa.array(ends, pa.int32(), mask=np.append(empty, False))
        return pa.ListArray.from_arrays(offsets, flat)


def _bin(type: pa.DataType | None) -> pa.StructType:
    assert type is not None
    x = pa.float64() if pa.types.is_decimal(type) else type
    return pa.struct([("x", x), ("y", pa.float64())])


@register_function
class QuantileDd(Function):
    """About the value below which a share q of the values lies, with a relative error (DDSketch).

    It is within the error of the value at that rank, the lower of two: with an error of 0.01, which
    is the usual one, within 1 % of it. Results do not depend on how events are cut and merged.
    """

    name = "quantile_dd"
    parameters = (
        "`params` are the share q, a number from 0 to 1, and the relative error, without it 0.01."
    )
    given = "0.99, 0.01"
    synonyms: ClassVar[tuple[str, ...]] = ("percentile_dd",)

    def check(self, aggregate: Aggregate) -> None:
        share(self.name, aggregate.params[:1])
        error = _error(aggregate)
        good = isinstance(error, float) and LEAST_ERROR <= error <= MOST_ERROR
        if len(aggregate.params) > 2 or not good:
            raise QueryError(
                f"the relative error of quantile_dd is a number from {LEAST_ERROR} to {MOST_ERROR}",
                given=aggregate.text,
                hint='try ct.quantile_dd("v", 0.99, 0.01)',
            )

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("relative_buckets", aggregate.column, (_error(aggregate),)),)

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        found = counts_of(computed[self.operators(aggregate)[0]])
        buckets, counts = found.values, Ragged(found.values.offsets, np.cumsum(found.times))
        filled = buckets.lengths > 0
        values = np.zeros(len(buckets))
        last = counts.offsets[1:][filled] - 1
        before = np.append(0, counts.values)[counts.offsets[:-1][filled]]
        n = counts.values[last] - before
        rank = before + np.floor((n - 1) * float(aggregate.params[0])).astype(np.int64)
        at = np.searchsorted(counts.values, rank, side="right")
        values[filled] = numbers_of(buckets.values[at], _error(aggregate))
        return to_arrow(values, pa.float64(), filled)


def _error(aggregate: Aggregate) -> Any:
    return aggregate.params[1] if len(aggregate.params) > 1 else _USUAL_ERROR
