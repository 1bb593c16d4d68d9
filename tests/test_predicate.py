"""What is pushed down to files never loses a row that the condition keeps."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.expression import evaluate
from catchment.sources.parquet_file import Parquet
from catchment.sources.predicate import pushed
from expression_rows import floats, ints
from source_reading import opened, read_split

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = [MOMENT + timedelta(microseconds=n) for n in (-1, 0, 1, 10**6, 86_400 * 10**6)]
COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "i": (pa.int64(), ints),
    "h": (pa.int16(), st.integers(-5, 5)),
    "q": (pa.uint64(), st.sampled_from([0, 1, 5, 2**63, 2**64 - 1])),
    "f": (pa.float64(), floats),
    "g": (pa.float32(), st.sampled_from([0.0, -0.0, 1.5, -1.0, 2.0, math.inf, math.nan])),
    "s": (pa.string(), st.sampled_from(["", "a", "b", "ab", "ü"])),
    "b": (pa.bool_(), st.booleans()),
    "t": (pa.timestamp("us", "UTC"), st.sampled_from(TIMES)),
    "u": (pa.timestamp("ns"), st.sampled_from([time.replace(tzinfo=None) for time in TIMES])),
    "d": (pa.date32(), st.sampled_from([time.date() for time in TIMES])),
}
SCHEMA = pa.schema([pa.field(name, kind) for name, (kind, _) in COLUMNS.items()])
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | of for name, (_, of) in COLUMNS.items()}),
    min_size=1,
    max_size=12,
)
NUMBERS = st.sampled_from(["0", "1", "-1", "1.5", "-0.0", "0.1", "2.0", "5", "9007199254740993"])
MOMENTS = st.sampled_from(
    ["TIMESTAMP '2026-01-01'", "TIMESTAMP '2026-01-01 00:00:00.000001'", "DATE '2026-01-02'"]
)
LITERALS = {
    **dict.fromkeys("ihqfg", NUMBERS | st.just("NULL")),
    "s": st.sampled_from(["''", "'a'", "'ab'", "NULL"]),
    "b": st.sampled_from(["TRUE", "FALSE"]),
    **dict.fromkeys("tud", MOMENTS),
}
SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(list(COLUMNS)))
    literals = LITERALS[name]
    form = draw(st.integers(0, 5))
    if form == 0:
        return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if form == 1:
        values = draw(st.lists(literals, min_size=1, max_size=4))
        return f"{name} {draw(st.sampled_from(['', 'NOT ']))}IN ({', '.join(values)})"
    if form == 2:
        return f"{name} BETWEEN {draw(literals)} AND {draw(literals)}"
    if form == 3 and name in "ihfg":
        return f"abs({name}) > {draw(NUMBERS)}"
    return f"{name} {draw(SIGNS)} {draw(literals)}"


CONDITIONS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=5,
)


def kept_by_sql(where: str, table: pa.Table) -> list[bool]:
    met = evaluate(where, lambda name: table[name].combine_chunks(), table.num_rows)
    return [value is True for value in met.to_pylist()]


@given(rows=ROWS, where=CONDITIONS)
def test_every_row_that_is_meant_is_kept(rows: list[Any], where: str) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    condition = pushed(where, SCHEMA)
    if condition is None:
        return
    numbered = table.append_column("row", pa.array(range(len(rows))))
    kept = set(numbered.filter(condition)["row"].to_pylist())
    assert {row for row, met in enumerate(kept_by_sql(where, table)) if met} <= kept


@given(rows=ROWS, where=CONDITIONS, group=st.integers(1, 4))
def test_no_row_group_that_is_needed_is_passed_over(
    rows: list[Any], where: str, group: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("pruned")
    table = pa.Table.from_pylist(rows, SCHEMA).append_column("row", pa.array(range(len(rows))))
    pq.write_table(table, root / "a.parquet", row_group_size=group)
    source = opened(Parquet(path=str(root / "a.parquet")), root / "home")
    [split] = source.splits(source.start(), source.latest(source.start()), 1)
    tables, arrivals, bad = read_split(source, split, where=where)
    kept = [row for found in tables for row in found["row"].to_pylist()]
    assert kept == arrivals and bad.num_rows == 0
    assert {row for row, met in enumerate(kept_by_sql(where, table)) if met} <= set(kept)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("i > 5", "(i > 5)"),
        ("i > 5 AND sqrt(f) > 1", "(i > 5)"),
        ("i > 5 OR sqrt(f) > 1", None),
        ("i > 5 OR h IN (1, 2)", "((i > 5) or is_in"),
        ("i = 2.0", "(i == 2)"),
        ("i < 2.5", None),
        ("h < 100000", None),
        ("f > 5", None),
        ("f BETWEEN 1 AND 2", "((f >= 1) and (f <= 2))"),
        ("g < 0.1", None),
        ("i IS NOT NULL", "invert(is_null(i"),
        ("i = NULL", None),
        ("missing = 1", None),
        ("NOT (i > 5)", "(i <= 5)"),
        ("TRUE", None),
        ("b", None),
    ],
)
def test_what_is_pushed(where: str, text: str | None) -> None:
    found = pushed(where, SCHEMA)
    assert found is None if text is None else text in str(found)


def test_not_a_number_is_larger_than_every_number(tmp_path: Path) -> None:
    table = pa.table({"f": [1.0, math.nan, 2.0, 2.0, 50.0, 60.0], "s": list("abcdef")})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    source = opened(Parquet(path=str(tmp_path / "a.parquet")), tmp_path / "home")
    [split] = source.splits(source.start(), source.latest(source.start()), 1)

    def groups(where: str) -> int:
        return sum(table.num_rows for table in read_split(source, split, where=where)[0]) // 2

    assert groups("f > 55") == 3  # any of them may hide one
    assert groups("f > 55 AND f < 70") == 1
    assert groups("f = 2") == 1
    assert groups("s IN ('a', 'f')") == 2
    assert groups("s IS NULL") == 0
