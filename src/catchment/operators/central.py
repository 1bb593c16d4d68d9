"""Central moments: of one column up to the fourth, and of two columns together.

Each partial keeps a center, the double next to its mean. Differences from it keep their digits
where sums of powers would cancel, and are shifted to a common center when partials are merged. As
their sum is kept too, nothing is lost by the rounding of the center.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from catchment.expression.decimals import digits_of
from catchment.operators.base import (
    Argument,
    Computed,
    Input,
    InputForm,
    Operator,
    register_operator,
)
from catchment.operators.grouping import Grouping
from catchment.operators.limbs import doubles_of, is_narrow, split
from catchment.operators.ragged import Array, Fields, Ints, plain


@register_operator
class Moments(Operator):
    """Count, a center, and the sums of the first four powers of differences from it."""

    kind = "moments"
    reads: ClassVar[InputForm] = "doubles"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        sums = dict.fromkeys(("center", "first", "second", "third", "fourth"), pa.float64())
        return {"count": pa.int64(), **sums}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        groups = events.groups
        values = events.values.astype(np.float64, copy=False)
        center = _means(values, None, groups, groups.count)
        sums = groups.powers(values, center)
        names = ("first", "second", "third", "fourth")
        return {"count": groups.count, "center": center, **dict(zip(names, sums, strict=True))}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        own = rows[self.ref]
        n, centers, first, second, third, fourth = (plain(own[name]) for name in self.fields)
        count = groups.add(n)
        center = _means(centers, n, groups, count)
        d = np.where(n > 0, centers - center[groups.codes], 0.0)
        powers = {
            "first": first + d * n,
            "second": second + d * (2 * first + d * n),
            "third": third + d * (3 * second + d * (3 * first + d * n)),
            "fourth": fourth + d * (4 * third + d * (6 * second + d * (4 * first + d * n))),
        }
        sums = {name: groups.add(power) for name, power in powers.items()}
        return {"count": count, "center": center, **sums}


def central_moments(fields: Fields) -> tuple[Ints, Array, Array, Array]:
    """Of a `moments` operator: the count, and the sums of the second to fourth powers of
    differences from the mean."""
    names = ("count", "first", "second", "third", "fourth")
    n, first, second, third, fourth = (plain(fields[name]) for name in names)
    off = first / np.maximum(n, 1)
    return (
        n,
        second - n * off**2,
        third - off * (3 * second - 2 * n * off**2),
        fourth - off * (4 * third - off * (6 * second - 3 * n * off**2)),
    )


@register_operator
class Comoments(Operator):
    """Of pairs (y, x) of which neither is null: count, a center, and the sums of differences from
    it, of their squares and of their products."""

    kind = "comoments"
    reads: ClassVar[InputForm] = "parts"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        names = ("center_y", "center_x", "y", "x", "yy", "xx", "xy")
        return {"count": pa.int64(), **dict.fromkeys(names, pa.float64())}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        assert isinstance(self.type, pa.StructType)
        groups, parts = events.groups, events.parts
        known = parts[0].known & parts[1].known
        if not known.all():
            groups, parts = groups.select(known), tuple(part.where(known) for part in parts)
        y, x = (_doubles(part, f.type) for part, f in zip(parts, self.type, strict=True))
        center_y = _means(y, None, groups, groups.count)
        center_x = _means(x, None, groups, groups.count)
        dy, dx = y - center_y[groups.codes], x - center_x[groups.codes]
        products = {"y": dy, "x": dx, "yy": dy * dy, "xx": dx * dx, "xy": dx * dy}
        sums = {name: groups.add(product) for name, product in products.items()}
        return {"count": groups.count, "center_y": center_y, "center_x": center_x, **sums}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        own = rows[self.ref]
        n, centers_y, centers_x, y, x, yy, xx, xy = (plain(own[name]) for name in self.fields)
        count = groups.add(n)
        center_y = _means(centers_y, n, groups, count)
        center_x = _means(centers_x, n, groups, count)
        dy = np.where(n > 0, centers_y - center_y[groups.codes], 0.0)
        dx = np.where(n > 0, centers_x - center_x[groups.codes], 0.0)
        products = {
            "y": y + n * dy,
            "x": x + n * dx,
            "yy": yy + dy * (2 * y + n * dy),
            "xx": xx + dx * (2 * x + n * dx),
            "xy": xy + dy * x + dx * (y + n * dy),
        }
        sums = {name: groups.add(product) for name, product in products.items()}
        return {"count": count, "center_y": center_y, "center_x": center_x, **sums}


class Pairs(NamedTuple):
    """What is known of the pairs of each row: count, means, and sums of products of differences
    from these."""

    n: Ints
    mean_y: Array
    mean_x: Array
    syy: Array
    sxx: Array
    sxy: Array


def pairs_of(fields: Fields) -> Pairs:
    """The moments of pairs, from the fields of a `comoments` operator."""
    names = ("count", "center_y", "center_x", "y", "x", "yy", "xx", "xy")
    n, center_y, center_x, y, x, yy, xx, xy = (plain(fields[name]) for name in names)
    some = np.maximum(n, 1)
    mean_y = np.where(np.isfinite(center_y), center_y + y / some, center_y)
    mean_x = np.where(np.isfinite(center_x), center_x + x / some, center_x)
    return Pairs(n, mean_y, mean_x, yy - y * y / some, xx - x * x / some, xy - x * y / some)


def _means(values: Array, weights: Ints | None, groups: Grouping, counts: Ints) -> Array:
    """The mean of each group; of equal values, exactly their value.

    It is found by differences from one value of the group, which are exact where values are close.
    """
    codes = groups.codes
    if weights is not None:
        some = weights > 0
        if not some.all():
            values, weights, codes = values[some], weights[some], codes[some]
            groups = Grouping(codes, groups.n)
    one = np.zeros(groups.n)
    one[codes] = values
    least = np.maximum(counts, 1)
    if weights is None:
        differences = groups.differences(values, one)
    else:
        differences = groups.add(weights * (values - one[codes]))
    mean = one + differences / least
    lost = np.isnan(mean)
    if lost.any():  # infinities have no difference
        mean[lost] = (groups.add(values if weights is None else weights * values) / least)[lost]
    return mean


def _doubles(part: Argument, type: pa.DataType) -> Array:
    """Numbers without nulls as the doubles next to them."""
    if part.levels is not None:
        return np.array([float(level) for level in part.levels])[part.values]
    if pa.types.is_decimal(type) and is_narrow(type):
        return doubles_of(split(part.values), digits_of(type)[1])
    return part.values.astype(np.float64, copy=False)
