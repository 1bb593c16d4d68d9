"""CSV and JSON lines: good rows are read, bad ones set aside with their bytes."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from catchment.errors import SourceError
from catchment.sources import text_files
from catchment.sources.csv_file import Csv
from catchment.sources.json_lines import JsonLines
from source_reading import aged, opened, read_all, read_between, read_split, values

TYPES = {"ts": "timestamp", "k": "string", "v": "double"}
MOMENT = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def put(path: Path, data: bytes, age: float = 60) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    aged(path, age)
    return path


def source_of(kind: Any, root: Path, **options: Any) -> Any:
    return opened(kind(path=str(root / "in"), **options), root / "home")


def shown(bad: pa.Table) -> list[tuple[int, str, bytes]]:
    return list(zip(values(bad, "place"), values(bad, "reason"), values(bad, "body"), strict=True))


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_csv(name: str, tmp_path: Path) -> None:
    put(
        tmp_path / "in" / name,
        b"\xef\xbb\xbfk,extra,v,ts\r\n"
        b'"a,""b""",1,1.5,2026-01-31 12:00:00\r\n'
        b"\r\n"
        b'"",,NaN,2026-01-31T12:00:00.000001\r\n'
        b",,,",
    )
    table, bad = read_all(source_of(Csv, tmp_path, schema=TYPES))
    assert bad.num_rows == 0
    assert values(table, "ts") == [MOMENT, MOMENT + timedelta(microseconds=1), None]
    assert values(table, "k") == ['a,"b"', "", None]
    assert str(values(table, "v")) == "[1.5, nan, None]"


def test_bad_rows_of_csv_are_set_aside_with_their_bytes(tmp_path: Path) -> None:
    put(
        tmp_path / "in/a.csv",
        b"ts,k,v\n"
        b"2026-01-31 12:00:00,a,1\n"
        b"soon,b,2\n"
        b"2026-01-31 12:00:00,c,three\n"
        b"2026-01-31 12:00:00,d\n"
        b"\n"
        b"2026-01-31 12:00:00,\xff,5\n"
        b'2026-01-31 12:00:00,"f,6\n'
        b"2026-01-31T13:00:00.1234567+01:00,g,7\r\n",
    )
    table, bad = read_all(source_of(Csv, tmp_path, schema=TYPES))
    assert values(table, "k") == ["a", "g"]
    assert values(table, "ts") == [MOMENT, MOMENT + timedelta(microseconds=123456)]
    assert shown(bad) == [
        (3, "ts is not of type timestamp[us, tz=UTC]: 'soon'", b"soon,b,2"),
        (4, "v is not of type double: 'three'", b"2026-01-31 12:00:00,c,three"),
        (5, "2 values instead of 3", b"2026-01-31 12:00:00,d"),
        (7, "not UTF-8", b"2026-01-31 12:00:00,\xff,5"),
        (8, "a quote is not closed", b'2026-01-31 12:00:00,"f,6'),
    ]
    assert set(values(bad, "origin")) == {str(tmp_path / "in/a.csv")}


@pytest.mark.parametrize(
    "lines",
    [[b'1,"a', b"2,b"], [b"2,b", b'1,"a'], [b'1,5",', b'2,"x', b"3,y"], [b"1,2,3", b'2,"x']],
)
def test_a_quote_that_is_not_closed_takes_no_other_row(lines: list[bytes], tmp_path: Path) -> None:
    good = [b'7,"x"', b'8,5" pipe', b'9,""']
    put(tmp_path / "in/a.csv", b"\n".join([b"v,k", *good, *lines, *good]))
    table, bad = read_all(source_of(Csv, tmp_path, schema={"k": "string", "v": "double"}))
    assert values(table, "k")[:3] == ["x", '5" pipe', ""] == values(table, "k")[-3:]
    assert table.num_rows + bad.num_rows == 6 + len(lines)


def test_options_of_csv(tmp_path: Path) -> None:
    put(tmp_path / "in/a.csv", b"v;k\n1,0;x\n-;y\n2;-\n")
    source = source_of(
        Csv, tmp_path, schema={"v": "double", "k": "string"}, delimiter=";", nulls=["-"]
    )
    table, bad = read_all(source)
    assert table.to_pylist() == [{"v": None, "k": "y"}, {"v": 2.0, "k": None}]
    assert values(bad, "body") == [b"1,0;x"]
    with pytest.raises(ValidationError):
        Csv(path="x", delimiter="\n")
    with pytest.raises(ValidationError):
        Csv(path="x", max_files_per_batch=0)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json.gz"])
