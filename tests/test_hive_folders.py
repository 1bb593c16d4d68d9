"""Folders that name a column: their files have it, in every format, in batches and in streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import catchment as ct
from catchment.durable.folder import Folder
from catchment.errors import SourceError
from catchment.sources.csv_file import Csv
from catchment.sources.parquet_file import Parquet
from catchment.testing.compare import assert_same, rows_of

SECOND = 1_000_000
QUERY = ct.Query("q", ct.count(), ct.sum("v"), by=["day", "shop"], window=ct.tumbling("10s"))
DAYS = ["2026-05-01", "2026-05-02"]
SHOPS = ["7", "12"]


def events(day: int, shop: int) -> pa.Table:
    times = [(100 * day + 10 * shop + n) * SECOND for n in range(9)]
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "v": list(range(9))})


def write(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".csv":
        pacsv.write_csv(table, path)
    else:
        rows = table.set_column(0, "ts", table["ts"].cast(pa.string())).to_pylist()
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def folders(root: Path, ending: str) -> pa.Table:
    """Files in folders, and all their events in one table."""
    found = []
    for d, day in enumerate(DAYS):
        for s, shop in enumerate(SHOPS):
            folder = root / f"day={day}" / f"shop={shop}"
            folder.mkdir(parents=True)
            write(folder / f"a{ending}", events(d, s))
            more = events(d, s).append_column("day", pa.array([day] * 9).cast(pa.date32()))
            found.append(more.append_column("shop", pa.array([int(shop)] * 9)))
    return pa.concat_tables(found)


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
def test_columns_of_folders(tmp_path: Path, ending: str) -> None:
    wanted = ct.run(folders(tmp_path, ending), QUERY, spark=False)["q"]
    found = ct.run(str(tmp_path), QUERY, spark=False)["q"]
    assert found.schema.field("day").type == pa.date32()
    assert found.schema.field("shop").type == pa.int64()
    assert_same(rows_of(wanted), found, keys=["day", "shop"])
    some = ct.Query("q", ct.count(), window=ct.tumbling("10s"), where="shop = 12 AND v > 3")
    few = ct.run(str(tmp_path), some, spark=False)["q"]
    assert few["count(*)"].to_pylist() == [5, 5]


def read_all(source: Any, home: Path) -> pa.Table:
    source.open(Folder(str(home)))
    splits = source.splits(source.start(), source.bound(source.start()), 2)
    return pa.concat_tables(p.events for s in splits for p in source.read(s, None, None))


def test_nulls_escapes_and_columns_that_the_file_has_too(tmp_path: Path) -> None:
    for number, folder in enumerate(["k=__HIVE_DEFAULT_PARTITION__", "k=a%2Fb", "k=c"]):
        (tmp_path / "in" / folder).mkdir(parents=True)
        table = events(0, number).append_column("k", pa.array(["own"] * 9))
        write(tmp_path / "in" / folder / "a.parquet", table)
    found = read_all(Parquet(path=str(tmp_path / "in")), tmp_path / "home")

    assert {None, "a/b", "c"} == set(found["k"].to_pylist())
    assert found.num_rows == 27


def test_a_type_may_be_given_and_must_fit(tmp_path: Path) -> None:
    folders(tmp_path / "in", ".csv")
    types = {"ts": "timestamp", "v": "bigint", "shop": "string"}
    source = Csv(path=str(tmp_path / "in"), types=types)
    found = read_all(source, tmp_path / "home")
    assert found.schema.names == ["ts", "v", "shop"] and set(found["shop"].to_pylist()) == {*SHOPS}
    odd = tmp_path / "in" / "day=2026-05-03" / "shop=north"
    odd.mkdir(parents=True)
    write(odd / "a.csv", events(2, 0))
    numbers = Csv(path=str(tmp_path / "in"), types=types | {"shop": "int"})
    with pytest.raises(SourceError, match=r"column 'shop' is string, not int32"):
        read_first(numbers, tmp_path / "other")


def read_first(source: Any, home: Path) -> None:
    """As a batch does: a file that must wait is an error."""
    from catchment.sources.reading import refuse_waiting

    read_all(source, home)
    refuse_waiting(source)
