"""Results drawn as lines over time: one for each key and value. It needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as of

from catchment.errors import QueryError, did_you_mean, needing

if TYPE_CHECKING:
    import polars as pl

MOST = 10
"""Keys that are drawn: those with the most windows, then by name."""
_LABEL = "\0label"
_BOUNDS = ("window_start", "window_end")
_ABOUT = {*_BOUNDS, "window_index", "revision", "retracted", "complete", "grouping_id"}


def plot(
    table: pa.Table,
    value: str | Sequence[str] | None = None,
    *,
    keys: int = MOST,
    ax: Any = None,
    title: str = "",
) -> Any:
    """Draws the results of a query, and gives matplotlib's axes.

    Each window is a point at its end. There is a line for each key and value; of many keys, the
    `keys` with the most windows are drawn. `value` names columns; without it, all numbers are.
    """
    with needing("a plot"):
        from matplotlib import pyplot as plt

    by = _keys(table)
    values = _values(table, by, value)
    if ax is None:
        _, ax = plt.subplots(figsize=(8, 4), layout="constrained")
    lines = _lines(table, by, keys)
    for label, rows in lines:
        for name in values:
            said = ", ".join([label] * bool(label) + [name] * (len(values) > 1 or not label))
            ax.plot(rows["window_end"].to_list(), rows[name].to_list(), ".-", label=said)
    ax.set_xlabel("end of the window")
    ax.set_ylabel(values[0] if len(values) == 1 else "")
    ax.set_title(title)
    if lines and (len(lines) > 1 or len(values) > 1):
        ax.legend(title=", ".join(by) or None)
    ax.figure.autofmt_xdate()
    return ax


class PlottedResults(Mapping[str, pa.Table]):
    """Results by the name of their query, which can be drawn."""

    def plot(
        self,
        name: str | None = None,
        value: str | Sequence[str] | None = None,
        *,
        keys: int = MOST,
        ax: Any = None,
    ) -> Any:
        """Draws a query's results as lines over time, and gives matplotlib's axes.

        `name` may be left out where there is one query; `value` names columns to draw (by default
        all numbers), `keys` is how many keys are drawn, and `ax` are axes to draw into.

        Raises MissingPackageError without matplotlib, and QueryError where there is no such query
        or number.
        """
        name = only_name([*self]) if name is None else name
        return plot(self[name], value, keys=keys, ax=ax, title=name)


def only_name(names: Sequence[str]) -> str:
    """The one query there is, where nobody says which."""
    if len(names) != 1:
        raise QueryError("which query?", hint="say one of: " + ", ".join(names))
    return names[0]


def _keys(table: pa.Table) -> list[str]:
    """The columns before the bounds of the window are the keys."""
    return list(table.column_names[: table.schema.get_field_index("window_start")])


def _values(table: pa.Table, by: Sequence[str], value: str | Sequence[str] | None) -> list[str]:
    numbers = [
        field.name
        for field in table.schema
        if field.name not in {*by, *_ABOUT}
        and (of.is_integer(field.type) or of.is_floating(field.type) or of.is_decimal(field.type))
    ]
    if value is None:
        if not numbers:
            raise QueryError(
                "the query has no number to draw",
                given=", ".join(table.column_names),
                hint="draw another query",
            )
        return numbers
    wanted = [value] if isinstance(value, str) else list(value)
    for name in wanted:
        if name not in numbers:
            raise QueryError(
                "no such number among the results", given=name, hint=did_you_mean(name, numbers)
            )
    return wanted


def _lines(table: pa.Table, by: Sequence[str], most: int) -> list[tuple[str, pl.DataFrame]]:
    """The rows of each key that is drawn, in order of time."""
    import polars as pl  # here: a node draws nothing, and shall stay small

    frame = pl.DataFrame(table).sort("window_end")
    if not by:
        return [("", frame)] if len(frame) else []
    label = pl.concat_str(pl.col(by).cast(pl.String).fill_null("null"), separator=", ")
    frame = frame.with_columns(label.alias(_LABEL))
    counts = frame.group_by(_LABEL).len().sort([pl.col("len") * -1, _LABEL])
    names = counts[_LABEL].to_list()[:most]
    return [(name, frame.filter(pl.col(_LABEL) == name)) for name in names]
