"""Random SQL queries over random events, in our words and in DuckDB's.

A `Question` is a query as `ct.sql` takes it, and what DuckDB is asked for the same rows. Windows
are a table of their own there: each event stands once for every window that it is in. What both
write alike is drawn as one text; where they differ, a pair of texts is drawn. The questions about
one table are made of few aggregates, so that the queries share what they compute.

What is left out, because the answers of both differ by design (docs/sql.md):
- averages and quotients of decimals: decimals here, as in Spark, doubles there;
- deviations of NaN: NaN here, as in Spark, an error there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

BEGIN = datetime(2026, 3, 1, 11, 58, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SPAN = 600
"""Seconds that events are spread over."""


class Text(NamedTuple):
    """An expression as we take it, and as DuckDB does."""

    ours: str
    theirs: str

    @classmethod
    def of(cls, text: str) -> Text:
        return cls(text, text)


@dataclass(frozen=True)
class Question:
    """A query in both dialects, and the columns that identify its rows."""

    sql: str
    duckdb: str
    keys: tuple[str, ...]


def events(dice: Random) -> pa.Table:
    """Events with nulls in every column but the time, in no order."""
    n = dice.choice([0, 1, 5, 40, 120])

    def some(values: list[Any]) -> list[Any]:
        return [dice.choice(values) for _ in range(n)]

    times = [BEGIN + timedelta(milliseconds=dice.randrange(SPAN * 1000)) for _ in range(n)]
    quarters = [None, *(value / 4 for value in range(-12, 40))]
    cents = [None, *(Decimal(value) / 100 for value in range(-250, 900, 7))]
    requests = [
        None,
        {"n": None, "host": "p"},
        *({"n": n, "host": h} for n in range(4) for h in "pq"),
    ]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": pa.array(some(["a", "b", "C", "dd", None]), pa.string()),
            "j": pa.array(some(["x", "y", None]), pa.string()),
            "i": pa.array(some([None, *range(-3, 9)]), pa.int64()),
            "v": pa.array(some(quarters), pa.float64()),
            "b": pa.array(some([True, False, None]), pa.bool_()),
            "d": pa.array(some(cents), pa.decimal128(10, 2)),
            "f": pa.array(some([*quarters, math.nan, math.nan]), pa.float64()),
            "req": pa.array(some(requests), pa.struct({"n": pa.int64(), "host": pa.string()})),
            "tags": pa.array(some([None, [], ["x"], ["x", "y"], ["z"]]), pa.list_(pa.string())),
        }
    )


ROOMS = pa.table(
    {
        "k": ["a", "b", "dd", "e"],
        "room": ["red", "blue", None, "green"],
        "weight": [1.5, 2.0, 0.5, 4.0],
    }
)
"""A small table that queries join; some keys of events are not in it."""


def answers(
    connection: duckdb.DuckDBPyConnection, table: pa.Table, text: str
) -> list[dict[str, Any]]:
    """DuckDB's rows, with times in microseconds."""
    plain = table.set_column(0, "ts", table.column("ts").cast(pa.timestamp("us")))
    connection.register("events", plain)
    found = connection.sql(text).to_arrow_table()
    connection.unregister("events")
    return [{name: plain_value(value) for name, value in row.items()} for row in found.to_pylist()]


def plain_value(value: Any) -> Any:
    """A time in microseconds; a number with a point is a decimal there, and a double here."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
    return float(value) if isinstance(value, Decimal) else value


class Peer:
    """DuckDB with the events of one table, and with each event once for every window."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, table: pa.Table) -> None:
        self.connection = connection
        plain = table.set_column(0, "ts", table.column("ts").cast(pa.timestamp("us")))
        connection.register("given", plain)
        connection.execute("CREATE OR REPLACE TEMP TABLE events AS FROM given")
        connection.unregister("given")
        connection.register("rooms", ROOMS)
        for size, slide in WINDOWS:
            name, text = _window_table(size, slide), _windows(size, slide)
            connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM {text}")

    def answers(self, text: str) -> list[dict[str, Any]]:
        """Its rows, with times in microseconds."""
        # `sql` would plan a query twice: to tell the columns, and to run it.
        found = self.connection.execute(text)
        names = [column[0] for column in found.description or ()]
        return [
            {name: plain_value(value) for name, value in zip(names, row, strict=True)}
            for row in found.fetchall()
        ]


