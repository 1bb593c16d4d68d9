"""Golden transcripts: events, frontiers and the rows expected, in YAML, for every runtime.

A file holds one transcript per YAML document:

    name: door
    why: what the transcript shows
    source: where it comes from (optional)
    differs: why the expected rows are not those of the source (optional)
    unit: ms                              # of every bare time below; us unless given
    time: ts                              # the time column; ts unless given
    columns: {v: int16}                   # Arrow types where they cannot be inferred (optional)
    settings: {lateness: 2ms, late: drop} # of the engine (optional)
    not_on: {batch: why}                  # runtimes that cannot take it, each with the reason
    queries:
      - {name: w0, sql: "SELECT sum(v) AS s FROM events GROUP BY window(ts, '10 milliseconds')"}
      - name: w1                          # what SQL cannot say
        window: {kind: fixed, start: 0, end: 10}
        aggregates: [{function: sum, column: v, as: s}]
        where: v > 0
    steps:
      - events: [{ts: 1, v: 1}, {ts: 5, v: 2}]
      - frontier: 10
        expect: {w0: [{window_start: 0, window_end: 10, s: 3}]}
      - add: {name: w2, sql: ...}         # a query that joins the running ones
      - close: true
        expect: {}

A query that `expect` does not name must give no rows. Times may also be ISO texts, and a decimal is
written `!decimal 5.6667`. The
`window_index` of a window bounded by marks may be left out where it is 0, as it is unless several
marks of a key share an instant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import yaml

from catchment.errors import JobError, did_you_mean
from catchment.functions import make
from catchment.model.duration import instant, micros
from catchment.model.query import Query
from catchment.sqltext import sql
from catchment.testing.compare import assert_same
from catchment.testing.oracle import Row, numbered_by_bounds
from catchment.windows import BUILDERS

TablesByQuery = Mapping[str, pa.Table]
_TIMES = ("window_start", "window_end")
_STEPS = ("events", "frontier", "add", "close")
_FIELDS = (
    "name",
    "why",
    "source",
    "differs",
    "unit",
    "time",
    "columns",
    "settings",
    "not_on",
    "queries",
    "steps",
)
_BOUNDS = ("window_start", "window_end", "window_index")
_REVISED = ("revision", "retracted")


@dataclass(frozen=True)
class TranscriptStep:
    """One step: `value` is rows, microseconds, a query or None; `expect` the rows by query."""

    kind: str
    value: Any
    expect: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def gives(self) -> bool:
        """Whether results are compared after it."""
        return self.kind in ("frontier", "close")


@dataclass(frozen=True)
class Transcript:
    """A transcript read and checked, times in microseconds."""

    name: str
    queries: list[Query]
    steps: list[TranscriptStep]
    why: str = ""
    source: str = ""
    differs: str = ""
    time: str = "ts"
    settings: dict[str, Any] = field(default_factory=dict)
    not_on: dict[str, str] = field(default_factory=dict)
    """Runtimes that cannot take it, and why."""
    schema: pa.Schema | None = None

    @property
    def all_queries(self) -> list[Query]:
        """The queries that it begins with, and those that join."""
        return [*self.queries, *(step.value for step in self.steps if step.kind == "add")]

    def last_word(self, query: Query) -> list[Row]:
        """The rows of a query after all corrections, without those retracted and without marks."""
        last: dict[tuple[Any, ...], Row] = {}
        for step in self.steps:
            for row in step.expect.get(query.name, []):
                last[tuple(row.get(name) for name in (*query.keys, *_BOUNDS))] = row
        kept = [row for row in last.values() if not row.get("retracted")]
        return [{c: v for c, v in row.items() if c not in _REVISED} for row in kept]

    def table(self, rows: Sequence[Row]) -> pa.Table:
        return pa.Table.from_pylist(list(rows), schema=self.schema)


def load(path: str | Path) -> list[Transcript]:
    """The transcripts of one file."""
    text = Path(path).read_text(encoding="utf-8")
    return [_read(document) for document in yaml.load_all(text, _TranscriptLoader) if document]


def load_folder(folder: str | Path) -> list[Transcript]:
    """All transcripts of a folder, but for `not_applicable.yaml`."""
    paths = sorted(Path(folder).glob("*.yaml"))
    return [t for path in paths if path.stem != "not_applicable" for t in load(path)]


def replay(transcript: Transcript, make_engine: Callable[..., Any]) -> list[TablesByQuery]:
    """What `make_engine(queries, time=..., **settings)` gives at each frontier and at the close.

    The engine needs `push`, `advance` and `close`, and `add` where queries join while it runs.
    """
    engine: Any = make_engine(transcript.queries, time=transcript.time, **transcript.settings)
    found: list[TablesByQuery] = []
    for step in transcript.steps:
        if step.kind == "events":
            engine.push(transcript.table(step.value))
        elif step.kind == "add":
            engine.add(step.value)
        else:
            found.append(engine.close() if step.kind == "close" else engine.advance(step.value))
    return found


def check(transcript: Transcript, given: Sequence[TablesByQuery], by_step: bool = True) -> None:
    """Fails where results differ from those expected at each frontier and at the close.

    A runtime that does not say when a result came gives all at once, not `by_step`: the last word
    on each window, without revisions. What was corrected is there as it was corrected, and what
    was retracted is not there.
    """
    queries = transcript.all_queries
    if not by_step:
        expected = {query.name: transcript.last_word(query) for query in queries}
        (last,) = given
        _compare(f"{transcript.name}, last word", queries, expected, last)
        return
    steps = [(n, step) for n, step in enumerate(transcript.steps, 1) if step.gives]
    for (number, step), results in zip(steps, given, strict=True):
        context = f"{transcript.name}, step {number} ({step.kind})"
        _compare(context, queries, step.expect, results)


def _compare(
    context: str, queries: Sequence[Query], expected: Mapping[str, list[Row]], given: TablesByQuery
) -> None:
    for query in queries:
        rows = given[query.name] if query.name in given else pa.table({})
        wanted = expected.get(query.name, [])
        assert_same(wanted, rows, f"{context}, query {query.name}", keys=query.keys)
    names = {query.name for query in queries}
    strangers = [name for name in given if name not in names]
    assert not strangers, f"{context}: results of queries that are not there: {strangers}"


_Fastest: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _TranscriptLoader(_Fastest):  # type: ignore[misc]
    """YAML without dates of its own: a time stays the text it is, for `instant` to read."""


_TranscriptLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in known if tag != "tag:yaml.org,2002:timestamp"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_TranscriptLoader.add_constructor("!decimal", lambda _, node: Decimal(node.value))


def _read(data: dict[str, Any]) -> Transcript:
    _known(data, _FIELDS, "transcript field")
    unit = micros(f"1{data.get('unit', 'us')}", "unit")
    time = data.get("time", "ts")
    steps = [_step(step, unit, time) for step in data["steps"]]
    rows = [row for step in steps if step.kind == "events" for row in step.value]
    schema = _schema(rows, time, data.get("columns", {}))
    queries = [_query(query, unit) for query in data["queries"]]
    named = {query.name: query for query in queries}
    for number, step in enumerate(steps):
        named |= {step.value.name: step.value} if step.kind == "add" else {}
        _known(step.expect, named.keys(), "query to expect rows of")
        for name, expected in step.expect.items():
            step.expect[name] = [_indexed(row, named[name]) for row in expected]
        if step.kind == "events":
            steps[number] = replace(step, value=_complete(step.value, schema))
    texts = {part: data.get(part, "") for part in ("why", "source", "differs")}
    settings = {k: _setting(v, unit) for k, v in data.get("settings", {}).items()}
    return Transcript(
        data["name"],
        queries,
        steps,
        **texts,
        time=time,
        settings=settings,
        not_on=dict(data.get("not_on", {})),
        schema=schema,
    )


def _step(data: dict[str, Any], unit: int, time: str) -> TranscriptStep:
    _known(data, (*_STEPS, "expect"), "step")
    kind = next(k for k in _STEPS if k in data)
    if kind == "events":
        return TranscriptStep(kind, [_timed(row, (time,), unit) for row in data[kind]])
    if kind == "add":
        return TranscriptStep(kind, _query(data[kind], unit))
    rows = data.get("expect") or {}
    expect = {name: [_timed(r, _TIMES, unit) for r in given] for name, given in rows.items()}
    return TranscriptStep(kind, _instant(data[kind], unit) if kind == "frontier" else None, expect)


def _indexed(row: Row, query: Query) -> Row:
    """The row with the index that was left out."""
    return {"window_index": 0} | row if numbered_by_bounds(query.window) else row


def _query(data: dict[str, Any], unit: int) -> Query:
    if "sql" in data:
        return sql(data["sql"], name=data["name"])
    rest = dict(data)
    window = dict(rest.pop("window"))
    build = BUILDERS[window.pop("kind")]
    bounds = {k: _instant(window.pop(k), unit) for k in ("start", "end") if _is_time(window, k)}
    aggregates = [
        make(a["function"], a.get("column"), tuple(a.get("params", ()))).alias(a["as"])
        for a in rest.pop("aggregates")
    ]
    return Query(rest.pop("name"), *aggregates, window=build(**bounds, **window), **rest)


def _is_time(window: dict[str, Any], name: str) -> bool:
    """True for the bounds of a fixed window; those of `between` are conditions."""
    return isinstance(window.get(name), int)


def _timed(row: Row, columns: Sequence[str], unit: int) -> Row:
    return {c: _instant(v, unit) if c in columns else v for c, v in row.items()}


def _instant(value: Any, unit: int) -> Any:
    """Microseconds of a bare number in units, or of an ISO text; None stays."""
    if value is None:
        return None
    return value * unit if isinstance(value, int) else instant(value)


def _setting(value: Any, unit: int) -> Any:
    """A duration given as a bare number becomes a text with its unit, as the engine takes it."""
    return f"{value * unit}us" if isinstance(value, int) else value


def _schema(rows: list[Row], time: str, types: dict[str, str]) -> pa.Schema:
    """Types as given, else inferred from all the events at once."""
    names = list(dict.fromkeys(column for row in rows for column in row))
    return pa.schema([pa.field(n, t) for n, t in _types(rows, names, time, types)])


def _types(
    rows: list[Row], names: list[str], time: str, types: dict[str, str]
) -> Iterator[tuple[str, pa.DataType]]:
    for name in names:
        if name == time:
            yield name, pa.timestamp("us", "UTC")
        elif name in types:
            yield name, _alias(types[name])
        else:
            yield name, pa.array([row.get(name) for row in rows]).type


def _alias(name: str) -> pa.DataType:
    alias: Any = pa.type_for_alias
    return cast(pa.DataType, alias(name))


def _complete(rows: list[Row], schema: pa.Schema) -> list[Row]:
    """Rows with every column, null where it was left out."""
    return [{name: row.get(name) for name in schema.names} for row in rows]


def _known(given: Mapping[str, Any], known: Collection[str], what: str) -> None:
    for name in given:
        if name not in known:
            raise JobError(f"no such {what}", given=name, hint=did_you_mean(name, known))
