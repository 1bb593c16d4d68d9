"""`catchment advise`: a sample replayed, as a table, as JSON and as a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catchment as ct
from catchment.simulate.advice import POLICIES, samples
from commands import catchment

pytestmark = pytest.mark.slow

JOB = """\
queries:
  - {name: pages, select: [count(*)], by: k, window: "tumbling(2s)"}
  - {name: visits, select: [sum(v)], window: "session(2s)"}
"""


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    dice = np.random.default_rng(1)
    folder = tmp_path / "sample"
    folder.mkdir()
    for part in range(2):
        stamps = np.sort(dice.integers(0, 4_000_000, 3000)) + part * 4_000_000
        table = pa.table(
            {
                "ts": pa.array(stamps, pa.timestamp("us", "UTC")),
                "k": pa.array([f"k{n}" for n in dice.zipf(1.5, 3000) % 500]),
                "v": dice.integers(0, 9, 3000),
            }
        )
        pq.write_table(table, folder / f"{part}.parquet")
    (tmp_path / "job.yaml").write_text(JOB)
    return folder


def told(sample: Path, *more: str, code: int = 0) -> Any:
    job = str(sample.parent / "job.yaml")
    return catchment("advise", job, "--events", str(sample), *more, code=code)


def test_a_sample_is_what_a_node_would_see(sample: Path) -> None:
    from catchment.job import load_job

    events = pq.read_table(sample)
    found = samples(load_job(sample.parent / "job.yaml").build(), events, "ts")
    pages = next(one for one in found if one.queries == ("pages",))
    keys = events.column("k").to_pylist()
    slices = (events.column("ts").cast(pa.int64()).to_numpy() // 2_000_000).tolist()
    wanted = len(set(zip(slices, keys, strict=True)))
    assert pages.arrivals.windows == 4 and pages.arrivals.length == 2
    assert pages.arrivals.distinct().sum() == wanted
    assert 2 < pages.each < 40


def test_advice_in_words_and_a_picture(sample: Path) -> None:
    picture = sample.parent / "plot.png"
    said = told(sample, "--bandwidth", "500 B/s", "--plot", str(picture)).stdout
    for policy in POLICIES:
        assert policy in said
    assert "#" in said and "a link of 500 B/s" in said
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_advice_for_programs(sample: Path) -> None:
    rows = [json.loads(line) for line in told(sample, "--json").stdout.splitlines()]
    batching = [row for row in rows if row["policy"] == "batching" and "pages" in row["queries"]]
    assert len(batching) == 3  # links
    assert all(row["traffic"] < 1.1 for row in batching)
    optimal = [row for row in rows if row["policy"] == "optimal"]
    assert all(row["late"] >= 0 and row["traffic"] == 1 for row in optimal)


def test_what_cannot_be_advised_on(sample: Path) -> None:
    assert "more than nothing" in told(sample, "--bandwidth", "0 B/s", code=2).stderr
    assert "cannot be read" in told(sample.parent / "none", code=1).stderr


def test_windows_that_are_cut_on_nodes_do_not_disturb_the_others() -> None:
    """Their events stay on the node until they settle, and nothing of them is sent early."""
    times = pa.array([n * 100_000 for n in range(200)], pa.timestamp("us", "UTC"))
    codes = pa.array([n % 7 for n in range(200)])
    events = pa.table({"ts": times, "v": codes, "k": codes})
    queries = [
        ct.Query("each", ct.count(), by="k", window=ct.tumbling("2s")),
        ct.Query("marked", ct.count(), window=ct.cut("v = 0", reading="local")),
    ]
    assert [made.queries for made in samples(queries, events, "ts")] == [("each",)]
