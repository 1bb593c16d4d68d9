"""A query: aggregates of events, by key, per window. The one model behind Python, SQL and YAML."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from catchment.errors import QueryError, did_you_mean
from catchment.expression import canonical
from catchment.model import records
from catchment.model.duration import Duration, micros
from catchment.model.window import Window, WindowForm, unreadable_query, window_from_dict

Measure = Literal["event", "processing"]
MEASURES: tuple[Measure, ...] = ("event", "processing")

RESERVED = ("window_start", "window_end", "window_index", "revision", "retracted")
"""Result columns that no alias or key may take."""

COMPLETENESS = ("complete", "missing")
"""Result columns that a tree adds: no alias or key may take them either."""

NODE = "node"
"""The result column that says whose a window is that is read as `local`."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function of a column (an SQL expression, or None for whole rows), and its result's name."""

    function: str
    column: str | None = None
    params: tuple[Any, ...] = ()
    name: str = ""

    def alias(self, name: str) -> Aggregate:
        """The same aggregate under another result name."""
        return replace(self, name=name)

    @property
    def label(self) -> str:
        return self.name or self.text

    @property
    def text(self) -> str:
        """As SQL would write it: `quantile(v, 0.95)`."""
        parts = [self.column or "*", *(repr(p) for p in self.params)]
        return f"{self.function}({', '.join(parts)})"


class QueryRecord(Struct, frozen=True, omit_defaults=True):
    """A query as it is written down and sent."""

    name: str
    aggregates: tuple[Aggregate, ...]
    by: tuple[str, ...]
    where: str | None
    window: WindowForm
    distinct_on: tuple[str, ...]
    distinct_within: str
    measure: Measure
    time: str | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True, init=False)
class Query:
    """Aggregates over windows of the events that meet `where`, one result per key and window.

    `distinct_on` names columns whose values make an event unique: an event that repeats them
    within `distinct_within` of event time of an accepted one is dropped, and counted.
    `measure="processing"` takes the time of arrival instead of the event's own.

    `time` and `table` are what SQL text named as the time column and in FROM. The text alone cannot
    tell whether they are those of the job, so the query remembers them until it meets one:
    `rules.bound` compares them, and returns the query without. They are no part of what is
    computed, so queries that differ in nothing else are equal.
    """

    name: str
    aggregates: tuple[Aggregate, ...]
    by: tuple[str, ...]
    where: str | None
    window: Window
    distinct_on: tuple[str, ...] = ()
    distinct_within: int = 0
    measure: Measure = "event"
    time: str | None = field(default=None, compare=False)
    table: str | None = field(default=None, compare=False)

    def __init__(
        self,
        name: str,
        *aggregates: Aggregate,
        window: Window,
        by: str | Sequence[str] = (),
        where: str | None = None,
        distinct_on: str | Sequence[str] = (),
        distinct_within: Duration = "1h",
        measure: Measure = "event",
        time: str | None = None,
        table: str | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "name", _name(name))
        put(self, "aggregates", tuple(aggregates))
        put(self, "by", _columns(by, "by"))
        put(self, "where", None if where is None else canonical(where, "where condition"))
        put(self, "window", window)
        put(self, "distinct_on", _columns(distinct_on, "distinct_on"))
        within = micros(distinct_within, "distinct_within") if self.distinct_on else 0
        put(self, "distinct_within", within)
        put(self, "measure", measure)
        put(self, "time", time)
        put(self, "table", table)
        _check(self)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What the query computes, whatever its name: equal identities are computed once."""
        return (
            self.aggregates,
            self.by,
            self.where,
            self.window,
            self.distinct_on,
            self.distinct_within,
            self.measure,
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The result columns that tell windows of equal bounds apart."""
        return (*self.by, NODE) if _named(self) else self.by

    def without_names(self) -> Query:
        """The query without the names of time column and table that SQL text gave."""
        if self.time is None and self.table is None:
            return self
        made = copy(self)
        object.__setattr__(made, "time", None)
        object.__setattr__(made, "table", None)
        return made

    def record(self) -> QueryRecord:
        return QueryRecord(
            self.name,
            self.aggregates,
            self.by,
            self.where,
            self.window.to_dict(),
            self.distinct_on,
            f"{self.distinct_within}us",
            self.measure,
            self.time,
            self.table,
        )

    @classmethod
    def of(cls, record: QueryRecord) -> Query:
        """The query that was written down."""
        rest = asdict(record)
        name, aggregates = rest.pop("name"), rest.pop("aggregates")
        return cls(name, *aggregates, window=window_from_dict(rest.pop("window")), **rest)

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON has it."""
        return records.decode(dict[str, Any], records.encode(self.record()), "a query")

    @classmethod
    def from_dict(cls, data: object) -> Query:
        """The inverse of `to_dict`."""
        return cls.of(records.convert(QueryRecord, data, "a query", unreadable_query))


def _name(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise QueryError("a query needs a name", given=repr(name), hint='try Query("speed", ...)')
    return _unicode(name)


def _unicode(name: str) -> str:
    """Fails for a name that no file, table or message could hold."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            "a name is not Unicode text",
            given=ascii(name),
            hint="it holds half of a surrogate pair; leave that out",
        ) from error
    return name


