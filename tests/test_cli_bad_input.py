"""What commands say to mistakes and missing things: one sentence, before Spark is started."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from catchment.cli import check, demo_spark, live
from catchment.engine import Engine
from catchment.errors import CatchmentError, SinkError, StateError
from catchment.job import load_job
from catchment.model import records
from catchment.model.capacity import Capacity
from catchment.sinks import SparkFormat
from catchment.sources.base import NeverRead
from catchment.spark import job_folder
from catchment.spark.format_sink import table_name, taken_columns, write_frame
from catchment.spark.handle import Status
from catchment.spark.metrics import Metrics
from catchment.spark.queries import FORMAT, QueryFolder
from catchment.spark.records import JobIdentity
from commands import catchment
from patience import PATIENCE

pytestmark = pytest.mark.spark

JOB = """\
source: {type: generator, events: 1000}
sinks: [{type: parquet, path: results}]
checkpoint: state
queries:
  - {name: total, select: [count(*) AS n], window: tumbling(1s)}
"""
IDENTITY = JobIdentity(FORMAT, "live-1", "live", "csv", "ts", "drop", 1, ())
RUNNING = Status(
    "running",
    "live-1",
    batch=3,
    events=100,
    accepted=90,
    late=6,
    bad=3,
    duplicates=1,
    updates=2,
    results=40,
    frontier=1_767_225_641_500_000,
    lag=2.0,
    rate=5_000.0,
    queries=2,
    partitions={"a": 1_767_225_643_500_000, "b": None},
    rejected={"x.yaml": "why"},
    waiting={"y.parquet": "not whole"},
)


def refused(*words: str, code: int) -> str:
    """The one sentence that the command ends with."""
    lines: list[str] = catchment(*words, code=code).stderr.splitlines()
    assert lines[-1].startswith("catchment: ")
    return lines[-1]


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(*_: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("catchment.spark.session.session", session)


@pytest.mark.usefixtures("no_spark")
class TestBeforeSpark:
    def test_no_job_file(self) -> None:
        assert "none.yaml" in refused("run", "none.yaml", code=2)

    def test_an_unknown_source(self, job: Path) -> None:
        job.write_text(JOB.replace("generator, events: 1000", "parket, path: x"))
        assert "did you mean 'parquet'?" in refused("run", "job.yaml", code=2)

    def test_an_unknown_sink(self, job: Path) -> None:
        job.write_text(JOB.replace("type: parquet", "type: memry"))
        assert "did you mean 'memory'?" in refused("run", "job.yaml", code=2)

    def test_a_source_without_a_type(self, job: Path) -> None:
        job.write_text(JOB.replace("type: generator, ", ""))
        assert "source.type" in refused("run", "job.yaml", code=2)

    def test_no_source(self, job: Path) -> None:
        job.write_text(JOB.replace("source: {type: generator, events: 1000}", ""))
        assert "the job has no source" in refused("run", "job.yaml", code=2)

    def test_a_source_that_is_not_there(self, job: Path) -> None:
        job.write_text(JOB.replace("generator, events: 1000", "parquet, path: nowhere/"))
        assert "nowhere" in refused("run", "job.yaml", code=1)
        assert "nowhere" in refused("validate", "job.yaml", "--connect", code=1)
        assert "is fine" in catchment("validate", "job.yaml").stdout
        assert "it cannot be read now" in catchment("explain", "job.yaml").stdout

    def test_a_query_of_a_column_that_is_not_there(self, job: Path) -> None:
        job.write_text(JOB.replace("count(*)", "sum(nothing)"))
        assert "nothing" in refused("run", "job.yaml", code=2)

    def test_an_unknown_trigger(self) -> None:
        sentence = refused("run", "job.yaml", "--trigger", "sometimes", code=2)
        assert "no such trigger" in sentence

    def test_a_checkpoint_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        assert "file" in refused("run", "job.yaml", "--checkpoint", "file/state", code=1)

    def test_a_port_in_use(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            sentence = refused("run", "job.yaml", "--metrics", str(port), code=1)
        assert "metrics cannot be served" in sentence and str(port) in sentence

    def test_no_java(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        for words in (("run", "none.yaml"), ("demo",)):
            sentence = refused(*words, code=1)
            assert "Java 17 or later is needed" in sentence and "none was found" in sentence

    def test_an_old_java(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text("#!/bin/sh\necho 'java version \"1.8.0_412\"' >&2\n")
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert "this one is Java 8" in refused("run", "none.yaml", code=1)


def test_init_does_not_overwrite(job: Path) -> None:
    assert "--force" in refused("init", code=2)
    assert job.read_text() == JOB
    catchment("init", "--force")
    assert "generator" in job.read_text()
    assert "5 queries" in catchment("validate", "job.yaml", "--connect").stdout
    catchment("init", "deep/other.yaml")


def test_explain_says_how_a_job_will_run(job: Path) -> None:
    text = catchment("explain", "job.yaml").stdout
    assert "source: generator: events 1000; 1 partition(s) known" in text
    assert "columns read: ts (1 of 7)" in text
    assert "sink: parquet: path results" in text
    job.write_text(JOB.replace("window:", "where: v > 5, window:") + "trigger: batch\n")
    assert "all but (v > 5)" in catchment("explain", "job.yaml").stdout


# -- what keeps a job from running ---------------------------------------------------------------

COLUMNS = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("at", pa.string()),
        ("player", pa.string()),
        ("v", pa.float64()),
    ]
)
BROKEN = """\
time: at
source: {type: parquet, path: plays.parquet}
checkpoint: state
queries:
  - {name: a, select: [sum(w) AS s, avg(player) AS m, max(x * v) AS p], window: tumbling(1s)}
  - {name: b, select: [count(*) AS n], by: playr, window: session(1s)}
  - {name: c, select: [count(*) AS n], where: v, window: cut(player + 1)}
  - {name: d, select: [avgg(v)], window: tumbling(0s)}
  - {name: e, sql: "SELECT count(*) FROM plays GROUP BY window(ts, '1s')"}
  - {name: f, sql: "SELECT count(*) FROM plys GROUP BY window(at, '1s')"}
  - {name: g, select: [sum(v)], windw: tumbling(1s)}
  - name: h
    select: [sum(v) + max(player) AS y, upper(count(*)) AS z, collect_list(v) AS q]
    window: tumbling(1s)
    having: sum(v)
    order_by: q
