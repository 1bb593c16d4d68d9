"""Scalar functions against plain Python, DuckDB and Spark."""

from __future__ import annotations

import hashlib
import math
import random
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest

from catchment.errors import CatchmentError
from catchment.expression import canonical, evaluate, infer
from catchment.expression.named import FUNCTIONS
from catchment.expression.parsing import parse_in_full
from catchment.expression.usual import usual

DICE = random.Random(17)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
N = 200


def _drawn(values: list[Any]) -> list[Any]:
    return [DICE.choice([*values, None]) for _ in range(N)]


TEXTS = [
    "",
    "a",
    "Straße İ",
    "ΟΔΟΣ",
    "abc",
    " a b ",
    "k=17;z=4",
    "ü",
    "x,y,,z,",
    "GET /a/b?q=1",
    "aaa",
    "日本語 text",
]
JSONS = [
    '{"a": {"b": [1, 2.50, "x"]}, "t": true, "n": null, "k w": 3}',
    '{"a": 1e3}',
    "no json",
    '[1,{"a":"y"}]',
    "",
]
ROWS = pa.table(
    {
        "i": pa.array(_drawn([-7, -1, 0, 1, 2, 3, 12, 2**40]), pa.int64()),
        "j": pa.array(_drawn([-3, -2, 0, 1, 2, 5]), pa.int64()),
        "n": pa.array(_drawn([-7, -1, 0, 1, 250]), pa.int32()),
        "f": pa.array(_drawn([-1.5, -0.0, 0.0, 0.25, 1.0, 2.5, 1e10, math.nan]), pa.float64()),
        "s": pa.array(_drawn(TEXTS), pa.string()),
        "t": pa.array(_drawn(["a", "b", "17", "zz"]), pa.string()),
        "js": pa.array(_drawn(JSONS), pa.string()),
        "b": pa.array(_drawn([True, False]), pa.bool_()),
        "ts": pa.array(
            _drawn(
                [
                    BEGIN,
                    datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
                    datetime(2026, 3, 29, 1, 0, tzinfo=UTC),
                    datetime(2026, 3, 29, 0, 59, 59, tzinfo=UTC),
                    datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
                    datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC),
                    datetime(2000, 1, 31, 13, 5, 7, 120_000, tzinfo=UTC),
                ]
            ),
            pa.timestamp("us", "UTC"),
        ),
        "u": pa.array(
            _drawn([BEGIN + timedelta(days=n, hours=7 * n) for n in range(-70, 70, 9)]),
            pa.timestamp("us", "UTC"),
        ),
        "d": pa.array(_drawn([date(2024, 2, 29), date(2026, 1, 31), date(1969, 7, 20)])),
        "l": pa.array(_drawn([[], [1], [3, None, 2], [None], [5, 4, 3]]), pa.list_(pa.int64())),
        "g": pa.array(_drawn([[], [math.nan, 1.0], [-0.5, None]]), pa.list_(pa.float64())),
    }
)


def found(text: str) -> list[Any]:
    infer(text, ROWS.schema)
    return list(evaluate(text, ROWS.column, N).to_pylist())


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float | int) and not isinstance(other, bool):
        both = math.isnan(one) and math.isnan(other)
        return both or math.isclose(one, other, rel_tol=1e-14, abs_tol=1e-15)
    if isinstance(one, datetime) and isinstance(other, datetime):
        return one.replace(tzinfo=None) == other.replace(tzinfo=None)
    return type(one) is type(other) and bool(one == other)


def check(text: str, ours: list[Any], theirs: list[Any]) -> None:
    for row, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert alike(one, other), (text, ROWS.slice(row, 1).to_pylist(), one, other)


