"""What property tests found once, in the smallest form they found it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

import numpy as np
import pyarrow as pa

import catchment as ct
from catchment.engine.partials import Partials
from catchment.engine.rows import identity_fields
from catchment.operators import OperatorRef, operator_class
from catchment.planner import replan
from catchment.testing.compare import assert_same
from catchment.testing.oracle import oracle
from catchment.tree.completeness import marked


def events(*rows: tuple[int, float | None], **more: list[object]) -> pa.Table:
    times, values = zip(*rows, strict=True) if rows else ((), ())
    columns: dict[str, object] = {
        "ts": pa.array(times, pa.timestamp("us", "UTC")),
        "v": pa.array(values, pa.float64()),
    }
    return pa.table(columns | more)


def test_a_late_event_corrects_at_the_end_of_input_too() -> None:
    """The horizon moves with the frontier, past the window, before the late event was seen."""
    query = ct.Query("q", ct.sum("v"), window=ct.tumbling("1us"))
    engine = ct.Engine([query], late="update", keep="3us")
    engine.push(events())
    engine.advance(1)
    engine.push(events((0, 5.0)))
    assert engine.close()["q"].column("sum(v)").to_pylist() == [5.0]


def test_a_fixed_window_has_no_successor() -> None:
    """A late event after the one window must not bring up the window that would follow it."""
    query = ct.Query("q", ct.count(), window=ct.fixed(5, 8))
    engine = ct.Engine([query], late="update", keep="100us")
    engine.push(events((5, 1.0)))
    engine.advance(20)
    engine.push(events((9, 1.0)))
    assert engine.advance(30)["q"].num_rows == 0


def test_the_empty_text_is_a_distinct_value() -> None:
    """A sketch passes over the empty text unless it is told otherwise."""
    query = ct.Query("q", ct.approx_count_distinct("s"), window=ct.tumbling("10us"))
    engine = ct.Engine([query])
    engine.push(events((1, 1.0), (2, 1.0), s=["", "x"]))
    assert engine.close()["q"].column(2).to_pylist() == [2]


def test_identity_fields_hold_only_the_operators_of_the_group() -> None:
    """A count that the sort stands in for is read on the way, and must not be kept."""
    refs = [OperatorRef("sort", "v"), OperatorRef("sum", "v"), OperatorRef("squares", "v")]
    operators = {ref.id: operator_class(ref.kind)(ref, pa.float64()) for ref in refs}
    names = {"sort(v).run", "sum(v).total", "squares(v).squares"}
    assert set(identity_fields(operators, 2)) == names


def test_partials_without_rows_keep_their_key_columns() -> None:
    query = ct.Query("q", ct.count(), by=["s"], where="v > 9", window=ct.count_tumbling(2))
    plan = ct.plan([query])
    table = ct.slice(events((1, 1.0), s=["x"]), plan).groups[0]
    assert table.num_rows == 0 and table.schema.field("key s").type == pa.string()


def test_sorting_no_values_at_all() -> None:
    ref = OperatorRef("sort", "v")
    operators = {ref.id: operator_class("sort")(ref, pa.float64())}
    assert len(identity_fields(operators, 0)["sort(v).run"]) == 0
    assert np.array_equal(identity_fields(operators, 2)["sort(v).run"].offsets, [0, 0, 0])  # type: ignore[union-attr]


def test_partials_of_late_events_are_not_taken_for_copies() -> None:
    """Events in order and late ones are sliced apart: one stamp must not hold a slice twice."""
    query = ct.Query("q", ct.sum("v"), window=ct.tumbling("10us"))
    plan = ct.plan([query])
    parts = ct.slice(events((1, 1.0), (15, 2.0), (2, 4.0), (16, 8.0)), plan)
    assert parts.groups[0].num_rows == 2
    results = ct.assemble(ct.merge([parts, parts], plan), None, plan)
    assert results["q"].column("sum(v)").to_pylist() == [5.0, 10.0]


def test_a_query_added_before_the_first_event_has_missed_none() -> None:
    """It joins a group whose marks are followed; its first window counts like any other."""
    old = ct.Query("old", ct.count(), window=ct.cut("v > 1"))
    new = ct.Query("new", ct.count(), window=ct.between("v > 1", "v > 1"))
    stream = events((1, 2.0), (2, 0.0), (3, 2.0), (4, 0.0))
    engine = ct.Engine([old], schema=stream.schema)
    engine.add(new)
    engine.push(stream)
    fresh = ct.Engine([old, new])
    fresh.push(stream)
    assert engine.close()["new"] == fresh.close()["new"]


def test_duplicates_are_dropped_by_the_clock_where_windows_go_by_it() -> None:
    """Events that came as partials were at their own times, in windows of 1970."""
    query = ct.Query(
        "q",
        ct.count().alias("n"),
        window=ct.tumbling("1h"),
        measure="processing",
        distinct_on="v",
        distinct_within="10s",
    )
    plan = ct.plan([query])
    given = events((1_000_000, 1.0), (2_000_000, 1.0), (700_000_000, 2.0))
    found = ct.assemble(ct.slice(given, plan), None, plan)["q"]
    assert sum(found.column("n").to_pylist()) == 2
    assert min(found.column("window_start").cast(pa.int64()).to_pylist()) > 10**15


def test_open_windows_of_a_query_that_left_are_not_counted() -> None:
    """The fourth and fifth event begin a window that nobody asks for any more."""
    query = ct.Query("q", ct.sum("v"), window=ct.count_tumbling(3))
    other = ct.Query("other", ct.sum("v"), window=ct.tumbling("1s"))
    engine = ct.Engine([query, other])
    engine.push(events((1, 1.0), (2, 1.0), (3, 1.0)))
    engine.remove("q")
    engine.push(events((4, 1.0), (5, 1.0)))
    assert engine.close(incomplete="emit")["other"].num_rows == 1
    assert engine.stats.open_windows == engine.stats.open_events == 0


def test_events_read_by_an_older_plan_lack_what_a_newer_one_needs() -> None:
    """A node held events of a query without duplicates back while a query came for other values."""
    options = {"window": ct.tumbling("10us"), "distinct_on": "id", "distinct_within": "5us"}
    first = ct.Query("first", ct.sum("v").alias("n"), **options)
    later = ct.Query("later", ct.sum("w").alias("n"), **options)
    given = events((1, 1.0), (2, 2.0), (12, 4.0), id=[1, 1, 2], w=[1, 2, 4])
    bound = ct.Engine([first], schema=given.schema).bound
    slicer, merger, assembler = bound.slicer(), bound.merger(), bound.assembler()
    for sliced in slicer.slice(given):
        merger.add(sliced)
    assembler.absorb(Partials(), merger.newest)
    plan, lineage = replan(bound.plan, [first, later])
    for part in (merger, assembler):
        part.follow(bound.follow(plan), lineage)
    assembler.absorb(merger.take())
    slicer.follow(assembler.bound)
    for sliced in slicer.slice(events((21, 8.0), id=[3], w=[8]), arrival=3):
        merger.add(sliced)
    assembler.absorb(merger.take())
    found = assembler.close()
    assert found["first"].column("n").to_pylist() == [1.0, 4.0, 8.0]
    assert found["later"].column("n").to_pylist() == [8]


class Fleeting(Mapping[str, pa.Table]):
    """Results whose tables are made when they are asked for, and forgotten at once."""

    def __getitem__(self, name: str) -> pa.Table:
        return pa.table({"window_end": pa.array([int(name)], pa.timestamp("us", "UTC"))})

    def __iter__(self) -> Iterator[str]:
        return map(str, range(1000))

    def __len__(self) -> int:
        return 1000


def test_no_query_gets_the_table_of_another() -> None:
    """A root told tables apart by their addresses, which those that are gone leave to others."""
    found = marked(Fleeting(), 5000, [])
    for name, table in found.items():
        assert table.column("window_end").cast(pa.int64()).to_pylist() == [int(name)]


def test_windows_without_events_between_slices_of_very_many_keys() -> None:
    """Windows that lie apart were all empty, and the slices between them held every key.

    ts   0  3         9          16  18     22
            e         []         e   []     e
    """
    keys = 2000
    engine = ct.Engine([ct.Query("rare", ct.sum("v"), by="k", window=ct.sliding("1us", "9us"))])
    for ts in (3, 16, 22):
        times = pa.array([ts] * keys, pa.timestamp("us", "UTC"))
        engine.push(pa.table({"ts": times, "k": range(keys), "v": [1.0] * keys}))
    assert not engine.close()


def test_spreads_of_decimals_are_those_of_doubles() -> None:
    """The oracle told 2^62 and 2^62 + 0.25 apart, which doubles cannot, and Spark does not."""
    values = [Decimal(2**62), Decimal(2**62) + Decimal("0.25")]
    rows = [{"ts": ts, "w": value} for ts, value in enumerate(values)]
    query = ct.Query("q", ct.variance("w").alias("n"), window=ct.tumbling("10us"))
    engine = ct.Engine([query])
    engine.push(
        pa.table({"ts": pa.array([0, 1], pa.timestamp("us", "UTC")), "w": pa.array(values)})
    )
    assert_same(oracle([query], rows)["q"], engine.close()["q"])
