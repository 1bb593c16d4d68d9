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
from catchment.errors import StateError
from catchment.model import records
from catchment.model.frontier import EARLIEST
from catchment.model.query import Query
from catchment.sources.watch import SourceNote
from catchment.spark.handle import Status
from catchment.spark.planning import Progress
from catchment.spark.queries import read_identity, read_rejected, rules_of

DONE = "done.json"
"""There when a batch job has delivered its results."""
GIVEN = "given.json"
"""The queries of a stream's job file when it was last started, as `Query.to_dict` gives them."""
SCHEMA = "schema.arrow"
"""The columns of the events, for those who add queries."""


def absolute(checkpoint: str) -> str:
    """A checkpoint's address, which does not depend on where a process runs."""
    there = "://" in checkpoint or checkpoint.startswith("file:")
    return checkpoint if there else os.path.abspath(checkpoint)


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
    for query in queries:
        admitted(query, rules_of(home), schema)


def last_progress(home: Folder) -> Progress | None:
    """What is known after the last batch of a stream; None before there was one."""
    progress = home.sub("progress")
    names = progress.names()
    data = progress.read(names[-1]) if names else None
    return (
        None if data is None else records.decode(Progress, data, "the progress of the last batch")
    )


def found_status(home: Folder) -> Status:
    """How a job stands, as far as its folder tells somebody who does not run it."""
    batch = ended_batch(home)
    if batch is not None:
        return batch
    progress, source = last_progress(home), SourceNote.load(home.sub("source"))
    running = holder(home) is not None
    name = name_of(home) or ""
    found = replace(
        Status("starting" if running else "stopped", name),
        rejected=read_rejected(home),
        waiting={one.origin: one.reason for one in source.never_read if one.waiting},
        never_read=source.never_read,
        limits=source.limits,
    )
    if progress is None:
        return found
    state = "ended" if progress.ended else "running" if running else "stopped"
    frontier = progress.frontier
    known = frontier.value > EARLIEST
    return replace(
        Status.counted(state, name, progress.batch, progress.counts),
        rejected=found.rejected,
        waiting=found.waiting,
        never_read=found.never_read,
        limits=found.limits,
        planned=progress.now,
        frontier=frontier.value if known else None,
        lag=(frontier.newest - frontier.value) / 1e6 if known else None,
        partitions={name: newest for name, (newest, _) in frontier.partitions.items()},
    )


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
    return None if held is None else records.decode(Status, held, f"{home.uri}/{DONE}")


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
