"""Expressions: one text each, evaluated over columns as Python evaluates them row by row."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from catchment.errors import QueryError, SchemaError
from catchment.expression import canonical, columns, disjoint, evaluate, infer, quote
from catchment.expression.disjointness import alternatives, alternatives_of
from catchment.expression.nodes import Column, render, walk
from catchment.expression.parsing import parse, parse_in_full
from catchment.expression.simple import comparisons, simple_text
from expression_rows import Made, Row, choices, conditions, facts, few_rows, numbers, rows

TYPES = {
    "i": pa.int64(),
    "j": pa.int64(),
    "f": pa.float64(),
    "g": pa.float64(),
    "s": pa.string(),
    "t": pa.string(),
    "b": pa.bool_(),
    "c": pa.bool_(),
}


def table(data: list[Row]) -> dict[str, pa.Array]:
    return {n: pa.array([r[n] for r in data], TYPES[n]) for n in data[0]}


def run(text: str, **given: Any) -> list[Any]:
    made = {n: v if isinstance(v, pa.Array) else pa.array(v) for n, v in given.items()}
    length = len(next(iter(made.values()))) if made else 1
    result = evaluate(text, made.__getitem__, length)
    assert isinstance(result, pa.Array)
    assert len(result) == length
    assert result.type == infer(text, pa.schema({n: v.type for n, v in made.items()}))
    return result.to_pylist()


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, int | float) and not isinstance(right, bool):
        return left == right or (math.isnan(left) and math.isnan(right))
    return left == right and isinstance(left, bool) == isinstance(right, bool)


@settings(max_examples=400, deadline=None)
@given(numbers | conditions | choices, rows)
def test_columns_give_what_rows_give(made: Made, data: list[Row]) -> None:
    text, oracle = made.text, made.run
    arrays = table(data)
    for written in (text, canonical(text)):
        got = evaluate(written, arrays.__getitem__, len(data)).to_pylist()
        wanted = [oracle(row) for row in data]
        assert all(map(same, got, wanted)), (written, got, wanted)


@settings(max_examples=300, deadline=None)
@given(numbers | conditions | choices)
def test_canonical_is_its_own_canonical(made: Made) -> None:
    once = canonical(made.text)
    assert canonical(once) == once
    assert set(columns(once)) == set(columns(made.text))


@given(st.text())
def test_any_text_survives_as_a_literal(text: str) -> None:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    written = canonical(f"s = '{escaped}'")
    assert run(written, s=[text]) == [True]
    assert canonical(written) == written


@given(st.text(min_size=1))
def test_any_name_survives_in_backticks(name: str) -> None:
    written = canonical(quote(name))
    assert columns(written) == (name,)
    assert canonical(written) == written
    assert run(written, **{name: [1]}) == [1]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("v", "v"),
        ("Speed", "Speed"),
        ("`Speed`", "Speed"),
        ("`heart rate`", "`heart rate`"),
        ("`a``b` + 1", "`a``b` + 1"),
        ("select_", "select_"),
        ("`select`", "`select`"),
        ("load > 1", "load > 1"),
        ("größe", "`größe`"),
        ("a+b*2", "a + b * 2"),
        ("(a+b)*2", "(a + b) * 2"),
        ("a-(b-c)", "a - (b - c)"),
        ("- -a", "-(-a)"),
        ("-(-0.0)", "0.0"),
        ("a * 1e-30", "a * 1E-30"),
        ("a != 1", "a <> 1"),
        ("1 < a", "a > 1"),
        ("not (a < 1)", "a >= 1"),
        ("not not a", "a"),
        ("a is not null", "a IS NOT NULL"),
        ("a between 1 and 2", "a >= 1 AND a <= 2"),
        ("a in (1)", "a = 1"),
        ("a not in (1, 2, 1)", "a NOT IN (1, 2)"),
        ("a and (b and c)", "a AND b AND c"),
        ("(a or b) and c", "(a OR b) AND c"),
        ("if(a, 1, 2)", "CASE WHEN a THEN 1 ELSE 2 END"),
        ("case a when 1 then 'x' end", "CASE WHEN a = 1 THEN 'x' ELSE NULL END"),
        ("POW(a, 2)", "power(a, 2)"),
        ("ifnull(a, 0)", "coalesce(a, 0)"),
        ("1L + 2D", "1 + 2.0"),
        ("timestamp '2026-01-31T12:00:00+01:00'", "TIMESTAMP '2026-01-31 11:00:00'"),
        ("cast('2026-01-31' as date)", "DATE '2026-01-31'"),
        ("a::int", "CAST(a AS INT)"),
        ("a /* why */ + 1 -- so", "a + 1"),
    ],
)
def test_canonical(text: str, wanted: str) -> None:
    assert canonical(text, "where condition") == wanted
    assert canonical(wanted, "where condition") == wanted


def test_columns_come_once_in_order_of_use() -> None:
    assert columns("b + a * b - `x y`") == ("b", "a", "x y")
    assert columns("1 + 1") == ()
    assert columns("v") == ("v",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the where condition is empty (given: '')"),
        ("  ", "the where condition is empty (given: '  ')"),
        ("a >", "the where condition does not parse (given: a >)"),
        ("a; b", "the where condition does not parse (given: a; b)"),
        ("a, b", "the where condition must be one expression (given: a, b)"),
        ("a)+(b", "the where condition must be one expression (given: a)+(b)"),
        ("heart rate", "the where condition must be one expression (given: heart AS rate); a col"),
        ("avg(v) > 1", "the where condition uses an aggregate (given: avg(v))"),
        ("(select 1) = a", "the where condition uses a subquery (given: (SELECT 1))"),
        ("a in (select b)", "the where condition uses a subquery"),
        ("sum(v) over ()", "the where condition uses a window function (given: sum(v) OVER ())"),
        ("*", "the where condition uses * (given: *); name the columns"),
        (":p = 1", "the where condition uses a parameter (given: :p); write the value itself"),
        ("('x').c", "the where condition takes a field or an element of what has no name"),
        ("1_000", "the where condition uses a name that is not plain (given: 1_000)"),
        ("'it''s'", "the where condition uses concatenation (given: CONCAT('it', 's')); a quote"),
        ("abz(a)", "the where condition uses an unknown function (given: abz); did you mean 'abs"),
        ("a << b", "the where condition uses something that is not supported (given: SHIFTLEFT(a"),
        ("floor(a, 1)", "the where condition gives floor the wrong arguments"),
        ("round(a, b)", "the where condition rounds to digits that are not fixed"),
        ("s like t", "the where condition uses LIKE without a fixed pattern (given: s LIKE t)"),
        ("cast(a as binary)", "the where condition casts to a type that is not supported"),
        ("date '2026-13-01'", "the where condition has a date that cannot be read"),
        ("9223372036854775808", "the where condition uses a number that is too large"),
        ("1e999", "the where condition uses a number that is too large (given: 1e999)"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        canonical(text, "where condition")
    assert str(caught.value).startswith(message)
    assert caught.value.hint


def test_a_condition_must_be_a_text() -> None:
    with pytest.raises(QueryError, match="the where condition must be a text"):
        canonical(["a"], "where condition")  # type: ignore[arg-type]


def test_deep_nesting_is_refused_or_works() -> None:
    with pytest.raises(QueryError, match="nested too deeply"):
        canonical("(" * 5000 + "a" + ")" * 5000)


def test_a_plain_column_is_not_copied() -> None:
    column = pa.array([1, 2, 3])
    assert evaluate("v", {"v": column}.__getitem__, 3) is column
    assert evaluate("`v`", {"v": column}.__getitem__, 3) is column


NAN = math.nan


@pytest.mark.parametrize(
    ("text", "values", "wanted"),
    [
        ("abs(v)", [-1, None, -(2**63)], [1, None, None]),
        ("-v", [1, None, -(2**63)], [-1, None, None]),
        ("round(v)", [2.5, -2.5, 0.4, None], [3.0, -3.0, 0.0, None]),
        ("round(v, -1)", [15, -15, 2**63 - 1], [20, -20, None]),
        ("floor(v)", [1.5, -1.5, NAN, math.inf], [1, -2, None, None]),
        ("ceil(v)", [1.5, -1.5, None, 1e300], [2, -1, None, None]),
        ("sqrt(v)", [4.0, None], [2.0, None]),
        ("ln(v)", [1.0, 0.0, -1.0, None], [0.0, None, None, None]),
        ("log(2, v)", [8, 0], [3.0, None]),
        ("exp(v)", [0], [1.0]),
        ("power(v, 2)", [3], [9.0]),
        ("greatest(v, 1.0)", [0.0, 2.0, None, math.inf], [1.0, 2.0, 1.0, math.inf]),
        ("least(v, 1.0)", [0.0, NAN, None], [0.0, 1.0, 1.0]),
        ("lower(v)", ["Ab", None], ["ab", None]),
        ("upper(v)", ["äb"], ["ÄB"]),
        ("length(v)", ["äb", None, ""], [2, None, 0]),
        ("nullif(v, 1)", [1, 2, None], [None, 2, None]),
        ("v LIKE 'a_%'", ["ab", "a", None, "abc\n"], [True, False, None, True]),
        ("v LIKE '10\\\\%'", ["10%", "100"], [True, False]),
        ("CAST(v AS INT)", ["12", " 7 ", "1.9", "x", None, "99999999999"], [12, 7, 1, *[None] * 3]),
        ("CAST(v AS DOUBLE)", ["1.5", "nope", "1_0"], [1.5, None, None]),
        ("CAST(v AS BOOLEAN)", ["yes", "F", "?"], [True, False, None]),
        ("CAST(v AS STRING)", [1.0, 1e10, 0.5, math.inf], ["1.0", "1.0E10", "0.5", "Infinity"]),
        ("CAST(v AS BIGINT)", [1.9, -1.9, NAN, 1e30], [1, -1, None, None]),
        ("CAST(v AS TINYINT)", [127, 128, None], [127, None, None]),
        ("CAST(v AS DATE)", ["2026-01-31", "31.1.2026"], [date(2026, 1, 31), None]),
        ("v IN (1, 2, NULL)", [1, 3, None], [True, None, None]),
        ("v NOT IN (1, 2, 3)", [1, 4, None], [False, True, None]),
        ("v = NULL", [1, None], [None, None]),
        ("v / 0", [1, None], [None, None]),
        ("NULL", [1], [None]),
        ("TRUE", [1, 2], [True, True]),
    ],
)
def test_functions(text: str, values: list[Any], wanted: list[Any]) -> None:
    assert run(text, v=values) == wanted


def test_the_greatest_of_numbers_is_nan() -> None:
    assert math.isnan(run("greatest(v, 1)", v=[NAN])[0])


def test_times() -> None:
    moments = [datetime(1969, 12, 31, 23, 59, 59, 500000), None, datetime(2026, 1, 31)]
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC", "Europe/Berlin"):
            made = pa.array(
                [m and m.replace(tzinfo=UTC) for m in moments], pa.timestamp("us", "UTC")
            )
            v = made.cast(pa.timestamp(unit, "UTC"), safe=False).cast(pa.timestamp(unit, zone))
            if zone is None:
                v = made.cast(pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)
            assert run("v >= TIMESTAMP '2026-01-31 00:00:00'", v=v) == [False, None, True]
            assert run("v < TIMESTAMP '3000-01-01 00:00:00'", v=v) == [True, None, True]
            assert run("v = DATE '2026-01-31'", v=v) == [False, None, True]
    assert run("CAST(v AS BIGINT)", v=moments)[0] == -1
    assert run("CAST(v AS STRING)", v=moments)[0] == "1969-12-31 23:59:59.5"
    assert run("CAST(v AS DATE)", v=moments)[0] == date(1969, 12, 31)


def test_dictionaries_are_evaluated_by_their_values() -> None:
    v = pa.array(["a", "b", None, "a", "b", "a"]).dictionary_encode()
    assert run("v = 'a'", v=v) == [True, False, None, True, False, True]
    assert run("v IS NULL", v=v) == [False, False, True, False, False, False]
    assert run("coalesce(v, 'none')", v=v)[2] == "none"
    assert run("v = w", v=v, w=["a"] * 6) == [True, False, None, True, False, True]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_texts_of_every_type(kind: pa.DataType) -> None:
    assert run("v = 'a' AND length(v) = 1", v=pa.array(["a", "b", None], kind)) == [
        True,
        False,
        None,
    ]
    assert run("v IN ('a', 'c', 'd')", v=pa.array(["a", "b", None], kind)) == [True, False, None]


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.uint8(),
        pa.int32(),
        pa.uint64(),
        pa.float16(),
        pa.float32(),
        pa.decimal128(9, 2),
    ],
)
def test_numbers_of_every_type(kind: pa.DataType) -> None:
    v = pa.array([1, 3, None], pa.int8()).cast(kind)
    assert run("v > 2", v=v) == [False, True, None]
    assert run("v IN (3, 4, 5)", v=v) == [False, True, None]
    assert run("v = w", v=v, w=[1.0, 2.0, 3.0]) == [True, False, None]
    assert run("v * 2", v=v) == [2, 6, None]
    known = (pa.int64(), pa.float64(), pa.decimal128(10, 2), pa.decimal128(21, 0))
    assert infer("v + 1", pa.schema({"v": kind})) in known


def test_a_large_unsigned_number_is_larger() -> None:
    v = pa.array([2**64 - 1, 1], pa.uint64())
    assert run("v > 5", v=v) == [True, False]
    assert run("v IN (1, 2, 3)", v=v) == [False, True]
    assert run("v + 1", v=v) == [2**64, 2]


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("u + 1", pa.decimal128(21, 0), 2**64),
        ("u * 2", pa.decimal128(22, 0), 2**65 - 2),
        ("n - u", pa.decimal128(21, 0), 8 - 2**64),
        ("-u", pa.decimal128(20, 0), 1 - 2**64),
        ("abs(u)", pa.decimal128(20, 0), 2**64 - 1),
        ("u % 10", pa.decimal128(2, 0), 5),
        ("u / 2", pa.decimal128(26, 6), Decimal(2**64 - 1) / 2),
        ("round(u, -2)", pa.decimal128(21, 0), (2**64 - 1) // 100 * 100),
        ("floor(u)", pa.uint64(), 2**64 - 1),
        ("greatest(u, 1)", pa.decimal128(20, 0), 2**64 - 1),
        ("least(n, u)", pa.decimal128(20, 0), 7),
        ("coalesce(u, -1)", pa.decimal128(20, 0), 2**64 - 1),
        ("CASE WHEN n > 0 THEN u ELSE 0 END", pa.decimal128(20, 0), 2**64 - 1),
        ("CASE WHEN n > 0 THEN u END", pa.uint64(), 2**64 - 1),
        ("nullif(u, 5)", pa.uint64(), 2**64 - 1),
        ("CAST(u AS BIGINT)", pa.int64(), None),
        ("CAST(u AS STRING)", pa.string(), "18446744073709551615"),
        ("CAST(u AS DOUBLE)", pa.float64(), 2.0**64),
        ("u || 'x'", pa.string(), "18446744073709551615x"),
        ("u + 0.5", pa.decimal128(22, 1), Decimal(2**64 - 1) + Decimal("0.5")),
        ("u + v", pa.float64(), 2.0**64 + 0.25),
        ("u > n AND u <> n AND NOT u IN (1, 2, 3, 7)", pa.bool_(), True),
        ("u = u AND u >= CAST('18446744073709551615' AS DECIMAL(20, 0))", pa.bool_(), True),
    ],
)
def test_an_unsigned_number_of_64_bits_is_a_decimal_of_20_digits(
    text: str, kind: pa.DataType, found: Any
) -> None:
    """As in Spark, which has no such numbers; int64 would lose half of them."""
    columns = {
        "u": pa.array([2**64 - 1, None], pa.uint64()),
        "n": pa.array([7, 7], pa.int64()),
        "v": pa.array([0.25, 0.25]),
    }
    assert infer(text, pa.schema({name: column.type for name, column in columns.items()})) == kind
    assert run(text, **columns)[0] == found


def test_an_empty_batch() -> None:
    assert (
        run("v * 2 > 1 AND s LIKE 'a%'", v=pa.array([], pa.int64()), s=pa.array([], pa.string()))
        == []
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tss + 1", "no such column (given: tss); did you mean 'ts'?"),
        ("s + 1", "+ needs numbers, not string and int64 (given: s + 1); convert with CAST"),
        ("s > 1", "> needs values of one type, not string and int64 (given: s > 1)"),
        ("v AND b", "AND needs conditions, not int64 and bool (given: v AND b)"),
        ("NOT s", "NOT needs conditions, not string"),
        ("length(v)", "LENGTH needs text, not int64 (given: length(v))"),
        ("sqrt(s)", "SQRT needs a number, not string"),
        ("CASE WHEN v THEN 1 END", "CASE needs conditions after WHEN, not int64"),
        ("coalesce(v, s)", "COALESCE needs values of one type, not int64 and string"),
        ("CAST(b AS DATE)", "CAST needs a value that has a meaning in the new type, not bool"),
        ("ts + 1", "+ needs numbers, not timestamp[us] and int64"),
        ("many = v", "= needs values of one type"),
        ("many < many", "< needs values that can be compared"),
    ],
)
def test_types_that_do_not_fit(text: str, message: str) -> None:
    schema = pa.schema(
        {
            "v": pa.int64(),
            "s": pa.string(),
            "b": pa.bool_(),
            "ts": pa.timestamp("us"),
            "many": pa.list_(pa.int64()),
        }
    )
    with pytest.raises(SchemaError) as caught:
        infer(text, schema)
    assert str(caught.value).startswith(message)


_names = st.sampled_from(["v", "site", "_x1", "order", "date", "band", "andy", "null", "True"])
_printed = st.characters(exclude_characters="'\\", exclude_categories=["Cs", "Cc"])
_constants = (
    st.integers(-(10**18) + 1, 10**18 - 1).map(str)
    | st.decimals(-999, 999, places=3).map(str)
    | st.text(_printed, max_size=5).map(lambda text: f"'{text}'")
)
_spaces = st.sampled_from(["", " ", "  ", "\n"])
_signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


@st.composite
def simple_texts(draw: st.DrawFn) -> str:
    """Texts of the form that is read without the parser, and some that are not quite."""
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        name, space = draw(_names), draw(_spaces)
        if draw(st.booleans()):
            parts.append(f"{name}{space}{draw(_signs)}{draw(_spaces)}{draw(_constants)}{space}")
        else:
            listed = f"{draw(_spaces)},".join(draw(st.lists(_constants, min_size=1, max_size=3)))
            parts.append(f"{name} {draw(st.sampled_from(['IN', 'in']))}{space}({listed}){space}")
    return draw(st.sampled_from([" AND ", " and ", "AND", " OR "])).join(parts)


@given(simple_texts())
@example("a = 1 AND")
@example("a = 1 ANDb = 2")
@example("array_min(1)")
@example("a='x'AND b=-2")
@example("a = 'it''s'")
@example("a = 1 -- AND b = 2")
@example("a = 3-2")
@example("a = -0.0 AND a = 007")
@example("a = 0.0 AND a = -0.0 AND a IN (1, 1) AND a = 1 AND a IN (1, 1.0)")
def test_simple_conditions_are_read_as_the_parser_reads_them(text: str) -> None:
    found = simple_text(text)
    if found is not None:
        nodes = parse_in_full(text)
        assert repr(parse(text)) == repr(nodes)
        assert found == render(nodes)
        named = [node.name for node in walk(nodes) if isinstance(node, Column)]
        assert columns(text) == tuple(dict.fromkeys(named))


@given(simple_texts())
def test_the_ranges_of_simple_conditions_are_those_of_their_nodes(text: str) -> None:
    if comparisons(text) is not None:
        assert alternatives(text) == alternatives_of(parse_in_full(text))


@pytest.mark.parametrize(
    "text", ["v > 3", "site = 'x'", "v >= 1.5 AND v < 7", "site IN ('a', 'b') AND v <> -1"]
)
def test_conditions_that_need_no_parser(text: str) -> None:
    assert simple_text(text) == render(parse_in_full(text))


@pytest.mark.parametrize(
    "text", ["v > w", "v + 1 > 2", "v > 3 OR v < 1", "s = 'it\\'s'", "`v` > 3", "v > 1e3", ""]
)
def test_conditions_that_need_the_parser(text: str) -> None:
    assert comparisons(text) is None


@settings(max_examples=600, deadline=None)
@given(facts, facts, few_rows)
def test_no_row_meets_both_of_two_disjoint_conditions(
    left: Made, right: Made, data: list[Row]
) -> None:
    if disjoint(left.text, right.text):
        assert not any(left.run(row) is True and right.run(row) is True for row in data)
    assert disjoint(left.text, right.text) == disjoint(right.text, left.text)


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        ("v < 3", "v > 3", True),
        ("v <= 3", "v >= 3", False),
        ("v < 3", "v >= 3", True),
        ("v = 1", "v = 2", True),
        ("v = 1", "v = 1.0", False),
        ("v = 1", "v <> 1", True),
        ("v = 1", "v IS NULL", True),
        ("v IS NULL", "v IS NOT NULL", True),
        ("v IN (1, 2)", "v IN (3, 4)", True),
        ("v IN (1, 2)", "v NOT IN (2, 1, 5)", True),
        ("v BETWEEN 1 AND 5", "v BETWEEN 6 AND 9", True),
        ("v BETWEEN 1 AND 5", "NOT v BETWEEN 0 AND 9", True),
        ("v < 3 AND w > 1", "v > 3 OR w < 0", True),
        ("v < 3", "w > 3", False),
        ("s = 'a'", "s = 'b'", True),
        ("s < 'b'", "s >= 'b'", True),
        ("b", "NOT b", True),
        ("b", "b = FALSE", True),
        ("v % 2 = 0", "v % 2 = 1", True),
        ("v = NULL", "v = 1", True),
        ("v = 9007199254740993", "v = 9007199254740992", False),
        ("ts < TIMESTAMP '2026-01-01 00:00:00'", "ts >= DATE '2026-01-01'", True),
        ("v > 5", "v = 's'", False),
        ("FALSE", "v > 1", True),
    ],
)
def test_disjoint(left: str, right: str, wanted: bool) -> None:
    assert disjoint(left, right) is wanted
    assert disjoint(right, left) is wanted