def connect() -> duckdb.DuckDBPyConnection:
    """DuckDB with nulls where something is divided by zero, as we have it."""
    connection = duckdb.connect()
    connection.execute("SET ieee_floating_point_ops = false")
    connection.execute("SET error_on_division_by_zero = false")
    connection.execute("SET threads = 1")
    # Each query reads a few hundred rows: to plan it well takes longer than it saves.
    connection.execute("PRAGMA disable_optimizer")
    return connection


CONDITIONS = (
    "v > 2",
    "i <= 3",
    "b",
    "NOT b",
    "k IN ('a', 'dd')",
    "k IS NULL",
    "j <> 'x' OR i = 2",
    "v BETWEEN 0 AND 4.5 AND NOT k = 'b'",
    "upper(k) = 'C'",
    "coalesce(i, 0) % 2 = 0",
    "length(k) = 1",
    "f >= 8",
    "f < 3 OR d > 4.5",
    "d BETWEEN -1 AND 3.5",
    "req.n > 1",
    "req.host = 'p' AND i > 0",
)
KEYS = (
    Text.of("k"),
    Text.of("j"),
    Text.of("b"),
    Text.of("i"),
    Text.of("upper(k)"),
    Text.of("i % 3"),
    Text.of("CASE WHEN v > 2 THEN 'big' WHEN v IS NULL THEN 'none' ELSE 'small' END"),
    Text.of("minute(ts)"),
    Text.of("hour(ts)"),
    Text.of("k || '-' || j"),
    Text("concat(j, k)", "j || k"),
    Text(
        "date_trunc('minute', ts) > TIMESTAMP '2026-03-01 12:00:00'",
        "date_trunc('minute', ts) > TIMESTAMP '2026-03-01 12:00:00'",
    ),
    Text.of("substring(k, 1, 1)"),
    Text.of("coalesce(j, k, '?')"),
    Text.of("req.host"),
    Text.of("d > 3"),
    Text.of("req.n % 2 = 0"),
    Text("size(tags)", "len(tags)"),
    Text("array_contains(tags, 'x')", "list_contains(tags, 'x')"),
)
JOINED_KEYS = (Text.of("r.room"), Text.of("upper(r.room)"), Text.of("r.weight > 1"))
NUMBERS = (
    "i",
    "v",
    "i + v",
    "v * 2",
    "i - 1",
    "abs(i)",
    "CASE WHEN b THEN v ELSE 0.5 END",
    "req.n",
    "req.n * v",
)
WINDOWS = ((60, 60), (600, 600), (90, 90), (120, 60), (100, 40), (30, 50), (3600, 3600))
"""Lengths and steps, in seconds."""
EXACT, ANY = 8, 12
"""How many aggregates the questions about one table are made of."""


