"""The oracle's functions and expressions, against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from catchment.testing.compare import same
from catchment.testing.oracle_expression import holds, value_of
from catchment.testing.oracle_functions import Approximately, aggregate

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("function", "values", "expected"),
    [
        ("sum", [2**62, 2**62], None),
        ("sum", [2**62, 2**62, -1], 2**63 - 1),
        ("sum", [0.1] * 10, 1.0),
        ("sum", [INF, -INF], NAN),
        ("count", [1, None, 3], 2),
        ("avg", [1, 2], 1.5),
        ("min", [NAN, 2.0, None], 2.0),
        ("max", [NAN, 2.0], NAN),
        ("min", ["b", "å", "a"], "a"),
        ("range", [3, -4], 7),
        ("product", [2, 3.5], 7.0),
        ("product", [INF, 0.0], NAN),
        ("geometric_mean", [1e200] * 4, 1e200),
        ("geometric_mean", [2, -8], NAN),
        ("geometric_mean", [-2, -8], 4.0),
        ("variance", [1, 2, 3, 4], 5 / 3),
        ("variance", [7], None),
        ("variance_pop", [7], 0.0),
        ("variance", [1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16], 30.0),
        ("stddev_pop", [1, 3], 1.0),
        ("stddev", [1, INF], NAN),
        ("first", [None, 5, 6], 5),
        ("last", [5, 6, None], 6),
        ("median", [1, 10, 2, 3], 2.5),
        ("median", [NAN, 1.0, 2.0], 2.0),
        ("count_distinct", [0.0, -0.0, NAN, NAN, None], 2),
        ("mode", [3, 1, 3, 1, 2], 1),
        ("mode", ["b", None, None], "b"),
        ("max_by", [("a", 1.0), ("b", NAN), ("c", None)], "b"),
        ("min_by", [("a", 2), (None, 1), ("c", 1)], None),
        ("bit_xor", [6, 3, None], 5),
        ("corr", [(1, 2), (2, 4), (None, 9)], 1.0),
        ("regr_intercept", [(3, 1), (5, 2)], 1.0),
        ("regr_r2", [(2.0, INF), (2.0, 1.0)], 1.0),
        ("regr_slope", [(INF, 1.0), (2.0, 1.0)], None),
        ("covar_samp", [(1.0, INF), (2.0, 1.0)], NAN),
        ("skewness", [1, 4], 0.0),
        ("kurtosis", [1, 4], -2.0),
        ("collect_set", [3, 1, None, 3], [1, 3]),
    ],
)
def test_functions(function: str, values: list[object], expected: object) -> None:
    assert same(expected, aggregate(function, values))


@pytest.mark.parametrize("function", ["sum", "avg", "min", "range", "mode", "median", "variance"])
def test_functions_of_nothing_are_null(function: str) -> None:
    assert aggregate(function, [None]) is None


def test_quantile_interpolates() -> None:
    assert [aggregate("quantile", [10, 20, 30, 40], (p,)) for p in (0.0, 0.5, 0.9, 1.0)] == [
        10.0,
        25.0,
        pytest.approx(37.0),
        40.0,
    ]


def test_approximate_functions_accept_what_is_near() -> None:
    near = aggregate("approx_quantile", list(range(1000)), (0.5,))
    assert isinstance(near, Approximately)
    assert near.accepts(510)
    assert not near.accepts(600)
    assert aggregate("approx_count_distinct", [1, 1, 2]).accepts(2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a / 0", None),
        ("a % 0", None),
        ("-7 % 4", -3),
        ("7 / 2", 3.5),
        ("a + x", None),
        ("x AND FALSE", False),
        ("x OR TRUE", True),
        ("x OR FALSE", None),
        ("NOT x", None),
        ("a IN (1, NULL)", None),
        ("a IN (3, NULL)", True),
        ("x IS NULL", True),
        ("nan = nan", True),
        ("nan > 1e300", True),
        ("a BETWEEN 1 AND 3", True),
        ("s LIKE 'a%'", True),
        ("s LIKE '_b_'", True),
        ("s LIKE 'b%'", False),
        ("CASE WHEN x THEN 1 WHEN a = 3 THEN 2 END", 2),
        ("CASE a WHEN 3 THEN 'y' END", "y"),
        ("COALESCE(x, a)", 3),
        ("LEAST(x, 5, a)", 3),
        ("GREATEST(x, nan, a)", NAN),
        ("NULLIF(a, 3)", None),
        ("IF(x, 1, 2)", 2),
        ("ROUND(2.5)", 3.0),
        ("ROUND(-2.345, 2)", -2.35),
        ("FLOOR(-1.5)", -2),
        ("CEIL(1.2)", 2),
        ("SQRT(-1)", NAN),
        ("LN(0)", None),
        ("LN(1)", 0.0),
        ("LENGTH(UPPER(s))", 3),
        ("CAST('12' AS INT)", 12),
        ("CAST(1.9 AS BIGINT)", 1),
        ("CAST('x' AS INT)", None),
        ("ABS(-a)", 3),
        ("POWER(2, 10)", 1024.0),
        ("a <> 3", False),
    ],
)
def test_expressions(text: str, expected: object) -> None:
    row = {"a": 3, "x": None, "s": "abc", "nan": NAN}
    assert same(expected, value_of(text, row))


def test_conditions_hold_only_when_true() -> None:
    assert holds("a > 1", {"a": 2})
    assert not holds("a > 1", {"a": None})