"""
FOUND = [
    ("queries[6].windw", "no such key in the job file (given: queries[6].windw)"),
    ("queries[3]", "no such function (given: avgg)"),
    ("queries[3]", "the window length must be positive (given: '0s')"),
    (
        "queries[4]",
        (
            "query 'e': its window names the column 'ts', but the time column of the events is "
            "'at' (given: ts)"
        ),
    ),
    ("queries[5]", "query 'f': FROM takes the events of the job (given: FROM plys)"),
    ("time", "the time column 'at' is not a time (given: string)"),
    ("queries[0]", "query 'a': no such column (given: w)"),
    ("queries[0]", "query 'a': no such column (given: x)"),
    ("queries[0]", "query 'a': avg needs a number (given: player is string)"),
    ("queries[1]", "query 'b': no such column (given: playr)"),
    ("queries[2]", "query 'c': the where is not a condition (given: v is double)"),
    ("queries[2]", "+ needs numbers, not string and int64 (given: player + 1)"),
    ("queries[7]", "+ needs numbers, not double and string (given: `sum(v)` + `max(player)`)"),
    ("queries[7]", "UPPER needs text, not int64 (given: upper(`count(*)`))"),
    (
        "queries[7]",
        (
            "query 'h': nothing can be ordered by such values "
            "(given: `collect_list(v)` is list<item: double>)"
        ),
    ),
    (
        "queries[7]",
        "query 'h': the having condition is not a condition (given: `sum(v)` is double)",
    ),
]


@pytest.fixture
def plays() -> Path:
    path = Path("plays.parquet")
    pq.write_table(COLUMNS.empty_table(), path)
    return path


@pytest.mark.usefixtures("plays")
@pytest.mark.parametrize("command", ["validate", "explain"])
def test_all_that_keeps_a_job_from_running_is_listed(command: str, job: Path) -> None:
    job.write_text(BROKEN)
    result = catchment(command, "job.yaml", code=2)
    lines = [line.removeprefix("catchment: ") for line in result.stderr.splitlines()]
    assert result.stdout == ""
    told = json.loads(catchment(command, "job.yaml", "--json", code=2).stdout)
    assert [mistake["text"] for mistake in told["mistakes"]] == lines
    assert [(m["place"], m["text"].partition(";")[0]) for m in told["mistakes"]] == FOUND
    assert told["fine"] is False and told["warnings"] == [] and told["columns"] == 4
    assert told["mistakes"][9] == {
        "place": "queries[1]",
        "kind": "SchemaError",
        "what": "query 'b': no such column",
        "given": "playr",
        "hint": "did you mean 'player'?",
        "text": "query 'b': no such column (given: playr); did you mean 'player'? "
        "[in the job file: queries[1]]",
    }


@pytest.mark.usefixtures("plays")
@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("sum(v)", "sum(w)"),
        ("by: player", "by: playr"),
        ("time: ts", "time: tss"),
        ("window(ts", "window(at"),
        ("FROM plays", "FROM plas"),
        ("where: v > 0", "where: v + 'x' > 0"),
        ("between(v > 1, v > 2)", "between(v, v > 2)"),
    ],
)
def test_one_mistake_is_enough(wrong: str, right: str, job: Path) -> None:
    """What validate takes runs, and what does not run it refuses: one mistake at a time."""
    fine = """\
