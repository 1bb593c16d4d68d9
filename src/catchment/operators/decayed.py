"""Sums of values whose weight halves with their age, for moving averages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, register_operator
from catchment.operators.grouping import Grouping
from catchment.operators.ragged import Array, Fields, Ints, plain

_EARLIEST = np.iinfo(np.int64).min


@register_operator
class Decayed(Operator):
    """The sum of weights, and of weights times values, as of the latest value.

    The weight of a value halves with every half-life, the parameter, that it is older than the
    latest. A sum as of one time becomes that as of another by one factor: so partials are merged in
    any order, even where the times of their values overlap.
    """

    kind = "decayed"
    reads = "doubles"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"latest": pa.int64(), "weight": pa.float64(), "total": pa.float64()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        values = events.values.astype(np.float64, copy=False)
        return self._as_of_latest(events.times(), np.ones(len(values)), values, events.groups)

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        own = rows[self.ref]
        latest, weight, total = (plain(own[name]) for name in self.fields)
        some = np.flatnonzero(latest != _EARLIEST)
        return self._as_of_latest(latest[some], weight[some], total[some], groups.select(some))

    def _as_of_latest(self, times: Ints, weights: Array, totals: Array, groups: Grouping) -> Fields:
        latest = groups.max(times)
        age = (latest[groups.codes] - times) / self.ref.params[0]
        factor = np.exp2(-age)
        # What is too old to count is nothing, also where its value is infinite.
        totals = np.where(factor > 0, totals * factor, 0.0)
        return {
            "latest": latest,
            "weight": groups.add(weights * factor),
            "total": groups.add(totals),
        }
