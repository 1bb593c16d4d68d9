"""Sums."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from catchment.expression.decimals import digits_of
from catchment.operators.base import (
    Computed,
    Input,
    Operator,
    is_exact,
    is_float,
    register_operator,
)
from catchment.operators.grouping import Grouping
from catchment.operators.limbs import as_int64, carried, doubles_of, limbs_for, split
from catchment.operators.ragged import Array, Fields, Ints, plain


@register_operator
class Sum(Operator):
    """The sum: double for floats; for integers int64 modulo 2^64, with a double beside it.

    The modular sum is exact whenever the true sum fits, whatever the order of adding; the double
    tells when it does not fit. Sums of decimals and of unsigned 64-bit integers are exact always:
    whole numbers in units of the last digit, in limbs of 32 bits.
    """

    kind = "sum"
    reads = "units"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        if is_float(self.type):
            return {"total": pa.float64()}
        if is_exact(self.type):
            assert self.type is not None
            return {f"limb{place}": pa.int64() for place in range(limbs_for(self.type))}
        return {"total": pa.int64(), "approx": pa.float64()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        if is_exact(self.type):
            return self._limbs(events)
        total = events.groups.add(events.values)
        if is_float(self.type):
            return {"total": total}
        values = events.values
        if _is_small(values):
            return {"total": total, "approx": total.astype(np.float64)}
        return {"total": total, "approx": events.groups.add(values.astype(np.float64))}

    def _limbs(self, events: Input) -> Fields:
        narrow = as_int64(events.values)
        if narrow is not None and _is_small(narrow):
            return self._carried(split(events.groups.add(narrow)))
        return self._carried([events.groups.add(limb) for limb in split(events.values)])

    def _carried(self, limbs: list[Ints]) -> Fields:
        return dict(zip(self.fields, carried(limbs, len(self.fields)), strict=True))

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        added = {name: groups.add(plain(field)) for name, field in rows[self.ref].items()}
        if is_exact(self.type):
            return self._carried([plain(added[name]) for name in self.fields])
        return dict(added)

    def fieldwise(self) -> dict[str, np.ufunc]:
        return dict.fromkeys(self.fields, np.add)


def _is_small(values: Ints) -> bool:
    """Whether int64 holds the sum of any of the values."""
    most = max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0
    return most * len(values) < 1 << 62


def limbs_of(fields: Fields) -> list[Ints]:
    """The limbs of an exact sum."""
    return [plain(fields[f"limb{place}"]) for place in range(len(fields))]


def as_float(fields: Fields, type: pa.DataType | None) -> Array:
    """A sum of values of a type as double: from the exact sum where there is one."""
    if is_exact(type):
        assert type is not None
        return doubles_of(limbs_of(fields), digits_of(type)[1])
    total = plain(fields["total"])
    if "approx" not in fields:
        return total
    return np.where(overflowed(fields), plain(fields["approx"]), total.astype(np.float64))


def overflowed(fields: Fields) -> Array:
    """Where an integer sum does not fit in int64."""
    total, approx = plain(fields["total"]), plain(fields["approx"])
    return np.abs(total.astype(np.float64) - approx) > 2.0**62
