"""The folder of a job on Spark that was stopped or has ended. Spark is not started for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import catchment as ct
from catchment.job import load_job
from catchment.model import records
from catchment.model.frontier import Frontier
from catchment.planner.planned import NOTHING

QUERY = {"name": "mean", "select": ["avg(v)"], "by": "player", "window": "tumbling(1s)"}


def stopped_job(home: Path, sinks: list[dict[str, Any]], ended: bool = False) -> Any:
    """A job that is looked at by its folder."""
    from catchment.spark import job_folder
    from catchment.spark.planning import Progress
    from catchment.spark.queries import FORMAT
    from catchment.spark.records import JobCounts, JobIdentity
    from catchment.ui.spark_job import SparkJob

    made = {"queries": [QUERY], "checkpoint": str(home), "source": {"type": "generator"}}
    watched = SparkJob(load_job(made | {"sinks": sinks}))
    folder = watched.home
    assert watched.look().job.state == "stopped"
    identity = JobIdentity(FORMAT, "j-1", "j", "generator", "ts", "drop", 1, ("events",))
    folder.write("job.json", records.encode(identity))
    frontier = Frontier(5_000_000, {"0": (8_000_000, 0)})
    progress = Progress(7, frontier, JobCounts(events=100, accepted=98, late=2), ended, 0, 1)
    folder.sub("progress").write("000000007.json", records.encode(progress))
    query = ct.Query("mean", ct.avg("v"), by="player", window=ct.tumbling("1s"))
    folder.sub("plans").write("000000000", NOTHING.next(0, {"mean": query}).to_bytes())
    columns: dict[str, pa.DataType] = {"player": pa.string(), "v": pa.float64()}
    schema = pa.schema({"ts": pa.timestamp("us", "UTC")} | columns)
    folder.write(job_folder.SCHEMA, schema.serialize().to_pybytes())
    return watched
