"""The statement: one SELECT from one table, with no clause that we do not do."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from catchment.errors import SqlError

_EXAMPLE = (
    "try SELECT player, avg(v) AS mean FROM events WHERE v > 0 "
    "GROUP BY player, window(ts, '10 seconds', '5 seconds')"
)
_CLAUSES = {
    "with": ("WITH", "write one SELECT from the events"),
    "joins": ("JOIN", "join the streams before, or read them as one"),
    "having": ("HAVING", "filter the results instead"),
    "order": ("ORDER BY", "sort the results instead"),
    "limit": ("LIMIT", "cut the results instead"),
    "offset": ("OFFSET", "cut the results instead"),
    "distinct": ("DISTINCT", "results have one row per key and window anyway"),
    "qualify": ("QUALIFY", "filter the results instead"),
    "laterals": ("LATERAL VIEW", "unnest the events before"),
    "sort": ("SORT BY", "sort the results instead"),
    "cluster": ("CLUSTER BY", "leave it out"),
    "distribute": ("DISTRIBUTE BY", "leave it out"),
    "into": ("INTO", "write the results to a sink"),
    "locks": ("FOR UPDATE", "leave it out"),
    "sample": ("TABLESAMPLE", "select events with WHERE"),
    "pivots": ("PIVOT", "reshape the results instead"),
}


class _Dialect(Spark):
    """Spark's grammar, but WINDOW is no clause, and every function keeps the name it was given."""

    class Tokenizer(Spark.tokenizer_class):  # type: ignore[misc, valid-type]
        KEYWORDS: ClassVar[dict[str, Any]] = {
            word: token
            for word, token in Spark.tokenizer_class.KEYWORDS.items()
            if word != "WINDOW"
        }

    class Parser(Spark.parser_class):  # type: ignore[misc, valid-type]
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parser
            for name, parser in Spark.parser_class.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST")
        }


def select_of(text: str) -> exp.Select:
    select = parsed(text)
    for key, clause in clauses_of(select):
        what, hint = _CLAUSES.get(key, (key.upper(), "leave it out"))
        given = clause[0] if isinstance(clause, list) else clause
        shown = text_of(given).strip() if isinstance(given, exp.Expression) else None
        raise SqlError(f"{what} is not supported in SQL", given=shown, hint=hint)
    _check_table(select)
    for inner in select.find_all(exp.Query):
        if inner is not select:
            raise _subquery(inner, "make it a query of its own")
    return select


def parsed(text: str) -> exp.Select:
    if not isinstance(text, str) or not text.strip():
        raise SqlError("the SQL is empty", given=repr(text), hint=_EXAMPLE)
    first = re.match(r"\s*([A-Za-z]+)", text)
    if first and first[1].upper() not in ("SELECT", "WITH", "FROM"):
        raise SqlError("only SELECT is supported in SQL", given=first[1], hint=_EXAMPLE)
    try:
        statements = [s for s in sqlglot.parse(text, dialect=_Dialect) if s is not None]
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
    return statement


def _place(error: Exception, text: str) -> str:
    details = getattr(error, "errors", None)
    if not details:
        return text
    return f"{text}, line {details[0]['line']}, column {details[0]['col']}"


def clauses_of(select: exp.Select) -> list[tuple[str, Any]]:
    """The clauses besides SELECT, FROM, WHERE and GROUP BY."""
    usual = ("expressions", "from", "where", "group", "hint")
    named = ((key.rstrip("_"), value) for key, value in select.args.items() if value)
    return [(key, value) for key, value in named if key not in usual]


def _check_table(select: exp.Select) -> None:
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
    for column in list(select.find_all(exp.Column)):
        if column.table and column.table in (table.name, table.alias):
            column.set("table", None)


def table_of(select: exp.Select) -> str:
    """The table in FROM, with the names of schema and catalog before it if they are given."""
    table = (select.args.get("from_") or select.args["from"]).this
    return ".".join(part for part in (table.catalog, table.db, table.name) if part)


def _subquery(node: Any, hint: str) -> SqlError:
    return SqlError("a subquery is not supported in SQL", given=text_of(node), hint=hint)


def text_of(node: Any) -> str:
    """A syntax tree as text again, much as it was written."""
    text: str = node.sql(dialect="spark", normalize_functions=False, comments=False)
    return text
