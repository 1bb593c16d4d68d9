"""GROUP BY: the key columns and the one window.

The window is one of Spark's (`window`, `session_window`), one of two that are named like them
(`count_window`, `event_window`), or any that is registered, by its own name: `cut(at => v > 9)`. It
then takes the arguments that Python and job files give it, by place or by name. Conditions stand as
they are, all else as literals. The time column may come first, as in `window`: a column in the
first place is the time where what follows it is all that the window needs. So `cut(door)` cuts
where `door` holds, and so does `cut(ts, door)`.
"""

from __future__ import annotations

import inspect
from types import NoneType
from typing import Any, get_args

from sqlglot import exp

from catchment import windows
from catchment.errors import SqlError, did_you_mean
from catchment.model.window import BUILDERS, Window
from catchment.sqltext.syntax import text_of
from catchment.windows.in_sql import SQL_CALLS

_EVENT_WINDOW = "event_window"
"""The one window in SQL whose arguments are conditions, and named."""


def _usages() -> dict[str, str]:
    """How every window is written in SQL, by the name of its call."""
    return {name: call.usage for name, call in SQL_CALLS.items()} | {
        _EVENT_WINDOW: "event_window(start => condition, end => condition) or "
        "event_window(at => condition), both also with reading => 'local'"
    }


def grouping_of(select: exp.Select) -> tuple[list[str], exp.Anonymous]:
    """The key columns and the window's call."""
    group = select.args.get("group")
    for key in ("all", "cube", "rollup", "grouping_sets", "totals"):
        if group and group.args.get(key):
            what = key.upper().replace("_", " ")
            raise SqlError(f"GROUP BY {what} is not supported in SQL", hint="name the keys")
    keys: list[str] = []
    found: list[exp.Anonymous] = []
    for part in group.expressions if group else ():
        if isinstance(part, exp.Anonymous) and _is_window(part.name.lower()):
            found.append(part)
        else:
            keys.append(_key(part))
    if len(found) == 1:
        return keys, found[0]
    if not found:
        raise SqlError("the SQL has no window", hint=f"add one to GROUP BY: {_usages()['window']}")
    given = ", ".join(text_of(call) for call in found)
    raise SqlError(
        "the SQL has several windows", given=given, hint="make each window a query of its own"
    )


def _is_window(name: str) -> bool:
    return name in _usages() or name in BUILDERS


def _key(part: exp.Expression) -> str:
    if isinstance(part, exp.Column) and not part.table and isinstance(part.this, exp.Identifier):
        return part.name
    if isinstance(part, exp.Anonymous) and part.name.endswith("window"):
        hint = did_you_mean(part.name.lower(), [*_usages(), *BUILDERS])
        raise SqlError("no such window in SQL", given=part.name, hint=hint)
    hint = "add the computed key to the events before"
    if isinstance(part, exp.Anonymous):
        hint += f"; if it is a window, {BUILDERS.elsewhere(part.name.lower())}"
    raise SqlError("a key in GROUP BY must be a column", given=text_of(part), hint=hint)


def window_of(call: exp.Anonymous) -> Window:
    name = call.name.lower()
    if name == _EVENT_WINDOW:
        return _event_window(call)
    if name not in SQL_CALLS:
        return _registered(call)
    known = SQL_CALLS[name]
    args = call.expressions[1 if known.takes_time else 0 :]
    try:
        inspect.signature(known.build).bind(*args)
    except TypeError as error:
        raise _misused(call) from error
    if known.takes_time:
        time_of(call)
    return known.build(*(value_of(arg, call) for arg in args))


def _misused(call: exp.Anonymous) -> SqlError:
    name = call.name.lower()
    usage = _usages().get(name) or f"{name}({', '.join(_parameters(name))})"
    return SqlError(f"{name} has the wrong arguments", given=text_of(call), hint=f"write {usage}")


