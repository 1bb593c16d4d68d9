"""GROUP BY: the keys, the sets of keys, and the one window.

A key is a column, an expression, or the number or alias of an item of SELECT.

The window is one of Spark's (`window`, `session_window`), one of two that are named like them
(`count_window`, `event_window`), or any that is registered, by its own name: `cut(at => v > 9)`. It
then takes the arguments that Python and job files give it, by place or by name. Conditions stand as
they are, all else as literals. The time column may come first, as in `window`: a column in the
first place is the time where what follows it is all that the window needs. So `cut(door)` cuts
where `door` holds, and so does `cut(ts, door)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import dataclass
from itertools import combinations, product
from math import prod
from types import NoneType
from typing import Any, get_args

from sqlglot import exp

from catchment import functions
from catchment.errors import SqlError, did_you_mean
from catchment.expression import columns, function_hint, is_function
from catchment.model.output import MOST_SETS
from catchment.model.window import BUILDERS, Window
from catchment.sqltext.calls import has_aggregate
from catchment.sqltext.inlining import called
from catchment.sqltext.joins import joined
from catchment.sqltext.syntax import Item, by_place, window_call
from catchment.sqltext.table_functions import TableFunction
from catchment.sqltext.writing import text_of
from catchment.windows.between import between
from catchment.windows.cut import cut
from catchment.windows.in_sql import SQL_CALLS

_EVENT_WINDOW = "event_window"
"""The one window in SQL whose arguments are conditions, and named."""


def _usages() -> dict[str, str]:
    """How every window is written in SQL, by the name of its call."""
    return {name: call.usage for name, call in SQL_CALLS.items()} | {
        _EVENT_WINDOW: "event_window(start => condition, end => condition) or "
        "event_window(at => condition), both also with reading => 'local'"
    }


@dataclass(frozen=True, slots=True)
class KeyOf:
    """A key: its expression, and what results call it."""

    node: exp.Expression
    name: str

    @property
    def column(self) -> str | None:
        """The column that the key is, if it is one."""
        node = self.node
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
            return None
        return None if node.args.get("table") or joined(node) is not None else node.name


@dataclass(frozen=True, slots=True)
class GroupBy:
    """GROUP BY: the keys, the window, and the sets of keys that there are rows for."""

    keys: tuple[KeyOf, ...]
    window: exp.Anonymous
    window_names: tuple[str, ...] = ()
    """Aliases of the window."""
    sets: tuple[tuple[str, ...], ...] = ()

    @property
    def by(self) -> list[str | dict[str, str]]:
        """The keys as a query takes them."""
        return [
            key.name if key.column == key.name else {key.name: text_of(key.node)}
            for key in self.keys
        ]


def same(one: object, other: object) -> bool:
    """Whether two expressions are written alike, whatever the case of functions and the quotes."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(same(a, b) for a, b in pairs)
    if not isinstance(one, exp.Expression) or not isinstance(other, exp.Expression):
        return one == other
    if isinstance(one, exp.Anonymous):
        alike = one.name.lower() == other.name.lower()
        return alike and same(one.expressions, other.expressions)
    if isinstance(one, exp.Identifier):
        return one.name == other.name
    mine, theirs = ({k: v for k, v in e.args.items() if v} for e in (one, other))
    return mine.keys() == theirs.keys() and all(same(v, theirs[k]) for k, v in mine.items())


def grouping_of(
    select: exp.Select,
    items: list[Item],
    in_from: TableFunction | None = None,
    of_results: bool = False,
) -> GroupBy:
    """What GROUP BY says; items of SELECT may stand there by number or alias.

    The window may have stood in FROM; GROUP BY then names its bounds. `of_results`: the statement
    reads the results of another one.
    """
    group = select.args.get("group")
    if group and group.args.get("totals"):
        raise SqlError("GROUP BY TOTALS is not supported in SQL", hint="name the keys")
    parts = _Parts(items, of_results)
    choices: list[list[list[exp.Expression]]] = []
    if group and group.args.get("all"):
        plain = [i.node for i in items if i.node.find(exp.Column) and not has_aggregate(i.node)]
        choices += [parts.sets_of(node) for node in plain]
    for part in group.expressions if group else ():
        choices.append(parts.sets_of(part))
    for kind in ("rollup", "cube", "grouping_sets"):
        for part in (group.args.get(kind) or []) if group else ():
            if part.expressions:
                choices.append(parts.sets_of(part))
            else:  # GROUP BY a, b WITH ROLLUP
                every = [one for options in choices for one in options[0]]
                choices = [_sets(type(part), [[one] for one in every])]
    if in_from is not None:
        _check_function(in_from, parts)
        parts.windows.append(window_call(in_from.window))
    return parts.grouping(choices)


