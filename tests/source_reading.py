"""Reading sources as a runtime does: plan on the driver, pickle, read in executors."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catchment.durable.folder import Folder
from catchment.sources.base import BAD, Position, Source, Split


def opened(source: Any, home: Path) -> Any:
    source.open(Folder(str(home)))
    return source


def read_split(
    source: Source, split: Split, columns: list[str] | None = None, where: str | None = None
) -> tuple[list[pa.Table], list[int], pa.Table]:
    """The tables of a split, their arrivals, and what was set aside; read by a copy."""
    copy = pickle.loads(pickle.dumps(source))
    split = pickle.loads(pickle.dumps(split))
    tables, arrivals, bad = [], [], [BAD.empty_table()]
    expected = split.arrival
    for piece in copy.read(split, columns, where):
        at = expected if piece.arrival is None else piece.arrival
        assert at >= expected, "places must grow"
        expected = at + piece.events.num_rows
        tables.append(piece.events)
        arrivals.extend(range(at, expected))
        if piece.bad is not None:
            assert piece.bad.schema == BAD
            bad.append(piece.bad)
    return tables, arrivals, pa.concat_tables(bad)


def read_between(
    source: Source, start: Position, end: Position, parallel: int = 2, **options: Any
) -> tuple[pa.Table, pa.Table]:
    """All events between two positions, and what was set aside."""
    tables, bad = [source.event_schema().empty_table()], [BAD.empty_table()]
    if options.get("columns"):
        tables = [tables[0].select(options["columns"])]
    for split in source.splits(start, end, parallel):
        found, _, aside = read_split(source, split, **options)
        tables += found
        bad.append(aside)
    return pa.concat_tables(tables), pa.concat_tables(bad)


def read_all(source: Source, **options: Any) -> tuple[pa.Table, pa.Table]:
    """What there is now."""
    return read_between(source, source.start(), source.bound(source.start()), **options)


def values(table: pa.Table, name: str) -> list[Any]:
    return table[name].to_pylist()


def events(*numbers: int, **more: Any) -> pa.Table:
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "k": pa.array([f"k{n % 3}" for n in numbers], pa.string()),
            **more,
        }
    )


def put(path: Path, table: pa.Table, group: int = 1000) -> Path:
    """A file that appears whole, as careful writers make them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}")
    if path.suffix == ".parquet":
        pq.write_table(table, beside, row_group_size=group)
    else:
        with pa.ipc.new_file(beside, table.schema) as file:
            file.write_table(table, max_chunksize=group)
    return beside.replace(path)


def aged(path: Path, seconds: float) -> None:
    at = time.time() - seconds
    os.utime(path, (at, at))
