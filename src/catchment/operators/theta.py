"""Theta sketches, for distinct counts that can be intersected: the operator, and the bytes of
DataSketches.

A sketch is the least of the hashes of its values, as many as the parameter says, and a bound: all
hashes of its values that are below the bound are there. While values are fewer, the bound is 2**63,
past every hash, and the count is exact; else it is the least hash that has no place. Both follow
from the set of values alone, however it was cut and merged.
"""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, register_operator
from catchment.operators.coupons import hashes_of
from catchment.operators.grouping import Grouping
from catchment.operators.ragged import Array, Fields, Ints, Ragged, offsets_of, plain
from catchment.operators.sort import merge_runs, sort_within, unique_within

NO_BOUND = np.iinfo(np.int64).max
THETA_LOG2 = 12
"""The usual size parameter: 4,096 hashes, an error of about 1.6 %."""
# Sizes of the preamble, version, family, sizes of tables (of no use here), flags, hash of the seed.
_VERSION, _FAMILY, _SEED_HASH = 3, 3, 0x93CC
_EMPTY, _IN_ORDER, _SINGLE = 0x1E, 0x1A, 0x3A


@register_operator
class Theta(Operator):
    """The least hashes, in order, and the bound below which none is missing."""

    kind = "theta"
    small = False

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"hashes": pa.list_(pa.int64()), "bound": pa.int64()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        hashes = hashes_of(events.values, events.levels) >> np.uint64(1)
        run = unique_within(sort_within(hashes.view(np.int64), events.groups))
        return self._least(run, np.full(events.groups.n, NO_BOUND))

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        own = rows[self.ref]
        hashes = own["hashes"]
        assert isinstance(hashes, Ragged)
        return self._least(
            unique_within(merge_runs(hashes, groups)), groups.min(plain(own["bound"]))
        )

    def _least(self, run: Ragged, bound: Ints) -> Fields:
        """Those sorted hashes that are below the bound and for which there is room."""
        places = 1 << self.ref.params[0]
        over = np.flatnonzero(run.lengths > places)
        bound[over] = np.minimum(bound[over], run.values[run.offsets[over] + places])
        keep = run.values < np.repeat(bound, run.lengths)
        ends = offsets_of(keep.astype(np.int64))[run.offsets]
        return {"hashes": Ragged(ends, run.values[keep]), "bound": bound}


def written(fields: Fields) -> Array:
    """Sketches as DataSketches writes them: compact, and in order."""
    hashes, bounds = fields["hashes"], plain(fields["bound"])
    assert isinstance(hashes, Ragged)
    data = hashes.values.astype("<i8", copy=False).tobytes()
    out = np.empty(len(hashes), object)
    for row, ((begin, end), bound) in enumerate(
        zip(pairwise(hashes.offsets.tolist()), bounds.tolist(), strict=True)
    ):
        out[row] = _head(end - begin, bound) + data[8 * begin : 8 * end]
    return out


def _head(count: int, bound: int) -> bytes:
    def first(longs: int, flags: int) -> bytes:
        return struct.pack("<BBBBBBH", longs, _VERSION, _FAMILY, 0, 0, flags, _SEED_HASH)

    if bound != NO_BOUND:
        return first(3, _IN_ORDER) + struct.pack("<ifq", count, 1.0, bound)
    if count <= 1:
        return first(1, _SINGLE if count else _EMPTY)
    return first(2, _IN_ORDER) + struct.pack("<if", count, 1.0)
