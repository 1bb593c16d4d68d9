"""Proof that no row can meet two conditions.

Both conditions together are written as alternatives (disjunctive normal form), each a conjunction
of facts about terms: `term < 5`, `term IN (...)`, `term IS NULL`. When every alternative
contradicts itself, the conditions are disjoint. A fact that is not understood is left out, which
only makes the rest easier to meet; so True is always right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from functools import lru_cache
from itertools import product
from typing import Any

from catchment.expression.convert import OPPOSITE
from catchment.expression.nodes import Call, Literal, Node
from catchment.expression.parsing import parse

_MOST = 256
_EXACT = 2**53

Fact = tuple[Node, bool]
"""A condition, and whether it must hold (True) or its negation must."""


@lru_cache(maxsize=65536)
def disjoint(a: str, b: str) -> bool:
    """True only when no row can meet both conditions.

    >>> disjoint("v < 3 AND ok", "v BETWEEN 5 AND 9"), disjoint("v < 3", "w > 5")
    (True, False)
    """
    alternatives = _alternatives(Call("and", (parse(a), parse(b))), True)
    return all(_contradicts(facts) for facts in alternatives)


def _alternatives(node: Node, holds: bool) -> list[list[Fact]]:
    """Sets of facts of which one must be true in full."""
    if isinstance(node, Call) and node.op == "not":
        return _alternatives(node.args[0], not holds)
    if not isinstance(node, Call) or node.op not in ("and", "or"):
        return [[(node, holds)]]
    parts = [_alternatives(arg, holds) for arg in node.args]
    if (node.op == "or") == holds:
        return [facts for part in parts for facts in part]
    result: list[list[Fact]] = [[]]
    for part in parts:
        if len(result) * len(part) > _MOST:
            continue  # leaving a condition out is safe: the rest is easier to meet
        result = [left + right for left, right in product(result, part)]
    return result


@dataclass(slots=True)
class _Term:
    """What is known of one term."""

    kinds: set[str] = field(default_factory=set)
    is_null: bool = False
    is_valued: bool = False
    low: tuple[Any, bool] | None = None
    high: tuple[Any, bool] | None = None
    among: set[Any] | None = None
    excluded: set[Any] = field(default_factory=set)


def _contradicts(facts: list[Fact]) -> bool:
    terms: dict[Node, _Term] = {}
    return any(_impossible(terms, *fact) for fact in facts) or any(map(_empty, terms.values()))


def _impossible(terms: dict[Node, _Term], node: Node, holds: bool) -> bool:
    """Adds a fact to its term; True when it can never be true."""
    if isinstance(node, Literal):
        return node.value is not True if holds else node.value is not False
    if isinstance(node, Call) and node.op == "is null":
        term = terms.setdefault(node.args[0], _Term())
        term.is_null |= holds
        term.is_valued |= not holds
        return False
    if isinstance(node, Call) and node.op in OPPOSITE:
        op = node.op if holds else OPPOSITE[node.op]
        return _compared(terms, op, node.args[0], node.args[1:])
    if isinstance(node, Call) and node.op == "in":
        return _compared(terms, "=" if holds else "<>", node.args[0], node.args[1:])
    truth = Literal("bool", holds)
    return _compared(terms, "=", node, (truth,))


def _compared(terms: dict[Node, _Term], op: str, subject: Node, options: tuple[Node, ...]) -> bool:
    if isinstance(subject, Literal) or not all(isinstance(o, Literal) for o in options):
        return False
    literals = [o for o in options if isinstance(o, Literal)]
    found = [_comparable(o) for o in literals if o.kind != "null"]
    if not found or (op == "<>" and len(found) < len(literals)):
        return True  # a comparison with null is never met
    values = [value for value in found if value is not None]
    if len(values) < len(found):
        return False
    term = terms.setdefault(subject, _Term())
    term.is_valued = True
    term.kinds |= {kind for kind, _ in values if kind}
    _note(term, op, [value for _, value in values])
    return False


def _comparable(literal: Literal) -> tuple[str, Any] | None:
    """A kind and a value whose order in Python is the order of the rows; None when not certain."""
    value = literal.value
    if isinstance(value, date):
        moment = value if isinstance(value, datetime) else datetime.combine(value, time(), UTC)
        # Beyond the years of nanoseconds, all instants are compared as the last one.
        return ("time", moment) if 1678 <= moment.year < 2262 else None
    if literal.kind in ("int", "float"):
        # Beyond 2**53 whole numbers meet the same double: equal rows for unequal literals.
        return ("number", value) if abs(value) < _EXACT else None  # type: ignore[arg-type]
    return literal.kind, value


def _note(term: _Term, op: str, values: list[Any]) -> None:
    if op == "=":
        term.among = set(values) if term.among is None else term.among & set(values)
    elif op == "<>":
        term.excluded |= set(values)
    elif op in (">", ">="):
        bound = (values[0], op == ">")
        term.low = bound if term.low is None else max(term.low, bound)
    else:
        bound = (values[0], op == "<=")
        term.high = bound if term.high is None else min(term.high, bound)


def _empty(term: _Term) -> bool:
    """True when no value has all that is known of the term."""
    if term.is_null and term.is_valued:
        return True
    if len(term.kinds) != 1:
        return False
    if term.among is None and term.kinds == {"bool"}:
        term.among = {True, False}
    if term.among is not None:
        return not any(_allowed(term, value) for value in term.among)
    if term.low is None or term.high is None:
        return False
    (low, open_low), (high, closed_high) = term.low, term.high
    if low == high:
        return open_low or not closed_high or low in term.excluded
    return bool(low > high)


def _allowed(term: _Term, value: Any) -> bool:
    if value in term.excluded:
        return False
    if term.low and (value < term.low[0] or (value == term.low[0] and term.low[1])):
        return False
    high = term.high
    return not (high and (value > high[0] or (value == high[0] and not high[1])))