SPARK = [
    "s RLIKE 'a.?b'",
    "s NOT RLIKE '^[a-z]+$'",
    "regexp_like(s, '=')",
    "s ILIKE 'A%'",
    "s NOT ILIKE '_B_'",
    "regexp_extract(s, 'k=([0-9]+);(z)?', 1)",
    "regexp_extract(s, '(a)|(b)', 2)",
    "regexp_extract(s, '[(]?a(?:b)(c)', 0)",
    "regexp_replace(s, '([a-z])=', '$1:')",
    "regexp_replace(s, ' ', '')",
    "replace(s, 'a', 'bb')",
    "replace(s, 'a')",
    "split(s, ',')",
    "split_part(s, ',', 2)",
    "split_part(s, ',', -1)",
    "split_part(s, ',', 9)",
    "instr(s, 'b')",
    "instr(s, '')",
    "locate('b', s)",
    "contains(s, 'b')",
    "startswith(s, 'a')",
    "endswith(s, 'c')",
    "concat_ws('-', s, t, 'x')",
    "concat_ws('', s, t)",
    "concat_ws('-', s, t)",
    "concat_ws('-', s)",
    "ltrim(s) || '|' || rtrim(s)",
    "lpad(s, 5, 'xy')",
    "rpad(s, 2, 'xy')",
    "rpad(s, 4)",
    "right(s, 2)",
    "right(s, 0)",
    "left(s, 2)",
    "repeat(t, 3)",
    "reverse(s)",
    "char_length(s)",
    "md5(s)",
    "sha2(s, 256)",
    "sha2(s, 0)",
    "hash(s)",
    "hash(i, s, f)",
    "hash(n, b, ts, d)",
    "hash(NULL, s, t)",
    "sign(i)",
    "sign(f)",
    "isnan(f)",
    "nanvl(f, 3.0D)",
    "i <=> j",
    "i <=> NULL",
    "s IS DISTINCT FROM t",
    "b IS TRUE",
    "b IS NOT FALSE",
    "isnull(i) OR isnotnull(j)",
    "lower(s)",
    "upper(s)",
    "initcap(concat(s, ' xY z'))",
    "ascii(s)",
    "octet_length(s)",
    "bit_length(s)",
    "translate(s, 'abcb', 'xy')",
    "substring_index(s, ',', 2)",
    "substring_index(s, ',', -2)",
    "substring_index(s, ',', 0)",
    "substring_index(s, 'aa', 1)",
    "position('b' IN s)",
    "substring(s FROM 2 FOR 3)",
    "regexp_count(s, '[a-z]')",
    "regexp_substr(s, '[0-9]+')",
    "s LIKE ANY ('a%', '%b%')",
    "s NOT LIKE ALL ('a%', '%b%')",
    "hex(i)",
    "hex(s)",
    "bin(i)",
    "rint(f)",
    "factorial(n)",
    "format_number(f, 2)",
    "format_number(i, 0)",
    "crc32(s)",
    "width_bucket(f, 0, 3, 6)",
    "width_bucket(f, 3, 0, 6)",
    "double(i)",
    "string(i)",
    "boolean(i)",
    "float(i)",
    "bigint(n)",
    "timestamp(d)",
    "date_part('second', ts)",
    "date_part('DOW', ts)",
    "extract(week FROM ts)",
    "dayname(ts)",
    "monthname(d)",
    "make_date(year(d), month(d), 28)",
    "add_months(d, n)",
    "add_months(d, 1)",
    "dateadd(HOUR, 3, ts)",
    "datediff(HOUR, ts, u)",
    "d + 1",
    "1 + d",
    "d - 3",
    "ts - u > INTERVAL '1' DAY",
    "INTERVAL 36 HOURS <= (ts - u)",
    "array(i, j, 3L)",
    "array_join(l, '-')",
    "array_join(l, '-', '?')",
    "sort_array(l)",
    "sort_array(l, false)",
    "array_sort(l)",
    "array_distinct(array(i, j, i))",
    "reverse(l)",
    "concat_ws('-', split(s, ','), t)",
    "named_struct('a', i, 'b', s).b",
    "struct(i, s).i",
    "i & j",
    "i | 6",
    "i ^ j",
    "~i",
    "nvl2(i, s, 'none')",
    "decode(i, 1, 'one', NULL, 'null', 'many')",
    "decode(i, 1, 'one')",
    "sin(f)",
    "cos(f)",
    "tan(f)",
    "asin(f)",
    "acos(f)",
    "atan(f)",
    "atan2(f, i)",
    "sinh(i % 10)",
    "tanh(f)",
    "cbrt(f)",
    "degrees(f)",
    "radians(f)",
    "log10(f)",
    "log2(f)",
    "log1p(f)",
    "expm1(j)",
    "hypot(f, j)",
    "log(f)",
    "pi() + e()",
    "unix_timestamp(ts)",
    "unix_seconds(ts)",
    "unix_millis(ts)",
    "unix_micros(ts)",
    "unix_date(d)",
    "timestamp_seconds(n)",
    "timestamp_seconds(f / 3)",
    "timestamp_millis(i)",
    "timestamp_micros(i)",
    "from_unixtime(n)",
    "from_unixtime(n, 'yyyy/MM')",
    "date_format(ts, 'yyyy-MM-dd HH:mm:ss.SSS')",
    "date_format(ts, 'E EEEE, d MMM MMMM yy, h:m:s a')",
    "date_format(ts, \"D hh 'o' 'clock' SSSSSS\")",
    "date_format(d, 'dd.MM.yyyy')",
    "trunc(d, 'MM')",
    "trunc(ts, 'quarter')",
    "trunc(d, 'week')",
    "date_trunc('HOUR', ts)",
    "from_utc_timestamp(ts, 'Europe/Berlin')",
    "to_utc_timestamp(ts, 'Europe/Berlin')",
    "to_utc_timestamp(ts, 'America/New_York')",
    "hour(from_utc_timestamp(ts, 'Asia/Kolkata'))",
    "to_timestamp('2026-01-31 12:00:00')",
    "last_day(ts)",
    "date_add(d, 3)",
    "date_sub(ts, n)",
    "datediff(ts, d)",
    "ts + INTERVAL 90 MINUTES",
    "ts - INTERVAL '1' MONTH",
    "ts - INTERVAL '1 day 2 hours'",
    "INTERVAL '13' MONTHS + d",
    "d + INTERVAL '3' DAYS",
    "timestampadd(MONTH, n, ts)",
    "timestampadd(HOUR, n, ts)",
    "timestampdiff(SECOND, ts, u)",
    "timestampdiff(MONTH, ts, u)",
    "timestampdiff(YEAR, u, ts)",
    "timestampdiff(DAY, u, ts)",
    "element_at(split(s, ','), 1)",
    "array_max(l)",
    "array_min(l)",
    "array_max(g)",
    "array_min(g)",
    "get_json_object(js, '$.a.b[2]')",
    "get_json_object(js, '$.a')",
    "get_json_object(js, '$.a.b[1]')",
    "get_json_object(js, '$.t')",
    "get_json_object(js, '$.n')",
    "get_json_object(js, \"$['k w']\")",
    "get_json_object(js, '$[1].a')",
    "named_struct('a', i, 'b', s)",
    "i + '3'",
    "ts >= '2026-01-01 00:00:00'",
]
"""Expressions that mean in Spark what they mean here."""
TRIED = {
    "split(s, '[ ,]')[1]": "get(split(s, '[ ,]'), 1)",
    "split(s, ',')[1]": "get(split(s, ','), 1)",
    "int(f)": "try_cast(f AS INT)",
    "width_bucket(i, j, 3, 4)": "width_bucket(i, j, 3, 4)",
    "i DIV j": "try_divide(i - i % nullif(j, 0), nullif(j, 0))",
    "pmod(i, j)": "pmod(i, nullif(j, 0))",
    "i % j": "try_mod(i, j)",
    "try_divide(i, j)": "try_divide(i, j)",
    "element_at(l, 2)": "try_element_at(l, 2)",
    "element_at(l, -1)": "try_element_at(l, -1)",
    "i + j": "try_add(i, j)",
}
"""Expressions that are errors in Spark where there is no value: by what is null there too."""


