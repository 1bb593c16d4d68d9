"""Streams whose slicers do not know the frontier: what comes too late is found where windows are
assembled, and changes nothing that was given."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.engine.bound import BoundPlan
from catchment.engine.partials import joined_partials
from catchment.engine.slicer import rank
from catchment.model.rules import EventRules
from catchment.planner import plan
from catchment.testing.compare import assert_same
from catchment.testing.oracle import oracle

SECOND = 1_000_000
SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("k", pa.string()), ("v", pa.int64())])
WINDOWS: dict[str, tuple[Any, int]] = {
    # In seconds, how long the slices are that the window is made of; 0: events are cut one by one.
    "tumbling": (ct.tumbling("4s"), 4),
    "sliding": (ct.sliding("6s", "3s"), 3),
    "session": (ct.session("2s"), 2),
    "counted": (ct.count_tumbling(3), 0),
    "marked": (ct.cut("v = 0"), 0),
}
ROW = st.tuples(st.integers(0, 40), st.sampled_from("ab"), st.integers(0, 3))


def is_late(time: int, width: int, frontier: int | None) -> bool:
    if frontier is None:
        return False
    return time < frontier if not width else time // width * width + width <= frontier


@given(
    st.sampled_from(sorted(WINDOWS)),
    st.lists(st.lists(ROW, min_size=1, max_size=8), min_size=1, max_size=8),
    st.integers(0, 8),
    st.integers(1, 3),
)
def test_what_is_late_changes_nothing_that_was_given(
    name: str, batches: list[list[tuple[int, str, int]]], lateness: int, splits: int
) -> None:
    window, width = WINDOWS[name]
    query = ct.Query("q", ct.count(), ct.sum("v"), by="k", window=window)
    bound = BoundPlan(plan([query]), EventRules("ts"), SCHEMA, census=True, late_by_slice=True)
    assembler = bound.assembler()
    frontier: int | None = None
    newest = 0
    accepted: list[dict[str, Any]] = []
    late = found_late = 0
    given: list[pa.Table] = []
    for number, batch in enumerate(batches):
        parts = []
        for split in range(splits):
            mine = batch[split::splits]
            table = pa.table(
                [[t * SECOND for t, _, _ in mine], [k for _, k, _ in mine], [v for *_, v in mine]],
                schema=SCHEMA,
            )
            merger = bound.merger(split)
            slicer = bound.slicer(encoder=merger.encoder)
            for sliced in slicer.slice(table, arrival=rank(split, number * 100)):
                merger.add(sliced)
            parts.append(merger.take(split))
            for t, k, v in mine:
                if is_late(t, width, frontier):
                    late += 1
                else:
                    # Events of one time come in the order of their splits, then of arrival.
                    place = (split, number, len(accepted))
                    accepted.append({"ts": t * SECOND, "k": k, "v": v, "place": place})
        partials, some = assembler.on_time(joined_partials(parts))
        found_late += some
        newest = max(newest, *(t for t, _, _ in batch))
        frontier = newest - lateness
        assembler.absorb(partials, newest * SECOND)
        given.append(assembler.advance(frontier * SECOND)["q"])
        assembler = bound.assembler(assembler.save())
    assert found_late == late
    given.append(assembler.close()["q"])
    accepted.sort(key=lambda row: row.pop("place"))
    assert_same(oracle([query], accepted)["q"], pa.concat_tables(given), name, keys=["k"])
