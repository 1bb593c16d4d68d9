"""sqlglot's syntax tree to our few nodes; whatever is not supported is refused here.

Writings of one meaning become one node (BETWEEN, IF, and what `building.py` says), so that equal
conditions are seen to be equal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

from sqlglot import exp

from catchment.errors import QueryError
from catchment.expression.building import FLIPPED, between, binary, is_in, junction, negate, part
from catchment.expression.decimals import MOST
from catchment.expression.named import DIFFERENCES, FIELDS, FUNCTIONS, called, part_of_time
from catchment.expression.nodes import Call, Column, Literal, Node, path_text
from catchment.expression.refuse import refusal
from catchment.expression.spark_sql import sql_of

_BINARY: dict[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_TYPES = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INT": "INT",
    "BIGINT": "BIGINT",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "TEXT": "STRING",
    "VARCHAR": "STRING",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP",
}
_LARGEST = 2**63


def convert(node: exp.Expression, what: str) -> Node:
    """The node of a syntax tree; QueryError names what is not supported."""
    kind = type(node)
    if kind is exp.Paren:
        return convert(node.this, what)
    if kind in (exp.Add, exp.Sub) and exp.Interval in (type(node.this), type(node.expression)):
        return _plus_interval(node, what)
    if _BINARY.get(kind) in FLIPPED and exp.Interval in (type(node.this), type(node.expression)):
        return _apart(node, what)
    if kind in _BINARY:
        return binary(_BINARY[kind], convert(node.this, what), convert(node.expression, what))
    if kind in _SPECIAL:
        return _SPECIAL[kind](node, what)
    raise refusal(node, what)


def _plus_interval(node: exp.Expression, what: str) -> Node:
    """A time and an interval: `ts + INTERVAL '5' MINUTES`, `ts - INTERVAL '1 day 2 hours'`."""
    interval, value = node.expression, node.this
    if isinstance(value, exp.Interval) and isinstance(node, exp.Add):
        interval, value = value, interval
    if isinstance(value, exp.Interval):
        raise refusal(value, what)
    made = convert(value, what)
    for unit, count in _counts(interval, what):
        counted = binary("*", Literal("int", -1), count) if isinstance(node, exp.Sub) else count
        if isinstance(count, Literal) and isinstance(count.value, int):
            counted = Literal("int", -count.value if isinstance(node, exp.Sub) else count.value)
        made = Call("plus_interval", (Literal("string", unit.upper()), counted, made))
    return made


def _apart(node: exp.Expression, what: str) -> Node:
    """`a - b > INTERVAL '1' SECOND` is `a > b + INTERVAL '1' SECOND`; of months it is not."""
    op, span, interval = _BINARY[type(node)], node.this, node.expression
    if isinstance(span, exp.Interval):
        op, span, interval = FLIPPED[op], interval, span
    span = span.unnest()
    if not isinstance(span, exp.Sub) or isinstance(interval, exp.Paren):
        raise refusal(interval, what)
    if any(unit in ("year", "quarter", "month") for unit, _ in _counts(interval, what)):
        raise refusal(interval, what)
    later = exp.Add(this=span.expression.copy(), expression=interval.copy())
    return binary(op, convert(span.this, what), convert(later, what))


def _counts(interval: exp.Expression, what: str) -> list[tuple[str, Node]]:
    """The units of an interval, and how many there are of each."""
    unit = interval.args.get("unit")
    name = unit.name if isinstance(unit, exp.Var) else ""
    amount = interval.this
    if not isinstance(amount, exp.Literal):
        parts: list[tuple[str, Node]] = [(name, convert(amount, what))] if amount else []
    else:
        found = _AMOUNT.findall(f"{amount.name} {name}")
        whole = "".join("".join(part) for part in found)
        same = whole == re.sub(r"\s", "", f"{amount.name}{name}")
        parts = [(word, Literal("int", int(count))) for count, word in found] if same else []
    named = [(word.lower().removesuffix("s"), count) for word, count in parts]
    if not named or any(word not in DIFFERENCES for word, _ in named):
        raise QueryError(
            f"the {what} has an interval that cannot be read",
            given=sql_of(interval),
            hint="write INTERVAL '5' MINUTES or INTERVAL '1 day 2 hours'",
        )
    return named


_AMOUNT = re.compile(r"([+-]?\d+)\s*([A-Za-z]+)", re.ASCII)


def _column(node: exp.Expression, what: str) -> Node:
    identifier = node.this
    if not isinstance(identifier, exp.Identifier):
        raise refusal(identifier, what)
    parts = [part for key in ("catalog", "db", "table") if (part := node.args.get(key))]
    if parts:
        first, *steps = [part.name for part in (*parts, identifier)]
        return Column(path_text(first, steps))
    if not identifier.quoted and not identifier.name.isidentifier():
        raise QueryError(
            f"the {what} uses a name that is not plain",
            given=identifier.name,
            hint=f"for a column of that name write `{identifier.name}` in backticks",
        )
    return Column(identifier.name)


def _field(node: exp.Expression, what: str) -> Node:
    """A field of a field: `a['b'].c`."""
    inner = convert(node.this, what)
    if isinstance(inner, Literal) or not isinstance(node.expression, exp.Identifier):
        raise _no_path(node, what)
    return part(inner, node.expression.name)


def _element(node: exp.Expression, what: str) -> Node:
    """A field of a struct, a value of a map or an element of a list: `tags['a']`, `items[0]`."""
    inner = convert(node.this, what)
    keys = [convert(key, what) for key in node.expressions]
    key = keys[0].value if len(keys) == 1 and isinstance(keys[0], Literal) else None
    if node.args.get("offset"):
        raise _no_path(node, what)  # element_at, which counts from 1
    named = isinstance(key, str) or (type(key) is int and key >= 0)
    if not named or isinstance(inner, Literal):
        raise _no_path(node, what)
    assert isinstance(key, str | int)
    return part(inner, key)


def _no_path(node: exp.Expression, what: str) -> QueryError:
    return QueryError(
        f"the {what} takes a field or an element of what has no name",
        given=sql_of(node),
        hint="name a column, its fields and fixed keys, as in req.bytes, tags['a'] or items[0]",
    )


def _literal(node: exp.Expression, what: str) -> Node:
    return Literal("string", node.name) if node.is_string else _number(node.name, what)


def _number(text: str, what: str) -> Literal:
    if text.lstrip("-").isdigit():
        if -_LARGEST <= int(text) < _LARGEST:
            return Literal("int", int(text))
    elif math.isfinite(float(text)):
        return Literal("float", float(text))
    raise QueryError(
        f"the {what} uses a number that is too large",
        given=text,
        hint="whole numbers have 64 bits; others are doubles",
    )


def _negative(node: exp.Expression, what: str) -> Node:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return _number("-" + inner.name, what)
    arg = convert(inner, what)
    if isinstance(arg, Literal) and arg.kind in ("int", "float"):
        text = repr(arg.value)
        return _number(text[1:] if text.startswith("-") else f"-{text}", what)
    return Call("neg", (arg,))


def _junction(node: exp.Expression, what: str) -> Node:
    terms: list[Any] = list(node.flatten())
    return junction("and" if isinstance(node, exp.And) else "or", [convert(t, what) for t in terms])


def _between(node: exp.Expression, what: str) -> Node:
    if node.args.get("symmetric"):
        raise refusal(node, what)
    value = convert(node.this, what)
    return between(value, convert(node.args["low"], what), convert(node.args["high"], what))


def _in(node: exp.Expression, what: str) -> Node:
    if not node.expressions:
        raise refusal(node.args.get("query") or node, what)
    value = convert(node.this, what)
    return is_in(value, [convert(option, what) for option in node.expressions])


def _is(node: exp.Expression, what: str) -> Node:
    value, other = convert(node.this, what), node.expression
    if isinstance(other, exp.Boolean):
        return Call("equal_null", (value, Literal("bool", bool(other.this))))
    if not isinstance(other, exp.Null):
        raise refusal(node, what)
    return Call("is null", (value,))


def _like(node: exp.Expression, what: str) -> Node:
    some = node.expression
    if isinstance(some, exp.Any | exp.All):
        patterns = some.this.expressions or [some.this.unnest()]
        negated = node.args.get("negate")
        each = [exp.Like(this=node.this, expression=p, negate=negated) for p in patterns]
        return junction(
            "or" if isinstance(some, exp.Any) else "and", [_like(e, what) for e in each]
        )
    pattern = convert(node.expression, what)
    if not isinstance(pattern, Literal) or pattern.kind != "string":
        raise QueryError(
            f"the {what} uses LIKE without a fixed pattern",
            given=sql_of(node),
            hint="write the pattern as a text, as in name LIKE 'a%'",
        )
    like = Call("like", (convert(node.this, what), pattern))
    return negate(like) if node.args.get("negate") else like


def _case(node: exp.Expression, what: str) -> Node:
    subject = node.this and convert(node.this, what)
    parts: list[Node] = []
    for branch in node.args["ifs"]:
        when = convert(branch.this, what)
        parts += [binary("=", subject, when) if subject else when]
        parts += [convert(branch.args["true"], what)]
    return Call("case", (*parts, _default(node.args.get("default"), what)))


def _if(node: exp.Expression, what: str) -> Node:
    when, then = convert(node.this, what), convert(node.args["true"], what)
    return Call("case", (when, then, _default(node.args.get("false"), what)))


def _default(node: exp.Expression | None, what: str) -> Node:
    return convert(node, what) if node else Literal("null", None)


def _cast(node: exp.Expression, what: str) -> Node:
    target = _target(node.args["to"])
    if target is None or node.args.get("format"):
        raise QueryError(
            f"the {what} casts to a type that is not supported",
            given=sql_of(node),
            hint="supported are " + ", ".join([*dict.fromkeys(_TYPES.values()), "DECIMAL(p, s)"]),
        )
    arg = convert(node.this, what)
    if isinstance(arg, Literal):
        folded = _folded(arg, target, what)
        if folded:
            return folded
    return Call("cast", (arg,), target)


def _target(to: exp.DataType) -> str | None:
    """The type of a cast in our words; None where it is not supported."""
    name = to.this.name if isinstance(to.this, exp.DataType.Type) else ""
    sizes = [size.name for size in to.expressions]
    if name == "DECIMAL" and len(sizes) <= 2 and all(size.isdigit() for size in sizes):
        precision, scale = [*map(int, sizes), *((10, 0)[len(sizes) :])]
        fits = 1 <= precision <= MOST and scale <= precision
        return f"DECIMAL({precision}, {scale})" if fits else None
    return None if sizes else _TYPES.get(name)


def _folded(arg: Literal, target: str, what: str) -> Literal | None:
    """A literal of the target type, where the cast is only the way to write one."""
    if isinstance(arg.value, str) and target in ("TIMESTAMP", "DATE"):
        return _moment(arg.value, target, what)
    if arg.kind == "int" and target == "DOUBLE":
        return Literal("float", float(arg.value))  # type: ignore[arg-type]
    same = {"int": "BIGINT", "float": "DOUBLE", "string": "STRING", "bool": "BOOLEAN"}
    return arg if same.get(arg.kind) == target else None


def _moment(text: str, target: str, what: str) -> Literal:
    try:
        if target == "DATE":
            return Literal("date", date.fromisoformat(text.strip()))
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return Literal("time", moment.astimezone(UTC))
    except (ValueError, OverflowError) as error:
        example = "2026-01-31" + (" 12:00:00" if target == "TIMESTAMP" else "")
        raise QueryError(
            f"the {what} has a {target.lower()} that cannot be read",
            given=repr(text),
            hint=f"write {target} '{example}'",
        ) from error


def _extract(node: exp.Expression, what: str) -> Node:
    made = part_of_time(node.this.name, convert(node.expression, what))
    if made is None:
        raise QueryError(
            f"the {what} extracts what is not supported",
            given=sql_of(node),
            hint="supported are " + ", ".join(FIELDS),
        )
    return made


_TRIMS = {"": "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
"""What trim(LEADING 'x' FROM s) and the like are, by their first word."""


def _trim(node: exp.Expression, what: str) -> Node:
    args = [node.expression, node.this] if node.args.get("expression") else [node.this]
    name = _TRIMS[(node.args.get("position") or "").upper()]
    return called(name, [convert(arg, what) for arg in args], sql_of(node), what)


def _concat(node: exp.Expression, what: str) -> Node:
    return called("concat", [convert(n, what) for n in node.iter_expressions()], sql_of(node), what)


def _named(node: exp.Expression, what: str) -> Node:
    name = node.name.lower()
    if name not in FUNCTIONS:
        raise refusal(node, what)
    return called(name, [convert(arg, what) for arg in node.expressions], sql_of(node), what)


def _operator(name: str) -> Callable[[exp.Expression, str], Node]:
    """How an operator is read that is a function under another name."""

    def read(node: exp.Expression, what: str) -> Node:
        operands = [convert(arg, what) for arg in (node.this, node.args.get("expression")) if arg]
        made = called(name, operands, sql_of(node), what)
        return negate(made) if node.args.get("negate") else made

    return read


_SPECIAL: dict[type[exp.Expression], Callable[[exp.Expression, str], Node]] = {
    exp.Column: _column,
    exp.Dot: _field,
    exp.Bracket: _element,
    exp.Literal: _literal,
    exp.Neg: _negative,
    exp.And: _junction,
    exp.Or: _junction,
    exp.Not: lambda node, what: negate(convert(node.this, what)),
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.Like: _like,
    exp.Case: _case,
    exp.If: _if,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Extract: _extract,
    exp.Trim: _trim,
    exp.DPipe: _concat,
    exp.RegexpLike: _operator("rlike"),
    exp.ILike: _operator("ilike"),
    exp.NullSafeEQ: _operator("equal_null"),
    exp.NullSafeNEQ: lambda node, what: negate(_operator("equal_null")(node, what)),
    exp.IntDiv: _operator("int_div"),
    exp.BitwiseAnd: _operator("bitwise_and"),
    exp.BitwiseOr: _operator("bitwise_or"),
    exp.BitwiseXor: _operator("bitwise_xor"),
    exp.BitwiseNot: _operator("bitwise_not"),
    exp.Anonymous: _named,
    exp.Null: lambda _, __: Literal("null", None),
    exp.Boolean: lambda node, _: Literal("bool", bool(node.this)),
}
