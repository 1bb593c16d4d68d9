"""SELECT: the aggregates, among what results carry anyway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from catchment import functions
from catchment.errors import SqlError
from catchment.model.query import RESERVED, Aggregate
from catchment.sqltext.grouping import value_of
from catchment.sqltext.syntax import text_of

_BOUNDS = {("window", "start"): "window_start", ("window", "end"): "window_end"}
_BOUNDS |= {("session_window", end): name for (_, end), name in _BOUNDS.items()}


@dataclass(frozen=True, slots=True)
class _Item:
    """One item of SELECT: the expression, and its alias or an empty text."""

    node: exp.Expression
    alias: str


def _item(node: exp.Expression) -> _Item:
    return _Item(node.this, node.alias) if isinstance(node, exp.Alias) else _Item(node, "")


def aggregates_of(
    select: exp.Select, keys: Sequence[str], window: exp.Anonymous
) -> list[Aggregate]:
    made = []
    for item in map(_item, select.expressions):
        carried = _carried(item.node, keys, window)
        if carried is None:
            made.append(_made(item))
        elif item.alias and item.alias != carried:
            raise SqlError(
                f"{text_of(item.node)} cannot be renamed in SQL",
                given=f"AS {item.alias}",
                hint=f"results carry it as {carried}; leave out AS",
            )
    return made


def _carried(node: exp.Expression, keys: Sequence[str], window: exp.Anonymous) -> str | None:
    """The result column that an item stands for, when results have it anyway."""
    if isinstance(node, exp.Anonymous) and node == window:
        return "window_start and window_end"
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        return None
    if (node.table, node.name) in _BOUNDS:
        return _BOUNDS[node.table, node.name]
    if node.table:
        return None
    if node.name in keys or node.name in RESERVED:
        return node.name
    return "window_start and window_end" if node.name in ("window", "session_window") else None


def aggregate_of(node: exp.Expression) -> Aggregate:
    """The aggregate of one item that must be one."""
    return _made(_item(node))


def _made(item: _Item) -> Aggregate:
    node = item.node
    if isinstance(node, exp.IgnoreNulls) and isinstance(node.this, exp.Anonymous):
        node = node.this  # all our aggregates ignore nulls
    if not isinstance(node, exp.Anonymous) or _over_aggregates(node):
        raise _refusal(node)
    made = _call(node)
    return made.alias(item.alias) if item.alias else made


def _call(node: exp.Anonymous) -> Aggregate:
    name, args = node.name.lower(), list(node.expressions)
    if args and isinstance(args[0], exp.Distinct):
        args = args[0].expressions
        if name not in ("count", "approx_count_distinct") or len(args) != 1:
            raise SqlError(
                "DISTINCT is supported only in count(DISTINCT column)",
                given=text_of(node),
                hint="distinct_on in a Python query drops repeated events",
            )
        name = "count_distinct" if name == "count" else name
    if name == "count" and len(args) == 1 and isinstance(args[0], exp.Star | exp.Literal):
        args = []
    if name in ("first", "last", "first_value", "last_value") and len(args) == 2:
        ignore = args.pop()
        if not isinstance(ignore, exp.Boolean) or not ignore.this:
            raise SqlError(f"{name} ignores nulls", given=text_of(node), hint=f"write {name}(v)")
    column = text_of(args[0]) if args else None
    return functions.make(name, column, tuple(value_of(a, node) for a in args[1:]))


def _over_aggregates(node: exp.Expression) -> bool:
    """True for an expression that has aggregates inside but is none."""
    known = set(functions.names())
    if isinstance(node, exp.Anonymous) and node.name.lower() in known:
        return False
    return any(
        call.name.lower() in known for call in node.find_all(exp.Anonymous) if call is not node
    )


_REFUSED: tuple[tuple[type[Any], str, Callable[[Any], str]], ...] = (
    (exp.Star, "SELECT * is not supported in SQL", lambda _: "name the keys and the aggregates"),
    (exp.Window, "OVER is not supported in SQL", lambda _: "the window goes into GROUP BY"),
    (
        exp.Filter,
        "FILTER is not supported in SQL",
        lambda node: f"write {node.this.name}(CASE WHEN ... THEN ... END)",
    ),
    (exp.WithinGroup, "WITHIN GROUP is not supported in SQL", lambda _: "write percentile(v, 0.5)"),
)


def _refusal(node: exp.Expression) -> SqlError:
    for kind, what, hint in _REFUSED:
        if isinstance(node, kind):
            return SqlError(what, given=text_of(node), hint=hint(node))
    if isinstance(node, exp.Column):
        return SqlError(
            "SQL selects a column that is not a key",
            given=text_of(node),
            hint=f"add it to GROUP BY, or aggregate it as in max({text_of(node)})",
        )
    if _over_aggregates(node):
        return SqlError(
            "an expression over aggregates is not supported in SQL",
            given=text_of(node),
            hint="select the aggregates alone and compute with the results",
        )
    return SqlError(
        "SQL selects what is neither a key nor an aggregate",
        given=text_of(node),
        hint="put it into an aggregate, as in avg(a * b)",
    )
