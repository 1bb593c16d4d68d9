"""hll_sketch_agg, kll_sketch_agg_*, theta_sketch_agg: sketches as bytes, to be merged and read by
Spark's functions of these names, and by all that read Apache DataSketches."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from catchment.errors import QueryError
from catchment.expression.values import is_text
from catchment.functions.base import Function, register_function
from catchment.functions.frequencies import whole_number
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef
from catchment.operators.hll import EMPTY as EMPTY_HLL
from catchment.operators.hll import HLL_LOG2
from catchment.operators.kll import EMPTY as EMPTY_KLL
from catchment.operators.kll import KLL_K, as_floats
from catchment.operators.ragged import Array, plain
from catchment.operators.theta import THETA_LOG2, written

_LOG2_LEAST, _LOG2_MOST = 4, 26
"""The sizes of theta sketches that Spark takes."""


class _Sketch(Function):
    """A sketch as bytes; of no values, that of nothing."""

    kind: ClassVar[str]
    size: ClassVar[int]
    empty: ClassVar[bytes]

    def check(self, aggregate: Aggregate) -> None:
        if aggregate.params not in ((), (self.size,)):
            raise QueryError(
                f"{self.name} makes sketches of one size, which is {self.size}",
                given=aggregate.text,
                hint=f"try {self.example}",
            )

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef(self.kind, aggregate.column),)

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        return pa.binary()

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        sketches = self.of(plain(computed[self.operators(aggregate)[0]]["sketch"]))
        made = [self.empty if sketch is None else sketch for sketch in sketches.tolist()]
        return pa.array(made, pa.binary())

    def of(self, sketches: Array) -> Array:
        return sketches


@register_function
class HllSketchAgg(_Sketch):
    """An HLL sketch of the values as bytes, which Spark's hll_union_agg and hll_sketch_estimate
    read.

    It has 2**12 registers, as Spark's has where nothing else is said. An empty text counts as a
    value.
    """

    name = "hll_sketch_agg"
    parameters = "`params` may be 12, the size, and nothing else."
    takes = "a whole number, a text or bytes"
    kind, size, empty = "hll", HLL_LOG2, EMPTY_HLL

    def accepts(self, type: pa.DataType) -> bool:
        return pa.types.is_integer(type) or _is_text_or_bytes(type)


def _is_text_or_bytes(type: pa.DataType) -> bool:
    kind = type.value_type if pa.types.is_dictionary(type) else type
    data = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return is_text(kind) or any(is_kind(kind) for is_kind in data)


@register_function
class KllSketchAggDouble(_Sketch):
    """A KLL sketch of doubles as bytes, which Spark's kll_sketch_get_quantile_double and
    kll_merge_agg_double read.

    Its k is 200, as that of Spark's is where nothing else is said. NaN does not count.
    """

    name = "kll_sketch_agg_double"
    parameters = "`params` may be 200, the size k, and nothing else."
    kind, size, empty = "kll", KLL_K, EMPTY_KLL


@register_function
class KllSketchAggFloat(KllSketchAggDouble):
    """A KLL sketch of floats of 32 bits as bytes, which Spark's kll_sketch_get_quantile_float and
    kll_merge_agg_float read; of other numbers, the floats next to them."""

    name = "kll_sketch_agg_float"

    def of(self, sketches: Array) -> Array:
        return as_floats(sketches)


@register_function
class KllSketchAggBigint(KllSketchAggDouble):
    """A KLL sketch of whole numbers as bytes, which Spark's kll_sketch_get_quantile_bigint and
    kll_merge_agg_bigint read."""

    name = "kll_sketch_agg_bigint"
    kind = "kll_whole"
    takes = "a whole number of at most 63 bits and a sign"

    def accepts(self, type: pa.DataType) -> bool:
        return pa.types.is_integer(type) and type != pa.uint64()


@register_function
class ThetaSketchAgg(Function):
    """A theta sketch of the values as bytes, which Spark's theta_sketch_estimate, theta_union_agg
    and theta_intersection_agg read.

    It keeps the least hashes, exactly while there are no more values than these: which bytes it is
    follows from the set of values alone. An empty text counts as a value.
    """

    name = "theta_sketch_agg"
    parameters = "`params` is the logarithm to base 2 of how many hashes there are, without it 12."
    given = "12"
    takes = "a number, a text or bytes"

    def check(self, aggregate: Aggregate) -> None:
        good = whole_number(_log2(aggregate), _LOG2_LEAST, _LOG2_MOST)
        if len(aggregate.params) > 1 or not good:
            raise QueryError(
                f"theta_sketch_agg takes a column and a size from {_LOG2_LEAST} to {_LOG2_MOST}",
                given=aggregate.text,
                hint=f"try {self.example}",
            )

    def accepts(self, type: pa.DataType) -> bool:
        return pa.types.is_integer(type) or pa.types.is_floating(type) or _is_text_or_bytes(type)

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("theta", aggregate.column, (_log2(aggregate),)),)

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        return pa.binary()

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        sketches = written(computed[self.operators(aggregate)[0]])
        return pa.array(sketches.tolist(), pa.binary())


def _log2(aggregate: Aggregate) -> Any:
    return aggregate.params[0] if aggregate.params else THETA_LOG2
