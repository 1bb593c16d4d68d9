"""Decimals and unsigned integers: exact sums, means in Spark's types, expressions over them.

`test_spark_decimals.py` holds the same tables of types and values against a real Spark.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import catchment as ct
from catchment.errors import QueryError
from catchment.expression import canonical, decimals, evaluate, infer
from catchment.functions import make
from catchment.simulate import World
from catchment.testing.compare import assert_same
from catchment.testing.oracle import oracle
from small_tables import SECOND, everything, examples, seconds, values
from trees import charter, final

LARGE = "12345678901234567.11"
"""Six of them as doubles are 74074073407407408, of which two digits and the cents are wrong."""


def number(unscaled: int, scale: int) -> Decimal:
    return decimals.number(unscaled, scale)


def answer(kind: pa.DataType, given: list[Any], *functions: str) -> tuple[Any, ...]:
    query = ct.Query("q", *(make(f, "v") for f in functions), window=ct.tumbling("1h"))
    found = everything([query], seconds(range(len(given)), v=pa.array(given, kind)))
    (row,) = values(found, "q")
    return row


def types(kind: pa.DataType, *functions: str) -> list[pa.DataType]:
    query = ct.Query("q", *(make(f, "v") for f in functions), window=ct.tumbling("1h"))
    found = everything([query], seconds([1], v=pa.nulls(1, kind)))["q"]
    return list(found.schema.types[2:])


def test_a_sum_of_decimals_is_exact() -> None:
    total, mean = answer(pa.decimal128(19, 2), [Decimal(LARGE)] * 6, "sum", "avg")
    assert total == Decimal("74074073407407402.66")
    assert mean == Decimal(LARGE)


def test_a_sum_of_unsigned_integers_is_exact() -> None:
    total, mean = answer(pa.uint64(), [2**64 - 1] * 6 + [3], "sum", "avg")
    assert total == 6 * (2**64 - 1) + 3
    assert mean == Decimal("15811494920322472813.2857")  # a double has 17 of these digits


@pytest.mark.parametrize(
    ("kind", "total", "mean"),
    [
        (pa.decimal128(1, 0), pa.decimal128(11, 0), pa.decimal128(5, 4)),
        (pa.decimal128(12, 2), pa.decimal128(22, 2), pa.decimal128(16, 6)),
        (pa.decimal128(18, 18), pa.decimal128(28, 18), pa.decimal128(22, 22)),
        (pa.decimal128(28, 3), pa.decimal128(38, 3), pa.decimal128(32, 7)),
        (pa.decimal128(35, 2), pa.decimal128(38, 2), pa.decimal128(38, 6)),
        (pa.decimal128(38, 38), pa.decimal128(38, 38), pa.decimal128(38, 38)),
        (pa.decimal32(7, 2), pa.decimal128(17, 2), pa.decimal128(11, 6)),
        (pa.decimal64(12, 2), pa.decimal128(22, 2), pa.decimal128(16, 6)),
        (pa.decimal256(20, 2), pa.decimal128(30, 2), pa.decimal128(24, 6)),
        (pa.decimal256(50, 2), pa.decimal256(60, 2), pa.decimal256(54, 6)),
        (pa.decimal256(76, 2), pa.decimal256(76, 2), pa.decimal256(76, 6)),
        (pa.uint64(), pa.decimal128(30, 0), pa.decimal128(24, 4)),
        (pa.uint32(), pa.int64(), pa.float64()),
    ],
)
def test_the_types_of_sums_and_means(
    kind: pa.DataType, total: pa.DataType, mean: pa.DataType
) -> None:
    assert types(kind, "sum", "avg") == [total, mean]


def test_the_types_of_the_others() -> None:
    kind = pa.decimal128(12, 2)
    same = ("min", "max", "first", "last", "mode")
    assert types(kind, *same) == [kind] * 5
    assert types(kind, "range") == [pa.decimal128(13, 2)]
    doubles = ("median", "variance", "stddev_pop", "product", "geometric_mean", "approx_median")
    assert types(kind, *doubles) == [pa.float64()] * 6
    assert types(pa.uint64(), "min", "mode", "range") == [pa.uint64()] * 3


KINDS = [
    pa.decimal32(7, 2),
    pa.decimal64(12, 3),
    pa.decimal128(18, 0),
    pa.decimal128(18, 18),
    pa.decimal128(19, 2),
    pa.decimal128(38, 0),
    pa.decimal128(38, 10),
    pa.decimal128(38, 38),
    pa.decimal256(30, 4),
    pa.decimal256(76, 5),
    pa.uint64(),
]


@st.composite
def columns(draw: st.DrawFn, kind: pa.DataType) -> list[Decimal | int | None]:
    """Values of a type, many of them at its ends."""
    precision, scale = decimals.digits_of(kind)
    if kind == pa.uint64():
        return draw(st.lists(st.none() | st.integers(0, 2**64 - 1) | st.just(2**64 - 1)))
    most = 10**precision - 1
    units = st.integers(-most, most) | st.sampled_from([0, 1, -1, most, -most]) | st.integers(-9, 9)
    return draw(st.lists(st.none() | units.map(lambda u: number(u, scale)), max_size=12))


def rounded(value: Fraction, to: pa.DataType) -> Decimal | None:
    """Half up, null where it does not fit: written from Spark's words, in whole numbers."""
    precision, scale = decimals.digits_of(to)
    units = int(abs(value) * 10**scale + Fraction(1, 2))
    return None if units >= 10**precision else number(units if value >= 0 else -units, scale)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(data=st.data())
