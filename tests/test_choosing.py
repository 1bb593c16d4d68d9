"""Many selections of a group are looked up together: with the same result as one by one."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.engine.batch import Batch
from catchment.engine.choosing import Chooser, ConditionSets
from catchment.testing.compare import assert_same
from catchment.testing.oracle import oracle

NUMBERS = [None, 0, 1, 2, 3, 4, 5, 7, 100, -3]
DOUBLES = [None, -0.0, 0.0, 1.0, 1.5, 2.0, 3.0, 4.9999, 5.0, math.nan, math.inf, -math.inf, 7.25]
TEXTS = [None, "a", "b", "c", "", "ä", "zz"]

SELECTIONS = [
    ("v < 0", "v = 0", "v > 0 AND v < 2", "v IN (2, 4)", "v > 2 AND v < 4", "v >= 5 AND v <> 7"),
    ("v <= 1", "v > 1 AND v <= 1.5", "v > 1.5 AND v < 5", "v >= 5"),
    ("v = 0", "v = 1.5", "v > 3 AND v < 4", "v = 100"),
    ("s = 'a'", "s IN ('b', 'ä')", "s = ''", "s > 'b' AND s < 'd'"),
    ("s = 'a'", "s = 'b' AND v > 1", "s = 'b' AND v <= 1", "s = 'c' OR s = 'zz'", "s IS NULL"),
    ("v < 3 AND v > 5", "v = 1", "v = 2 OR v > 9"),
]


def columns() -> list[pa.Table]:
    """Tables of a column v of numbers and a column s of texts, in many types."""
    numbers = [
        *(pa.array(NUMBERS, kind) for kind in (pa.int8(), pa.int64(), pa.decimal128(9, 2))),
        pa.array([None if n is None else abs(n) for n in NUMBERS], pa.uint64()),
        *(pa.array(DOUBLES, kind) for kind in (pa.float32(), pa.float64())),
        pa.array(DOUBLES, pa.float64()).dictionary_encode(),
    ]
    texts = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
    made = []
    for number, values in enumerate(numbers):
        some = pa.array([TEXTS[row % len(TEXTS)] for row in range(len(values))], pa.string())
        made.append(pa.table({"v": values, "s": some.cast(texts[number % len(texts)])}))
    return made


@pytest.mark.parametrize("selections", SELECTIONS, ids=lambda conditions: str(conditions[0]))
@pytest.mark.parametrize("table", columns(), ids=lambda table: str(table.schema.types))
def test_rows_meet_the_selections_whose_conditions_hold(
    table: pa.Table, selections: tuple[str | None, ...]
) -> None:
    batch = Batch(table, np.zeros(len(table), np.int64), 0)
    wanted = np.full(len(table), -1)
    for number, condition in enumerate(selections):
        wanted[slice(None) if condition is None else batch.mask(condition)] = number
    met = Chooser(selections).choose(len(table), batch.read, batch.mask)
    assert met.tolist() == wanted.tolist()


OVERLAPPING = (
    *("v < 0", "v > 0", "v >= 2", "v > 2 AND v < 5", "v IN (2, 4)", "v <> 7", "v > 1.5", "v <= 3"),
    *("v IS NULL", "v = 100", "s = 'a'", "v > 1 AND s < 'c'", "v > 3 OR s = 'b'", "s IS NULL"),
)


@pytest.mark.parametrize("some", [3, 9, len(OVERLAPPING)])
@pytest.mark.parametrize("table", columns(), ids=lambda table: str(table.schema.types))
def test_rows_meet_the_sets_of_conditions_that_hold(table: pa.Table, some: int) -> None:
    batch = Batch(table, np.zeros(len(table), np.int64), 0)
    conditions = OVERLAPPING[:some]
    sets, place = ConditionSets(conditions).of(len(table), batch.read, batch.mask)
    for bit, condition in enumerate(conditions):
        assert ((sets[place] >> bit & 1) == 1).tolist() == batch.mask(condition).tolist(), condition
    assert len(set(sets.tolist())) == len(sets) == len(set(place.tolist()))


@pytest.mark.parametrize("kind", ["texts", "ranges"])
def test_no_condition_is_evaluated_where_all_are_ranges_of_one_column(kind: str) -> None:
    texts = tuple(f"s = 'x{n}'" for n in range(1000))
    ranges = tuple(f"v >= {n} AND v < {n + 1}" for n in range(1000))
    table = pa.table({"v": np.arange(1000.0), "s": [f"x{n}" for n in range(1000)]})
    batch = Batch(table, np.zeros(1000, np.int64), 0)

    def never(condition: str) -> np.ndarray:
        raise AssertionError(condition)

    chooser = Chooser(texts if kind == "texts" else ranges)
    assert chooser.choose(1000, batch.read, never).tolist() == list(range(1000))


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 30)), min_size=1, max_size=60))
def test_a_group_of_many_selections_gives_what_its_queries_give(
    rows: list[tuple[int, int]],
) -> None:
    events = [{"ts": t * 1000, "v": float(v), "s": f"x{v}"} for t, v in sorted(rows)]
    times = pa.array([event["ts"] for event in events], pa.timestamp("us", "UTC"))
    table = pa.table({"ts": times} | {n: [event[n] for event in events] for n in ("v", "s")})
    window = ct.tumbling("1s")
    queries = [
        ct.Query(f"s{n}", ct.sum("v"), window=window, where=f"s = 'x{n}'") for n in range(12)
    ]
    queries += [
        ct.Query(f"v{n}", ct.sum("v"), window=window, where=f"v >= {n} AND v < {n + 3}")
        for n in range(0, 30, 3)
    ]
    engine = ct.Engine(queries)
    assert [len(group.selections) for group in engine.plan.groups] == [12, 10]
    engine.push(table)
    results = engine.close()
    for name, expected in oracle(queries, events).items():
        assert_same(expected, results[name], name)
