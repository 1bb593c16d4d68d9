"""What a job demands of its queries, checked the same on every way in.

A query reaches a job in its file, through a command, over the network, in a file of the job's
folder, or from Python. Each of these ways calls `bound` with the rules of the job. What goes in is
a query as it was written; what comes out is the same query, known to fit, or a typed error. The
rules need no events: whether the columns exist is checked when the schema is known
(`catchment.engine.binding`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from catchment.errors import QueryError, did_you_mean
from catchment.model.duration import Duration
from catchment.model.early import FINAL, emit_of
from catchment.model.query import WINDOW_TIME, Query
from catchment.model.settings import (
    BAD,
    INCOMPLETE,
    LATE,
    Bad,
    Incomplete,
    Late,
    not_negative,
    one_of,
)
from catchment.model.time_column import TimeSpec, time_name, time_spec

EVENTS = "events"
"""What SQL may always call the events of a job in FROM."""


@dataclass(frozen=True, slots=True)
class EventRules:
    """How the events of a job are treated; durations in microseconds.

    `of` checks what a user gave.
    """

    time: TimeSpec = "ts"
    """The column of event times, and how they are read."""
    lateness: int = 0
    """How far behind the newest event the frontier stays."""
    late: Late = "drop"
    """What becomes of events before the frontier."""
    keep: int | None = None
    """How long late events may correct results; None: for the longest window."""
    bad: Bad = "collect"
    """What becomes of rows without a usable time."""
    incomplete: Incomplete = "count"
    """What becomes of windows that are open at the end of the input."""
    emit: str = FINAL
    """When running values of open windows are given, as `emit_of` has it."""

    @classmethod
    def of(
        cls,
        time: TimeSpec | Mapping[str, Any] = "ts",
        lateness: Duration = "0s",
        late: Late = "drop",
        keep: Duration | None = None,
        bad: Bad = "collect",
        incomplete: Incomplete = "count",
        emit: str = FINAL,
    ) -> EventRules:
        """The rules as a user gives them; raises the first mistake.

        >>> EventRules.of(lateness="2s").lateness
        2000000
        """
        return cls(
            time_spec(time),
            not_negative(lateness, "lateness"),
            one_of(late, LATE, "late"),
            None if keep is None else not_negative(keep, "keep"),
            one_of(bad, BAD, "bad"),
            one_of(incomplete, INCOMPLETE, "incomplete"),
            emit_of(emit),
        )

    @property
    def time_name(self) -> str:
        """The name of the column of event times."""
        return time_name(self.time)

    @property
    def for_queries(self) -> QueryRules:
        """What queries must fit, where nothing else is known of the job."""
        return QueryRules(self.time, self.late, emit=self.emit)

    @property
    def corrects(self) -> str | None:
        """What lets results be corrected that were given, as it was said; None: nothing."""
        return correcting(self.late, self.emit)


def correcting(late: Late, emit: str) -> str | None:
    """What lets results be corrected that were given, as it was said; None: nothing."""
    if late == "update":
        return "late='update'"
    return None if emit == FINAL else f"emit='{emit}'"


@dataclass(frozen=True, slots=True)
class QueryRules:
    """The rules of a job: its one time column, its tables, what becomes of late events."""

    time: TimeSpec
    late: Late = "drop"
    tables: tuple[str, ...] = ()
    """Names in FROM that stand for all events of the job, besides `events`."""
    tree: bool = False
    """Whether the events are read by the nodes of a tree."""
    emit: str = FINAL
    """When running values of open windows are given."""

    @property
    def time_name(self) -> str:
        """The name of the time column."""
        return time_name(self.time)


def each_bound(queries: Iterable[Query], rules: QueryRules) -> list[Query]:
    """The queries as those of one job, whose results they may read; raises the first reason why one
    of them cannot be."""
    given = list(queries)
    others = {query.name: query for query in given}
    return [bound(query, rules, others) for query in given]


def with_sources(queries: Iterable[Query], tables: Iterable[str] = ()) -> list[Query]:
    """The queries, and in those that name another one in FROM that other one.

    Names of the job's tables, and `events`, stand for its events.
    """
    given = list(queries)
    others = {query.name: query for query in given}
    return [_with_source(query, others, frozenset(tables), ()) for query in given]


def _with_source(
    query: Query, others: Mapping[str, Query], tables: frozenset[str], above: tuple[str, ...]
) -> Query:
    if query.source is not None:
        inner = _with_source(query.source, others, tables, (*above, query.name))
        return query if inner is query.source else query.reading(inner)
    if query.table is None or _is_table(query.table, tables):
        return query
    path = (*above, query.name)
    if query.table in path:
        raise QueryError(
            f"query {path[0]!r} depends on itself",
            given=" reads ".join([*path, query.table]),
            hint="FROM takes events, or a query that does not read from this one",
        )
    if query.table not in others:
        return query  # whoever knows the tables of the job tells
    return query.reading(_with_source(others[query.table], others, tables, path))


def reading_others(query: Query, rules: QueryRules, others: Mapping[str, Query]) -> Query:
    """The query, and in it the one that it names in FROM, if that is one of the others."""
    return _with_source(query, others, frozenset(rules.tables), ())


def each_source(queries: Iterable[Query]) -> Iterator[Query]:
    """The queries whose results others read, each after those that it reads itself."""
    for query in queries:
        if query.source is not None:
            yield from each_source([query.source])
            yield query.source


def bound(query: Query, rules: QueryRules, others: Mapping[str, Query] | None = None) -> Query:
    """The query as one of the job's; raises the first reason why it cannot be one.

    `others` are those whose results it may read.

    >>> from catchment.functions import count
    >>> from catchment.windows import tumbling
    >>> query = Query("n", count(), window=tumbling("1s"), time="ts")
    >>> bound(query, QueryRules("ts")).time is None
    True
    """
    query = reading_others(query, rules, others or {})
    for refusal in refusals(query, rules, others):
        raise refusal
    return query.without_names()


def refusals(
    query: Query, rules: QueryRules, others: Mapping[str, Query] | None = None
) -> Iterator[QueryError]:
    """Every reason why a query cannot be one of the job's."""
    if query.source is not None:
        if query.time not in (None, *_TIMES_OF_RESULTS):
            yield _no_time_of_results(query)
        yield from refusals(query.source, rules, others)
        said = correcting(rules.late, rules.emit)
        if said is not None:
            yield no_updates_of_results(query.name, said)
        return
    unknown = query.table is not None and not _is_table(query.table, rules.tables)
    if query.time not in (None, rules.time_name) and not (
        unknown and query.time in _TIMES_OF_RESULTS
    ):
        yield other_time(f"query {query.name!r}: its window names", query.time, rules.time_name)
    if query.table is not None and unknown:
        yield _no_table(query.name, query.table, (*rules.tables, *_but(query.name, others)))
    if rules.tree and query.measure == "processing":
        yield QueryError(
            "a tree has many clocks: windows by processing time make no sense in it",
            given=query.name,
            hint="use event time",
        )
    reading = query.window.stream_reading
    said = correcting(rules.late, rules.emit)
    if said is None:
        return
    if reading is not None and not query.window.by_node:
        yield no_updates(query.name, reading, said)
    if not query.window.correctable:
        yield no_updates_of_chains(query.name, said)
    if query.output is not None and query.output.whole:
        yield no_updates_of_whole(query.name, said)