def test_json_lines(name: str, tmp_path: Path) -> None:
    put(
        tmp_path / "in" / name,
        b'{"k": "a", "v": 1, "ts": "2026-01-31T12:00:00Z", "extra": [1]}\r\n'
        b"\n"
        b'{"ts": "2026-01-31 12:00:00.000001"}\n'
        b'{"k": null, "v": 2.5}',
    )
    table, bad = read_all(source_of(JsonLines, tmp_path, schema=TYPES))
    assert bad.num_rows == 0
    assert values(table, "ts") == [MOMENT, MOMENT + timedelta(microseconds=1), None]
    assert values(table, "k") == ["a", None, None]
    assert values(table, "v") == [1.0, None, 2.5]


def test_bad_json_lines_are_set_aside_with_their_bytes(tmp_path: Path) -> None:
    lines = [
        b'{"k": "a"}',
        b'{"k": ',
        b"[1]",
        b'{"v": "x"}',
        b'{"k": "\xff"}',
        b"",
        b'{"v": 1}{"v": 2}',
        b'{"ts": "soon"}',
        b'{"k": "b", "ts": "2026-01-31T13:00:00.123456789+01:00"}',
    ]
    put(tmp_path / "in/a.jsonl", b"\n".join(lines))
    table, bad = read_all(source_of(JsonLines, tmp_path, schema=TYPES))
    assert values(table, "k") == ["a", "b"]
    assert values(table, "ts") == [None, MOMENT + timedelta(microseconds=123456)]
    assert values(bad, "body") == [lines[i] for i in (1, 2, 3, 4, 6, 7)]
    assert values(bad, "place") == [2, 3, 4, 5, 7, 8]
    assert values(bad, "reason")[1] == "not a JSON object"
    assert all(values(bad, "reason"))


def test_types_are_guessed_from_the_first_lines(tmp_path: Path) -> None:
    put(
        tmp_path / "in/a.csv",
        b"ts,k,v,i,e\n2026-01-31 12:00:00.5,a,1.5,1,\n2026-01-31 12:00:00,b,2,2,\n",
    )
    put(tmp_path / "in/b.jsonl", b'{"ts": "2026-01-31T12:00:00.5Z", "k": "a", "v": 1.5, "i": 1}\n')
    moment, text = pa.timestamp("us", "UTC"), pa.string()
    types = [moment, text, pa.float64(), pa.int64()]
    assert Csv(path=str(tmp_path / "in")).event_schema().types == [*types, text]
    assert JsonLines(path=str(tmp_path / "in")).event_schema().types == types
    table, bad = read_all(source_of(Csv, tmp_path))
    assert values(table, "ts")[0] == MOMENT + timedelta(seconds=0.5)
    assert bad.num_rows == 0


def test_other_types(tmp_path: Path) -> None:
    types = {"d": "date", "m": "decimal(5,2)", "b": "boolean", "i": "tinyint", "x": "binary"}
    row = {"d": date(2026, 1, 31), "m": Decimal("1.25"), "b": True, "i": 7, "x": b"ab"}
    put(
        tmp_path / "in/a.csv",
        b"d,m,b,i,x\n2026-01-31,1.25,true,7,ab\n2026-01-31,1.25,true,777,ab\n",
    )
    put(
        tmp_path / "in/a.jsonl",
        b'{"d": "2026-01-31", "m": "1.25", "b": true, "i": 7, "x": "ab"}\n{"d": "x"}\n',
    )
    for number, kind in enumerate((Csv, JsonLines)):
        source = opened(kind(path=str(tmp_path / "in"), schema=types), tmp_path / f"home{number}")
        table, bad = read_all(source)
        assert table.to_pylist() == [row]
        assert bad.num_rows == 1


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    source = source_of(Csv, tmp_path, schema={"v": "int"}, settle="1h")
    path = put(tmp_path / "in/a.csv", b"v\n1\n", age=0)
    assert source.latest(source.start()) == source.start()
    put(path, b"v\n1\n2\n", age=2 * 3600)
    assert values(read_between(source, source.start(), source.latest(source.start()))[0], "v") == [
        1,
        2,
    ]


def test_a_file_from_a_clock_ahead_settles_too(tmp_path: Path) -> None:
    source = source_of(Csv, tmp_path, schema={"v": "int"}, settle="50ms")
    put(tmp_path / "in/a.csv", b"v\n1\n", age=-3600)
    assert source.bound(source.start()) == {"n": 1}


def test_a_job_over_what_there_is_waits_for_the_last_file(tmp_path: Path) -> None:
    source = source_of(Csv, tmp_path, schema={"v": "int"}, settle="50ms")
    put(tmp_path / "in/a.csv", b"v\n1\n", age=0)
    assert values(read_all(source)[0], "v") == [1]