@examples(0.3)
def test_sums_and_means_of_any_values(kind: pa.DataType, data: st.DataObject) -> None:
    """In batches, with a snapshot between, through lazy and eager stores."""
    given = data.draw(columns(kind))
    cut = data.draw(st.integers(0, len(given)))
    whole = pa.array(given, kind)
    queries = [
        ct.Query("one", ct.sum("v"), ct.avg("v"), ct.stddev_pop("v"), window=ct.tumbling("1h")),
        ct.Query("two", ct.sum("v"), ct.avg("v"), window=ct.sliding("1000s", "1s")),
        ct.Query("three", ct.sum("v"), ct.avg("v"), window=ct.session("100s")),
    ]
    engine = ct.Engine(queries)
    engine.push(seconds(range(cut), v=whole[:cut]))
    engine.advance(0)
    engine = ct.Engine.restore(engine.snapshot())
    engine.push(seconds(range(cut, len(given)), v=whole[cut:]))
    found = engine.close()
    known = [Fraction(v) for v in given if v is not None]
    total, mean = types(kind, "sum", "avg")
    added = rounded(sum(known, Fraction(0)), total) if known else None
    middle = None if added is None else rounded(sum(known, Fraction(0)) / len(known), mean)
    if given:
        assert values(found, "one")[0][:2] == (added, middle)
        assert values(found, "three") == [(added, middle)]
        at = found["two"]["window_start"].cast(pa.int64()).to_pylist().index(0)
        assert values(found, "two")[at] == (added, middle)


def test_a_sum_or_mean_that_does_not_fit_is_null() -> None:
    most = number(10**38 - 1, 2)
    kind = pa.decimal128(38, 2)
    assert answer(kind, [most, Decimal("0.01")], "sum", "avg", "range") == (
        None,
        None,  # Spark's, too, is null where its sum is
        number(10**38 - 2, 2),
    )
    assert answer(kind, [most, most.copy_negate(), most], "sum") == (most,)
    # The mean of 38 digits has four digits fewer in front.
    assert answer(kind, [most], "sum", "avg") == (most, None)
    assert answer(kind, [most, most.copy_negate()], "sum", "avg", "range") == (0, 0, None)


def test_means_round_half_away_from_zero() -> None:
    kind = pa.decimal128(5, 4)
    three = [number(1, 4), number(0, 4), number(0, 4)]
    assert answer(kind, three, "avg") == (Decimal("0.00003333"),)
    for sign in (1, -1):
        given = [number(sign, 4)] + [number(0, 4)] * 31  # 0.0001 / 32 = 0.000003125
        assert answer(kind, given, "avg") == (Decimal("0.00000313") * sign,)


