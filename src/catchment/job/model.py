"""The sections of a job file."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import structs
from pydantic import (
    AfterValidator,
    BaseModel,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    InstanceOf,
    SkipValidation,
    Tag,
)
from pydantic import WithJsonSchema as Shown

from catchment import functions, html
from catchment.counting.scheme import MEMORY, Predictor
from catchment.errors import CatchmentError, JobError, QueryError
from catchment.expression import canonical
from catchment.flush.settings import flush_schema
from catchment.job.topology import NodeSection
from catchment.job.window import read_window, window_schema
from catchment.model import duration
from catchment.model.capacity import ASIDE_BYTES
from catchment.model.duration import micros
from catchment.model.early import FINAL, emit_of
from catchment.model.query import MEASURES, Aggregate, Expression, Ordering, Query
from catchment.model.rules import QueryRules, bound
from catchment.model.section import Section
from catchment.model.settings import LATE, Incomplete, Late
from catchment.model.time_column import UNITS, TimeColumn, TimeSpec, time_spec
from catchment.sinks import Sink
from catchment.sources import Source
from catchment.sources.aside_files import ASIDE_DISK_BYTES
from catchment.sqltext import expr, order, selected, sql
from catchment.transport.security import Security


class _ShownBy:
    """What the JSON schema says of a value; found out when the schema is asked for."""

    def __init__(self, schema: Callable[[], dict[str, Any]]) -> None:
        self.schema = schema

    def __get_pydantic_json_schema__(
        self, schema: object, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return self.schema()


def _form(value: object) -> str:
    return "mapping" if isinstance(value, Mapping | BaseModel) else "text"


# Values that pass through as they are, and what the JSON schema says of them.
_LIST = {"type": "array", "items": {"type": "string"}}
DurationValue = Annotated[
    Any, Shown({"type": ["string", "null"], "examples": ["10s", "5 minutes", "1h 30m"]})
]
TextValue = Annotated[Any, Shown({"type": ["string", "null"]})]


def _time(given: Any) -> Any:
    """What is said of a time column and how it is read; a name is checked with other settings."""
    return time_spec(given) if isinstance(given, Mapping | TimeColumn) else given


TimeValue = Annotated[
    Any,
    AfterValidator(_time),
    Shown(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {
                        "column": {"type": "string"},
                        "unit": {"enum": list(UNITS)},
                        "format": {"type": "string"},
                    },
                    "required": ["column"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
NamesValue = Annotated[Any, Shown({"anyOf": [{"type": "string"}, _LIST]})]
_KEY = {
    "anyOf": [
        {"type": "string"},
        {"type": "object", "additionalProperties": {"type": "string"}},
    ]
}
Keys = Annotated[Any, Shown({"anyOf": [*_KEY["anyOf"], {"type": "array", "items": _KEY}]})]
WindowValue = Annotated[Any, _ShownBy(window_schema)]
MeasureWord = Annotated[Any, Shown({"enum": list(MEASURES)})]
FlushForm = Annotated[Any, Shown(flush_schema())]
LateWord = Annotated[Any, Shown({"enum": list(LATE)})]


class AggregateSection(Section):
    """An aggregate, taken apart: {function: quantile, column: v, params: [0.95], alias: p95}."""

    function: str
    column: TextValue = None
    params: tuple[Any, ...] = ()
    alias: str = ""

    def build(self) -> Aggregate:
        made = functions.make(self.function, self.column, tuple(self.params))
        return made.alias(self.alias) if self.alias else made


Selected = Annotated[
    Annotated[str, Tag("text")] | Annotated[AggregateSection, Tag("mapping")], Discriminator(_form)
]


class QuerySection(Section):
    """A query: as SQL, or as its parts."""

    name: TextValue = Field(description="what its results are called")
    sql: str | None = Field(None, description="the whole query as SQL, instead of its parts")
    select: list[Selected] | None = Field(
        None, description="aggregates and expressions over them, as in sum(a) / sum(b) AS ratio"
    )
    by: Keys = Field((), description="keys: columns, or names with the expressions they stand for")
    where: TextValue = Field(None, description="a condition on events, in SQL")
    having: TextValue = Field(None, description="a condition on results, in SQL")
    order_by: NamesValue = Field((), description="what the rows of a window are ordered by")
    limit: Annotated[Any, Shown({"type": ["integer", "null"], "minimum": 1})] = Field(
        None, description="the first rows of each window that are kept"
    )
    grouping_sets: Annotated[Any, Shown({"type": "array", "items": _LIST})] = Field(
        (), description="sets of keys, with rows for each"
    )
    window: WindowValue = Field(None, description="as in sliding(10s, 5s)")
    table: TextValue = Field(
        None, description="another query, whose results it reads instead of the events"
    )
    distinct_on: NamesValue = Field(
        (), description="columns that tell an event from its repetitions"
    )
    distinct_within: DurationValue = Field("1h", description="how far apart these may be")
    measure: MeasureWord = Field("event", description="event or processing time")

    def build(self, path: str, lookups: Mapping[str, str] | None = None) -> Query:
        options = {
            "distinct_on": self.distinct_on,
            "distinct_within": self.distinct_within,
            "measure": self.measure,
        }
        if self.sql is None:
            if self.select is None:
                raise JobError(f"{path} has neither sql nor select", hint="add one of them")
            made = [s.build() if isinstance(s, Section) else selected(s) for s in self.select]
            window = read_window(self.window, f"{path}.window")
            options |= {"having": self._having(), "order_by": self._orders()}
            options |= {"limit": self.limit, "grouping_sets": self.grouping_sets}
            options["table"] = self.table
            return Query(self.name, *made, window=window, by=self.by, where=self.where, **options)
        for key in (
            "select",
            "by",
            "where",
            "having",
            "order_by",
            "limit",
            "grouping_sets",
            "window",
            "table",
        ):
            if key in self.model_fields_set:
                raise JobError(
                    f"{path} has both sql and {key}",
                    given=f"{path}.{key}",
                    hint=f"the SQL says it all; leave out {key}",
                )
        return Query.of(structs.replace(sql(self.sql, self.name, lookups).record(), **options))

    def _having(self) -> Expression | None:
        return None if self.having is None else expr(self.having)

    def _orders(self) -> list[Ordering]:
        given = [self.order_by] if isinstance(self.order_by, str) else self.order_by
        return [order(text) for text in given]

    def mistakes(
        self, path: str, lookups: Mapping[str, str] | None = None
    ) -> Iterator[CatchmentError]:
        """What is wrong with its parts, each looked at on its own."""
        parts: list[Callable[[], object]] = [partial(self.build, path, lookups)]
        if self.sql is None and self.select is not None:
            each = [
                s.build if isinstance(s, Section) else partial(selected, s) for s in self.select
            ]
            window = partial(read_window, self.window, f"{path}.window")
            parts = [*each, window, self._having, self._orders, *parts]
            if self.where is not None:
                parts.insert(-1, partial(canonical, self.where, "where condition"))
        told: set[str] = set()
        for part in parts:
            try:
                part()
            except CatchmentError as error:
                # To build the whole query fails for the first of the reasons once more.
                if str(error) not in told:
                    told.add(str(error))
                    yield error


def _form_of_query(value: object) -> str:
    return "query" if isinstance(value, Query) else "mapping"


# Queries may be given as they are, in Python.
QueryForm = Annotated[
    Annotated[QuerySection, Tag("mapping")]
    | Annotated[SkipValidation[InstanceOf[Query]], Tag("query"), Shown({"not": {}})],
    Discriminator(_form_of_query),
]
Trigger = Annotated[Any, Shown({"type": "string", "examples": ["continuous", "batch", "5s"]})]


class EngineOptions(TypedDict):
    """What an engine is told besides the queries."""

    time: TimeSpec
    lateness: duration.Duration
    late: Late
    incomplete: Incomplete
    emit: str
    aside_bytes: int
    state_bytes: int | None
    key_bytes: int | None
    keep: NotRequired[duration.Duration]


class StreamOptions(TypedDict):
    """How a job that goes on treats events, whoever runs it; durations in microseconds."""

    time: TimeSpec
    late: Late
    keep: int | None
    lateness: int
    idle: int | None
    ahead: int | None
    rate: float | None
    incomplete: Incomplete
    emit: str
    aside_bytes: int
    aside_disk_bytes: int
    state_bytes: int | None
    key_bytes: int | None


class CountSection(Section):
    """How edges of count windows over nodes are predicted: {predictor: last, memory: 1}."""

    predictor: Predictor = Field(
        default="pace",
        description="by the rate of all events together, or by each node's share of the last "
        "window, as Deco has it",
    )
    memory: int = Field(
        default=MEMORY, ge=1, le=64, description="windows that the expected error is averaged over"
    )
    wait: bool = Field(
        default=False,
        description="nodes read no further, by monitor and sync, until they know of the next edge",
    )


class JobModel(Section):
    """A job file: what is computed, from where to where, and what becomes of late events."""

    def _repr_html_(self) -> str:
        """For notebooks: what runs and where. Options may hold secrets, so none is shown."""
        about = {
            "source": "none" if self.source is None else self.source.type,
            "sinks": ", ".join(sink.type for sink in self.sinks) or "memory",
            "nodes": len(self.nodes),
            "trigger": self.trigger,
            "late": f"{self.late}, after {self.lateness}",
            "checkpoint": self.checkpoint or "none: nothing is kept",
        }
        queries = self.build()
        shown = [[query.name, query.describe()] for query in queries[: html.ROWS]]
        if len(queries) > html.ROWS:
            shown.append([f"and {len(queries) - html.ROWS:,} more", ""])
        return (
            html.heading(self.name)
            + html.table([*about], [[*about.values()]])
            + html.table(["query", ""], shown)
        )

    name: str = Field("catchment", description="the job's, also a name of its events in SQL")
    time: TimeValue = Field(
        "ts",
        description="the column of event time; for epochs and texts a mapping, as in "
        "{column: ts, unit: ms} or {column: ts, format: '%d/%b/%Y:%H:%M:%S %z'}",
    )
    lateness: DurationValue = Field(
        "0s", description="how much later than the newest an event may come"
    )
    late: LateWord = Field(
        "drop", description="what becomes of one that is later still: drop, collect or update"
    )
    keep: DurationValue = Field(
        None, description="how long late events may correct a window; none: the longest window"
    )
    queries: list[QueryForm] = Field(description="what is computed")
    lookups: dict[str, str] = Field(
        {},
        description="small tables that SQL may join, by name: a file of Parquet, CSV or Arrow, or "
        "postgresql://host/database#table",
    )
    source: Source | None = Field(None, description="where events come from")
    sinks: tuple[Sink, ...] = Field((), description="where results go; none: memory")
    checkpoint: str | None = Field(None, description="the job's folder: state, progress, queries")
    trigger: Trigger = Field("continuous", description="continuous, available-now, batch, or 5s")
    idle_timeout: DurationValue = Field(
        None, description="after which a silent partition no longer holds the frontier back"
    )
    max_ahead: DurationValue = Field(
        None, description="how far in the future an event may be before it is set aside"
    )
    buckets: int | None = Field(None, gt=0, description="shares of keys; by default one a core")
    rate: float | None = Field(
        None, gt=0, description="events in a second of event time, to plan for"
    )
    metrics: int | None = Field(None, ge=0, lt=65536, description="a port for Prometheus")
    nodes: tuple[NodeSection, ...] = Field((), description="a tree of nodes, instead of a source")
    timeout: DurationValue = Field(
        "1m", description="after which results no longer wait for a silent node"
    )
    flush: FlushForm = Field(
        "auto", description="when nodes send what: auto, batching, hybrid(0.25), or a mapping"
    )
    count: Literal["auto", "async", "sync", "monitor", "central", "approx"] = Field(
        "auto",
        description="count windows over nodes: all events in one place (central), or edges found "
        "by asking or predicting; auto chooses, and takes central for small windows; approx takes "
        "predictions for true, and its windows say complete = false",
    )
    count_options: CountSection = Field(
        CountSection(),
        description="how edges of count windows are predicted: Deco as its paper has it is "
        "{predictor: last, memory: 1, wait: true} with count: sync",
    )
    quantiles: Literal["auto", "ask", "send"] = Field(
        "auto",
        description="quantiles, top_k and mode over nodes, under a root that is embedded: values "
        "stay where they were read and are asked for (ask), climb with their slices (send), or "
        "what costs less (auto)",
    )
    marks: Literal["ask", "send"] = Field(
        "ask",
        description="user-defined windows over all nodes, under a root that is embedded: events "
        "stay where they were read until the root tells where marks cut them (ask), or climb "
        "(send)",
    )
    incomplete: Literal["count", "emit"] = Field(
        "count",
        description="count and user-defined windows that are open when a finite source ends: "
        "counted, or also emitted, with complete = false",
    )
    emit: str = Field(
        FINAL,
        description="results: final ones only, running values of open windows whenever they change "
        "(changes), or every so much event time, as in every(10s); a batch gives final ones",
    )
    aside_bytes: int = Field(
        ASIDE_BYTES, ge=0, description="memory for late and bad rows; beyond it they go to files"
    )
    aside_disk_bytes: int = Field(
        ASIDE_DISK_BYTES, gt=0, description="files of late and bad rows; the oldest are removed"
    )
    state_bytes: int | None = Field(
        None, gt=0, description="most memory of one state of windows; none: that of the machine"
    )
    key_bytes: int | None = Field(
        None, gt=0, description="most memory of the keys of one state of windows; none: 4 GB"
    )
    security: Security | None = Field(
        None,
        description="certificates and tokens of the nodes; without both they listen at loopback "
        "addresses only, unless this is the word none",
    )

    def build(self) -> list[Query]:
        """The queries, checked; an error's note says where in the file it is."""
        self.check_count()
        rules = self.rules
        made = [
            _located(number, partial(_built, part, self.lookups))
            for number, part in enumerate(self.queries)
        ]
        others = {query.name: query for query in made}
        return [
            _located(number, partial(_bound, query, rules, others))
            for number, query in enumerate(made)
        ]

    def check_count(self) -> None:
        """Refuses a way to find count windows over nodes where there are none."""
        if self.nodes:
            return
        if self.count not in ("auto", "central"):
            raise JobError(
                "this way to find count windows needs nodes",
                given=f"count: {self.count}",
                hint="leave count out: a job without nodes has its events in one place",
            )
        if self.count_options != CountSection():
            raise JobError(
                "edges of count windows are predicted over nodes only",
                given=f"count_options: {self.count_options.model_dump(exclude_defaults=True)}",
                hint="leave count_options out: a job without nodes has its events in one place",
            )

    @property
    def rules(self) -> QueryRules:
        """What the job demands of its queries."""
        return QueryRules(self.time, self.late, self.tables, bool(self.nodes), self.emit)

    @property
    def tables(self) -> tuple[str, ...]:
        """What SQL may call the job's events in FROM, besides `events`: the job, and its source.

        A query reads the events of all nodes, so a source's name stands for them only where every
        node that reads events has it.
        """
        read: list[Source | None] = [self.source, *(node.source for node in self.nodes)]
        names = {source.table() for source in read if source is not None}
        return (self.name, *(name for name in names if name is not None and len(names) == 1))

    def new_identity(self) -> str:
        """A name for one life of this job, over all its restarts: its own and some random letters.

        >>> JobModel(name="a b", queries=[]).new_identity()[:4]
        'a-b-'
        """
        plain = re.sub(r"[^\w-]", "-", self.name)
        return f"{plain}-{uuid.uuid4().hex[:8]}"

    @property
    def counted(self) -> str:
        """How count windows are found: what is not full, or early, can only be emitted where events
        meet."""
        return "central" if self.incomplete == "emit" or self.emit != FINAL else self.count

    def stream_options(self) -> StreamOptions:
        """What a streaming job and the nodes of a tree are told of events."""
        return StreamOptions(
            time=self.time,
            late=self.late,
            keep=_micros(self.keep),
            lateness=duration.micros(self.lateness),
            idle=_micros(self.idle_timeout),
            ahead=_micros(self.max_ahead),
            rate=self.rate,
            incomplete=self.incomplete,
            emit=emit_of(self.emit),
            aside_bytes=self.aside_bytes,
            aside_disk_bytes=self.aside_disk_bytes,
            state_bytes=self.state_bytes,
            key_bytes=self.key_bytes,
        )

    def engine_options(self) -> EngineOptions:
        """What the engine is told besides the queries: `Engine(job.build(), **these)`."""
        options = EngineOptions(
            time=self.time,
            lateness=self.lateness,
            late=self.late,
            incomplete=self.incomplete,
            emit=emit_of(self.emit),
            aside_bytes=self.aside_bytes,
            state_bytes=self.state_bytes,
            key_bytes=self.key_bytes,
        )
        if self.keep is not None:
            options["keep"] = self.keep
        return options


