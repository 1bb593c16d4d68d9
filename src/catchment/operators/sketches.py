"""Approximate quantiles (KLL) and distinct counts (HLL), in the bytes that Spark uses too."""

from __future__ import annotations

from typing import Any

import datasketches as ds
import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, register_operator
from catchment.operators.grouping import Grouping
from catchment.operators.ragged import Array, Fields, plain
from catchment.operators.sort import sort_within, unique_within

KLL_K = 200
"""KLL's size parameter: a rank error of about 1.65 %."""
HLL_LOG2 = 12
"""HLL's size parameter: an error of about 1.6 %; the first few hundred values are kept as is."""


@register_operator
class Kll(Operator):
    """A KLL sketch of doubles; None for a group without values."""

    kind = "kll"
    small = False
    reads = "doubles"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"sketch": pa.binary()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        order = events.groups.segments[0]
        values = events.values.astype(np.float64)[order]
        out = np.full(events.groups.n, None, object)
        for group, begin, end in events.groups.stretches():
            sketch = ds.kll_doubles_sketch(KLL_K)
            segment = values[begin:end]
            sketch.update(segment[~np.isnan(segment)])
            out[group] = None if sketch.is_empty() else sketch.serialize()
        return {"sketch": out}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        return {"sketch": _merged(plain(rows[self.ref]["sketch"]), groups, _union_kll)}


@register_operator
class Hll(Operator):
    """An HLL sketch; None for a group without values."""

    kind = "hll"
    small = False

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"sketch": pa.binary()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        # A sketch takes one value at a time in Python: give it each distinct value once.
        distinct = unique_within(sort_within(events.values, events.groups))
        values = distinct.values.tolist()
        if events.levels is not None:
            hashable = [_hashable(level) for level in events.levels]
            values = [hashable[rank] for rank in values]
        out = np.full(events.groups.n, None, object)
        for group in np.flatnonzero(distinct.lengths).tolist():
            sketch = ds.hll_sketch(HLL_LOG2, ds.HLL_8)
            for value in values[distinct.offsets[group] : distinct.offsets[group + 1]]:
                sketch.update(value)
            out[group] = sketch.serialize_compact()
        return {"sketch": out}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        return {"sketch": _merged(plain(rows[self.ref]["sketch"]), groups, _union_hll)}


def _hashable(value: Any) -> int | float | str:
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if value == "":
        return "\0"  # a sketch passes over the empty text, but it is a value
    return value if isinstance(value, int | float | str) else str(value)


def _merged(sketches: Array, groups: Grouping, union: Any) -> Array:
    order = groups.segments[0]
    out = np.full(groups.n, None, object)
    for group, begin, end in groups.stretches():
        parts = sorted(s for s in sketches[order[begin:end]].tolist() if s is not None)
        out[group] = parts[0] if len(parts) == 1 else union(parts) if parts else None
    return out


def _union_kll(parts: list[bytes]) -> bytes:
    sketch = ds.kll_doubles_sketch.deserialize(parts[0])
    for part in parts[1:]:
        sketch.merge(ds.kll_doubles_sketch.deserialize(part))
    return bytes(sketch.serialize())


def _union_hll(parts: list[bytes]) -> bytes:
    union = ds.hll_union(HLL_LOG2)
    for part in parts:
        union.update(ds.hll_sketch.deserialize(part))
    return bytes(union.get_result(ds.HLL_8).serialize_compact())
