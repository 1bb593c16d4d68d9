"""Bits that all, some, or an odd number of whole numbers have."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, register_operator
from catchment.operators.grouping import Grouping
from catchment.operators.ragged import Fields, plain


class _Bits(Operator):
    combine: ClassVar[np.ufunc]
    nothing: ClassVar[int]
    """The identity, of a group without values."""

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"value": pa.int64()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        return {"value": events.groups.reduce(self.combine, events.values, self.nothing)}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        values = plain(rows[self.ref]["value"])
        return {"value": groups.reduce(self.combine, values, self.nothing)}

    def fieldwise(self) -> dict[str, np.ufunc]:
        return {"value": self.combine}


@register_operator
class BitAnd(_Bits):
    """The bits that every value has."""

    kind = "bit_and"
    combine = np.bitwise_and
    nothing = -1


@register_operator
class BitOr(_Bits):
    """The bits that some value has."""

    kind = "bit_or"
    combine = np.bitwise_or
    nothing = 0


@register_operator
class BitXor(_Bits):
    """The bits that an odd number of values have."""

    kind = "bit_xor"
    combine = np.bitwise_xor
    nothing = 0
