"""collect_list, collect_set, listagg: functions that give all values."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import pyarrow as pa

from catchment.errors import QueryError
from catchment.expression.values import is_text
from catchment.functions.base import Function, register_function
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef, Ragged
from catchment.operators.base import value_type
from catchment.operators.values import to_arrow


@register_function
class CollectList(Function):
    """All values that are not null, in order of time, then arrival; of none, an empty list."""

    name = "collect_list"
    synonyms: ClassVar[tuple[str, ...]] = ("array_agg",)
    takes = "a number, a text, a time or a truth value"
    kind: ClassVar[str] = "list"
    field: ClassVar[str] = "value"

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef(self.kind, aggregate.column),)

    def accepts(self, type: pa.DataType) -> bool:
        return not pa.types.is_nested(type)

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        assert type is not None
        return pa.list_(value_type(type) if pa.types.is_dictionary(type) else type)

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        values = computed[OperatorRef(self.kind, aggregate.column)][self.field]
        made: pa.Array[Any] = to_arrow(values, pa.list_(value_type(type)))
        return made.cast(self.result(aggregate, type))


@register_function
class CollectSet(CollectList):
    """The different values that are not null, in ascending order; of none, an empty list."""

    name = "collect_set"
    synonyms = ()
    kind = "distinct"
    field = "set"


@register_function
class Listagg(Function):
    """All texts that are not null, in order of time, then arrival, with a separator between them.

    Without one they follow each other; of no texts it is null.
    """

    name = "listagg"
    parameters = "`params` is the separator, a text; without it, nothing is between them."
    given = "', '"
    synonyms = ("string_agg",)
    takes = "a text"

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("list", aggregate.column),)

    def accepts(self, type: pa.DataType) -> bool:
        return is_text(type)

    def check(self, aggregate: Aggregate) -> None:
        params = aggregate.params
        if len(params) > 1 or not all(isinstance(param, str) for param in params):
            raise QueryError(
                "listagg takes a column and a separator, which is a text",
                given=aggregate.text,
                hint='try ct.listagg("s", ", ")',
            )

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        return pa.string()

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        listed = computed[OperatorRef("list", aggregate.column)]["value"]
        assert isinstance(listed, Ragged)
        between = aggregate.params[0] if aggregate.params else ""
        texts, ends = listed.values.tolist(), listed.offsets.tolist()
        joined = [between.join(texts[a:b]) if b > a else None for a, b in pairwise(ends)]
        return pa.array(joined, pa.string())
