"""Job files: the same queries as Python writes, and errors that name the place in the file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
import catchment as w
from catchment import functions as f
from catchment.errors import JobError, QueryError, SqlError
from catchment.job import JobModel, examine, job_schema, load_job
from catchment.model.query import Query
from catchment.model.window import Window
from catchment.sources.generated import Generated
from catchment.windows import BUILDERS

TEXT = """
name: soccer
time: at
lateness: 2s
late: update
keep: 1m
queries:
  - name: speed
    select:
      - avg(v) AS mean
      - {function: quantile, column: v, params: [0.95], alias: p95}
    by: [player]
    where: v > 0
    window: sliding(10s, 5s)
    distinct_on: id
    distinct_within: 5m
    measure: processing
  - name: total
    sql: SELECT sum(v) FROM events GROUP BY window(at, '1 minute')
"""
SPEED = Query(
    "speed",
    f.avg("v").alias("mean"),
    f.quantile("v", 0.95).alias("p95"),
    by="player",
    where="v > 0",
    window=w.sliding("10s", "5s"),
    distinct_on="id",
    distinct_within="5m",
    measure="processing",
)
TOTAL = Query("total", f.sum("v"), window=w.tumbling("1m"))


def job(**parts: Any) -> JobModel:
    query = {"name": "q", "select": ["sum(v)"], "window": "tumbling(10s)"} | parts
    return load_job({"queries": [{k: v for k, v in query.items() if v is not None}]})


def test_a_job_from_text_file_and_mapping(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(TEXT)
    as_json = tmp_path / "job.json"
    as_json.write_text(json.dumps(yaml.safe_load(TEXT)))
    for source in (TEXT, path, str(path), as_json, yaml.safe_load(TEXT)):
        loaded = load_job(source)
        assert loaded.name == "soccer"
        assert loaded.build() == [SPEED, TOTAL]


def test_what_the_engine_is_told() -> None:
    told = {"time": "at", "lateness": "2s", "late": "update", "keep": "1m"}
    more = {"incomplete": "count", "aside_bytes": 64 << 20, "state_bytes": None, "key_bytes": None}
    more["emit"] = "final"
    assert load_job(TEXT).engine_options() == told | more
    assert job().engine_options() == {"time": "ts", "lateness": "0s", "late": "drop"} | more


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("tumbling(10s)", w.tumbling("10s")),
        ("tumbling('10 seconds', offset=2s)", w.tumbling("10s", offset="2s")),
        ("sliding(10s, slide=5s)", w.sliding("10s", "5s")),
        ("{sliding: {length: 10s, slide: 5s}}", w.sliding("10s", "5s")),
        ("{tumbling: 10s}", w.tumbling("10s")),
        ("session(5 minutes)", w.session("5m")),
        ("cut(kind = 'a, (b')", w.cut("kind = 'a, (b'")),
        ("cut(\"kind = 'lap'\")", w.cut("kind = 'lap'")),
        ("between(start=a = 1, end=b IN (1, 2))", w.between("a = 1", "b IN (1, 2)")),
        ("{between: {start: a = 1, end: b}}", w.between("a = 1", "b")),
        ("count_tumbling(100)", w.count_tumbling(100)),
        ("{count_sliding: {size: 100, step: 10}}", w.count_sliding(100, 10)),
        ("fixed(2026-01-01, 2026-01-02 12:00:00)", w.fixed("2026-01-01", "2026-01-02 12:00:00")),
        ("{fixed: {start: 2026-01-01, end: 2026-01-02}}", w.fixed("2026-01-01", "2026-01-02")),
    ],
)
def test_windows(written: str, window: Window) -> None:
    text = f"queries:\n  - name: q\n    select: [sum(v)]\n    window: {written}\n"
    assert load_job(text).build()[0].window == window


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "queries:\n  - {name: q, windw: x}",
            "no such key in the job file (given: queries[0].windw); did you mean 'window'?",
        ),
        ("quries: []", "no such key in the job file (given: quries); did you mean 'queries'?"),
        ("queries: []\nxyz: 1", "no such key in the job file (given: xyz); known: name, time, lat"),
        (
            "queries: [{name: q, select: [{functon: avg}]}]",
            (
                "no such key in the job file (given: queries[0].select[0].functon); "
                "did you mean 'functi"
            ),
        ),
        ("name: x", "a key is missing in the job file (given: queries); add it"),
        ("queries: [{select: [sum(v)]}]", "a key is missing in the job file (given: queries[0].n"),
        ("queries: 5", "a wrong value in the job file (given: queries is 5); it should be a list"),
        ("queries: [5]", "a wrong value in the job file (given: queries[0] is 5); it should be a"),
        (
            "queries: [{name: q, select: sum(v)}]",
            (
                "a wrong value in the job file (given: queries[0].select is 'sum(v)'); "
                "it should be a l"
            ),
        ),
        ("queries: [{name: q}]", "queries[0] has neither sql nor select"),
        ("queries:\n  - name: q\n   foo: b", "the job file is not YAML (given: line 3, column 4);"),
        ("queries: [1", "the job file is not YAML (given: line 1, column 12)"),
        ("queries: []\nname: a\nname: b", "a key stands twice in the job file (given: name, line"),
        ("- a", "the job file must be a mapping (given: list)"),
        ("", "the job file must be a mapping (given: nothing)"),
        ("nowhere.yaml", "the job file cannot be read (given: nowhere.yaml); no such file or dir"),
    ],
)
def test_a_job_file_that_is_not_well_formed(text: str, message: str) -> None:
    with pytest.raises(JobError) as caught:
        load_job(text)
    assert str(caught.value).startswith(message)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("tumbling", "not a window in the job file (given: queries[0].window: tumbling); try slid"),
        ("sliding(10s)", "the window sliding has the wrong arguments (given: queries[0].window: l"),
        ("count_within(1, 2s, local, 3s)", "the window count_within has the wrong arguments"),
        (
            "tumbling(1s, length=2s)",
            "the window tumbling has an argument twice (given: queries[0].w",
        ),
        ("cut(m, reading=local, reading=any)", "the window cut has an argument twice"),
        (
            {"sliding": {"lenght": "10s"}},
            (
                "no such key in the job file (given: "
                "queries[0].window.sliding.lenght); did you mean 'l"
            ),
        ),
        ({"sliding": {"length": "10s"}}, "the window sliding has the wrong arguments"),
        ({"cut": "a", "session": "1s"}, "a window in the job file has one name"),
    ],
)
def test_a_window_that_is_not_well_formed(window: Any, message: str) -> None:
    with pytest.raises(JobError) as caught:
        job(window=window)
    assert str(caught.value).startswith(message)


def test_sql_says_it_all() -> None:
    text = "SELECT sum(v) FROM events GROUP BY window(ts, '1s')"
    made = job(sql=text, select=None, window=None, distinct_on=["id"]).build()[0]
    assert made == Query("q", f.sum("v"), window=w.tumbling("1s"), distinct_on=["id"])
    with pytest.raises(JobError, match=r"queries\[0\] has both sql and by"):
        job(sql=text, select=None, window=None, by="k")


@pytest.mark.parametrize(
    ("parts", "python"),
    [
        ({"window": "tumbling(0s)"}, lambda: w.tumbling("0s")),
        ({"window": {"tumbling": 10}}, lambda: w.tumbling(10)),  # type: ignore[arg-type]
        ({"window": "sliding(10s, 0s)"}, lambda: w.sliding("10s", "0s")),
        ({"window": "count_tumbling(0)"}, lambda: w.count_tumbling(0)),
        ({"window": None}, lambda: Query("q", f.sum("v"), window=None)),  # type: ignore[arg-type]
        ({"select": []}, lambda: Query("q", window=w.tumbling("10s"))),
        ({"select": ["quantile(v, 2)"]}, lambda: f.quantile("v", 2)),
        (
            {"select": [{"function": "quantile", "column": "v", "params": [2]}]},
            lambda: f.quantile("v", 2),
        ),
        ({"select": ["sums(v)"]}, lambda: f.make("sums", "v")),
        ({"where": "v >"}, lambda: Query("q", f.sum("v"), window=w.tumbling("1s"), where="v >")),
        (
            {"by": ["k", "k"]},
            lambda: Query("q", f.sum("v"), window=w.tumbling("1s"), by=["k", "k"]),
        ),
        ({"name": ""}, lambda: Query("", f.sum("v"), window=w.tumbling("1s"))),
        (
            {"measure": "procesing"},
            lambda: Query("q", f.sum("v"), window=w.tumbling("1s"), measure="procesing"),
        ),  # type: ignore[arg-type]
    ],
)
def test_the_same_mistake_gives_the_same_error(parts: dict[str, Any], python: Any) -> None:
    with pytest.raises(QueryError) as from_job:
        job(**parts)
    with pytest.raises(QueryError) as from_python:
        python()
    assert type(from_job.value) is type(from_python.value)
    assert str(from_job.value) == str(from_python.value)
    assert from_job.value.__notes__ == ["in the job file: queries[0]"]


def mistakes(text: str) -> list[str]:
    return [mistake.text for mistake in examine(text).mistakes]


def test_every_mistake_of_a_file_is_found_with_its_place() -> None:
    """Each part that is wrong is told, and does not hide those after it."""
    found = mistakes("""
