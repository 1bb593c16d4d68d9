"""Times as they are written: epochs by their unit, texts by their format, on every runtime."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.cli.check import inspect
from catchment.engine.times import read_times
from catchment.errors import CatchmentError, DataError, QueryError, SchemaError
from catchment.job.loading import examine
from catchment.model.time_column import UNITS, time_spec
from catchment.simulate import World
from catchment.testing.compare import assert_same, rows_of
from trees import charter, final

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BEGIN = datetime(2026, 3, 28, 22, 58, 30, tzinfo=UTC)
TIMES = [BEGIN + timedelta(milliseconds=n * 7919 % 400_000) for n in range(200)]
QUERIES = [
    ct.sql(
        "SELECT k, count(*) AS n, sum(v) AS s FROM events GROUP BY k, window(ts, '1 minute')", "m"
    ),
    ct.sql("SELECT hour(ts) AS h, count(*) AS n FROM events GROUP BY h, window(ts, '1 hour')", "h"),
    ct.sql("SELECT k, max(ts) AS newest FROM events GROUP BY k, session_window(ts, '5 s')", "s"),
    ct.Query("tens", ct.count(), ct.first("v"), window=ct.count_tumbling(10)),
]
PER = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
LOG = "%d/%b/%Y:%H:%M:%S %z"


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def events(times: Any) -> pa.Table:
    return pa.table({"ts": times, "k": [f"k{n % 3}" for n in range(200)], "v": list(range(200))})


WANTED = ct.run(events(pa.array(TIMES, pa.timestamp("us", "UTC"))), QUERIES, spark=False)
SECONDS = [time.replace(microsecond=0) for time in TIMES]
OF_SECONDS = ct.run(events(pa.array(SECONDS, pa.timestamp("us", "UTC"))), QUERIES, spark=False)


def as_written(format: str) -> list[str]:
    """In the zone of a traveller, so that offsets differ from row to row."""
    zones = [timezone(timedelta(hours=hours, minutes=30)) for hours in range(-4, 5)]
    if "%z" not in format:
        zones = [UTC]
    moved = (time.astimezone(zones[n % len(zones)]) for n, time in enumerate(SECONDS))
    return [time.strftime(format) for time in moved]


def same(found: Any, wanted: Any = WANTED) -> None:
    for query in QUERIES:
        assert_same(rows_of(wanted[query.name]), found[query.name], query.name, keys=query.keys)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.uint64(), pa.string(), pa.decimal128(30, 0)], ids=str
)
def test_epochs(unit: str, kind: pa.DataType) -> None:
    values = pa.array([micros(time) * PER[unit] // 10**6 for time in TIMES])
    time = ct.TimeColumn("ts", unit=unit)
    same(ct.run(events(values.cast(kind)), QUERIES, time, spark=False))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([micros(time) / 10**6 for time in TIMES]),
        pa.array([repr(micros(time) / 10**6) for time in TIMES]),
        pa.array([Decimal(micros(time)).scaleb(-6) for time in TIMES], pa.decimal128(20, 6)),
        pa.array([repr(micros(time) / 10**6) for time in TIMES]).dictionary_encode(),
    ],
    ids=["double", "text", "decimal", "codes"],
)
def test_seconds_with_a_fraction(values: Any) -> None:
    same(ct.run(events(values), QUERIES, ct.TimeColumn("ts", unit="s"), spark=False))


@pytest.mark.parametrize(
    "format",
    [
        LOG,
        "%Y-%m-%dT%H:%M:%S%z",
        "%m/%d/%y %I:%M:%S %p",
        "%A, %d %B %Y %H.%M.%S",
        "%Y %j %H%M%S",
        "100%% %Y%m%d%H%M%S",
    ],
)
def test_texts(format: str) -> None:
    time = ct.TimeColumn("ts", format=format)
    texts = pa.array(as_written(format))
    same(ct.run(events(texts), QUERIES, time, spark=False), OF_SECONDS)
    same(ct.run(events(texts.dictionary_encode()), QUERIES, time, spark=False), OF_SECONDS)


@pytest.mark.parametrize("format", ["%Y-%m-%d %H:%M:%S.%f", "%b %d %Y %H:%M:%S,%f"])
def test_fractions_of_seconds(format: str) -> None:
    texts = pa.array([time.strftime(format) for time in TIMES])
    same(ct.run(events(texts), QUERIES, ct.TimeColumn("ts", format=format), spark=False))


def test_a_day_and_an_hour_alone() -> None:
    for format, text in (("%Y-%m-%d", "2026-03-28"), ("%Y%m%d %H", "20260328 22")):
        found = read_times(pa.chunked_array([[text, "x", None]]), ct.TimeColumn("t", format=format))
        assert found[0].as_py() == datetime.strptime(text, format).replace(tzinfo=UTC)
        assert found.null_count == 2


def test_z_is_an_offset_too() -> None:
    texts = pa.chunked_array([["2026-01-01T00:00:00Z", "2026-01-01T02:00:00+0200"]])
    found = read_times(texts, ct.TimeColumn("t", format="%Y-%m-%dT%H:%M:%S%z"))
    assert found.to_pylist() == [datetime(2026, 1, 1, tzinfo=UTC)] * 2


CODES = st.sampled_from(["%H:%M:%S", "%I:%M:%S %p", "%H:%M", "%H:%M:%S.%f"])
DAYS = st.sampled_from(["%Y-%m-%d", "%d/%m/%Y", "%d %b %Y", "%B %d, %Y", "%j/%Y", "%a %d.%m.%Y"])
ZONES = st.sampled_from(["", " %z"])


@given(
    st.lists(st.datetimes(datetime(1000, 1, 1), datetime(9999, 1, 1)), max_size=5),
    DAYS,
    CODES,
    ZONES,
    st.integers(-14 * 60, 14 * 60),
)
def test_formats_mean_what_python_means(
    times: list[datetime], day: str, clock: str, zone: str, offset: int
) -> None:
    format = f"{day}T{clock}{zone}"
    texts = [
        time.replace(tzinfo=timezone(timedelta(minutes=offset))).strftime(format) for time in times
    ]
    meant = [datetime.strptime(text, format) for text in texts]
    wanted = [time if time.tzinfo else time.replace(tzinfo=UTC) for time in meant]
    read = read_times(pa.chunked_array([texts], pa.string()), ct.TimeColumn("t", format=format))
    assert read.cast(pa.int64()).to_pylist() == [micros(time) for time in wanted]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none()), st.sampled_from(UNITS))
def test_epochs_are_exact_or_no_time(values: list[int | None], unit: Any) -> None:
    column = pa.chunked_array([values], pa.int64())
    found = read_times(column, ct.TimeColumn("t", unit=unit)).cast(pa.int64()).to_pylist()
    for value, made in zip(values, found, strict=True):
        exact = None if value is None else value * 10**6 // PER[unit]
        assert made == (None if exact is None or abs(exact) >= 2**60 else exact)


def test_what_is_no_time_is_a_bad_row() -> None:
    texts = [
        "28/Mar/2026:22:58:30 +0000",
        "yesterday",
        None,
        "2026-03-28",
        "31/Feb/2026:00:00:00 +0000",
    ]
    table = pa.table({"ts": texts, "v": range(5)})
    query = ct.Query("q", ct.sum("v").alias("s"), window=ct.tumbling("1d"))
    engine = ct.Engine([query], time=ct.TimeColumn("ts", format=LOG))
    engine.push(table)
    assert engine.close()["q"]["s"].to_pylist() == [0]
    assert engine.counts["bad"] == 4
    bad = engine.take_bad()
    assert bad is not None and bad["ts"].to_pylist() == texts[1:]  # as they were written
    strict = ct.Engine([query], time=ct.TimeColumn("ts", format=LOG), bad="fail")
    with pytest.raises(DataError, match="a row has no usable time"):
        strict.push(table)
    epochs = pa.table({"ts": [1.0, float("nan"), float("inf"), 1e30, None], "v": range(5)})
    found = ct.run(epochs, query, ct.TimeColumn("ts", unit="s"), spark=False)
    assert (found.counts["accepted"], found.counts["bad"]) == (1, 4)


def test_a_wrong_unit_is_far_away_and_said() -> None:
    table = pa.table({"ts": [micros(time) * 1000 for time in TIMES]})
    query = ct.Query("q", ct.count(), window=ct.tumbling("1d"))
    found = ct.run(table, query, ct.TimeColumn("ts", unit="s"), spark=False)
    assert found.counts["bad"] == 200


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"column": "ts", "unit": "minutes"}, "no such choice for the unit of times"),
        ({"column": "ts", "unit": "ms", "format": "%Y"}, "has a unit and a format"),
        ({"column": "ts", "format": "%Q-%m-%d"}, "a code that is not known"),
        ({"column": "ts", "format": "%Y-%m-%d %"}, "a code that is not known"),
        ({"column": "ts", "format": "%H:%M"}, "names no day"),
        ({"column": "ts", "format": "dd/MM/yyyy"}, "names no day"),
        ({"column": "ts", "format": "%Y-%m-%d %M"}, "minutes without an hour"),
        ({"column": "ts", "format": "%Y-%m-%d %f"}, "does not follow the seconds"),
        ({"column": "ts", "format": 7}, "is not a text"),
        ({"unit": "ms"}, "the time column is not a name"),
        ({"column": "ts", "units": "ms"}, "no such setting of the time column"),
        (7, "the time column is not a name"),
    ],
)
def test_what_cannot_be_meant(given_: Any, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        time_spec(given_)


@pytest.mark.parametrize(
    ("column", "time", "said"),
    [
        ([1, 2], "ts", r"is not a time.*unit: ms"),
        (["a"], "ts", r"is not a time.*format:"),
        ([True], "ts", "is not a time"),
        ([BEGIN], ct.TimeColumn("ts", unit="ms"), "is a time already, and has a unit"),
        ([BEGIN], ct.TimeColumn("ts", format=LOG), "is a time already, and has a format"),
        ([1], ct.TimeColumn("ts", format=LOG), "cannot be read by a format"),
        ([True], ct.TimeColumn("ts", unit="ms"), "cannot be read by a unit"),
        ([1], ct.TimeColumn("when", unit="ms"), "have no such time column"),
    ],
)
def test_columns_that_do_not_fit(column: list[Any], time: Any, said: str) -> None:
    query = ct.Query("q", ct.count(), window=ct.tumbling("1d"))
    with pytest.raises(SchemaError) as error:
        ct.run(pa.table({"ts": column}), query, time, spark=False)
    assert_found(said, str(error.value))


def assert_found(pattern: str, text: str) -> None:
    assert re.search(pattern, text, re.DOTALL), text


def test_files_as_they_are(tmp_path: Path) -> None:
    """A log with its own times in CSV, and epochs in JSON lines."""
    texts = as_written(LOG)
    lines = ["ts,k,v", *(f"{text},k{n % 3},{n}" for n, text in enumerate(texts))]
    (tmp_path / "log.csv").write_text("\n".join([*lines, "never,k0,7\n"]))
    found = ct.run(str(tmp_path / "log.csv"), QUERIES, ct.TimeColumn("ts", format=LOG), spark=False)
    same(found, OF_SECONDS)
    assert found.counts["bad"] == 1
    rows = [{"ts": micros(t) // 1000, "k": f"k{n % 3}", "v": n} for n, t in enumerate(TIMES)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    same(ct.run(str(tmp_path / "log.jsonl"), QUERIES, ct.TimeColumn("ts", unit="ms"), spark=False))


def test_an_engine_goes_on_from_a_snapshot_and_takes_more_queries() -> None:
    table = events(pa.array([micros(time) // 1000 for time in TIMES]))
    engine = ct.Engine(QUERIES[:1], time=ct.TimeColumn("ts", unit="ms"))
    engine.push(table.slice(0, 100))
    again = ct.Engine.restore(engine.snapshot())
    again.push(table.slice(100))
    assert_same(rows_of(WANTED["m"]), again.close()["m"], keys=("k",))
    engine.add(
        ct.sql(
            "SELECT count(*) AS n FROM events WHERE hour(ts) = 23 GROUP BY window(ts, '1 hour')",
            "late",
        )
    )
    engine.push(table.slice(100))
    assert engine.close()["late"]["n"].to_pylist() == []  # its first window began before


def test_values_as_of_epochs() -> None:
    table = events(pa.array([micros(time) // 1000 for time in TIMES]))
    at = pa.table({"ts": [micros(BEGIN) // 1000 + 60_000]})
    found = ct.as_of(
        table, ct.count().alias("n"), at=at, lookbacks=["1m"], time=ct.TimeColumn("ts", unit="ms")
    )
    assert found["n_1m"].to_pylist() == [sum(t < BEGIN + timedelta(minutes=1) for t in TIMES)]


JOB = """
name: log
time: {column: ts, %s}
queries:
  - {name: n, sql: "SELECT count(*) AS n FROM log WHERE hour(ts) > 1 GROUP BY window(ts, '1 h')"}