def _micros(given: duration.Duration | None) -> int | None:
    return None if given is None else duration.micros(given)


def _built(section: Query | QuerySection, lookups: Mapping[str, str], path: str) -> Query:
    return section if isinstance(section, Query) else section.build(path, lookups)


def _bound(query: Query, rules: QueryRules, others: Mapping[str, Query], _: str) -> Query:
    return bound(query, rules, others)


def _located(number: int, make: Callable[[str], Query]) -> Query:
    """What is made at a place of the file, which an error's note tells."""
    path = f"queries[{number}]"
    try:
        return make(path)
    except QueryError as error:
        located(error, path)
        raise


def located(error: CatchmentError, path: str) -> CatchmentError:
    """The error with a note of where in the job file it is, if its text does not tell."""
    note = f"in the job file: {path}"
    if path not in str(error) and note not in getattr(error, "__notes__", ()):
        error.add_note(note)
    return error


TRIGGERS = ("continuous", "available-now", "batch")


def period(trigger: object) -> int:
    """A trigger's period in microseconds."""
    try:
        return micros(trigger)  # type: ignore[arg-type]
    except QueryError as error:
        raise JobError(
            "no such trigger", given=repr(trigger), hint=f"try {', '.join(TRIGGERS)}, or 5s"
        ) from error


def job_schema() -> dict[str, Any]:
    """The JSON schema of job files, for editors and other tools."""
    return JobModel.model_json_schema() | {
        "$schema": "https://json-schema.org/draft/2020-12/schema"
    }