name: soccer
latenes: 2s
lateness: -1s
keep: soon
trigger: sometimes
buckets: -1
xyz: 1
flush: {priorities: {a: 5, f: 2}}
sinks: [{type: memory}, {type: memry}, {type: parquet, pth: out}]
source: {type: parquet, paht: plays.parquet}
queries:
  - {name: a, select: [avg(v)], windw: tumbling(1s)}
  - {name: b, select: [avgg(v)], window: tumbling(1s)}
  - {name: c, selct: [avg(v)], window: tumbling(0s)}
  - 5
  - {name: a, select: [count(*)], window: session(1s)}
  - {nme: d, sql: "SELECT sum(v) FROM plays GROUP BY window(ts, '1s')"}
  - {name: e, sql: "SELECT sum(v) FROM plas GROUP BY window(at, '1s')"}
  - {name: f, select: [sum(v)], window: session(2s), nonsense: 5}
""")
    expected = [
        "no such key in the job file (given: queries[0].windw); did you mean 'window'?",
        "no such key in the job file (given: queries[2].selct); did you mean 'select'?",
        "no such key in the job file (given: queries[5].nme); did you mean 'name'?",
        "no such key in the job file (given: queries[7].nonsense); known: name, sql, select, by",
        "no such key in the job file (given: source.paht); did you mean 'path'?",
        "no such key in the job file (given: sinks[2].pth); did you mean 'path'?",
        "no such key in the job file (given: latenes); did you mean 'lateness'?",
        "no such key in the job file (given: xyz); known: name, time, lateness, late, keep",
        "a wrong value in the job file (given: queries[3] is 5); it should be a mapping of keys",
        "no such type in the job file (given: sinks[1].type: memry); did you mean 'memory'?",
        "a wrong value in the job file (given: buckets is -1); it should be greater than 0",
        "no such function (given: avgg); did you mean 'avg'? [in the job file: queries[1]]",
        "the window length must be positive (given: '0s')",
        "two queries have one name (given: a); give each query its own [in the job file: queri",
        "query 'e': its window names the column 'at', but the time column of the events is 'ts'",
        "query 'e': FROM takes the events of the job (given: FROM plas); did you mean 'plays'?",
        "the lateness must not be negative (given: -1s)",
        "the keep is not a duration (given: 'soon')",
        "no such trigger (given: 'sometimes')",
    ]
    assert len(found) == len(expected)
    for text, start in zip(found, expected, strict=True):
        assert text.startswith(start)
    assert found[12].endswith("[in the job file: queries[2]]")


@pytest.mark.parametrize(
    "text",
    [
        "queries: [1",
        "- a",
        "",
        "nowhere.yaml",
        "queries: []\nname: a\nname: b",
    ],
)
def test_a_file_that_holds_no_job_is_one_mistake(text: str) -> None:
    found = examine(text)
    assert found.job is None and [type(m.error) for m in found.mistakes] == [JobError]


@pytest.mark.parametrize(
    ("section", "place"),
    [
        ("source: {type: mqtt, host: h, topic: t}", "source"),
        (
            (
                "nodes:\n  - {id: r, listen: '127.0.0.1:1'}\n"
                "  - {id: a, parent: r, source: {type: mqtt, host: h, topic: t}}"
            ),
            "nodes[1]",
        ),
    ],
)
def test_an_error_that_does_not_tell_its_place_is_located(section: str, place: str) -> None:
    found = examine(f"{section}\nlate: never\nqueries: [{{name: q, select: [count(*)]}}]")
    assert [mistake.place for mistake in found.mistakes] == [place, "queries[0]", "late"]
    assert "needs a schema" in found.mistakes[0].text and found.mistakes[0].text.endswith(
        f"[in the job file: {place}]"
    )


def test_what_is_wrong_in_the_job_is_not_told_of_its_queries_too() -> None:
    query = "{name: q, sql: \"SELECT sum(v) FROM plays GROUP BY window(at, '1s')\"}"
    assert [
        m.place for m in examine(f"time: 5\nsource: {{type: parket}}\nqueries: [{query}]").mistakes
    ] == ["source", "time"]


MISTAKEN = {
    "lateness": "-1s",
    "late": "never",
    "keep": "soon",
    "trigger": "sometimes",
    "buckets": 0,
    "rate": -1,
    "time": "",
    "sinks": [{"type": "memry"}],
    "flush": "sometimes",
    "metrics": -1,
    "idle_timeout": 5,
    "source": {"type": "parket"},
    "xyz": 1,
}
BAD_QUERIES = [
    {"name": "x", "select": ["avgg(v)"], "window": "tumbling(1s)"},
    {"name": "x", "select": ["avg(v)"], "window": "tumbling(0s)"},
    {"name": "x", "select": ["avg(v)"], "windw": "tumbling(1s)"},
    {"name": "x", "sql": "SELECT sum(v) FROM nosuch GROUP BY window(ts, '1s')"},
    {"name": "x", "sql": "SELECT sum(v) FROM events GROUP BY window(nosuch, '1s')"},
    7,
]


def test_every_part_of_a_query_is_looked_at() -> None:
    query = (
        "{name: q, select: [avgg(v), sum(v), 'quantile(v, 2)', {function: maxx, column: v}], "
        "window: tumbling(0s), where: v >, by: [k, k]}"
    )
    found = mistakes(f"queries: [{query}]")
    assert [text.partition(" (given")[0] for text in found] == [
        "no such function",
        "quantile takes one number from 0 to 1",
        "no such function",
        "the window length must be positive",
        "the where condition does not parse",
    ]
    assert all(text.endswith("[in the job file: queries[0]]") for text in found)


@given(
    settings=st.sets(st.sampled_from(sorted(MISTAKEN))),
    queries=st.lists(st.sampled_from([None, *range(len(BAD_QUERIES))]), max_size=6),
)
def test_any_mistakes_together_are_told_as_each_alone(
    settings: set[str], queries: list[int | None]
) -> None:
    """No mistake hides another, none is told twice, and none comes from another."""
    good = {"select": ["count(*)"], "window": "session(1s)"}
    listed: list[Any] = []
    for number, kind in enumerate(queries):
        bad = None if kind is None else BAD_QUERIES[kind]
        own = {"name": f"q{number}"}
        listed.append(good | own if bad is None else bad | own if isinstance(bad, dict) else bad)
    places = {key if key != "sinks" else "sinks[0]" for key in settings}
    places |= {
        f"queries[{number}]" + (".windw" if kind == 2 else "")
        for number, kind in enumerate(queries)
        if kind is not None
    }
    if "source" in settings:  # a name in FROM might be that source's
        places -= {f"queries[{n}]" for n, kind in enumerate(queries) if kind == 3}
    if "time" in settings:
        places -= {f"queries[{n}]" for n, kind in enumerate(queries) if kind == 4}
    data = {key: MISTAKEN[key] for key in settings} | {"queries": listed}
    found = examine(data)
    assert sorted(m.place for m in found.mistakes) == sorted(places)
    if places:
        with pytest.raises((JobError, QueryError), match=re.escape(str(found.mistakes[0].error))):
            load_job(data)
    else:
        load_job(data)


NO_NODES = (
    "this way to find count windows needs nodes (given: count: monitor); leave count out: a job "
    "without nodes has its events in one place"
)


def test_count_windows_over_nodes_need_nodes() -> None:
    """In a file it is a mistake with its place; in Python the job does not start."""
    query = {"name": "q", "select": ["count(*)"], "window": "count_tumbling(5)"}
    (mistake,) = examine({"count": "monitor", "queries": [query]}).mistakes
    assert (mistake.place, str(mistake.error)) == ("count", NO_NODES)
    with pytest.raises(JobError) as refused:
        load_job({"count": "monitor", "queries": [query]})
    assert str(refused.value) == NO_NODES
    ready = Query("q", f.count(), window=w.count_tumbling(5))
    for how in ("auto", "central"):
        assert ct.Job(queries=[ready], count=how).build() == [ready]
    job = ct.Job(queries=[ready], count="monitor", source=Generated(events=10))
    with pytest.raises(JobError) as refused:
        job.start()
    assert str(refused.value) == NO_NODES


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"predictor": "last"},
            "edges of count windows are predicted over nodes only (given: count_options: {'predict",
        ),
        ({"memory": 0}, "greater than or equal to 1"),
        ({"predictor": "first"}, "'pace' or 'last'"),
        ({"weight": True}, "weight"),
    ],
)
def test_options_of_count_windows_that_cannot_be(options: dict[str, Any], said: str) -> None:
    query = {"name": "q", "select": ["count(*)"], "window": "count_tumbling(5)"}
    with pytest.raises(JobError) as refused:
        load_job({"count_options": options, "queries": [query]})
    assert said in str(refused.value)


def test_an_unknown_window_is_named() -> None:
    with pytest.raises(
        QueryError, match=r"no such window \(given: slidng\); did you mean 'sliding'"
    ):
        job(window="slidng(10s, 5s)")


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ({"type": "kafka", "servers": "h:1", "topic": "t", "timeout": "-5s"}, "timeout"),
        ({"type": "mqtt", "host": "h", "topic": "t", "session": "-5s"}, "session"),
        ({"type": "csv", "path": "x.csv", "settle": "-5s"}, "settle time"),
    ],
)
def test_a_duration_below_zero_is_said_in_one_sentence(source: dict[str, Any], what: str) -> None:
    query = {"name": "q", "select": ["count(*)"], "window": "tumbling(1s)"}
    schema = {} if source["type"] == "csv" else {"schema": {"ts": "timestamp"}}
    with pytest.raises(JobError) as caught:
        load_job({"source": source | schema, "queries": [query]})
    assert str(caught.value) == (
        f"a wrong value in the job file (given: source.{what.split()[0]} is '-5s'); "
        f'the {what} must not be negative (given: -5s); try "0s" or longer'
    )


def test_select_takes_aggregates_only() -> None:
    with pytest.raises(SqlError, match="not one aggregate"):
        job(select=["avg(v) FROM x"])


def test_the_schema_names_every_key() -> None:
    schema = job_schema()
    assert set(schema["properties"]) == {
        "name",
        "time",
        "lateness",
        "late",
        "keep",
        "queries",
        "source",
        "sinks",
        "checkpoint",
        "trigger",
        "idle_timeout",
        "max_ahead",
        "buckets",
        "rate",
        "metrics",
        "nodes",
        "flush",
        "timeout",
        "count",
        "count_options",
        "quantiles",
        "marks",
        "lookups",
        "security",
        "incomplete",
        "emit",
        "aside_bytes",
        "aside_disk_bytes",
        "state_bytes",
        "key_bytes",
    }
    kinds = schema["properties"]["source"]["anyOf"][0]["discriminator"]["mapping"]
    files, messages = {"parquet", "csv", "jsonl", "arrow"}, {"kafka", "mqtt", "prometheus", "otlp"}
    assert files | messages | {"generator"} == set(kinds)
    assert schema["additionalProperties"] is False
    assert schema["properties"]["late"]["enum"] == ["drop", "update", "collect"]
    windows = schema["$defs"]["QuerySection"]["properties"]["window"]["anyOf"]
    assert {name for form in windows for name in form.get("properties", {})} == set(BUILDERS)
    json.dumps(schema)


@pytest.mark.parametrize(
    ("query", "place", "whole"),
    [
        (
            "{name: a, select: [sum(v) AS s, quantile(v, 0.95) AS p], window: tumbling(1s)}",
            "queries[0].select[1]",
            "quantile(v, 0.95) AS p",
        ),
        (
            "{name: a, window: sliding(1m, 10s), select: [sum(v)]}",
            "queries[0].window",
            "sliding(1m, 10s)",
        ),
    ],
)
def test_a_call_that_yaml_takes_apart_is_told_and_read_as_it_was_meant(
    query: str, place: str, whole: str
) -> None:
    found = examine(f"queries:\n  - {query}\n")
    (mistake,) = found.mistakes
    assert (mistake.place, mistake.error.hint) == (place, f'put it in quotes: "{whole}"')
    assert len(found.queries) == 1


def test_brackets_that_nobody_closes_are_left_as_they_are() -> None:
    found = examine("queries:\n  - {name: a, select: [sum(v, max(v)], window: tumbling(1s)}\n")
    assert not any("comma" in mistake.text for mistake in found.mistakes) and found.mistakes


def test_an_address_that_begins_with_a_bracket_needs_quotes() -> None:
    (mistake,) = examine("nodes:\n  - {id: a, listen: [::1]:4000}\nqueries: []\n").mistakes
    assert "a text that begins with [ or {" in mistake.text
