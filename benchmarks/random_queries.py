"""Random queries that differ in everything that queries can differ in; the same for every seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import catchment as ct
from catchment import functions
from catchment.model.window import Window

COLUMNS = 20
"""Columns to group by (`k0`, ...), and as many numbers (`v0`, ...) to aggregate and to compare."""
SITES = 20_000
"""Constants that a text column is compared with."""
LEVELS = 1_000
"""Values that the bounds of ranges are drawn from."""

_FUNCTIONS = (
    *("sum", "count", "avg", "min", "max", "range", "first", "last", "product", "geometric_mean"),
    *("variance", "variance_pop", "stddev", "stddev_pop", "median", "mode", "count_distinct"),
    *("approx_count_distinct", "approx_median"),
)
_WINDOWS: tuple[Callable[[random.Random], Window], ...] = (
    lambda draw: ct.tumbling(f"{draw.randint(1, 86_400)}s"),
    lambda draw: ct.sliding(*_multiple(draw, 60)),
    lambda draw: ct.cumulate(*_multiple(draw, 24)),
    lambda draw: ct.fixed(begin := draw.randint(0, 10**9), begin + draw.randint(1, 10**9)),
    lambda draw: ct.session(f"{draw.randint(1, 3_600)}s"),
    lambda draw: ct.cut(f"v{draw.randrange(COLUMNS)} > {draw.randint(0, LEVELS)}"),
    lambda draw: ct.between(f"v{draw.randrange(COLUMNS)} > {draw.randint(0, LEVELS)}", "done"),
    lambda draw: ct.count_tumbling(draw.randint(1, 1_000_000)),
    lambda draw: ct.count_sliding(draw.randint(2, 1_000_000), draw.randint(1, 1_000)),
)


def _multiple(draw: random.Random, most: int) -> tuple[str, str]:
    """A duration, and one that goes into it."""
    step = draw.randint(1, 3_600)
    return f"{step * draw.randint(1, most)}s", f"{step}s"


def random_queries(number: int, seed: int = 1) -> Iterator[ct.Query]:
    """So many queries, no two of which compute the same."""
    draw = random.Random(seed)
    seen: set[int] = set()
    while len(seen) < number:
        query = _query(f"query {len(seen)}", draw)
        identity = hash(query.identity)
        if identity not in seen:
            seen.add(identity)
            yield query


def _query(name: str, draw: random.Random) -> ct.Query:
    keys = sorted(draw.sample(range(COLUMNS), draw.randint(0, 3)))
    return ct.Query(
        name,
        functions.make(draw.choice(_FUNCTIONS), f"v{draw.randrange(COLUMNS)}", ()),
        by=[f"k{key}" for key in keys],
        where=_condition(draw),
        window=draw.choice(_WINDOWS)(draw),
        measure=draw.choice(("event", "processing")),
    )


def _condition(draw: random.Random) -> str | None:
    """No condition for a fifth of the queries; for the others one comparison, or several."""
    if draw.random() < 0.2:
        return None
    return " AND ".join(draw.choice(_CONDITIONS)(draw) for _ in range(draw.choice((1, 1, 2, 3))))


def _range(draw: random.Random) -> str:
    column, low = f"v{draw.randrange(COLUMNS)}", draw.randint(0, LEVELS)
    return f"{column} >= {low} AND {column} < {low + draw.randint(1, LEVELS)}"


def _among(draw: random.Random) -> str:
    sites = ", ".join(f"'x{draw.randrange(SITES)}'" for _ in range(3))
    return f"site IN ({sites})"


_CONDITIONS: tuple[Callable[[random.Random], str], ...] = (
    lambda draw: f"site = 'x{draw.randrange(SITES)}'",
    lambda draw: f"k{draw.randrange(COLUMNS)} = 'y{draw.randrange(SITES)}'",
    _range,
    lambda draw: f"v{draw.randrange(COLUMNS)} > {draw.randint(0, LEVELS)}",
    _among,
)
