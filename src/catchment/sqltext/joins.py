"""JOIN with a small table that every node holds.

    FROM events AS e LEFT JOIN devices AS d ON e.device = d.id      d.room

becomes the expression `lookup('devices.parquet', 'room', 'id', device)` in the place of `d.room`.
An inner join is a condition too, that there is such a row. The table is named where the job or the
caller says what it is, or by its file, as Spark does: JOIN parquet.`devices.parquet` AS d.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from catchment.errors import SqlError, did_you_mean
from catchment.expression import sql_of

_USAGE = "write JOIN devices USING (id), or LEFT JOIN devices AS d ON e.device = d.id"
_FILES = ("parquet", "csv", "arrow", "postgres")
_MARK = "lookup"


def put_lookups(select: exp.Select, known: Mapping[str, str]) -> None:
    """Marks the columns of joined tables, which are gone from the statement then."""
    for join in select.args.pop("joins", None) or ():
        _put(select, join, known)


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


def _put(select: exp.Select, join: exp.Join, known: Mapping[str, str]) -> None:
    table = join.this
    left = _is_left(join)
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise SqlError("JOIN takes a small table by its name", given=sql_of(join), hint=_USAGE)
    name = table.alias or table.name
    keys = _keys(join, name)

    def call(column: str) -> exp.Anonymous:
        told: list[exp.Expression] = [
            exp.Literal.string(_origin(table, known)),
            exp.Literal.string(column),
        ]
        for key, value in keys:
            told += [exp.Literal.string(key), value.copy()]
        return exp.Anonymous(this="lookup", expressions=told)

    for column in select.find_all(exp.Column):
        if column.table == name and joined(column) is None:
            column.meta[_MARK] = call(column.name)
    if not left:
        there = exp.Not(this=exp.Is(this=call(keys[0][0]), expression=exp.Null()))
        select.where(there, copy=False)


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
