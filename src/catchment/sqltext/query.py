"""SQL text to the one query model."""

from __future__ import annotations

from collections.abc import Mapping

from catchment.errors import SqlError
from catchment.model.query import Aggregate, Expression, Ordering, Query
from catchment.model.rules import EVENTS
from catchment.sqltext.grouping import grouping_of, takes_time, time_of, window_of
from catchment.sqltext.selecting import SelectReader, refuse_aggregates
from catchment.sqltext.syntax import (
    Item,
    Statement,
    inner_statement,
    limit_of,
    parsed,
    statement_of,
    table_of,
)
from catchment.sqltext.writing import text_of


def sql(text: str, name: str, lookups: Mapping[str, str] | None = None) -> Query:
    """The query that SQL text asks for; `name` is what its results are called.

    `lookups` are small tables that JOIN may name, and where they are: a file of Parquet, CSV or
    Arrow, or `postgresql://host/database#table`.

    It remembers the time column that its window names, and the table in FROM unless that is
    `events`: the text does not tell which job it is for (see `catchment.model.rules`). FROM may
    also hold a SELECT over windows, or name one of WITH, whose results it then reads.

    >>> sql("SELECT avg(v) AS mean FROM events GROUP BY window(ts, '10 seconds')", "speed").window
    Tumbling(length=10000000, slide=10000000, offset=0)

    Raises SqlError for text that does not parse, or asks for what there is not.
    """
    return _query(statement_of(text, lookups), name)


def _query(statement: Statement, name: str) -> Query:
    select, in_from = statement.select, statement.function
    items = [Item.of(node) for node in select.expressions]
    grouping = grouping_of(select, items, in_from, statement.inner is not None)
    reader = SelectReader(grouping)
    selected = reader.selected(items)
    if not selected and not grouping.keys:
        raise SqlError(
            f"query {name!r} computes nothing", hint='add an aggregate, as in ct.avg("v")'
        )
    where, having, order = (select.args.get(key) for key in ("where", "having", "order"))
    refuse_aggregates(where)
    table: str | None = table_of(select)
    source = None
    if statement.inner is not None:
        source, table = _query(inner_statement(statement), statement.inner_name), None
    elif table is not None and table.casefold() == EVENTS:
        table = None
    window = grouping.window
    return Query(
        name,
        *selected,
        window=window_of(window),
        by=grouping.by,
        where=where and text_of(where.this),
        having=having and reader.having(having.this),
        order_by=[reader.order(by, items) for by in order.expressions] if order else (),
        limit=limit_of(select),
        grouping_sets=grouping.sets,
        time=time_of(window) if takes_time(window) else None,
        table=table,
        source=source,
    )


def expr(text: str) -> Expression:
    """A result column over aggregates, keys and bounds, as SQL writes it: `text`.

    It may also be a condition, for `having` of a query.

    >>> expr("round(sum(a) / sum(b), 2) AS ratio").text
    'round(`sum(a)` / `sum(b)`, 2)'

    Raises SqlError for text that is no expression.
    """
    item = _item(text, "expression", "try sum(a) / sum(b) AS ratio")
    read = SelectReader().expression(item.node, "SQL names")
    return read.alias(item.alias or text_of(item.node))


def selected(text: str) -> Aggregate | Expression:
    """One item as SELECT has it: an aggregate, or an expression over aggregates and keys."""
    return SelectReader().item(_item(text, "aggregate", _EXAMPLE))


def order(text: str) -> Ordering:
    """What rows are ordered by, as SQL writes it in ORDER BY: one item, as `text`.

    >>> order("sum(v) DESC").descending
    True

    Raises SqlError for text that is not one order.
    """
    try:
        found = parsed(f"SELECT 1 ORDER BY {text}").args.get("order")
    except SqlError:
        found = None
    if found is None or len(found.expressions) != 1:
        raise SqlError("not one order", given=text, hint="try count(*) DESC")
    return SelectReader().order(found.expressions[0], [])


def aggregate(text: str) -> Aggregate:
    """One aggregate as SQL writes it.

    >>> aggregate("avg(v) AS mean").label
    'mean'
    """
    made = selected(text)
    if isinstance(made, Expression):
        raise SqlError("not one aggregate", given=text, hint=_EXAMPLE)
    return made


_EXAMPLE = "try avg(v) AS mean"


def _item(text: str, what: str, hint: str) -> Item:
    error = SqlError(f"not one {what}", given=text, hint=hint)
    try:
        select = parsed(f"SELECT {text}")
    except SqlError as reason:
        raise error from reason
    alone = [key for key, value in select.args.items() if value] == ["expressions"]
    if len(select.expressions) != 1 or not alone:
        raise error
    return Item.of(select.expressions[0])