time: ts
source: {type: parquet, path: plays.parquet}
queries:
  - {name: a, select: [sum(v) AS s], by: player, where: v > 0, window: tumbling(1s)}
  - {name: b, sql: "SELECT count(*) FROM plays GROUP BY window(ts, '1s')"}
  - {name: c, select: [count(*) AS n], window: "between(v > 1, v > 2)"}
"""
    job.write_text(fine)
    assert catchment("validate", "job.yaml").stdout == "job.yaml is fine: 3 queries, 4 columns\n"
    assert "group 0" in catchment("explain", "job.yaml").stdout
    assert wrong in fine
    job.write_text(fine.replace(wrong, right))
    for command in ("validate", "explain"):
        lines = catchment(command, "job.yaml", code=2).stderr.splitlines()
        # The window in SQL names ts, which is then not the time column either.
        assert len(lines) == (2 if "time" in wrong else 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    time=st.sampled_from(["ts", "ts", "at", "tss"]),
    late=st.sampled_from(["drop", "update"]),
    queries=st.lists(
        st.tuples(
            st.sampled_from(["count(*)", "sum(v)", "sum(player)", "max(w)", "min(v + at)"]),
            st.sampled_from([None, None, "player", "playr"]),
            st.sampled_from([None, "v > 0", "v", "player = at", "w > 1"]),
            st.sampled_from(
                ["tumbling(1s)", "cut(v > 1)", "cut(player)", "{cut: {at: v > 1, reading: local}}"]
            ),
        ),
        max_size=4,
    ),
)
def test_validate_refuses_exactly_what_an_engine_refuses(
    time: str, late: Any, queries: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("validate")
    pq.write_table(COLUMNS.empty_table(), folder / "plays.parquet")
    sections = [
        {"name": f"q{n}", "select": [select], "window": yaml.safe_load(window)}
        | ({} if by is None else {"by": by})
        | ({} if where is None else {"where": where})
        for n, (select, by, where, window) in enumerate(queries)
    ]
    source = {"type": "parquet", "path": str(folder / "plays.parquet")}
    job = {"time": time, "late": late, "source": source, "queries": sections}
    (folder / "job.yaml").write_text(json.dumps(job))
    try:
        loaded = load_job(job)
        Engine(loaded.build(), **loaded.engine_options(), schema=COLUMNS)
        runs = True
    except CatchmentError:
        runs = False
    found = check.inspect(folder / "job.yaml")
    assert (not found.mistakes) == runs and not found.warnings
    # Each query is told of as if it were alone.
    for number, section in enumerate(sections):
        alone = {"late": late, "source": source, "queries": [section]}
        (folder / "job.yaml").write_text(json.dumps(alone))
        own = [m.error for m in check.inspect(folder / "job.yaml").mistakes]
        of_it = [m.error for m in found.mistakes if m.place == f"queries[{number}]"]
        assert [(type(e), e.given) for e in of_it] == [(type(e), e.given) for e in own]


@pytest.mark.parametrize("command", ["validate", "explain"])
def test_a_source_that_cannot_be_reached_is_a_warning(command: str, job: Path) -> None:
    """The rest is checked all the same."""
    job.write_text(BROKEN)
    lines = catchment(command, "job.yaml", code=2).stderr.splitlines()
    assert lines[0] == (
        "catchment: warning: no such file or folder (given: plays.parquet); check the path "
        "[in the job file: source]"
    )
    starts = [line.removeprefix("catchment: ").partition(";")[0] for line in lines[1:]]
    assert starts == [text for _, text in FOUND[:5]]
    job.write_text(JOB.replace("generator, events: 1000", "parquet, path: nowhere"))
    told = json.loads(catchment(command, "job.yaml", "--json").stdout)
    assert told["fine"] and [warning["place"] for warning in told["warnings"]] == ["source"]
    result = catchment(command, "job.yaml", "--offline")
    assert result.stderr == ""


def test_columns_that_the_file_gives_are_held_to_although_the_source_is_down(job: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    job.write_text(
        f"source: {{type: kafka, servers: '127.0.0.1:{port}', topic: plays,"
        " schema: {ts: timestamp, v: double}}\n"
        "queries: [{name: q, select: [sum(w)], by: player, window: tumbling(1s)}]\n"
    )
    lines = catchment("validate", "job.yaml", code=2).stderr.splitlines()
    assert lines[0].startswith("catchment: warning: Kafka does not answer")
    assert [line.partition(";")[0] for line in lines[1:]] == [
        "catchment: query 'q': no such column (given: player)",
        "catchment: query 'q': no such column (given: w)",
    ]


def test_a_source_that_is_there_and_wrong_is_a_mistake(plays: Path, job: Path) -> None:
    plays.write_bytes(b"this is no Parquet file")
    job.write_text(JOB.replace("generator, events: 1000", "parquet, path: plays.parquet"))
    assert "no file can be read" in refused("validate", "job.yaml", code=1)
    pq.write_table(COLUMNS.empty_table(), plays)
    text = JOB.replace("generator, events: 1000", "parquet, path: plays.parquet")
    job.write_text(text.replace("plays.parquet", "plays.parquet, schema: {ts: timestamp, w: int}"))
    assert "a file does not fit the schema" in refused("validate", "job.yaml", code=1)


def test_connect_and_offline_exclude_each_other() -> None:
    assert "exclude" in refused("validate", "job.yaml", "--connect", "--offline", code=2)


def test_sinks_are_asked_with_connect(job: Path) -> None:
    Path("results").write_text("not a folder")
    job.write_text(JOB.replace("generator, events: 1000", "parquet, path: nowhere"))
    assert "is fine" in catchment("validate", "job.yaml").stdout
    told = json.loads(catchment("validate", "job.yaml", "--connect", "--json", code=1).stdout)
    assert [mistake["place"] for mistake in told["mistakes"]] == ["source", "sinks[0]"]


TREE = """\
name: sites
checkpoint: state
nodes:
  - {id: root, listen: 127.0.0.1:7401}
  - {id: a, parent: root, source: {type: parquet, path: a/plays.parquet}}
  - {id: b, parent: root, source: {type: parquet, path: b/plays.parquet}}
  - {id: c, parent: root, source: {type: parquet, path: c/plays.parquet}}
