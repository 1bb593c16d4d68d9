"""The demo's queries in SQL, as DuckDB and as Spark have them, and whether the answers agree.

Both can express all of them, but each only by itself. Windows in time are what each system does
fastest: DuckDB groups by whole multiples of a length, Spark by its own `window`. Sessions are gaps
between neighbours in DuckDB and `session_window` in Spark. Windows that events cut, and windows of
a number of events, are window functions over the events in order of time, in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from catchment.errors import CatchmentError

MICROS = 1_000_000


class InTime(NamedTuple):
    """A query over windows in time; without a slide they follow each other."""

    values: str
    length: int
    slide: int = 0
    by: str = ""
    where: str = "true"


class Session(NamedTuple):
    """A query over sessions, of a gap in seconds."""

    values: str
    gap: int
    by: str = ""


_SPEED = InTime("avg(v) AS mean, max(v) AS top", 10, by="player")
_COUNT = "count(*) AS n"
_MEAN = "avg(v) AS mean"

IN_TIME: dict[str, InTime] = {
    "speed": _SPEED,
    "speed_1s": InTime(_MEAN, 1, by="player"),
    "speed_1m": InTime(_MEAN, 60, by="player"),
    "coach": _SPEED,
    "sprints": InTime(_COUNT, 10, by="player", where="v > 5"),
    "walking": InTime(_COUNT, 10, by="player", where="v <= 5"),
    "possession": InTime("count(*) AS n, avg(x) AS x", 10),
    "left": InTime(_MEAN, 5, where="x < 52.5"),
    "right": InTime(_MEAN, 5, where="x >= 52.5"),
    "even": InTime("stddev(v) AS sd, variance(v) AS var", 10),
    "area": InTime("max(x) - min(x) AS dx, max(y) - min(y) AS dy", 10, by="player"),
    "energy": InTime("sum(v * v) AS energy", 60, 10, by="player"),
    "trend": InTime("min_by(v, ts) AS began, max_by(v, ts) AS ended", 10, 5, by="player"),
    "median": InTime("median(v) AS median", 10, 5, by="player"),
    "top_speed": InTime(
        "percentile_cont(0.95) WITHIN GROUP (ORDER BY v) AS p95, "
        "percentile_cont(0.99) WITHIN GROUP (ORDER BY v) AS p99",
        10,
        5,
        by="player",
    ),
    "sketch": InTime("{approx_quantile}(v, 0.5) AS median", 10),
    "squad": InTime("count(DISTINCT player) AS players", 10),
    "places": InTime("approx_count_distinct(x) AS n", 10),
}

SESSIONS: dict[str, Session] = {
    "spells": Session("count(*) AS n, max(v) AS top", 1, by="player"),
    "play": Session(_COUNT, 2),
}

_KICK_OFF = """
SELECT TIMESTAMP '2026-01-01 00:00:00' AS window_start, count(*) AS n, avg(v) AS mean FROM events
WHERE ts >= TIMESTAMP '2026-01-01 00:00:00' AND ts < TIMESTAMP '2026-01-01 00:00:10'"""

_LAPS = """
WITH numbered AS (
  SELECT player, ts, v, sum(CASE WHEN event = 'start' THEN 1 ELSE 0 END)
    OVER (PARTITION BY player ORDER BY ts ROWS UNBOUNDED PRECEDING) AS lap FROM events
), laps AS (
  SELECT player, lap, min(ts) AS window_start, count(*) AS n, max(v) AS top
  FROM numbered GROUP BY player, lap
), ended AS (
  SELECT *, lead(lap) OVER (PARTITION BY player ORDER BY lap) AS following FROM laps
)
SELECT player, window_start, n, top FROM ended WHERE following IS NOT NULL"""
"""The last lap of a player has not ended."""

_RUNS = """
WITH marked AS (
  SELECT player, ts, v, x, event,
    {last_event} OVER (PARTITION BY player ORDER BY ts ROWS UNBOUNDED PRECEDING) AS mark,
    {last_event} OVER (PARTITION BY player ORDER BY ts
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM events
), numbered AS (
  SELECT *, sum(CASE WHEN event = 'start' AND coalesce(before, 'end') = 'end' THEN 1 ELSE 0 END)
    OVER (PARTITION BY player ORDER BY ts ROWS UNBOUNDED PRECEDING) AS run FROM marked
)
SELECT player, min(ts) AS window_start, avg(v) AS mean, max_by(x, ts) AS x FROM numbered
WHERE mark = 'start' OR (event = 'end' AND before = 'start')
GROUP BY player, run HAVING max(CASE WHEN event = 'end' THEN 1 ELSE 0 END) = 1"""
"""A start opens a run unless one is open: unless the mark before it is a start."""

_THOUSAND = """
WITH ranked AS (
  SELECT player, ts, v, row_number() OVER (PARTITION BY player ORDER BY ts) - 1 AS rank FROM events
)
SELECT player, min(ts) AS window_start, avg(v) AS mean FROM ranked
GROUP BY player, rank - rank % 1000 HAVING count(*) = 1000"""

_ROLLING = """
WITH ranked AS (SELECT ts, v, row_number() OVER (ORDER BY ts) - 1 AS rank FROM events)
SELECT min(ts) AS window_start, max(v) AS top
FROM ranked CROSS JOIN (VALUES (0), (5000), (10000), (15000)) AS slides(back)
GROUP BY rank - rank % 5000 - back HAVING count(*) = 20000"""

CUT_BY_EVENTS = {
    "kick_off": _KICK_OFF,
    "laps": _LAPS,
    "runs": _RUNS,
    "thousand": _THOUSAND,
    "rolling": _ROLLING,
}


def for_duckdb() -> dict[str, str]:
    """Every query that DuckDB can express, over a table `events`."""
    words = {
        "{approx_quantile}": "approx_quantile",
        "{last_event}": "last_value(event IGNORE NULLS)",
    }
    made = {name: _bucketed(query) for name, query in IN_TIME.items()}
    made |= {name: _by_gaps(query) for name, query in SESSIONS.items()}
    return _worded(made | CUT_BY_EVENTS, words)


def for_spark() -> dict[str, str]:
    """Every query that Spark can express, over a view `events`."""
    words = {
        "{approx_quantile}": "approx_percentile",
        "{last_event}": "last_value(event) IGNORE NULLS",
    }
    made = {name: _windowed(query) for name, query in IN_TIME.items()}
    made |= {
        name: _by_window(query.values, query.by, f"session_window(ts, '{query.gap} seconds')")
        for name, query in SESSIONS.items()
    }
    return _worded(made | CUT_BY_EVENTS, words)


def _worded(made: Mapping[str, str], words: Mapping[str, str]) -> dict[str, str]:
    """The texts with a dialect's own words in them."""
    found = dict(made)
    for name in found:
        for place, word in words.items():
            found[name] = found[name].replace(place, word)
    return found


def _bucketed(query: InTime) -> str:
    step = query.slide or query.length
    backs = ", ".join(f"({back})" for back in range(query.length // step))
    slides = f" CROSS JOIN (VALUES {backs}) AS slides(back)" if query.slide else ""
    place = f"epoch_us(ts) // {step * MICROS}" + (" - back" if query.slide else "")
    return (
        f"SELECT {_list(query.by)}make_timestamptz(place * {step * MICROS}) AS window_start, "
        f"{query.values} FROM (SELECT *, {place} AS place FROM events{slides} "
        f"WHERE {query.where}) GROUP BY {_list(query.by)}place"
    )


def _by_gaps(query: Session) -> str:
    order = f"{f'PARTITION BY {query.by} ' if query.by else ''}ORDER BY ts"
    near = f"epoch_us(ts) - lag(epoch_us(ts)) OVER ({order}) <= {query.gap * MICROS}"
    return (
        f"WITH marked AS (SELECT *, CASE WHEN {near} THEN 0 ELSE 1 END AS opens FROM events), "
        f"numbered AS (SELECT *, sum(opens) OVER ({order} ROWS UNBOUNDED PRECEDING) AS session "
        f"FROM marked) SELECT {_list(query.by)}min(ts) AS window_start, {query.values} "
        f"FROM numbered GROUP BY {_list(query.by)}session"
    )


def _windowed(query: InTime) -> str:
    slide = f", '{query.slide} seconds'" if query.slide else ""
    window = f"window(ts, '{query.length} seconds'{slide})"
    return _by_window(query.values, query.by, window, query.where)


def _by_window(values: str, by: str, window: str, where: str = "true") -> str:
    kind = window.partition("(")[0]
    return (
        f"SELECT {_list(by)}{kind}.start AS window_start, {values} FROM events WHERE {where} "
        f"GROUP BY {_list(by)}{window}"
    )


def _list(by: str) -> str:
    return f"{by}, " if by else ""


APPROXIMATE = {"sketch": 0.05, "places": 0.15}
"""Queries whose answers are estimates, to how far apart two of them may be."""
BOUNDS = ("window_start", "window_end", "window_index")


def agree(name: str, ours: pa.Table, theirs: pa.Table) -> None:
    """Raises unless two tables have the same windows and keys, and values that are as good."""
    keys = [one for one in ("player", "window_start") if one in ours.column_names]
    mine, other = (table.sort_by([(key, "ascending") for key in keys]) for table in (ours, theirs))
    if mine.num_rows != other.num_rows:
        _differ(name, f"{mine.num_rows} and {other.num_rows} rows")
    for key in keys:
        left, right = (_plain(table.column(key)) for table in (mine, other))
        if left != right:
            _differ(name, f"other values of {key}")
    values = [[c for c in t.column_names if c not in (*keys, *BOUNDS)] for t in (mine, other)]
    for one, another in zip(*values, strict=True):
        x, y = (np.asarray(c.to_pylist(), float) for c in (mine[one], other[another]))
        if not np.allclose(x, y, rtol=APPROXIMATE.get(name, 1e-9), atol=1e-9):
            _differ(name, f"{one} by up to {np.abs(x - y).max():g}")


def _plain(column: Any) -> list[Any]:
    """Values that compare whatever time zone their type names."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    found: list[Any] = column.to_pylist()
    return found


def _differ(name: str, how: str) -> None:
    raise CatchmentError(
        "another system answers otherwise, so its time is no measure",
        given=f"{name}: {how}",
        hint="put the query's SQL in benchmarks/mix_sql.py right, or find the bug",
    )