def test_they_are_sparks(spark: Any) -> None:
    frame = spark.createDataFrame(ROWS)
    texts = dict(zip(SPARK, SPARK, strict=True)) | TRIED
    asked = [f"{theirs} AS c{n}" for n, theirs in enumerate(texts.values())]
    for begin in range(0, len(asked), 40):
        made = frame.selectExpr(*asked[begin : begin + 40]).toArrow()
        for text, column in zip(list(texts)[begin : begin + 40], made.columns, strict=True):
            ours = found(text)
            theirs = column.to_pylist()
            if text == "i DIV j":
                theirs = [None if value is None else int(value) for value in theirs]
            check(text, ours, theirs)


DUCKDB = {
    "regexp_replace(s, '([a-z])=', '$1:')": "regexp_replace(s, '([a-z])=', '\\1:', 'g')",
    "regexp_extract(s, 'k=([0-9]+);(z)?', 1)": "regexp_extract(s, 'k=([0-9]+);(z)?', 1)",
    "s RLIKE 'a.?b'": "regexp_matches(s, 'a.?b')",
    "replace(s, 'a', 'bb')": "replace(s, 'a', 'bb')",
    "instr(s, 'b')": "instr(s, 'b')",
    "contains(s, 'b')": "contains(s, 'b')",
    "concat_ws('-', s, t, 'x')": "concat_ws('-', s, t, 'x')",
    "concat_ws('', s, t)": "concat_ws('', s, t)",
    "lpad(s, 5, 'x')": "lpad(s, 5, 'x')",
    "reverse(t)": "reverse(t)",
    "md5(s)": "md5(s)",
    "sha2(s, 256)": "sha256(s)",
    "i & j": "i & j",
    "i ^ j": "xor(i, j)",
    "i DIV j": "i // nullif(j, 0)",
    "i IS DISTINCT FROM j": "i IS DISTINCT FROM j",
    "timestampdiff(DAY, d, d)": "date_diff('day', d, d)",
    "datediff(d, ts)": "date_diff('day', ts::date, d)",
    "last_day(d)": "last_day(d)",
    "unix_micros(ts)": "epoch_us(ts)",
    "ts + INTERVAL '1' MONTH": "ts + INTERVAL 1 MONTH",
    "array_max(l)": "list_max(l)",
    "array_min(l)": "list_min(l)",
    "element_at(l, 2)": "l[2]",
    "element_at(l, -1)": "l[-1]",
    "split_part(s, ',', 2)": "split_part(s, ',', 2)",
}