@pytest.mark.parametrize("kind", [pa.decimal128(12, 2), pa.decimal128(30, 2), pa.uint64()], ids=str)
def test_every_function_of_decimals_and_unsigned_integers(kind: pa.DataType) -> None:
    """Against the oracle, with keys, through windows that keep events and windows that do not."""
    dice = random.Random(str(kind))
    large = 10**9 if kind == pa.decimal128(12, 2) else 10**19 - 1
    scale = decimals.digits_of(kind)[1]
    functions = (
        "sum",
        "avg",
        "range",
        "product",
        "geometric_mean",
        "variance",
        "variance_pop",
        "stddev",
        "stddev_pop",
        "median",
        "min",
        "max",
        "mode",
        "first",
        "last",
        "count",
        "count_distinct",
        "approx_median",
        "approx_count_distinct",
    )
    low = 0 if kind == pa.uint64() else -3
    rows = [
        {
            "ts": i * SECOND // 2,
            "k": dice.choice("ab"),
            "v": dice.choice([None, number(dice.randint(low, 3), scale), number(large, scale)]),
        }
        for i in range(60)
    ]
    wanted = [*(make(f, "v") for f in functions), make("quantile", "v", (0.3,))]
    queries = [
        ct.Query(f"q{n}", *wanted, by="k", window=window)
        for n, window in enumerate(
            [ct.tumbling("5s"), ct.sliding("7s", "2s"), ct.session("1s"), ct.count_tumbling(7)]
        )
    ]
    kept = [int(row["v"]) if scale == 0 and row["v"] is not None else row["v"] for row in rows]
    events = seconds([i / 2 for i in range(60)], k=[row["k"] for row in rows])
    found = everything(queries, events.append_column("v", pa.array(kept, kind)))
    for name, expected in oracle(queries, rows).items():
        assert_same(expected, found[name], name)


def test_a_function_of_ones_own_gets_decimals() -> None:
    longest = ct.function(
        "decimals_longest", lift=str, combine=max, lower=lambda s: s, result=pa.string()
    )
    for kind in (pa.decimal128(12, 2), pa.decimal128(30, 2)):
        query = ct.Query("q", longest("v"), window=ct.tumbling("1h"))
        events = seconds([1, 2], v=pa.array([Decimal("1.50"), Decimal("2.25")], kind))
        assert values(everything([query], events), "q") == [("2.25",)]


def test_decimals_climb_a_tree() -> None:
    """Slices of decimals over two levels: exact at the root, in the type that one engine gives."""
    schema = pa.schema(
        {
            "ts": pa.timestamp("us", "UTC"),
            "k": pa.string(),
            "d": pa.decimal128(12, 2),
            "w": pa.decimal128(38, 2),
            "u": pa.uint64(),
        }
    )
    queries = [
        ct.Query(
            "sums",
            *(make(f, c) for f in ("sum", "avg", "min", "range") for c in "dwu"),
            by="k",
            window=ct.sliding("4s", "2s"),
        ),
        ct.Query(
            "sorted",
            ct.median("d"),
            ct.mode("w"),
            ct.count_distinct("u"),
            ct.last("d"),
            window=ct.tumbling("3s"),
        ),
        ct.Query("counted", ct.sum("w"), ct.avg("u"), window=ct.count_tumbling(5)),
    ]
    dice = random.Random(3)
    events = {
        id: [
            pa.Table.from_pylist(
                [
                    {
                        "ts": (10 * step + i) * SECOND // 4,
                        "k": dice.choice("ab"),
                        "d": number(dice.randrange(-(10**12), 10**12), 2),
                        "w": Decimal(LARGE),
                        "u": dice.choice([2**64 - 1, None]),
                    }
                    for i in range(10)
                ],
                schema,
            )
            for step in range(4)
        ]
        for id in ("a", "b")
    }
    made = charter({"root": None, "mid": "root", "a": "mid", "b": "mid"}, queries)
    world = World(made.with_schema(schema), events, until=0)
    world.run()
    assert world.done
    rows = [row for tables in events.values() for table in tables for row in table.to_pylist()]
    for row in rows:
        row["u"] = None if row["u"] is None else Decimal(row["u"])
    rows.sort(key=lambda row: row["ts"])
    for name, expected in oracle(queries, rows).items():
        got = final(world.deliveries, name)
        for row in got:
            assert row.pop("complete") is True and row.pop("missing") is None
            row |= {n: Decimal(v) for n, v in row.items() if "(u)" in n and isinstance(v, int)}
        keys = next(query.keys for query in queries if query.name == name)
        if name != "counted":  # which of two events of one instant comes first is the tree's choice
            assert_same(expected, pa.Table.from_pylist(got), name, keys=keys)
        else:
            assert [row["sum(w)"] for row in got] == [Decimal(LARGE) * 5] * 16


