"""Results on the screen: the newest rows of each query, as a table or as plain lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field, PrivateAttr
from rich.console import Console as Screen
from rich.table import Table
from rich.text import Text

from catchment.sinks.base import Delivery, Sink, register_sink
from catchment.sinks.rows import filled

_WIDEST = 40


ShowTables = Callable[[list[Table]], None]


@register_sink
class Console(Sink):
    """Shows what each delivery brings, on standard output.

    A terminal gets tables; where somebody keeps a board (`Console.board`), they are live: the
    newest rows of each query, changed in place.
    """

    board: ClassVar[ShowTables | None] = None

    on_driver: ClassVar[bool] = True

    type: Literal["console"] = "console"
    rows: int = Field(default=10, gt=0, description="rows shown per query and delivery, the newest")
    queries: tuple[str, ...] = Field(
        default=(), description="the queries shown; all when there are none"
    )

    _seen: dict[tuple[str, int], int] = PrivateAttr(default_factory=dict)
    _latest: dict[str, tuple[pa.Table, int]] = PrivateAttr(default_factory=dict)

    def check(self) -> None:
        return

    def write(self, delivery: Delivery) -> None:
        part = (delivery.job, delivery.part)
        if delivery.batch <= self._seen.get(part, -1):
            return
        tables = [
            (query, table)
            for query, table in filled(delivery)
            if not self.queries or query in self.queries
        ]
        # The screen of now: tests and notebooks put another in its place.
        screen = Screen(file=sys.stdout, soft_wrap=not sys.stdout.isatty())
        if Console.board is not None:
            self._update(tables)
            self._seen[part] = delivery.batch
            return
        for query, table in tables:
            newest = _newest(table, self.rows)
            if screen.is_terminal:
                screen.print(_table(query, newest, table.num_rows))
            else:
                for line in _lines(query, newest):
                    screen.out(line, highlight=False)
        self._seen[part] = delivery.batch

    def _update(self, tables: list[tuple[str, pa.Table]]) -> None:
        """Puts the newest rows of all queries on the board."""
        assert Console.board is not None
        for query, table in tables:
            before, total = self._latest.get(query, (table.slice(0, 0), 0))
            both = pa.concat_tables([before, table], promote_options="permissive")
            self._latest[query] = (_newest(both, self.rows), total + table.num_rows)
        Console.board([_table(query, *held) for query, held in self._latest.items()])


def _newest(table: pa.Table, rows: int) -> pa.Table:
    """The rows whose windows end last, in the order of time."""
    if "window_end" in table.column_names:
        table = table.sort_by([("window_end", "ascending")])
    return table.slice(max(0, table.num_rows - rows))


def _table(query: str, rows: pa.Table, total: int) -> Table:
    more = f" ({rows.num_rows} of {total})" if rows.num_rows < total else ""
    made = Table(title=Text(_name(query) + more), title_justify="left", pad_edge=False)
    for field in rows.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        made.add_column(Text(_name(field.name)), justify="right" if number else "left")
    for values in _cells(rows):
        made.add_row(*(Text(value) for value in values))
    return made


def _lines(query: str, rows: pa.Table) -> list[str]:
    names = [_name(name) for name in rows.column_names]
    pairs = (" ".join(map("=".join, zip(names, row, strict=True))) for row in _cells(rows))
    return [f"{_name(query)}: {text}" for text in pairs]


def _cells(rows: pa.Table) -> list[Sequence[str]]:
    columns = [[_shown(value) for value in column.to_pylist()] for column in rows.columns]
    return list(zip(*columns, strict=True))


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        text = value.isoformat(sep=" ", timespec="microseconds").removesuffix("+00:00")
        return text.removesuffix(".000000")
    text = _clean(str(value))
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}\u2026"


def _name(name: str) -> str:
    """A name that cannot move the cursor, and that no other name looks like.

    >>> _name("a\\tb"), _name("a\\\\tb")
    ('a\\\\tb', 'a\\\\\\\\tb')
    """
    return _clean(name.replace("\\", "\\\\"))


def _clean(text: str) -> str:
    """A text that cannot move the cursor or do worse.

    >>> _clean("red \\x1b[31m")
    'red \\\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