queries:
  - {name: mean, select: [avg(v) AS m], by: player, window: tumbling(1s)}
  - {name: most, sql: "SELECT max(v) FROM plays GROUP BY window(ts, '1s')"}
"""


@pytest.fixture
def sites(plays: Path) -> Path:
    for site in "abc":
        Path(site).mkdir()
        (Path(site) / plays.name).write_bytes(plays.read_bytes())
    return plays


@pytest.mark.usefixtures("sites")
def test_a_tree_is_looked_at_node_by_node(job: Path) -> None:
    job.write_text(TREE)
    assert catchment("validate", "job.yaml").stdout == "job.yaml is fine: 2 queries, 4 columns\n"
    pq.write_table(COLUMNS.remove(3).empty_table(), "b/plays.parquet")
    Path("c/plays.parquet").unlink()
    job.write_text(TREE.replace("avg(v) AS m", "avg(v) AS m, sum(w) AS s"))
    for command in ("validate", "explain"):
        lines = catchment(command, "job.yaml", code=2).stderr.splitlines()
        assert [line.removeprefix("catchment: ").partition(";")[0] for line in lines] == [
            "warning: no such file or folder (given: c/plays.parquet)",
            "query 'mean': no such column (given: w)",
            "query 'mean': no such column (given: v)",
            "query 'most': no such column (given: v)",
        ]
        assert lines[0].endswith("[in the job file: nodes[3].source]")
        assert lines[1].endswith("[in the job file: queries[0]]")
        assert lines[2].endswith("[in the job file: queries[0], over nodes[2].source]")


@pytest.mark.usefixtures("sites")
@pytest.mark.parametrize("command", ["validate", "explain"])
def test_what_makes_no_tree_is_listed_with_the_queries_it_cannot_take(
    command: str, job: Path
) -> None:
    text = TREE.replace("{id: b, parent: root,", "{id: b, parent: rot,")
    text = text.replace("checkpoint: state\n", "").replace("id: a, ", "id: a, home: here, ")
    job.write_text(
        text + "  - {name: clock, select: [count(*)], window: tumbling(1s), measure: processing}\n"
    )
    lines = catchment(command, "job.yaml", code=2).stderr.splitlines()
    assert [line.removeprefix("catchment: ").partition(";")[0] for line in lines] == [
        "a tree has many clocks: windows by processing time make no sense in it (given: clock)",
        "a node's parent is unknown (given: rot, the parent of b)",
        "a node needs a folder (given: root)",
        "a node needs a folder (given: b)",
        "a node needs a folder (given: c)",
    ]


def test_some_nodes_of_a_tree_whose_root_is_elsewhere(job: Path) -> None:
    job.write_text(
        "checkpoint: state\nqueries: []\n"
        "nodes: [{id: a, parent: '10.0.0.5:7401', source: {type: generator, events: 5}}]\n"
    )
    assert "is fine" in catchment("validate", "job.yaml").stdout


def mistakes(text: str, job: Path) -> list[tuple[str, str]]:
    job.write_text(text)
    told = json.loads(catchment("validate", "job.yaml", "--json", code=2).stdout)
    return [(one["place"], one["text"].partition(";")[0]) for one in told["mistakes"]]


@pytest.mark.usefixtures("sites")
def test_a_root_that_is_not_on_spark_writes_nothing_through_spark(job: Path) -> None:
    text = TREE + "sinks: [{type: memory}, {type: spark, format: orc, path: out}]\n"
    told = "only a root on Spark writes results through Spark (given: format: orc, and the root "
    why = "root has no engine, so catchment up makes it embedded)"
    assert mistakes(text, job) == [("sinks[1]", told + why)]
    embedded = text.replace("{id: root,", "{id: root, engine: embedded,")
    assert mistakes(embedded, job) == [("sinks[1]", f"{told}root has engine: embedded)")]
    job.write_text(text.replace("{id: root,", "{id: root, engine: spark,"))
    assert "is fine" in catchment("validate", "job.yaml").stdout


@pytest.mark.usefixtures("sites")
def test_results_that_a_sink_never_takes_are_all_listed(job: Path) -> None:
    """Each once, although three sources tell of them; sinks that are left out are counted."""
    sinks = "sinks: [{type: memry}, {type: prometheus, url: 'http://127.0.0.1:9/in'}]\n"
    text = TREE.replace("AS m]", "AS m, max(player), first(player) AS f]") + sinks
    assert mistakes(text, job)[1:] == [
        ("sinks[1]", "column 'max(player)' of query 'mean' is no number (given: string)"),
        ("sinks[1]", "column 'f' of query 'mean' is no number (given: string)"),
    ]
    named = sinks.replace("{type: memry}, ", "").replace("in'}", "in', columns: [m, 'max(v)']}")
    job.write_text(text.replace(sinks, named))
    assert "is fine" in catchment("validate", "job.yaml").stdout
    assert mistakes(text.replace(sinks, named.replace("[m, 'max(v)']", "[m]")), job) == [
        ("sinks[0]", "query 'most' has none of the columns to send (given: m)"),
    ]
    same = named.replace("columns", "metric: x, columns")
    assert [place for place, _ in mistakes(text.replace(sinks, same), job)] == ["sinks[0]"]


@pytest.mark.usefixtures("plays", "no_spark")
def test_a_column_that_spark_would_replace(job: Path) -> None:
    text = """\
