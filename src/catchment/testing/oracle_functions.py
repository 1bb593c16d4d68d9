"""Every aggregate function over a plain list of values, by its definition, in exact arithmetic."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial, reduce
from itertools import pairwise
from operator import and_, or_, xor
from typing import Any

import datasketches as ds

from catchment.errors import QueryError
from catchment.model.duration import micros
from catchment.testing.oracle_expression import order_key

Values = list[Any]


@dataclass(frozen=True)
class Approximately:
    """What an approximate function may answer: `accepts` says whether a value will do."""

    exact: Any
    accepts: Callable[[Any], bool]

    def __repr__(self) -> str:
        return f"near {self.exact!r}"


def aggregate(
    function: str,
    values: Values,
    params: tuple[Any, ...] = (),
    times: Sequence[int] | None = None,
) -> Any:
    """The function of the values, given in order of time, then arrival; None is NULL.

    Functions of a series need their times too, in microseconds.

    >>> aggregate("avg", [1, 2, None]), aggregate("quantile", [1, 2], (0.5,)), aggregate("max", [])
    (1.5, 1.5, None)
    """
    if function not in _FUNCTIONS and function not in _OF_SERIES:
        raise QueryError("the oracle does not know this function", given=function)
    if function in _OF_SERIES:
        assert times is not None, "functions of a series need times"
        known = [(t, float(v)) for t, v in zip(times, values, strict=True) if v is not None]
        return _OF_SERIES[function](known, *params) if known else None
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
    if _is_decimal(values):
        # Four digits more than the values have; None where their sum is.
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

    # Spreads of decimals are those of the doubles next to them, as in Spark.
    return _exact(map(float, values) if _is_decimal(values) else values, definition)


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

    return Approximately(_quantile(values, q), accepts)


def _distinct(values: Values) -> int:
    return len({order_key(v) for v in values})


def _different(values: Values) -> Values:
    """Each value once, in order."""
    return sorted({order_key(v): v for v in values}.values(), key=order_key)


def _quantile_disc(values: Values, q: float, order: str = "asc") -> float | None:
    if not values:
        return None
    ranked = sorted((float(v) for v in values), key=order_key, reverse=order == "desc")
    return next(v for n, v in enumerate(ranked, 1) if n >= q * len(ranked))


def _approximate_distinct(values: Values) -> Any:
    exact = _distinct(values)
    slack = 0 if exact <= 64 else 0.1 * exact
    return Approximately(exact, lambda answer: answer is not None and abs(answer - exact) <= slack)


def _mode(values: Values) -> Any:
    if not values:
        return None
    times = Counter(order_key(v) for v in values)
    most = max(times.values())
    return _min([v for v in values if times[order_key(v)] == most])


def _by(pairs: Values, extreme: Callable[[Values], Any]) -> Any:
    """The first of a pair, where the second is extreme; of equals, the earliest."""
    ranked = [(value, by) for value, by in pairs if by is not None]
    most = extreme([by for _, by in ranked])
    return next((value for value, by in ranked if order_key(by) == order_key(most)), None)


def _powers(values: Values, power: int) -> Fraction:
    """The sum of the powers of differences from the mean."""
    exact = [Fraction(v) for v in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    return sum(((v - mean) ** power for v in exact), Fraction(0))


def _standardized(values: Values, power: int) -> float | None:
    if values and not _finite(values):
        return math.nan
    second = _powers(values, 2) if values else 0
    if not second:
        return None
    n, moment = len(values), _powers(values, power)
    if power == 4:
        return _double(n * moment / second**2 - 3)
    return math.copysign(math.sqrt(n * moment**2 / second**3), moment)


Exact = list[Fraction]


def _sxy(ys: Exact, xs: Exact) -> Fraction:
    mean_y, mean_x = sum(ys, Fraction(0)) / len(ys), sum(xs, Fraction(0)) / len(xs)
    return sum(((y - mean_y) * (x - mean_x) for y, x in zip(ys, xs, strict=True)), Fraction(0))


def _slope(ys: Exact, xs: Exact) -> Fraction | None:
    return _sxy(ys, xs) / _sxy(xs, xs) if _sxy(xs, xs) else None


def _intercept(ys: Exact, xs: Exact) -> Fraction | None:
    slope = _slope(ys, xs)
    return None if slope is None else (sum(ys) - slope * sum(xs)) / len(xs)


def _corr(ys: Exact, xs: Exact) -> float | None:
    spread, both = _sxy(xs, xs) * _sxy(ys, ys), _sxy(ys, xs)
    return math.copysign(math.sqrt(both**2 / spread), both) if spread else None


def _r2(ys: Exact, xs: Exact) -> Fraction | None:
    if not _sxy(xs, xs):
        return None
    return _sxy(ys, xs) ** 2 / (_sxy(xs, xs) * _sxy(ys, ys)) if _sxy(ys, ys) else Fraction(1)


_PAIRS: dict[str, Callable[[Exact, Exact], Fraction | float | None]] = {
    "covar_pop": lambda ys, xs: _sxy(ys, xs) / len(xs),
    "covar_samp": lambda ys, xs: _sxy(ys, xs) / (len(xs) - 1) if len(xs) > 1 else None,
    "corr": _corr,
    "regr_count": lambda ys, xs: Fraction(len(xs)),
    "regr_avgx": lambda ys, xs: sum(xs, Fraction(0)) / len(xs),
    "regr_avgy": lambda ys, xs: sum(ys, Fraction(0)) / len(ys),
    "regr_sxx": lambda ys, xs: _sxy(xs, xs),
    "regr_syy": lambda ys, xs: _sxy(ys, ys),
    "regr_sxy": _sxy,
    "regr_slope": _slope,
    "regr_intercept": _intercept,
    "regr_r2": _r2,
}


def _of_pairs(function: str, values: Values) -> Any:
    """A function of pairs (y, x); those in which one is null do not count."""
    pairs = [pair for pair in values if None not in pair]
    if function == "regr_count":
        return len(pairs)
    if not pairs:
        return None
    ys, xs = [y for y, _ in pairs], [x for _, x in pairs]
    read = {"regr_avgx": xs, "regr_avgy": ys, "regr_sxx": xs, "regr_syy": ys}.get(function, ys + xs)
    if not _finite(read):
        if function.startswith("regr_avg"):
            return float(sum(read))
        if function == "regr_r2" and _finite(ys) and not _powers(ys, 2):
            return 1.0  # whatever x is
        return None if _undefined(function, xs) else math.nan
    exact = [[Fraction(v) for v in some if math.isfinite(v)] for some in (ys, xs)]
    if function.endswith("y") and function != "regr_sxy":
        exact[1] = exact[0]
    elif function.endswith("x"):
        exact[0] = exact[1]
    result = _PAIRS[function](*exact)
    return None if result is None else _double(Fraction(result))


def _undefined(function: str, xs: Values) -> bool:
    """Whether there is no result however far the others are from a number."""
    if function in ("corr", "covar_samp"):
        return len(xs) < 2
    if function not in ("regr_slope", "regr_intercept", "regr_r2") or not _finite(xs):
        return False
    return not _powers(xs, 2)


def _top(values: Values, k: int = 5, tracked: int | None = None) -> Any:
    """The most frequent values; where not all are kept track of, about these."""
    times = Counter(order_key(v) for v in values)
    ranked = sorted(_different(values), key=lambda v: (-times[order_key(v)], order_key(v)))
    exact = [{"item": v, "count": times[order_key(v)]} for v in ranked[:k]]
    if tracked is None or len(times) <= tracked:
        return exact
    slack = len(values) / tracked
    least = exact[-1]["count"]

    def accepts(answer: Any) -> bool:
        return len(answer) == k and all(
            times[order_key(one["item"])] <= one["count"] <= times[order_key(one["item"])] + slack
            and times[order_key(one["item"])] >= least - slack
            for one in answer
        )

    return Approximately(exact, accepts)


def _histogram(values: Values, bins: int) -> Any:
    """A bin for each value; of more values than bins, whatever keeps their number and mean."""
    counted = [v for v in values if math.isfinite(v)]
    if not counted:
        return None
    times = Counter(float(v) + 0.0 for v in counted)
    if len(times) <= bins:
        whole = isinstance(counted[0], int)
        kind = int if whole else float
        return [{"x": kind(x), "y": float(n)} for x, n in sorted(times.items())]
    mean = _total(counted) / len(counted)

    def accepts(answer: Any) -> bool:
        places = [one["x"] for one in answer]
        total = _total([Fraction(one["x"]) * Fraction(one["y"]) for one in answer])
        most = max(abs(float(v)) for v in counted)
        near = 1.0 if isinstance(counted[0], int) else 1e-9 * most
        return (
            places == sorted(places)
            and len(answer) <= bins
            and sum(one["y"] for one in answer) == len(counted)
            and float(abs(total / len(counted) - mean)) <= near
        )

    return Approximately(None, accepts)


def _quantile_dd(values: Values, q: float, error: float = 0.01) -> Any:
    """Within the error of the value at the rank, the lower of two."""
    if not values:
        return None
    exact = float(sorted(values, key=order_key)[math.floor((len(values) - 1) * q)])
    if not math.isfinite(exact):
        return exact
    slack = error * abs(exact) * (1 + 1e-9)
    return Approximately(exact, lambda a: a is not None and abs(a - exact) <= slack)


def _sketch_of_distinct(values: Values, estimate: Callable[[bytes], float]) -> Any:
    """The bytes of a sketch that knows how many different values there are."""
    count = _approximate_distinct(values)
    return Approximately(count.exact, lambda data: count.accepts(round(estimate(data))))


def _hll_estimate(data: bytes) -> float:
    return float(ds.hll_sketch.deserialize(data).get_estimate())


def _theta_estimate(data: bytes) -> float:
    return float(ds.compact_theta_sketch.deserialize(data).get_estimate())


def _kll_sketch(values: Values, kind: Any = None) -> Any:
    """The bytes of a sketch of so many numbers, and of their median where it can be read."""
    known = [v for v in values if not math.isnan(v)]

    def accepts(data: bytes) -> bool:
        if len(data) == 8:
            return not known
        if kind is None:
            count = 1 if data[1] == 2 else int.from_bytes(data[8:16], "little")
            return count == len(known)
        sketch = kind.deserialize(data)
        middle = _approximate_quantile([kind_of(v) for v in known], 0.5)
        return bool(sketch.n == len(known) and middle.accepts(sketch.get_quantile(0.5)))

    def kind_of(value: Any) -> float:
        single = kind is ds.kll_floats_sketch
        return struct.unpack("<f", struct.pack("<f", value))[0] if single else float(value)

    return Approximately(len(known), accepts)


TimedValues = list[tuple[int, float]]
"""Times and values, in order."""


def _time_weighted(samples: TimedValues, method: str = "step") -> float:
    lasted = samples[-1][0] - samples[0][0]
    if not lasted:
        return samples[-1][1]
    area = 0.0
    for (before, old), (after, new) in pairwise(samples):
        area += (old if method == "step" else (old + new) / 2) * (after - before)
    return area / lasted


def _increase(samples: TimedValues) -> float | None:
    grown = [new if new < old else new - old for (_, old), (_, new) in pairwise(samples)]
    return sum(grown) if grown else None


def _rate(samples: TimedValues) -> float | None:
    lasted = samples[-1][0] - samples[0][0]
    grown = _increase(samples)
    return grown / (lasted / 1e6) if grown is not None and lasted else None


def _ewma(samples: TimedValues, half_life: Any) -> float:
    weights = [2.0 ** (-(samples[-1][0] - time) / micros(half_life)) for time, _ in samples]
    parts = [w * v for w, (_, v) in zip(weights, samples, strict=True) if w]
    # `fsum` refuses infinities of both signs, whose sum is NaN.
    total = math.fsum(parts) if all(map(math.isfinite, parts)) else sum(parts)
    return total / math.fsum(weights)


_OF_SERIES: dict[str, Callable[..., Any]] = {
    "time_weighted_avg": _time_weighted,
    "increase": _increase,
    "rate": _rate,
    "ewma": _ewma,
}
"""Functions of times and values, of which there is at least one."""
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "top_k": _top,
    "approx_top_k": lambda v, k=5, tracked=10_000: _top(v, k, tracked),
    "histogram_numeric": _histogram,
    "quantile_dd": _quantile_dd,
    "hll_sketch_agg": lambda v, *size: _sketch_of_distinct(v, _hll_estimate),
    "theta_sketch_agg": lambda v, *size: _sketch_of_distinct(v, _theta_estimate),
    "kll_sketch_agg_double": lambda v, *size: _kll_sketch(v, ds.kll_doubles_sketch),
    "kll_sketch_agg_float": lambda v, *size: _kll_sketch(v, ds.kll_floats_sketch),
    "kll_sketch_agg_bigint": lambda v, *size: _kll_sketch(v),
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
    "quantiles": lambda v, *q: [_quantile(v, share) for share in q] if v else None,
    "quantile_disc": _quantile_disc,
    "count_distinct": _distinct,
    "sum_distinct": lambda v: _sum(_different(v)),
    "avg_distinct": lambda v: _avg(_different(v)),
    "approx_count_distinct": _approximate_distinct,
    "mode": _mode,
    "collect_list": lambda v: v,
    "collect_set": _different,
    "listagg": lambda v, between="": between.join(v) if v else None,
    "any_value": lambda v: v[0] if v else None,
    "max_by": lambda v: _by(v, _max),
    "min_by": lambda v: _by(v, _min),
    "skewness": lambda v: _standardized(v, 3),
    "kurtosis": lambda v: _standardized(v, 4),
    **{name: partial(_of_pairs, name) for name in _PAIRS},
    "bool_and": lambda v: all(v) if v else None,
    "bool_or": lambda v: any(v) if v else None,
    "bit_and": lambda v: reduce(and_, v) if v else None,
    "bit_or": lambda v: reduce(or_, v) if v else None,
    "bit_xor": lambda v: reduce(xor, v) if v else None,
}
