"""bool_and, bool_or; bit_and, bit_or, bit_xor."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from catchment.functions.base import Function, counted, register_function, some
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef
from catchment.operators.values import to_arrow


class _Combined(Function):
    """What one operator holds, in the column's own type."""

    kind: ClassVar[str]

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return counted(aggregate.column, self.kind)

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        assert type is not None
        return type

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        values = computed[OperatorRef(self.kind, aggregate.column)]["value"]
        return to_arrow(values, self.result(aggregate, type), some(computed, aggregate.column))


@register_function
class BoolAnd(_Combined):
    """Whether a condition holds in every event where it is not null: the least of its values."""

    name = "bool_and"
    synonyms: ClassVar[tuple[str, ...]] = ("every",)
    takes = "a condition"
    kind = "min"

    def accepts(self, type: pa.DataType) -> bool:
        return pa.types.is_boolean(type)


@register_function
class BoolOr(BoolAnd):
    """Whether a condition holds in some event: the greatest of its values."""

    name = "bool_or"
    synonyms = ("some", "any")
    kind = "max"


@register_function
class BitAndFunction(_Combined):
    """The bits that every value has."""

    name = "bit_and"
    takes = "a whole number of at most 64 bits with a sign"
    kind = "bit_and"

    def accepts(self, type: pa.DataType) -> bool:
        return pa.types.is_integer(type) and type != pa.uint64()


@register_function
class BitOrFunction(BitAndFunction):
    """The bits that some value has."""

    name = "bit_or"
    kind = "bit_or"


@register_function
class BitXorFunction(BitAndFunction):
    """The bits that an odd number of values have."""

    name = "bit_xor"
    kind = "bit_xor"