def test_empty_files_and_missing_columns_wait(tmp_path: Path) -> None:
    source = source_of(Csv, tmp_path, schema={"v": "int"})
    put(tmp_path / "in/a.csv", b"")
    put(tmp_path / "in/b.csv", b"w\n1\n")
    put(tmp_path / "in/c.csv", b"v,v\n1,2\n")
    put(tmp_path / "in/d.csv", b"\nv\n1\n")
    put(tmp_path / "in/e.csv", b"").rename(tmp_path / "in/e.csv.gz").write_bytes(b"\x1f\x8b junk")
    aged(tmp_path / "in/e.csv.gz", 50)
    assert source.latest(source.start()) == source.start()
    why = {Path(path).name: reason for path, reason in source.waiting().items()}
    assert why.pop("e.csv.gz")
    assert why == {
        "a.csv": "the file is empty",
        "b.csv": "it has no column 'v'",
        "c.csv": "it has 2 columns 'v'",
        "d.csv": "the first line has no names of columns",
    }
    with pytest.raises(SourceError, match="it has no column"):
        source.check()
    put(tmp_path / "in/b.csv", b"v\n1\n")
    source.latest(source.start())
    assert str(tmp_path / "in/b.csv") not in source.waiting()


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_file_that_is_cut_gives_what_it_still_has(ending: str, tmp_path: Path) -> None:
    rows = [f"{n},{n * 7919 % 10007}" for n in range(20_000)]
    path = put(tmp_path / f"in/a.{ending}", "\n".join(["v,w", *rows]).encode() + b"\n")
    source = source_of(Csv, tmp_path, schema={"v": "int"})
    end = source.latest(source.start())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    table, bad = read_between(source, source.start(), end)
    assert 3000 < table.num_rows < 15_000
    assert values(table, "v") == list(range(table.num_rows))
    assert bad.num_rows == 1 and rows[table.num_rows].encode().startswith(bad["body"][0].as_py())


def test_lines_that_come_later_are_counted(tmp_path: Path) -> None:
    path = put(tmp_path / "in/a.csv", b"v\n1\n2\n")
    source = source_of(Csv, tmp_path, schema={"v": "int"})
    end = source.latest(source.start())
    path.write_bytes(b"v\n1\n2\n3\n")
    table, bad = read_between(source, source.start(), end)
    assert values(table, "v") == [1, 2]
    assert values(bad, "reason") == ["2 bytes came after the file was taken"]
    path.unlink()
    table, bad = read_between(source, source.start(), end)
    assert table.num_rows == 0 and bad.num_rows == 1


@settings(max_examples=settings.default.max_examples // 4)
@given(
    files=st.lists(st.lists(st.booleans(), max_size=30), min_size=1, max_size=4),
    block=st.integers(1, 200),
    zipped=st.booleans(),
    lines=st.booleans(),
    parallel=st.integers(1, 4),
)
def test_every_line_is_an_event_or_set_aside_whatever_the_blocks(
    files: list[list[bool]],
    block: int,
    zipped: bool,
    lines: bool,
    parallel: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("lines")
    kind, ending = (JsonLines, "jsonl") if lines else (Csv, "csv")
    expected: list[int] = []
    wrong: list[bytes] = []
    for number, oks in enumerate(files):
        texts = [] if lines else [b"k,v"]
        for place, ok in enumerate(oks):
            n = number * 100 + place
            value = str(n) if ok else "x"
            line = json.dumps({"v": n if ok else "x"}) if lines else f'"k{n}",{value}'
            texts.append(line.encode())
            if ok:
                expected.append(n)
            else:
                wrong.append(line.encode())
        name = f"in/{number}.{ending}" + (".gz" if zipped else "")
        put(root / name, b"\n".join(texts) + b"\n", age=100 - number)
    source = source_of(kind, root, schema={"v": "bigint"})
    end = source.latest(source.start())
    found, bad, last = [], [], -1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, "BLOCK", block)
        patch.setattr(text_files, "_CHUNK", max(block // 2, 1))
        patch.setattr(text_files, "_CAREFUL", max(block // 9, 1))
        for split in source.splits(source.start(), end, parallel):
            tables, arrivals, aside = read_split(source, split)
            assert arrivals == sorted(set(arrivals)) and min(arrivals, default=last + 1) > last
            last = max(arrivals, default=last)
            found += [v for table in tables for v in values(table, "v")]
            bad += values(aside, "body")
    assert found == expected
    assert bad == wrong


def test_a_column_of_several_types_says_that_a_schema_helps(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1, "v": 1}\n{"n": 2, "v": "x"}\n')
    with pytest.raises(SourceError) as caught:
        JsonLines(path=str(tmp_path)).event_schema()
    assert str(caught.value).endswith(
        "a.jsonl: its column 'v' is a number in one line and a string in another; say which "
        "columns to read, and of which types, with schema:"
    )
    made = JsonLines(path=str(tmp_path), schema={"n": "bigint", "v": "double"})
    table, bad = read_all(opened(made, tmp_path / "home"))
    assert table["n"].to_pylist() == [1] and bad.num_rows == 1
