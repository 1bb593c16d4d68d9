"""Events chosen from a batch, which groups of one condition share, and grids that times lie on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import catchment as ct
from catchment.engine.batch import Batch, Chosen
from catchment.operators.base import InputForm
from catchment.operators.ragged import Array
from catchment.operators.values import ColumnValues
from catchment.testing import assert_same, oracle

EVENTS = 200


def batch() -> Batch:
    """Events out of order, some without a value."""
    source = np.random.default_rng(7)
    values = source.normal(size=EVENTS)
    table = pa.table(
        {
            "k": pa.array([f"key {number % 7}" for number in range(EVENTS)]),
            "n": pa.array(source.integers(0, 9, EVENTS)),
            "v": pa.array(values, mask=values > 1.5),
        }
    )
    return Batch(table, source.integers(-5_000, 5_000, EVENTS), 1_000)


def meant(column: ColumnValues) -> Array:
    """The values, or what their ranks stand for."""
    return column.values if column.levels is None else column.levels[column.values]


ROWS = np.array([3, 5, 8, 13, 150, 21, 199, 21])


@pytest.mark.parametrize("text", ["v", "n", "k", "v * n"])
@pytest.mark.parametrize("reads", ["values", "doubles", "hashes"])
def test_columns_of_some_events_are_those_of_the_batch(text: str, reads: InputForm) -> None:
    whole, some = batch(), batch().some(ROWS)
    if text == "k" and reads == "doubles":
        reads = "values"
    made, wanted = some.column(text, reads), whole.column(text, reads).take(ROWS)
    assert np.array_equal(meant(made), meant(wanted))
    assert (made.valid is None) == (wanted.valid is None)
    assert made.valid is None or np.array_equal(made.valid, wanted.valid)
    assert some.column(text, reads) is made


def test_some_events_have_the_keys_times_and_arrivals_of_the_batch() -> None:
    whole = batch()
    some = whole.some(ROWS)
    keys, wanted = some.keys(("k", "n")), whole.keys(("k", "n"))
    assert keys.codes is not None and wanted.codes is not None
    assert np.array_equal(keys.codes, wanted.codes[ROWS]) and keys.count == wanted.count
    assert np.array_equal(some.times, whole.times[ROWS])
    assert some.arrivals_at(None).tolist() == (1_000 + ROWS).tolist()
    assert some.arrivals_at(np.array([1, 4])).tolist() == [1_005, 1_150]
    assert some.array("n + 1").to_pylist() == whole.array("n + 1").take(pa.array(ROWS)).to_pylist()
    assert some.read("k").to_pylist() == whole.read("k").take(pa.array(ROWS)).to_pylist()
    again = some.some(np.array([6, 0]))
    assert np.array_equal(again.column("n").values, whole.column("n").values[[199, 3]])


def test_groups_of_one_condition_share_its_events() -> None:
    whole = batch()
    chosen = whole.chosen(("n > 3",))
    events = whole.of(chosen)
    assert whole.of(whole.chosen(("n > 3",))) is events
    assert len(whole.of(whole.chosen(("n > 4",)))) < len(events)
    assert whole.of(Chosen(None, None)) is whole


@pytest.mark.parametrize("units", [(100, 10, 50), (7, 100, 14), (10, 1, 5), (3, 5, 7, 11, 13, 6)])
def test_cells_of_a_grid_lie_between_its_lines(units: tuple[int, ...]) -> None:
    events = batch()
    for unit in units:
        grid = events.grid(unit)
        assert grid is not None and unit % grid.unit == 0
        begin = grid.lines[grid.cells]
        assert (begin <= events.times).all() and (events.times < begin + grid.unit).all()


def test_there_is_no_grid_of_far_more_cells_than_events() -> None:
    far = Batch(pa.table({}), np.array([0, 1 << 40]), 0)
    assert far.grid(1) is None and far.grid(1 << 39) is not None


def test_sessions_of_several_gaps_are_fused_from_the_shortest() -> None:
    source = np.random.default_rng(11)
    times = np.cumsum(source.choice([1, 2, 4, 9, 30, 90], 400)) * 1_000_000
    columns = {"k": [f"{n % 3}" for n in range(400)], "v": list(range(400))}
    table = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC"))} | columns)
    queries = [
        ct.Query(f"gap {gap}", ct.count(), ct.sum("v"), by="k", window=ct.session(f"{gap}s"))
        for gap in (50, 5, 20, 100)
    ]
    engine = ct.Engine(queries)
    assert len(engine.plan.groups) == 1
    found: dict[str, list[pa.Table]] = {query.name: [] for query in queries}
    for begin in range(0, 400, 50):
        engine.push(table.slice(begin, 50).take(pa.array(source.permutation(50))))
        rest = times[begin + 50 :]
        results = engine.advance(int(rest.min())) if len(rest) else engine.close()
        for name in found:
            found[name].append(results[name])
    truth = oracle(queries, table.to_pylist())
    for name, tables in found.items():
        assert_same(truth[name], pa.concat_tables(tables), name)