def _check_function(in_from: TableFunction, parts: _Parts) -> None:
    """Refuses a window in FROM that GROUP BY does not go with."""
    if not parts.bounds:
        raise SqlError(
            "the window in FROM is not grouped by",
            given=in_from.window,
            hint="add window_start, window_end to GROUP BY",
        )
    keys = {key.name if isinstance(key, exp.Column) else text_of(key) for key in parts.keys}
    if in_from.partition is not None and set(in_from.partition) != keys:
        raise SqlError(
            "sessions are partitioned by other columns than GROUP BY has",
            given=f"PARTITION BY {', '.join(in_from.partition)}",
            hint=f"GROUP BY {', '.join([*in_from.partition, 'window_start', 'window_end'])}",
        )


class _Parts:
    """Reads the parts of GROUP BY."""

    def __init__(self, items: list[Item], of_results: bool) -> None:
        self.items = items
        self.of_results = of_results
        self.windows: list[exp.Anonymous] = []
        self.names: list[str] = []
        self.keys: list[exp.Expression] = []
        self.bounds = False
        """Whether bounds of the window are named."""

    def sets_of(self, part: exp.Expression) -> list[list[exp.Expression]]:
        """The sets of keys that a part stands for: of one key, just that one."""
        if isinstance(part, exp.GroupingSets):
            sets = [self._members(some) for some in part.expressions]
            return [[key for member in some for key in member] for some in sets]
        if isinstance(part, exp.Rollup | exp.Cube):
            return _sets(type(part), [self._together(some) for some in part.expressions])
        return [self._one(part)]

    def _members(self, part: exp.Expression) -> list[list[exp.Expression]]:
        """The keys of one of the GROUPING SETS."""
        if isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets):
            raise SqlError(
                "sets of keys within sets of keys are not supported in SQL",
                given=text_of(part),
                hint="list the sets: GROUPING SETS ((a, b), (a), ())",
            )
        return [self._together(part)]

    def _together(self, part: exp.Expression) -> list[exp.Expression]:
        inner: list[Any] = part.expressions if isinstance(part, exp.Tuple) else [part.unnest()]
        return [key for one in inner for key in self._one(one)]

    def _one(self, part: exp.Expression) -> list[exp.Expression]:
        """The key that an expression is; none, where it is the window or a bound."""
        bare: Any = part.unnest()
        part = self._meant(bare)
        if isinstance(part, exp.Anonymous) and _is_window(part.name.lower()):
            if not any(same(part, known) for known in self.windows):
                self.windows.append(part)
            return []
        if _is_bound(part, self.names):
            self.bounds = True
            return []
        found = next((known for known in self.keys if same(known, part)), None)
        if found is None:
            _check_key(part)
            self.keys.append(part)
        return [part if found is None else found]

    def _meant(self, part: exp.Expression) -> exp.Expression:
        """The item of SELECT that a number or an alias stands for; else the part itself."""
        if isinstance(part, exp.Literal) and not part.is_string:
            return by_place(part, self.items, "GROUP BY").node
        if isinstance(part, exp.Column) and not part.table:
            for item in self.items:
                found = item.node.find_all(exp.Column)
                own = {column.name for column in found if not column.table}
                if item.alias == part.name and part.name not in own:
                    return item.node
        return part

    def grouping(self, choices: list[list[list[exp.Expression]]]) -> GroupBy:
        window = self._window()
        names = [i.alias for i in self.items if i.alias and same(i.node, window)]
        keys = [KeyOf(node, self._name(node)) for node in self.keys]
        named = {id(key.node): key.name for key in keys}
        sets: list[tuple[str, ...]] = []
        if any(len(options) > 1 for options in choices):
            _refuse_many(prod(len(options) for options in choices))
            for chosen in product(*choices):
                members = [named[id(node)] for some in chosen for node in some]
                sets.append(tuple(dict.fromkeys(members)))
            sets = list({frozenset(some): some for some in sets}.values())
        return GroupBy(tuple(keys), window, tuple(names), tuple(sets))

    def _name(self, node: exp.Expression) -> str:
        """What results call a key: its alias in SELECT, unless it also stands there without one."""
        told = [item.alias for item in self.items if same(item.node, node)]
        plain = node.name if isinstance(node, exp.Column) else text_of(node)
        plain = called(node) or plain
        return plain if not told or "" in told else told[0]

    def _window(self) -> exp.Anonymous:
        if len(self.windows) == 1:
            return self.windows[0]
        if not self.windows and self.of_results:
            raise SqlError(
                "a SELECT from results has no window of its own",
                hint="a condition on results goes into HAVING beside the window, expressions of "
                "them into SELECT there; or add window(window_time, '1 hour') to GROUP BY",
            )
        if not self.windows:
            usage = _usages()["window"]
            raise SqlError("the SQL has no window", hint=f"add one to GROUP BY: {usage}")
        raise SqlError(
            "the SQL has several windows",
            given=", ".join(text_of(call) for call in self.windows),
            hint="make each window a query of its own",
        )


def _sets(
    kind: type[exp.Expression], members: list[list[exp.Expression]]
) -> list[list[exp.Expression]]:
    """The sets of ROLLUP, from all members to none, or of CUBE."""
    members = [member for member in members if member]
    if issubclass(kind, exp.Cube):
        _refuse_many(2 ** len(members))
        sizes = range(len(members), -1, -1)
        chosen = [list(some) for size in sizes for some in combinations(members, size)]
    else:
        chosen = [members[:size] for size in range(len(members), -1, -1)]
    return [[key for member in some for key in member] for some in chosen]