# Expressions.

TYPED = {
    "a": pa.decimal128(12, 2),
    "b": pa.decimal128(5, 4),
    "c": pa.decimal128(38, 10),
    "i": pa.int32(),
    "n": pa.int64(),
    "f": pa.float64(),
}
ROW: dict[str, Any] = {
    "a": Decimal("-123.45"),
    "b": Decimal("2.5000"),
    "c": number(10**37 + 7, 10),
    "i": 7,
    "n": -3,
    "f": 0.5,
}
EXPRESSIONS: dict[str, tuple[pa.DataType, Any]] = {
    "a + b": (pa.decimal128(15, 4), Decimal("-120.9500")),
    "a - i": (pa.decimal128(13, 2), Decimal("-130.45")),
    "a + 1": (pa.decimal128(13, 2), Decimal("-122.45")),
    "n - a": (pa.decimal128(23, 2), Decimal("120.45")),
    "a * b": (pa.decimal128(18, 6), Decimal("-308.625000")),
    "a * 1.5": (pa.decimal128(15, 3), Decimal("-185.175")),
    "a / b": (pa.decimal128(22, 8), Decimal("-49.38000000")),
    "a / 7": (pa.decimal128(16, 6), Decimal("-17.635714")),
    "a % b": (pa.decimal128(5, 4), Decimal("-0.9500")),
    "c + c": (pa.decimal128(38, 9), number(2 * 10**36 + 1, 9)),
    "c * c": (pa.decimal128(38, 6), None),
    "c / b": (pa.decimal128(38, 6), number(4 * 10**32, 6)),
    "-a": (pa.decimal128(12, 2), Decimal("123.45")),
    "abs(a)": (pa.decimal128(12, 2), Decimal("123.45")),
    "round(a)": (pa.decimal128(11, 0), Decimal(-123)),
    "round(a, 1)": (pa.decimal128(12, 1), Decimal("-123.5")),
    "round(a, -1)": (pa.decimal128(11, 0), Decimal(-120)),
    "floor(a)": (pa.decimal128(11, 0), Decimal(-124)),
    "ceil(a)": (pa.decimal128(11, 0), Decimal(-123)),
    "a + f": (pa.float64(), -122.95),
    "a / 0": (pa.decimal128(16, 6), None),
    "coalesce(a, b)": (pa.decimal128(14, 4), Decimal("-123.4500")),
    "coalesce(a, i)": (pa.decimal128(12, 2), Decimal("-123.45")),
    "CASE WHEN a > 0 THEN a ELSE 0 END": (pa.decimal128(12, 2), Decimal("0.00")),
    "greatest(a, b)": (pa.decimal128(14, 4), Decimal("2.5000")),
    "least(a, -1000.125)": (pa.decimal128(13, 3), Decimal("-1000.125")),
    "CAST(a AS DECIMAL(6, 1))": (pa.decimal128(6, 1), Decimal("-123.5")),
    "CAST(a AS DECIMAL(3, 2))": (pa.decimal128(3, 2), None),
    "CAST(n AS DECIMAL(5, 2))": (pa.decimal128(5, 2), Decimal("-3.00")),
    "CAST(f AS DECIMAL(4, 0))": (pa.decimal128(4, 0), Decimal(1)),
    "CAST('-1.005' AS DECIMAL(4, 2))": (pa.decimal128(4, 2), Decimal("-1.01")),
    "CAST(a AS BIGINT)": (pa.int64(), -123),
    "CAST(a AS DOUBLE)": (pa.float64(), -123.45),
    "CAST(a AS STRING)": (pa.string(), "-123.45"),
    "a < b": (pa.bool_(), True),
    "a = -123.45": (pa.bool_(), True),
    "a IN (1, -123.45)": (pa.bool_(), True),
    "c > CAST('1000000000000000000000000000.0' AS DECIMAL(29, 1))": (pa.bool_(), True),
}
"""Expressions of one row, and what Spark 4.3 says of them."""


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions_have_the_types_and_values_of_spark(text: str) -> None:
    kind, value = EXPRESSIONS[text]
    row = {name: pa.array([ROW[name]], TYPED[name]) for name in TYPED}
    plain = canonical(text)
    assert infer(plain, pa.schema(TYPED)) == kind
    assert evaluate(plain, row.__getitem__, 1).to_pylist() == [value]


