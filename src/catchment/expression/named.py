"""Functions by their names: how many arguments they take, and the nodes that they become.

Several names may be one function, and some are only another way to write what there is: `nvl2(a, b,
c)` is a CASE. Both readers of expressions (`usual.py` and `convert.py`) build calls here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from catchment.errors import QueryError
from catchment.expression.building import concat, negate
from catchment.expression.constants import read_as
from catchment.expression.lookup import UNQUALIFIED, check_call
from catchment.expression.nodes import Call, Column, Literal, Node

PARTS = (
    "year",
    "quarter",
    "month",
    "day",
    "dayofyear",
    "weekofyear",
    "dayofweek",
    "weekday",
    "hour",
    "minute",
    "second",
)
"""Parts of times: `dayofweek` is 1 on Sundays, `weekday` is 0 on Mondays, as in Spark."""
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
"""What times can be cut down to; weeks begin on Mondays."""
_SHORT = {"yyyy": "year", "yy": "year", "mm": "month", "mon": "month", "dd": "day"}
DIFFERENCES = (*UNITS, "millisecond", "microsecond")
"""Units in which times are moved and compared."""
_FIELDS = ("year", "quarter", "month", "day", "dayofweek", "hour", "minute", "second")
_FIELD_NAMES = {
    **dict.fromkeys(("y", "years", "yr", "yrs"), "year"),
    "qtr": "quarter",
    **dict.fromkeys(("mon", "mons", "months"), "month"),
    **dict.fromkeys(("week", "w", "weeks", "weekofyear"), "weekofyear"),
    **dict.fromkeys(("d", "days"), "day"),
    "dow": "dayofweek",
    **dict.fromkeys(("doy", "dayofyear"), "dayofyear"),
    **dict.fromkeys(("h", "hours", "hr", "hrs"), "hour"),
    **dict.fromkeys(("m", "min", "mins", "minutes"), "minute"),
    **dict.fromkeys(("s", "sec", "seconds", "secs"), "second"),
    "weekday": "weekday",
}
FIELDS = (*_FIELDS, "week", "dow", "doy")
"""What EXTRACT takes of a time, by the names that errors list."""
_MANY = 99
_NULL = Literal("null", None)


_KIND_WORDS = {"string": "a text", "int": "a whole number", "bool": "true or false"}


class Given:
    """Arguments as they were given, and how to speak of them."""

    def __init__(self, name: str, args: Sequence[Node], text: str, what: str) -> None:
        self.name, self.args, self.text, self.what = name, tuple(args), text, what

    def wrong(self, hint: str, what: str = "") -> QueryError:
        told = what or f"gives {self.name} the wrong arguments"
        return QueryError(f"the {self.what} {told}", given=self.text, hint=hint)


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A function: what it is called in nodes, and how many arguments it takes."""

    op: str
    least: int
    most: int
    make: Callable[[Given], Node] | None = None
    """How its node is made, where it is not simply a call."""
    fixed: dict[int, str] = field(default_factory=dict)
    """The kinds of arguments that are constants, by their places."""
    usage: str = ""


def called(name: str, args: Sequence[Node], text: str, what: str) -> Node:
    """The node of a call of a function that is known; QueryError for arguments it does not take."""
    known = FUNCTIONS[name]
    given = Given(name, args, text, what)
    if not known.least <= len(args) <= known.most:
        raise given.wrong(f"{name} takes {_count(known)}")
    for place, kind in known.fixed.items():
        arg = args[place] if place < len(args) else None
        if arg is not None and not (isinstance(arg, Literal) and arg.kind == kind):
            of = _KIND_WORDS[kind]
            hint = known.usage or f"argument {place + 1} of {name} is {of}, written as it is"
            raise given.wrong(f"write {hint}" if known.usage else hint)
    if known.make is not None:
        return known.make(given)
    return Call(known.op, tuple(args))


