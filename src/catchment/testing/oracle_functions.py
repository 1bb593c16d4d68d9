"""Every aggregate function over a plain list of values, by its definition, in exact arithmetic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from catchment.errors import QueryError
from catchment.testing.oracle_expression import order_key

Values = list[Any]


@dataclass(frozen=True)
class Near:
    """What an approximate function may answer: `accepts` says whether a value will do."""

    exact: Any
    accepts: Callable[[Any], bool]

    def __repr__(self) -> str:
        return f"near {self.exact!r}"


def aggregate(function: str, values: Values, params: tuple[Any, ...] = ()) -> Any:
    """The function of the values, given in order of time, then arrival; None is NULL.

    >>> aggregate("avg", [1, 2, None]), aggregate("quantile", [1, 2], (0.5,)), aggregate("max", [])
    (1.5, 1.5, None)
    """
    if function not in _FUNCTIONS:
        raise QueryError("the oracle does not know this function", given=function)
    return _FUNCTIONS[function]([v for v in values if v is not None], *params)


def _exact(values: Iterable[float], combine: Callable[[list[Fraction]], Fraction]) -> float:
    """The double nearest to a rational function of finite doubles."""
    return _double(combine([Fraction(v) for v in values]))


def _double(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _finite(values: Values) -> bool:
    return all(math.isfinite(v) for v in values)


def _fits(value: int) -> int | None:
    return value if -(2**63) <= value < 2**63 else None


def _is_float(values: Values) -> bool:
    return any(isinstance(v, float) for v in values)


_DIGITS = 38
"""A decimal of more digits does not fit any type."""


def _is_decimal(values: Values) -> bool:
    return any(isinstance(v, Decimal) for v in values)


def _scale(values: Values) -> int:
    """The digits behind the point that the decimals have, all of one column and so the same."""
    return max(-int(v.as_tuple().exponent) for v in values if isinstance(v, Decimal))


def _decimal(value: Fraction, scale: int) -> Decimal | None:
    """Rounded half away from zero to `scale` digits; None where it has too many in front."""
    unscaled = math.floor(abs(value) * 10**scale + Fraction(1, 2))
    if unscaled >= 10**_DIGITS:
        return None
    return Decimal((int(value < 0), tuple(map(int, str(unscaled))), -scale))


def _total(values: Values) -> Fraction:
    return sum((Fraction(v) for v in values), Fraction(0))


def _sum(values: Values) -> Any:
    if not values:
        return None
    if _is_decimal(values):
        return _decimal(_total(values), _scale(values))
    if not _is_float(values):
        return _fits(sum(values))
    return _exact(values, lambda f: sum(f, Fraction(0))) if _finite(values) else sum(values)


def _avg(values: Values) -> Any:
    if not values:
        return None
    if _is_decimal(values) and _scale(values):
        # Four digits more than the values have; None where their sum is. Without a point they are
        # unsigned integers.
        fits = _sum(values) is not None
        return _decimal(_total(values) / len(values), _scale(values) + 4) if fits else None
    if not _finite(values):
        return float(sum(values))
    return _exact(values, lambda f: sum(f, Fraction(0)) / len(f))


def _min(values: Values) -> Any:
    return min(values, key=order_key, default=None)


def _max(values: Values) -> Any:
    return max(values, key=order_key, default=None)


def _range(values: Values) -> Any:
    if not values:
        return None
    if _is_decimal(values):
        return _decimal(Fraction(_max(values)) - Fraction(_min(values)), _scale(values))
    width = _max(values) - _min(values)
    return width if _is_float(values) else _fits(width)


def _exact_product(values: Values) -> Fraction:
    return math.prod((Fraction(v) for v in values), start=Fraction(1))


def _product(values: Values) -> float | None:
    if not values:
        return None
    if not _finite(values):
        # Signs decide between infinities; a zero or a NaN among them makes it NaN.
        return math.prod(math.copysign(1, v) if v and math.isfinite(v) else v for v in values)
    return _double(_exact_product(values))


def _geometric_mean(values: Values) -> float | None:
    if not values:
        return None
    if not _finite(values):
        return math.inf if _product(values) == math.inf else math.nan
    product = _exact_product(values)
    if product <= 0:
        return math.nan if product < 0 else 0.0
    # Logarithms of whole numbers of any size: the product itself may be past any double.
    return math.exp((math.log(product.numerator) - math.log(product.denominator)) / len(values))


def _variance(values: Values, less: int) -> float | None:
    if len(values) <= less:
        return None
    if not _finite(values):
        return math.nan

    def definition(f: list[Fraction]) -> Fraction:
        mean = sum(f, Fraction(0)) / len(f)
        return sum(((x - mean) ** 2 for x in f), Fraction(0)) / (len(f) - less)

    return _exact(values, definition)


def _root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


def _quantile(values: Values, q: float) -> float | None:
    if not values:
        return None
    ranked = [float(v) for v in sorted(values, key=order_key)]
    position = (len(ranked) - 1) * q
    low, high = math.floor(position), math.ceil(position)
    if order_key(ranked[low]) == order_key(ranked[high]):
        return ranked[low]
    return ranked[low] * (high - position) + ranked[high] * (position - low)


def _approximate_quantile(values: Values, q: float) -> Any:
    if not values:
        return None
    # Sketches take doubles.
    ranked = sorted((float(v) if isinstance(v, Decimal) else v for v in values), key=order_key)
    slack = 1 / len(ranked) + 0.03

    def accepts(answer: Any) -> bool:
        if answer is None:
            return False
        below = sum(order_key(v) < order_key(answer) for v in ranked) / len(ranked)
        up_to = sum(order_key(v) <= order_key(answer) for v in ranked) / len(ranked)
        return below - slack <= q <= up_to + slack

    return Near(_quantile(values, q), accepts)


def _distinct(values: Values) -> int:
    return len({order_key(v) for v in values})


def _approximate_distinct(values: Values) -> Any:
    exact = _distinct(values)
    slack = 0 if exact <= 64 else 0.1 * exact
    return Near(exact, lambda answer: answer is not None and abs(answer - exact) <= slack)


def _mode(values: Values) -> Any:
    if not values:
        return None
    times = Counter(order_key(v) for v in values)
    most = max(times.values())
    return _min([v for v in values if times[order_key(v)] == most])


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _sum,
    "count": len,
    "avg": _avg,
    "min": _min,
    "max": _max,
    "range": _range,
    "product": _product,
    "geometric_mean": _geometric_mean,
    "variance": lambda v: _variance(v, 1),
    "variance_pop": lambda v: _variance(v, 0),
    "stddev": lambda v: _root(_variance(v, 1)),
    "stddev_pop": lambda v: _root(_variance(v, 0)),
    "first": lambda v: v[0] if v else None,
    "last": lambda v: v[-1] if v else None,
    "median": lambda v: _quantile(v, 0.5),
    "quantile": _quantile,
    "approx_median": lambda v: _approximate_quantile(v, 0.5),
    "approx_quantile": _approximate_quantile,
    "count_distinct": _distinct,
    "approx_count_distinct": _approximate_distinct,
    "mode": _mode,
}
