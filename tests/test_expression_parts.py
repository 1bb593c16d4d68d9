"""Parts of times and of texts in expressions, against Python's own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from catchment.errors import QueryError, SchemaError
from catchment.expression import canonical, evaluate, infer
from catchment.testing.oracle_expression import value_of

TIMES = [
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2000, 2, 29, 12, 30, 15, tzinfo=UTC),
    datetime(2024, 12, 30, 0, 0, 1, tzinfo=UTC),
    datetime(2026, 3, 1, 23, 5, tzinfo=UTC),
    None,
]
PARTS: dict[str, Callable[[datetime], int]] = {
    "year": lambda t: t.year,
    "quarter": lambda t: (t.month - 1) // 3 + 1,
    "month": lambda t: t.month,
    "day": lambda t: t.day,
    "dayofmonth": lambda t: t.day,
    "dayofyear": lambda t: (t.date() - date(t.year, 1, 1)).days + 1,
    "weekofyear": lambda t: t.isocalendar().week,
    "dayofweek": lambda t: (t.weekday() + 1) % 7 + 1,
    "weekday": lambda t: t.weekday(),
    "hour": lambda t: t.hour,
    "minute": lambda t: t.minute,
    "second": lambda t: t.second,
}
KINDS = [
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns", "UTC"),
    pa.timestamp("us"),
    pa.timestamp("us", "Asia/Tokyo"),
]


def run(text: str, **columns: Any) -> list[Any]:
    arrays = {n: v if isinstance(v, pa.Array) else pa.array(v) for n, v in columns.items()}
    values: list[Any] = evaluate(
        text, arrays.__getitem__, len(next(iter(arrays.values())))
    ).to_pylist()
    return values


def times(kind: Any) -> pa.Array:
    return pa.array(TIMES, pa.timestamp("us", "UTC")).cast(kind)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("part", PARTS)
def test_parts_of_times_are_those_in_utc(part: str, kind: Any) -> None:
    wanted = [None if t is None else PARTS[part](t) for t in TIMES]
    assert run(f"{part}(ts)", ts=times(kind)) == wanted
    assert infer(f"{part}(ts)", pa.schema({"ts": kind})) == pa.int64()


@pytest.mark.parametrize("part", [part for part in PARTS if part != "dayofmonth"])
def test_a_day_is_a_time_too(part: str) -> None:
    days = [date(1969, 12, 31), date(2024, 2, 29), None]
    at = [None if d is None else datetime(d.year, d.month, d.day, tzinfo=UTC) for d in days]
    assert run(f"{part}(d)", d=days) == [None if t is None else PARTS[part](t) for t in at]


@pytest.mark.parametrize("part", ["year", "dayofweek", "hour", "weekofyear"])
def test_the_oracle_says_the_same(part: str) -> None:
    assert [value_of(f"{part}(ts)", {"ts": t}) for t in TIMES] == run(f"{part}(ts)", ts=TIMES)


def test_extract_is_a_part() -> None:
    assert canonical("extract(HOUR FROM ts)") == canonical("hour(ts)") == "hour(ts)"
    assert canonical("day(ts)") == canonical("dayofmonth(ts)") == canonical("extract(day from ts)")


def test_times_cut_down_to_a_unit() -> None:
    time = datetime(2026, 8, 19, 13, 45, 59, tzinfo=UTC)  # a Wednesday
    wanted = {
        "year": datetime(2026, 1, 1, tzinfo=UTC),
        "quarter": datetime(2026, 7, 1, tzinfo=UTC),
        "month": datetime(2026, 8, 1, tzinfo=UTC),
        "week": datetime(2026, 8, 17, tzinfo=UTC),
        "day": datetime(2026, 8, 19, tzinfo=UTC),
        "hour": datetime(2026, 8, 19, 13, tzinfo=UTC),
        "minute": time - timedelta(seconds=59),
        "second": time,
    }
    for unit, cut in wanted.items():
        assert run(f"date_trunc('{unit}', ts)", ts=[time, None]) == [cut, None]
        assert canonical(f"DATE_TRUNC('{unit}', ts)") == f"date_trunc('{unit.upper()}', ts)"


NAMES = ["", "a", "abc", "héllo", None]


@pytest.mark.parametrize("start", [-9, -3, -1, 0, 1, 2, 9])
@pytest.mark.parametrize("length", [None, -1, 0, 1, 2, 9])
def test_substring(start: int, length: int | None) -> None:
    args = f"{start}" if length is None else f"{start}, {length}"

    def wanted(text: str | None) -> str | None:
        if text is None:
            return None
        first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
        last = len(text) if length is None else first + max(length, 0)
        return text[max(first, 0) : max(last, 0)]

    assert run(f"substring(s, {args})", s=NAMES) == [wanted(text) for text in NAMES]
    assert [value_of(f"substring(s, {args})", {"s": s}) for s in NAMES] == list(map(wanted, NAMES))


def test_texts_put_together() -> None:
    rows = {"s": ["a", None, "c"], "n": [1, 2, None], "b": [True, False, True]}
    assert run("concat(s, '-', n)", **rows) == ["a-1", None, None]
    assert run("s || n || b", **rows) == ["a1true", None, None]
    assert run("left(s, 1)", **rows) == ["a", None, "c"]
    assert run("trim(s)", s=["  a b ", "\ta", None]) == ["a b", "\ta", None]
    for text, wanted in (
        ("trim(BOTH 'xy' FROM s)", "ax b"),
        ("trim('xy' FROM s)", "ax b"),
        ("trim('xy', s)", "ax b"),
        ("btrim(s, 'xy')", "ax b"),
        ("trim(LEADING 'xy' FROM s)", "ax byx"),
        ("ltrim('xy', s)", "ax byx"),
        ("trim(TRAILING 'xy' FROM s)", "xyax b"),
        ("rtrim('xy', s)", "xyax b"),
        ("trim(TRAILING FROM s)", "xyax byx"),
    ):
        assert run(text, s=["xyax byx", None]) == [wanted, None]
        assert run(canonical(text), s=["xyax byx", None]) == [wanted, None]
    assert canonical("s || 'x' || n") == "concat(s, 'x', n)"


def test_a_tuple_is_equal_for_equal_values_and_for_no_others() -> None:
    firsts = ["a", "a:", "", "1:a", None, "a"]
    seconds = [":b", "b", "x", "", "x", None]
    found = run("tuple(x, y)", x=firsts, y=seconds)
    assert found[4:] == [None, None] and len(set(found[:4])) == 4
    floats = run("tuple(x, y)", x=[0.0, -0.0, 1.5], y=[1, 1, 1])
    assert floats[0] == floats[1] != floats[2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("date_trunc('eon', ts)", "the expression cuts a time down to what is not supported"),
        ("extract(epoch FROM ts)", "the expression extracts what is not supported"),
        ("substring(s, n)", "the expression takes a part of a text that is not fixed"),
        ("tuple(s)", "the expression gives tuple the wrong arguments"),
        ("'it''s'", "the expression uses concatenation"),
        ("trim(BOTH n FROM s)", "the expression gives trim the wrong arguments"),
        ("trim(s, 'x')", "the expression gives trim the wrong arguments"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        canonical(text)
    assert str(caught.value).startswith(message) and caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hour(s)", "HOUR needs a time, not string (given: hour(s))"),
        ("date_trunc('hour', n)", "DATE_TRUNC needs a time, not int64"),
        ("substring(n, 1)", "SUBSTRING needs text, not int64"),
        ("trim(n)", "TRIM needs text, not int64"),
    ],
)
def test_what_does_not_fit(text: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        infer(text, pa.schema({"s": pa.string(), "n": pa.int64()}))
    assert str(caught.value).startswith(message)