def _count(known: ScalarFunction) -> str:
    if known.least == known.most:
        return f"{known.least} argument{'' if known.least == 1 else 's'}"
    if known.most == _MANY:
        return f"{known.least} or more arguments"
    return f"{known.least} {'or' if known.most == known.least + 1 else 'to'} {known.most} arguments"


def _concat(given: Given) -> Node:
    args = given.args
    if all(isinstance(arg, Literal) and arg.kind == "string" for arg in args):
        raise given.wrong("a quote inside a text is written as \\'", "uses concatenation")
    return concat(args)


def _round(given: Given) -> Node:
    if not all(isinstance(d, Literal) and d.kind == "int" for d in given.args[1:]):
        raise given.wrong(
            "write the number of digits itself, as in round(v, 2)",
            "rounds to digits that are not fixed",
        )
    return Call("round", given.args)


def _log(given: Given) -> Node:
    return Call("log" if len(given.args) == 2 else "ln", given.args)


def _unit(node: Node) -> str:
    """A unit of time, which may be written as a text or as a name."""
    text = node.name if isinstance(node, Column) else ""
    if isinstance(node, Literal) and node.kind == "string":
        text = str(node.value)
    word = str(text).lower()
    return _SHORT.get(word, word)


def _text(node: Node) -> bool:
    return isinstance(node, Literal) and node.kind == "string"


def _truncated(given: Given) -> Node:
    unit = _unit(given.args[0]) if _text(given.args[0]) else ""
    if unit not in UNITS:
        raise given.wrong(
            "supported are " + ", ".join(UNITS), "cuts a time down to what is not supported"
        )
    return Call("date_trunc", (Literal("string", unit.upper()), given.args[1]))


def _trunc(given: Given) -> Node:
    """trunc(date, unit): the day on which the unit began."""
    day, unit = given.args[0], _unit(given.args[1]) if _text(given.args[1]) else ""
    if unit not in ("year", "quarter", "month", "week"):
        raise given.wrong(
            "supported are year, quarter, month, week; date_trunc('HOUR', ts) is for times",
            "cuts a day down to what is not supported",
        )
    began = Call("date_trunc", (Literal("string", unit.upper()), day))
    return Call("cast", (began,), "DATE")


def _substring(given: Given) -> Node:
    places = given.args[1:]
    if not places or not all(isinstance(p, Literal) and p.kind == "int" for p in places):
        raise given.wrong(
            "write whole numbers, as in substring(name, 1, 3)",
            "takes a part of a text that is not fixed",
        )
    return Call("substring", given.args)


def _left(given: Given) -> Node:
    first = Literal("int", 1)
    return _substring(Given("left", (given.args[0], first, given.args[1]), given.text, given.what))


def _trimmed(given: Given) -> Node:
    """trim('x', s), as Spark has it: the characters come first, where they are not spaces."""
    if len(given.args) == 2 and not _text(given.args[0]):
        raise given.wrong(
            f"write {given.name}('x', s): what is trimmed is a text, written as it is"
        )
    return Call(given.name, given.args)


def _btrim(given: Given) -> Node:
    return _trimmed(Given("trim", given.args[::-1], given.text, given.what))


def _if(given: Given) -> Node:
    return Call("case", (*given.args, *[_NULL][: 3 - len(given.args)]))


def _to(kind: str, type: str, example: str) -> Callable[[Given], Node]:
    """A cast to days or to times; constants are read at once."""

    def made(given: Given) -> Node:
        value = given.args[0]
        if not isinstance(value, Literal) or not isinstance(value.value, str):
            return Call("cast", given.args, type)
        read = read_as(value.value, kind)
        if read is None:
            raise given.wrong(f"write {given.name}('{example}')", "has what cannot be read")
        return read

    return made


def _lookup(given: Given) -> Node:
    return check_call(Call(given.name, given.args), given.text, given.what)


def _nvl2(given: Given) -> Node:
    value, there, missing = given.args
    return Call("case", (negate(Call("is null", (value,))), there, missing))


def _nanvl(given: Given) -> Node:
    value, instead = given.args
    return Call("case", (Call("isnan", (value,)), instead, value))


