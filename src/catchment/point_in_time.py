"""Values as of given times: what the last hour, day and week of a key were when something happened.

`as_of` is what `import catchment` offers. Each time and lookback is a window that ends just there.
All of them are one plan, so that an event is processed once for all times and lookbacks.

    events, times, lookbacks --one run--> results of each window --by key and time--> one table
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.batch import Events, run
from catchment.engine.slicer import as_table, is_frame
from catchment.engine.times import times_of, with_times
from catchment.errors import LimitError, QueryError, SchemaError, did_you_mean
from catchment.expression.values import decoded, kind
from catchment.model.duration import Duration, instant, micros, show
from catchment.model.query import Aggregate, Query
from catchment.model.time_column import TimeSpec, time_name
from catchment.operators.ragged import Ints
from catchment.operators.values import one_piece
from catchment.windows import fixed

MOST_WINDOWS = 100_000
"""Times by lookbacks of one call."""
AS_OF = "as_of"
"""The column of the times that were asked for."""
_TIME = pa.timestamp("us", "UTC")


def as_of(
    events: Events,
    *aggregates: Aggregate,
    at: Any,
    lookbacks: Sequence[Duration],
    by: str | Sequence[str] = (),
    where: str | None = None,
    time: TimeSpec = "ts",
    spark: Any = False,
) -> pa.Table:
    """What aggregates were, of each key, as of given times: of the events in `[t - lookback, t)`.

    `at` is a list of times, and there is a row for each time and each key with an event in the
    longest lookback; or it is a table or frame with the columns of `by` and `time`, and there is a
    row for each of its rows, in their order. An event just at a time is not in, so that nothing of
    the future is. The columns are the keys, `as_of`, and for each aggregate and lookback one that
    is called by both, as in `mean_1h`: null where there was no event. `events`, `where` and `spark`
    are as in `ct.run` and `ct.Query`.

    >>> import catchment as ct
    >>> events = pa.table({"ts": pa.array([1, 2, 9], pa.timestamp("s")), "v": [1, 2, 4]})
    >>> made = as_of(events, ct.sum("v").alias("s"), at=[3_000_000], lookbacks=["1s", "5s"])
    >>> made.drop_columns(["as_of"]).to_pylist()
    [{'s_1s': 2, 's_5s': 3}]

    Raises QueryError for what cannot be asked, SchemaError for columns that are not there, and
    LimitError for more than 100,000 times by lookbacks.
    """
    keys = (by,) if isinstance(by, str) else tuple(by)
    lengths = _lengths(lookbacks)
    asked = as_table(at) if is_frame(at) else None
    given = _times(asked, time) if asked is not None else _listed(at)
    moments, place = np.unique(given, return_inverse=True)
    if len(moments) * len(lengths) > MOST_WINDOWS:
        raise LimitError(
            "too many times to look back from at once",
            given=f"{len(moments):,} times and {len(lengths):,} lookbacks",
            hint=f"at most {MOST_WINDOWS:,} of both together: ask in several calls",
        )
    if not len(moments):
        raise QueryError("no times are given", given="at", hint="give at least one")
    named = {
        (n, length): Query(
            f"{show(length)} before {np.datetime64(moment, 'us')}",
            *aggregates,
            window=fixed(int(moment) - length, int(moment)),
            by=keys,
            where=where,
        )
        for n, moment in enumerate(moments.tolist())
        for length in lengths
    }
    results = run(events, list(named.values()), time, spark)
    found = {
        length: _stacked([results[named[n, length].name] for n in range(len(moments))])
        for length in lengths
    }
    wanted = _wanted(asked, place, keys) if asked is not None else _union(found, keys)
    columns: dict[str, Any] = {key: wanted.column(key) for key in keys}
    columns[AS_OF] = pa.array(moments[wanted.column(AS_OF).to_numpy()]).view(_TIME)
    for length, table in found.items():
        rows = _rows_of(wanted, table, (*keys, AS_OF))
        for aggregate in aggregates:
            values = one_piece(table.column(aggregate.label))
            columns[f"{aggregate.label}_{show(length)}"] = values.take(rows)
    return pa.table(columns)


def _lengths(lookbacks: Sequence[Duration]) -> list[int]:
    if isinstance(lookbacks, str) or not isinstance(lookbacks, Sequence) or not lookbacks:
        raise QueryError(
            "lookbacks are a list of durations",
            given=repr(lookbacks),
            hint='try lookbacks=["1h", "1d"]',
        )
    return list(dict.fromkeys(micros(one, "lookback") for one in lookbacks))


def _listed(at: Any) -> Ints:
    if isinstance(at, str) or not isinstance(at, Sequence | np.ndarray):
        raise QueryError(
            "times to look back from are a list, or a table of keys and times",
            given=repr(at),
            hint='try at=["2026-01-01", "2026-02-01"]',
        )
    return np.array([instant(one) for one in at], np.int64)


def _times(asked: pa.Table, spec: TimeSpec) -> Ints:
    time = time_name(spec)
    if time not in asked.schema.names:
        raise SchemaError(
            "the table of times has no such column",
            given=time,
            hint=did_you_mean(time, asked.schema.names),
        )
    found, good = times_of(with_times(asked, spec).column(time))
    if good is not None and not good.all():
        raise SchemaError(
            "a time to look back from is missing",
            given=f"row {int(np.flatnonzero(~good)[0])} of {time}",
            hint="leave out rows without a time",
        )
    return found


def _wanted(asked: pa.Table, place: Ints, keys: tuple[str, ...]) -> pa.Table:
    """The keys and times that a table asks for; times by their numbers."""
    for key in keys:
        if key not in asked.schema.names:
            raise SchemaError(
                "the table of times has no such column",
                given=key,
                hint=did_you_mean(key, asked.schema.names),
            )
    return asked.select(list(keys)).append_column(AS_OF, pa.array(place.astype(np.int64)))


def _stacked(tables: list[pa.Table]) -> pa.Table:
    """The results of windows of one length, with the number of each window's time."""
    numbers = np.repeat(np.arange(len(tables), dtype=np.int64), [t.num_rows for t in tables])
    return pa.concat_tables(tables).append_column(AS_OF, pa.array(numbers))


