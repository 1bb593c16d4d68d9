"""Syntax trees as text again, much as they were written.

What most expressions are made of is written here, without a copy of the tree; sqlglot's generator
writes all else. Both write the same (`tests/test_sql_text.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from catchment.expression import quote, sql_of
from catchment.sqltext.joins import joined, with_lookups

Named = Callable[[Any], str | None]
"""The name of the column that stands for a node, if one does."""
_Write = Callable[[Any], str]


def text_of(node: Any, named: Named | None = None) -> str:
    """A syntax tree as text; joined columns as they are computed, names for what has one."""

    def write(inner: Any) -> str:
        name = None if named is None else named(inner)
        if name is not None:
            return _backticked(name)
        writer = _WRITERS.get(type(inner))
        if writer is None:
            raise _OtherNodeError
        return writer(inner, write)

    def put(inner: exp.Expression) -> exp.Expression:
        name = None if named is None else named(inner)
        return inner if name is None else exp.Column(this=exp.Identifier(this=name, quoted=True))

    try:
        return write(node)
    except _OtherNodeError:
        return sql_of(with_lookups(node if named is None else node.transform(put)))


class _OtherNodeError(Exception):
    """The tree has a node that is not written here."""


def _backticked(name: str) -> str:
    if name.isprintable() and "`" not in name and "\\" not in name:
        return f"`{name}`"
    raise _OtherNodeError


def _listed(nodes: list[Any], write: _Write) -> str:
    return ", ".join([write(node) for node in nodes])


def _column(node: exp.Column, write: _Write) -> str:
    call = joined(node)
    if call is not None:
        return write(call)
    parts = [node.args[key] for key in ("catalog", "db", "table", "this") if node.args.get(key)]
    return ".".join([write(part) for part in parts])


def _identifier(node: exp.Identifier, _: _Write) -> str:
    name = node.name
    if not node.quoted and quote(name) == name:
        return name
    if node.quoted:
        return _backticked(name)
    raise _OtherNodeError


def _literal(node: exp.Literal, _: _Write) -> str:
    value = node.name
    if not node.is_string:
        return value
    if value.isprintable() and "'" not in value and "\\" not in value:
        return f"'{value}'"
    raise _OtherNodeError


def _star(node: exp.Star, _: _Write) -> str:
    if any(node.args.values()):
        raise _OtherNodeError
    return "*"


def _call(node: exp.Anonymous, write: _Write) -> str:
    if not isinstance(node.this, str):
        raise _OtherNodeError
    return f"{node.this}({_listed(node.expressions, write)})"


def _distinct(node: exp.Distinct, write: _Write) -> str:
    if node.args.get("on"):
        raise _OtherNodeError
    return f"DISTINCT {_listed(node.expressions, write)}"


def _negative(node: exp.Neg, write: _Write) -> str:
    value = write(node.this)
    return f"- {value}" if value.startswith("-") else f"-{value}"


def _between(node: exp.Between, write: _Write) -> str:
    if node.args.get("symmetric"):
        raise _OtherNodeError
    low, high = write(node.args["low"]), write(node.args["high"])
    return f"{write(node.this)} BETWEEN {low} AND {high}"


def _in(node: exp.In, write: _Write) -> str:
    if not node.expressions:
        raise _OtherNodeError
    return f"{write(node.this)} IN ({_listed(node.expressions, write)})"


def _is(node: exp.Is, write: _Write) -> str:
    if node.args.get("negate"):
        raise _OtherNodeError
    return f"{write(node.this)} IS {write(node.expression)}"


def _case(node: exp.Case, write: _Write) -> str:
    words = ["CASE"]
    if node.this:
        words.append(write(node.this))
    for branch in node.args["ifs"]:
        words += ["WHEN", write(branch.this), "THEN", write(branch.args["true"])]
    if node.args.get("default"):
        words += ["ELSE", write(node.args["default"])]
    return " ".join([*words, "END"])


def _between_two(sign: str) -> Callable[[Any, _Write], str]:
    """How an operator between two operands is written."""

    def joined_by(node: exp.Binary, write: _Write) -> str:
        return f"{write(node.this)} {sign} {write(node.expression)}"

    return joined_by


_WRITERS: dict[type[Any], Callable[[Any, _Write], str]] = {
    exp.Column: _column,
    exp.Identifier: _identifier,
    exp.Literal: _literal,
    exp.Star: _star,
    exp.Null: lambda _, __: "NULL",
    exp.Boolean: lambda node, _: "TRUE" if node.this else "FALSE",
    exp.Paren: lambda node, write: f"({write(node.this)})",
    exp.Not: lambda node, write: f"NOT {write(node.this)}",
    exp.Neg: _negative,
    exp.Anonymous: _call,
    exp.Distinct: _distinct,
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.Case: _case,
}
_WRITERS |= {
    kind: _between_two(sign)
    for kind, sign in (
        (exp.And, "AND"),
        (exp.Or, "OR"),
        (exp.Add, "+"),
        (exp.Sub, "-"),
        (exp.Mul, "*"),
        (exp.Div, "/"),
        (exp.Mod, "%"),
        (exp.EQ, "="),
        (exp.NEQ, "<>"),
        (exp.LT, "<"),
        (exp.LTE, "<="),
        (exp.GT, ">"),
        (exp.GTE, ">="),
    )
}