def _decode(given: Given) -> Node:
    """decode(v, 1, 'a', 2, 'b', 'other'): a CASE in which nulls are equal."""
    if len(given.args) == 2:
        raise given.wrong("write decode(v, 1, 'one', 2, 'two', 'many'); bytes are not decoded here")
    value, *rest = given.args
    pairs = list(zip(rest[0::2], rest[1::2], strict=False))
    parts = [part for one, then in pairs for part in (Call("equal_null", (value, one)), then)]
    return Call("case", (*parts, rest[-1] if len(rest) % 2 else _NULL))


def _flipped(op: str) -> Callable[[Given], Node]:
    """A function whose two arguments stand the other way round."""
    return lambda given: Call(op, given.args[::-1])


def _added(given: Given) -> Node:
    """timestampadd(unit, n, ts)."""
    unit = _unit(given.args[0])
    if unit not in DIFFERENCES:
        raise given.wrong(f"write timestampadd(HOUR, 3, ts); units are {', '.join(DIFFERENCES)}")
    return Call("timestampadd", (Literal("string", unit.upper()), *given.args[1:]))


def _difference(given: Given) -> Node:
    """timestampdiff(unit, begin, end)."""
    unit = _unit(given.args[0])
    if unit not in DIFFERENCES:
        hint = f"write timestampdiff(SECOND, a, b); units are {', '.join(DIFFERENCES)}"
        raise given.wrong(hint)
    return Call("timestampdiff", (Literal("string", unit.upper()), *given.args[1:]))


def part_of_time(field: str, value: Node) -> Node | None:
    """What EXTRACT(field FROM value) is; None of a field that there is not."""
    field = field.lower()
    field = field if field in _FIELDS else _FIELD_NAMES.get(field, "")
    if field == "second":  # with its fraction, unlike the function
        micros = Call("pmod", (Call("unix_micros", (value,)), Literal("int", 60_000_000)))
        seconds = Call("/", (micros, Literal("int", 1_000_000)))
        return Call("cast", (seconds,), "DECIMAL(8, 6)")
    return Call(field, (value,)) if field else None


def _date_part(given: Given) -> Node:
    assert isinstance(given.args[0], Literal)
    made = part_of_time(str(given.args[0].value), given.args[1])
    if made is None:
        raise given.wrong("fields are " + ", ".join(FIELDS))
    return made


def _formatted(pattern: str) -> Callable[[Given], Node]:
    return lambda given: Call("date_format", (*given.args, Literal("string", pattern)))


def _add_months(given: Given) -> Node:
    day, months = given.args
    began = Call("cast", (day,), "DATE")
    return Call(
        "cast", (Call("plus_interval", (Literal("string", "MONTH"), months, began)),), "DATE"
    )


def _convert_timezone(given: Given) -> Node:
    *zones, value = given.args
    if not all(_text(zone) for zone in zones):
        raise given.wrong("write convert_timezone('UTC', 'Europe/Berlin', ts)")
    read = Call("to_utc_timestamp", (value, zones[0])) if len(zones) == 2 else value
    return Call("from_utc_timestamp", (read, zones[-1]))


def _days_or_units(days: str, units: str) -> Callable[[Given], Node]:
    """date_add(d, 3) is of days; dateadd(HOUR, 3, ts) is timestampadd, as in Spark."""

    def made(given: Given) -> Node:
        if len(given.args) == 2:
            return Call(days, given.args)
        build = _added if units == "timestampadd" else _difference
        return build(given)

    return made


def _cast_to(type: str) -> Callable[[Given], Node]:
    return lambda given: Call("cast", given.args, type)


def _struct(given: Given) -> Node:
    """struct(a, b): fields are called like the columns, others col2 and so on."""
    fields: list[Node] = []
    for place, arg in enumerate(given.args):
        plain = isinstance(arg, Column) and arg.name.isidentifier()
        name = arg.name if isinstance(arg, Column) and plain else f"col{place + 1}"
        fields += [Literal("string", name), arg]
    return Call("named_struct", tuple(fields))


