"""What an installed package adds by entry points: found by name in SQL, YAML and Python, anywhere.

`tests/plugin_package` is such a package. It is installed into a folder of its own, and processes
that have this folder on their path use it; others are told what they lack.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from catchment import registry
from catchment.errors import ExtensionError, JobError
from catchment.flush.policy import POLICIES, CachePolicy, parse, register_policy
from catchment.functions import FUNCTIONS, Function, make, register_function
from catchment.functions.sums import Avg
from catchment.job import load_job
from catchment.measure.ports import free_port
from catchment.model.query import Aggregate, Query
from catchment.model.window import BUILDERS
from catchment.operators import (
    OPERATORS,
    Computed,
    Fields,
    Grouping,
    Input,
    Operator,
    OperatorRef,
    register_operator,
)
from catchment.registry import Registry
from catchment.sinks import Memory, Sink
from catchment.sinks.parquet import ParquetSink
from catchment.sources import Source
from catchment.sqltext import sql
from catchment.testing.compare import rows_of
from catchment.testing.laws import check_laws
from catchment.windows import tumbling

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tests" / "plugin_package"
EVENTS = 200
SELECT = ["rms(v) AS x", "spelled(v) AS s"]

QUERIES: list[dict[str, Any]] = [
    {"name": "yaml", "select": SELECT, "by": "k", "window": "overlapping(4s)"},
    {"name": "mapping", "select": SELECT, "by": "k", "window": {"overlapping": "4s"}},
    {
        "name": "sql",
        "sql": "SELECT k, rms(v) AS x, spelled(v) AS s FROM events GROUP BY k, "
        "overlapping(ts, '4 seconds')",
    },
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package is installed into, from what is on this machine."""
    home = tmp_path_factory.mktemp("extensions")
    uv = Path(sys.executable).with_name("uv")
    options = ["--offline", "--no-deps", "--no-build-isolation", "--python", sys.executable]
    places = ["--target", str(home / "site"), "--cache-dir", str(home / "cache")]
    done = subprocess.run(
        [str(uv), "pip", "install", *options, *places, str(PACKAGE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return home / "site"


def environment(site: Path | None) -> dict[str, str]:
    paths = [str(ROOT / "src"), *([] if site is None else [str(site)])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def python(code: str, site: Path | None, *words: str) -> Any:
    """What a process prints as JSON, with the package or without it."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=environment(site),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def expected(copies: int = 1) -> list[list[Any]]:
    """Key, start, rms and text of each window: events n = 0, 1, ... at n / 10 s, k = n % 3."""
    found = []
    for start in range(-2, EVENTS // 10, 2):
        for key in range(3):
            numbers = [n for n in range(EVENTS) if start <= n / 10 < start + 4 and n % 3 == key]
            values = [n % 7 for n in numbers for _ in range(copies)]
            if values:
                mean = sum(v * v for v in values) / len(values)
                found.append([key, start, round(math.sqrt(mean), 9), "".join(map(str, values))])
    return found


COLLECT = """
def rows(table):
    found = []
    for row in table.to_pylist():
        start = round(row["window_start"].timestamp())
        found.append([row["k"], start, round(row["x"], 9), row["s"]])
    return sorted(found, key=lambda row: (row[1], row[0]))
"""

LOCAL = (
    """
import json, sys
import catchment as ct
from catchment.sources import Source
"""
    + COLLECT
    + """
text = ct.sql("SELECT k, rms(v) AS x, spelled(v) AS s FROM events "
              "GROUP BY k, overlapping('4s')", "text")
made = ct.Query("python", ct.rms("v").alias("x"), ct.spelled("v").alias("s"),
                by="k", window=ct.overlapping("4s"))
job = ct.load_job(json.loads(sys.argv[1]))
engine = ct.Engine([made, text, *job.build()])
for split in job.source.splits(job.source.start(), job.source.bound({}), 1):
    for piece in job.source.read(split, None, None):
        engine.push(piece.events)
        engine = ct.Engine.restore(engine.snapshot())
results = engine.close()
print(json.dumps({name: rows(results[name]) for name in results}))
"""
)


def job_of(**more: Any) -> dict[str, Any]:
    return {"queries": QUERIES, "source": {"type": "ramp", "events": EVENTS}} | more


def test_a_package_is_used_in_sql_yaml_and_python(site: Path) -> None:
    found = python(LOCAL, site, json.dumps(job_of()))
    assert sorted(found) == ["mapping", "python", "sql", "text", "yaml"]
    for name, rows in found.items():
        assert rows == expected(), name


def lines(folder: Path) -> dict[str, list[list[Any]]]:
    """What the package's sink has written, as `expected` has it."""
    found: dict[str, list[list[Any]]] = {}
    for path in sorted(folder.iterdir()):
        for row in map(json.loads, path.read_text().splitlines()):
            second = {"69": -2}.get(row["window_start"][2:4])
            if second is None:
                second = int(row["window_start"][17:19])
            held = found.setdefault(row["query"], [])
            held.append([row.get("k"), second, round(row["x"], 9), row.get("s")])
    return {name: sorted(rows, key=lambda row: (row[1], row[0])) for name, rows in found.items()}


def test_in_a_tree(site: Path, tmp_path: Path) -> None:
    source = {"type": "ramp", "events": EVENTS, "per_batch": 7}
    early = {"name": "early", "select": ["rms(v) AS x"], "window": "overlapping(4s)"}
    port = free_port()
    job = {
        "queries": [*QUERIES, early],
        "flush": "cautious",
        "sinks": [{"type": "lines", "path": str(tmp_path / "out")}],
        "checkpoint": str(tmp_path / "state"),
        "nodes": [
            {"id": "root", "listen": f"127.0.0.1:{port}"},
            {"id": "a", "parent": "root", "source": source},
            {"id": "b", "parent": "root", "source": source},
        ],
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    asked = tmp_path / "asked"
    done = subprocess.run(
        [sys.executable, "-m", "catchment.cli.main", "up", str(path), "--engine", "embedded"],
        env=environment(site) | {"CATCHMENT_EXAMPLE_ASKED": str(asked)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    written = {name: rows for name, rows in lines(tmp_path / "out").items() if name != "early"}
    assert written == {query["name"]: expected(copies=2) for query in QUERIES}
    assert asked.exists(), "nobody asked the flush policy"


# -- windows of one's own, by time and by events ---------------------------------------------------

OWN: list[dict[str, Any]] = [
    {"name": "shifts", "select": ["count(*) AS n"], "by": "k", "window": "shifts(2)"},
    {
        "name": "climb",
        "sql": "SELECT k, count(*) AS n FROM events GROUP BY k, climb(ts, v, 700)",
    },
]
Bounded = list[tuple[int, int, int, int]]
"""Key, start, end and number of events of windows, times in microseconds."""


def own_windows() -> dict[str, Bounded]:
    """Straight from the definitions: events n = 0, 1, ... at n / 10 s, k = n % 3, v = n % 7."""
    shifts: Bounded = []
    for key, start in itertools.product(range(3), range(-8, EVENTS // 10, 8)):
        held = [n for n in range(EVENTS) if n % 3 == key and start * 10 <= n < (start + 11) * 10]
        if held:
            shifts.append((key, start * 1_000_000, (start + 11) * 1_000_000, len(held)))
    climbs: Bounded = []
    for key in range(3):
        numbers = list(range(key, EVENTS, 3))
        first = 0
        for at in range(1, len(numbers) + 1):
            ended = at == len(numbers)
            if ended or numbers[at] % 7 < numbers[at - 1] % 7:
                end = numbers[at - 1] * 100_000 + 700_000 if ended else numbers[at] * 100_000
                climbs.append((key, numbers[first] * 100_000, end, at - first))
                first = at
    return {"shifts": sorted(shifts), "climb": sorted(climbs)}


OWN_ROWS = """
import json, sys
import catchment as ct

def own_rows(table):
    found = []
    for row in table.to_pylist():
        bounds = (row["window_start"].timestamp(), row["window_end"].timestamp())
        found.append((row["k"], *(round(time * 1_000_000) for time in bounds), row["n"]))
    return sorted(found)
"""

OWN_LOCAL = (
    OWN_ROWS
    + """
job = ct.load_job(json.loads(sys.argv[1]))
queries = job.build()
from catchment_example.climb import climb
from catchment_example.shifts import shifts
assert queries[1].window == climb("v", 700) and queries[0].window == shifts(2)
results = ct.run(job.source, queries, spark=False)
from catchment.testing.window_laws import check_window
split = job.source.splits({"n": 0}, {"n": 90}, 1)[0]
events = next(iter(job.source.read(split, None, None))).events
for query in queries:
    check_window(query.window, events, by="k", rounds=4)
print(json.dumps({name: own_rows(results[name]) for name in ("shifts", "climb")}))
"""
)

SPARK = (
    COLLECT
    + OWN_ROWS
    + """
from catchment.sinks.parquet import ParquetSink
found = {}
batch, stream = (ct.Job.load(json.loads(text)) for text in sys.argv[1:3])
for job, name_rows in ((batch, rows), (stream, own_rows)):
    results = ct.run(job.source, job.build(), buckets=2)
    found |= {query.name: name_rows(results[query.name]) for query in job.build()}
    job.start().wait()
sink = ParquetSink(path=sys.argv[3])
found |= {f"{query.name} streamed": own_rows(sink.read(query.name)) for query in stream.build()}
print(json.dumps(found))
"""
)


def as_lists(found: dict[str, Bounded]) -> dict[str, list[list[int]]]:
    return {name: [list(row) for row in rows] for name, rows in found.items()}


def test_windows_of_a_package_and_their_laws(site: Path) -> None:
    found = python(OWN_LOCAL, site, json.dumps(job_of(queries=OWN)))
    assert found == as_lists(own_windows())


@pytest.mark.spark
@pytest.mark.slow
def test_on_spark(site: Path, tmp_path: Path) -> None:
    """Functions, windows, a source and a sink of the package in a batch, and windows in a stream
    whose source ends, so that all of them come."""
    lined = [{"type": "lines", "path": str(tmp_path / "lines")}]
    batch = job_of(sinks=lined, checkpoint=str(tmp_path / "batch"), trigger="batch")
    sinks = [{"type": "parquet", "path": str(tmp_path / "out")}]
    state = str(tmp_path / "stream")
    stream = job_of(queries=OWN, sinks=sinks, checkpoint=state, trigger="available-now")
    found = python(SPARK, site, json.dumps(batch), json.dumps(stream), str(tmp_path / "out"))
    written = lines(tmp_path / "lines")
    for name in ("yaml", "mapping", "sql"):
        assert found[name] == written[name] == expected(), name
    for name, rows in as_lists(own_windows()).items():
        assert found[name] == found[f"{name} streamed"] == rows


def test_windows_of_a_package_in_a_tree(site: Path, tmp_path: Path) -> None:
    port = free_port()
    job = {
        "queries": OWN,
        "sinks": [{"type": "parquet", "path": str(tmp_path / "out")}],
        "checkpoint": str(tmp_path / "state"),
        "nodes": [
            {"id": "root", "listen": f"127.0.0.1:{port}"},
            {"id": "a", "parent": "root", "source": {"type": "ramp", "events": EVENTS}},
        ],
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    done = subprocess.run(
        [sys.executable, "-m", "catchment.cli.main", "up", str(path), "--engine", "embedded"],
        env=environment(site),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sink = ParquetSink(path=str(tmp_path / "out"))
    for name, wanted in own_windows().items():
        rows = rows_of(sink.read(name))
        bounds = ("k", "window_start", "window_end", "n")
        assert sorted(tuple(row[column] for column in bounds) for row in rows) == wanted


# -- without the package --------------------------------------------------------------------------

PLAN = """
import base64, json, pickle, sys
import catchment as ct
from catchment.flush import read
from catchment.sources import Source

def shown(made):
    return base64.b64encode(pickle.dumps(made)).decode()

tumbling = ct.Query("q", ct.rms("v"), window=ct.tumbling("4s"))
overlapping = ct.Query("q", ct.count(), window=ct.overlapping("4s"))
spelled = ct.Query("q", ct.spelled("v"), window=ct.tumbling("4s"))
print(json.dumps({
    "function": shown(ct.plan([tumbling]).to_bytes()),
    "operator": shown("power"),
    "window": shown(ct.plan([overlapping]).to_bytes()),
    "defined": shown(ct.plan([spelled]).to_bytes()),
    "source": shown(Source.model_validate({"type": "ramp", "events": 9})),
    "flush": shown(read("cautious")),
}))
"""

RUN = """
import base64, json, pickle, sys
import pyarrow as pa
from catchment.engine.bound import BoundPlan
from catchment.job import examine
from catchment.model.plan import Plan
from catchment.model.rules import EventRules
from catchment.operators import operator_class

given = json.loads(sys.argv[1])
schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])

def used(kind):
    made = pickle.loads(base64.b64decode(given[kind]))
    if kind == "flush":
        made.check()
    elif kind == "operator":
        operator_class(made)
    elif kind != "source":
        BoundPlan(Plan.from_bytes(made), EventRules("ts"), schema).slicer()

said = {}
for kind in given:
    try:
        used(kind)
    except Exception as error:
        said[kind] = f"{type(error).__name__}: {error}"
said["job"] = [mistake.text for mistake in examine(json.loads(sys.argv[2])).mistakes]
print(json.dumps(said))
"""


def test_a_process_without_the_package_is_told_what_it_lacks(site: Path) -> None:
    made = python(PLAN, site)
    job = job_of(flush="cautious", sinks=[{"type": "lines", "path": "out"}])
    assert python(RUN, site, json.dumps(made), json.dumps(job)) == {"job": []}
    said = python(RUN, None, json.dumps(made), json.dumps(job))
    for kind, error, name, group in [
        ("function", "QueryError: no such function", "rms", "functions"),
        ("operator", "QueryError: no such operator", "power", "operators"),
        ("window", "QueryError: no such window", "overlapping", "windows"),
        ("defined", "QueryError: no such function", "spelled", "functions"),
        ("source", "ExtensionError: a source of this name", "ramp", "sources"),
        ("flush", "JobError: no such flush policy", "cautious", "flush_policies"),
    ]:
        assert said[kind].startswith(error), said[kind]
        assert f"the entry point {name!r} of catchment.{group}" in said[kind]
    told = " | ".join(said["job"])
    for name, group in [
        ("rms", "functions"),
        ("ramp", "sources"),
        ("lines", "sinks"),
        ("cautious", "flush_policies"),
    ]:
        assert f"the entry point {name!r} of catchment.{group}" in told, told
    assert "no such window (given: overlapping)" in told


LAWS = """
import json
import pyarrow as pa
import catchment as ct
from catchment.testing.laws import check_laws

times = pa.array([0, 1, 1, 2, 5, 5, 7, 11], pa.timestamp("us"))
events = pa.table({"ts": times, "v": [1, None, 3, 4, None, None, 2, 0]})
for function in (ct.rms, ct.spelled):
    check_laws(ct.Query("q", function("v"), window=ct.overlapping("4us")), events)
print(json.dumps("kept"))
"""


def test_the_laws_can_be_held_against_what_a_package_has(site: Path) -> None:
    assert python(LAWS, site) == "kept"


class Greatest(Operator):
    """Breaks the law: it adds values, but of partials it keeps the greatest."""

    kind = "x_greatest"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"value": pa.float64()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        return {"value": events.groups.add(events.values.astype(np.float64))}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        return {"value": groups.max(np.asarray(rows[self.ref]["value"]))}


class GreatestOf(Function):
    name = "x_greatest_of"

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("x_greatest", aggregate.column),)

    def lower(self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None) -> pa.Array:
        return pa.array(computed[self.operators(aggregate)[0]]["value"])


def test_an_operator_that_breaks_a_law_is_found() -> None:
    register_operator(Greatest)
    register_function(GreatestOf)
    times = pa.array([0, 1, 2, 3], pa.timestamp("us"))
    events = pa.table({"ts": times, "v": [1, 2, 3, 4]})
    query = Query("q", make("x_greatest_of", "v"), window=tumbling("4us"))
    with pytest.raises(AssertionError, match="round"):
        check_laws(query, events)


QUIET = """
import json, sys
import catchment as ct
job = ct.load_job({"queries": [{"name": "q", "select": ["avg(v)"], "window": "tumbling(1s)"}],
                   "source": {"type": "generator"}, "flush": "uniform"})
job.build()
from catchment.functions import names
listed = "rms" in names()
print(json.dumps([listed, sorted(m for m in sys.modules if m.startswith("catchment_example"))]))
"""


def test_what_is_not_used_is_not_imported(site: Path) -> None:
    assert python(QUIET, site) == [True, []]


SCHEMA = """
import json
from catchment.job import job_schema
schema = job_schema()
windows = schema["$defs"]["QuerySection"]["properties"]["window"]["anyOf"]
sources = schema["properties"]["source"]["anyOf"][0]["discriminator"]["mapping"]
print(json.dumps([sorted(sources), [w for w in windows if "overlapping" in str(w)]]))
"""


def test_the_schema_of_job_files_has_what_is_installed(site: Path) -> None:
    sources, windows = python(SCHEMA, site)
    assert "ramp" in sources and len(windows) == 1


# -- the registry itself --------------------------------------------------------------------------

Install = Callable[..., None]
REGISTRIES: tuple[Registry[Any], ...] = (
    BUILDERS,
    OPERATORS,
    FUNCTIONS,
    Source.registry,
    Sink.registry,
    POLICIES,
)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package of one module, with entry points."""

    def installed(package: str, module: str = "", **entries: Mapping[str, str]) -> None:
        home = tmp_path / package
        info = home / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (home / f"{package}.py").write_text(module)
        sections = (
            f"[catchment.{group}]\n" + "".join(f"{n} = {v}\n" for n, v in points.items())
            for group, points in entries.items()
        )
        (info / "entry_points.txt").write_text("\n".join(sections))
        monkeypatch.syspath_prepend(str(home))
        registry.look_again()

    yield installed
    monkeypatch.undo()
    registry.look_again()


def test_two_packages_may_not_have_one_name(install: Install) -> None:
    install("x_one", functions={"x_both": "x_one:f", "x_mine": "x_one:f"})
    install("x_two", functions={"x_both": "x_two:f"})
    with pytest.raises(ExtensionError) as error:
        make("x_both", "v")
    assert str(error.value) == (
        "several packages have a function of this name (given: x_both: x_two:f of x_two and "
        "x_one:f of x_one); leave one of them, or rename it in the pyproject.toml of its package"
    )
    with pytest.raises(ExtensionError, match=r"'x_mine' of catchment\.functions cannot be"):
        make("x_mine", "v")
    assert make("avg", "v").text == "avg(v)"


def test_a_package_cannot_take_a_name_of_ours(install: Install) -> None:
    install(
        "x_taker",
        functions={"avg": "x_taker:f", "mean": "x_taker:f"},
        windows={"cut": "x_taker:f"},
        operators={"sum": "x_taker:f"},
        sources={"csv": "x_taker:f"},
        sinks={"memory": "x_taker:f"},
        flush_policies={"uniform": "x_taker:f"},
    )
    whose = r"x_taker:f of x_taker and Catchment itself"
    names = ("cut", "sum", "avg", "csv", "memory", "uniform")
    for each, name in zip(REGISTRIES, names, strict=True):
        with pytest.raises(ExtensionError, match=rf"{each.what} of this name.*{name}: {whose}"):
            each[name]
    with pytest.raises(ExtensionError, match="mean"):
        make("mean", "v")


def test_an_entry_point_that_cannot_be_imported_says_whose_it_is(install: Install) -> None:
    points = {"x_broken": "x_broken:f"}
    install("x_broken", "import no_such_module_of_mine", windows=points, sinks=points)
    said = (
        "the entry point 'x_broken' of catchment.{} cannot be imported (given: x_broken:f of "
        "x_broken); ModuleNotFoundError: No module named 'no_such_module_of_mine'"
    )
    query = {"name": "q", "select": ["count(*)"], "window": "x_broken(1s)"}
    with pytest.raises(ExtensionError) as error:
        load_job({"queries": [query]})
    assert str(error.value) == said.format("windows")
    with pytest.raises(ExtensionError) as error:
        sql("SELECT count(*) FROM e GROUP BY x_broken('1s')", "q")
    assert str(error.value) == said.format("windows")
    with pytest.raises(ExtensionError) as error:
        load_job({"queries": [], "sinks": [{"type": "x_broken"}]})
    assert str(error.value) == said.format("sinks")


def test_an_entry_point_must_give_what_its_group_says(install: Install) -> None:
    points = {"x_odd": "x_odd:odd"}
    groups = {each.group.removeprefix("catchment."): points for each in REGISTRIES}
    install("x_odd", "odd = 3", **groups)
    for each in REGISTRIES:
        with pytest.raises(ExtensionError) as error:
            each["x_odd"]
        said = f"an entry point of {each.group} gives no {each.what} of its name"
        assert str(error.value) == f"{said} (given: x_odd: x_odd:odd of x_odd); it gives 3"


def test_an_entry_point_has_the_name_of_what_it_gives(install: Install) -> None:
    install("x_other", "from catchment.sinks import Memory", sinks={"x_other": "x_other:Memory"})
    with pytest.raises(ExtensionError, match="gives no sink of its name"):
        load_job({"queries": [], "sinks": [{"type": "x_other"}]})


@pytest.mark.parametrize(
    "name", ["x_secret", "x_secret:run", "x_secret.run", "os:system", "os", "../x_secret", ""]
)
def test_job_files_import_nothing_but_entry_points(name: str, install: Install) -> None:
    install("x_secret", "raise SystemExit('imported')")
    for job in [
        {"sinks": [{"type": name}]},
        {"source": {"type": name}},
        {"flush": name},
        {"queries": [{"name": "q", "select": ["count(*)"], "window": {name: "1s"}}]},
        {"queries": [{"name": "q", "select": [{"function": name}], "window": "tumbling(1s)"}]},
    ]:
        with pytest.raises((JobError, ValueError)):
            load_job({"queries": []} | job).build()
    assert "x_secret" not in sys.modules


def test_what_a_process_registers_counts_before_packages(install: Install) -> None:
    install("x_late", flush_policies={"x_late": "x_late:f"}, functions={"x_avg": "x_late:f"})
    mine = register_policy("x_late", CachePolicy(lazy=lambda now: 1.0))
    assert POLICIES["x_late"] is mine and str(parse("x_late")) == "lazy(x_late)"

    class Mine(Avg):
        name = "x_avg"
        synonyms = ()

    register_function(Mine)
    assert make("x_avg", "v").text == "x_avg(v)"


def test_the_same_sources_and_sinks_are_there() -> None:
    kinds = {"parquet", "arrow", "csv", "jsonl", "kafka", "mqtt", "prometheus", "otlp", "generator"}
    assert kinds == set(Source.registry.registered()) & kinds
    assert Sink.model_validate({"type": "memory", "limit": 3}) == Memory(limit=3)
    assert Sink.class_for({"type": "memory"}) is Memory and Sink.class_for(None) is Sink
