"""sqlglot's syntax tree to our few nodes; whatever is not supported is refused here.

Writings of one meaning become one node (BETWEEN, IF, and what `building.py` says), so that equal
conditions are seen to be equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

from sqlglot import exp

from catchment.errors import QueryError
from catchment.expression.building import between, binary, concat, is_in, junction, negate
from catchment.expression.decimals import MOST
from catchment.expression.lookup import UNQUALIFIED, check_call
from catchment.expression.nodes import Call, Column, Literal, Node, path_text
from catchment.expression.refuse import PARTS, UNITS, refusal
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
_FUNCTIONS: dict[type[exp.Expression], tuple[str, int, int]] = {
    exp.Abs: ("abs", 1, 1),
    exp.Round: ("round", 1, 2),
    exp.Floor: ("floor", 1, 1),
    exp.Ceil: ("ceil", 1, 1),
    exp.Sqrt: ("sqrt", 1, 1),
    exp.Ln: ("ln", 1, 1),
    exp.Log: ("log", 2, 2),
    exp.Exp: ("exp", 1, 1),
    exp.Pow: ("power", 2, 2),
    exp.Least: ("least", 2, 99),
    exp.Greatest: ("greatest", 2, 99),
    exp.Coalesce: ("coalesce", 1, 99),
    exp.Nullif: ("nullif", 2, 2),
    exp.Lower: ("lower", 1, 1),
    exp.Upper: ("upper", 1, 1),
    exp.Length: ("length", 1, 1),
    exp.ArraySize: ("size", 1, 1),
    exp.ArrayContains: ("array_contains", 2, 2),
}
_PARTS: dict[type[exp.Expression], str] = {
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.DayOfYear: "dayofyear",
    exp.DayOfWeek: "dayofweek",
    exp.WeekOfYear: "weekofyear",
    exp.Hour: "hour",
    exp.Minute: "minute",
    exp.Second: "second",
}
_NAMED = {
    "cardinality": (1, 1),
    "weekday": (1, 1),
    "tuple": (2, 99),
    "arguments": (2, 99),
    "lookup": (4, 99),
    UNQUALIFIED: (4, 99),
}
"""Functions that the parser knows by name alone, and how many arguments they take."""
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
    if kind in _BINARY:
        return binary(_BINARY[kind], convert(node.this, what), convert(node.expression, what))
    if kind in _FUNCTIONS:
        return _function(node, what)
    if kind in _SPECIAL:
        return _SPECIAL[kind](node, what)
    raise refusal(node, what)


def _function(node: exp.Expression, what: str) -> Node:
    name, least, most = _FUNCTIONS[type(node)]
    known = ("this", "expression", "expressions", "decimals")
    given = [key for key, value in node.args.items() if isinstance(value, exp.Expression)]
    args = [a for key in known for a in _listed(node.args.get(key))]
    if any(key not in known for key in given) or not least <= len(args) <= most:
        count = str(least) if least == most else f"{least} or more" if most > 9 else "1 or 2"
        raise QueryError(
            f"the {what} gives {name} the wrong arguments",
            given=sql_of(node),
            hint=f"{name} takes {count} argument{'' if count == '1' else 's'}",
        )
    made = tuple(convert(a, what) for a in args)
    if name == "round" and not all(isinstance(d, Literal) and d.kind == "int" for d in made[1:]):
        raise QueryError(
            f"the {what} rounds to digits that are not fixed",
            given=sql_of(node),
            hint="write the number of digits itself, as in round(v, 2)",
        )
    return Call(name, made)


def _listed(value: object) -> list[exp.Expression]:
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, exp.Expression)]


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
    if not isinstance(inner, Column) or not isinstance(node.expression, exp.Identifier):
        raise _no_path(node, what)
    return Column(path_text(inner.name, [node.expression.name]))


def _element(node: exp.Expression, what: str) -> Node:
    """A field of a struct, a value of a map or an element of a list: `tags['a']`, `items[0]`."""
    inner = convert(node.this, what)
    keys = [convert(key, what) for key in node.expressions]
    key = keys[0].value if len(keys) == 1 and isinstance(keys[0], Literal) else None
    if node.args.get("offset"):
        raise _no_path(node, what)  # element_at, which counts from 1
    named = isinstance(key, str) or (type(key) is int and key >= 0)
    if not isinstance(inner, Column) or not named:
        raise _no_path(node, what)
    assert isinstance(key, str | int)
    return Column(path_text(inner.name, [key]))


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
    if not isinstance(node.expression, exp.Null):
        raise refusal(node, what)
    return Call("is null", (convert(node.this, what),))


def _like(node: exp.Expression, what: str) -> Node:
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


def _part(node: exp.Expression, what: str) -> Node:
    inner = node.this
    if isinstance(inner, exp.TsOrDsToDate):  # as the parser has it; a part of a time is the same
        inner = inner.this
    return Call(_PARTS[type(node)], (convert(inner, what),))


def _extract(node: exp.Expression, what: str) -> Node:
    unit = node.this.name.lower()
    if unit not in PARTS:
        raise QueryError(
            f"the {what} extracts what is not supported",
            given=sql_of(node),
            hint="supported are " + ", ".join(PARTS),
        )
    return Call(unit, (convert(node.expression, what),))


def _truncated(node: exp.Expression, what: str) -> Node:
    unit = node.args["unit"].name.lower() if node.args.get("unit") else ""
    if unit not in UNITS:
        raise QueryError(
            f"the {what} cuts a time down to what is not supported",
            given=sql_of(node),
            hint="supported are " + ", ".join(UNITS),
        )
    return Call("date_trunc", (Literal("string", unit.upper()), convert(node.this, what)))


def _concat(node: exp.Expression, what: str) -> Node:
    given = [node.this, node.expression] if isinstance(node, exp.DPipe) else node.expressions
    if all(isinstance(arg, exp.Literal) and arg.is_string for arg in given):
        raise refusal(node, what)  # 'it''s' reads as two texts
    return concat([convert(arg, what) for arg in given])


def _substring(node: exp.Expression, what: str) -> Node:
    if isinstance(node, exp.Left):
        given: list[exp.Expression] = [exp.Literal.number(1), node.expression]
    else:
        given = [arg for key in ("start", "length") if (arg := node.args.get(key))]
    places = [convert(arg, what) for arg in given]
    if not places or not all(isinstance(p, Literal) and p.kind == "int" for p in places):
        raise QueryError(
            f"the {what} takes a part of a text that is not fixed",
            given=sql_of(node),
            hint="write whole numbers, as in substring(name, 1, 3)",
        )
    return Call("substring", (convert(node.this, what), *places))


def _trim(node: exp.Expression, what: str) -> Node:
    if [key for key, value in node.args.items() if value] != ["this"]:
        raise refusal(node, what)
    return Call("trim", (convert(node.this, what),))


def _named(node: exp.Expression, what: str) -> Node:
    name = node.name.lower()
    if name not in _NAMED:
        raise refusal(node, what)
    least, most = _NAMED[name]
    if not least <= len(node.expressions) <= most:
        raise QueryError(
            f"the {what} gives {name} the wrong arguments",
            given=sql_of(node),
            hint=f"{name} takes {least} argument{'' if least == 1 else 's or more'}",
        )
    named = "size" if name == "cardinality" else name
    made = Call(named, tuple(convert(arg, what) for arg in node.expressions))
    return check_call(made, sql_of(node), what) if name in ("lookup", UNQUALIFIED) else made


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
    exp.TsOrDsToDate: lambda node, what: Call("cast", (convert(node.this, what),), "DATE"),
    exp.Extract: _extract,
    exp.TimestampTrunc: _truncated,
    exp.Concat: _concat,
    exp.DPipe: _concat,
    exp.Substring: _substring,
    exp.Left: _substring,
    exp.Trim: _trim,
    exp.Anonymous: _named,
    exp.Null: lambda _, __: Literal("null", None),
    exp.Boolean: lambda node, _: Literal("bool", bool(node.this)),
}
_SPECIAL |= dict.fromkeys(_PARTS, _part)
