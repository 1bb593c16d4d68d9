"""What an expression is once parsed, and its one text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from typing import Literal as OneOf

LiteralKind = OneOf["null", "bool", "int", "float", "string", "time", "date"]
LiteralValue = None | bool | int | float | str | datetime | date


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the events, by its exact name; what is taken out of one, by its path."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; the kind keeps 1, 1.0 and TRUE apart, which Python holds to be equal."""

    kind: LiteralKind
    value: LiteralValue


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function of other nodes; `to` is the type of a cast."""

    op: str
    args: tuple[Node, ...]
    to: str = ""


Node = Column | Literal | Call

PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KEY = re.compile(r"\['[^'\\\\]*'\]|\[\d+\]", re.ASCII)
_PATH = re.compile(rf"{PLAIN.pattern}(?:\.{PLAIN.pattern}|{_KEY.pattern})+", re.ASCII)
RESERVED = {
    "all",
    "alter",
    "and",
    "any",
    "as",
    "between",
    "case",
    "connect_by_root",
    "create",
    "cross",
    "current_date",
    "current_timestamp",
    "current_user",
    "describe",
    "distinct",
    "drop",
    "else",
    "except",
    "false",
    "fetch",
    "for",
    "from",
    "glob",
    "grant",
    "having",
    "if",
    "ilike",
    "inner",
    "insert",
    "intersect",
    "interval",
    "into",
    "join",
    "lateral",
    "like",
    "minus",
    "not",
    "notnull",
    "null",
    "on",
    "or",
    "outer",
    "partitioned_by",
    "qualify",
    "regexp",
    "returning",
    "revoke",
    "rlike",
    "rollback",
    "select",
    "serdeproperties",
    "session_user",
    "tablesample",
    "then",
    "true",
    "uncache",
    "union",
    "using",
    "values",
    "when",
    "where",
    "with",
    "xor",
}
"""Words that do not read as a column unless they stand in backticks."""

_LEVEL = {"or": 1, "and": 2, "not": 3, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6, "neg": 7}
_LEVEL |= dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "is null", "in", "like"), 4)
_ATOM = 8
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def is_plain(name: str) -> bool:
    """True when a column's name needs no backticks."""
    return PLAIN.fullmatch(name) is not None and name.lower() not in RESERVED


@lru_cache(maxsize=4096)
def quote(name: str) -> str:
    """A column's name as SQL text.

    >>> quote("v"), quote("heart rate"), quote("req.bytes")
    ('v', '`heart rate`', 'req.bytes')
    """
    if is_plain(name) or _is_plain_path(name):
        return name
    return "`" + name.replace("`", "``") + "`"


PathStep = str | int
"""A field of a struct or key of a map by its name, an element of a list by its number."""


def path_text(column: str, steps: Iterable[PathStep]) -> str:
    """The one text of a path from a column.

    >>> path_text("req", ["tags", "a b", 0])
    "req.tags['a b'][0]"
    """
    made = column
    for step in steps:
        if isinstance(step, int):
            made += f"[{step}]"
        else:
            made += f".{step}" if is_plain(step) else f"[{constant_text(step)}]"
    return made


def part_text(value: str, steps: Iterable[PathStep]) -> str:
    """The text of a field or an element of a value that is no column of events.

    >>> part_text("`max_by(req, v)`", ["host"])
    "part_of(`max_by(req, v)`, 'host')"
    """
    made = value
    for step in steps:
        made = f"part_of({made}, {constant_text(step)})"
    return made


def _is_plain_path(name: str) -> bool:
    """Whether a path needs no backticks: what parses as it stands, and as nothing else."""
    if _PATH.fullmatch(name) is None:
        return False
    return all(is_plain(part) for part in _KEY.sub("", name).split("."))


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, from left to right."""
    yield node
    if isinstance(node, Call):
        for arg in node.args:
            yield from walk(arg)


def render(node: Node) -> str:
    """The SQL text of a node; parsing it gives the same node again."""
    if isinstance(node, Column):
        return quote(node.name)
    if isinstance(node, Literal):
        return _literal(node)
    if node.op in ("and", "or"):
        level = _LEVEL[node.op]
        return f" {node.op.upper()} ".join(_inside(a, level + 1) for a in node.args)
    if node.op == "not":
        return _negated(node.args[0])
    if node.op in _LEVEL:
        return _operator(node)
    if node.op == "case":
        return _case(node.args)
    if node.op == "cast":
        return f"CAST({render(node.args[0])} AS {node.to})"
    return f"{node.op}({', '.join(render(a) for a in node.args)})"


def _operator(node: Call, negation: str = "") -> str:
    level = _LEVEL[node.op]
    left = node.args[0]
    if node.op == "neg":
        return "-" + _inside(left, _ATOM)
    first = _inside(left, level if level > 4 else 5)
    if node.op == "is null":
        return f"{first} IS {negation}NULL"
    if node.op == "in":
        return f"{first} {negation}IN ({', '.join(render(a) for a in node.args[1:])})"
    sign = negation + node.op.upper()
    return f"{first} {sign} {_inside(node.args[1], level + 1)}"


def _negated(node: Node) -> str:
    if isinstance(node, Call) and node.op in ("is null", "in", "like"):
        return _operator(node, "NOT ")
    return "NOT " + _inside(node, 4)


def _inside(node: Node, level: int) -> str:
    """The text of an operand, in parentheses where it binds less tightly than `level`."""
    own = _LEVEL.get(node.op, _ATOM) if isinstance(node, Call) else _ATOM
    if isinstance(node, Call) and node.op == "not" and render(node)[:4] != "NOT ":
        own = 4
    return render(node) if own >= level else f"({render(node)})"


def _case(args: tuple[Node, ...]) -> str:
    pairs = zip(args[0:-1:2], args[1:-1:2], strict=True)
    whens = " ".join(f"WHEN {render(when)} THEN {render(then)}" for when, then in pairs)
    return f"CASE {whens} ELSE {render(args[-1])} END"


def _literal(node: Literal) -> str:
    return constant_text(node.value)


def constant_text(value: LiteralValue) -> str:
    """A constant as SQL text."""
    if isinstance(value, str):
        return f"'{value.translate(_ESCAPES)}'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return "NULL" if value is None else repr(value).upper()
