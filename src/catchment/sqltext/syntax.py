"""The statement: one SELECT from one table, with no clause that we do not do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from catchment.errors import SqlError
from catchment.expression.spark_sql import ByName
from catchment.sqltext.inlining import inline, is_projection
from catchment.sqltext.joins import QUALIFIED, put_lookups
from catchment.sqltext.rewriting import rewrite
from catchment.sqltext.table_functions import TableFunction, taken_out
from catchment.sqltext.writing import text_of

_EXAMPLE = (
    "try SELECT player, avg(v) AS mean FROM events WHERE v > 0 "
    "GROUP BY player, window(ts, '10 seconds', '5 seconds')"
)
_CLAUSES = {
    "offset": ("OFFSET", "ORDER BY ... LIMIT n gives the first n rows of each window"),
    "distinct": ("DISTINCT", "results have one row per key and window anyway"),
    "qualify": ("QUALIFY", "a condition on results goes into HAVING"),
    "laterals": (
        "LATERAL VIEW",
        (
            "an event is one row: count a list with size(tags), look into it with "
            "array_contains(tags, 'a') or tags[0], or explode it before the events are read"
        ),
    ),
    "sort": ("SORT BY", "write ORDER BY, which orders the rows of each window"),
    "cluster": ("CLUSTER BY", "leave it out"),
    "distribute": ("DISTRIBUTE BY", "leave it out"),
    "into": ("INTO", "write the results to a sink"),
    "locks": ("FOR UPDATE", "leave it out"),
    "sample": ("TABLESAMPLE", "select events with WHERE"),
    "pivots": ("PIVOT", "reshape the results instead"),
}


class _Dialect(ByName):
    """Spark's grammar, but WINDOW is no clause, and functions keep their names."""

    class Tokenizer(Spark.tokenizer_class):  # type: ignore[misc, valid-type]
        KEYWORDS: ClassVar[dict[str, Any]] = {
            word: token
            for word, token in Spark.tokenizer_class.KEYWORDS.items()
            if word != "WINDOW"
        }


_DIALECT = _Dialect()


@dataclass(frozen=True, slots=True)
class Item:
    """One item of SELECT: the expression, and its alias or an empty text."""

    node: exp.Expression
    alias: str

    @classmethod
    def of(cls, node: exp.Expression) -> Item:
        return cls(node.this, node.alias) if isinstance(node, exp.Alias) else cls(node, "")


def by_place(number: exp.Expression, items: list[Item], clause: str) -> Item:
    """The item of SELECT with this number."""
    place = int(number.name) if number.name.isdigit() else 0
    if not 1 <= place <= len(items):
        raise SqlError(
            f"{clause} names an item of SELECT that is not there",
            given=number.name,
            hint=f"there are {len(items)}, from 1",
        )
    return items[place - 1]


@dataclass(frozen=True, slots=True)
class Statement:
    """A SELECT, the window that stood in its FROM, if one did, and what else stood there."""

    select: exp.Select
    function: TableFunction | None = None
    inner: exp.Select | None = None
    """The SELECT whose results it reads."""
    inner_name: str = ""
    lookups: Mapping[str, str] = field(default_factory=dict)


def statement_of(text: str, lookups: Mapping[str, str] | None = None) -> Statement:
    """The statement that a text is; `lookups` are tables that JOIN may name, and where they are."""
    function: TableFunction | None = None
    if isinstance(text, str) and _IN_FROM.search(text):
        try:
            text, function = taken_out(text, _DIALECT.tokenize(text))
        except SqlglotError as error:
            raise SqlError("the SQL does not parse", given=text, hint=_EXAMPLE) from error
    made = _statement(parsed(text), function, {}, lookups or {})
    if function is not None and made.inner is not None:
        raise SqlError(
            "a window in FROM and a subquery cannot stand in one statement",
            given=function.window,
            hint="write windows in GROUP BY, as in window(ts, '10 seconds')",
        )
    return made


_Named = dict[str, exp.Select]
"""What WITH names."""


def inner_statement(statement: Statement) -> Statement:
    """The statement whose results another one reads."""
    assert statement.inner is not None
    return _statement(statement.inner, None, {}, statement.lookups)


def _statement(
    select: exp.Select,
    function: TableFunction | None,
    known: _Named,
    lookups: Mapping[str, str],
) -> Statement:
    """The statement, with what a SELECT of events in its FROM computes in its own place."""
    named = _taken_with(select, known)
    for key, clause in clauses_of(select):
        what, hint = _CLAUSES.get(key, (key.upper(), "leave it out"))
        given = clause[0] if isinstance(clause, list) else clause
        shown = text_of(given).strip() if isinstance(given, exp.Expression) else None
        raise SqlError(f"{what} is not supported in SQL", given=shown, hint=hint)
    inner, name = _inner_of(select, named)
    if inner is not None and is_projection(inner):
        below = _statement(inner, None, {}, lookups)
        inline(select, below.select, name)
        inner, name = below.inner, below.inner_name
    nodes = list(select.walk())
    _check_table(select, nodes)
    put_lookups(select, lookups)
    for other in nodes:
        if isinstance(other, exp.Query) and other is not select:
            raise _subquery(
                other, "make it a query of its own; a condition on results goes into HAVING"
            )
    return Statement(select, function, inner, name, lookups)


