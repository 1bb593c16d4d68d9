"""SELECT, HAVING and ORDER BY: expressions over aggregates, keys and bounds.

A `SelectReader` knows the keys and the window of a statement. It takes an expression of the text,
puts the name of a result column in the place of each aggregate, key and bound, and refuses columns
of events that stand alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlglot import exp

from catchment.errors import SqlError, did_you_mean
from catchment.expression import is_function
from catchment.model.output import GROUPING_ID, grouping_name
from catchment.model.query import RESERVED, Aggregate, Expression, Ordering
from catchment.sqltext.aggregates import (
    aggregate_of,
    named_as_written,
    refuse_parts,
)
from catchment.sqltext.calls import has_aggregate, is_aggregate
from catchment.sqltext.grouping import GroupBy, is_window_name, same
from catchment.sqltext.syntax import Item, by_place
from catchment.sqltext.writing import text_of

_BOUNDS = {"start": "window_start", "end": "window_end"}
_WINDOW = "named_struct('start', window_start, 'end', window_end)"
"""What the window is as a value, as in Spark."""


@dataclass
class SelectReader:
    """Reads the expressions of a statement; without a grouping, those of a text of its own."""

    grouping: GroupBy | None = None
    aliases: dict[str, exp.Expression] = field(default_factory=dict)
    """Items of SELECT by their aliases: HAVING and ORDER BY may name them."""

    def selected(self, items: Iterable[Item]) -> list[Aggregate | Expression]:
        """What SELECT asks for, besides what results carry anyway."""
        made: list[Aggregate | Expression] = []
        for item in items:
            if not self._carried(item):
                made.append(self.item(item))
            if item.alias:
                self.aliases[item.alias] = item.node
        return made

    def item(self, item: Item) -> Aggregate | Expression:
        """One item of SELECT: an aggregate, or an expression."""
        node = item.node
        refuse_parts(node)
        if self._is_window(node):
            return Expression(_WINDOW).alias(item.alias or _window_name(node))
        if is_aggregate(node) or self._unknown(node):
            made = aggregate_of(node)
            return made.alias(item.alias) if item.alias else named_as_written(node, made)
        return self._read(node, "SQL selects").alias(item.alias or text_of(node))

    def _unknown(self, node: exp.Expression) -> bool:
        """Whether a call is of a function that is not known at all: the registry says what is."""
        return isinstance(node, exp.Anonymous) and not (
            is_function(node.name) or node.name.lower() in ("grouping", "grouping_id")
        )

    def expression(self, node: exp.Expression, what: str) -> Expression:
        """An expression with the names of result columns in the place of what they stand for."""
        refuse_parts(node)
        return self._read(node, what)

    def _read(self, node: exp.Expression, what: str) -> Expression:
        found: dict[Aggregate, None] = {}

        def named(inner: exp.Expression) -> str | None:
            name = self._key(inner) or self._bound(inner) or self._grouped(inner)
            if name is not None:
                return name
            if is_aggregate(inner):
                aggregate = aggregate_of(inner)
                found[aggregate] = None
                return aggregate.text
            if isinstance(inner, exp.Column):
                self._check_column(inner, what)
                return inner.name
            return None

        text = text_of(node, named)
        return Expression(text, tuple(found))

    def having(self, node: exp.Expression) -> Expression:
        return self.expression(node, "HAVING names")

    def order(self, node: exp.Ordered, items: list[Item]) -> Ordering:
        by = node.this
        if isinstance(by, exp.Literal) and not by.is_string:
            by = by_place(by, items, "ORDER BY").node
        if self._is_window(by):
            by = exp.column("window_start")
        read = self.expression(by, "ORDER BY names")
        return Ordering(read, bool(node.args.get("desc")), bool(node.args.get("nulls_first")))

    # -- what results carry anyway -----------------------------------------------------------------

    def _carried(self, item: Item) -> bool:
        """Whether an item is a key or a bound under the name that results have for it."""
        assert self.grouping is not None
        node = item.node
        name = self._key(node) or self._bound(node) or self._grouped(node)
        if name is None and isinstance(node, exp.Column) and not node.table:
            name = node.name if node.name in RESERVED else None
        return name is not None and item.alias in ("", name)

    def _is_window(self, node: exp.Expression) -> bool:
        """Whether an expression stands for the window as a whole."""
        if self.grouping is None:
            return False
        if isinstance(node, exp.Column) and not node.table:
            return is_window_name(node.name, self.grouping.window_names)
        return same(node, self.grouping.window)

    def _key(self, node: exp.Expression) -> str | None:
        """The name of a key in results."""
        keys = () if self.grouping is None else self.grouping.keys
        found = next((key.name for key in keys if same(key.node, node)), None)
        if found is None and isinstance(node, exp.Column) and not node.table:
            found = next((key.name for key in keys if key.name == node.name), None)
        return found

    def _bound(self, node: exp.Expression) -> str | None:
        """The result column of a bound of the window."""
        if not isinstance(node, exp.Column | exp.Dot):
            return None
        aliases = () if self.grouping is None else self.grouping.window_names
        if isinstance(node, exp.Dot):
            own = self.grouping is not None and same(node.this, self.grouping.window)
            return _BOUNDS.get(node.expression.name.lower()) if own else None
        if is_window_name(node.table, aliases) and node.name.lower() in _BOUNDS:
            return _BOUNDS[node.name.lower()]
        return node.name if not node.table and node.name in _BOUNDS.values() else None

    def _grouped(self, node: exp.Expression) -> str | None:
        """The column that says which keys a row is summed over."""
        if isinstance(node, exp.Column) and not node.table:
            sets = self.grouping is not None and self.grouping.sets
            return GROUPING_ID if sets and node.name == GROUPING_ID else None
        name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        if name not in ("grouping", GROUPING_ID):
            return None
        if self.grouping is not None and not self.grouping.sets:
            raise SqlError(
                f"{name} needs sets of keys",
                given=text_of(node),
                hint="write GROUP BY ROLLUP(...), CUBE(...) or GROUPING SETS (...)",
            )
        args = node.expressions
        if name == GROUPING_ID and (not args or self._all_keys(args)):
            return GROUPING_ID
        key = self._key(args[0]) if self.grouping else args[0].name if args else None
        if name == GROUPING_ID or len(args) != 1 or key is None:
            keys = [] if self.grouping is None else [key.name for key in self.grouping.keys]
            raise SqlError(
                f"{name} has the wrong arguments",
                given=text_of(node),
                hint="write grouping_id(), of all keys, or grouping(key) of one of "
                + ", ".join(keys),
            )
        return grouping_name(key)

    def _all_keys(self, args: list[exp.Expression]) -> bool:
        """Whether arguments are all keys, in their order."""
        keys = () if self.grouping is None else self.grouping.keys
        return [self._key(arg) for arg in args] == [key.name for key in keys]

    def _check_column(self, column: exp.Column, what: str) -> None:
        """Refuses a column of the events that is no key."""
        if self.grouping is None or (not column.table and column.name in self.aliases):
            return
        if is_window_name(column.name, self.grouping.window_names) and not column.table:
            raise SqlError(
                "the window as a whole stands in SELECT alone",
                given=text_of(column),
                hint=f"write {column.name}.start or {column.name}.end",
            )
        near = did_you_mean(column.name, [k.name for k in self.grouping.keys], " ")
        raise SqlError(
            f"{what} a column that is not a key",
            given=text_of(column),
            hint=f"add it to GROUP BY, or aggregate it as in max({text_of(column)})"
            + (f"; {near}" if near.strip() else ""),
        )


def _window_name(node: exp.Expression) -> str:
    """What results call a window that SELECT names without an alias."""
    return node.name.lower() if isinstance(node, exp.Anonymous) else node.name


def refuse_aggregates(where: exp.Expression | None) -> None:
    """Refuses a condition on events that has aggregates in it."""
    if where is not None and has_aggregate(where.this):
        raise SqlError(
            "WHERE has an aggregate in it",
            given=text_of(where).strip(),
            hint="WHERE chooses events; a condition on aggregates goes into HAVING",
        )
