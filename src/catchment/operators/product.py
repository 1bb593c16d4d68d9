"""Products, as mantissa and exponent, so that they neither overflow nor vanish."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, register_operator
from catchment.operators.grouping import Grouping
from catchment.operators.ragged import Array, Fields, Ints, lengths_of, plain

_BLOCK = 512
"""Mantissas lie in [0.5, 1): this many of them cannot multiply down to zero."""


@register_operator
class Product(Operator):
    """The product is `mantissa * 2 ** exponent`; of 0, infinity and NaN the exponent is 0."""

    kind = "product"
    reads = "doubles"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"mantissa": pa.float64(), "exponent": pa.int64()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        values, groups = events.values.astype(np.float64, copy=False), events.groups
        if groups.kernels is not None:
            mantissas, exponents = groups.kernels.products(values, groups.codes, groups.n)
            every = np.arange(groups.n, dtype=np.int64)
            return multiply(mantissas, exponents, Grouping(every, groups.n))
        mantissa, exponent = np.frexp(values)
        return multiply(mantissa, exponent.astype(np.int64), groups)

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        fields = rows[self.ref]
        return multiply(plain(fields["mantissa"]), plain(fields["exponent"]), groups)


def multiply(mantissa: Array, exponent: Ints, groups: Grouping) -> Fields:
    """Products in the one form that each of them has, however its factors were put together."""
    made = _multiplied(mantissa, exponent, groups)
    factors, exponents = plain(made["mantissa"]), plain(made["exponent"])
    regular = np.isfinite(factors) & (factors != 0)
    return {"mantissa": factors, "exponent": np.where(regular, exponents, 0)}


def _multiplied(mantissa: Array, exponent: Ints, groups: Grouping) -> Fields:
    """Multiplies block by block, bringing the mantissas back into range between the rounds."""
    exponents = groups.add(exponent)
    if not len(mantissa) or groups.count.max() <= _BLOCK:
        factors, shift = np.frexp(groups.reduce(np.multiply, mantissa, 1.0))
        return {"mantissa": factors, "exponent": exponents + shift}
    if groups.starts is None and groups.n <= _BLOCK:
        made = _by_stretch(mantissa, groups)
        return {"mantissa": made["mantissa"], "exponent": exponents + plain(made["exponent"])}
    order, starts, present = groups.segments
    lengths = lengths_of(starts, len(order))
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
    exponents[groups.count == 0] = 1
    return {"mantissa": out, "exponent": exponents}


def _by_stretch(mantissa: Array, groups: Grouping) -> Fields:
    """The products of few groups of many rows, which need not be put in order for it.

    A group has at most a block of rows in a stretch of as many: the products of stretches are made
    at once, and then multiplied.
    """
    stretches = -(-len(mantissa) // _BLOCK)
    codes = np.arange(len(mantissa), dtype=np.int64) // _BLOCK * groups.n + groups.codes
    finer = Grouping(codes, stretches * groups.n)
    factors, shift = np.frexp(finer.reduce(np.multiply, mantissa, 1.0))
    owner = np.tile(np.arange(groups.n, dtype=np.int64), stretches)
    return multiply(factors, shift.astype(np.int64), Grouping(owner, groups.n))