def _part_of(given: Given) -> Node:
    value, step = given.args
    if not isinstance(step, Literal) or not isinstance(step.value, str | int):
        raise given.wrong("write a field by its name, as in value['a'], or an element by its place")
    return Call("part_of", (value, step))


def _null_to(op: str) -> Callable[[Given], Node]:
    def made(given: Given) -> Node:
        node = Call("is null", given.args)
        return node if op == "isnull" else negate(node)

    return made


def _constant(value: float) -> Callable[[Given], Node]:
    return lambda _: Literal("float", value)


_NUMBERS = "abs floor sqrt exp sin cos tan asin acos atan sinh cosh tanh degrees radians cbrt"
_NUMBERS += " log10 log2 log1p expm1 sign isnan rint factorial hex bin"
_OF_ONE = "lower upper length size reverse md5 array_max array_min unix_seconds"
_OF_ONE += " initcap ascii octet_length bit_length crc32 array_distinct array_sort"
_OF_ONE += " unix_millis unix_micros timestamp_seconds timestamp_millis timestamp_micros last_day"
_ZONE = {1: "string"}
FUNCTIONS: dict[str, ScalarFunction] = {
    **{name: ScalarFunction(name, 1, 1) for name in (*_NUMBERS.split(), *_OF_ONE.split(), *PARTS)},
    "ceil": ScalarFunction("ceil", 1, 1),
    "round": ScalarFunction("round", 1, 2, _round),
    "ln": ScalarFunction("ln", 1, 1),
    "log": ScalarFunction("log", 1, 2, _log),
    "power": ScalarFunction("power", 2, 2),
    "atan2": ScalarFunction("atan2", 2, 2),
    "hypot": ScalarFunction("hypot", 2, 2),
    "pmod": ScalarFunction("pmod", 2, 2),
    "mod": ScalarFunction("%", 2, 2),
    "try_divide": ScalarFunction("/", 2, 2),
    "try_add": ScalarFunction("+", 2, 2),
    "try_subtract": ScalarFunction("-", 2, 2),
    "try_multiply": ScalarFunction("*", 2, 2),
    "int_div": ScalarFunction("int_div", 2, 2),
    "bitwise_and": ScalarFunction("bitwise_and", 2, 2),
    "bitwise_or": ScalarFunction("bitwise_or", 2, 2),
    "bitwise_xor": ScalarFunction("bitwise_xor", 2, 2),
    "bitwise_not": ScalarFunction("bitwise_not", 1, 1),
    "negative": ScalarFunction("neg", 1, 1),
    "pi": ScalarFunction("pi", 0, 0, _constant(3.141592653589793)),
    "e": ScalarFunction("e", 0, 0, _constant(2.718281828459045)),
    "least": ScalarFunction("least", 2, _MANY),
    "greatest": ScalarFunction("greatest", 2, _MANY),
    "coalesce": ScalarFunction("coalesce", 1, _MANY),
    "nullif": ScalarFunction("nullif", 2, 2),
    "nvl2": ScalarFunction("case", 3, 3, _nvl2),
    "nanvl": ScalarFunction("case", 2, 2, _nanvl),
    "decode": ScalarFunction("case", 2, _MANY, _decode),
    "equal_null": ScalarFunction("equal_null", 2, 2),
    "isnull": ScalarFunction("is null", 1, 1, _null_to("isnull")),
    "isnotnull": ScalarFunction("is null", 1, 1, _null_to("isnotnull")),
    "if": ScalarFunction("case", 2, 3, _if),
    "concat": ScalarFunction("concat", 1, _MANY, _concat),
    "concat_ws": ScalarFunction("concat_ws", 1, _MANY, fixed={0: "string"}),
    "substring": ScalarFunction("substring", 1, 3, _substring),
    "left": ScalarFunction("substring", 2, 2, _left),
    "right": ScalarFunction("right", 2, 2, fixed={1: "int"}),
    "trim": ScalarFunction("trim", 1, 2, _trimmed),
    "btrim": ScalarFunction("trim", 1, 2, _btrim),
    "ltrim": ScalarFunction("ltrim", 1, 2, _trimmed),
    "rtrim": ScalarFunction("rtrim", 1, 2, _trimmed),
    "lpad": ScalarFunction("lpad", 2, 3, fixed={1: "int", 2: "string"}),
    "rpad": ScalarFunction("rpad", 2, 3, fixed={1: "int", 2: "string"}),
    "repeat": ScalarFunction("repeat", 2, 2, fixed={1: "int"}),
    "replace": ScalarFunction("replace", 2, 3, fixed={1: "string", 2: "string"}),
    "instr": ScalarFunction("instr", 2, 2, fixed={1: "string"}),
    "locate": ScalarFunction("instr", 2, 2, _flipped("instr"), fixed={0: "string"}),
    "contains": ScalarFunction("contains", 2, 2, fixed={1: "string"}),
    "startswith": ScalarFunction("startswith", 2, 2, fixed={1: "string"}),
    "endswith": ScalarFunction("endswith", 2, 2, fixed={1: "string"}),
    "like": ScalarFunction("like", 2, 2, fixed={1: "string"}),
    "ilike": ScalarFunction("ilike", 2, 2, fixed={1: "string"}),
    "rlike": ScalarFunction("rlike", 2, 2, fixed={1: "string"}),
    "regexp_extract": ScalarFunction("regexp_extract", 2, 3, fixed={1: "string", 2: "int"}),
    "regexp_replace": ScalarFunction("regexp_replace", 3, 3, fixed={1: "string", 2: "string"}),
    "split": ScalarFunction("split", 2, 2, fixed={1: "string"}),
    "split_part": ScalarFunction("split_part", 3, 3, fixed={1: "string", 2: "int"}),
    "sha2": ScalarFunction("sha2", 2, 2, fixed={1: "int"}),
    "hash": ScalarFunction("hash", 1, _MANY),
    "get_json_object": ScalarFunction("get_json_object", 2, 2, fixed={1: "string"}),
    "translate": ScalarFunction("translate", 3, 3, fixed={1: "string", 2: "string"}),
    "substring_index": ScalarFunction("substring_index", 3, 3, fixed={1: "string", 2: "int"}),
    "regexp_count": ScalarFunction("regexp_count", 2, 2, fixed={1: "string"}),
    "regexp_substr": ScalarFunction("regexp_substr", 2, 2, fixed={1: "string"}),
    "format_number": ScalarFunction("format_number", 2, 2, fixed={1: "int"}),
    "width_bucket": ScalarFunction("width_bucket", 4, 4),
    "array": ScalarFunction("array", 1, _MANY),
    "array_join": ScalarFunction("array_join", 2, 3, fixed={1: "string", 2: "string"}),
    "sort_array": ScalarFunction("sort_array", 1, 2, fixed={1: "bool"}),
    "struct": ScalarFunction("named_struct", 1, _MANY // 2, _struct),
    "array_contains": ScalarFunction("array_contains", 2, 2),
    "element_at": ScalarFunction("element_at", 2, 2),
    "part_of": ScalarFunction("part_of", 2, 2, _part_of),
    "named_struct": ScalarFunction(
        "named_struct", 2, _MANY, fixed=dict.fromkeys(range(0, 98, 2), "string")
    ),
    "tuple": ScalarFunction("tuple", 2, _MANY),
    "arguments": ScalarFunction("arguments", 2, _MANY),
    "lookup": ScalarFunction("lookup", 4, _MANY, _lookup),
    UNQUALIFIED: ScalarFunction(UNQUALIFIED, 4, _MANY, _lookup),
    "to_date": ScalarFunction("cast", 1, 1, _to("date", "DATE", "2026-01-31")),
    "to_timestamp": ScalarFunction("cast", 1, 1, _to("time", "TIMESTAMP", "2026-01-31 12:00:00")),
    "date_trunc": ScalarFunction("date_trunc", 2, 2, _truncated),
    "trunc": ScalarFunction("cast", 2, 2, _trunc),
    "date_part": ScalarFunction("date_part", 2, 2, _date_part, fixed={0: "string"}),
    "dayname": ScalarFunction("date_format", 1, 1, _formatted("EEE")),
    "monthname": ScalarFunction("date_format", 1, 1, _formatted("MMM")),
    "make_date": ScalarFunction("make_date", 3, 3),
    "add_months": ScalarFunction("cast", 2, 2, _add_months),
    "convert_timezone": ScalarFunction("from_utc_timestamp", 2, 3, _convert_timezone),
    "date_format": ScalarFunction("date_format", 2, 2, fixed={1: "string"}),
    "from_unixtime": ScalarFunction("from_unixtime", 1, 2, fixed={1: "string"}),
    "unix_timestamp": ScalarFunction("unix_timestamp", 1, 1),
    "unix_date": ScalarFunction("unix_date", 1, 1),
    "from_utc_timestamp": ScalarFunction(
        "from_utc_timestamp", 2, 2, fixed=_ZONE, usage="from_utc_timestamp(ts, 'Europe/Berlin')"
    ),
    "to_utc_timestamp": ScalarFunction(
        "to_utc_timestamp", 2, 2, fixed=_ZONE, usage="to_utc_timestamp(ts, 'Europe/Berlin')"
    ),
    "plus_interval": ScalarFunction("plus_interval", 3, 3, fixed={0: "string"}),
    "date_add": ScalarFunction("date_add", 2, 3, _days_or_units("date_add", "timestampadd")),
    "date_sub": ScalarFunction("date_sub", 2, 2),
    "datediff": ScalarFunction("datediff", 2, 3, _days_or_units("datediff", "timestampdiff")),
    "timestampadd": ScalarFunction("timestampadd", 3, 3, _added),
    "timestampdiff": ScalarFunction("timestampdiff", 3, 3, _difference),
}
"""Functions by the names that documents have."""
_SYNONYMS = {
    "array_size": "size",
    "cardinality": "size",
    "ceiling": "ceil",
    "char_length": "length",
    "character_length": "length",
    "date": "to_date",
    "date_diff": "datediff",
    "datepart": "date_part",
    "dateadd": "date_add",
    "day_of_week": "dayofweek",
    "dayofmonth": "day",
    "ifnull": "coalesce",
    "lcase": "lower",
    "len": "length",
    "nvl": "coalesce",
    "position": "locate",
    "pow": "power",
    "regexp": "rlike",
    "regexp_like": "rlike",
    "signum": "sign",
    "substr": "substring",
    "to_unix_timestamp": "unix_timestamp",
    "ucase": "upper",
}
_CASTS = {
    "bigint": "BIGINT",
    "boolean": "BOOLEAN",
    "decimal": "DECIMAL(10, 0)",
    "double": "DOUBLE",
    "float": "FLOAT",
    "int": "INT",
    "smallint": "SMALLINT",
    "string": "STRING",
    "timestamp": "TIMESTAMP",
    "tinyint": "TINYINT",
}
"""Types that are called like functions: `int(v)` is CAST(v AS INT)."""
_INNER = {UNQUALIFIED, "arguments", "tuple", "plus_interval", "int_div", "like", "ilike", "rlike"}
_INNER |= {
    "part_of",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_not",
    "equal_null",
    "negative",
}
"""What operators become, or other texts."""
NAMES = tuple(sorted({*FUNCTIONS} - _INNER - {*_SYNONYMS} | {"cast"}))
"""Functions as errors list them."""
FUNCTIONS |= {name: FUNCTIONS[of] for name, of in _SYNONYMS.items()}
FUNCTIONS |= {name: ScalarFunction("cast", 1, 1, _cast_to(of)) for name, of in _CASTS.items()}


def is_function(name: str) -> bool:
    """Whether expressions know a function of this name."""
    return name.lower() in FUNCTIONS or name.lower() == "cast"
