"""SQL text to the one query model."""

from __future__ import annotations

from catchment.errors import SqlError
from catchment.model.query import Aggregate, Query
from catchment.model.rules import EVENTS
from catchment.sqltext.grouping import grouping_of, takes_time, time_of, window_of
from catchment.sqltext.selecting import aggregate_of, aggregates_of
from catchment.sqltext.syntax import parsed, select_of, table_of, text_of


def sql(text: str, name: str) -> Query:
    """The query that SQL text asks for.

    It remembers the time column that its window names, and the table in FROM unless that is
    `events`: the text does not tell which job it is for (see `catchment.model.rules`).

    >>> sql("SELECT avg(v) AS mean FROM events GROUP BY window(ts, '10 seconds')", "speed").window
    Tumbling(length=10000000, slide=10000000, offset=0)
    """
    select = select_of(text)
    keys, window = grouping_of(select)
    aggregates = aggregates_of(select, keys, window)
    if not aggregates:
        raise SqlError(
            f"query {name!r} computes nothing", hint='add an aggregate, as in ct.avg("v")'
        )
    where = select.args.get("where")
    table = table_of(select)
    return Query(
        name,
        *aggregates,
        window=window_of(window),
        by=keys,
        where=where and text_of(where.this),
        time=time_of(window) if takes_time(window) else None,
        table=None if table.casefold() == EVENTS else table,
    )


def aggregate(text: str) -> Aggregate:
    """One aggregate as SQL writes it.

    >>> aggregate("avg(v) AS mean").label
    'mean'
    """
    try:
        select = parsed(f"SELECT {text}")
    except SqlError as error:
        raise _not_one(text) from error
    alone = [key for key, value in select.args.items() if value] == ["expressions"]
    if len(select.expressions) != 1 or not alone:
        raise _not_one(text)
    return aggregate_of(select.expressions[0])


def _not_one(text: str) -> SqlError:
    return SqlError("not one aggregate", given=text, hint="try avg(v) AS mean")
