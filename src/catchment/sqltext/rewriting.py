"""Calls that are another way to write others: they become these before anything is read.

    timestampdiff(SECOND, a, b)                     timestampdiff('SECOND', a, b)
    listagg(DISTINCT s, ', ')                       array_join(collect_set(s), ', ')
    listagg(s) WITHIN GROUP (ORDER BY s DESC)       array_join(sort_array(collect_list(s), false))
    approx_percentile(v, array(0.5, 0.9))           array(approx_percentile(v, 0.5), ...)
    mode() WITHIN GROUP (ORDER BY v)                mode(v)

So they share their work with what is written plainly, and nothing behind the text knows of them.
"""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from catchment.sqltext.writing import text_of

_UNIT_FIRST = ("timestampadd", "timestampdiff", "dateadd", "date_add", "datediff", "date_diff")
"""Functions whose first argument of three is a unit, which is written like a column."""
_LISTS = ("listagg", "string_agg")
_SHARES = ("approx_percentile", "percentile_approx")
_CALLS = re.compile(
    rf"\b({'|'.join((*_UNIT_FIRST, *_LISTS, *_SHARES, 'mode'))})\s*\(", re.IGNORECASE
)
"""What a text has in it in which something may be to be written anew."""


def rewrite(select: exp.Select, text: str) -> None:
    """Puts what calls stand for in their places; `text` is that of the whole statement."""
    if not _CALLS.search(text):
        return
    before = [item.copy() for item in select.expressions]
    for call in list(select.find_all(exp.Anonymous)):
        _name_unit(call)
    for written, item in zip(before, list(select.expressions), strict=True):
        made = item.transform(_plain)
        if made != written:
            named = isinstance(item, exp.Alias)
            item.replace(made if named else exp.alias_(made, text_of(written), quoted=True))
    for clause in ("having", "order"):
        if select.args.get(clause):
            select.set(clause, select.args[clause].transform(_plain))


def _name_unit(call: exp.Anonymous) -> None:
    """Makes a text of a unit, so that nobody takes it for a column."""
    first = call.expressions[0] if len(call.expressions) == 3 else None
    if call.name.lower() in _UNIT_FIRST and isinstance(first, exp.Column) and not first.table:
        first.replace(exp.Literal.string(first.name))


def _plain(node: exp.Expression) -> exp.Expression:
    """What a call stands for; itself, if it stands for nothing else."""
    call: Any = node
    condition = order = None
    if isinstance(call, exp.Filter):
        condition, call = call.expression, call.this
    if isinstance(call, exp.WithinGroup):
        order, call = call.expression.expressions, call.this
    if not isinstance(call, exp.Anonymous):
        return node
    name, args = call.name.lower(), call.expressions

    def aggregate(function: str, *given: exp.Expression) -> exp.Expression:
        made = _call(function, *given)
        return exp.Filter(this=made, expression=condition.copy()) if condition else made

    if name == "mode" and not args and order and len(order) == 1 and not order[0].args.get("desc"):
        return aggregate("mode", order[0].this)
    if name in _SHARES and len(args) > 1 and not order and _is_array(args[1]):
        made = [aggregate(name, args[0], share, *args[2:]) for share in args[1].expressions]
        return _where_any(aggregate("count", args[0]), _call("array", *made))
    if name not in _LISTS or not args:
        return node
    distinct = isinstance(args[0], exp.Distinct)
    value, *between = args[0].expressions if distinct else args
    ordered = order and len(order) == 1 and order[0].this == value
    if len(between) > 1 or not (ordered or (distinct and not order)):
        return node
    listed = aggregate("collect_set" if distinct else "collect_list", value)
    if order:
        ascending = exp.Boolean(this=not order[0].args.get("desc"))
        in_order = _call("sort_array", listed, ascending)
    else:
        in_order = listed  # those of collect_set are
    joined = _call("array_join", in_order, *(between or [exp.Literal.string("")]))
    return _where_any(_call("size", listed), joined)


def _call(name: str, *args: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this=name, expressions=[arg.copy() for arg in args])


def _where_any(count: exp.Expression, value: exp.Expression) -> exp.Expression:
    """A value where something was counted, else null."""
    some = exp.GT(this=count, expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=some, true=value)])


def _is_array(node: exp.Expression) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == "array"
