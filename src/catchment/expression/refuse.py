"""What expressions may not contain, and what to write instead."""

from __future__ import annotations

from sqlglot import exp

from catchment.errors import QueryError, did_you_mean
from catchment.expression.spark_sql import sql_of

PARTS = (
    "year",
    "quarter",
    "month",
    "day",
    "dayofyear",
    "weekofyear",
    "dayofweek",
    "weekday",
    "hour",
    "minute",
    "second",
)
"""Parts of times: `dayofweek` is 1 on Sundays, `weekday` is 0 on Mondays, as in Spark."""
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
"""What times can be cut down to; weeks begin on Mondays."""
FUNCTION_NAMES = (
    "abs",
    "array_contains",
    "cast",
    "ceil",
    "coalesce",
    "concat",
    "date_trunc",
    "exp",
    "floor",
    "greatest",
    "if",
    "least",
    "left",
    "length",
    "ln",
    "log",
    "lookup",
    "lower",
    "nullif",
    "power",
    "round",
    "size",
    "sqrt",
    "substring",
    "to_date",
    "trim",
    "upper",
    *PARTS,
)
_SYNONYMS = (
    "arguments",
    "array_size",
    "cardinality",
    "ceiling",
    "char_length",
    "character_length",
    "date",
    "dayofmonth",
    "ifnull",
    "isnull",
    "len",
    "nvl",
    "pow",
    "substr",
    "tuple",
)


def is_function(name: str) -> bool:
    """Whether expressions know a function of this name."""
    return name.lower() in FUNCTION_NAMES or name.lower() in _SYNONYMS


_SUPPORTED = (
    "supported are columns, literals, + - * / %, comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, "
    "IS NULL, CASE, and " + ", ".join(FUNCTION_NAMES)
)
_REFUSED: tuple[tuple[tuple[type, ...], str, str], ...] = (
    ((exp.Query, exp.Subquery), "a subquery", "make it a query of its own"),
    ((exp.Window,), "a window function", "the window belongs to the query, not to the expression"),
    (
        (exp.AggFunc,),
        "an aggregate",
        "aggregates stand in what is selected, in having and in order_by, and not in one another",
    ),
    ((exp.Star,), "*", "name the columns"),
    ((exp.Placeholder, exp.Parameter), "a parameter", "write the value itself"),
    ((exp.Interval,), "an interval", "compute a column of times beforehand"),
    ((exp.Concat, exp.DPipe), "concatenation", "a quote inside a text is written as \\'"),
)


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
    if isinstance(node, exp.Anonymous):
        hint = did_you_mean(node.name.lower(), FUNCTION_NAMES, _SUPPORTED)
        return QueryError(f"the {what} uses an unknown function", given=node.name, hint=hint)
    return QueryError(
        f"the {what} uses something that is not supported", given=sql_of(node), hint=_SUPPORTED
    )