def test_a_comparison_does_not_lose_digits() -> None:
    v = pa.array([Decimal("12345678901234567.11"), Decimal("12345678901234567.10")])
    found = evaluate("v > 12345678901234567.1", {"v": v}.__getitem__, 2)
    # The literal is a double, and as such 12345678901234568: but columns are told apart.
    assert found.to_pylist() == [False, False]
    other = pa.array([Decimal("12345678901234567.1")] * 2)
    assert evaluate("v > w", {"v": v, "w": other}.__getitem__, 2).to_pylist() == [True, False]


def test_casts_to_decimals_that_nobody_has() -> None:
    for wrong in ("DECIMAL(39, 2)", "DECIMAL(0, 0)", "DECIMAL(3, 4)"):
        with pytest.raises(QueryError) as caught:
            canonical(f"CAST(v AS {wrong})")
        assert "casts to a type that is not supported" in str(caught.value)
        assert "DECIMAL(p, s)" in str(caught.value)


Reference = Callable[[Decimal, Decimal], Decimal | None]
OPERATIONS: dict[str, tuple[Callable[..., Any], Reference]] = {
    "+": (decimals.add, lambda a, b: a + b),
    "-": (lambda a, b: decimals.add(a, b, "-"), lambda a, b: a - b),
    "*": (decimals.multiply, lambda a, b: a * b),
    "/": (decimals.divide, lambda a, b: a / b if b else None),
    "%": (decimals.remainder, lambda a, b: a % b if b else None),
}


@st.composite
def operands(draw: st.DrawFn) -> tuple[pa.DataType, list[Decimal]]:
    precision = draw(st.integers(1, 38) | st.just(38))
    scale = draw(st.integers(0, precision))
    digits = st.integers(1, precision)
    # Numbers of nines alone are where a division by guessed digits goes wrong.
    units = digits.flatmap(lambda n: st.integers(0, 10**n - 1) | st.just(10**n - 1))
    signed = st.tuples(units, st.sampled_from([1, -1])).map(lambda p: number(p[0] * p[1], scale))
    return pa.decimal128(precision, scale), draw(st.lists(signed, min_size=4, max_size=4))


NINES = (pa.decimal128(38, 20), [number(10**38 - 1, 20)] * 4)
SMALL = (pa.decimal128(38, 38), [number(10**38 // 2, 38)] * 4)


@pytest.mark.parametrize("op", OPERATIONS)
@given(left=operands(), right=operands(), constant=st.booleans())
@example(left=NINES, right=SMALL, constant=False)
@example(left=NINES, right=(pa.decimal128(38, 10), [number(9, 10)] * 4), constant=True)
def test_operations_on_any_decimals(op: str, left: Any, right: Any, constant: bool) -> None:
    """Rounded once, half up; Arrow's own division of such numbers is one too small at times."""
    one, two = pa.array(left[1], left[0]), pa.array(right[1], right[0])
    run, reference = OPERATIONS[op]
    found = run(one, two[0] if constant else two)
    precision, scale = decimals.digits_of(found.type)
    with localcontext(prec=400, rounding=ROUND_HALF_UP):
        for a, b, got in zip(left[1], right[1], found.to_pylist(), strict=True):
            value = reference(a, right[1][0] if constant else b)
            wanted = None if value is None else value.quantize(Decimal((0, (1,), -scale)))
            if wanted is not None and abs(wanted) >= Decimal(10) ** (precision - scale):
                wanted = None
            assert got == wanted


def test_whole_parts_of_many_nines() -> None:
    """Arrow 26 says 99...98: the least case that was found."""
    given = pa.array([number(10**61 - 1, 26)], pa.decimal256(76, 26))
    wrong = pc.cast(given, pa.decimal256(76, 0), safe=False)[0].as_py()
    right = decimals.truncated(pa.array([number(10**38 - 1, 3)], pa.decimal128(38, 3)))
    assert right.to_pylist() == [Decimal(10**35 - 1)]
    assert decimals.fitted(given, pa.decimal256(60, 2)).to_pylist() == [number(10**37, 2)]
    if wrong == Decimal(10**35 - 1):
        pytest.fail("Arrow divides rightly now: decimals._whole_quotient may be simpler")