def time_of(call: exp.Anonymous) -> str:
    column = call.expressions[0] if call.expressions else None
    if not isinstance(column, exp.Column) or column.table:
        raise SqlError(
            f"{call.name.lower()} needs the time column first",
            given=text_of(call),
            hint=f"write {_usages()[call.name.lower()]}",
        )
    return column.name


def takes_time(call: exp.Anonymous) -> bool:
    """Whether a window names the time column; windows of counts and of conditions do not."""
    name = call.name.lower()
    if name in _usages():
        return name in SQL_CALLS and SQL_CALLS[name].takes_time
    first, rest = call.expressions[:1], call.expressions[1:]
    bare = bool(first) and isinstance(first[0], exp.Column) and not first[0].table
    return bare and not _missing(name, rest)


def _missing(name: str, args: list[exp.Expression]) -> list[str]:
    """The parameters of a registered window that must be given and are not among arguments."""
    by_place = sum(not isinstance(arg, exp.Kwarg) for arg in args)
    named = {arg.this.name for arg in args if isinstance(arg, exp.Kwarg)}
    return [
        parameter.name
        for place, parameter in enumerate(_parameters(name).values())
        if place >= by_place and parameter.default is parameter.empty
        if parameter.name not in named
    ]


def _registered(call: exp.Anonymous) -> Window:
    """A window that is called by its own name."""
    name = call.name.lower()
    parameters = _parameters(name)
    known = list(parameters)
    args = call.expressions[1:] if takes_time(call) else call.expressions
    if _missing(name, args):
        raise _misused(call)
    given: dict[str, Any] = {}
    for place, arg in enumerate(args):
        named = isinstance(arg, exp.Kwarg)
        if not named and place >= len(known):
            raise _misused(call)
        key, value = (arg.this.name, arg.expression) if named else (known[place], arg)
        if key not in known or key in given:
            raise _misused(call)
        if isinstance(value, exp.Column) and not _may_be_condition(parameters[key]):
            raise _misused(call)
        given[key] = value_of(value, call) if isinstance(value, _LITERALS) else text_of(value)
    return BUILDERS[name](**given)


def _parameters(name: str) -> dict[str, inspect.Parameter]:
    build = BUILDERS[name]
    try:
        return dict(inspect.signature(build, eval_str=True).parameters)
    except NameError:  # an annotation of names that are imported for type checkers only
        return dict(inspect.signature(build).parameters)


def _may_be_condition(parameter: inspect.Parameter) -> bool:
    """Whether a parameter takes texts only, as conditions are, or does not say what it takes."""
    told = parameter.annotation
    unknown = told is parameter.empty or isinstance(told, str)
    return unknown or set(get_args(told) or (told,)) - {NoneType} == {str}


_LITERALS = (exp.Literal, exp.Neg, exp.Interval, exp.Boolean)


def _event_window(call: exp.Anonymous) -> Window:
    given: dict[str, str] = {}
    for arg in call.expressions:
        if not isinstance(arg, exp.Kwarg) or arg.this.name.lower() in given:
            raise _misused(call)
        name, value = arg.this.name.lower(), arg.expression
        given[name] = value_of(value, call) if name == "reading" else text_of(value)
    if given.keys() - {"reading"} == {"at"}:
        return windows.cut(**given)
    if given.keys() - {"reading"} == {"start", "end"}:
        return windows.between(**given)
    raise _misused(call)


def value_of(node: exp.Expression, call: exp.Expression) -> Any:
    """The Python value of a literal or an interval."""
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return -value_of(node.this, call)
    if isinstance(node, exp.Literal):
        if node.is_string:
            return node.name
        return int(node.name) if node.name.isdigit() else float(node.name)
    if isinstance(node, exp.Interval):
        unit = node.args.get("unit")
        return f"{node.this.name} {unit.name.lower() if unit else ''}".strip()
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    raise SqlError(
        "parameters of functions and windows must be literals",
        given=text_of(call),
        hint="write a number, or a duration as in '10 seconds'",
    )
