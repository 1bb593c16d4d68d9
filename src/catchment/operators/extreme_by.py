"""The value that goes with the least or the greatest value of another column."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from catchment.operators.base import (
    Computed,
    Input,
    InputForm,
    Operator,
    register_operator,
    value_type,
)
from catchment.operators.grouping import Grouping
from catchment.operators.ragged import Array, Fields, Ints, plain

NONE, NULL, VALUE = 0, 1, 2
"""What a partial holds: nothing, a null, or a value."""


class _ExtremeBy(Operator):
    """Of two arguments the first, where the second is extreme; of equals, the first in order of
    time, then arrival. Events where the second is null do not count."""

    reads: ClassVar[InputForm] = "parts"
    least: ClassVar[bool]

    @property
    def fields(self) -> dict[str, pa.DataType]:
        assert isinstance(self.type, pa.StructType)
        value, by = (value_type(field.type) for field in self.type)
        place = {"time": pa.int64(), "arrival": pa.int64()}
        return {"by": by, **place, "holds": pa.int64(), "value": value}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        value, by = events.parts
        known = np.flatnonzero(by.known)
        groups = Grouping(events.groups.codes[known], events.groups.n)
        times = events.times()[known]
        group, chosen = self._chosen(by.values[known], times, groups)
        rows = known[chosen]
        picked, extreme = value.where(rows), by.where(rows)
        holds = np.where(picked.known, VALUE, NULL)
        places = times[chosen], events.arrivals(rows)
        return self._placed(group, extreme.decode(), *places, holds, picked.decode(), groups.n)

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        names = ("by", "time", "arrival", "holds", "value")
        by, times, arrivals, holds, values = (plain(rows[self.ref][name]) for name in names)
        some = np.flatnonzero(holds != NONE)
        kept = Grouping(groups.codes[some], groups.n)
        rank = np.empty(len(some), np.int64)
        rank[np.lexsort((arrivals[some], times[some]))] = np.arange(len(some))
        group, chosen = self._chosen(by[some], rank, kept)
        row = some[chosen]
        found = by[row], times[row], arrivals[row], holds[row], values[row]
        return self._placed(group, *found, groups.n)

    def _chosen(self, by: Array, order: Ints, groups: Grouping) -> tuple[Ints, Ints]:
        """The groups that have rows, and of each the extreme row that is first in order."""
        extreme = (groups.min(by) if self.least else groups.max(by))[groups.codes]
        met = np.asarray(by == extreme, np.bool_)
        if by.dtype.kind == "f":
            met |= np.isnan(by) & np.isnan(extreme)
        rows = np.flatnonzero(met)
        group, place = Grouping(groups.codes[rows], groups.n).first(order[rows])
        return group, rows[place]

    def _placed(
        self,
        groups: Ints,
        by: Array,
        times: Ints,
        arrivals: Ints,
        holds: Ints,
        values: Array,
        n: int,
    ) -> Fields:
        columns = {"by": by, "time": times, "arrival": arrivals, "holds": holds, "value": values}
        out: Fields = {}
        for name, column in columns.items():
            whole = np.full(n, None if column.dtype == object else 0, column.dtype)
            whole[groups] = column
            out[name] = whole
        return out


@register_operator
class MaxBy(_ExtremeBy):
    """The value of the event in which the other column is greatest; NaN is the largest number."""

    kind = "max_by"
    least = False


@register_operator
class MinBy(_ExtremeBy):
    """The value of the event in which the other column is least; NaN is the largest number."""

    kind = "min_by"
    least = True
