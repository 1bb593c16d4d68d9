"""A query: aggregates of events, by key, per window. The one model behind Python, SQL and YAML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from msgspec import Struct, structs

from catchment import html
from catchment.errors import QueryError, did_you_mean
from catchment.expression import (
    canonical,
    column_in,
    columns,
    part_text,
    quote,
    steps_of,
    substituted,
)
from catchment.model import records
from catchment.model.duration import Duration, micros
from catchment.model.output import (
    GROUPING_ID,
    MOST_SETS,
    Output,
    OutputColumn,
    RowOrder,
    grouping_name,
)
from catchment.model.window import (
    STREAM,
    Window,
    WindowForm,
    no_such_reading,
    unreadable_query,
    window_from_dict,
)

Measure = Literal["event", "processing"]
MEASURES: tuple[Measure, ...] = ("event", "processing")

RESERVED = ("window_start", "window_end", "window_index", "revision", "retracted")
"""Result columns that no alias or key may take."""

COMPLETENESS = ("complete", "missing")
"""Result columns that a tree adds: no alias or key may take them either."""

NODE = "node"
"""The result column that says whose a window is that is read as `local`."""

ALONE = "0"
"""The stream of whoever is no node of a tree."""

WINDOW_TIME = "window_time"
"""What results are called by as events of another query: the last moment of their window."""

ARGUMENTS = "arguments("
"""What begins the column of a function of several columns: an expression that holds all of them."""


class Aggregate(Struct, frozen=True, cache_hash=True, gc=False):
    """A function of a column, and its result's name, as `ct.avg("v").alias("mean")` makes one.

    `column` is an SQL expression, or None for whole rows; `params` are the function's parameters.

    >>> Aggregate("avg", "v").alias("mean")
    Aggregate(function='avg', column='v', params=(), name='mean')

    Raises nothing itself: a query that holds it raises QueryError where `function` is not known.
    """

    function: str
    column: str | None = None
    params: tuple[Any, ...] = ()
    name: str = ""

    def alias(self, name: str) -> Aggregate:
        """The same aggregate under another result name."""
        return structs.replace(self, name=name)

    @property
    def label(self) -> str:
        return self.name or self.text

    @property
    def text(self) -> str:
        """As SQL would write it: `quantile(v, 0.95)`."""
        parts = [self.arguments, *(repr(p) for p in self.params)]
        return f"{self.function}({', '.join(parts)})"

    @property
    def arguments(self) -> str:
        """The column as SQL would write it, or the columns: `y, x`."""
        column = self.column or "*"
        return column[len(ARGUMENTS) : -1] if column.startswith(ARGUMENTS) else column


@dataclass(frozen=True, slots=True)
class Expression:
    """A result column computed from aggregates, keys and bounds: `sum(a) / sum(b)`.

    In the `text`, each of its `aggregates` is a column of its own text, in backticks. `name` is the
    result's. `catchment.expr` makes one from SQL.

    >>> Expression("`sum(a)` / 2", (Aggregate("sum", "a"),)).alias("half").name
    'half'

    Raises nothing itself: a query that holds it raises QueryError where it means nothing.
    """

    text: str
    aggregates: tuple[Aggregate, ...] = ()
    name: str = ""

    def alias(self, name: str) -> Expression:
        """The same under another result name."""
        return replace(self, name=name)

    @property
    def label(self) -> str:
        return self.name or self.text.replace("`", "")


@dataclass(frozen=True, slots=True)
class Ordering:
    """What the rows of a window are ordered by: see `Query`, `order_by`.

    `by` is a result or an expression over results; `descending` turns the order round. Nulls are
    less than all else, unless `nulls_first` says otherwise. `catchment.order` makes one from SQL.

    >>> Ordering("mean", descending=True).by
    'mean'

    Raises nothing itself: a query that holds it raises QueryError where there is no such result.
    """

    by: Expression | Aggregate | str
    descending: bool = False
    nulls_first: bool | None = None


KeyColumn = str | Mapping[str, str]
"""A key column, or result names of keys and the expressions that they are computed by."""


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
    computed: tuple[tuple[str, str], ...] = ()
    output: Output | None = None
    source: QueryRecord | None = None


@dataclass(frozen=True, slots=True, init=False)
class Query:
    """Aggregates over windows of the events that meet `where`, one result per key and window.

    `distinct_on` names columns whose values make an event unique: an event that repeats them
    within `distinct_within` of event time of an accepted one is dropped, and counted.
    `measure="processing"` takes the time of arrival instead of the event's own.

    What is selected may also be expressions over aggregates (`catchment.expr`); `having` is a
    condition on the results, `order_by` and `limit` keep the first rows of each window. All of
    these may name columns of the results, and `window_start` and `window_end`. A key may be
    computed, and gets a name: `by=["site", {"hour": "hour(ts)"}]`. `grouping_sets` are sets of
    keys, for each of which there are rows of its own, as SQL's GROUPING SETS has it.

    `time` and `table` are what SQL text named as the time column and in FROM. The text alone cannot
    tell whether they are those of the job, so the query remembers them until it meets one:
    `rules.bound` compares them, and returns the query without. They are no part of what is
    computed, so queries that differ in nothing else are equal.

    `source` is another query, whose results are the events of this one: `window_time`, the last
    moment of each of its windows, is their time. SQL names such a query in FROM, or writes it
    there; `table` may name it too.

    `name` is what its results are called, `selected` are its aggregates and expressions, `by` its
    keys, `window` one of `ct.tumbling`, `ct.sliding`, `ct.session` and so on.

        ct.Query("speed", ct.avg("v").alias("mean"), by="player", window=ct.sliding("10s", "5s"))

    Raises QueryError for whatever cannot mean anything: no window, a condition that is no SQL, two
    results of one name.
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
    computed: tuple[tuple[str, str], ...] = ()
    """Name and expression of keys that are no columns of the events."""
    output: Output | None = None
    """What is made of the aggregates; None: they are the results, as they are."""
    source: Query | None = None
    """The query whose results are the events; None: it reads events."""

    def __init__(
        self,
        name: str,
        *selected: Aggregate | Expression,
        window: Window,
        by: KeyColumn | Sequence[KeyColumn] = (),
        where: str | None = None,
        having: Expression | Aggregate | str | None = None,
        order_by: _OrderBy | Sequence[_OrderBy] = (),
        limit: int | None = None,
        grouping_sets: Sequence[Sequence[str]] = (),
        distinct_on: str | Sequence[str] = (),
        distinct_within: Duration = "1h",
        measure: Measure = "event",
        time: str | None = None,
        table: str | None = None,
        source: Query | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "source", source)
        put(self, "name", _name(name))
        names, computed = _keys(by)
        put(self, "by", names)
        put(self, "computed", computed)
        aggregates: tuple[Any, ...] = selected
        output: Output | None = None
        asked = having is not None or order_by or limit is not None or grouping_sets
        if asked or not selected or not all(type(some) is Aggregate for some in selected):
            made = _Selection(self, selected, _sets(grouping_sets))
            aggregates, output = made.result(having, _orders(order_by), limit)
        put(self, "aggregates", aggregates)
        put(self, "output", output)
        put(self, "where", None if where is None else canonical(where, "where condition"))
        if isinstance(window, Window) and window.requires is not None:
            needed = [text for text in (self.where, window.requires) if text is not None]
            put(self, "where", canonical(" AND ".join(f"({text})" for text in needed), "window"))
        put(self, "window", window)
        put(self, "distinct_on", _columns(distinct_on, "distinct_on"))
        within = micros(distinct_within, "distinct_within") if self.distinct_on else 0
        put(self, "distinct_within", within)
        put(self, "measure", measure)
        put(self, "time", time)
        put(self, "table", table)
        _check(self)

    def _repr_html_(self) -> str:
        """For notebooks: the query on one line."""
        return html.table(["query", ""], [[self.name, self.describe()]])

    def describe(self) -> str:
        """The query on one line, for people.

        >>> import catchment as ct
        >>> query = ct.Query("q", ct.avg("v").alias("mean"), by="k", window=ct.tumbling("5s"))
        >>> query.describe()
        'avg(v) AS mean by k over tumbling(5s)'
        """
        output, computed = self.output, dict(self.computed)
        parts = [f"{a.text} AS {a.name}" if a.name else a.text for a in self.aggregates]
        if output is not None:
            parts = [f"{_plain(column.expression)} AS {column.name}" for column in output.columns]
        words = [", ".join(parts or self.by)]
        if self.by:
            keys = [f"{computed[key]} AS {key}" if key in computed else key for key in self.by]
            words.append(f"by {', '.join(keys)}")
        if output is not None and output.sets:
            words.append("in sets " + ", ".join(f"({', '.join(keys)})" for keys in output.sets))
        if self.source is not None:
            words.append(f"of ({self.source.describe()})")
        if self.where:
            words.append(f"where {self.where}")
        words.append(f"over {self.window.describe()}")
        if output is not None and output.having is not None:
            words.append(f"having {_plain(output.having)}")
        if output is not None and output.order:
            orders = [_plain(o.expression) + " DESC" * o.descending for o in output.order]
            words.append(f"order by {', '.join(orders)}")
        if output is not None and output.limit is not None:
            words.append(f"limit {output.limit}")
        return " ".join(words)

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
            self.computed,
            self.output,
            None if self.source is None else self.source.identity,
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The result columns that tell windows of equal bounds apart."""
        sets = (GROUPING_ID,) if self.output is not None and self.output.sets else ()
        return (*self.by, *sets, NODE) if _named(self) else (*self.by, *sets)

    @property
    def columns(self) -> tuple[str, ...]:
        """The result columns besides keys, bounds and marks."""
        if self.output is None:
            return tuple(aggregate.label for aggregate in self.aggregates)
        return tuple(column.name for column in self.output.columns)

    def without_names(self) -> Query:
        """The query without the names of time column and table that SQL text gave."""
        source = None if self.source is None else self.source.without_names()
        if self.time is None and self.table is None and source is self.source:
            return self
        made = copy(self)
        object.__setattr__(made, "time", None)
        object.__setattr__(made, "table", None)
        object.__setattr__(made, "source", source)
        return made

    def reading(self, source: Query) -> Query:
        """The query over the results of another one, which its text named."""
        made = copy(self)
        object.__setattr__(made, "table", None)
        object.__setattr__(made, "source", source)
        _check_source(made)
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
            self.computed,
            self.output,
            None if self.source is None else self.source.record(),
        )

    @classmethod
    def of(cls, record: QueryRecord) -> Query:
        """The query that was written down."""
        rest = structs.asdict(record)
        name, aggregates, output = rest.pop("name"), rest.pop("aggregates"), rest.pop("output")
        computed = dict(rest.pop("computed"))
        rest["source"] = None if record.source is None else cls.of(record.source)
        rest["by"] = [{key: computed[key]} if key in computed else key for key in record.by]
        selected: Iterable[Aggregate | Expression] = aggregates
        if output is not None:
            named = [(column.expression, column.name) for column in output.columns]
            selected = [Expression(text, aggregates, name) for text, name in named]
            having = output.having
            rest["having"] = None if having is None else Expression(having, aggregates)
            rest["order_by"] = [
                Ordering(Expression(o.expression, aggregates), o.descending, o.nulls_first)
                for o in output.order
            ]
            rest |= {"limit": output.limit, "grouping_sets": output.sets}
        return cls(name, *selected, window=window_from_dict(rest.pop("window")), **rest)

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


_OrderBy = str | Expression | Aggregate | Ordering

_BOUNDS = ("window_start", "window_end")


def _keys(
    by: KeyColumn | Sequence[KeyColumn],
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The names of the keys in results; of those that are computed, the expressions."""
    given = (by,) if isinstance(by, str | Mapping) else tuple(by)
    names: list[str] = []
    computed: dict[str, str] = {}
    for key in given:
        if not isinstance(key, Mapping):
            names.append(key)
            continue
        for name, text in key.items():
            names.append(name)
            made = canonical(text, f"key {name}")
            if made != quote(str(name)):
                computed[name] = made
    return _columns(names, "by"), tuple(computed.items())


