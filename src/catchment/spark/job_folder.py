"""What a job's folder tells of the job while it does not run."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from catchment.durable.folder import Folder
from catchment.durable.lock import holder
from catchment.engine.binding import admitted
from catchment.engine.times import now
from catchment.errors import StateError
from catchment.model import records
from catchment.model.query import Query
from catchment.model.recent_rate import RecentRate
from catchment.sources.watch import SourceNote
from catchment.spark.handle import Status
from catchment.spark.planning import Progress
from catchment.spark.queries import QueryFolder, read_identity, read_rejected, rules_of

DONE = "done.json"
"""There when a batch job has delivered its results."""
GIVEN = "given.json"
"""The queries of a stream's job file when it was last started, as `Query.to_dict` gives them."""
_BATCHES = 12
"""The last batches, by which it is told how fast the job is."""
SCHEMA = "schema.arrow"
"""The columns of the events, for those who add queries."""


def absolute(checkpoint: str) -> str:
    """A checkpoint's address, which does not depend on where a process runs."""
    there = "://" in checkpoint or checkpoint.startswith("file:")
    return checkpoint if there else os.path.abspath(checkpoint)


def spark_checkpoint(checkpoint: str) -> str:
    """Spark's own folder in a job's checkpoint, as Spark calls it.

    Its file systems are Hadoop's: keys and options of an address are in Spark's settings
    (`spark.hadoop.fs.s3a...`), and S3 has another name.

    >>> spark_checkpoint("s3://key:secret@bucket/jobs/one?region=x")
    's3a://bucket/jobs/one/spark'
    >>> spark_checkpoint("/jobs/one")
    '/jobs/one/spark'
    """
    place = absolute(checkpoint).rstrip("/")
    if "://" not in place:
        return f"{place}/spark"
    scheme, _, rest = place.partition("://")
    shown = rest.partition("?")[0].rstrip("/")
    if scheme == "s3":
        return f"s3a://{shown.rpartition('@')[2]}/spark"
    return f"{scheme}://{shown}/spark"


def home_of(checkpoint: str) -> Folder:
    """The folder of a job's own files in its checkpoint."""
    return Folder(absolute(checkpoint)).sub("catchment")


def writable(home: Folder) -> None:
    """Fails where nothing can be written, before Spark takes its time to start."""
    probe = f"probe-{uuid.uuid4().hex[:8]}"
    home.write(probe, b"")
    home.remove(probe)


def name_of(home: Folder) -> str | None:
    """The job whose folder it is; None when it is nobody's yet."""
    held = read_identity(home)
    return None if held is None else held.job


def fit(home: Folder, queries: Iterable[Query]) -> None:
    """Refuses queries that the job cannot take, as far as its folder tells what its events are."""
    noted = home.read(SCHEMA)
    schema = None if noted is None else pa.ipc.read_schema(pa.py_buffer(noted))
    given = list(queries)
    others = QueryFolder(home).read()[0] if any(query.table for query in given) else {}
    for query in given:
        admitted(query, rules_of(home), schema, others)


def last_progress(home: Folder) -> Progress | None:
    """What is known after the last batch of a stream; None before there was one."""
    return next(iter(Progress.newest(home)), None)


def found_status(home: Folder) -> Status:
    """How a job stands, as far as its folder tells somebody who does not run it."""
    batch = ended_batch(home)
    if batch is not None:
        return batch
    batches, source = Progress.newest(home, _BATCHES), SourceNote.load(home.sub("source"))
    running = holder(home) is not None
    name = name_of(home) or ""
    found = replace(
        Status("starting" if running else "stopped", name),
        rejected=read_rejected(home),
        waiting={one.origin: one.reason for one in source.never_read if one.waiting},
        never_read=source.never_read,
        limits=source.limits,
    )
    if not batches:
        return found
    progress = batches[-1]
    state = "ended" if progress.ended else "running" if running else "stopped"
    counted = Status.counted(state, name, progress.batch, progress.counts)
    return replace(
        counted.at(progress.frontier, state == "running"),
        rejected=found.rejected,
        waiting=found.waiting,
        never_read=found.never_read,
        limits=found.limits,
        planned=progress.now,
        rate=_rate(batches) if state == "running" else 0.0,
        event_rate=progress.observed.rate,
    )


def _rate(batches: list[Progress]) -> float:
    """Events a second by the clock, over the last batches."""
    speed = RecentRate()
    for one in batches:
        speed.seen(one.counts.events, one.now / 1e6)
    return speed.at(now() / 1e6) or 0.0


def ended_stream(home: Folder) -> Status | None:
    """How a stream ended that has nothing left to read; None when it goes on, or is new."""
    held = last_progress(home)
    if held is None or not held.ended:
        return None
    never_read = SourceNote.load(home.sub("source")).never_read
    ended = Status.counted("ended", name_of(home) or "", held.batch, held.counts)
    return replace(ended, frontier=held.frontier.value, never_read=never_read)


def ended_batch(home: Folder) -> Status | None:
    """What a batch job delivered; None when it has not."""
    held = home.read(DONE)
    return None if held is None else records.decode(Status, held, f"{home.shown}/{DONE}")


def only(kind: str, home: Folder) -> None:
    """Refuses a stream's checkpoint for a batch job, and the other way round.

    Both number their deliveries from 0: sinks would take those of one for those of the other.
    """
    was_batch = home.read(DONE) is not None or bool(home.sub("bounded").names())
    was_stream = home.read(GIVEN) is not None
    if was_stream if kind == "batch" else was_batch:
        other = "a stream" if kind == "batch" else "a batch job"
        raise StateError(
            f"the checkpoint is of {other}",
            given=home.uri,
            hint="use another checkpoint, or the trigger it was made with",
        )
