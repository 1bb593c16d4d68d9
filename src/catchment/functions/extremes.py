"""min, max, range, first, last, any_value, max_by, min_by: the result is one of the values."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from catchment.expression.decimals import add, difference_type
from catchment.functions.base import Function, counted, register_function, some
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef
from catchment.operators.base import value_type
from catchment.operators.extreme_by import VALUE
from catchment.operators.ragged import plain
from catchment.operators.values import objects, to_arrow


class _OneOf(Function):
    """The value that one operator picked, in the column's own type."""

    takes = "a value that can be ordered"
    kind: ClassVar[str]

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return counted(aggregate.column, self.kind)

    def accepts(self, type: pa.DataType) -> bool:
        return not pa.types.is_nested(type)

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        return _own_type(type)

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        values = computed[OperatorRef(self.kind, aggregate.column)]["value"]
        return to_arrow(values, self.result(aggregate, type), some(computed, aggregate.column))


def _own_type(type: pa.DataType | None) -> pa.DataType:
    assert type is not None
    if pa.types.is_decimal(type) or pa.types.is_dictionary(type):
        return value_type(type)
    return type


@register_function
class MinFunction(_OneOf):
    """The least value; NaN is larger than any number."""

    name = kind = "min"


@register_function
class MaxFunction(_OneOf):
    """The greatest value; NaN is larger than any number."""

    name = kind = "max"


@register_function
class FirstFunction(_OneOf):
    """The first value that is not null, by time, then arrival."""

    name = kind = "first"
    synonyms: ClassVar[tuple[str, ...]] = ("first_value",)
    takes = "a value"

    def accepts(self, type: pa.DataType) -> bool:
        return True


@register_function
class LastFunction(FirstFunction):
    """The last value that is not null, by time, then arrival."""

    name = kind = "last"
    synonyms = ("last_value",)


@register_function
class AnyValue(FirstFunction):
    """Some value that is not null: the first one."""

    name = "any_value"
    synonyms = ()


@register_function
class MaxByFunction(Function):
    """The value of the event in which another column is greatest; NaN is larger than any number.

    Of events that are equal in that column, the first by time, then arrival; those where it is null
    do not count. The value may be null.
    """

    name = "max_by"
    columns = 2
    takes = "a value, and one that can be ordered"

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef(self.name, aggregate.column),)

    def accepts(self, type: pa.DataType) -> bool:
        return isinstance(type, pa.StructType) and not pa.types.is_nested(type.field(1).type)

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        assert isinstance(type, pa.StructType)
        return _own_type(type.field(0).type)

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        fields = computed[OperatorRef(self.name, aggregate.column)]
        known = plain(fields["holds"]) == VALUE
        return to_arrow(fields["value"], self.result(aggregate, type), known)


@register_function
class MinByFunction(MaxByFunction):
    """The value of the event in which another column is least; in all else as `max_by`."""

    name = "min_by"


@register_function
class RangeFunction(Function):
    """The greatest value less the least; of decimals, in the type of Spark's difference."""

    name = "range"

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return counted(aggregate.column, "min", "max")

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        if type is not None and pa.types.is_decimal(type):
            return difference_type(type, type)
        return value_type(type)

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        most = plain(computed[OperatorRef("max", aggregate.column)]["value"])
        least = plain(computed[OperatorRef("min", aggregate.column)]["value"])
        valid = some(computed, aggregate.column)
        if type is not None and pa.types.is_decimal(type):
            high, low = (to_arrow(values, value_type(type), valid) for values in (most, least))
            made: pa.Array[Any] = add(high, low, "-")
            return made
        if most.dtype == object:
            pairs = zip(most[valid], least[valid], strict=True)
            gaps = np.full(len(most), None, object)
            gaps[valid] = objects([high - low for high, low in pairs])
            return to_arrow(gaps, value_type(type))
        with np.errstate(invalid="ignore", over="ignore"):
            difference = most - least
        if difference.dtype.kind == "i":  # the true difference of two int64 may not fit
            valid = valid & (difference >= 0)
        return to_arrow(difference, value_type(type), valid)