@pytest.mark.parametrize("text", DUCKDB)
def test_they_are_duckdbs(text: str) -> None:
    naive = {name: ROWS[name].cast(pa.timestamp("us")) for name in ("ts", "u")}
    rows = pa.table({name: naive.get(name, ROWS[name]) for name in ROWS.schema.names})
    assert rows.num_rows == N
    wanted = [row[0] for row in duckdb.sql(f"SELECT {DUCKDB[text]} FROM rows").fetchall()]
    check(text, found(text), wanted)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "Pacific/Apia", "UTC"])
def test_zones_are_those_of_python(zone: str) -> None:
    dice = random.Random(zone)
    seconds = [dice.randrange(-(10**9), 3 * 10**9) for _ in range(2000)]
    moments = [datetime.fromtimestamp(second, UTC) for second in seconds]
    column = pa.array(moments, pa.timestamp("us", "UTC"))
    made = evaluate(f"from_utc_timestamp(ts, '{zone}')", {"ts": column}.__getitem__, len(column))
    wanted = [moment.astimezone(ZoneInfo(zone)).replace(tzinfo=UTC) for moment in moments]
    assert made.to_pylist() == wanted
    made = evaluate(f"to_utc_timestamp(ts, '{zone}')", {"ts": column}.__getitem__, len(column))
    local = [moment.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) for moment in moments]
    assert made.to_pylist() == local


def test_of_plain_python() -> None:
    texts = ROWS["s"].to_pylist()
    digests = [None if text is None else hashlib.md5(text.encode()).hexdigest() for text in texts]
    assert found("md5(s)") == digests
    pairs = list(zip(ROWS["i"].to_pylist(), ROWS["j"].to_pylist(), strict=True))
    known = [None if i is None or not j else (i, j) for i, j in pairs]
    assert found("pmod(i, abs(j))") == [pair and pair[0] % abs(pair[1]) for pair in known]
    assert found("i DIV j") == [
        pair and abs(pair[0]) // abs(pair[1]) * (-1 if pair[0] * pair[1] < 0 else 1)
        for pair in known
    ]


@pytest.mark.parametrize("text", [*SPARK, *TRIED, "s LIKE 'a%'"])
def test_both_readers_make_the_same_of_them(text: str) -> None:
    nodes = parse_in_full(text)
    read = usual(text)
    assert read is None or repr(read) == repr(nodes)
    assert canonical(canonical(text)) == canonical(text)
    assert repr(parse_in_full(canonical(text))) == repr(nodes)


def test_constants_alone_and_no_rows() -> None:
    none = ROWS.slice(0, 0)
    for text in (*SPARK, *TRIED):
        kind = infer(text, ROWS.schema)
        assert evaluate(text, none.column, 0).type == kind, text
        assert len(evaluate(text, none.column, 0)) == 0
    for text in ("lpad('a', 3, 'x')", "instr('abc', 'c')", "split_part('a,b', ',', 2)", "hash(1)"):
        assert evaluate(text, none.column, 2).to_pylist() == 2 * [
            {"lpad": "xxa", "inst": 3, "spli": "b", "hash": -1712319331}[text[:4]]
        ]


