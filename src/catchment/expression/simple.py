"""The conditions that most queries have, read without a full parser of SQL.

Comparisons of a column with a constant, IN lists of constants, and several of these joined by AND:
`site = 'a12' AND v >= 3`. The parser takes some two hundred microseconds for such a text, which is
most of the time to plan a million queries; this takes a few. Whatever is not of this form is left
to the parser. `tests/test_expression.py` holds both against each other.
"""

from __future__ import annotations

import re
from functools import lru_cache

from catchment.expression.nodes import Call, Column, Literal, Node, is_plain

_CONSTANT = r"'[^'\\]*'|-?[0-9]{1,18}(?:\.[0-9]{1,15})?"
_PART = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*"
    rf"(?:(=|<>|<=|>=|<|>)\s*({_CONSTANT})"
    rf"|[iI][nN]\s*\(\s*((?:{_CONSTANT})(?:\s*,\s*(?:{_CONSTANT}))*)\s*\))"
    r"\s*(?:((?<![A-Za-z0-9_])[aA][nN][dD](?![A-Za-z0-9_]))|\Z)",
    re.ASCII,
)
_CONSTANTS = re.compile(_CONSTANT, re.ASCII)


def simple(text: str) -> Node | None:
    """The nodes of such a condition; None where the text has another form.

    >>> simple("v >= 3")
    Call(op='>=', args=(Column(name='v'), Literal(kind='int', value=3)), to='')
    >>> simple("v + 1 >= 3") is None
    True
    """
    parts: list[Node] = []
    place, joined = 0, True
    while joined:
        found = _PART.match(text, place)
        column = None if found is None else _column(found[1])
        if found is None or column is None:
            return None
        part = _part(column, found)
        if part not in parts:
            parts.append(part)
        place, joined = found.end(), found[5] is not None
    return parts[0] if len(parts) == 1 else Call("and", tuple(parts))


@lru_cache(maxsize=4096)
def _column(name: str) -> Column | None:
    return Column(name) if is_plain(name) else None


def _part(column: Column, found: re.Match[str]) -> Call:
    if found[2]:
        return Call(found[2], (column, _constant(found[3])))
    options = tuple(dict.fromkeys(_constant(text) for text in _CONSTANTS.findall(found[4])))
    return Call("=" if len(options) == 1 else "in", (column, *options))


def _constant(text: str) -> Literal:
    if text[0] == "'":
        return Literal("string", text[1:-1])
    return Literal("float", float(text)) if "." in text else Literal("int", int(text))