class Questions:
    """Draws questions about one table."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self._exact = [self._new_exact() for _ in range(EXACT)]
        self._any = [self._new() for _ in range(ANY)]

    def window(self) -> tuple[str, int, int]:
        size, slide = self.dice.choice(WINDOWS)
        if size == slide:
            return f"window(ts, '{size} seconds')", size, slide
        return f"window(ts, '{size} seconds', '{slide} seconds')", size, slide

    def exact(self) -> Text:
        """An aggregate that both compute to the last bit."""
        return self.dice.choice(self._exact)

    def any(self) -> Text:
        """Any aggregate of a number."""
        return self.dice.choice(self._any)

    def _new_exact(self) -> Text:
        number = self.dice.choice(NUMBERS)
        function = self.dice.choice(["sum", "avg", "min", "max", "count"])
        text = self.dice.choice([f"{function}({number})", "count(*)", f"{function}({number})"])
        return self._filtered(Text.of(text))

    def alone(self) -> Text:
        """An aggregate of decimals, of NaN or of texts, that stands by itself."""
        dice = self.dice
        column = dice.choice(["d", "d * 2", "d + i", "CASE WHEN b THEN d END"])
        drawn = dice.choice(
            [
                Text.of(f"{dice.choice(['sum', 'min', 'max', 'count'])}({column})"),
                Text.of("count(DISTINCT d)"),
                Text.of(f"{dice.choice(['sum', 'avg', 'min', 'max', 'count'])}(f)"),
                Text.of(f"{dice.choice(['min', 'max'])}({dice.choice(['k', 'req.host', 'ts'])})"),
                Text("max_by(i, ts)", "arg_max_null(i, ts)"),
                Text("min_by(i, ts)", "arg_min_null(i, ts)"),
                Text("sum(size(tags))", "sum(len(tags))"),
                Text.of("bool_and(b)"),
                Text.of("bool_or(i > 3)"),
            ]
        )
        return self._filtered(drawn)

    def _new(self) -> Text:
        number, dice = self.dice.choice(NUMBERS), self.dice
        if dice.random() < 0.5:
            return self.exact()
        share = dice.choice(["0.5", "0.25", "0.9", "0", "1"])
        down = dice.choice(["", " DESC"])
        column = dice.choice(["k", "i", "v", "j"])
        condition = dice.choice(CONDITIONS)
        drawn = dice.choice(
            [
                Text.of(f"count(DISTINCT {column})"),
                Text.of(f"sum(DISTINCT {number})"),
                Text.of(f"avg(DISTINCT {number})"),
                Text.of(f"median({number})"),
                Text.of(f"stddev_samp({number})"),
                Text.of(f"var_pop({number})"),
                Text(f"percentile({number}, {share})", f"quantile_cont({number}, {share})"),
                Text.of(f"percentile_cont({share}) WITHIN GROUP (ORDER BY {number}{down})"),
                Text.of(f"percentile_disc({share}) WITHIN GROUP (ORDER BY {number}{down})"),
                Text(
                    "count(DISTINCT k, i)",
                    "count(DISTINCT CASE WHEN k IS NOT NULL AND i IS NOT NULL THEN (k, i) END)",
                ),
            ]
        )
        if dice.random() < 0.1:
            return Text(f"count_if({condition})", f"count(*) FILTER (WHERE {condition})")
        return self._filtered(drawn)

    def _filtered(self, text: Text) -> Text:
        if self.dice.random() < 0.7:
            return text
        tail = f" FILTER (WHERE {self.dice.choice(CONDITIONS)})"
        return Text(text.ours + tail, text.theirs + tail)

    def expression(self, exact: bool, depth: int = 2) -> Text:
        """A number made of aggregates."""
        dice = self.dice
        kind = dice.randrange(9) if depth else 0
        one = self.exact() if exact else self.any()
        if kind < 3:
            return one
        # What is compared must be equal to the last bit, or a rounding decides the answer.
        compared = kind in (6, 7)
        a = self.expression(exact or compared, depth - 1)
        b = self.expression(exact or kind == 7, depth - 1)
        form = {
            3: "({a} / {b})",
            4: "({a} + {b} * 2)",
            5: "coalesce({a}, {b}, -1)",
            6: "CASE WHEN {a} > 2 THEN {b} ELSE -0.5 END",
            7: "nullif({a}, {b})",
            8: "abs({a} - {b})" if exact else "round({a}, 2)",
        }[kind]
        if form.startswith("round") and exact is False:
            a = self.exact()
        return Text(form.format(a=a.ours, b=b.ours), form.format(a=a.theirs, b=b.theirs))

    def condition(self) -> Text:
        a, b = self.expression(True, 1), self.expression(True, 1)
        form = self.dice.choice(
            ["{a} > 1", "{a} <= {b}", "{a} IS NOT NULL AND {b} < 5", "NOT ({a} = 0) OR {b} > 3"]
        )
        return Text(form.format(a=a.ours, b=b.ours), form.format(a=a.theirs, b=b.theirs))

    def question(self) -> Question:
        """A query, in both dialects."""
        return _over_results(self) if self.dice.random() < 0.12 else _over_events(self)


def _over_results(draw: Questions) -> Question:
    """A query over the results of another, at the last moment of each window."""
    dice = draw.dice
    call, size, slide = draw.window()
    keys = {f"key{n}": text for n, text in enumerate(dice.sample(KEYS[:7], dice.choice([1, 1, 2])))}
    values = {f"c{n}": draw.exact() for n in range(2)}
    having = draw.condition() if dice.random() < 0.3 else None
    where = dice.choice(CONDITIONS) if dice.random() < 0.3 else None
    texts = [f"{text.ours} AS {name}" for name, text in keys.items()]
    inner = " ".join(
        [
            "SELECT " + ", ".join([*texts, *_named(values, "ours")]) + " FROM events",
            f"WHERE {where}" if where else "",
            f"GROUP BY {', '.join(keys)}, {call}",
            f"HAVING {having.ours}" if having else "",
        ]
    )
    theirs = _theirs(keys, values, where, having, "", size, slide)
    length = dice.choice([600, 3600])
    kept = ["key0"] if dice.random() < 0.5 else []
    functions = dice.sample(
        ["max(c0)", "min(c1)", "count(*)", "avg(c0)", "count(c1)", "sum(c0 * 2)"], 2
    )
    outer = [f"{text} AS o{n}" for n, text in enumerate(functions)]
    above = "WHERE c0 > 1" if dice.random() < 0.3 else ""
    listed = ", ".join([*kept, *outer])
    window = f"window(window_time, '{length} seconds')"
    bounds = f"w AS window_start, w + to_seconds({length}) AS window_end"
    moment = "window_end - INTERVAL 1 microsecond"
    start = f"time_bucket(to_seconds({length}), {moment}, TIMESTAMP '1970-01-01')"
    return Question(
        f"SELECT {listed} FROM ({inner}) AS inside {above} GROUP BY {', '.join([*kept, window])}",
        f"SELECT {', '.join([*kept, bounds, *outer])} "
        f"FROM (SELECT *, {start} AS w FROM ({theirs})) {above} GROUP BY {', '.join([*kept, 'w'])}",
        tuple(kept),
    )


def _over_events(draw: Questions) -> Question:
    dice = draw.dice
    call, size, slide = draw.window()
    join = dice.choice(["JOIN", "LEFT JOIN"]) if dice.random() < 0.15 else ""
    chosen = dice.sample(KEYS, dice.choice([0, 1, 1, 2, 3]))
    if join:
        chosen = [dice.choice(JOINED_KEYS), *chosen[:1]]
    keys = {f"key{n}": text for n, text in enumerate(chosen)}
    values = {f"c{n}": draw.expression(False) for n in range(dice.randint(1, 3))}
    if join and dice.random() < 0.5:
        values["c9"] = Text.of("sum(r.weight * v)")
    if dice.random() < 0.4:
        values["c8"] = draw.alone()
    having = draw.condition() if dice.random() < 0.4 else None
    where = dice.choice(CONDITIONS) if dice.random() < 0.4 else None
    sets = dice.choice(["ROLLUP", "CUBE", "GROUPING SETS"]) if keys and dice.random() < 0.3 else ""
    order = [(draw.expression(True, 1), *_direction(dice)) for _ in range(dice.randint(1, 2))]
    limit = dice.randint(1, 3) if keys and dice.random() < 0.3 else None

    texts = [(f"{text.ours} AS {name}", text.ours) for name, text in keys.items()]
    # The parser takes columns and calls in sets of keys, and no operators.
    grouped = [
        name if sets else dice.choice([text, name])
        for (_, text), name in zip(texts, keys, strict=True)
    ]
    if not sets and keys and dice.random() < 0.3:
        grouped = [str(number) for number in range(1, len(keys) + 1)]
    mine = [
        "SELECT " + ", ".join([*(item for item, _ in texts), *_named(values, "ours")]),
        f"FROM events {join} rooms AS r USING (k)" if join else "FROM events",
        f"WHERE {where}" if where else "",
        "GROUP BY " + ", ".join(part for part in (_listed(sets, grouped), call) if part),
        f"HAVING {having.ours}" if having else "",
    ]
    if limit is not None:
        mine.append("ORDER BY " + ", ".join(f"{t.ours} {d} {n}" for t, d, n in order))
        mine.append(f"LIMIT {limit}")
    theirs = _theirs(keys, values, where, having, sets, size, slide, join)
    if limit is not None:
        ties = ["grouping_id"] if sets else []
        by = [f"{t.theirs} {d} {n}" for t, d, n in order]
        places = "grouping_id_of" if sets else ""
        ranked = [*by, *([places] if places else []), *(f"{n} NULLS FIRST" for n in keys)]
        theirs = _ranked(theirs, ranked, limit, list(keys), list(values), ties, sets)
    return Question(
        " ".join(part for part in mine if part),
        theirs,
        (*keys, *(["grouping_id"] if sets else [])),
    )


def _listed(sets: str, keys: list[str]) -> str:
    """The keys as GROUP BY has them, with sets of keys if there are some."""
    every = ", ".join(keys)
    if sets == "GROUPING SETS":
        fewer = keys[0] if len(keys) > 1 else ""
        return f"GROUPING SETS (({every}), ({fewer}))"
    return f"{sets}({every})" if sets else every


def _direction(dice: Random) -> tuple[str, str]:
    return dice.choice(["ASC", "DESC"]), dice.choice(["NULLS FIRST", "NULLS LAST"])


def _named(values: dict[str, Text], side: str) -> list[str]:
    return [f"{getattr(text, side)} AS {name}" for name, text in values.items()]


def _window_table(size: int, slide: int) -> str:
    return f"in_windows_{size}_{slide}"


def _windows(size: int, slide: int) -> str:
    """Each event once for every window that it is in, with the window's bounds."""
    top = f"time_bucket(to_seconds({slide}), ts, TIMESTAMP '1970-01-01')"
    numbered = f"SELECT *, unnest(generate_series(0, {-(-size // slide)})) AS number FROM events"
    placed = f"SELECT *, {top} - to_seconds({slide} * number) AS window_start FROM ({numbered})"
    return (
        f"(SELECT *, window_start + to_seconds({size}) AS window_end FROM ({placed}) "
        f"WHERE ts < window_start + to_seconds({size}))"
    )


