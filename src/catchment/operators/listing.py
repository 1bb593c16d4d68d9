"""All values, in order of time, then arrival."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, register_operator, value_type
from catchment.operators.grouping import Grouping, sort_order
from catchment.operators.ragged import Fields, Ragged, offsets_of


@register_operator
class Listing(Operator):
    """Every value that is not null, with its time and arrival, by which lists are merged."""

    kind = "list"
    small = False

    @property
    def fields(self) -> dict[str, pa.DataType]:
        place = pa.list_(pa.int64())
        return {"time": place, "arrival": place, "value": pa.list_(value_type(self.type))}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        times = events.times()
        order = sort_order(times, events.groups.codes)  # rows of one time are in order of arrival
        offsets = offsets_of(events.groups.count)
        return {
            "time": Ragged(offsets, times[order]),
            "arrival": Ragged(offsets, events.arrivals(order)),
            "value": Ragged(offsets, events.decode(events.values[order])),
        }

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        own = rows[self.ref]
        times, arrivals, values = own["time"], own["arrival"], own["value"]
        assert isinstance(times, Ragged) and isinstance(arrivals, Ragged)
        assert isinstance(values, Ragged)
        codes = np.repeat(groups.codes, times.lengths)
        order = sort_order(arrivals.values, times.values, codes)
        offsets = offsets_of(np.bincount(codes, minlength=groups.n).astype(np.int64, copy=False))
        return {
            "time": Ragged(offsets, times.values[order]),
            "arrival": Ragged(offsets, arrivals.values[order]),
            "value": Ragged(offsets, values.values[order]),
        }
