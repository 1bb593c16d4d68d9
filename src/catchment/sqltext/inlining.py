"""A SELECT in FROM that only chooses and computes columns of events becomes part of the outer one.

    SELECT k, sum(w) FROM (SELECT upper(site) AS k, v * 2 AS w FROM events WHERE v > 0)
    GROUP BY k, window(ts, '1 minute')

is `SELECT upper(site) AS k, sum(v * 2) FROM events WHERE v > 0 GROUP BY ...`. So queries that are
written with and without such a SELECT share their work, and nothing behind the text knows of it.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from catchment.errors import SqlError, did_you_mean
from catchment.model.query import RESERVED
from catchment.sqltext.calls import has_aggregate, is_aggregate, is_window_call
from catchment.sqltext.writing import text_of

_CALLED = "called"
_BARE = (exp.Column, exp.Literal, exp.Anonymous, exp.Cast, exp.Case, exp.Paren, exp.Dot)
_OWN = ("window", "session_window", *RESERVED)
"""What an outer SELECT may name without anybody selecting it: its window and the bounds."""
_PARTS = ("catalog", "db", "table", "this")


def called(node: exp.Expression) -> str | None:
    """The name that an expression had in the SELECT from which it was taken."""
    found: str | None = node.meta.get(_CALLED)
    return found


def is_projection(select: exp.Select) -> bool:
    """Whether a SELECT gives one row for each event that it keeps."""
    grouped = select.args.get("group") or select.args.get("having")
    return not grouped and not any(has_aggregate(item) for item in select.expressions)


def inline(outer: exp.Select, inner: exp.Select, alias: str) -> None:
    """Puts what a SELECT of events computes, and its conditions, into the one that reads it."""
    for key, what in (("order", "ORDER BY"), ("limit", "LIMIT")):
        if inner.args.get(key):
            raise SqlError(
                f"{what} in a SELECT of events is not supported in SQL",
                given=text_of(inner.args[key]).strip(),
                hint="events have no last one; ORDER BY ... LIMIT n goes behind GROUP BY",
            )
    _Inlining(outer, inner, alias).run()


class _Inlining:
    """One SELECT on its way into another."""

    def __init__(self, outer: exp.Select, inner: exp.Select, alias: str) -> None:
        self.outer, self.inner, self.alias = outer, inner, alias
        self.known: dict[str, exp.Expression] = {}
        self.star = False
        for item in inner.expressions:
            self._select(item)
        self.aliases = {item.alias for item in outer.expressions if isinstance(item, exp.Alias)}
        self.joined = {join.this.alias_or_name for join in outer.args.get("joins") or ()}

    def _select(self, item: exp.Expression) -> None:
        if isinstance(item, exp.Star) or (
            isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
        ):
            star = item if isinstance(item, exp.Star) else item.this
            if any(star.args.values()):
                hint = "list the columns"
                raise SqlError("* takes no EXCEPT in SQL", given=text_of(item), hint=hint)
            self.star = True
            return
        node = item.this if isinstance(item, exp.Alias) else item
        name = item.alias_or_name
        if not name:
            raise SqlError(
                "a column of a SELECT in FROM has no name",
                given=text_of(item),
                hint=f"write {text_of(item)} AS name",
            )
        if name in self.known:
            hint = "give one of them another name"
            raise SqlError("a SELECT in FROM has two columns of one name", given=name, hint=hint)
        self.known[name] = node

    def run(self) -> None:
        for join in self.outer.args.get("joins") or ():
            self._using_as_on(join)
        for item in list(self.outer.expressions):
            self._item(item)
        for key in ("joins", "where", "group", "having", "order"):
            part = self.outer.args.get(key)
            for one in part if isinstance(part, list) else [part] if part else []:
                self._put(one, key in ("having", "order"))
        source = "from_" if "from_" in self.outer.args else "from"
        held = self.inner.args.get("from_") or self.inner.args.get("from")
        self.outer.set(source, held)
        where = self.inner.args.get("where")
        if where is not None:
            own = self.outer.args.get("where")
            both: Any = exp.and_(where.this, own.this) if own else where.this
            self.outer.set("where", exp.Where(this=both))

    def _using_as_on(self, join: exp.Join) -> None:
        names = [key.name for key in join.args.get("using") or ()]
        if not any(name in self.known for name in names):
            return
        table = join.this.alias_or_name
        pairs = [
            exp.EQ(
                this=exp.column(name, table=table, quoted=True),
                expression=exp.column(name, quoted=True),
            )
            for name in names
        ]
        join.set("using", None)
        join.set("on", exp.and_(*pairs))

    def _item(self, item: exp.Expression) -> None:
        """Puts what an item of SELECT names in its place; results call it as it was written."""
        node = item.this if isinstance(item, exp.Alias) else item
        written = node.name if isinstance(node, exp.Column) else text_of(node)
        plain = isinstance(item, exp.Alias) or is_window_call(node)
        holder = exp.Paren(this=node.copy())
        if self._put(holder) and not plain:
            item.replace(exp.alias_(holder.this, written, quoted=True))
        else:
            node.replace(holder.this)

    def _put(self, tree: exp.Expression, aliased: bool = False) -> bool:
        """Replaces the columns in a tree; whether one became something else."""
        changed = False
        for column in list(tree.find_all(exp.Column)):
            if isinstance(column.parent, exp.Kwarg) and column.arg_key == "this":
                continue
            if aliased and self._is_alias(column):
                continue
            made = self._meant(column)
            if made is None:
                continue
            changed = changed or text_of(made) != column.name
            if not isinstance(made, _BARE) and not isinstance(column.parent, exp.Paren):
                made = exp.Paren(this=made)
            for node in (made, made.unnest()):
                node.meta[_CALLED] = column.name
            column.replace(made)
        return changed

    def _is_alias(self, column: exp.Column) -> bool:
        """Whether a column of HAVING or ORDER BY is an item of SELECT."""
        if column.table or column.name not in self.aliases:
            return False
        parent: Any = column.parent
        while parent is not None and not is_aggregate(parent):
            parent = parent.parent
        return parent is None

    def _meant(self, column: exp.Column) -> exp.Expression | None:
        """What a column of the outer SELECT is; None: what it says."""
        parts = [column.args[key] for key in _PARTS if column.args.get(key)]
        names = [part.name for part in parts]
        if len(names) > 1 and names[0] in self.joined:
            return None
        if len(names) > 1 and names[0] == self.alias:
            parts, names = parts[1:], names[1:]
        held = self.known.get(names[0])
        if held is None:
            if not self.star and names[0].lower() not in _OWN and names[0] not in self.aliases:
                raise SqlError(
                    "no such column in a SELECT in FROM",
                    given=text_of(column),
                    hint=did_you_mean(names[0], self.known),
                )
            return None if len(parts) == len(column.parts) else _path(parts)
        if len(parts) == 1:
            return held.copy()
        if not isinstance(held, exp.Column):
            raise SqlError(
                "a field is taken of what a SELECT in FROM computes",
                given=text_of(column),
                hint=f"take it there, as in {names[0]}.{names[1]} AS {names[1]}",
            )
        return _path([*held.parts, *parts[1:]])


def _path(parts: list[Any]) -> exp.Expression:
    """A column, or a field of one, by the names on the way to it."""
    first, rest = parts[:4], parts[4:]
    keys = _PARTS[-len(first) :]
    made: exp.Expression = exp.Column(
        **{key: part.copy() for key, part in zip(keys, first, strict=True)}
    )
    for part in rest:
        made = exp.Dot(this=made, expression=part.copy())
    return made