source: {type: parquet, path: plays.parquet}
checkpoint: state
sinks: [{type: spark, format: parquet, path: out}]
queries:
  - {name: a, select: [sum(v) AS Batch], window: tumbling(1s)}
  - name: b
    sql: >-
      SELECT max(s) AS batch FROM (SELECT sum(v) AS s FROM plays GROUP BY window(ts, '1s'))
      GROUP BY window(window_time, '5s')
"""
    told = "has a column that files of Spark have for the number of a batch"
    found = [
        ("sinks[0]", f"query 'a' {told} (given: Batch)"),
        ("sinks[0]", f"query 'b' {told} (given: batch)"),
    ]
    assert mistakes(text, job) == found
    assert found[0][1] in refused("run", "job.yaml", code=2)
    job.write_text(text.replace("path: out", "table: 'lake.{query}'"))
    assert "is fine" in catchment("validate", "job.yaml").stdout
    whole = text.replace("Batch", "n").replace("AS batch", "AS m") + "trigger: batch\n"
    batch = "a batch job does not write through Spark's formats (given: format: parquet)"
    assert mistakes(whole, job) == [("sinks[0]", batch)]


@pytest.mark.usefixtures("plays", "no_spark")
@pytest.mark.parametrize(
    "place", ["format: parquet, path: out", "format: delta, table: 'a.{query}'"]
)
def test_columns_that_spark_takes_for_one(job: Path, place: str) -> None:
    text = f"""\
