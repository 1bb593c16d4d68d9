"""Files that are half written, of another schema, damaged or gone never stop the stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catchment.sources.arrow_file import ArrowFile
from catchment.sources.parquet_file import Parquet
from source_reading import events, opened, put, read_all, read_between, values


@pytest.mark.parametrize(("kind", "ending"), [(Parquet, "parquet"), (ArrowFile, "arrow")])
def test_a_half_written_file_waits_until_it_is_whole(
    kind: Any, ending: str, tmp_path: Path
) -> None:
    put(tmp_path / f"in/a.{ending}", events(1))
    whole = put(tmp_path / f"b.{ending}", events(*range(500))).read_bytes()
    half = tmp_path / f"in/b.{ending}"
    half.write_bytes(whole[: len(whole) // 2])
    source = opened(kind(path=str(tmp_path / "in")), tmp_path / "home")
    first = source.latest(source.start())
    assert values(read_between(source, source.start(), first)[0], "n") == [1]
    assert source.latest(first) == first
    assert list(source.waiting()) == [str(half)]
    half.write_bytes(whole)
    second = source.latest(first)
    assert values(read_between(source, first, second)[0], "n") == list(range(500))
    assert source.waiting() == {}


def test_a_file_of_another_schema_waits(tmp_path: Path) -> None:
    put(tmp_path / "in/a.parquet", events(1))
    put(tmp_path / "in/b.parquet", pa.table({"n": ["one"], "k": ["k"]}))
    put(tmp_path / "in/c.parquet", pa.table({"n": [7]}))
    narrow = events(2).set_column(0, "n", pa.array([2], pa.int16())).append_column("x", [["y"]])
    put(tmp_path / "in/d.parquet", narrow)
    source = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    table, bad = read_all(source)
    assert sorted(values(table, "n")) == [1, 2]
    assert table.schema == source.event_schema()
    assert bad.num_rows == 0
    assert {Path(path).name: why for path, why in source.waiting().items()} == {
        "b.parquet": "its column 'n' is string, not int64",
        "c.parquet": "it has no column 'k'",
    }
    put(tmp_path / "in/c.parquet", events(3))
    table, _ = read_between(source, {"n": 1}, source.latest({"n": 1}))
    assert values(table, "n") == [3]


@pytest.mark.parametrize(("kind", "ending"), [(Parquet, "parquet"), (ArrowFile, "arrow")])
def test_a_file_that_is_gone_is_counted(kind: Any, ending: str, tmp_path: Path) -> None:
    put(tmp_path / f"in/a.{ending}", events(1, 2))
    gone = put(tmp_path / f"in/b.{ending}", events(3, 4, 5))
    source = opened(kind(path=str(tmp_path / "in")), tmp_path / "home")
    end = source.latest(source.start())
    gone.unlink()
    table, bad = read_between(source, source.start(), end)
    assert values(table, "n") == [1, 2]
    assert values(bad, "origin") == [str(gone)]
    assert values(bad, "place") == [-1]
    assert values(bad, "reason")[0].endswith("3 events lost")


@pytest.mark.parametrize(("kind", "ending"), [(Parquet, "parquet"), (ArrowFile, "arrow")])
def test_a_file_that_was_replaced_or_cut_is_counted(kind: Any, ending: str, tmp_path: Path) -> None:
    files = [put(tmp_path / f"in/{i}.{ending}", events(*range(9)), group=3) for i in range(2)]
    source = opened(kind(path=str(tmp_path / "in")), tmp_path / "home")
    end = source.latest(source.start())
    put(files[0], events(*range(20)), group=3)
    files[1].write_bytes(files[1].read_bytes()[:-20])
    table, bad = read_between(source, source.start(), end, parallel=1)
    assert table.num_rows == 0
    assert values(bad, "origin") == [str(file) for file in files]
    assert all(why.endswith("9 events lost") for why in values(bad, "reason"))


def test_a_corrupt_page_costs_its_row_group(tmp_path: Path) -> None:
    path = put(tmp_path / "in/a.parquet", events(*range(3000)), group=500)
    source = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    end = source.latest(source.start())
    chunk = pq.ParquetFile(path).metadata.row_group(2).column(0)
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(bytes(data))
    table, bad = read_between(source, source.start(), end)
    assert values(table, "n") == [n for n in range(3000) if not 1000 <= n < 1500]
    assert values(bad, "place") == [2]
    assert values(bad, "reason")[0].endswith("500 events lost")


def test_a_file_without_permission_is_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "in/a.parquet", events(1))
    source = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    [split] = source.splits(source.start(), source.latest(source.start()), 1)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "no permission")

    monkeypatch.setattr(pq, "ParquetFile", refuse)
    with pytest.raises(PermissionError):
        list(source.read(split, None, None))
