"""What lies between samples of a series: areas for time-weighted means, and increases of counters.

A partial is what is known of a stretch of the series: its first and its last sample, and sums over
the pairs of samples that follow each other within it. Where two stretches follow each other, the
last sample of one and the first of the other are one more pair:

    first . . . last    first . . last
    +-------------+-----+-----------+
        own pairs   pair   own pairs

Stretches must not overlap, so events are sliced in order of time, once no others can come before
them (`ordered`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, OperatorRef, register_operator
from catchment.operators.grouping import Grouping, sort_order
from catchment.operators.ragged import Array, Fields, Ints, plain

SUMS = ("step", "linear", "increase")


class _SampleEnds(NamedTuple):
    """The first or last sample of stretches."""

    times: Ints
    arrivals: Ints
    values: Array

    def at(self, rows: Ints) -> _SampleEnds:
        return _SampleEnds(*(column[rows] for column in self))


@register_operator
class SampleStretch(Operator):
    """The ends of a stretch of samples, and sums over the pairs of those that follow each other.

    `step` is the area under the values, each of which holds until the next; `linear` that under
    lines from one to the next; `increase` what a counter grew by, which is its new value where it
    fell. Areas are in units of the value times microseconds.
    """

    kind = "samples"
    reads = "doubles"

    @classmethod
    def ordered(cls, ref: OperatorRef) -> bool:
        return True

    @property
    def fields(self) -> dict[str, pa.DataType]:
        place: dict[str, pa.DataType] = {
            "time": pa.int64(),
            "arrival": pa.int64(),
            "value": pa.float64(),
        }
        ends = {f"{end}_{name}": kind for end in ("first", "last") for name, kind in place.items()}
        return {"count": pa.int64(), **ends, **dict.fromkeys(SUMS, pa.float64())}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        values = events.values.astype(np.float64, copy=False)
        samples = _SampleEnds(events.times(), events.arrivals(), values)
        nothing = {name: np.zeros(len(values)) for name in SUMS}
        return _chained(samples, samples, np.ones(len(values), np.int64), nothing, events.groups)

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        own = {name: plain(field) for name, field in rows[self.ref].items()}
        some = np.flatnonzero(own["count"])
        kept = {name: field[some] for name, field in own.items()}
        first, last = (
            _SampleEnds(*(kept[f"{end}_{name}"] for name in ("time", "arrival", "value")))
            for end in ("first", "last")
        )
        sums = {name: kept[name] for name in SUMS}
        return _chained(first, last, kept["count"], sums, groups.select(some))


def _chained(
    first: _SampleEnds, last: _SampleEnds, count: Ints, sums: dict[str, Array], groups: Grouping
) -> Fields:
    """The stretches of each group as one."""
    order = sort_order(first.arrivals, first.times, groups.codes)
    codes, first, last = groups.codes[order], first.at(order), last.at(order)
    follows = np.flatnonzero(codes[1:] == codes[:-1]) + 1
    old, new = last.at(follows - 1), first.at(follows)
    apart = (new.times - old.times).astype(np.float64)
    between = {
        "step": old.values * apart,
        "linear": (old.values + new.values) / 2 * apart,
        "increase": np.where(new.values < old.values, new.values, new.values - old.values),
    }
    heads = np.flatnonzero(np.diff(codes, prepend=-1))
    present, tails = codes[heads], np.append(heads[1:], len(codes))[: len(heads)] - 1
    out: Fields = {"count": Grouping(codes, groups.n).add(count[order])}
    for end, samples, rows in (("first", first, heads), ("last", last, tails)):
        for name, column in zip(("time", "arrival", "value"), samples.at(rows), strict=True):
            whole = np.zeros(groups.n, column.dtype)
            whole[present] = column
            out[f"{end}_{name}"] = whole
    for name, own in sums.items():
        total = own[order]
        total[follows] += between[name]
        out[name] = Grouping(codes, groups.n).add(total)
    return out
