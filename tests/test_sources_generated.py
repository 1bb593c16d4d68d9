"""The generator as a source: the same events however they are split, batched or resumed."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from catchment.errors import QueryError
from catchment.generator import BLOCK, Generator
from catchment.sources import generated
from catchment.sources.generated import Generated
from source_reading import read_between, read_split


@settings(max_examples=settings.default.max_examples // 4)
@given(
    seed=st.integers(0, 1 << 40),
    late=st.sampled_from([(0.0, "1s"), (0.3, "900ms"), (1.0, "2s"), (0.01, "7s")]),
    gaps=st.sampled_from([None, ("1s", "300ms"), ("500ms", "5s")]),
    skip=st.integers(0, 6 * BLOCK),
    rows=st.integers(0, BLOCK),
)
def test_skipping_is_as_reading_on(
    seed: int, late: tuple[float, str], gaps: tuple[str, str] | None, skip: int, rows: int
) -> None:
    generator = Generator(seed=seed, late_share=late[0], late_by=late[1], gaps=gaps, keys=3)
    whole = generator.table(skip + rows)
    found = pa.Table.from_batches(generator.batches(10_000, rows, skip), generator.schema)
    assert found.equals(whole.slice(skip))


@settings(max_examples=settings.default.max_examples // 10)
@given(
    cuts=st.sets(st.integers(0, 100_000), max_size=4),
    parallel=st.integers(1, 5),
    streams=st.integers(1, 3),
    late_share=st.sampled_from([0.0, 0.2]),
)
def test_any_positions_and_splits_give_the_same_events(
    cuts: set[int], parallel: int, streams: int, late_share: float
) -> None:
    source = Generated(partitions=streams, late_share=late_share, keys=3, events=100_000 * streams)
    places = [{"n": n} for n in sorted({0, 100_000, *cuts})]
    found: dict[str, list[pa.Table]] = {str(number): [] for number in range(streams)}
    for start, end in pairwise(places):
        for split in source.splits(start, end, parallel):
            tables, arrivals, _ = read_split(source, split)
            assert arrivals == [n for table in tables for n in table["seq"].to_pylist()]
            found[split.partition] += tables
    for number, tables in found.items():
        assert pa.concat_tables(tables).equals(source.generator(int(number)).table(100_000))


def test_one_partition_is_the_generator_itself() -> None:
    options = {"seed": 3, "keys": 4, "rate": 1000, "start": "2026-05-01", "string_keys": False}
    source = Generated(**options, events=5000)
    table, _ = read_between(source, source.start(), source.bound(source.start()))
    expected = Generator(**options)
    assert table.equals(expected.table(5000))
    assert source.event_schema() == expected.schema


def test_partitions_share_rate_and_events() -> None:
    source = Generated(rate=3000, events=1000, partitions=3)
    position = source.bound(source.start())
    splits = source.splits(source.start(), position, 3)
    assert [split.weight for split in splits] == [334, 333, 333]
    assert source.partitions(position) == ["0", "1", "2"]
    assert source.ended(position) and not source.ended({"n": 333})
    firsts = [read_split(source, split, ["v"])[0][0] for split in splits]
    assert firsts[0].column_names == ["v"]
    assert not firsts[1].equals(firsts[2])
    assert source.generator(0).rate == 1000


def test_batches_and_bounds() -> None:
    source = Generated(per_batch=100, partitions=2, events=250)
    position, batches = source.start(), []
    while (after := source.latest(position)) != position:
        batches.append(sum(split.weight for split in source.splits(position, after, 2)))
        position = after
    assert batches == [100, 100, 50]
    assert source.ended(position)
    endless = Generated(per_batch=100)
    assert not endless.ended({"n": 10**9})
    assert endless.bound({"n": 50}) == {"n": 150}
    assert endless.latest({"n": 50}, {"n": 70}) == {"n": 70}
    assert endless.latest({"n": 70}, {"n": 70}) == {"n": 70}


def test_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(generated.time, "monotonic", lambda: clock[0])
    source = Generated(pace=1000, partitions=2, per_batch=10_000)
    assert source.latest({"n": 40}) == {"n": 40}
    clock[0] += 1
    assert source.latest({"n": 40}) == {"n": 540}
    assert source.latest({"n": 540}) == {"n": 540}
    clock[0] += 100
    assert source.latest({"n": 540}) == {"n": 5540}


def test_a_place_far_on_is_reached_at_once() -> None:
    source = Generated(late_share=0.1)
    far = 10**11
    began = time.perf_counter()
    [split] = source.splits({"n": far}, {"n": far + 10}, 1)
    [table] = read_split(source, split)[0]
    assert table["seq"].to_pylist() == list(range(far, far + 10))
    assert time.perf_counter() - began < 60, "to make what lies before takes hours"


@pytest.mark.parametrize(
    "options", [{"keys": 0}, {"partitions": 0}, {"events": -1}, {"pace": 0}, {"late_by": "soon"}]
)
def test_wrong_settings(options: dict[str, Any]) -> None:
    with pytest.raises((ValidationError, QueryError)):
        Generated(**options)
