"""GROUP BY: the key columns and the one window."""

from __future__ import annotations

from inspect import signature
from typing import Any

from sqlglot import exp

from catchment import windows
from catchment.errors import SqlError, did_you_mean
from catchment.model.window import Window
from catchment.sqltext.syntax import text_of

_EVENT_WINDOW = "event_window"
"""The one window in SQL whose arguments are conditions, and named."""


def _usages() -> dict[str, str]:
    """How every window is written in SQL, by the name of its call."""
    return {name: call.usage for name, call in windows.SQL_CALLS.items()} | {
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
    usages = _usages()
    found: list[exp.Anonymous] = []
    for part in group.expressions if group else ():
        if isinstance(part, exp.Anonymous) and part.name.lower() in usages:
            found.append(part)
        else:
            keys.append(_key(part))
    if len(found) == 1:
        return keys, found[0]
    if not found:
        raise SqlError("the SQL has no window", hint=f"add one to GROUP BY: {usages['window']}")
    given = ", ".join(text_of(call) for call in found)
    raise SqlError(
        "the SQL has several windows", given=given, hint="make each window a query of its own"
    )


def _key(part: exp.Expression) -> str:
    if isinstance(part, exp.Column) and not part.table and isinstance(part.this, exp.Identifier):
        return part.name
    if isinstance(part, exp.Anonymous) and part.name.endswith("window"):
        raise SqlError(
            "no such window in SQL",
            given=part.name,
            hint=did_you_mean(part.name.lower(), _usages()),
        )
    raise SqlError(
        "a key in GROUP BY must be a column",
        given=text_of(part),
        hint="add the computed key to the events before",
    )


def window_of(call: exp.Anonymous) -> Window:
    name = call.name.lower()
    if name == _EVENT_WINDOW:
        return _event_window(call)
    known = windows.SQL_CALLS[name]
    args = call.expressions[1 if known.takes_time else 0 :]
    try:
        signature(known.build).bind(*args)
    except TypeError as error:
        raise _misused(call) from error
    if known.takes_time:
        time_of(call)
    return known.build(*(value_of(arg, call) for arg in args))


def _misused(call: exp.Anonymous) -> SqlError:
    name = call.name.lower()
    return SqlError(
        f"{name} has the wrong arguments", given=text_of(call), hint=f"write {_usages()[name]}"
    )


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
    known = windows.SQL_CALLS.get(call.name.lower())
    return known is not None and known.takes_time


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
