"""What notebooks show: small tables and texts as HTML, in which nothing of the data is markup."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 10
"""Rows of a table that a notebook shows."""


def heading(text: str) -> str:
    """A line above a table.

    >>> heading("a < b")
    '<p><strong>a &lt; b</strong></p>'
    """
    return f"<p><strong>{escape(text)}</strong></p>"


def preformatted(text: str) -> str:
    """A text whose lines and spaces stay.

    >>> preformatted("├─ v < 3")
    '<pre>├─ v &lt; 3</pre>'
    """
    return f"<pre>{escape(text)}</pre>"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; numbers are right-aligned, and times are written without their zone.

    >>> table(["k", "n"], [["<b>", 1200]])
    '<table><thead><tr><th>k</th><th>n</th></tr></thead><tbody><tr><td>&lt;b&gt;</td><td \
style="text-align:right">1,200</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def arrow_table(found: pa.Table, rows: int = ROWS) -> str:
    """The first rows of an Arrow table, and how many there are."""
    shown = found.slice(0, rows)
    columns = [column.to_pylist() for column in shown.columns]
    made = table(found.column_names, zip(*columns, strict=True))
    more = found.num_rows - shown.num_rows
    return made + (f"<p>and {more:,} more rows</p>" if more else "")


class Display:
    """Something that a notebook shows and that changes in place; elsewhere, lines of text."""

    def __init__(self) -> None:
        self._handle: Any = None

    def update(self, shown: Any) -> None:
        """Shows it, instead of what was shown before."""
        if not _in_notebook():
            sys.stdout.write(f"{shown}\n")
        elif self._handle is None:
            display: Any = import_module("IPython.display").display
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)


def _in_notebook() -> bool:
    """Whether a notebook runs this, which has loaded IPython's kernel then."""
    return "ipykernel" in sys.modules


def _cell(value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    style = ' style="text-align:right"' if number else ""
    return f"<td{style}>{escape(_text(value))}</td>"


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ")
    return str(value)
