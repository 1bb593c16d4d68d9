"""SQL text to nodes, with sqlglot (dialect Spark); what is usual, without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import SqlglotError

from catchment.errors import QueryError
from catchment.expression.convert import convert
from catchment.expression.nodes import Call, Column, Node, is_plain, render, walk
from catchment.expression.simple import comparisons, simple_text
from catchment.expression.spark_sql import syntax_of
from catchment.expression.usual import usual

_CACHE = 65536
_EXAMPLE = "write an SQL expression, as in \"v > 0 AND kind = 'goal'\""
_BACKTICKS = "a column name with other characters than letters, digits and _ goes in backticks"


def canonical(text: str, what: str = "expression") -> str:
    """The one text of an SQL expression: equal texts mean equal results.

    >>> canonical("0<v  and not (kind=='goal')", "where condition")
    "v > 0 AND kind <> 'goal'"
    """
    if not isinstance(text, str):
        raise QueryError(f"the {what} must be a text", given=repr(text), hint=_EXAMPLE)
    return _canonical(text, what)


@lru_cache(maxsize=_CACHE)
def _canonical(text: str, what: str) -> str:
    if is_plain(text):
        return text
    found = simple_text(text)
    return render(parse(text, what)) if found is None else found


@lru_cache(maxsize=_CACHE)
def columns(text: str) -> tuple[str, ...]:
    """The names of the columns an expression uses, in the order of their first use.

    >>> columns("price * `how many` + price")
    ('price', 'how many')
    """
    compared = comparisons(text)
    if compared is not None:
        return tuple(dict.fromkeys(column for column, _, _ in compared))
    names = (node.name for node in walk(parse(text)) if isinstance(node, Column))
    return tuple(dict.fromkeys(names))


def substituted(text: str, named: Mapping[str, str]) -> str:
    """The expression with other expressions in the place of some of its columns.

    >>> substituted("m > 3 AND k = 'a'", {"m": "a + b"})
    "a + b > 3 AND k = 'a'"
    """
    if not named:
        return text
    nodes = {name: parse(other) for name, other in named.items()}

    def replaced(node: Node) -> Node:
        if isinstance(node, Column):
            return nodes.get(node.name, node)
        if isinstance(node, Call):
            return replace(node, args=tuple(replaced(arg) for arg in node.args))
        return node

    return canonical(render(replaced(parse(text))))


@lru_cache(maxsize=_CACHE)
def parse(text: str, what: str = "expression") -> Node:
    """The nodes of an expression; `what` says in errors which expression it is."""
    if is_plain(text):
        return Column(text)
    found = usual(text)
    return parse_in_full(text, what) if found is None else found


def parse_in_full(text: str, what: str = "expression") -> Node:
    """The nodes of any expression, by way of sqlglot."""
    if not text.strip():
        raise QueryError(f"the {what} is empty", given=repr(text), hint=_EXAMPLE)
    try:
        return convert(_syntax(text, what), what)
    except RecursionError as error:
        raise QueryError(
            f"the {what} is nested too deeply", hint="split it, or compute a column beforehand"
        ) from error


def _syntax(text: str, what: str) -> exp.Expression:
    try:
        parsed = syntax_of(text)
    except SqlglotError as error:
        raise QueryError(f"the {what} does not parse", given=text, hint=_BACKTICKS) from error
    only = parsed.expressions[0] if len(parsed.expressions) == 1 else None
    alone = {key for key, value in parsed.args.items() if value} == {"expressions"}
    if not alone or not isinstance(only, exp.Paren | exp.Subquery):
        raise QueryError(f"the {what} must be one expression", given=text, hint=_EXAMPLE)
    return only