source: {{type: parquet, path: plays.parquet}}
checkpoint: state
sinks: [{{type: spark, {place}}}]
queries:
  - {{name: a, select: [sum(v) AS V, max(v) AS v, min(v) AS low], window: tumbling(1s)}}
  - {{name: b, select: [sum(v) AS Window_End], window: tumbling(1s)}}
"""
    told = "has two columns that Spark takes for one"
    assert mistakes(text, job) == [
        ("sinks[0]", f"query 'a' {told} (given: V and v)"),
        ("sinks[0]", f"query 'b' {told} (given: window_end and Window_End)"),
    ]
    job.write_text(text.replace("type: spark, " + place, "type: memory"))
    assert "is fine" in catchment("validate", "job.yaml").stdout


def test_a_column_that_spark_would_replace_is_not_written() -> None:
    sink = SparkFormat(format="orc", path="out")
    frame: Any = SimpleNamespace(columns=["k", "BATCH"], write=None)
    with pytest.raises(SinkError, match=r"query 'q' has a column .* \(given: BATCH\)"):
        write_frame(sink, frame, "q", "job", 0)
    assert not [*taken_columns(SparkFormat(format="delta", path="out"), "q", ["batch"])]


def test_tables_of_spark_are_of_one_query_each() -> None:
    names = [
        "speed",
        "Speed",
        "SPEED",
        "speed.max",
        "speed_max",
        "speed max",
        "é",
        "É",
        "",
        "_",
        "5",
        "q_5",
        "`",
        "x" * 128,
        "x" * 129,
        "x" * 130,
    ]
    tables = [table_name("lake.{query}", name) for name in names]
    tables += [table_name("lake.{query}", made.removeprefix("lake.")) for made in tables[1:3]]
    assert len({table.lower() for table in tables}) == len(tables)
    assert all(re.fullmatch("lake\\.[a-z_][a-z0-9_]{0,127}", table) for table in tables)
    assert (tables[0], tables[4]) == ("lake.speed", "lake.speed_max")


@pytest.mark.usefixtures("plays")
def test_a_query_that_names_another_time_is_fitted_all_the_same(job: Path) -> None:
    text = """\