def test_layouts_of_texts_and_lists_change_nothing() -> None:
    """Texts of Polars and pandas have offsets of 64 bits, and often a dictionary."""
    layouts = [(pa.large_string(), pa.large_list(pa.int64()))]
    layouts.append((pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.int64())))
    for of_texts, of_lists in layouts:
        kinds = dict.fromkeys(("s", "t", "js"), of_texts) | {"l": of_lists}
        columns = {
            name: ROWS[name].cast(kinds.get(name, ROWS[name].type)) for name in ROWS.schema.names
        }
        others = pa.table(columns)
        for text in (*SPARK, *TRIED):
            infer(text, others.schema)
            check(text, list(evaluate(text, others.column, N).to_pylist()), found(text))


def test_days_that_there_are_not() -> None:
    parts = [(2024, 2, 29), (2023, 2, 29), (2026, 13, 1), (2026, 1, 0), (None, 1, 1), (0, 1, 1)]
    year, month, day = (pa.array(some, pa.int64()) for some in zip(*parts, strict=True))
    columns = {"y": year, "m": month, "d": day}
    made = evaluate("make_date(y, m, d)", columns.__getitem__, len(parts))
    assert made.to_pylist() == [date(2024, 2, 29), *[None] * 5]


def test_nan_is_the_greatest_element() -> None:
    lists = {"g": pa.array([[math.nan, 1.0, None, -0.5], None, []], pa.list_(pa.float64()))}
    for text, wanted in {
        "sort_array(g)": [None, -0.5, 1.0, math.nan],
        "sort_array(g, false)": [math.nan, 1.0, -0.5, None],
        "array_sort(g)": [-0.5, 1.0, math.nan, None],
    }.items():
        first, *others = evaluate(text, lists.__getitem__, 3).to_pylist()
        assert repr(first) == repr(wanted), text
        assert others == [None, []]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_nulls_and_wrong_arguments_are_no_crashes(name: str) -> None:
    known = FUNCTIONS[name]
    for count in range(known.least, min(known.most, 5) + 1):
        for arg in ("NULL", "i", "s", "ts", "l", "f", "'a'", "1"):
            text = f"{name}({', '.join([arg] * count)})"
            try:
                assert len(evaluate(text, ROWS.column, N)) == N
            except CatchmentError:
                continue


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s RLIKE '('", "missing \\): \\("),
        ("s RLIKE '(?=a)'", "look-around and references back to groups are not done"),
        ("s RLIKE t", "argument 2 of rlike is a text, written as it is"),
        ("regexp_extract(s, 'a', 1)", "names a group that the pattern does not have"),
        ("regexp_replace(s, 'a', '$')", "write \\$1 for what the first group matched"),
        ("split(s, 'x*')", "a pattern that matches nothing at all"),
        ("lpad(s, 100000)", "at most 10,000 characters"),
        ("repeat(s, 100000)", "at most 10,000 times"),
        ("sha2(s, 3)", "bits are 224, 256, 384 or 512"),
        ("date_format(ts, 'YYYY')", "YYYY in date_format.*supported are"),
        ("from_utc_timestamp(ts, 'Europe/Berln')", "did you mean 'Europe/Berlin'"),
        ("get_json_object(js, 'a.b')", "write '\\$.user.name'"),
        ("ts - u", "write timestampdiff\\(SECOND, u, ts\\)"),
        ("ts + 5", "write ts \\+ INTERVAL '5' MINUTES"),
        ("ts + INTERVAL '5' PARSECS", "INTERVAL"),
        ("INTERVAL '5' MINUTES", "it is added to a time"),
        ("trunc(ts, 'HOUR')", "date_trunc\\('HOUR', ts\\) is for times"),
        ("timestampdiff(EON, ts, u)", "units are year"),
        ("current_timestamp()", "another value each time it is computed"),
        ("rand() > 0.5", "another value each time it is computed"),
        ("exists(l, x -> x > 3)", "unknown function|function of elements"),
        ("sum(i) > 3", "uses an aggregate"),
        ("decode(s, 'utf-8')", "bytes are not decoded"),
        ("f DIV 2", "needs whole numbers"),
        ("f & 2", "needs whole numbers"),
        ("element_at(l, 0)", "a place from 1"),
    ],
)
def test_mistakes_are_told_before_any_event_comes(text: str, message: str) -> None:
    with pytest.raises(CatchmentError, match=message):
        infer(text, ROWS.schema)
