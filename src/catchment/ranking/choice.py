"""Chooses which values a node keeps back: those that cost more bytes than questions do.

Both costs are measured on the rows at hand: what their values take on the way, packed, and what a
summary of them, and the answers that are to be expected, take.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from catchment.operators.ragged import Ints
from catchment.operators.values import Mask
from catchment.ranking.groups import RankedGroup

LEAST = 64
"""Values of a row that are always sent."""
_ROW = 48.0
"""Bytes that a row costs besides values: its place in a summary, its part of questions."""


def chosen(table: pa.Table, ranked: RankedGroup, always: bool) -> Mask:
    """Which rows of a table of partials keep their values back; with `always`, all that can."""
    sizes: Ints = np.add.reduce([column.sizes(table) for column in ranked.columns])
    if always:
        return np.asarray(sizes > 2, np.bool_)
    large = np.flatnonzero(sizes >= LEAST)
    keep = np.zeros(len(sizes), np.bool_)
    if not len(large):
        return keep
    fields = [field for column in ranked.columns for field in column.fields]
    some = table.select([name for name in fields if name in table.schema.names]).take(large)
    costs = [column.costs(some, ranked.searches, ranked.overlaps) for column in ranked.columns]
    whole = np.add.reduce([whole for whole, _ in costs])
    asked = np.add.reduce([asked for _, asked in costs]) + _ROW
    keep[large[asked < whole]] = True
    return keep
