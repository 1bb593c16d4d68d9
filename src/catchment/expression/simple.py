"""The conditions that most queries have, read without a full parser of SQL.

Comparisons of a column with a constant, IN lists of constants, and several of these joined by AND:
`site = 'a12' AND v >= 3`. The parser takes some two hundred microseconds for such a text, which is
most of the time to plan a million queries; this takes a few. It gives the comparisons, and makes no
nodes (`usual.py` does). `tests/test_expression.py` holds both against the parser.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from catchment.expression.nodes import constant_text, is_plain

_CONSTANT = r"'[^'\\]*'|-?[0-9]{1,18}(?:\.[0-9]{1,15})?"
_PART = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*"
    rf"(?:(=|<>|<=|>=|<|>)\s*({_CONSTANT})"
    rf"|(?<![A-Za-z0-9_])[iI][nN]\s*\(\s*((?:{_CONSTANT})(?:\s*,\s*(?:{_CONSTANT}))*)\s*\))"
    r"\s*(?:((?<![A-Za-z0-9_])[aA][nN][dD](?![A-Za-z0-9_]))|\Z)",
    re.ASCII,
)
_CONSTANTS = re.compile(_CONSTANT, re.ASCII)


def simple_text(text: str) -> str | None:
    """The one text of such a condition, without making its nodes; None of another form.

    >>> simple_text("v>=3 and site in ('a','b') AND v >= 3")
    "v >= 3 AND site IN ('a', 'b')"
    """
    found = comparisons(text)
    if found is None:
        return None
    parts: dict[tuple[Any, ...], None] = {}
    for column, op, constants in found:  # 1 and 1.0 are two constants, 0.0 and -0.0 are one
        parts[column, op, *dict.fromkeys((type(value), value) for value in constants)] = None
    return " AND ".join(_part_text(*part) for part in parts)


def _part_text(column: str, op: str, *constants: tuple[type, Any]) -> str:
    if len(constants) == 1:
        return f"{column} {op} {constant_text(constants[0][1])}"
    return f"{column} IN ({', '.join(constant_text(value) for _, value in constants)})"


Comparison = tuple[str, str, list[Any]]
"""A column, an operator and constants; more than one constant: the column is one of them."""


def comparisons(text: str) -> list[Comparison] | None:
    """The comparisons that such a condition joins; None where the text has another form.

    >>> comparisons("v >= 3 AND site IN ('a', 'b')")
    [('v', '>=', [3]), ('site', '=', ['a', 'b'])]
    """
    parts: list[Comparison] = []
    place, joined = 0, True
    while joined:
        found = _PART.match(text, place)
        if found is None:
            return None
        column, op, constant, options, more = found.groups()
        if not _plain(column):
            return None
        texts = [constant] if op else _CONSTANTS.findall(options)
        parts.append((column, op or "=", [_constant(one) for one in texts]))
        place, joined = found.end(), more is not None
    return parts


_plain = lru_cache(maxsize=4096)(is_plain)


def _constant(text: str) -> str | int | float:
    if text[0] == "'":
        return text[1:-1]
    return float(text) if "." in text else int(text)
