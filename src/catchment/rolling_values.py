"""Rolling values: the last minute, hour and day as of each step, given where they change.

`rolling` is what `import catchment` offers. Of each lookback it makes two queries, one above the
other, so that nothing in the engine, in Spark or in a tree knows of it:

    events --sliding(lookback, step)--> a value as of each step, while there are events
           --sliding(2 steps, step)---> this step beside the one before: given where they differ

A step that has a value after one that had none differs, and so does one that has none any more. All
lookbacks of one step are cut by one grid, and an event is processed once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from catchment.errors import QueryError
from catchment.expression import quote
from catchment.model.duration import Duration, micros, show
from catchment.model.query import Aggregate, Query
from catchment.model.window import Window
from catchment.sqltext import expr
from catchment.windows import sliding

_AT = "window_time"
_NOW = "max(window_end) = window_end"
"""The condition that there is a result of the later of two steps."""


def rolling(
    name: str,
    *aggregates: Aggregate,
    lookbacks: Sequence[Duration],
    step: Duration,
    by: str | Sequence[str] = (),
    where: str | None = None,
) -> list[Query]:
    """Queries of what aggregates were as of each step, of the events in `[t - lookback, t)`.

    There is one query for each of `lookbacks`, called by `name` and the lookback, as in `load_1h`.
    `t` is a multiple of `step`, and `window_end` of the result. A key has a row only where a value
    is another than as of the step before, or where there was none: the first time, and after it had
    none. Where there is no event in the lookback any more, there is one row of nulls. So the last
    row of a key is its value as of now. `by` and `where` are as in `ct.Query`.

    >>> import catchment as ct
    >>> import pyarrow as pa
    >>> last = rolling("load", ct.sum("v").alias("s"), lookbacks=["2s", "4s"], step="1s")
    >>> [query.name for query in last]
    ['load_2s', 'load_4s']
    >>> events = pa.table({"ts": pa.array([0, 3], pa.timestamp("s")), "v": [1, 2]})
    >>> found = ct.run(events, last, spark=False)["load_4s"]
    >>> [(row["window_end"].second, row["s"]) for row in found.to_pylist()]
    [(1, 1), (4, 3), (5, 2), (8, None)]

    Raises QueryError for no aggregates, or no lookbacks, and for one that is shorter than a step.
    """
    given = [lookbacks] if isinstance(lookbacks, str) else list(lookbacks)
    if not aggregates or not given:
        raise QueryError(
            "rolling values need an aggregate and a lookback",
            given=f"{len(aggregates)} aggregates and {len(given)} lookbacks",
            hint='try ct.rolling("load", ct.avg("v"), lookbacks=["1h"], step="10s")',
        )
    size = micros(step, "step")
    lengths = list(dict.fromkeys(micros(one, "lookback") for one in given))
    for length in lengths:
        if not 0 < size <= length:
            raise QueryError(
                "a lookback is at least as long as a step",
                given=f"a lookback of {show(length)} and a step of {show(size)}",
                hint="choose a shorter step",
            )
    return [
        _changes(f"{name}_{show(length)}", aggregates, length, size, by, where)
        for length in lengths
    ]


def _changes(
    name: str,
    aggregates: Sequence[Aggregate],
    length: int,
    step: int,
    by: str | Sequence[str],
    where: str | None,
) -> Query:
    """The query of one lookback."""
    values = Query(
        f"{name} as of each step", *aggregates, window=_sliding(length, step), by=by, where=where
    )
    differs, shown = ["count(*) = 1"], []
    for label in (aggregate.label for aggregate in aggregates):
        before, now = (f"{pick}({quote(label)}, {_AT})" for pick in ("min_by", "max_by"))
        one_is_null = f"({before} IS NULL) <> ({now} IS NULL)"
        differs.append(f"coalesce({before} <> {now}, {one_is_null})")
        shown.append(expr(f"CASE WHEN {_NOW} THEN {now} END AS {quote(label)}"))
    return Query(
        name,
        *shown,
        window=_sliding(2 * step, step),
        by=by,
        having=expr(" OR ".join(differs)),
        source=values,
    )


def _sliding(length: int, step: int) -> Window:
    """Windows that end at multiples of a step."""
    return sliding(f"{length}us", f"{step}us", offset=f"{-length % step}us")
