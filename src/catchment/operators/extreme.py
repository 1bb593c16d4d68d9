"""Least and greatest values (the papers' decomposable sort)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from catchment.operators.base import (
    Computed,
    Input,
    Operator,
    register_operator,
    value_type,
)
from catchment.operators.grouping import Grouping
from catchment.operators.limbs import is_narrow
from catchment.operators.ragged import Array, Fields


def _is_plain(type: pa.DataType | None) -> bool:
    """Whether a partial keeps the value as a number, which NumPy can compare."""
    return value_type(type) in (pa.int64(), pa.float64()) or is_narrow(type)


@register_operator
class Min(Operator):
    """The least value; NaN is larger than any number."""

    kind = "min"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"value": value_type(self.type)}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        return {"value": decoded(events, events.groups.min(events.values))}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        return {"value": merge_values(rows[self.ref], groups, least=True)}

    def fieldwise(self) -> dict[str, np.ufunc] | None:
        return {"value": np.fmin} if _is_plain(self.type) else None


@register_operator
class Max(Operator):
    """The greatest value; NaN is larger than any number."""

    kind = "max"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"value": value_type(self.type)}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        return {"value": decoded(events, events.groups.max(events.values))}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        return {"value": merge_values(rows[self.ref], groups, least=False)}

    def fieldwise(self) -> dict[str, np.ufunc] | None:
        return {"value": np.maximum} if _is_plain(self.type) else None


def decoded(events: Input, ranks: Array) -> Array:
    """Ranks to values; a group without values holds None."""
    if events.levels is None:
        return ranks
    out = np.full(events.groups.n, None, object)
    present = events.groups.count > 0
    out[present] = events.levels[ranks[present]]
    return out


def merge_values(fields: Fields, groups: Grouping, *, least: bool) -> Array:
    values = fields["value"]
    assert isinstance(values, np.ndarray)
    if values.dtype != object:
        return groups.min(values) if least else groups.max(values)
    known = np.array([value is not None for value in values], np.bool_)
    groups = groups.select(known)
    return groups.min(values[known]) if least else groups.max(values[known])
