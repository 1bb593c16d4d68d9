"""Sums."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, is_float, register_operator
from catchment.operators.grouping import Grouping
from catchment.operators.ragged import Array, Fields, plain


@register_operator
class Sum(Operator):
    """The sum: double for floats; for integers int64 modulo 2^64, with a double beside it.

    The modular sum is exact whenever the true sum fits, whatever the order of adding; the double
    tells when it does not fit.
    """

    kind = "sum"
    arithmetic = True

    @property
    def fields(self) -> dict[str, pa.DataType]:
        if is_float(self.type):
            return {"total": pa.float64()}
        return {"total": pa.int64(), "approx": pa.float64()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        total = events.groups.add(events.values)
        if is_float(self.type):
            return {"total": total}
        values = events.values
        most = max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0
        if most * len(values) < 1 << 62:
            return {"total": total, "approx": total.astype(np.float64)}
        return {"total": total, "approx": events.groups.add(values.astype(np.float64))}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        return {name: groups.add(plain(field)) for name, field in rows[self.ref].items()}

    def fieldwise(self) -> dict[str, np.ufunc]:
        return dict.fromkeys(self.fields, np.add)


def as_float(fields: Fields) -> Array:
    """A sum as double: from the exact integer where it fits."""
    total = plain(fields["total"])
    if "approx" not in fields:
        return total
    return np.where(overflowed(fields), plain(fields["approx"]), total.astype(np.float64))


def overflowed(fields: Fields) -> Array:
    """Where an integer sum does not fit in int64."""
    total, approx = plain(fields["total"]), plain(fields["approx"])
    return np.abs(total.astype(np.float64) - approx) > 2.0**62
