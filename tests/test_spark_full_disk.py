"""A disk that is full under a job's checkpoint: an error, and nothing lost once there is room."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from catchment.errors import CatchmentError
from catchment.sinks.parquet import ParquetSink
from catchment.testing.compare import assert_same, rows_of
from test_spark_stream import EVENTS, QUERIES, complete, job, newest, write

pytestmark = pytest.mark.spark


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes."""
    place = tmp_path / "state"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def fill(path: Path) -> None:
    """Leaves no room."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def test_nothing_is_lost_when_the_disk_is_full(
    spark: SparkSession, tmp_path: Path, small: Path
) -> None:
    write(tmp_path / "in", 0, 0, 3000)
    job(tmp_path).start(spark).wait()
    fill(small / "filler")
    write(tmp_path / "in", 1, 3000, 6000)
    with pytest.raises(CatchmentError):
        job(tmp_path).start(spark).wait()
    (small / "filler").unlink()
    job(tmp_path).start(spark).wait()
    wanted = complete(newest(EVENTS))
    for query in QUERIES:
        got = ParquetSink(path=str(tmp_path / "out")).read(query.name)
        assert_same(rows_of(wanted[query.name]), got, query.name, keys=query.by)
