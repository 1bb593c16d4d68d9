"""What expressions may not contain, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from catchment.errors import QueryError, did_you_mean
from catchment.expression.named import NAMES
from catchment.expression.spark_sql import sql_of

_SUPPORTED = (
    "supported are columns, literals, + - * / % DIV & | ^ ~, comparisons, AND, OR, NOT, IN, "
    "BETWEEN, LIKE, ILIKE, RLIKE, IS NULL, CASE, and " + ", ".join(NAMES)
)
_LIKE = 0.65
"""How much an unknown function looks like a known one where that may be meant."""
_AGGREGATES = frozenset(
    name.lower()
    for of in exp.ALL_FUNCTIONS
    if issubclass(of, exp.AggFunc)
    for name in of.sql_names()
)
_CHANGING = ("current_timestamp", "current_date", "now", "rand", "random", "randn", "uuid")
_REFUSED: tuple[tuple[tuple[type, ...], str, str], ...] = (
    ((exp.Query, exp.Subquery), "a subquery", "make it a query of its own"),
    ((exp.Window,), "a window function", "the window belongs to the query, not to the expression"),
    ((exp.Star,), "*", "name the columns"),
    ((exp.Placeholder, exp.Parameter), "a parameter", "write the value itself"),
    ((exp.Concat,), "concatenation", "a quote inside a text is written as \\'"),
    (
        (exp.Interval,),
        "an interval alone",
        "it is added to a time, as in ts + INTERVAL '5' MINUTES, or compared with a - b of times",
    ),
)


def function_hint(name: str, besides: Iterable[str] = ()) -> str:
    """The hint for a function that is not known; `besides` may be meant as well."""
    functions = "functions are " + ", ".join(NAMES)
    return did_you_mean(name, [*NAMES, *besides], functions, _LIKE)


def refusal(node: exp.Expression, what: str) -> QueryError:
    """The error for a part of an expression that is not supported."""
    for kinds, name, hint in _REFUSED:
        if isinstance(node, kinds):
            return QueryError(f"the {what} uses {name}", given=sql_of(node), hint=hint)
    if isinstance(node, exp.Alias | exp.Tuple):
        return QueryError(
            f"the {what} must be one expression",
            given=sql_of(node),
            hint="a column name with other characters than letters, digits and _ goes in backticks",
        )
    if isinstance(node, exp.Anonymous) and node.name.lower() in _AGGREGATES:
        hint = "aggregates stand in what is selected, in having and in order_by"
        hint += ", and not in one another"
        return QueryError(f"the {what} uses an aggregate", given=sql_of(node), hint=hint)
    changing = isinstance(node, exp.CurrentTimestamp | exp.CurrentDate)
    if changing or (isinstance(node, exp.Anonymous) and node.name.lower() in _CHANGING):
        return QueryError(
            f"the {what} has another value each time it is computed",
            given=sql_of(node),
            hint="events that are read again must give the same results: let whoever makes the "
            'events add it as a column; windows by the clock are measure="processing"',
        )
    if isinstance(node, exp.Lambda):
        hint = "write array_contains(items, 'a'), or count elements with size(items)"
        return QueryError(f"the {what} uses a function of elements", given=sql_of(node), hint=hint)
    if isinstance(node, exp.Anonymous):
        hint = did_you_mean(node.name.lower(), NAMES, _SUPPORTED, _LIKE)
        return QueryError(f"the {what} uses an unknown function", given=node.name, hint=hint)
    return QueryError(
        f"the {what} uses something that is not supported", given=sql_of(node), hint=_SUPPORTED
    )
