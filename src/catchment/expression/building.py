"""Nodes put together so that writings of one meaning become one node.

`0 < v` becomes `v > 0`, NOT of a comparison the opposite comparison, and what AND and OR join is
listed once. Whatever reads an expression builds its nodes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from catchment.expression.nodes import Call, Column, Literal, Node, PathStep, path_text

FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def binary(op: str, left: Node, right: Node) -> Node:
    """An operator between two nodes; a constant stands on the right of a comparison."""
    if op in FLIPPED and isinstance(left, Literal) and not isinstance(right, Literal):
        return Call(FLIPPED[op], (right, left))
    return Call(op, (left, right))


def junction(op: str, terms: Iterable[Node]) -> Node:
    """What `and` or `or` joins, each of it once."""
    parts: list[Node] = []
    for term in terms:
        nested = term.args if isinstance(term, Call) and term.op == op else (term,)
        parts.extend(part for part in nested if part not in parts)
    return parts[0] if len(parts) == 1 else Call(op, tuple(parts))


def negate(node: Node) -> Node:
    """NOT of a node; of a comparison, the opposite comparison (so it is with nulls, too)."""
    if isinstance(node, Call) and node.op in OPPOSITE:
        return Call(OPPOSITE[node.op], node.args)
    if isinstance(node, Call) and node.op == "not":
        return node.args[0]
    return Call("not", (node,))


def between(value: Node, low: Node, high: Node) -> Node:
    return Call("and", (binary(">=", value, low), binary("<=", value, high)))


def is_in(value: Node, options: Iterable[Node]) -> Node:
    """Whether a value is one of some; of a single one, whether it is equal."""
    some = tuple(dict.fromkeys(options))
    return binary("=", value, some[0]) if len(some) == 1 else Call("in", (value, *some))


def concat(parts: Sequence[Node]) -> Node:
    """Texts one behind the other, in one call."""
    flat: list[Node] = []
    for part in parts:
        flat += part.args if isinstance(part, Call) and part.op == "concat" else (part,)
    return Call("concat", tuple(flat))


def part(value: Node, step: PathStep) -> Node:
    """A field or an element of a value; of a column it is a column of its own, by its path."""
    if isinstance(value, Column):
        return Column(path_text(value.name, [step]))
    return Call("part_of", (value, Literal("int" if isinstance(step, int) else "string", step)))
