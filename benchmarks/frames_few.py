"""Few results: frames against tables, many frames against one, Spark Connect against Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import catchment as ct
from benchmarks.figure import Figure, at_most, plain
from benchmarks.process import environment, python
from benchmarks.spark_data import averages, files
from benchmarks.timing import in_turns, ratio, seconds, typical

_LIMIT = 3600
_FRAMES = 100


def figures(quick: bool = False) -> Iterator[Figure]:
    with files(4_000_000 if quick else 32_000_000, rate=100_000, keys=10) as load:
        folder, runs = str(load.folder), 3 if quick else 5
        classic = alone("classic", folder, runs)
        connect = alone("connect", folder, runs)
    times = classic["small"]
    yield at_most(
        "one frame, collected, against ct.run",
        ratio(times, 1, 0),
        "of the time",
        1.05,
        f"avg by key over tumbling windows of 1 s; {load.detail}; {typical(times, 1):.2f} and "
        f"{typical(times, 0):.2f} s",
    )
    times = classic["shared"]
    yield at_most(
        f"{_FRAMES} frames of one call against one",
        ratio(times, 1, 0),
        "of the time",
        1.5,
        f"all rows of all frames in one action, frames.union(); {load.detail}; "
        f"{typical(times, 1):.2f} and {typical(times, 0):.2f} s",
    )
    times = classic["each"]
    yield plain(
        "a frame whose results are kept, against an empty action of Spark",
        ratio(times, 1, 0),
        "of the time",
        f"each of {_FRAMES} frames of one call written by itself, after the first; "
        f"{1000 * typical(times, 1):.0f} and {1000 * typical(times, 0):.0f} ms each",
    )
    here, there = median(run[1] for run in classic["small"]), median(r[1] for r in connect["small"])
    yield at_most(
        "a frame on Spark Connect against one on Spark",
        there / here,
        "of the time",
        1.15,
        f"a server on the same machine; {load.detail}; {there:.2f} and {here:.2f} s",
    )


def alone(kind: str, folder: str, runs: int) -> dict[str, Any]:
    """What `measure` finds in a process of its own: it has sessions of one kind only."""
    done = subprocess.run(
        python("benchmarks.frames_few", kind, folder, runs),
        env=environment(),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_LIMIT,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(kind: str, folder: str, runs: int) -> dict[str, list[list[float]]]:
    """The seconds of `ct.run` and of a frame, and of one frame and of many, run by run."""
    spark = _session(kind)
    one, many = averages(1), _different(_FRAMES)

    def table() -> Any:
        return ct.run(folder, one, time="ts", spark=spark)[one[0].name]

    def frame() -> Any:
        return ct.windows(folder, one, time="ts", spark=spark)[one[0].name].toArrow()

    def write(rows: Any) -> None:
        rows.write.format("noop").mode("overwrite").save()

    def one_frame() -> None:
        write(ct.windows(folder, one, time="ts", spark=spark)[one[0].name])

    def many_frames() -> None:
        made = ct.windows(folder, many, time="ts", spark=spark)
        write(made.union())
        made.unpersist()

    small = in_turns(runs, [lambda: table, lambda: frame])
    shared: list[list[float]] = []
    each: list[list[float]] = []
    if kind == "classic":
        shared = in_turns(runs, [lambda: one_frame, lambda: many_frames])
        each = _one_by_one(ct.windows(folder, many, time="ts", spark=spark), spark, write)
    spark.stop()
    return {"small": small, "shared": shared, "each": each}


def _one_by_one(made: Any, spark: Any, write: Callable[[Any], None]) -> list[list[float]]:
    """Beside each frame but the first, an action of Spark on nothing."""
    first, *names = made
    write(made[first])
    nothing = spark.range(0, 2, 1, 2)
    taken = [
        [seconds(partial(write, nothing)), seconds(partial(write, made[name]))] for name in names
    ]
    made.unpersist()
    return taken[len(taken) // 10 :]  # the first ones are compiled


def _different(frames: int) -> list[ct.Query]:
    """Averages by key over windows of which no two are the same."""
    return [
        ct.Query(f"q{n}", ct.avg("v"), by="k", window=ct.tumbling(f"{1 + n}s"))
        for n in range(frames)
    ]


def _session(kind: str) -> Any:
    from pyspark.sql import SparkSession

    from catchment.spark.session import session, settings, use_worker_python

    if kind == "classic":
        return session(cores=2)
    use_worker_python(local=True)
    builder: Any = SparkSession.builder
    builder = builder.remote("local[2]")
    for name, value in settings(cores=2).items():
        builder = builder if name == "spark.master" else builder.config(name, value)
    with warnings.catch_warnings():
        # The server is started with all of them; the session cannot change some once more.
        warnings.simplefilter("ignore")
        return builder.getOrCreate()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))) + "\n")
