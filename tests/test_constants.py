"""Constant texts beside values of another type are cast as Spark casts them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import catchment as ct
from catchment.errors import SchemaError
from catchment.expression import disjoint, evaluate, infer
from catchment.expression.constants import read_as

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROWS = pa.table(
    {
        "i": pa.array([1, 3, None, -3, 12], pa.int32()),
        "f": [1.0, 3.0, None, 2.5, float("nan")],
        "ts": pa.array([NOON + timedelta(minutes=n) for n in range(5)], pa.timestamp("us", "UTC")),
        "day": [date(2025, 12, 30) + timedelta(days=n) for n in range(5)],
        "b": [True, False, None, True, False],
        "s": ["3", "03", None, "2026-01-01", "true"],
        "n": pa.array([1, 3, None, -3, 12], pa.int32()).cast(pa.decimal128(12, 2)),
    }
)


def told(text: str) -> list[Any]:
    assert infer(text, ROWS.schema) is not None
    return list(evaluate(text, lambda name: ROWS.column(name), ROWS.num_rows).to_pylist())


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("i = '3'", "i = 3"),
        ("i = ' +03 '", "i = 3"),
        ("'3' < i", "i > 3"),
        ("i IN ('1', '12', 3)", "i IN (1, 12, 3)"),
        ("i NOT IN ('1', '12', '-3', NULL)", "i NOT IN (1, 12, -3, NULL)"),
        ("i BETWEEN '1' AND '3'", "i BETWEEN 1 AND 3"),
        ("i + '3'", "i + 3"),
        ("i / '2'", "i / 2"),
        ("f >= '2.5'", "f >= 2.5"),
        ("f = 'NaN'", "f = CAST('NaN' AS DOUBLE)"),
        ("n = '3.0'", "n = 3.0"),
        ("coalesce(i, '7')", "coalesce(i, 7)"),
        ("CASE i WHEN '3' THEN i ELSE '5' END", "CASE WHEN i = 3 THEN i ELSE 5 END"),
        ("nullif(i, '3')", "nullif(i, 3)"),
        ("least(f, '2')", "least(f, 2.0)"),
        ("b = 'true'", "b = TRUE"),
        ("b <> 'N'", "b <> FALSE"),
        ("ts >= '2026-01-01 12:02:00'", "ts >= TIMESTAMP '2026-01-01 12:02:00'"),
        ("ts < '2026-1-1T14:2:00+2'", "ts < TIMESTAMP '2026-01-01 12:02:00'"),
        ("ts < '2026-01-01 12:03Z'", "ts < TIMESTAMP '2026-01-01 12:03:00'"),
        ("ts > '2026-01-01'", "ts > TIMESTAMP '2026-01-01 00:00:00'"),
        (
            "ts BETWEEN '2026-01-01 12:01:00' AND '2026-01-01 12:02:00.5'",
            "ts BETWEEN TIMESTAMP '2026-01-01 12:01:00' AND TIMESTAMP '2026-01-01 12:02:00.500'",
        ),
        ("day = '2026-01-01'", "day = DATE '2026-01-01'"),
        ("day IN ('2026-01-01', '2025-12-31', '2025-12-30')", "day <= DATE '2026-01-01'"),
        ("day = '2026-01-01 12:00:00'", "day = DATE '2026-01-01'"),
        ("s = '3'", "s LIKE '3'"),
    ],
)
def test_a_constant_is_cast_to_the_type_of_its_column(text: str, typed: str) -> None:
    assert repr(told(text)) == repr(told(typed))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i = 'x'", "'x' is not a whole number, which it is compared or calculated with"),
        ("i = '3.5'", "hint"),
        ("i IN ('1', '')", "'' is not a whole number"),
        ("f < 'many'", "write a number, as in '2.5'"),
        ("ts > 'noon'", "write a time, as in '2026-01-31 12:00:00'"),
        ("day = '2026-02-30'", "'2026-02-30' is not a day"),
        ("b = '2'", "write 'true' or 'false'"),
        ("s = 3", "values of one type"),
        ("s = i", "values of one type"),
        ("ts + '1'", "needs numbers"),
    ],
)
def test_what_cannot_be_read_so_is_told_before_any_event_comes(text: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        infer(text, ROWS.schema)
    assert message.replace("hint", "write a whole number, as in '3'") in str(caught.value)


def test_the_same_rows_as_duckdb() -> None:
    for text in (
        "i = '3'",
        "i IN ('1', '12')",
        "f >= '2.5'",
        "day = '2026-01-01'",
        "day BETWEEN '2025-12-31' AND '2026-01-02'",
        "ts >= '2026-01-01 12:02:00'",
        "b = 'true'",
    ):
        events = ROWS.set_column(2, "ts", ROWS["ts"].cast(pa.timestamp("us")))  # noqa: F841
        wanted = duckdb.sql(f"SELECT {text} FROM events").fetchall()
        assert told(text) == [row[0] for row in wanted], text


CONSTANTS = ["3", "03", "4", "-3", "+3", "3.0", "30e-1", "true", "t", "1", "0", "no", "No", "nan"]
CONSTANTS += ["NaN", "inf", "-Infinity", "2026-01-01", "2026-1-1", "2026-01-01 00:00:00", "a", "b"]
CONSTANTS += ["2026-01-02", "", " 3", "3x", "1x", "9", "10", "\x00", "\x003.0", "~", "z"]
_facts = st.builds(
    lambda op, constant: f"v {op} '{constant}'",
    st.sampled_from(["=", "=", "=", "<>", "<", "<=", ">", ">="]),
    st.sampled_from([c for c in CONSTANTS if c.isprintable()]),
) | st.lists(st.sampled_from([c for c in CONSTANTS if c.isprintable()]), min_size=1).map(
    lambda some: "v IN ({})".format(", ".join(f"'{one}'" for one in some))
)
_conditions = st.recursive(
    _facts,
    lambda inner: st.tuples(inner, st.sampled_from([" AND ", " OR "]), inner).map(
        lambda parts: f"({''.join(parts)})"
    ),
    max_leaves=3,
)
COLUMNS = [
    pa.array([*CONSTANTS, "5", "zz", None]),
    pa.array([3, 4, -3, 1, 0, 9, 10, 5, None], pa.int64()),
    pa.array([3.0, 4.0, -3.0, 1.0, 0.0, 9.5, float("nan"), float("inf"), float("-inf"), None]),
    pa.array([True, False, None]),
    pa.array([date(2026, 1, 1), date(2026, 1, 2), None]),
    pa.array([datetime(2026, 1, 1), datetime(2026, 1, 1, 5), datetime(2026, 1, 2), None]),
]


@given(_conditions, _conditions)
@example("v = '3'", "v = '03'")
@example("v > '9'", "v = '10'")
@example("v < '1x'", "v = '03'")
@example("v <> '03'", "v = '3'")
@example("v = 't'", "v = '1'")
@example("v = '2026-01-01'", "v = '2026-1-1'")
@example("v = '2026-01-01 12:00:00'", "v = '2026-01-01'")
@example("v = '3' AND v = '03'", "v <> '4'")
def test_no_row_of_any_type_meets_two_conditions_that_are_disjoint(one: str, other: str) -> None:
    if not disjoint(one, other):
        return
    for column in COLUMNS:
        schema = pa.schema({"v": column.type})
        try:
            infer(one, schema), infer(other, schema)
        except SchemaError:
            continue
        left, right = (
            evaluate(text, {"v": column}.__getitem__, len(column)) for text in (one, other)
        )
        both = zip(left.to_pylist(), right.to_pylist(), strict=True)
        assert (True, True) not in both, (one, other, column.type)


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ("id = '3'", "id = '4'", True),
        ("id = '0001'", "id = '0002'", True),
        ("id = '12ab'", "id = '1234'", True),
        ("id <> '3'", "id = '3'", True),
        ("day = '2026-01-01'", "day = '2026-01-02'", True),
        ("k = 'yes'", "k = 'no'", True),
        ("s < 'b'", "s >= 'b'", True),
        ("id = '3'", "id = '03'", False),
        ("id IN ('1', '2')", "id IN ('3', '4')", True),
        ("id IS NULL", "id = '3'", True),
    ],
)
def test_ids_of_digits_share_one_group(one: str, other: str, wanted: bool) -> None:
    assert disjoint(one, other) is wanted is disjoint(other, one)


def test_conditions_of_one_number_written_in_two_ways_are_both_met() -> None:
    events = pa.table({"ts": pa.array(range(8), pa.timestamp("s")), "v": [3, 4, 3, 5, 3, 4, 5, 3]})
    texts = ["v = '3'", "v = '03'", "v > '3'", "v = 4", "v = '5'", "v IN ('3', '5')"]
    queries = [
        ct.Query(f"q{n}", ct.count().alias("n"), where=text, window=ct.tumbling("1h"))
        for n, text in enumerate(texts)
    ]
    results = ct.run(events, queries, spark=False)
    counts = [results[query.name]["n"].to_pylist() for query in queries]
    assert counts == [[4], [4], [4], [2], [2], [6]]


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), st.integers(-12 * 60, 12 * 60))
def test_times_are_read_as_python_writes_them(moment: datetime, minutes: int) -> None:
    sign, away = "-" if minutes < 0 else "+", abs(minutes)
    text = f"{moment.isoformat(' ')}{sign}{away // 60:02}:{away % 60:02}"
    try:
        wanted = (moment - timedelta(minutes=minutes)).replace(tzinfo=UTC)
    except OverflowError:
        return
    found = read_as(text, "time")
    assert found is not None and found.value == wanted