def _but(name: str, others: Mapping[str, Query] | None) -> list[str]:
    return [other for other in others or () if other != name]


_TIMES_OF_RESULTS = (WINDOW_TIME, "window")
"""What SQL may call the time of results that a query reads, as Flink and Spark do."""


def _no_time_of_results(query: Query) -> QueryError:
    return QueryError(
        f"query {query.name!r}: its window names the column {query.time!r}, but the time of the "
        f"results that it reads is {WINDOW_TIME!r}",
        given=query.time,
        hint=f"write window({WINDOW_TIME}, ...): it is the last moment of each window read",
    )


def _is_table(table: str, tables: Iterable[str]) -> bool:
    """Whether a name in FROM stands for the job's events; SQL does not tell case apart."""
    return table.casefold() in {name.casefold() for name in (EVENTS, *tables)}


def other_time(who: str, named: str, time: str) -> QueryError:
    """The error of a window that names a column which is not the job's time column."""
    return QueryError(
        f"{who} the column {named!r}, but the time column of the events is {time!r}",
        given=named,
        hint=f"name {time} in the window, or make {named} the time column of the whole job",
    )


def no_updates(name: str, reading: str, said: str) -> QueryError:
    """The error of windows cut on each node where late events correct results.

    A late mark would split slices that were cut on its node and have climbed already.
    """
    return QueryError(
        f"query {name!r}: windows cut on each node cannot be corrected by late events",
        given=f"reading={reading!r} with {said}",
        hint=f"leave out reading, or {_instead(said)}",
    )


def no_updates_of_chains(name: str, said: str) -> QueryError:
    """The error of windows that begin where the one before ends where late events correct some."""
    return QueryError(
        f"query {name!r}: windows that begin where the one before ends cannot be corrected by late "
        "events, which may shift all that follow",
        given=said,
        hint=f"{_instead(said)}, or use a window of a fixed length or session(gap)",
    )


def no_updates_of_whole(name: str, said: str) -> QueryError:
    """The error of results that depend on all keys of a window where late events correct some."""
    return QueryError(
        f"query {name!r}: the first rows of a window and subtotals over keys cannot be corrected "
        "by late events, which correct results key by key",
        given=said,
        hint=f"{_instead(said)}, or leave out ORDER BY and sets of keys",
    )


def no_updates_of_results(name: str, said: str) -> QueryError:
    """The error of a query over the results of another where late events correct these."""
    return QueryError(
        f"query {name!r}: results that are corrected cannot be read by another query",
        given=said,
        hint=f"{_instead(said)}, or read the events",
    )


def _instead(said: str) -> str:
    return "drop or collect late events" if said.startswith("late") else "give final results only"


def _no_table(name: str, table: str, known: tuple[str, ...]) -> QueryError:
    return QueryError(
        f"query {name!r}: FROM takes the events of the job",
        given=f"FROM {table}",
        hint=did_you_mean(table, [EVENTS, *known]),
    )


def time_named(queries: list[Query]) -> str | None:
    """The time column that queries name which no job has met yet; None where none names one.

    Without a job there is no table but `events`.
    """
    named: dict[str, str] = {}
    for query in [*queries, *each_source(queries)]:
        if query.source is not None:
            if query.time not in (None, *_TIMES_OF_RESULTS):
                raise _no_time_of_results(query)
            continue
        if query.table is not None:
            raise _no_table(query.name, query.table, ())
        if query.time is not None:
            named.setdefault(query.time, query.name)
    if len(named) > 1:
        (first, one), (second, other), *_ = named.items()
        raise QueryError(
            "the queries name several time columns",
            given=f"{first} in {one}, {second} in {other}",
            hint="events have one time column; run the others as a job of their own",
        )
    return next(iter(named), None)
