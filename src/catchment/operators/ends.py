"""First and last values, in order of time, then arrival."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, register_operator, value_type
from catchment.operators.grouping import Grouping
from catchment.operators.ragged import Array, Fields, Ints


class _End(Operator):
    latest: ClassVar[bool]

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"time": pa.int64(), "arrival": pa.int64(), "value": value_type(self.type)}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        pick = events.groups.last if self.latest else events.groups.first
        times = events.times()
        groups, rows = pick(times)
        times, arrivals = times[rows], events.arrivals(rows)
        values = events.decode(events.values[rows])
        return self._placed(groups, times, arrivals, values, events.groups.n)

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        fields = rows[self.ref]
        times, arrivals, values = fields["time"], fields["arrival"], fields["value"]
        assert isinstance(times, np.ndarray) and isinstance(arrivals, np.ndarray)
        assert isinstance(values, np.ndarray)
        rank = np.empty(len(times), np.int64)
        rank[np.lexsort((arrivals, times))] = np.arange(len(times))
        group, row = groups.last(rank) if self.latest else groups.first(rank)
        return self._placed(group, times[row], arrivals[row], values[row], groups.n)

    def _placed(self, groups: Ints, times: Ints, arrivals: Ints, values: Array, n: int) -> Fields:
        # A group without values must lose to any other: it is the identity.
        worst = np.iinfo(np.int64).min if self.latest else np.iinfo(np.int64).max
        time, arrival = np.full(n, worst, np.int64), np.full(n, worst, np.int64)
        value = np.full(n, None if values.dtype == object else 0, values.dtype)
        time[groups], arrival[groups], value[groups] = times, arrivals, values
        return {"time": time, "arrival": arrival, "value": value}


@register_operator
class First(_End):
    """The earliest value that is not null."""

    kind = "first"
    latest = False


@register_operator
class Last(_End):
    """The latest value that is not null."""

    kind = "last"
    latest = True
