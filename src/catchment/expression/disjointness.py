"""Proof that no row can meet two conditions.

A condition is written as alternatives (disjunctive normal form), each a conjunction of facts about
terms: `term < 5`, `term IN (...)`, `term IS NULL`. What an alternative says of one term is a set of
ranges that the term's value must be in. Two conditions are disjoint when every alternative of the
one and every alternative of the other have a term whose ranges do not meet. A fact that is not
understood is left out, which only makes the rest easier to meet; so True is always right.

Conditions are read once (`alternatives`), and compared range by range. `constraints` gives what a
condition says of each term in all its alternatives: whoever has many conditions finds by it the few
that can meet another, without comparing each with each.

Which type a column has is not known here, and `v = '3'` compares numbers where v is one. So what is
equal to a text that could be read as something else may also be any other text of the same meaning
(`stands_for`); and the order of such texts is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

from catchment.expression.building import OPPOSITE
from catchment.expression.constants import stands_for
from catchment.expression.nodes import Call, Column, Literal, Node, render
from catchment.expression.parsing import parse
from catchment.expression.simple import Comparison, comparisons

_MOST = 256
_EXACT = 2**53

Fact = tuple[Node, bool]
"""A condition, and whether it must hold (True) or its negation must."""

RangeBound = tuple[Any, ...]
"""A place in the order of all values: `(0,)` is before any value, `(1, v, 0)` just before the value
v, `(1, v, 1)` just behind it, `(2,)` behind all values. There, up to `(3,)`, is null. What is equal
to a text that has other meanings is also at `(3, meaning, 0)`, behind null."""

Range = tuple[RangeBound, RangeBound]
"""All values from one place to another: of `3 <= v < 7` that is `((1, 3, 0), (1, 7, 0))`."""

_FIRST: RangeBound = (0,)
_LAST: RangeBound = (2,)
NULL: Range = (_LAST, (3,))
"""Null, which is behind all values."""


class Ranges(NamedTuple):
    """What a condition says of one term: the ranges its value is in, in order and apart."""

    kind: str
    """The kind of the values that the term is compared with; empty where that is not known, and
    then the ranges say only whether the term is null."""
    parts: tuple[Range, ...]

    def meets(self, other: Ranges) -> bool:
        """Whether some value can be in both."""
        if self.kind != other.kind and self.kind and other.kind:
            return True  # values of different kinds are in no certain order
        if len(self.parts) == 1 == len(other.parts):
            (low, high), (begin, end) = self.parts[0], other.parts[0]
            return low < end and begin < high
        ones, others = iter(self.parts), iter(other.parts)
        one, its = next(ones, None), next(others, None)
        while one is not None and its is not None:
            if one[0] < its[1] and its[0] < one[1]:
                return True
            if one[1] <= its[0]:
                one = next(ones, None)
            else:
                its = next(others, None)
        return False


Alternative = Mapping[str, Ranges]
"""The ranges of each term of which an alternative says something; terms by their SQL text."""

Alternatives = tuple[Alternative, ...]
"""A condition: one of these must be met in full."""


def disjoint(a: str, b: str) -> bool:
    """True only when no row can meet both conditions.

    >>> disjoint("v < 3 AND ok", "v BETWEEN 5 AND 9"), disjoint("v < 3", "w > 5")
    (True, False)
    """
    return apart(alternatives(a), alternatives(b))


def apart(ones: Alternatives, others: Alternatives) -> bool:
    """What `disjoint` tells, for conditions that have been read."""
    if len(ones) == 1 == len(others):
        return _contradict(ones[0], others[0])
    if len(ones) * len(others) > _MOST:
        return False
    return all(_contradict(one, other) for one in ones for other in others)


def all_apart(ones: Alternatives, others: Iterable[Alternatives]) -> bool:
    """Whether a condition is disjoint from each of some others."""
    if len(ones) == 1:
        (only,) = ones
        for other in others:
            if not (_contradict(only, other[0]) if len(other) == 1 else apart(ones, other)):
                return False
        return True
    return all(apart(ones, other) for other in others)


def _contradict(one: Alternative, other: Alternative) -> bool:
    for term, ranges in one.items():
        known = other.get(term)
        if known is not None and not ranges.meets(known):
            return True
    return False


@lru_cache(maxsize=65536)
def alternatives(text: str) -> Alternatives:
    """The alternatives of a condition, without those that contradict themselves.

    Most conditions only compare columns with constants: these need no nodes.
    """
    compared = comparisons(text)
    if compared is None:
        return alternatives_of(parse(text))
    only = _plainly_known(compared) or _columns_known(compared)
    return () if only is None else (only,)


def alternatives_of(node: Node) -> Alternatives:
    """What `alternatives` gives, for a condition that has been parsed."""
    found = (_known(facts) for facts in _alternatives(node, True))
    return tuple(alternative for alternative in found if alternative is not None)


def _columns_known(compared: list[Comparison]) -> Alternative | None:
    """The ranges of columns that are compared with constants; None where none is left."""
    terms: dict[str, _Term] = {}
    for column, op, constants in compared:
        first = constants[0]
        kind = "string" if isinstance(first, str) else "number"
        for value in constants:
            if isinstance(value, str):
                kind = kind if kind == "string" else ""
                if not _certain(op, value):
                    break
            elif not -_EXACT < value < _EXACT:
                break  # nothing is certain
            elif kind != "number":
                kind = ""
        else:
            term = terms.get(column)
            if term is None:
                term = terms[column] = _Term(kind)
            elif term.kind != kind:
                term.kind = ""
            if term.kind:
                _note(term, op, constants)
    found: dict[str, Ranges] = {}
    for column, term in terms.items():
        term.is_valued = True
        ranges = found[column] = _ranges(term)
        if not ranges.parts:
            return None
    return found


def _certain(op: str, text: str) -> bool:
    """Whether it is certain what a comparison with a text says, whatever type the column has."""
    if op == "<>":
        return True
    stands = stands_for(text)
    return stands == text or (op == "=" and stands is not None)


def _plainly_known(compared: list[Comparison]) -> Alternative | None:
    """What `_columns_known` gives, where each comparison leaves one range; None in other cases."""
    found: dict[str, Ranges] = {}
    for column, op, constants in compared:
        ranges = _ranges_of(op, constants)
        known = found.get(column)
        if ranges is not None and known is not None:
            ranges = _one_in_both(known, ranges)
        if ranges is None:
            return None
        found[column] = ranges
    return found


def _one_in_both(one: Ranges, other: Ranges) -> Ranges | None:
    """The range that is in both; None where they have more than one each, or nothing in common."""
    if one.kind != other.kind or len(one.parts) > 1 or len(other.parts) > 1:
        return None
    (low, high), (begin, end) = one.parts[0], other.parts[0]
    low, high = max(low, begin), min(high, end)
    return Ranges(one.kind, ((low, high),)) if low < high else None


def _ranges_of(op: str, constants: list[Any]) -> Ranges | None:
    """The ranges of a column of which nothing else is known; None where it is no plain case."""
    value = constants[0]
    if isinstance(value, str):
        kind = "string"
        if op != "<>" and not all(isinstance(o, str) and stands_for(o) == o for o in constants):
            return None
    elif len(constants) == 1 and -_EXACT < value < _EXACT:
        kind = "number"
    else:
        return None
    if op == "=":
        if len(constants) == 1:
            return Ranges(kind, (((1, value, 0), (1, value, 1)),))
        each = sorted(set(constants))
        return Ranges(kind, tuple(((1, one, 0), (1, one, 1)) for one in each))
    if op == "<>":
        return Ranges(kind, ((_FIRST, (1, value, 0)), ((1, value, 1), _LAST)))
    if op in (">", ">="):
        return Ranges(kind, (((1, value, int(op == ">")), _LAST),))
    return Ranges(kind, ((_FIRST, (1, value, int(op == "<="))),))


def constraints(found: Alternatives) -> Alternative:
    """What a condition says of each term that all its alternatives say something of.

    >>> constraints(alternatives("v >= 3 AND v < 7 OR v = 9 AND ok"))
    {'v': Ranges(kind='number', parts=(((1, 3, 0), (1, 7, 0)), ((1, 9, 0), (1, 9, 1))))}
    """
    if len(found) == 1:
        return found[0]
    shared = [term for term in found[0] if all(term in other for other in found)] if found else []
    joined = {term: _joined([each[term] for each in found]) for term in shared}
    return {term: ranges for term, ranges in joined.items() if ranges is not None}


def column_ranges(text: str) -> tuple[str, Ranges] | None:
    """The column and its ranges, of a condition that says no more than these; None of others.

    >>> column_ranges("v >= 3 AND v < 7")
    ('v', Ranges(kind='number', parts=(((1, 3, 0), (1, 7, 0)),)))
    >>> column_ranges("v >= 3 AND ok") is None
    True
    """
    node = parse(text)
    facts = node.args if isinstance(node, Call) and node.op == "and" else (node,)
    columns = {_column_of(fact) for fact in facts}
    found = alternatives(text)
    if len(columns) != 1 or None in columns or len(found) != 1:
        return None
    ((_, ranges),) = found[0].items()
    if ranges.kind == "string":
        ranges = _of_texts(facts) or Ranges("", ())
    return (str(columns.pop()), ranges) if ranges.kind else None


def _of_texts(facts: Iterable[Node]) -> Ranges | None:
    """The texts that a column of texts may have; None where not all facts list such."""
    among: set[Any] | None = None
    for fact in facts:
        assert isinstance(fact, Call)
        if fact.op not in ("=", "in"):
            return None
        listed = {option.value for option in fact.args[1:] if isinstance(option, Literal)}
        among = listed if among is None else among & listed
    return Ranges("string", tuple(((1, one, 0), (1, one, 1)) for one in sorted(among or ())))


def _column_of(fact: Node) -> str | None:
    """The column that a fact compares with constants, if it does, and their order is certain."""
    if not isinstance(fact, Call) or (fact.op not in OPPOSITE and fact.op != "in"):
        return None
    column, *constants = fact.args
    if not isinstance(column, Column):
        return None
    known = all(
        isinstance(c, Literal)
        and c.kind != "null"
        and _comparable(c) is not None
        and (not isinstance(c.value, str) or _certain("=" if fact.op == "in" else fact.op, c.value))
        for c in constants
    )
    return column.name if known else None


def _joined(each: list[Ranges]) -> Ranges | None:
    """All ranges that one of these has; None where their kinds differ."""
    kinds = {ranges.kind for ranges in each if ranges.kind}
    if len(kinds) > 1:
        return None
    parts: list[Range] = []
    for low, high in sorted(part for ranges in each for part in ranges.parts):
        if parts and low <= parts[-1][1]:
            parts[-1] = (parts[-1][0], max(parts[-1][1], high))
        else:
            parts.append((low, high))
    return Ranges("".join(kinds), tuple(parts))


def _alternatives(node: Node, holds: bool) -> list[list[Fact]]:
    """Sets of facts of which one must be true in full."""
    if isinstance(node, Call) and node.op == "not":
        return _alternatives(node.args[0], not holds)
    if not isinstance(node, Call) or node.op not in ("and", "or"):
        return [[(node, holds)]]
    if (node.op == "and") == holds and all(map(_plain, node.args)):
        return [[(arg, holds) for arg in node.args]]
    parts = [_alternatives(arg, holds) for arg in node.args]
    if (node.op == "or") == holds:
        return [facts for part in parts for facts in part]
    result: list[list[Fact]] = [[]]
    for part in parts:
        if len(result) * len(part) > _MOST:
            continue  # leaving a condition out is safe: the rest is easier to meet
        result = [left + right for left, right in product(result, part)]
    return result


def _plain(node: Node) -> bool:
    return not isinstance(node, Call) or node.op not in ("and", "or", "not")


@dataclass(slots=True)
class _Term:
    """What is known of one term."""

    kind: str | None = None
    """The kind of the values it is compared with; empty where there are several."""
    is_null: bool = False
    is_valued: bool = False
    low: RangeBound = _FIRST
    high: RangeBound = _LAST
    among: frozenset[Any] | None = None
    excluded: frozenset[Any] = frozenset()


def _known(facts: list[Fact]) -> Alternative | None:
    """The ranges of the terms in these facts; None where the facts contradict each other."""
    terms: dict[Node, _Term] = {}
    for node, holds in facts:
        if _impossible(terms, node, holds):
            return None
    found: dict[str, Ranges] = {}
    for node, term in terms.items():
        ranges = found[render(node)] = _ranges(term)
        if not ranges.parts:
            return None
    return found


def _impossible(terms: dict[Node, _Term], node: Node, holds: bool) -> bool:
    """Adds a fact to its term; True when it can never be true."""
    if isinstance(node, Call) and node.op in OPPOSITE:
        op = node.op if holds else OPPOSITE[node.op]
        return _compared(terms, op, node.args[0], node.args[1:])
    if isinstance(node, Literal):
        return node.value is not True if holds else node.value is not False
    if isinstance(node, Call) and node.op == "is null":
        term = terms.setdefault(node.args[0], _Term())
        term.is_null |= holds
        term.is_valued |= not holds
        return False
    if isinstance(node, Call) and node.op == "in":
        return _compared(terms, "=" if holds else "<>", node.args[0], node.args[1:])
    truth = Literal("bool", holds)
    return _compared(terms, "=", node, (truth,))


def _compared(terms: dict[Node, _Term], op: str, subject: Node, options: tuple[Node, ...]) -> bool:
    if isinstance(subject, Literal):
        return False
    values: list[Any] = []
    kind: str | None = None
    certain = True
    for option in options:
        if not isinstance(option, Literal):
            return False
        if option.kind == "null":
            if op == "<>":
                return True  # a comparison with null is never met
            continue
        value = _comparable(option)
        if value is None or (value[0] == "string" and not _certain(op, value[1])):
            certain = False
            continue
        kind = value[0] if kind is None or kind == value[0] else ""
        values.append(value[1])
    if not certain:
        return False
    if not values:
        return True
    term = terms.get(subject)
    if term is None:
        term = terms[subject] = _Term()
    term.is_valued = True
    term.kind = kind if term.kind is None or term.kind == kind else ""
    if term.kind:
        _note(term, op, values)
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
        among = frozenset(values)
        term.among = among if term.among is None else _in_both(term.kind, term.among, among)
    elif op == "<>":
        term.excluded = term.excluded.union(values)
    elif op in (">", ">="):
        term.low = max(term.low, (1, values[0], int(op == ">")))
    else:
        term.high = min(term.high, (1, values[0], int(op == "<=")))


def _in_both(kind: str | None, one: frozenset[Any], other: frozenset[Any]) -> frozenset[Any]:
    """Values that are in both sets; of texts, those that may be equal to one of either set."""
    if kind != "string":
        return one & other
    shared = set(map(stands_for, one)) & set(map(stands_for, other))
    return frozenset(text for text in one | other if stands_for(text) in shared)


def _ranges(term: _Term) -> Ranges:
    """The ranges that a term's value is in; none where no value has all that is known of it."""
    if term.is_null:
        return Ranges("", () if term.is_valued else (NULL,))
    kind = term.kind
    if not kind:
        return Ranges("", ((_FIRST, _LAST),))
    if kind == "bool" and term.among is None:
        term.among = frozenset((True, False))
    if term.among is not None:
        points = (((1, value, 0), (1, value, 1)) for value in sorted(term.among - term.excluded))
        kept = [part for part in points if term.low <= part[0] and part[1] <= term.high]
        return Ranges(kind, (*kept, *(_meanings(kept) if kind == "string" else ())))
    if not term.excluded:
        return Ranges(kind, ((term.low, term.high),) if term.low < term.high else ())
    low, parts = term.low, []
    for value in sorted(term.excluded):
        parts.append((low, min(term.high, (1, value, 0))))
        low = max(low, (1, value, 1))
    parts.append((low, term.high))
    return Ranges(kind, tuple((low, high) for low, high in parts if low < high))


def _meanings(points: list[Range]) -> list[Range]:
    """What texts stand for that have other meanings."""
    stands = ((low[1], stands_for(low[1])) for low, _ in points)
    found = {stand for text, stand in stands if stand != text}
    return [((3, stand, 0), (3, stand, 1)) for stand in sorted(map(str, found))]