def _columns(value: str | Sequence[str], what: str) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value)
    for name in names:
        if not isinstance(name, str) or not name:
            raise QueryError(
                f"{what} takes column names", given=repr(name), hint=f'try {what}=["player"]'
            )
    if len(set(names)) < len(names):
        raise QueryError(f"{what} names a column twice", given=", ".join(names))
    return names


def _check(query: Query) -> None:
    if not isinstance(query.window, Window):
        raise QueryError(
            f"query {query.name!r} needs a window",
            given=repr(query.window),
            hint='try window=ct.tumbling("10s")',
        )
    if query.measure not in MEASURES:
        raise QueryError(
            "no such measure of time",
            given=repr(query.measure),
            hint=did_you_mean(str(query.measure), MEASURES),
        )
    for what, named in (("time column", query.time), ("table", query.table)):
        if named is not None and (not isinstance(named, str) or not named):
            raise QueryError(
                f"query {query.name!r}: the {what} is not a name",
                given=repr(named),
                hint="give a text, or leave it out",
            )
    if not query.aggregates:
        raise QueryError(
            f"query {query.name!r} computes nothing", hint='add an aggregate, as in ct.avg("v")'
        )
    if query.distinct_on and query.distinct_within <= 0:
        raise QueryError("distinct_within must be positive", given=f"{query.distinct_within}us")
    if query.window.stream_reading is not None:
        _check_streams(query)
    taken: set[str] = set(query.by)
    kept = {*RESERVED, *COMPLETENESS, *([NODE] if _named(query) else [])}
    for reserved in taken & kept:
        raise QueryError(
            f"query {query.name!r}: a key column may not be called {reserved!r}",
            hint="results carry a column of that name; rename the key",
        )
    for aggregate in query.aggregates:
        if not isinstance(aggregate, Aggregate):
            raise QueryError(
                f"query {query.name!r}: not an aggregate",
                given=repr(aggregate),
                hint='try ct.avg("v")',
            )
        label = _unicode(aggregate.label)
        if label in taken or label in kept:
            raise QueryError(
                f"query {query.name!r} has two result columns of one name",
                given=label,
                hint='give one another name with .alias("...")',
            )
        taken.add(label)


def _named(query: Query) -> bool:
    return query.window.stream_reading == "local"


def _check_streams(query: Query) -> None:
    """What needs all events in one place cannot be asked of windows cut on each node."""
    if query.distinct_on:
        raise QueryError(
            f"query {query.name!r}: repeats are found where all events meet, but these windows "
            "are cut on each node",
            given="distinct_on",
            hint="leave out reading, or distinct_on",
        )
    if query.measure != "event":
        raise QueryError(
            f"query {query.name!r}: windows cut on each node are in event time",
            given=f"measure={query.measure!r}",
            hint="leave out reading, or measure",
        )
