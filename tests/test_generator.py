"""The generator of soccer-like events: the same stream however it is read, late as documented."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.errors import QueryError
from catchment.generator import BLOCK, LENGTH, WIDTH, Generator

SECOND = 1_000_000


def times(table: pa.Table) -> np.ndarray:
    return table["ts"].cast(pa.int64()).to_numpy()


def test_columns() -> None:
    table = Generator().table(1000)
    assert table.schema == Generator().schema
    assert table.schema.field("ts").type == pa.timestamp("us", tz="UTC")
    assert table.schema.field("player").type == pa.string()
    assert [table[name].null_count for name in ("ts", "player", "v", "x", "y", "seq")] == [0] * 6
    assert table["seq"].to_pylist() == list(range(1000))


def test_players_stay_on_the_pitch() -> None:
    table = Generator(rate=1000).table(BLOCK)
    for name, most in (("x", LENGTH), ("y", WIDTH), ("v", 20.0)):
        low, high = pc.min_max(table[name]).as_py().values()
        assert 0 <= low < high <= most


def test_speed_is_the_speed_of_the_movement() -> None:
    # The sensor's noise is at most half a metre per second.
    table = Generator(keys=1, rate=100).table(1000)
    seconds = times(table) / SECOND
    x, y = table["x"].to_numpy(), table["y"].to_numpy()
    moved = np.hypot(x[100:] - x[:-100], y[100:] - y[:-100]) / (seconds[100:] - seconds[:-100])
    assert np.abs(moved - table["v"].to_numpy()[50:-50]).max() < 1.0


@settings(max_examples=settings.default.max_examples // 4)
@given(
    seed=st.integers(0, 1 << 62),
    size=st.integers(1, BLOCK * 2),
    late_share=st.sampled_from([0.0, 0.2, 1.0]),
    gaps=st.sampled_from([None, ("1s", "300ms")]),
)
def test_the_stream_does_not_depend_on_the_batches(
    seed: int, size: int, late_share: float, gaps: tuple[str, str] | None
) -> None:
    rows = BLOCK + 1234
    size = max(size, rows // 50)
    generator = Generator(seed=seed, late_share=late_share, gaps=gaps, late_by="900ms")
    batches = list(generator.batches(size, rows))
    assert {batch.num_rows for batch in batches[:-1]} <= {size}
    assert pa.Table.from_batches(batches).equals(generator.table(rows))


def test_without_rows_it_goes_on() -> None:
    endless = Generator(late_share=0.5).batches(BLOCK)
    assert [next(endless)["seq"][0].as_py() for _ in range(3)] == [0, BLOCK, 2 * BLOCK]


def test_seeds_differ() -> None:
    assert not Generator(seed=1).table(100).equals(Generator(seed=2).table(100))


def test_rate_and_start() -> None:
    table = Generator(rate=500, start="1969-12-31 23:00:00").table(5000)
    assert times(table)[0] // SECOND == -3600
    assert times(table)[-1] // SECOND == -3600 + 9
    per_second = np.bincount(times(table) // SECOND + 3600)
    assert per_second.tolist() == [500] * 10


@pytest.mark.parametrize("rate", [0.01, 3, 1_000_000, 30_000_000])
def test_in_order_without_late_events(rate: float) -> None:
    table = Generator(rate=rate).table(BLOCK + 10)
    assert (np.diff(times(table)) >= 0).all()


def test_gaps_end_sessions_of_all_players() -> None:
    """Play (=) and silence (.):  ==========...==========...==========   (10 s, 3 s)"""
    table = Generator(rate=1000, gaps=("10s", "3s")).table(30_000)
    since = times(table) - times(table)[0] // SECOND * SECOND
    assert set((since // SECOND).tolist()) == {*range(10), *range(13, 23), *range(26, 36)}
    assert (np.diff(since) > 2 * SECOND).sum() == 2


def test_late_events_arrive_after_newer_ones_but_not_too_late() -> None:
    table = Generator(rate=10_000, late_share=0.2, late_by="2s").table(200_000)
    ts = times(table)
    behind = np.maximum.accumulate(ts) - ts
    # An event with a delay of a few microseconds may still arrive before the next one.
    assert 0.19 < (behind > 0).mean() < 0.21
    assert 1.9 * SECOND < behind.max() <= 2 * SECOND


def test_lateness_changes_only_the_order() -> None:
    rows = 3 * BLOCK
    punctual = Generator(rate=BLOCK).table(rows)
    late = Generator(rate=BLOCK, late_share=0.3, late_by="500ms").table(rows)
    # What belongs to the last half second may not have arrived yet.
    names = ["ts", "player", "x", "y", "v"]
    keys = [(name, "ascending") for name in names]
    settled = pa.scalar(int(times(punctual)[-1]) - SECOND, pa.timestamp("us", tz="UTC"))
    first, second = (
        table.filter(pc.less(table["ts"], settled)).select([*names, "event"]).sort_by(keys)
        for table in (punctual, late)
    )
    assert first.num_rows > BLOCK
    assert first.equals(second)
    assert not late.drop_columns("seq").equals(punctual.drop_columns("seq"))


def test_markers() -> None:
    counts = Generator(markers=0.1).table(100_000)["event"].value_counts().to_pylist()
    shares = {row["values"]: row["counts"] / 100_000 for row in counts}
    assert shares[None] == pytest.approx(0.9, abs=0.01)
    assert shares["start"] == pytest.approx(0.05, abs=0.005)
    assert shares["end"] == pytest.approx(0.05, abs=0.005)
    assert Generator(markers=0).table(1000)["event"].null_count == 1000
    assert Generator(markers=1).table(1000)["event"].null_count == 0


def test_keys_even_and_skewed() -> None:
    def shares(**settings: Any) -> list[float]:
        table = Generator(keys=4, string_keys=False, **settings).table(100_000)
        return (np.bincount(table["player"].to_numpy(), minlength=4) / 100_000).tolist()

    assert shares() == pytest.approx([0.25] * 4, abs=0.01)
    assert shares(key_skew=1.0) == pytest.approx([0.48, 0.24, 0.16, 0.12], abs=0.01)


def test_names_sort_as_numbers_do() -> None:
    names = pc.unique(Generator(keys=12).table(1000)["player"]).to_pylist()
    assert sorted(names) == [f"player-{number:02}" for number in range(12)]


def test_no_rows() -> None:
    assert Generator().table(0).num_rows == 0
    assert Generator().table(0).schema == Generator().schema


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"seed": -1}, "seed must be a whole number of at least 0 (given: -1)"),
        ({"keys": 0}, "keys must be a whole number of at least 1 (given: 0)"),
        ({"keys": 1.5}, "keys must be a whole number of at least 1 (given: 1.5)"),
        ({"rate": 0}, "rate must be a number from 1e-06 to 1e+09 (given: 0)"),
        ({"rate": "fast"}, "rate must be a number from 1e-06 to 1e+09 (given: 'fast')"),
        ({"markers": 1.1}, "markers must be a number from 0 to 1 (given: 1.1)"),
        ({"late_share": float("nan")}, "late_share must be a number from 0 to 1 (given: nan)"),
        ({"late_by": "0s"}, "late_by must be longer than zero (given: '0s')"),
        ({"late_by": 2}, "the generator's late_by needs a unit (given: 2)"),
        ({"key_skew": -1}, "key_skew must be a number from 0 to 100 (given: -1)"),
        ({"gaps": ("0s", "3s")}, "gaps every must be longer than zero (given: '0s')"),
        ({"gaps": ("10s", "-3s")}, "gaps length must be longer than zero (given: '-3s')"),
        ({"gaps": ("10s",)}, "gaps takes two durations (given: ('10s',))"),
        ({"start": "soon"}, "the generator's start is not an instant (given: 'soon')"),
    ],
)
def test_bad_settings(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(QueryError) as caught:
        Generator(**settings)
    assert text in str(caught.value)


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_bad_batch_size(size: Any) -> None:
    with pytest.raises(QueryError, match="rows_per_batch must be a whole number of at least 1"):
        Generator().batches(size)
