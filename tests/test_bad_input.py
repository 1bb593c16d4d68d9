"""Mistakes: the same error, in the same words, whichever way the query came in."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import catchment as ct
from catchment.engine import codec
from catchment.engine.bound import BoundPlan
from catchment.functions import make
from catchment.model.rules import EventRules
from small_tables import SECOND, table, values

Way = Callable[[], Any]
OK = ct.Query("q", ct.avg("v"), window=ct.tumbling("10s"))
SCHEMA = pa.schema(
    {
        "ts": pa.timestamp("us"),
        "v": pa.float64(),
        "name": pa.string(),
        "id": pa.int64(),
    }
)
NAMES = {name: getattr(ct, name) for name in ct.__all__}
UNIT = 'write a number and a unit, as in "10s", "5 minutes" or "1h 30m"'
POSITIVE = 'try one that is longer than zero, such as "10s"'


def python(select: str, window: str, **parts: Any) -> Way:
    """The same in Python: names of functions and windows are those of the package."""
    return lambda: ct.Query("q", eval(select, NAMES), window=eval(window, NAMES), **parts)


def sql(select: str, window: str, rest: str = "") -> Way:
    return lambda: ct.sql(f"SELECT {select} FROM events {rest} GROUP BY {window}", "q")


def job(select: str | list[str], window: Any, **parts: Any) -> Way:
    items = [select] if isinstance(select, str) else select
    query = {"name": "q", "select": items, "window": window} | parts
    return lambda: ct.load_job({"queries": [query]})


def caught(way: Way) -> ct.CatchmentError:
    with pytest.raises(ct.CatchmentError) as error:
        way()
    return error.value


def window_mistake(builder: str, in_sql: str, in_job: str | None = None) -> list[Way]:
    return [
        python("avg('v')", builder),
        sql("avg(v)", in_sql),
        job("avg(v)", in_job or builder.replace("'", "")),
    ]


def function_mistake(builder: str, in_sql: str) -> list[Way]:
    return [
        python(builder, "tumbling('10s')"),
        sql(in_sql, "window(ts, '10 seconds')"),
        job(in_sql, "tumbling(10s)"),
    ]


MISTAKES: dict[str, tuple[list[Way], str, str, str]] = {
    "zero length": (
        window_mistake("tumbling('0s')", "window(ts, '0s')"),
        "the window length must be positive",
        "'0s'",
        POSITIVE,
    ),
    "negative length": (
        window_mistake("sliding('-10s', '5s')", "window(ts, '-10s', '5s')"),
        "the window length must be positive",
        "'-10s'",
        POSITIVE,
    ),
    "no unit": (
        window_mistake("tumbling(10)", "window(ts, 10)"),
        "the window length needs a unit",
        "10",
        UNIT,
    ),
    "no such unit": (
        window_mistake("tumbling('10 lightyears')", "window(ts, '10 lightyears')"),
        "the window length is not a duration",
        "'10 lightyears'",
        UNIT,
    ),
    "slide 0": (
        window_mistake("sliding('10s', '0s')", "window(ts, '10s', '0s')"),
        "the window slide must be positive",
        "'0s'",
        POSITIVE,
    ),
    "gap 0": (
        window_mistake("session('0s')", "session_window(ts, '0s')"),
        "the session gap must be positive",
        "'0s'",
        POSITIVE,
    ),
    "negative gap": (
        window_mistake("session('-5m')", "session_window(ts, '-5m')"),
        "the session gap must be positive",
        "'-5m'",
        POSITIVE,
    ),
    "size no multiple of the step": (
        window_mistake("cumulate('1h', '25min')", "cumulate_window(ts, '1h', '25min')"),
        "the size of a cumulating window must be a multiple of its step",
        "size 1h, step 25min",
        'try cumulate("1h", "10min")',
    ),
    "count 0": (
        window_mistake("count_tumbling(0)", "count_window(0)"),
        "the count window must be a positive whole number of events",
        "0",
        "try 1000",
    ),
    "count step -1": (
        window_mistake("count_sliding(5, -1)", "count_window(5, -1)"),
        "the count window's step must be a positive whole number of events",
        "-1",
        "try 1000",
    ),
    "count 1.5": (
        window_mistake("count_tumbling(1.5)", "count_window(1.5)"),
        "the count window must be a positive whole number of events",
        "1.5",
        "try 1000",
    ),
    "count 2**70": (
        window_mistake(f"count_tumbling({2**70})", f"count_window({2**70})"),
        "the count window is too large",
        f"{2**70:,}",
        "the most is 281,474,976,710,656 events",
    ),
    "quantile 2": (
        function_mistake("quantile('v', 2)", "quantile(v, 2)"),
        "quantile takes one number from 0 to 1",
        "2",
        'try ct.quantile("v", 0.95)',
    ),
    "quantile -0.1": (
        function_mistake("approx_quantile('v', -0.1)", "approx_quantile(v, -0.1)"),
        "approx_quantile takes one number from 0 to 1",
        "-0.1",
        'try ct.approx_quantile("v", 0.95)',
    ),
    "quantile of nothing": (
        function_mistake("quantile('v')", "quantile(v)"),
        "quantile takes one number from 0 to 1",
        "None",
        'try ct.quantile("v", 0.95)',
    ),
    "a number too many": (
        function_mistake("avg('v', 1)", "avg(v, 1)"),
        "avg takes a column and nothing else",
        "avg(v, 1)",
        'try ct.avg("v")',
    ),
    "a condition that aggregates": (
        [
            python("avg('v')", "cut('sum(v) > 1')"),
            sql("avg(v)", "event_window(at => sum(v) > 1)"),
            job("avg(v)", {"cut": {"at": "sum(v) > 1"}}),
        ],
        "the cut condition uses an aggregate",
        "sum(v)",
        "",
    ),
    "two results of one name": (
        [
            lambda: ct.Query(
                "q", ct.avg("v").alias("a"), ct.sum("v").alias("a"), window=ct.tumbling("1s")
            ),
            sql("avg(v) AS a, sum(v) AS a", "window(ts, '1s')"),
            job(["avg(v) AS a", "sum(v) AS a"], "tumbling(1s)"),
        ],
        "query 'q' has two result columns of one name",
        "a",
        'give one another name with .alias("...")',
    ),
    "a key under a reserved name": (
        [
            python("avg('v')", "tumbling('1s')", by="window_index"),
            sql("avg(v)", "window_index, window(ts, '1s')"),
            job("avg(v)", "tumbling(1s)", by="window_index"),
        ],
        "query 'q': a key column may not be called 'window_index'",
        "None",
        "",
    ),
    "a key under a name that a tree takes": (
        [
            python("avg('v')", "tumbling('1s')", by="complete"),
            sql("avg(v)", "complete, window(ts, '1s')"),
            job("avg(v)", "tumbling(1s)", by="complete"),
        ],
        "query 'q': a key column may not be called 'complete'",
        "None",
        "",
    ),
    "a result under a name that a tree takes": (
        [
            lambda: ct.Query("q", ct.avg("v").alias("missing"), window=ct.tumbling("1s")),
            sql("avg(v) AS missing", "window(ts, '1s')"),
            job("avg(v) AS missing", "tumbling(1s)"),
        ],
        "query 'q': a result column may not be called 'missing'",
        "None",
        (
            "results carry a column of that name; give this one another with AS, or "
            '.alias("...") in Python'
        ),
    ),
    "half of a surrogate pair in a name": (
        [
            lambda: ct.Query("q", ct.avg("v").alias("\ud800"), window=ct.tumbling("1s")),
            lambda: ct.Query("\ud800", ct.avg("v"), window=ct.tumbling("1s")),
        ],
        "a name is not Unicode text",
        "'\\ud800'",
        "",
    ),
    "no such function": (
        [
            lambda: make("avgg", "v"),
            sql("avgg(v)", "window(ts, '1s')"),
            job("avgg(v)", "tumbling(1s)"),
        ],
        "no such function",
        "avgg",
        "did you mean 'avg'?",
    ),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_one_mistake_one_error(name: str) -> None:
    ways, what, given, hint = MISTAKES[name]
    errors = [caught(way) for way in ways]
    assert {type(error) for error in errors} == {ct.QueryError}
    assert {str(error) for error in errors} == {str(errors[0])}
    first = errors[0]
    assert (first.what, str(first.given)) == (what, given)
    assert first.hint == hint if hint else first.hint


def three(select: str, **parts: Any) -> list[ct.Query]:
    """A query that is well formed, by all three ways."""
    where, by = parts.get("where"), parts.get("by")
    rest = f"WHERE {where}" if where else ""
    keys = f"{by}, " if by else ""
    text = f"SELECT {select} FROM events {rest} GROUP BY {keys}window(ts, '10 seconds')"
    in_job = {"name": "q", "select": [select], "window": "tumbling(10s)"} | parts
    name, _, column = select.rstrip(")").partition("(")
    made = ct.Query("q", make(name, column), window=ct.tumbling("10s"), **parts)
    return [made, ct.sql(text, "q"), *ct.load_job({"queries": [in_job]}).build()]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"select": "avg(vv)"}, "query 'q': no such column (given: vv); did you mean 'v'?"),
        (
            {"select": "avg(v)", "by": "nam"},
            "query 'q': no such column (given: nam); did you mean 'name'?",
        ),
        (
            {"select": "avg(v)", "where": "idd > 1"},
            "query 'q': no such column (given: idd); did you mean 'id'?",
        ),
        (
            {"select": "avg(name)"},
            "query 'q': avg needs a number (given: name is string); count, fir",
        ),
        (
            {"select": "stddev(name)"},
            "query 'q': stddev needs a number (given: name is string); cou",
        ),
        (
            {"select": "avg(v)", "where": "v"},
            (
                "query 'q': the where is not a condition (given: v is double); compare "
                "it with something"
            ),
        ),
        ({"select": "avg(v)", "where": "name + 1 > 2"}, "+ needs numbers"),
    ],
)
def test_events_that_do_not_fit_the_query(parts: dict[str, str], text: str) -> None:
    """Before any event, when a schema is told; with the first batch otherwise."""
    select, parts = parts["select"], {k: v for k, v in parts.items() if k != "select"}
    for query in three(select, **parts):
        early = caught(lambda query=query: ct.Engine([query], schema=SCHEMA))  # type: ignore[misc]
        late = caught(lambda query=query: ct.Engine([query]).push(SCHEMA.empty_table()))  # type: ignore[misc]
        assert type(early) is type(late) is ct.SchemaError
        assert str(early) == str(late)
        assert str(early).startswith(text)
        assert early.hint


@pytest.mark.parametrize(
    ("time", "text"),
    [
        ("id", "the time column 'id' is not a time (given: int64); say what it counts since 1970"),
        (
            "name",
            "the time column 'name' is not a time (given: string); say how it is written",
        ),
        ("tss", "the events have no such time column (given: tss); did you mean 'ts'?"),
    ],
)
def test_the_time_column(time: str, text: str) -> None:
    told = ct.load_job(
        {"time": time, "queries": [{"name": "q", "select": ["avg(v)"], "window": "tumbling(10s)"}]}
    )
    ways: list[Way] = [
        lambda: ct.Engine([OK], time, schema=SCHEMA),
        lambda: ct.Engine([OK], time=time).push(SCHEMA.empty_table()),
        lambda: ct.Engine(told.build(), **told.engine_options(), schema=SCHEMA),
        lambda: ct.slice(SCHEMA.empty_table(), ct.plan([OK]), time=time),
    ]
    for way in ways:
        error = caught(way)
        assert type(error) is ct.SchemaError and str(error).startswith(text)


def test_two_queries_of_one_name() -> None:
    query = {"name": "q", "select": ["avg(v)"], "window": "tumbling(10s)"}
    ways: list[Way] = [
        lambda: ct.Engine([OK, OK]),
        lambda: ct.plan([OK, OK]),
        lambda: ct.load_job({"queries": [query, query]}),
    ]
    for way in ways:
        error = caught(way)
        assert type(error) is ct.QueryError
        assert str(error) == "two queries have one name (given: q); give each query its own"
    error = caught(lambda: ct.Engine([OK]).add(OK))
    assert str(error) == "two queries have one name (given: q); remove one first"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "SELECT avg(v) FROM a JOIN b ON a.x = b.x GROUP BY window(ts, '1s')",
            "JOIN takes a small table",
        ),
        ("SELECT avg(v) FROM a, b GROUP BY window(ts, '1s')", "only inner and left joins"),
        ("SELECT avg(v) FROM (SELECT v FROM e)", "the SQL has no window"),
        (
            "SELECT avg(v) FROM e WHERE v > (SELECT 1) GROUP BY window(ts, '1s')",
            "a subquery is not",
        ),
        (
            "SELECT avg(v) FROM e GROUP BY window(ts, '1s') QUALIFY avg(v) > 1",
            "QUALIFY is not supported",
        ),
        ("SELECT avg(v) FROM e GROUP BY window(ts, '1s') UNION SELECT 1", "UNION is not supported"),
        ("DELETE FROM e", "only SELECT is supported in SQL"),
        ("SELECT avg(v FROM e", "the SQL does not parse"),
        ("SELECT avg(v) FROM e", "the SQL has no window"),
        ("", "the SQL is empty"),
    ],
)
def test_sql_that_we_do_not_do(text: str, what: str) -> None:
    direct = caught(lambda: ct.sql(text, "q"))
    in_job = caught(lambda: ct.load_job({"queries": [{"name": "q", "sql": text}]}))
    assert type(direct) is type(in_job) is ct.SqlError
    assert str(direct) == str(in_job)
    assert direct.what.startswith(what) and direct.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "queries: [{name: q, select: [avg(v)], windw: x}]",
            "no such key in the job file (given: queries[0].windw); did you mean 'window'?",
        ),
        (
            "queries: [{name: q, select: [avg(v)], window: tumblig(1s)}]",
            "no such window (given: tumblig); did you mean 'tumbling'?",
        ),
        (
            "latenes: 2s\nqueries: []",
            "no such key in the job file (given: latenes); did you mean 'la",
        ),
        (
            "late: nonsense\nqueries: []",
            "no such choice for late (given: 'nonsense'); one of: drop, ",
        ),
        ("lateness: -2s\nqueries: []", "the lateness must not be negative (given: -2s); "),
        ("lateness: soon\nqueries: []", "the lateness is not a duration (given: 'soon'); write a"),
        (
            "keep: soon\nlate: update\nqueries: []",
            "the keep is not a duration (given: 'soon'); write",
        ),
    ],
)
def test_a_job_file_with_a_typo(text: str, message: str, tmp_path: Path) -> None:
    """Said when the file is read, before any event."""
    path = tmp_path / "job.yaml"
    path.write_text(text)
    for source in (text, path):
        error = caught(lambda source=source: ct.load_job(source))  # type: ignore[misc]
        assert str(error).startswith(message) and error.hint


# What SQL names: the time column and the table. No runtime is needed to refuse them.

EVENTS = pa.table({"ts": [1], "other": [2], "v": [1.0]}).cast(
    pa.schema({"ts": pa.timestamp("us"), "other": pa.timestamp("us"), "v": pa.float64()})
)
NAMED = {
    "window": (
        "FROM events GROUP BY window(other, '10 seconds')",
        (
            "query 'q': its window names the column 'other', but the time column of the events "
            "is 'ts' (given: other); name ts in the window, or make other the time column of "
            "the whole job"
        ),
    ),
    "session": (
        "FROM events GROUP BY session_window(nosuchcol, '10 seconds')",
        (
            "query 'q': its window names the column 'nosuchcol', but the time column of the "
            "events is 'ts' (given: nosuchcol); name ts in the window, or make nosuchcol the "
            "time column of the whole job"
        ),
    ),
    "table": (
        "FROM evnts GROUP BY window(ts, '10 seconds')",
        ("query 'q': FROM takes the events of the job (given: FROM evnts); did you mean 'events'?"),
    ),
    "table of counts": (
        "FROM evnts GROUP BY count_window(3)",
        ("query 'q': FROM takes the events of the job (given: FROM evnts); did you mean 'events'?"),
    ),
}


@pytest.mark.parametrize("name", list(NAMED))
def test_another_time_column_or_table_is_refused_on_every_way_in(name: str) -> None:
    text, message = NAMED[name]
    text = f"SELECT sum(v) {text}"
    query = ct.sql(text, "q")
    ways: list[Way] = [
        lambda: ct.Engine([query]),
        lambda: ct.Engine([query], schema=EVENTS.schema),
        lambda: ct.Engine([ct.Query("p", ct.count(), window=ct.session("1s"))]).add(query),
        lambda: ct.load_job({"queries": [{"name": "q", "sql": text}]}),
        lambda: ct.load_job({"queries": [query]}),
        lambda: ct.Job(queries=[query], source={"type": "generator", "events": 5}).start(),
        lambda: ct.Job(queries=[{"name": "q", "sql": text}]).build(),
        lambda: ct.run(EVENTS, query),
        lambda: ct.run("nowhere/events.parquet", [query]),
    ]
    for way in ways:
        error = caught(way)
        assert type(error) is ct.QueryError and str(error) == message


def test_a_plan_remembers_the_time_column_until_it_is_bound() -> None:
    made = ct.plan([OK, ct.sql("SELECT sum(v) FROM events GROUP BY window(other, '1s')", "r")])
    assert ct.Plan.from_bytes(made.to_bytes()) == made
    ways: list[Way] = [
        lambda: ct.slice(EVENTS, made),
        lambda: BoundPlan(made, EventRules()),
    ]
    for way in ways:
        assert str(caught(way)).startswith("a query of the plan names the column 'other', but the")
    parts = ct.slice(EVENTS, made, time="other")
    found = ct.assemble(ct.merge([parts], made), 10 * SECOND, made)
    assert found["r"].column("window_start").cast(pa.int64()).to_pylist() == [0]
    error = caught(
        lambda: ct.plan(
            [
                ct.sql(f"SELECT sum(v) FROM events GROUP BY window({c}, '1s')", c)
                for c in ("ts", "other")
            ]
        )
    )
    assert str(error).startswith("the queries name several time columns (given: ts in ts, other in")
    error = caught(lambda: ct.plan([ct.sql("SELECT sum(v) FROM e GROUP BY count_window(3)", "q")]))
    assert (
        str(error) == "query 'q': FROM takes the events of the job (given: FROM e); known: events"
    )


def test_the_job_and_its_source_give_names_to_the_events(tmp_path: Path) -> None:
    def text(table: str) -> str:
        return f"SELECT sum(v) FROM {table} GROUP BY window(ts, '1s')"

    job = ct.load_job(
        {
            "name": "soccer",
            "source": {"type": "parquet", "path": "data/plays.parquet"},
            "queries": [{"name": t, "sql": text(t)} for t in ("events", "soccer", "Plays")],
        }
    )
    assert all(query.table is query.time is None for query in job.build())
    error = caught(
        lambda: ct.load_job({"name": "soccer", "queries": [{"name": "q", "sql": text("socer")}]})
    )
    assert str(error).endswith("(given: FROM socer); did you mean 'soccer'?")
    assert getattr(error, "__notes__", []) == ["in the job file: queries[0]"]


@pytest.mark.parametrize(
    ("sites", "fits"), [(("a/rides", "b/rides"), True), (("a/rides", "b/walks"), False)]
)
def test_a_source_names_the_events_of_a_tree_where_all_nodes_read_such(
    sites: tuple[str, ...], fits: bool
) -> None:
    """FROM rides would else promise rides alone, and compute walks too."""
    nodes = [{"id": "root", "listen": "127.0.0.1:1"}]
    nodes += [
        {"id": f"n{i}", "parent": "root", "source": {"type": "parquet", "path": path}}  # type: ignore[dict-item]
        for i, path in enumerate(sites)
    ]
    sql = "SELECT sum(v) FROM rides GROUP BY window(ts, '1s')"

    def way() -> Any:
        return ct.load_job({"queries": [{"name": "q", "sql": sql}], "nodes": nodes})

    if fits:
        assert way().build()[0].table is None
    else:
        assert str(caught(way)).endswith("FROM rides); known: catchment, events")


# The engine.


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"late": "nonsense"}, "no such choice for late (given: 'nonsense'); one of: drop, update"),
        ({"bad": "ignore"}, "no such choice for bad (given: 'ignore'); one of: collect, fail"),
        ({"lateness": "-1s"}, "the lateness must not be negative (given: -1s); "),
        ({"lateness": 5}, "the lateness needs a unit (given: 5); write a number and a unit"),
        ({"keep": "-1s", "late": "update"}, "the keep must not be negative (given: -1s)"),
        ({"rate": 0}, "the rate must be positive (given: 0)"),
        ({"rate": "fast"}, "the rate must be "),
        ({"time": None}, ""),
    ],
)
def test_settings_that_mean_nothing(settings: dict[str, Any], text: str) -> None:
    error = caught(lambda: ct.Engine([OK], **settings))
    assert type(error) is ct.QueryError and str(error).startswith(text) and error.hint


@pytest.mark.parametrize("moment", ["soon", "", 1.5, float("nan"), None, True, date.min, [1]])
def test_a_frontier_that_is_no_time(moment: Any) -> None:
    engine = ct.Engine([OK])
    engine.push(table([1], v=[1.0]))
    error = caught(lambda: engine.advance(moment))
    assert type(error) is ct.QueryError
    assert (error.what, error.given) == ("the time is not an instant", repr(moment))
    assert error.hint
    assert values(engine.close(), "q") == [(1.0,)]


def test_a_frontier_from_numpy_is_a_whole_number() -> None:
    engine = ct.Engine([OK])
    engine.push(table([1], v=[1.0]))
    assert values(engine.advance(np.int64(10 * SECOND)), "q") == [(1.0,)]  # type: ignore[arg-type]


@pytest.mark.parametrize("events", [[], [{"ts": 1}], None, "ts", 5, pa.array([1])])
def test_events_that_are_no_table(events: Any) -> None:
    error = caught(lambda: ct.Engine([OK]).push(events))
    assert type(error) is ct.SchemaError
    assert error.what.startswith("events must be an Arrow table or record batch, a frame, or")
    assert error.given == type(events).__name__ and error.hint


@pytest.mark.parametrize("query", ["SELECT 1", None, 5, {"name": "q"}])
def test_what_is_no_query(query: Any) -> None:
    ways: list[Way] = [
        lambda: ct.Engine([query]),
        lambda: ct.plan([query]),
        lambda: ct.Engine([]).add(query),
    ]
    for way in ways:
        error = caught(way)
        assert type(error) is ct.QueryError
        assert (error.what, error.given) == ("not a query", repr(query)) and error.hint


@pytest.mark.parametrize("name", ["qq", None, 5])
def test_removing_what_is_not_there(name: Any) -> None:
    error = caught(lambda: ct.Engine([OK]).remove(name))
    assert type(error) is ct.QueryError
    assert (error.what, error.given) == ("no such query", name) and error.hint


# Bytes.


def snapshot() -> bytes:
    engine = ct.Engine([OK])
    engine.push(table([1], v=[1.0]))
    return engine.snapshot()


def test_bytes_that_are_no_snapshot() -> None:
    whole = snapshot()
    for data in (b"", b"garbage", whole[1:], b"\0" * 100):
        error = caught(lambda data=data: ct.Engine.restore(data))  # type: ignore[misc]
        assert type(error) is ct.StateError
        assert (error.what, error.given) == ("these bytes are not a snapshot", f"{len(data)} bytes")
        assert error.hint == "a snapshot is written by engine.snapshot()"


def test_a_snapshot_cut_short_or_damaged() -> None:
    whole = snapshot()
    flipped = bytearray(whole)
    flipped[-20] ^= 1
    for data in (whole[:-1], whole[: len(whole) // 2], whole[:23], whole + b"x", bytes(flipped)):
        error = caught(lambda data=data: ct.Engine.restore(data))  # type: ignore[misc]
        assert type(error) is ct.StateError
        assert error.what == "the snapshot is damaged or cut short" and error.hint


def test_a_snapshot_of_a_newer_version() -> None:
    whole = snapshot()
    _, _, checksum, length = codec._HEAD.unpack_from(whole)
    head = codec._HEAD.pack(codec.MAGIC, codec.FORMAT + 1, checksum, length)
    error = caught(lambda: ct.Engine.restore(head + whole[len(head) :]))
    assert type(error) is ct.StateError
    assert error.what == "the snapshot was written by a newer version"
    assert error.given == f"format {codec.FORMAT + 1}" and error.hint


@pytest.mark.parametrize("text", [b"", b"[1]", b"\xff", b"{}", b'{"format": 2}', b'"x"', b"null"])
def test_bytes_that_are_no_plan(text: bytes) -> None:
    for data in (text, zlib.compress(text), ct.plan([OK]).to_bytes()[:-3]):
        error = caught(lambda data=data: ct.Plan.from_bytes(data))  # type: ignore[misc]
        assert type(error) is ct.StateError
        assert error.what == "these bytes are not a plan"
        assert error.given == f"{len(data)} bytes" and error.hint


@pytest.mark.parametrize(("number", "age"), [(1, "older"), (99, "newer")])
def test_a_plan_of_another_format(number: int, age: str) -> None:
    text = f'{{"format": {number}, "groups": []}}'.encode()
    error = caught(lambda: ct.Plan.from_bytes(zlib.compress(text)))
    assert type(error) is ct.StateError
    assert error.what == f"the plan was written by {'an' if age == 'older' else 'a'} {age} version"
    assert error.given == f"format {number}" and error.hint