source: {type: parquet, path: plays.parquet}
queries: [{name: b, sql: "SELECT sum(x) FROM plays GROUP BY window(at, '1s')"}]
"""
    assert [told.rpartition(" (")[2] for _, told in mistakes(text, job)] == [
        "given: at)",
        "given: x)",
    ]


# -- queries -------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Any:
    """The folder of a job that has run."""
    folder = job_folder.home_of(str(tmp_path / "state"))
    folder.write("job.json", records.encode(IDENTITY))
    return folder


@pytest.mark.usefixtures("home")
def test_queries_come_and_go(tmp_path: Path) -> None:
    where = ("--checkpoint", "state")
    sql = "SELECT player, avg(v) AS mean FROM events WHERE v > 5 GROUP BY player, window(ts, '5s')"
    catchment("queries", "add", "--sql", sql, "--name", "speed", *where)
    (tmp_path / "two.yaml").write_text(
        "- {name: a, select: [count(*)], window: tumbling(1s)}\n"
        "- {name: b, select: [count(*)], window: session(2s)}\n"
    )
    catchment("queries", "add", "two.yaml", "--job", "job.yaml")
    listed = json.loads(catchment("queries", "ls", "--json", *where).stdout)
    assert [query["name"] for query in listed["queries"]] == ["a", "b", "speed"]
    assert listed["queries"][2]["text"] == (
        "avg(v) AS mean by player where v > 5 over tumbling(5s)"
    )
    assert "two queries have one name" in refused("queries", "add", "two.yaml", *where, code=2)
    catchment("queries", "rm", "a", "speed", *where)
    assert "did you mean 'b'?" in refused("queries", "rm", "bb", *where, code=2)
    (tmp_path / "state" / "catchment" / "queries" / "odd.yaml").write_text("name: [")
    text = catchment("queries", "ls", *where).stdout
    assert "session(2s)" in text and "rejected: odd.yaml" in text


def test_queries_of_no_job() -> None:
    assert "no job has run there" in refused("queries", "ls", "--job", "job.yaml", code=2)
    assert "--checkpoint" in refused("queries", "ls", code=2)


def test_a_query_file_is_held_to_the_job_too(home: Any) -> None:
    """A file that somebody puts into the job's folder, without any command."""
    home.write(
        "job.json",
        records.encode(structs.replace(IDENTITY, tables=("live", "plays"))),
    )
    for table, column in (("live", "ts"), ("PLAYS", "ts"), ("plas", "ts"), ("live", "at")):
        text = f"SELECT count(*) AS n FROM {table} GROUP BY window({column}, '1s')"
        query = {"name": f"{table} {column}", "sql": text}
        home.sub("queries").write(f"{table}-{column}.yaml", json.dumps(query).encode())
    queries, rejected = QueryFolder(home).read()
    assert sorted(queries) == ["PLAYS ts", "live ts"]
    assert all(query.time is query.table is None for query in queries.values())
    assert "did you mean 'plays'?" in rejected["plas-ts.yaml"]
    assert "but the time column of the events is 'ts'" in rejected["live-at.yaml"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "either a file or --sql"),
        (("--sql", "SELECT 1"), "add --name"),
        (("--sql", "SELEC", "--name", "q"), "SQL"),
        (("none.yaml",), "none.yaml"),
        (
            ("--sql", "SELECT count(*) FROM events GROUP BY window(at, '1s')", "--name", "q"),
            "its window names the column 'at', but the time column of the events is 'ts'",
        ),
        (
            (
                "--sql",
                "SELECT count(*) FROM events GROUP BY session_window(at, '1s')",
                "--name",
                "q",
            ),
            "its window names the column 'at', but the time column of the events is 'ts'",
        ),
        (
            ("--sql", "SELECT count(*) FROM evnts GROUP BY count_window(3)", "--name", "q"),
            "FROM takes the events of the job (given: FROM evnts); did you mean 'events'?",
        ),
        (("at.yaml",), "its window names the column 'at'"),
        (("local.yaml",), "windows cut on each node cannot be corrected by late events"),
        (("lost.yaml",), "query 'q': no such column (given: playr); did you mean 'player'?"),
    ],
)
def test_queries_that_cannot_be_added(words: tuple[str, ...], expected: str, home: Any) -> None:
    """A job that corrects results with late events, and whose columns are known."""
    home.write("job.json", records.encode(structs.replace(IDENTITY, late="update")))
    columns = pa.schema([("ts", pa.timestamp("us")), ("player", pa.string()), ("m", pa.bool_())])
    home.write(job_folder.SCHEMA, columns.serialize().to_pybytes())
    Path("at.yaml").write_text(
        "{name: q, sql: \"SELECT count(*) FROM events GROUP BY window(at, '1s')\"}"
    )
    Path("local.yaml").write_text(
        "{name: q, select: [count(*)], window: {cut: {at: m, reading: local}}}"
    )
    Path("lost.yaml").write_text("{name: q, select: [count(*)], by: playr, window: tumbling(1s)}")
    assert expected in refused("queries", "add", "--checkpoint", "state", *words, code=2)


# -- what the job's folder tells -----------------------------------------------------------------


def test_a_stream_and_a_batch_job_do_not_share_a_checkpoint(home: Any) -> None:
    job_folder.only("stream", home)
    job_folder.only("batch", home)
    home.write(job_folder.DONE, json.dumps(RUNNING.to_dict()).encode())
    assert job_folder.ended_batch(home) == RUNNING
    with pytest.raises(StateError, match="of a batch job"):
        job_folder.only("stream", home)
    home.remove(job_folder.DONE)
    home.write("given.json", b"[]")
    with pytest.raises(StateError, match="of a stream"):
        job_folder.only("batch", home)


# -- metrics and lines ---------------------------------------------------------------------------


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    served = Metrics(0)
    yield served
    served.close()


