"""Calls of aggregates in SQL text: which calls are some, and what Python would write for them.

FILTER, DISTINCT, WITHIN GROUP and arrays of shares become plain functions of plain expressions, so
nothing behind the text knows of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from catchment import functions
from catchment.errors import SqlError
from catchment.model.query import Aggregate
from catchment.sqltext.calls import COUNT_IF, PERCENTILES, has_aggregate
from catchment.sqltext.grouping import value_of
from catchment.sqltext.writing import text_of

_DISTINCT = {
    "count": "count_distinct",
    "approx_count_distinct": "approx_count_distinct",
    "sum": "sum_distinct",
    "avg": "avg_distinct",
    "mean": "avg_distinct",
    "min": "min",
    "max": "max",
}
"""Functions of the different values alone, by the function whose argument is DISTINCT."""
_IN_ORDER = ("first", "last", "first_value", "last_value", "any_value")


def named_as_written(node: exp.Expression, made: Aggregate) -> Aggregate:
    """An aggregate without an alias, under the text of its call where it became another."""
    call = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    became = isinstance(node, exp.Filter | exp.WithinGroup) or call in COUNT_IF
    several = call == "count" and any(len(a.expressions) > 1 for a in node.find_all(exp.Distinct))
    return made.alias(text_of(node)) if became or several else made


def aggregate_of(node: exp.Expression) -> Aggregate:
    """The aggregate of a call, under its own text."""
    condition: exp.Expression | None = None
    call = node
    while isinstance(call, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        if isinstance(call, exp.RespectNulls):
            hint = f"write {text_of(call.this)}"
            raise SqlError("all aggregates ignore nulls", given=text_of(node), hint=hint)
        if isinstance(call, exp.Filter):
            condition = call.expression.this
        call = call.this
    if condition is not None and has_aggregate(condition):
        raise SqlError(
            "FILTER has an aggregate in its condition",
            given=text_of(node),
            hint="FILTER chooses events; a condition on aggregates goes into HAVING",
        )
    if isinstance(call, exp.WithinGroup):
        return _within_group(call, condition)
    if not isinstance(call, exp.Anonymous):
        raise SqlError(
            "FILTER and IGNORE NULLS stand behind an aggregate",
            given=text_of(node),
            hint="write count(*) FILTER (WHERE v > 0)",
        )
    return _call(call, condition)


def _call(node: exp.Anonymous, condition: exp.Expression | None) -> Aggregate:
    name, args = node.name.lower(), list(node.expressions)
    if name in PERCENTILES:
        raise SqlError(
            f"{name} needs WITHIN GROUP",
            given=text_of(node),
            hint=f"write {name}(0.5) WITHIN GROUP (ORDER BY v)",
        )
    if args and isinstance(args[0], exp.Distinct):
        name, args = _distinct(node, name, args[0].expressions)
    if name in COUNT_IF:
        if len(args) != 1:
            raise SqlError(
                f"{name} takes one condition", given=text_of(node), hint=f"write {name}(v > 0)"
            )
        name, args = "count", [_only_if(args[0], None)]
    if name == "count" and len(args) == 1 and isinstance(args[0], exp.Star | exp.Literal):
        args = []
    if name == "count" and len(args) > 1:
        args = [_all_there(args)]
    if name in _IN_ORDER and len(args) == 2:
        ignore = args.pop()
        if not isinstance(ignore, exp.Boolean) or not ignore.this:
            raise SqlError(f"{name} ignores nulls", given=text_of(node), hint=f"write {name}(v)")
    function = functions.FUNCTIONS.get(name)
    several = 1 if function is None else function.columns
    if condition is not None and (args or name == "count"):
        args = [_only_if(condition, arg) for arg in args[:several] or [None]] + args[several:]
    if len(args) == 2 and _is_array(args[1]) and name in ("percentile", "quantile"):
        name, args = "quantiles", [args[0], *args[1].expressions]
    column = text_of(args[0]) if args else None
    others = [text_of(arg) for arg in args[1:several]]
    if args[several:] and function is not None and not function.takes_parameters:
        raise function.takes_no_more(text_of(node))
    rest = [value_of(arg, node) for arg in args[several:]]
    return functions.make(name, column, (*others, *rest))


def _is_array(node: exp.Expression) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == "array"


def _distinct(
    node: exp.Anonymous, name: str, args: list[exp.Expression]
) -> tuple[str, list[exp.Expression]]:
    if name not in _DISTINCT or (len(args) != 1 and name != "count"):
        raise SqlError(
            "DISTINCT does not go with this function",
            given=text_of(node),
            hint="it goes with " + ", ".join(dict.fromkeys(_DISTINCT)),
        )
    if len(args) > 1:
        args = [exp.Anonymous(this="tuple", expressions=args)]
    return _DISTINCT[name], args


def _all_there(args: list[exp.Expression]) -> exp.Expression:
    """1 where no argument is null: what `count(a, b)` counts."""
    nulls = [exp.Not(this=exp.Is(this=arg, expression=exp.Null())) for arg in args]
    every: Any = exp.and_(*nulls)
    return _only_if(every, None)


def _only_if(condition: exp.Expression, value: exp.Expression | None) -> exp.Expression:
    """The value where a condition holds, else null; without a value, 1."""
    kept = exp.Literal.number(1) if value is None else value
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=kept.copy())])


def _within_group(node: exp.WithinGroup, condition: exp.Expression | None) -> Aggregate:
    call, order = node.this, node.expression
    name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    orders = order.expressions if isinstance(order, exp.Order) else []
    if name not in PERCENTILES or len(call.expressions) != 1 or len(orders) != 1:
        raise SqlError(
            "WITHIN GROUP goes with percentile_cont, percentile_disc and mode, of one column, and "
            "with listagg",
            given=text_of(node),
            hint="write percentile_cont(0.5) WITHIN GROUP (ORDER BY v), or listagg(s, ', ') WITHIN "
            "GROUP (ORDER BY s), ordered by what it lists",
        )
    ordered, share = orders[0], call.expressions[0]
    value = ordered.this if condition is None else _only_if(condition, ordered.this)
    descending = bool(ordered.args.get("desc"))
    shares = [value_of(s, node) for s in (share.expressions if _is_array(share) else [share])]
    if name == "percentile_disc":
        if _is_array(share):
            raise SqlError(
                "percentile_disc takes one share",
                given=text_of(node),
                hint="write one percentile_disc for each, or percentile_cont(array(...))",
            )
        params = (*shares, "desc") if descending else tuple(shares)
        return functions.make("quantile_disc", text_of(value), params)
    if descending:
        shares = [_opposite(share) for share in shares]
    function = "quantiles" if _is_array(share) else "quantile"
    return functions.make(function, text_of(value), tuple(shares))


def _opposite(share: Any) -> Any:
    """The share from above; what is no number is refused by the function."""
    return 1 - share if isinstance(share, int | float) else share


Refusal = tuple[type[Any], str, Callable[[Any], str]]
REFUSED: tuple[Refusal, ...] = (
    (exp.Star, "SELECT * is not supported in SQL", lambda _: "name the keys and the aggregates"),
    (
        exp.Window,
        "OVER is not supported in SQL",
        lambda _: (
            "the window goes into GROUP BY; ORDER BY ... LIMIT n gives the first n rows of "
            "each window"
        ),
    ),
)


def refuse_parts(node: exp.Expression) -> None:
    """Refuses what no item may have in it."""
    for inner in node.walk():
        for kind, what, hint in REFUSED:
            if not isinstance(inner, kind):
                continue
            counted = kind is exp.Star and isinstance(inner.parent, exp.Anonymous)
            if not counted:
                raise SqlError(what, given=text_of(inner), hint=hint(inner))