def _orders(given: _OrderBy | Sequence[_OrderBy]) -> list[_OrderBy]:
    some = [given] if isinstance(given, _OrderBy) else given
    if isinstance(some, Sequence) and all(isinstance(one, _OrderBy) for one in some):
        return list(some)
    raise QueryError(
        "order_by takes names of results, expressions and aggregates",
        given=repr(given),
        hint='try order_by=["n"], or ct.order("count(*) DESC")',
    )


def _sets(given: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    if listed and all(isinstance(some, Sequence) and not isinstance(some, str) for some in given):
        return tuple(tuple(some) for some in given)
    raise QueryError(
        "grouping_sets takes lists of keys",
        given=repr(given),
        hint='try grouping_sets=[["site"], []]',
    )


class _Selection:
    """Reads what a query selects: which aggregates it needs, and what becomes of them."""

    def __init__(
        self,
        query: Query,
        selected: Sequence[Aggregate | Expression],
        sets: tuple[tuple[str, ...], ...],
    ) -> None:
        self.query = query
        self.selected = selected
        self.sets = sets
        self.aggregates: dict[Aggregate, None] = {}
        self.named: dict[str, str] = {}
        """Result columns so far, by their names."""
        for some in selected:
            if not isinstance(some, Aggregate | Expression):
                raise QueryError(
                    f"query {query.name!r}: not an aggregate",
                    given=repr(some),
                    hint='try ct.avg("v"), or ct.expr("sum(a) / sum(b)")',
                )

    def result(
        self,
        having: Expression | Aggregate | str | None,
        orders: list[_OrderBy],
        limit: int | None,
    ) -> tuple[tuple[Aggregate, ...], Output]:
        if not self.selected and not self.query.by:
            raise QueryError(
                f"query {self.query.name!r} computes nothing",
                hint='add an aggregate, as in ct.avg("v")',
            )
        self._check_sets()
        columns = tuple(self._column(some) for some in self.selected)
        output = Output(
            columns,
            self._having(having),
            tuple(self._order(order) for order in orders),
            self._limit(limit, orders),
            self.sets,
        )
        # Which keys there are in a window is told by counting, if by nothing else.
        return tuple(self.aggregates) or (Aggregate("count"),), output

    def _column(self, some: Aggregate | Expression) -> OutputColumn:
        if isinstance(some, Aggregate):
            text = self._aggregate(some)
        else:
            text = self._resolved(some, f"column {some.label!r}")
        self.named.setdefault(some.label, text)
        return OutputColumn(some.label, text)

    def _aggregate(self, aggregate: Aggregate) -> str:
        self.aggregates[aggregate.alias("")] = None
        return quote(aggregate.text)

    def _resolved(self, some: Expression | Aggregate | str, what: str) -> str:
        """The expression over texts of aggregates, keys and bounds: names of results are gone."""
        if isinstance(some, Aggregate):
            return self._aggregate(some)
        given = some if isinstance(some, Expression) else Expression(some)
        text = canonical(given.text, what)
        used = columns(text)
        known = {aggregate.text: aggregate for aggregate in given.aggregates}
        plain = {*self.query.by, *_BOUNDS, *self._groupings()}
        names: dict[str, str] = {}
        for name in used:
            # A field or an element of a result column goes by a path that begins with its name.
            whole = column_in([*known, *self.named, *plain], name)
            if whole in known:
                self._aggregate(known[whole])
            elif whole in self.named and whole not in plain:
                names[name] = self.named[whole]
            if whole is not None and whole != name:
                steps = steps_of(name, whole) or ()
                names[name] = part_text(names.get(name, quote(whole)), steps)
            if whole is None:
                options = [*self.named, *self.query.by, *_BOUNDS]
                raise QueryError(
                    f"query {self.query.name!r}: the {what} names what is no column of the results",
                    given=name,
                    hint=did_you_mean(name, options, "known: " + ", ".join(options))
                    + "; columns of events stand in where, in keys and in aggregates",
                )
        return substituted(text, names)

    def _groupings(self) -> list[str]:
        if not self.sets:
            return []
        return [GROUPING_ID, *(grouping_name(key) for key in self.query.by)]

    def _having(self, having: Expression | Aggregate | str | None) -> str | None:
        if having is None:
            return None
        text = self._resolved(having, "having condition")
        if not columns(text):
            raise QueryError(
                f"query {self.query.name!r}: the having condition says nothing of the results",
                given=text,
                hint="compare an aggregate or a key with something, as in count(*) > 3",
            )
        return text

    def _order(self, order: _OrderBy) -> RowOrder:
        given = order if isinstance(order, Ordering) else Ordering(order)
        text = self._resolved(given.by, "order")
        first = not given.descending if given.nulls_first is None else given.nulls_first
        return RowOrder(text, given.descending, first)

    def _limit(self, limit: int | None, orders: list[_OrderBy]) -> int | None:
        if limit is None:
            return None
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise QueryError(
                f"query {self.query.name!r}: the limit must be a positive whole number",
                given=repr(limit),
                hint="it is the number of rows of each window",
            )
        if not orders:
            raise QueryError(
                f"query {self.query.name!r} has a limit and no order",
                given=f"LIMIT {limit}",
                hint="say which rows come first, as in ORDER BY count(*) DESC",
            )
        return limit

    def _check_sets(self) -> None:
        if len(self.sets) > MOST_SETS:
            raise QueryError(
                f"query {self.query.name!r} has too many sets of keys",
                given=f"{len(self.sets):,} sets",
                hint=f"at most {MOST_SETS:,}; list only those that you need",
            )
        for some in self.sets:
            for key in some:
                if key not in self.query.by:
                    raise QueryError(
                        f"query {self.query.name!r}: a set of keys names what is no key",
                        given=key,
                        hint=did_you_mean(key, self.query.by),
                    )
        if len({frozenset(some) for some in self.sets}) < len(self.sets):
            raise QueryError(
                f"query {self.query.name!r} has one set of keys twice",
                given=", ".join(f"({', '.join(some)})" for some in self.sets),
                hint="leave out one of them",
            )
        if self.sets and len(self.query.by) > _MOST_SET_KEYS:
            raise QueryError(
                f"query {self.query.name!r} has too many keys for sets of keys",
                given=f"{len(self.query.by)} keys",
                hint=f"at most {_MOST_SET_KEYS}",
            )


_MOST_SET_KEYS = 62
"""Keys that `grouping_id` has bits for."""


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
    _check_window(query)
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
    if query.source is not None:
        _check_source(query)
    if query.distinct_on and query.distinct_within <= 0:
        raise QueryError("distinct_within must be positive", given=f"{query.distinct_within}us")
    if query.window.reading != "global":
        _check_streams(query)
    kept = _reserved_names(query)
    for reserved in kept.intersection(query.by):
        raise QueryError(
            f"query {query.name!r}: a key column may not be called {reserved!r}",
            hint="results carry a column of that name; rename the key",
        )
    taken = {*query.by, *kept}
    for label in query.columns:
        if label in kept:
            raise QueryError(
                f"query {query.name!r}: a result column may not be called {label!r}",
                hint="results carry a column of that name; give this one another with AS, or "
                '.alias("...") in Python',
            )
        if _unicode(label) in taken:
            raise QueryError(
                f"query {query.name!r} has two result columns of one name",
                given=label,
                hint='give one another name with .alias("...")',
            )
        taken.add(label)
    if query.output is not None and query.output.whole:
        _check_whole(query, query.output)


def _check_window(query: Query) -> None:
    if not isinstance(query.window, Window):
        raise QueryError(
            f"query {query.name!r} needs a window",
            given=repr(query.window),
            hint='try window=ct.tumbling("10s")',
        )
    if query.window.reading not in query.window.readings:
        raise no_such_reading(query.window, query.window.reading)


_DEEPEST = 8
"""Queries that may read from one another's results, one above the other."""


def _check_source(query: Query) -> None:
    """Refuses what has no results that could be events."""
    source, deep = query.source, 0
    if not isinstance(source, Query):
        raise QueryError(
            f"query {query.name!r}: its source is no query",
            given=repr(source),
            hint="give the query whose results it reads, or leave it out",
        )
    if query.measure != "event" or source.measure != "event":
        raise QueryError(
            f"query {query.name!r}: results are read by event time",
            given="measure='processing'",
            hint="leave out measure, of this query and of the one it reads from",
        )
    if query.window.reading != "global":
        raise QueryError(
            f"query {query.name!r}: the results that it reads are of no node",
            given=f"reading={query.window.reading!r}",
            hint="leave out reading",
        )
    if source.window.stream_reading is not None:
        raise QueryError(
            f"query {query.name!r}: windows that each stream has for itself cannot be read from",
            given=f"reading={source.window.stream_reading!r} of {source.name!r}",
            hint="leave out reading",
        )
    if WINDOW_TIME in {*source.by, *source.columns}:
        raise QueryError(
            f"query {query.name!r} reads results that have a column {WINDOW_TIME!r} of their own",
            given=source.name,
            hint="give that column another name: it is that of the time of results",
        )
    above: Query | None = query
    while above is not None:
        deep, above = deep + 1, above.source
    if deep > _DEEPEST:
        raise QueryError(
            f"query {query.name!r} reads from too many queries, one above the other",
            given=str(deep),
            hint=f"at most {_DEEPEST}",
        )


_RESERVED_ALWAYS = frozenset((*RESERVED, *COMPLETENESS, STREAM))


def _reserved_names(query: Query) -> frozenset[str]:
    """Names of result columns that nothing of the query's own may take."""
    own = _RESERVED_ALWAYS | {NODE} if _named(query) else _RESERVED_ALWAYS
    return own | {GROUPING_ID} if query.output is not None and query.output.sets else own


def _check_whole(query: Query, output: Output) -> None:
    """What takes all keys of a window together needs windows that all keys have in common."""
    what = "subtotals over keys need" if output.sets else "ORDER BY needs"
    if _named(query):
        raise QueryError(
            f"query {query.name!r}: {what} all rows of a window together, but these windows are "
            "each node's own",
            given=query.window.describe(),
            hint="leave out reading",
        )
    if not query.window.periods:
        raise QueryError(
            f"query {query.name!r}: {what} windows that are the same for all keys",
            given=query.window.describe(),
            hint="use a window of fixed length, or order the results instead"
            if not output.sets
            else "use a window of fixed length, or make each set of keys a query of its own",
        )


def _named(query: Query) -> bool:
    return query.window.stream_reading == "local"


def _check_streams(query: Query) -> None:
    """What needs all events in one place cannot be asked of windows that tell nodes apart."""
    if query.distinct_on:
        raise QueryError(
            f"query {query.name!r}: repeats are found where all events meet, but these windows "
            "tell nodes apart",
            given="distinct_on",
            hint="leave out reading, or distinct_on",
        )
    if query.measure != "event":
        raise QueryError(
            f"query {query.name!r}: windows that tell nodes apart are in event time",
            given=f"measure={query.measure!r}",
            hint="leave out reading, or measure",
        )


def _plain(expression: str) -> str:
    """An expression over aggregates as it is written in SQL."""
    return expression.replace("`", "")
