"""Rolling values against brute force: every step is computed, and compared with the one before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.simulate import World
from catchment.testing.compare import assert_same, rows_of
from catchment.testing.oracle_functions import aggregate
from small_tables import examples, table
from trees import SECOND, batches, charter, final

Row = dict[str, Any]
MADE = (ct.sum("v").alias("s"), ct.count("v").alias("n"), ct.max("v").alias("most"))


def brute(rows: Sequence[Row], length: int, step: int) -> list[Row]:
    """The values of each key as of each step at which they are not those of the step before."""
    out: list[Row] = []
    for key in sorted({row["k"] for row in rows}):
        mine = sorted((row for row in rows if row["k"] == key), key=lambda row: int(row["ts"]))
        before: Row | None = None
        first, last = mine[0]["ts"] // step, (mine[-1]["ts"] + length) // step + 1
        for at in range(first * step, (last + 1) * step, step):
            inside = [row["v"] for row in mine if at - length <= row["ts"] < at]
            now = {a.label: aggregate(a.function, inside) for a in MADE} if inside else None
            if now != before:
                shown = now or dict.fromkeys(a.label for a in MADE)
                bounds = {"window_start": at - 2 * step, "window_end": at}
                out.append({"k": key, **bounds, **shown})
            before = now
    return out


def check(rows: Sequence[Row], queries: Mapping[int, ct.Query], found: Any, step: int) -> None:
    for length, query in queries.items():
        assert_same(brute(rows, length, step), found[query.name], query.name, keys=["k"])


EVENTS = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from("ab"), st.none() | st.integers(-2, 2)),
    min_size=1,
    max_size=25,
)


@examples(0.4)
@given(EVENTS, st.sampled_from([1, 4, 5]), st.lists(st.integers(0, 25), max_size=2))
def test_given_where_a_value_changes(
    drawn: list[tuple[int, str, int | None]], step: int, cuts: list[int]
) -> None:
    rows = [{"ts": t, "k": k, "v": v} for t, k, v in drawn]
    lengths = [5, 12, 40]
    made = ct.rolling("r", *MADE, lookbacks=[f"{n}us" for n in lengths], step=f"{step}us", by="k")
    engine = ct.Engine(made, lateness="1s")
    for low, high in zip([0, *sorted(cuts)], [*sorted(cuts), len(rows)], strict=True):
        part = rows[low:high]
        engine.push(
            table(
                [row["ts"] for row in part],
                k=pa.array([row["k"] for row in part], pa.string()),
                v=pa.array([row["v"] for row in part], pa.int64()),
            )
        )
        engine = ct.Engine.restore(engine.snapshot())
    check(rows, dict(zip(lengths, made, strict=True)), engine.close(), step)


def test_the_last_row_is_the_value_as_of_now() -> None:
    """Given as soon as the frontier passes a step, and again only when something has changed."""
    (query,) = ct.rolling("load", ct.sum("v").alias("s"), lookbacks=["4s"], step="1s")
    assert query.name == "load_4s"
    engine = ct.Engine([query])
    engine.push(table([0, SECOND], v=[1, 2]))
    given = []
    for second in range(1, 10):
        out = rows_of(engine.advance(second * SECOND)["load_4s"])
        given += [(second, row["window_end"] // SECOND, row["s"]) for row in out]
    assert given == [(1, 1, 1), (2, 2, 3), (5, 5, 2), (6, 6, None)]


def test_in_a_tree() -> None:
    made = ct.rolling("r", *MADE, lookbacks=["2s", "5s"], step="1s", by="k")
    parents = {"root": None, "m": "root", "l0": "m", "l1": "m", "l2": "root"}
    events = {id: batches(n, 30) for n, id in enumerate(("l0", "l1", "l2"))}
    world = World(charter(parents, made), events, until=0)
    world.run()
    assert world.done
    rows = [row for tables in events.values() for one in tables for row in rows_of(one)]
    for length, query in zip((2, 5), made, strict=True):
        expected = brute(rows, length * SECOND, SECOND)
        found = final(world.deliveries, query.name)
        kept = [{name: row[name] for name in expected[0]} for row in found]
        seen = {(row["k"], row["window_end"]): row for row in kept}
        assert seen == {(row["k"], row["window_end"]): row for row in expected}


@pytest.mark.spark
def test_on_spark(spark: Any) -> None:
    pytest.importorskip("pyspark")
    made = ct.rolling("r", *MADE, lookbacks=["2s", "5s"], step="1s", by="k")
    events = pa.concat_tables(batches(3, 60))
    found = ct.run(events, made, spark=spark)
    queries = {n * SECOND: query for n, query in zip((2, 5), made, strict=True)}
    check(rows_of(events), queries, found, SECOND)


@pytest.mark.parametrize(
    ("made", "options", "told"),
    [
        ((), {"lookbacks": ["1h"], "step": "1s"}, "rolling values need an aggregate"),
        ((ct.count(),), {"lookbacks": [], "step": "1s"}, "rolling values need an aggregate"),
        ((ct.count(),), {"lookbacks": ["1s"], "step": "2s"}, "at least as long as a step"),
        ((ct.count(),), {"lookbacks": ["1s"], "step": "0s"}, "at least as long as a step"),
        ((ct.count(),), {"lookbacks": ["soon"], "step": "1s"}, "lookback"),
    ],
)
def test_what_is_refused(made: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ct.QueryError, match=told):
        ct.rolling("r", *made, **options)
