"""JOIN with a small table that every node holds, against DuckDB."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import catchment as ct
from catchment.errors import CatchmentError, LimitError
from catchment.expression import lookup
from catchment.job import JobModel

SECOND = 1_000_000


@pytest.fixture(autouse=True)
def nothing_held() -> Any:
    lookup.forget()
    yield
    lookup.forget()


def drawn(seed: int, count: int = 60) -> tuple[pa.Table, pa.Table]:
    """Events, and a table of some of their keys."""
    dice = random.Random(seed)
    keys, sites = [*range(6), None], ["a", "b", None]
    times = [dice.randrange(30) * SECOND for _ in range(count)]
    events = pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "k": pa.array([dice.choice(keys) for _ in times], pa.int32()),
            "site": [dice.choice(sites) for _ in times],
            "v": [dice.choice([1, 2, 5, None]) for _ in times],
        }
    )
    pairs = [(k, site) for k in keys for site in sites if dice.random() < 0.6]
    devices = pa.table(
        {
            "k": pa.array([k for k, _ in pairs], pa.int64()),
            "site": pa.array([site for _, site in pairs], pa.string()),
            "room": pa.array([dice.choice(["x", "y", None]) for _ in pairs], pa.string()),
            "w": pa.array([dice.choice([0.5, 2.0]) for _ in pairs], pa.float64()),
        }
    )
    return events, devices


JOINS = (
    "JOIN devices AS d USING (k, site)",
    "LEFT JOIN devices AS d USING (k, site)",
    "LEFT OUTER JOIN devices AS d ON e.k = d.k AND d.site = e.site",
    "INNER JOIN devices d ON d.k = e.k + 1 AND e.site = d.site",
)
SHAPES = (
    ("d.room", "count(*) AS n, sum(e.v * d.w) AS s", ""),
    ("d.room", "max(d.k) AS m, count(d.room) AS n", "WHERE e.v > 1"),
    ("e.site", "count(*) AS n, min(d.room) AS r", "WHERE d.w > 1 OR d.room IS NULL"),
    ("upper(d.room)", "count(*) FILTER (WHERE d.w > 1) AS n", ""),
)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("join", JOINS)
def test_joins_are_duckdbs(seed: int, join: str, tmp_path: Path) -> None:
    events, devices = drawn(seed)
    pq.write_table(devices, tmp_path / "devices.parquet")
    key, values, where = SHAPES[seed % len(SHAPES)]
    text = f"SELECT {key} AS key, {values} FROM events AS e {join} {where} GROUP BY {key}, "
    query = ct.sql(
        text + "window(ts, '10 seconds')", "q", {"devices": str(tmp_path / "devices.parquet")}
    )
    given = ct.run(events, query, spark=False)["q"].drop_columns(["window_end"])
    connection = duckdb.connect()
    connection.register("events", events)
    connection.register("devices", devices)
    bucket = "time_bucket(INTERVAL 10 SECONDS, ts)"
    wanted = connection.sql(
        text.replace("AS key,", f"AS key, {bucket} AS window_start,") + bucket
    ).to_arrow_table()
    assert in_order(given) == in_order(wanted.select(given.column_names))


def in_order(table: pa.Table) -> list[tuple[Any, ...]]:
    place = table.schema.get_field_index("window_start")
    plain = table.set_column(
        place, "window_start", table.column("window_start").cast(pa.timestamp("us"))
    )
    return sorted((tuple(row.values()) for row in plain.to_pylist()), key=repr)


EVENTS = pa.table(
    {
        "ts": pa.array([1, 2, 3, 4], pa.timestamp("s")),
        "id": ["a", "b", "c", None],
        "v": [1, 2, 3, 4],
    }
)
DEVICES = pa.table({"id": ["a", "b"], "room": ["hall", "attic"]})
TEXT = "SELECT d.room, sum(v) AS s FROM events {} GROUP BY d.room, window(ts, '1 minute')"


def write(table: pa.Table, path: Path) -> str:
    writers: dict[str, Any] = {
        ".parquet": pq.write_table,
        ".csv": pyarrow.csv.write_csv,
        ".arrow": pyarrow.feather.write_feather,
    }
    writers[path.suffix](table, str(path))
    return str(path)


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrow"])
def test_files_by_their_names(kind: str, tmp_path: Path) -> None:
    path = write(DEVICES, tmp_path / f"devices.{kind}")
    query = ct.sql(TEXT.format(f"JOIN {kind}.`{path}` AS d USING (id)"), "q")
    given = ct.run(EVENTS, query, spark=False)["q"]
    assert sorted(zip(*given.select(["room", "s"]).to_pydict().values(), strict=True)) == [
        ("attic", 2),
        ("hall", 1),
    ]


def test_a_table_that_changes_is_read_again_for_the_events_from_then_on(tmp_path: Path) -> None:
    path = write(DEVICES, tmp_path / "devices.parquet")
    query = ct.sql(TEXT.format("JOIN devices AS d USING (id)"), "q", {"devices": path})
    engine = ct.Engine([query])
    engine.push(EVENTS.slice(0, 1))
    write(DEVICES.set_column(1, "room", pa.array(["cellar", "attic"])), tmp_path / "new.parquet")
    (tmp_path / "new.parquet").replace(path)
    engine.push(EVENTS)
    given = engine.close()["q"].select(["room", "s"]).to_pylist()
    assert sorted(given, key=str) == [
        {"room": "attic", "s": 2},
        {"room": "cellar", "s": 1},
        {"room": "hall", "s": 1},
    ]


def test_in_a_job_file_and_in_python(tmp_path: Path) -> None:
    path = write(DEVICES, tmp_path / "devices.parquet")
    sql = TEXT.format("JOIN devices AS d USING (id)")
    job = JobModel(queries=[{"name": "q", "sql": sql}], lookups={"devices": path})
    text = f"lookup('{path}', 'room', 'id', id)"
    plain = ct.Query(
        "q",
        ct.sum("v").alias("s"),
        by={"room": text},
        where=f"lookup('{path}', 'id', 'id', id) IS NOT NULL",
        window=ct.tumbling("1m"),
    )
    assert job.build() == [plain]
    assert ct.Query.from_dict(json.loads(json.dumps(plain.to_dict()))) == plain


ROOMS = pa.table({"room": ["x", "y"], "floor": pa.array([1, 2], pa.int64())})
ALONE = (
    ("SELECT {d}room, sum({e}v) AS s FROM events AS e JOIN dev AS d USING (k) GROUP BY {d}room"),
    (
        "SELECT {d}room AS r, max({d}w + {e}v) AS s FROM events AS e LEFT JOIN dev AS d USING (k) "
        "WHERE {d}w > 1 OR {d}w IS NULL GROUP BY {d}room"
    ),
    (
        "SELECT {f}floor, sum({d}w) AS s FROM events AS e JOIN dev AS d USING (k) "
        "LEFT JOIN rooms AS f USING (room) GROUP BY {f}floor"
    ),
    ("SELECT {e}k, count({d}w) AS w FROM events AS e JOIN dev AS d USING (k) GROUP BY {e}k"),
)


@pytest.mark.parametrize("text", ALONE)
def test_columns_of_a_joined_table_stand_alone_where_no_other_has_them(
    text: str, tmp_path: Path
) -> None:
    events = pa.table({"ts": pa.array([1, 2, 3, 4], pa.timestamp("s")), "k": [*"abca"]})
    events = events.append_column("v", pa.array([1, 2, 3, 4]))
    dev = pa.table({"k": ["a", "b"], "room": ["x", None], "w": [1.0, 2.0]})
    tables = {"dev": write(dev, tmp_path / "d.parquet"), "rooms": write(ROOMS, tmp_path / "f.csv")}
    window = ", window(ts, '1 minute')"
    alone, qualified = text.format(d="", e="", f=""), text.format(d="d.", e="e.", f="f.")
    found, same = (
        ct.run(events, ct.sql(f"{one}{window}", "q", tables), spark=False)["q"].to_pylist()
        for one in (alone, qualified)
    )
    assert found == same
    rooms = ROOMS  # noqa: F841
    wanted = duckdb.sql(qualified).fetchall()
    names = alone.removeprefix("SELECT ").split(" FROM")[0].split(", ")
    named = [name.split(" AS ")[-1] for name in names]
    assert {tuple(row[name] for name in named) for row in found} == set(wanted)


def test_ambiguous_columns_are_refused(tmp_path: Path) -> None:
    path = write(DEVICES, tmp_path / "devices.parquet")
    sql = "SELECT {} FROM events AS e JOIN devices AS d ON e.id = d.id JOIN more AS m USING (v) "
    sql += "GROUP BY room, window(ts, '1 minute')"
    again = write(ROOMS.append_column("v", [[1, 2]]), tmp_path / "more.parquet")
    with pytest.raises(CatchmentError, match=r"several tables have it .*write d.room or m.room"):
        ct.sql(sql.format("room, count(*)"), "q", {"devices": path, "more": again})
    one = ct.sql(
        TEXT.format("AS e JOIN devices AS d ON e.id = d.id").replace("d.room", "id"),
        "q",
        {"devices": path},
    )
    with pytest.raises(CatchmentError, match="the events and a joined table have it"):
        ct.run(EVENTS, one, spark=False)


def test_nothing_between_two_commas_of_csv_is_null(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text('id,room,w\na,,\nb,"",2\n')
    text = "SELECT id, max(room) AS r, max(w) AS w FROM events AS e LEFT JOIN d USING (id) "
    query = ct.sql(text + "GROUP BY id, window(ts, '1 h')", "q", {"d": str(tmp_path / "d.csv")})
    found = {
        row["id"]: (row["r"], row["w"])
        for row in ct.run(EVENTS, query, spark=False)["q"].to_pylist()
    }
    assert found["a"] == (None, None)
    assert found["b"] == ("", 2)


MISTAKES: list[tuple[str, str]] = [
    (
        "JOIN rooms AS d USING (id)",
        (
            "JOIN takes a small table that every node holds (given: rooms AS d); known: devices; "
            "name "
            "its file, as in "
            "JOIN parquet.`rooms.parquet` AS rooms USING (id), or list it under lookups; two "
            "streams "
            "are not joined: read both as one, and group by what they share"
        ),
    ),
    (
        "RIGHT JOIN devices AS d USING (id)",
        (
            "only inner and left joins are supported in SQL (given: RIGHT JOIN); write JOIN "
            "devices "
            "USING (id), or LEFT JOIN devices AS d ON e.device = d.id"
        ),
    ),
    (
        "JOIN devices AS d ON d.id > id",
        (
            "ON compares columns of the table with something of the events (given: d.id > id); "
            "write "
            "e.device = d.id, several with AND; other conditions go into WHERE"
        ),
    ),
    (
        "JOIN parquet.`{}/gone.parquet` AS d USING (id)",
        (
            "a lookup table cannot be read (given: {}/gone.parquet); No such file or directory; "
            "every "
            "node that reads events must have it"
        ),
    ),
    (
        "JOIN parquet.`{}/twice.parquet` AS d USING (id)",
        (
            "a lookup table has several rows of one id (given: 'a' in {}/twice.parquet); keep one "
            "row "
            "for each key, or join by more columns"
        ),
    ),
    (
        "JOIN csv.`{}/broken.parquet` AS d USING (id)",
        (
            "a lookup table cannot be read (given: {}/broken.parquet); Could not open Parquet "
            "input "
            "source '{}/broken.parquet': Parquet magic bytes not found in footer. Either the file "
            "is "
            "corrupted or this is not a parquet file."
        ),
    ),
    (
        "JOIN devices AS d ON d.id = v",
        (
            "a key of a lookup table has another type than what it is to be equal to (given: id is "
            "string, the other int64); cast one of them, as in CAST(id AS STRING)"
        ),
    ),
    (
        "JOIN devices AS d ON d.di = id",
        "a lookup table has no such column (given: di of {}/devices.parquet); did you mean 'id'?",
    ),
    (
        "JOIN parquet.`{}/devices.txt` AS d USING (id)",
        (
            "not a lookup table (given: {}/devices.txt); it is a file .parquet, .csv or .arrow, or "
            "postgresql://host/database#table"
        ),
    ),
]


def asked(join: str, path: str) -> Any:
    return ct.run(EVENTS, ct.sql(TEXT.format(join), "q", {"devices": path}), spark=False)


@pytest.mark.parametrize(("join", "text"), MISTAKES)
def test_mistakes(join: str, text: str, tmp_path: Path) -> None:
    path = write(DEVICES, tmp_path / "devices.parquet")
    write(pa.concat_tables([DEVICES, DEVICES]), tmp_path / "twice.parquet")
    (tmp_path / "broken.parquet").write_text("id,room\nno parquet at all")
    (tmp_path / "devices.txt").write_text("id,room\n")
    with pytest.raises(CatchmentError) as caught:
        asked(join.format(tmp_path), path)
    assert str(caught.value) == text.replace("{}", str(tmp_path))


def test_lookup_as_a_function_says_how_it_is_written() -> None:
    with pytest.raises(CatchmentError, match=r"write lookup\('devices.parquet', 'room', 'id'"):
        ct.Query("q", ct.max("lookup(a, 'b', 'c', d)"), window=ct.tumbling("1s"))


def test_a_table_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MOST_BYTES", 100)
    path = write(DEVICES, tmp_path / "devices.parquet")
    query = ct.sql(TEXT.format("JOIN devices AS d USING (id)"), "q", {"devices": path})
    with pytest.raises(LimitError, match="too large to be held everywhere"):
        ct.run(EVENTS, query, spark=False)