def _refuse_many(sets: int) -> None:
    """Before they are made: those of a few cubes would not fit into memory."""
    if sets > MOST_SETS:
        raise SqlError(
            "GROUP BY stands for too many sets of keys",
            given=f"{sets:,} sets" if sets < 10**12 else "more than 10^12 sets",
            hint=f"at most {MOST_SETS:,}; list those that you need: GROUPING SETS ((a), (b))",
        )


def _is_window(name: str) -> bool:
    return name in _usages() or name in BUILDERS


def _is_bound(part: exp.Expression, names: list[str]) -> bool:
    """Whether a part names the window or its bounds, which are keys of every result anyway."""
    if not isinstance(part, exp.Column):
        return False
    if part.table:
        return is_window_name(part.table, names) and part.name.lower() in ("start", "end")
    return part.name in ("window_start", "window_end")


def is_window_name(name: str, aliases: Collection[str]) -> bool:
    """Whether a name stands for the window: one of Spark's, in any case, or an alias."""
    return name.lower() in ("window", "session_window") or name in aliases


def _check_key(part: exp.Expression) -> None:
    if isinstance(part, exp.Anonymous) and part.name.endswith("window"):
        hint = did_you_mean(part.name.lower(), [*_usages(), *BUILDERS])
        raise SqlError("no such window in SQL", given=part.name, hint=hint)
    for call in part.find_all(exp.Anonymous):
        name = call.name.lower()
        if is_function(name):
            continue
        if name in functions.FUNCTIONS:
            raise SqlError(
                "GROUP BY has an aggregate in it",
                given=text_of(part),
                hint="group by columns and expressions of them; conditions go into HAVING",
            )
        if name in _IN_FROM:
            raise SqlError(
                f"{name} stands in FROM, as TABLE({name}(TABLE events, DESCRIPTOR(ts), ...))",
                given=text_of(call),
                hint=f"in GROUP BY write {_IN_FROM[name]}",
            )
        raise SqlError(
            "no such function or window in GROUP BY",
            given=text_of(part),
            hint=function_hint(name, [*_usages(), *BUILDERS])
            + f"; or, if it is a window, {BUILDERS.elsewhere(name)}",
        )


_IN_FROM = {
    "tumble": "window(ts, size)",
    "hop": "window(ts, size, slide)",
    "cumulate": "cumulate_window(ts, size, step)",
    "session": "session_window(ts, gap)",
}
"""Windows of FROM, and what is written in GROUP BY instead."""


def window_of(call: exp.Anonymous) -> Window:
    name = call.name.lower()
    if name == _EVENT_WINDOW:
        return _event_window(call)
    if name not in SQL_CALLS:
        return _registered(call)
    known = SQL_CALLS[name]
    args = call.expressions[1 if known.takes_time else 0 :]
    by_place = [arg for arg in args if not isinstance(arg, exp.Kwarg)]
    named = {arg.this.name.lower(): arg.expression for arg in args if isinstance(arg, exp.Kwarg)}
    try:
        inspect.signature(known.build).bind(*by_place, **named)
    except TypeError as error:
        raise _misused(call) from error
    if len(by_place) + len(named) < len(args):  # a name is there twice
        raise _misused(call)
    if known.takes_time:
        time_of(call)
    parameters = inspect.signature(known.build, eval_str=True).parameters
    told = {
        name: value_of(node, call)
        if isinstance(node, _LITERALS) or not _may_be_condition(parameters[name])
        else text_of(node)
        for name, node in named.items()
    }
    return known.build(*(value_of(arg, call) for arg in by_place), **told)


def _misused(call: exp.Anonymous) -> SqlError:
    name = call.name.lower()
    usage = _usages().get(name) or f"{name}({', '.join(_parameters(name))})"
    return SqlError(f"{name} has the wrong arguments", given=text_of(call), hint=f"write {usage}")


def time_of(call: exp.Anonymous) -> str:
    first = call.expressions[0] if call.expressions else None
    named = columns(text_of(first)) if isinstance(first, exp.Column | exp.Dot) else ()
    if not isinstance(first, exp.Column | exp.Dot) or len(named) != 1:
        raise SqlError(
            f"{call.name.lower()} needs the time column first",
            given=text_of(call),
            hint=f"write {_usages()[call.name.lower()]}",
        )
    return named[0]


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
        return cut(**given)
    if given.keys() - {"reading"} == {"start", "end"}:
        return between(**given)
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
    own = isinstance(call, exp.Anonymous) and call.name.lower() == "session_window"
    raise SqlError(
        "parameters of functions and windows must be literals",
        given=text_of(call),
        hint="write a number, or a duration as in '10 seconds'"
        + "; a gap that each event has for itself is a number of seconds: "
        "session_window(ts, gap_from => timeout_s)" * own,
    )