source: {type: csv, path: %s}
"""


def test_a_job_file(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("ts,v\n" + "".join(f"{micros(time)},1\n" for time in TIMES))
    job = ct.load_job(JOB % ("unit: us", path))
    assert job.time == ct.TimeColumn("ts", unit="us")
    assert job.rules.time_name == "ts"
    engine = ct.Engine(job.build(), **job.engine_options())
    engine.push(pa.table({"ts": [micros(time) for time in TIMES]}))
    assert sum(engine.close()["n"]["n"].to_pylist()) == 200
    (tmp_path / "job.yaml").write_text(JOB % ("unit: us", path))
    assert inspect(tmp_path / "job.yaml", connect=True).mistakes == ()
    (tmp_path / "job.yaml").write_text(JOB % ("format: '%Y-%m-%d'", path))
    mistake = inspect(tmp_path / "job.yaml", connect=True).mistakes[0]
    assert (mistake.place, mistake.error.what[-26:]) == ("time", "cannot be read by a format")
    plain = ct.load_job((JOB % ("unit: us", path)).replace(", unit: us", ""))
    assert plain.time == "ts"


@pytest.mark.parametrize(
    ("told", "place", "said"),
    [
        ("unit: weeks", "time", "no such choice for the unit of times"),
        ("format: '%H:%M'", "time", "names no day"),
        ("zone: UTC", "time", "no such setting of the time column"),
    ],
)
def test_mistakes_in_a_job_file(tmp_path: Path, told: str, place: str, said: str) -> None:
    found = examine(JOB % (told, tmp_path))
    assert [one.place for one in found.mistakes] == [place]
    assert said in found.mistakes[0].text


def parts(make: Callable[[int], Any]) -> dict[str, list[pa.Table]]:
    """The events of three nodes, in batches."""
    order = sorted(range(200), key=lambda n: TIMES[n])
    whole = events(pa.array([make(micros(time)) for time in TIMES])).take(order)
    taken = [whole.take(list(range(n, 200, 3))) for n in range(3)]
    return {f"l{n}": [one.slice(0, 30), one.slice(30)] for n, one in enumerate(taken)}


@pytest.mark.parametrize(
    ("time", "make"),
    [
        (ct.TimeColumn("ts", unit="ms"), lambda t: t // 1000),
        (
            ct.TimeColumn("ts", format="%d %b %Y %H:%M:%S.%f"),
            lambda t: (EPOCH + timedelta(microseconds=t)).strftime("%d %b %Y %H:%M:%S.%f"),
        ),
    ],
    ids=["unit", "format"],
)
def test_a_tree(time: ct.TimeColumn, make: Callable[[int], Any]) -> None:
    parents: dict[str, str | None] = {"root": None, "m": "root", "l0": "m", "l1": "m", "l2": "root"}
    ruled = charter(parents, QUERIES[:3], time=time)
    world = World(ruled, parts(make), 1, until=4)
    world.run()
    assert world.done
    for query in QUERIES[:3]:
        names = WANTED[query.name].column_names
        rows = final(world.deliveries, query.name)
        found = [{name: row[name] for name in names} for row in rows]
        assert_same(found, WANTED[query.name], query.name, keys=query.keys)


@pytest.mark.spark
def test_spark(spark: Any, tmp_path: Path) -> None:
    """Batch of a frame, a table and files; a streaming frame and a job."""
    table = events(pa.array([micros(time) // 1000 for time in TIMES]))
    time = ct.TimeColumn("ts", unit="ms")
    timed = QUERIES[:3]
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    frame = spark.read.parquet(str(tmp_path / "in"))
    for given_ in (frame, table, str(tmp_path / "in")):
        found = ct.run(given_, timed, time, spark)
        for query in timed:
            assert_same(rows_of(WANTED[query.name]), found[query.name], query.name, keys=query.keys)
    frames = ct.windows(frame, timed, time=time)
    assert frames["h"].toArrow().num_rows == WANTED["h"].num_rows
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
    job = ct.Job(
        queries=timed[:1],
        time=time,
        trigger="available-now",
        checkpoint=str(tmp_path / "state"),
        sinks=[{"type": "parquet", "path": str(tmp_path / "out")}],
    )
    status = job.start(spark, events=stream).wait()
    assert (status.events, status.bad) == (200, 0)
    written = pq.read_table(tmp_path / "out" / "m")
    first = [
        row
        for row in rows_of(WANTED["m"])
        if row["window_start"] == micros(BEGIN.replace(second=0))
    ]
    assert first and all(row in rows_of(written.select(WANTED["m"].column_names)) for row in first)
    other = ct.TimeColumn("ts", unit="us")
    with pytest.raises(CatchmentError, match="another time"):
        job.model_copy(update={"time": other}).start(spark, events=stream)
