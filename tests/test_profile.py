"""What micro-batches cost: the slowest tasks' seconds, and the rest is Spark's own."""

from __future__ import annotations

import pytest

from catchment.cli import show
from catchment.spark.profile import (
    BatchProfile,
    BucketSeconds,
    Profiler,
    SplitSeconds,
    batch_profile,
)

pytestmark = pytest.mark.spark  # the package imports pyspark


def test_a_batch_costs_what_its_slowest_tasks_cost() -> None:
    splits = [SplitSeconds(read=1, slice=2), SplitSeconds(read=4, slice=1, encode=1)]
    buckets = [BucketSeconds(state=1, sink=2), BucketSeconds(decode=1)]
    found = batch_profile(3, splits, buckets, 0.5)
    assert found == BatchProfile(3, 4, 1, 1, 0, 1, 0, 2.5)
    assert batch_profile(0, [], [], 0.0) == BatchProfile(0)


def test_batches_add_up_once_spark_has_told_of_them() -> None:
    profiler = Profiler()
    for batch in range(3):
        profiler.ours(BatchProfile(batch, read=1.0, assemble=0.5))
    assert profiler.profile().batches == 0
    profiler.finish_batch(0, 2.0)
    profiler.finish_batch(0, 2.0)  # Spark tells of its last batches again and again
    profiler.finish_batch(1, 1.0)  # clocks differ: never less than nothing
    profiler.finish_batch(9, 5.0)  # nothing of ours is known of it
    found = profiler.profile()
    assert (found.batches, found.seconds) == (2, 3.0)
    assert found.parts["read"] == 2.0
    assert found.parts["spark"] == 0.5


def test_only_so_many_batches_wait() -> None:
    profiler = Profiler()
    for batch in range(2 * Profiler.WAITING):
        profiler.ours(BatchProfile(batch, read=1.0))
    for batch in range(2 * Profiler.WAITING):
        profiler.finish_batch(batch, 1.0)
    assert profiler.profile().batches == Profiler.WAITING


def test_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    profiler = Profiler()
    profiler.ours(BatchProfile(0, slice=1.0))
    profiler.finish_batch(0, 4.0)
    show.profile(profiler.profile())
    shown = capsys.readouterr().out
    assert "1 batches in 4.0 s" in shown
    assert "25%" in shown and "75%" in shown
