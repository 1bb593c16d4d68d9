"""Products, as mantissa and exponent, so that they neither overflow nor vanish."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, register_operator
from catchment.operators.grouping import Grouping
from catchment.operators.ragged import Array, Fields, Ints, plain

_BLOCK = 512
"""Mantissas lie in [0.5, 1): this many of them cannot multiply down to zero."""


@register_operator
class Product(Operator):
    """The product is `mantissa * 2 ** exponent`."""

    kind = "product"
    reads = "doubles"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"mantissa": pa.float64(), "exponent": pa.int64()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        mantissa, exponent = np.frexp(events.values.astype(np.float64))
        return multiply(mantissa, exponent.astype(np.int64), events.groups)

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        fields = rows[self.ref]
        return multiply(plain(fields["mantissa"]), plain(fields["exponent"]), groups)


def multiply(mantissa: Array, exponent: Ints, groups: Grouping) -> Fields:
    """Multiplies block by block, bringing the mantissas back into range between the rounds."""
    exponents = groups.add(exponent)
    order, starts, present = groups.segments
    lengths = np.diff(starts, append=len(order)).astype(np.int64)
    factors = mantissa[order]
    while len(factors) > len(present):
        blocks = -(-lengths // _BLOCK)
        inner = np.arange(int(blocks.sum()), dtype=np.int64)
        inner -= np.repeat(np.cumsum(blocks) - blocks, blocks)
        begins = np.repeat(np.cumsum(lengths) - lengths, blocks) + inner * _BLOCK
        factors, shift = np.frexp(np.multiply.reduceat(factors, begins))
        owner = np.repeat(present, blocks)
        np.add.at(exponents, owner, shift.astype(np.int64))
        lengths = blocks
    # A group without values has the product 1, in the form that all products have.
    out = np.full(groups.n, 0.5)
    out[present] = factors
    exponents[np.isin(np.arange(groups.n), present, invert=True)] = 1
    return {"mantissa": out, "exponent": exponents}