def _taken_with(select: exp.Select, known: _Named) -> _Named:
    """What WITH names, which is then gone from the statement: each may read those before it."""
    clause = select.args.pop("with_", None) or select.args.pop("with", None)
    named = dict(known)
    for part in clause.expressions if clause else ():
        if clause.args.get("recursive") or not isinstance(part.this, exp.Select):
            raise SqlError(
                "WITH takes names of SELECTs over windows",
                given=text_of(part),
                hint="write WITH speed AS (SELECT ... GROUP BY window(ts, '10 seconds'))",
            )
        named[part.alias] = _with(part.this, named)
    return named


def _with(select: exp.Select, named: _Named) -> exp.Select:
    """A SELECT with what it reads, if WITH named that, as a subquery."""
    source: Any = select.args.get("from_") or select.args.get("from")
    table = None if source is None else source.this
    if isinstance(table, exp.Table) and table.name in named and not table.db:
        held = exp.Subquery(this=named[table.name].copy(), alias=exp.TableAlias(this=table.this))
        source.set("this", held)
    return select


def _inner_of(select: exp.Select, named: _Named) -> tuple[exp.Select | None, str]:
    """The SELECT in FROM, in whose place its name stands then."""
    _with(select, named)
    source: Any = select.args.get("from_") or select.args.get("from")
    held = None if source is None else source.this
    if not isinstance(held, exp.Subquery):
        return None, ""
    if not isinstance(held.this, exp.Select):
        raise _subquery(held, "select from the events themselves")
    name = held.alias or "results"
    source.set("this", exp.Table(this=exp.to_identifier(name)))
    return held.this, name


_IN_FROM = re.compile(r"\b(TUMBLE|HOP|CUMULATE|SESSION)\s*\(", re.IGNORECASE)
"""What a text has in it that may have a window in FROM."""


def window_call(text: str) -> exp.Anonymous:
    """The call of a window that was written in FROM."""
    made = parsed(f"SELECT {text}").expressions[0]
    assert isinstance(made, exp.Anonymous)
    return made


def parsed(text: str) -> exp.Select:
    if not isinstance(text, str) or not text.strip():
        raise SqlError("the SQL is empty", given=repr(text), hint=_EXAMPLE)
    first = re.match(r"\s*([A-Za-z]+)", text)
    if first and first[1].upper() not in ("SELECT", "WITH", "FROM"):
        raise SqlError("only SELECT is supported in SQL", given=first[1], hint=_EXAMPLE)
    try:
        statements = [s for s in sqlglot.parse(text, dialect=_DIALECT) if s is not None]
    except (SqlglotError, RecursionError) as error:
        raise SqlError(
            "the SQL does not parse", given=_place(error, text), hint=_EXAMPLE
        ) from error
    if len(statements) != 1:
        raise SqlError(
            "more than one statement in SQL",
            given=f"{len(statements)} statements",
            hint="make each a query of its own",
        )
    statement = statements[0]
    if isinstance(statement, exp.SetOperation):
        raise SqlError(
            f"{statement.key.upper()} is not supported in SQL",
            hint="make each SELECT a query of its own",
        )
    if not isinstance(statement, exp.Select):
        raise SqlError("only SELECT is supported in SQL", given=text_of(statement), hint=_EXAMPLE)
    rewrite(statement, text)
    return statement


def _place(error: Exception, text: str) -> str:
    details = getattr(error, "errors", None)
    if not details:
        return text
    return f"{text}, line {details[0]['line']}, column {details[0]['col']}"


def clauses_of(select: exp.Select) -> list[tuple[str, Any]]:
    """The clauses that no query has."""
    usual = ("expressions", "from", "where", "group", "having", "order", "limit", "hint", "joins")
    named = ((key.rstrip("_"), value) for key, value in select.args.items() if value)
    return [(key, value) for key, value in named if key not in usual]


def _check_table(select: exp.Select, nodes: Iterable[object]) -> None:
    """Refuses all but one table, and takes its name off the columns."""
    source = select.args.get("from_") or select.args.get("from")
    if source is None:
        raise SqlError("the SQL has no FROM", hint=_EXAMPLE)
    table = source.this
    if isinstance(table, exp.Subquery):
        raise _subquery(table, "select from the events themselves")
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise SqlError("FROM takes one table", given=text_of(table), hint=_EXAMPLE)
    for key in table.args.keys() - {"this", "db", "catalog", "alias"}:
        if table.args[key]:
            what, hint = _CLAUSES.get(key, (key.upper(), "leave it out"))
            raise SqlError(f"{what} is not supported in SQL", given=text_of(table), hint=hint)
    names = (table.name, table.alias)
    for column in nodes:
        if isinstance(column, exp.Column) and column.table and column.table in names:
            column.set("table", None)
            column.meta[QUALIFIED] = True


def limit_of(select: exp.Select) -> int | None:
    """The number in LIMIT."""
    limit = select.args.get("limit")
    if limit is None:
        return None
    number = limit.expression if isinstance(limit, exp.Limit) else limit
    if not isinstance(number, exp.Literal) or number.is_string or not number.name.isdigit():
        raise SqlError(
            "LIMIT takes a whole number",
            given=text_of(limit).strip(),
            hint="it is the number of rows of each window",
        )
    return int(number.name)


def table_of(select: exp.Select) -> str:
    """The table in FROM, with the names of schema and catalog before it if they are given."""
    table = (select.args.get("from_") or select.args["from"]).this
    return ".".join(part for part in (table.catalog, table.db, table.name) if part)


def _subquery(node: Any, hint: str) -> SqlError:
    return SqlError("a subquery is not supported in SQL", given=text_of(node), hint=hint)
