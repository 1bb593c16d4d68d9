"""Fields of structs, values of maps and elements of lists as columns, on every runtime."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.errors import QueryError, SchemaError, SourceError, SqlError
from catchment.expression import canonical, columns, evaluate, infer, steps_of, taken_out
from catchment.expression.nodes import path_text
from catchment.simulate import World
from catchment.sources.json_lines import JsonLines
from catchment.sources.types import type_of
from catchment.testing.compare import assert_same, rows_of
from trees import charter, final

SECOND = 1_000_000
REQUEST = pa.struct(
    {"host": pa.string(), "bytes": pa.int64(), "took": pa.struct({"ms": pa.float64()})}
)
SCHEMA = pa.schema(
    {
        "ts": pa.timestamp("us", "UTC"),
        "req": REQUEST,
        "tags": pa.map_(pa.string(), pa.int64()),
        "items": pa.list_(pa.string()),
    }
)
PATHS = {
    "host": "req.host",
    "size": "req.bytes",
    "ms": "req.took.ms",
    "tag": "tags['a']",
    "first": "items[0]",
    "second": "items[1]",
}
"""Flat columns, and the paths that mean the same."""
QUERIES = {
    "sql": "SELECT {host} AS h, sum({size}) AS s, avg({ms}) AS m, count(DISTINCT {first}) AS d "
    "FROM events WHERE {size} > 3 OR {tag} IS NULL GROUP BY {host}, window(ts, '10 seconds')",
    "keys": "SELECT {tag} AS t, {second} AS i, count(*) AS n FROM events "
    "GROUP BY t, i, window(ts, '5 seconds')",
    "sessions": "SELECT {host} AS h, max({ms}) AS m, count({size}) AS n FROM events "
    "GROUP BY {host}, session_window(ts, '400 ms')",
    "median": "SELECT median({size}) AS m, max_by({host}, {size}) AS h FROM events "
    "GROUP BY window(ts, '20 seconds') HAVING count({tag}) > 0",
    "fives": "SELECT {host} AS h, first({size}) AS s FROM events GROUP BY {host}, count_window(5)",
}


def events(seed: int, n: int = 120) -> pa.Table:
    """Events with nulls at every depth."""
    dice = Random(seed)

    def maybe(value: Any) -> Any:
        return None if dice.random() < 0.15 else value

    def request() -> Any:
        took = maybe({"ms": maybe(dice.randrange(40) / 4)})
        host = maybe(dice.choice("abc"))
        return {"host": host, "bytes": maybe(dice.randrange(9)), "took": took}

    rows = [
        {
            "ts": dice.randrange(40 * SECOND),
            "req": maybe(request()),
            "tags": maybe([(key, maybe(dice.randrange(3))) for key in "ab" if dice.random() < 0.7]),
            "items": maybe([maybe(dice.choice("xyz")) for _ in range(dice.randrange(4))]),
        }
        for _ in range(n)
    ]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["ts"]), SCHEMA)


def flat(table: pa.Table) -> pa.Table:
    """The same events with a column for each path, by plain Python."""
    made: dict[str, Any] = {"ts": table["ts"]}
    rows = table.to_pylist(maps_as_pydicts="strict")
    requests = [row["req"] or {} for row in rows]
    made["host"] = pa.array([one.get("host") for one in requests], pa.string())
    made["size"] = pa.array([one.get("bytes") for one in requests], pa.int64())
    made["ms"] = pa.array([(one.get("took") or {}).get("ms") for one in requests], pa.float64())
    made["tag"] = pa.array([(row["tags"] or {}).get("a") for row in rows], pa.int64())
    for place, name in enumerate(("first", "second")):
        found = [(row["items"] or [])[place : place + 1] for row in rows]
        made[name] = pa.array([one[0] if one else None for one in found], pa.string())
    return pa.table(made)


def queries(names: dict[str, str]) -> list[ct.Query]:
    return [ct.sql(text.format(**names), name) for name, text in QUERIES.items()]


NESTED = queries(PATHS)
TABLE = events(1)
WANTED = ct.run(flat(TABLE), queries({name: name for name in PATHS}), spark=False)


def same(found: Any, wanted: Any = WANTED) -> None:
    for query in NESTED:
        assert_same(rows_of(wanted[query.name]), found[query.name], query.name, keys=query.keys)


@given(st.integers(0, 2**32))
def test_paths_are_columns(seed: int) -> None:
    table = events(seed, 60)
    wanted = ct.run(flat(table), queries({name: name for name in PATHS}), spark=False)
    same(ct.run(table, NESTED, spark=False), wanted)


def test_python_and_yaml() -> None:
    query = ct.Query(
        "q",
        ct.sum("req.bytes").alias("s"),
        ct.max("req.took.ms * 2").alias("m"),
        by=["req.host", {"tag": "tags['a']"}],
        where="size(items) > 1 AND array_contains(items, 'x')",
        window=ct.tumbling("10s"),
    )
    section = {
        "name": "q",
        "select": ["sum(req.bytes) AS s", "max(req.took.ms * 2) AS m"],
        "by": ["req.host", {"tag": "tags['a']"}],
        "where": "size(items) > 1 AND array_contains(items, 'x')",
        "window": "tumbling(10s)",
    }
    assert ct.load_job({"queries": [section]}).build() == [query]
    found = ct.run(TABLE, query, spark=False)["q"]
    rows = TABLE.to_pylist(maps_as_pydicts="strict")
    met = [row for row in rows if len(row["items"] or ()) > 1 and "x" in row["items"]]
    assert met and sum(found["s"].drop_null().to_pylist()) == sum(
        (row["req"] or {}).get("bytes") or 0 for row in met
    )
    assert found.column_names[:2] == ["req.host", "tag"]


def test_a_key_has_the_name_of_its_field() -> None:
    """As Spark names it."""
    text = "SELECT req.host, count(*) AS n FROM events GROUP BY req.host, window(ts, '1 minute')"
    assert ct.run(TABLE, ct.sql(text, "q"), spark=False)["q"].column_names[0] == "host"


def test_a_key_by_an_alias_that_is_the_name_of_its_field() -> None:
    window = "window(ts, '1 minute')"
    named = f"SELECT req.host AS host, count(*) AS n FROM events GROUP BY host, {window}"
    plain = f"SELECT req.host, count(*) AS n FROM events GROUP BY req.host, {window}"
    assert ct.sql(named, "q") == ct.sql(plain, "q")
    table = TABLE.append_column("host", pa.array(["x"] * len(TABLE)))
    with pytest.raises(SchemaError, match="a key is ambiguous"):
        ct.run(table, ct.sql(named, "q"), spark=False)


def test_lists() -> None:
    tags = pa.array([["a", "b"], [], None, ["b", None], [None], ["a", None]])
    get = {"t": tags}.__getitem__
    assert evaluate("size(t)", get, 6).to_pylist() == [2, 0, None, 2, 1, 2]
    found = evaluate("array_contains(t, 'a')", get, 6).to_pylist()
    assert found == [True, False, None, None, None, True]  # Spark's answers
    assert canonical("cardinality(t) > 1") == canonical("array_size(t) > 1") == "size(t) > 1"
    numbers = pa.array([[1, 2], [3]])
    assert evaluate("array_contains(t, 3)", lambda _: numbers, 2).to_pylist() == [False, True]
    sliced = pa.array([["q"], ["a", "b"], ["a"], None]).slice(1)
    assert evaluate("array_contains(t, 'b')", lambda _: sliced, 3).to_pylist() == [
        True,
        False,
        None,
    ]
    assert taken_out(sliced, [1]).to_pylist() == ["b", None, None]
    fixed = pa.array([[1, 2], None], pa.list_(pa.int64(), 2))
    assert taken_out(fixed, [1]).to_pylist() == [2, None]
    assert evaluate("size(m)", lambda _: TABLE["tags"].chunk(0), len(TABLE)).to_pylist() == [
        None if row is None else len(row) for row in TABLE["tags"].to_pylist()
    ]


NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6
)


@given(NAMES, st.lists(NAMES | st.integers(0, 99), min_size=1, max_size=4))
def test_paths_as_text(column: str, steps: list[str | int]) -> None:
    """Whatever fields are called, a path has one text, which reads as it was meant."""
    path = path_text(column, steps)
    assert steps_of(path, column) == steps
    quoted = "`" + column.replace("`", "``") + "`"
    keys = "".join(f"[{s}]" if isinstance(s, int) else f"[{literal(s)}]" for s in steps)
    text = canonical(quoted + keys)
    assert columns(text) == (path,)
    assert canonical(text) == text


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def test_a_column_with_a_dot_in_its_name_stays_what_it_is() -> None:
    table = pa.table({"ts": pa.array([1], pa.timestamp("s")), "a.b": [7]})
    for text in ("sum(a.b)", "sum(`a.b`)"):
        query = ct.sql(f"SELECT {text} AS s FROM events GROUP BY window(ts, '1 s')", "q")
        assert ct.run(table, query, spark=False)["q"]["s"].to_pylist() == [7]
    both = table.append_column("a", pa.array([{"b": 1}]))
    with pytest.raises(SchemaError, match="has the name of a field of another one"):
        ct.run(both, query, spark=False)


@pytest.mark.parametrize(
    ("what", "error", "said"),
    [
        ("sum(req.byte)", SchemaError, r"req has no such field.*its fields are host, bytes, took"),
        ("sum(req.took.s)", SchemaError, r"req.took has no such field.*its fields are ms"),
        ("sum(reg.bytes)", SchemaError, "no such column"),
        ("sum(req.bytes.x)", SchemaError, "req.bytes has no fields"),
        ("sum(req[0])", SchemaError, "req has no such field"),
        ("sum(items.x)", SchemaError, r"items is a list.*items\[0\]"),
        ("sum(tags[1])", SchemaError, "the keys of tags are of another type"),
        ("sum(req)", SchemaError, "sum needs a number"),
        ("sum(size(ts))", SchemaError, "SIZE needs a list or a map"),
        ("sum(items[req.bytes])", QueryError, "of what has no name"),
        ("sum(items[-1])", QueryError, "of what has no name"),
        ("sum(upper(req.host).x)", SchemaError, "has no fields"),
        ("count_if(array_contains(items, 3))", SchemaError, "values of one type"),
        ("count_if(array_contains(req.host, 'a'))", SchemaError, "a list and a constant"),
    ],
)
def test_what_does_not_fit(what: str, error: type[Exception], said: str) -> None:
    text = f"SELECT {what} AS s FROM events GROUP BY window(ts, '1 s')"
    with pytest.raises(error, match=said):
        ct.run(TABLE, ct.sql(text, "q"), spark=False)


def test_explode_is_refused_with_what_to_do_instead() -> None:
    view = "LATERAL VIEW explode(items) AS i"
    text = f"SELECT i, count(*) AS n FROM events {view} GROUP BY i, window(ts, '1 s')"
    with pytest.raises(SqlError, match=r"size\(tags\).*array_contains.*explode it before"):
        ct.sql(text, "q")


def as_json(table: pa.Table) -> str:
    """Lines as a service would write them: maps are objects, and what is null is left out."""
    rows = table.set_column(0, "ts", table["ts"].cast(pa.string())).to_pylist(
        maps_as_pydicts="strict"
    )
    return "".join(
        json.dumps({k: v for k, v in row.items() if v is not None}) + "\n" for row in rows
    )


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(as_json(TABLE))
    same(ct.run(str(path), NESTED, spark=False))
    words = {
        "ts": "timestamp",
        "req": "struct<host: string, bytes: bigint, took: struct<ms: double>>",
        "tags": "struct<a: bigint>",
        "items": "array<string>",
    }
    source = JsonLines(path=str(path), schema=words)
    same(ct.run(source, NESTED, spark=False))
    path.write_text(as_json(TABLE) + '{"ts": "1970-01-01 00:00:01", "req": {"bytes": "many"}}\n')
    found = ct.run(source, NESTED, spark=False)
    same(found)
    assert found.counts["bad"] == 1


def test_columns_of_mixed_types(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    lines = [
        '{"ts": "2026-01-01 00:00:01", "req": {"id": 1}}',
        '{"ts": "2026-01-01", "req": {"id": "x"}}',
    ]
    path.write_text("\n".join(lines) + "\n")
    query = ct.sql("SELECT count(req.id) AS n FROM events GROUP BY window(ts, '1 day')", "q")
    with pytest.raises(SourceError, match=r"in one line and a string in another.*schema:"):
        ct.run(str(path), query, spark=False)
    source = JsonLines(path=str(path), schema={"ts": "timestamp", "req": "struct<id: string>"})
    found = ct.run(source, query, spark=False)
    assert (found["q"]["n"].to_pylist(), found.counts["bad"]) == ([1], 1)


@pytest.mark.parametrize(
    "word", ["struct<a>", "map<string>", "array<a, b>", "struct<a: nonsense>", "array<"]
)
def test_words_of_types_that_are_none(word: str) -> None:
    with pytest.raises(SourceError):
        type_of(word)


def test_words_of_types() -> None:
    nested = "STRUCT<a: ARRAY<DECIMAL(10, 2)>, b: map<string, struct<c: double>>>"
    assert str(type_of(nested)) == (
        "struct<a: list<item: decimal128(10, 2)>, b: map<string, struct<c: double>>>"
    )


def test_parquet_reads_only_the_columns_that_are_needed(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    pq.write_table(TABLE.append_column("more", pa.array(["x" * 100] * len(TABLE))), path)
    same(ct.run(str(path), NESTED, spark=False))
    assert infer("req.took.ms > 1", pa.schema({"req.took.ms": pa.float64()})) == pa.bool_()


def test_the_time_may_be_a_field() -> None:
    inner = pa.StructArray.from_arrays(
        [TABLE["ts"].chunk(0).cast(pa.int64()), TABLE["req"].chunk(0)], ["at", "req"]
    )
    table = pa.table({"meta": inner})
    query = ct.sql(
        "SELECT sum(meta.req.bytes) AS s FROM events GROUP BY window(meta.at, '10 s')", "q"
    )
    found = ct.run(table, query, ct.TimeColumn("meta.at", unit="us"), spark=False)["q"]
    plain = ct.sql("SELECT sum(req.bytes) AS s FROM events GROUP BY window(ts, '10 s')", "q")
    assert_same(rows_of(ct.run(TABLE, plain, spark=False)["q"]), found)


def test_an_engine_goes_on_and_takes_more_queries() -> None:
    engine = ct.Engine(NESTED)
    engine.push(TABLE.slice(0, 50))
    again = ct.Engine.restore(engine.snapshot())
    again.push(TABLE.slice(50))
    same(again.close())
    engine.add(
        ct.sql("SELECT max(req.took.ms) AS m FROM events GROUP BY window(ts, '1 s')", "more")
    )
    engine.push(TABLE.slice(50))
    assert engine.close()["more"].num_rows


def test_a_tree() -> None:
    parents: dict[str, str | None] = {"root": None, "m": "root", "l0": "m", "l1": "m", "l2": "root"}
    taken = [TABLE.take(list(range(n, len(TABLE), 3))) for n in range(3)]
    parts = {f"l{n}": [one.slice(0, 20), one.slice(20)] for n, one in enumerate(taken)}
    timed = [query for query in NESTED if query.name != "fives"]
    world = World(charter(parents, timed), parts, 1, until=4)
    world.run()
    assert world.done
    for query in timed:
        names = WANTED[query.name].column_names
        rows = final(world.deliveries, query.name)
        found = [{name: row[name] for name in names} for row in rows]
        assert_same(found, WANTED[query.name], query.name, keys=query.keys)


@pytest.mark.spark
def test_spark(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(TABLE, tmp_path / "in" / "a.parquet")
    frame = spark.read.parquet(str(tmp_path / "in")).coalesce(1)
    for given_ in (frame, TABLE, str(tmp_path / "in")):
        same(ct.run(given_, NESTED, spark=spark))
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
    job = ct.Job(
        queries=NESTED[:2],
        trigger="available-now",
        checkpoint=str(tmp_path / "state"),
        sinks=[{"type": "parquet", "path": str(tmp_path / "out")}],
    )
    assert job.start(spark, events=stream).wait().events == len(TABLE)
    wanted = rows_of(WANTED["sql"])
    written = rows_of(pq.read_table(tmp_path / "out" / "sql").select(WANTED["sql"].column_names))
    assert written and all(row in wanted for row in written)
