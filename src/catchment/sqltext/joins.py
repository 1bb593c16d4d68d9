"""JOIN with a small table that every node holds.

    FROM events AS e LEFT JOIN devices AS d ON e.device = d.id      d.room

becomes the expression `lookup('devices.parquet', 'room', 'id', device)` in the place of `d.room`.
An inner join is a condition too, that there is such a row. The table is named where the job or the
caller says what it is, or by its file, as Spark does: JOIN parquet.`devices.parquet` AS d.

A column may be written alone where only one of the tables has it: `room`. It becomes
`lookup_unqualified(...)`, which is refused where events have a column of that name too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from catchment.errors import SqlError, did_you_mean
from catchment.expression import sql_of
from catchment.expression.lookup import UNQUALIFIED, lookup_columns
from catchment.sqltext.calls import is_aggregate, is_window_call

_USAGE = "write JOIN devices USING (id), or LEFT JOIN devices AS d ON e.device = d.id"
_FILES = ("parquet", "csv", "arrow", "postgres")
_MARK = "lookup"
QUALIFIED = "qualified"
"""What marks a column that was written with the name of the events."""


def put_lookups(select: exp.Select, known: Mapping[str, str]) -> None:
    """Marks the columns of joined tables, which are gone from the statement then."""
    joins = select.args.pop("joins", None) or ()
    if not joins:
        return
    tables = _JoinedTables(select, known)
    for join in joins:
        tables.put(join)
    tables.resolve(select)


def joined(node: exp.Column) -> exp.Expression | None:
    """The call that gives a column of a joined table; None for a column of the events."""
    return node.meta.get(_MARK)


def with_lookups(node: Any) -> Any:
    """The tree with joined columns as they are computed."""
    if not any(joined(column) for column in node.find_all(exp.Column)):
        return node

    def put(inner: exp.Expression) -> exp.Expression:
        call = joined(inner) if isinstance(inner, exp.Column) else None
        return inner if call is None else with_lookups(call.copy())

    return node.copy().transform(put)


@dataclass(frozen=True)
class _JoinedTable:
    """A table that was joined, and the calls that give its columns."""

    name: str
    origin: str
    keys: list[tuple[str, exp.Expression]]

    def call(self, column: str, function: str = "lookup") -> exp.Anonymous:
        told: list[exp.Expression] = [exp.Literal.string(self.origin), exp.Literal.string(column)]
        for key, value in self.keys:
            told += [exp.Literal.string(key), value.copy()]
        return exp.Anonymous(this=function, expressions=told)


class _JoinedTables:
    """The tables of a statement, in the order of its joins."""

    def __init__(self, select: exp.Select, known: Mapping[str, str]) -> None:
        self.select, self.known = select, known
        self.tables: list[_JoinedTable] = []
        self.merged: dict[str, exp.Expression] = {}
        """What columns of USING stand for, which are no columns of the table any more."""

    def put(self, join: exp.Join) -> None:
        table = join.this
        left = _is_left(join)
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise SqlError("JOIN takes a small table by its name", given=sql_of(join), hint=_USAGE)
        name = table.alias or table.name
        pairs = _keys(join, name)
        for _, value in pairs:
            self.resolve(value)
            for column in value.find_all(exp.Column):
                column.meta[QUALIFIED] = True  # it means the same behind this join
        origin = _origin(table, self.known)
        made = _JoinedTable(name, origin, pairs)
        if join.args.get("using"):
            self.merged |= {key: value for key, value in pairs if key not in self.merged}
        self.tables.append(made)
        if not left:
            there = exp.Not(this=exp.Is(this=made.call(pairs[0][0]), expression=exp.Null()))
            self.select.where(there, copy=False)

    def resolve(self, tree: exp.Expression) -> None:
        """Marks the columns of the tables, also those that are written without their table."""
        named = {table.name: table for table in reversed(self.tables)}
        aliases = {item.alias for item in self.select.expressions if isinstance(item, exp.Alias)}
        for column in tree.find_all(exp.Column):
            table = named.get(column.table)
            if table is not None and joined(column) is None and not column.args.get("db"):
                column.meta[_MARK] = table.call(column.name)
                continue
            alone = (
                not column.table
                and joined(column) is None
                and isinstance(column.this, exp.Identifier)
            )
            if not alone or column.meta.get(QUALIFIED) or _names_no_value(column, aliases):
                continue
            made = self._meant(column.name)
            if made is not None:
                column.meta[_MARK] = made

    def _meant(self, name: str) -> exp.Expression | None:
        if name in self.merged:
            value = self.merged[name]
            return joined(value) if isinstance(value, exp.Column) else value
        of = [table for table in self.tables if name in (lookup_columns(table.origin) or ())]
        if len(of) > 1:
            hint = f"write {' or '.join(f'{table.name}.{name}' for table in of)}"
            raise SqlError("a column is ambiguous: several tables have it", given=name, hint=hint)
        return of[0].call(name, UNQUALIFIED) if of else None


def _names_no_value(column: exp.Column, aliases: set[str]) -> bool:
    """Whether a name is the time of a window, a parameter, or an item of SELECT."""
    parent = column.parent
    if isinstance(parent, exp.Kwarg) and column.arg_key == "this":
        return True
    if isinstance(parent, exp.Anonymous) and is_window_call(parent) and column.index == 0:
        return True
    if column.name not in aliases:
        return False
    above: Any = column
    while above is not None and not isinstance(above, exp.Having | exp.Order):
        if is_aggregate(above):
            return False
        above = above.parent
    return above is not None


def _is_left(join: exp.Join) -> bool:
    side, kind, method = (join.args.get(key) or "" for key in ("side", "kind", "method"))
    plain = (side, kind) in (("", ""), ("", "INNER"), ("LEFT", ""), ("LEFT", "OUTER"))
    if not plain or method:
        raise SqlError(
            "only inner and left joins are supported in SQL",
            given=" ".join(part for part in (method, side, kind, "JOIN") if part),
            hint=_USAGE,
        )
    return bool(side == "LEFT")


def _origin(table: exp.Table, known: Mapping[str, str]) -> str:
    if table.db.lower() in _FILES:
        return str(table.name)
    found = known.get(table.name)
    if found is None or table.db:
        near = did_you_mean(table.name, known, "") if known else ""
        raise SqlError(
            "JOIN takes a small table that every node holds",
            given=sql_of(table),
            hint=(f"{near}; " if near else "")
            + f"name its file, as in JOIN parquet.`{table.name}.parquet` AS {table.name} USING "
            "(id), or list it under lookups; two streams are not joined: read both as one, and "
            "group by what they share",
        )
    return found


def _keys(join: exp.Join, name: str) -> list[tuple[str, exp.Expression]]:
    """The key columns of a table, and what each is equal to."""
    using = join.args.get("using")
    if using:
        return [(one.name, exp.Column(this=exp.to_identifier(one.name))) for one in using]
    on = join.args.get("on")
    if on is None:
        raise SqlError("JOIN has neither USING nor ON", given=sql_of(join), hint=_USAGE)
    parts = list(on.flatten()) if isinstance(on, exp.And) else [on]
    return [_key(part.unnest(), name) for part in parts]


def _key(part: Any, name: str) -> tuple[str, exp.Expression]:
    sides = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
    for own, other in (sides, sides[::-1]) if sides else ():
        mine = isinstance(own, exp.Column) and own.table == name and joined(own) is None
        others = (column for column in other.find_all(exp.Column) if joined(column) is None)
        if mine and not any(column.table == name for column in others):
            return own.name, other
    raise SqlError(
        "ON compares columns of the table with something of the events",
        given=sql_of(part),
        hint="write e.device = d.id, several with AND; other conditions go into WHERE",
    )