def test_metrics(metrics: Metrics) -> None:
    metrics._job.heard(RUNNING)
    metrics.spark.name = "live-1"
    state = SimpleNamespace(
        numRowsTotal=4, memoryUsedBytes=1234, customMetrics={"rocksdbSstFileSize": 99}
    )
    batch = SimpleNamespace(
        name="live-1", batchDuration=2500, processedRowsPerSecond=8.0, stateOperators=[state]
    )
    metrics.spark.onQueryProgress(SimpleNamespace(progress=batch))
    other = SimpleNamespace(name="other", batchDuration=9_000_000)
    metrics.spark.onQueryProgress(SimpleNamespace(progress=other))
    with urllib.request.urlopen(metrics.address, timeout=PATIENCE) as answer:
        lines = answer.read().decode().splitlines()
    for expected in (
        'catchment_events_total{job="live-1"} 100.0',
        'catchment_late_total{job="live-1"} 6.0',
        'catchment_results_total{job="live-1"} 40.0',
        'catchment_frontier_seconds{job="live-1"} 1.7672256415e+09',
        'catchment_lag_seconds{job="live-1"} 2.0',
        'catchment_state{job="live-1",state="running"} 1.0',
        'catchment_state{job="live-1",state="failed"} 0.0',
        'catchment_partition_newest_seconds{job="live-1",partition="a"} 1.7672256435e+09',
        'catchment_batch_seconds_sum{job="live-1"} 2.5',
        'catchment_state_rows{job="live-1"} 4.0',
        'catchment_state_file_bytes{job="live-1"} 99.0',
    ):
        assert expected in lines


COUNTED = replace(
    RUNNING,
    open_windows=4,
    open_events=30,
    aside_dropped=2,
    never_read=(NeverRead("a.csv", "8 bytes came after the file was read", 8, 5),),
    limits=(Capacity("outbox", 7, 9, "bytes", "nothing is read"),),
)


def test_metrics_of_what_is_counted_and_bounded(metrics: Metrics) -> None:
    metrics._job.heard(COUNTED)
    with urllib.request.urlopen(metrics.address, timeout=PATIENCE) as answer:
        lines = answer.read().decode().splitlines()
    for expected in (
        'catchment_open_windows{job="live-1"} 4.0',
        'catchment_open_events{job="live-1"} 30.0',
        'catchment_aside_dropped_total{job="live-1"} 2.0',
        'catchment_never_read_rows{job="live-1"} 5.0',
        'catchment_used{job="live-1",of="outbox",unit="bytes"} 7.0',
        'catchment_limit{job="live-1",of="outbox",unit="bytes"} 9.0',
    ):
        assert expected in lines


def test_the_summary_tells_what_is_in_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    live.LineReporter().end(live.Ending(COUNTED, [], "state", 1.0))
    out = capsys.readouterr().out
    for what, count in (
        ("windows that never ended", 4),
        ("  accepted events in them", 30),
        ("late and bad rows that were not kept", 2),
        ("rows that were never read", 5),
    ):
        assert re.search(rf"{what}\s*│\s*{count}\b", out), what
    assert "never read: a.csv: 8 bytes came after the file was read (5 rows)" in out
    assert "never read 5  not kept 2" in live.line(COUNTED)


def test_the_live_line() -> None:
    assert live.line(RUNNING) == (
        "100 events  5,000 events/s  frontier 2026-01-01 00:00:41.5  lag 2.0 s  late 6  "
        "results 40  bad 3  1 query file(s) rejected  1 file(s) waiting"
    )
    assert live.line(RUNNING, brief=True).startswith(
        "100 events  5,000/s  frontier 00:00:41  lag 2.0 s  late 6  results 40"
    )
    assert live.line(Status("starting", "j")) == "0 events  late 0  results 0"


def test_plain_lines_come_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 100.0, 101.0, 106.0, 106.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with live.LineReporter() as voice:
        for _ in range(3):
            voice.heard(RUNNING)
        voice.phase("reading splits", 0, 4)
        voice.phase("reading splits", 1, 4)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[-1] == "catchment: reading splits (0 of 4 done)"


def test_the_demo_says_of_what_so_many_are_done(capsys: pytest.CaptureFixture[str]) -> None:
    demo_spark.report_progress(live.LineReporter(), replace(RUNNING, events=2_500_000), 10_000_000)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("2.5 M events (2,500,000 of 10,000,000 done)")


def test_the_line_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with live.StatusLine() as voice:
        voice.phase("reading splits", 1, 4)
        voice.note("a sentence")
        voice.heard(RUNNING)
    assert "a sentence" in capsys.readouterr().err


def test_the_summary_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    live.LineReporter().end(live.Ending(RUNNING, ["parquet: path results"], "state", 1.0))
    out = capsys.readouterr().out
    for expected in (
        "live-1: running",
        "90",
        "results: parquet: path results",
        "bad rows: state/catchment/aside",
        "query file rejected: x.yaml: why",
        "file waiting: y.parquet: not whole",
    ):
        assert expected in out


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with live.voice(as_json=True, quiet=True) as voice:
        voice.note("x")
        voice.phase("x")
        voice.heard(RUNNING)
        voice.end(live.Ending(RUNNING))
    assert capsys.readouterr() == ("", "")
