"""Random SQL expressions, each with a plain Python function that evaluates it for one row.

The functions are the oracle of the expression tests: they share no code with the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st

Row = dict[str, Any]


class Made(NamedTuple):
    """An expression's text, its value for a row, and whether that is a double."""

    text: str
    run: Callable[[Row], Any]
    double: bool = False


ints = st.one_of(st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1, 10**12]))
floats = st.sampled_from([0.0, -0.0, 1.0, -1.5, 2.0, 3.25, 1e300, math.inf, -math.inf, math.nan])
texts = st.sampled_from(["", "a", "b", "A", "ab", "ü", "a%", "it's", "x\\y", "a\nb"])
COLUMNS = {
    "i": st.none() | ints,
    "j": st.none() | ints,
    "f": st.none() | floats,
    "g": st.none() | floats,
    "s": st.none() | texts,
    "t": st.none() | texts,
    "b": st.none() | st.booleans(),
    "c": st.none() | st.booleans(),
}
rows = st.lists(st.fixed_dictionaries(COLUMNS), min_size=1, max_size=6)


def _int(value: int) -> int | None:
    return value if -(2**63) <= value < 2**63 else None


def _apply(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: None if any(a is None for a in args) else function(*args)


def _whole(a: Any, b: Any) -> bool:
    return isinstance(a, int) and isinstance(b, int)


def _plus(a: Any, b: Any) -> Any:
    return _int(a + b) if _whole(a, b) else float(a) + float(b)


def _minus(a: Any, b: Any) -> Any:
    return _int(a - b) if _whole(a, b) else float(a) - float(b)


def _times(a: Any, b: Any) -> Any:
    return _int(a * b) if _whole(a, b) else float(a) * float(b)


def _over(a: Any, b: Any) -> Any:
    return None if b == 0 else float(a) / float(b)


def _modulo(a: Any, b: Any) -> Any:
    if b == 0:
        return None
    if _whole(a, b):
        return (abs(a) % abs(b)) * (-1 if a < 0 else 1)
    if math.isinf(a) or math.isnan(a) or math.isnan(b):
        return math.nan
    return math.fmod(float(a), float(b))


def _order(a: Any, b: Any) -> int:
    """-1, 0 or 1; NaN equals NaN and is larger than any number; int against float is double."""
    if isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
        left, right = (math.isnan(a), 0 if math.isnan(a) else a), (math.isnan(b), b)
        if math.isnan(b):
            right = (True, 0)
        return (left > right) - (left < right)
    return (a > b) - (a < b)


_ARITHMETIC = {"+": _plus, "-": _minus, "*": _times, "/": _over, "%": _modulo}
_COMPARE = {
    "=": lambda o: o == 0,
    "<>": lambda o: o != 0,
    "<": lambda o: o < 0,
    "<=": lambda o: o <= 0,
    ">": lambda o: o > 0,
    ">=": lambda o: o >= 0,
}


def _binary(op: str, left: Made, right: Made) -> Made:
    function = _apply(_ARITHMETIC[op])
    double = op == "/" or left.double or right.double
    return Made(
        f"({left.text} {op} {right.text})", lambda r: function(left.run(r), right.run(r)), double
    )


def _compared(op: str, left: Made, right: Made) -> Made:
    function = _apply(lambda a, b: _COMPARE[op](_order(a, b)))
    return Made(f"({left.text} {op} {right.text})", lambda r: function(left.run(r), right.run(r)))


def _and(a: Any, b: Any) -> Any:
    return False if a is False or b is False else None if a is None or b is None else True


def _or(a: Any, b: Any) -> Any:
    return True if a is True or b is True else None if a is None or b is None else False


def _junction(word: str, left: Made, right: Made) -> Made:
    function = _and if word == "AND" else _or
    return Made(f"({left.text} {word} {right.text})", lambda r: function(left.run(r), right.run(r)))


def _negated(inner: Made) -> Made:
    function = _apply(lambda a: not a)
    return Made(f"NOT ({inner.text})", lambda r: function(inner.run(r)))


def _in(value: Made, options: list[Made], negated: bool) -> Made:
    def run(row: Row) -> Any:
        found: Any = False
        equal = _apply(lambda a, b: _order(a, b) == 0)
        for option in options:
            found = _or(found, equal(value.run(row), option.run(row)))
        return found if found is None else found != negated

    listed = ", ".join(option.text for option in options)
    return Made(f"({value.text} {'NOT ' if negated else ''}IN ({listed}))", run)


def _between(value: Made, low: Made, high: Made) -> Made:
    both = _junction("AND", _compared(">=", value, low), _compared("<=", value, high))
    return Made(f"({value.text} BETWEEN {low.text} AND {high.text})", both.run)


def _case(when: Made, then: Made, otherwise: Made) -> Made:
    def run(row: Row) -> Any:
        value = then.run(row) if when.run(row) is True else otherwise.run(row)
        return float(value) if double and value is not None else value

    double = then.double or otherwise.double
    return Made(f"CASE WHEN {when.text} THEN {then.text} ELSE {otherwise.text} END", run, double)


def _coalesce(left: Made, right: Made) -> Made:
    def run(row: Row) -> Any:
        value = left.run(row)
        value = right.run(row) if value is None else value
        return float(value) if double and value is not None else value

    double = left.double or right.double
    return Made(f"coalesce({left.text}, {right.text})", run, double)


def _null(inner: Made) -> Made:
    return Made(f"{inner.text} IS NULL", lambda r: inner.run(r) is None)


def _valued(inner: Made) -> Made:
    return Made(f"{inner.text} IS NOT NULL", lambda r: inner.run(r) is not None)


def _column(name: str) -> Made:
    return Made(name, lambda row: row[name], name in ("f", "g"))


def literal(value: Any) -> Made:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return Made(f"'{escaped}'", lambda _: value)
    return Made("NULL" if value is None else repr(value), lambda _: value, isinstance(value, float))


def columns(*names: str) -> st.SearchStrategy[Made]:
    return st.sampled_from(names).map(_column)


small = st.integers(-5, 5).map(literal) | st.sampled_from([0.0, 1.0, -1.5, 3.25]).map(literal)


def _grown(inner: st.SearchStrategy[Made]) -> st.SearchStrategy[Made]:
    return st.builds(_binary, st.sampled_from(sorted(_ARITHMETIC)), inner, inner) | st.builds(
        _coalesce, inner, inner
    )


numbers = st.recursive(columns("i", "j", "f", "g") | small, _grown, max_leaves=4)
words = columns("s", "t") | texts.map(literal)
_ops = st.sampled_from(sorted(_COMPARE))
atoms = st.one_of(
    columns("b", "c"),
    st.builds(_compared, _ops, numbers, numbers),
    st.builds(_compared, _ops, words, words),
    st.builds(_between, numbers, numbers, numbers),
    st.builds(_in, numbers, st.lists(small, min_size=1, max_size=5), st.booleans()),
    st.builds(_in, words, st.lists(words, min_size=1, max_size=5), st.booleans()),
    numbers.map(_null),
    numbers.map(_valued),
)
conditions = st.recursive(
    atoms,
    lambda inner: (
        st.builds(_junction, st.sampled_from(["AND", "OR"]), inner, inner)
        | inner.map(_negated)
        | st.builds(_case, inner, inner, inner)
    ),
    max_leaves=4,
)
choices = st.builds(_case, conditions, numbers, numbers)

_values = st.sampled_from([0, 1, 2, 3, 1.5])
simple = st.one_of(
    columns("b"),
    st.builds(_compared, _ops, columns("i", "f"), _values.map(literal)),
    st.builds(_compared, _ops, columns("s"), st.sampled_from(["a", "b"]).map(literal)),
    st.builds(
        _in,
        columns("i", "f"),
        st.lists(_values.map(literal), min_size=1, max_size=3),
        st.booleans(),
    ),
    st.builds(_between, columns("i", "f"), _values.map(literal), _values.map(literal)),
    columns("i", "f").map(_null),
    columns("i", "f").map(_valued),
)
"""Conditions of the kind that `disjoint` reasons about, over few values so that they often meet."""
facts = st.recursive(
    simple,
    lambda inner: (
        st.builds(_junction, st.sampled_from(["AND", "AND", "OR"]), inner, inner)
        | inner.map(_negated)
    ),
    max_leaves=3,
)
few_rows = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-1, 4),
            "f": st.none() | st.sampled_from([0.0, 1.5, math.nan]),
            "s": st.sampled_from([None, "a", "b", "c"]),
            "b": st.none() | st.booleans(),
        }
    ),
    min_size=10,
    max_size=30,
)