def _union(found: dict[int, pa.Table], keys: tuple[str, ...]) -> pa.Table:
    """Each time and key that has an event: those of the longest lookback, in order of time."""
    longest = found[max(found)].select([*keys, AS_OF])
    return longest.take(np.argsort(longest.column(AS_OF).to_numpy(), kind="stable"))


def _as_keys(asked: pa.Array[Any], own: pa.Array[Any], name: str) -> pa.Array[Any]:
    """Keys that are asked for, in the type of those of the events."""
    asked = decoded(asked)
    alike = kind(asked) == kind(own) or {kind(asked), kind(own)} <= {"int", "decimal"}
    if alike or "null" in (kind(asked), kind(own)):
        try:
            return asked.cast(own.type)
        except pa.ArrowInvalid:
            pass
    raise SchemaError(
        "a key of the table of times has another type than that of the events",
        given=f"{name} is {asked.type}, of the events {own.type}",
        hint=f"cast it to {own.type} before",
    )


def _rows_of(wanted: pa.Table, table: pa.Table, names: tuple[str, ...]) -> pa.Array[Any]:
    """For each wanted row, the row of the table with the same values; null where there is none."""
    count = wanted.num_rows
    code = np.zeros(count + table.num_rows, np.int64)
    for name in names:
        own = one_piece(table.column(name))
        both = pa.concat_arrays([_as_keys(one_piece(wanted.column(name)), own, name), own])
        found = both.dictionary_encode(null_encoding="encode")
        width = len(found.dictionary) + 1
        # Numbers without gaps at each step, so that their products stay small.
        code = np.unique(
            code * width + found.indices.to_numpy(zero_copy_only=False), return_inverse=True
        )[1].astype(np.int64)
    order = np.argsort(code[count:], kind="stable")
    held = code[count:][order]
    at = np.searchsorted(held, code[:count])
    there = np.zeros(count, np.bool_)
    inside = at < len(held)
    there[inside] = held[at[inside]] == code[:count][inside]
    rows = np.where(there, order[np.minimum(at, max(len(held) - 1, 0))] if len(held) else 0, 0)
    return pa.array(rows, mask=~there)