def _theirs(
    keys: dict[str, Text],
    values: dict[str, Text],
    where: str | None,
    having: Text | None,
    sets: str,
    size: int,
    slide: int,
    join: str = "",
) -> str:
    named = [f"{text.theirs} AS {name}" for name, text in keys.items()]
    inner = _window_table(size, slide)
    if join:
        inner += f" {join} rooms AS r USING (k)"
    if named:
        inner = f"(SELECT *, {', '.join(named)} FROM {inner}) AS r"
    listed = ", ".join(keys)
    grouping = _listed(sets, list(keys))
    groups = ", ".join(part for part in (grouping, "window_start", "window_end") if part)
    more = [f"grouping({listed}) AS grouping_id"] if sets else []
    selected = [*keys, "window_start", "window_end", *_named(values, "theirs"), *more]
    return " ".join(
        [
            f"SELECT {', '.join(selected)} FROM {inner}",
            f"WHERE {where}" if where else "",
            f"GROUP BY {groups}",
            f"HAVING {having.theirs}" if having else "",
        ]
    )


def _ranked(
    text: str,
    by: list[str],
    limit: int,
    keys: list[str],
    values: list[str],
    ties: list[str],
    sets: str,
) -> str:
    """The first rows of each window."""
    listed = ", ".join(keys)
    order = ", ".join(f"grouping({listed})" if part == "grouping_id_of" else part for part in by)
    place = f"row_number() OVER (PARTITION BY window_start, window_end ORDER BY {order}) AS place"
    head, tail = text.split(" FROM ", 1)
    shown = ", ".join([*keys, "window_start", "window_end", *values, *ties])
    return f"SELECT {shown} FROM ({head}, {place} FROM {tail}) WHERE place <= {limit}"
