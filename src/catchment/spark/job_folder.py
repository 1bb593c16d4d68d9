"""What a job's folder tells of the job while it does not run."""

from __future__ import annotations

import json
import os
import uuid

from catchment.durable.folder import Folder
from catchment.errors import StateError
from catchment.sources.watch import SourceNote
from catchment.spark.deliver import COUNTS, ENDINGS
from catchment.spark.handle import Status

DONE = "done.json"
"""There when a batch job has delivered its results."""
SCHEMA = "schema.arrow"
"""The columns of the events, for those who add queries."""


def home_of(checkpoint: str) -> Folder:
    """The folder of a job's own files in its checkpoint."""
    there = "://" in checkpoint or checkpoint.startswith("file:")
    return Folder(checkpoint if there else os.path.abspath(checkpoint)).sub("catchment")


def writable(home: Folder) -> None:
    """Fails where nothing can be written, before Spark takes its time to start."""
    probe = f"probe-{uuid.uuid4().hex[:8]}"
    home.write(probe, b"")
    home.remove(probe)


def name_of(home: Folder) -> str | None:
    """The job whose folder it is; None when it is nobody's yet."""
    held = home.read("job.json")
    return None if held is None else str(json.loads(held)["job"])


def ended_stream(home: Folder) -> Status | None:
    """How a stream ended that has nothing left to read; None when it goes on, or is new."""
    progress = home.sub("progress")
    names = progress.names()
    held = json.loads(progress.read(names[-1]) or b"{}") if names else {}
    if not held.get("ended"):
        return None
    counts = {name: held["counts"].get(name, 0) for name in (*COUNTS, *ENDINGS)}
    never_read = SourceNote.load(home.sub("source")).never_read
    frontier = held["frontier"]["value"]
    return Status(
        "ended",
        name_of(home) or "",
        held["batch"],
        **counts,
        frontier=frontier,
        never_read=never_read,
    )


def ended_batch(home: Folder) -> Status | None:
    """What a batch job delivered; None when it has not."""
    held = home.read(DONE)
    return None if held is None else Status.from_dict(json.loads(held))


def only(kind: str, home: Folder) -> None:
    """Refuses a stream's checkpoint for a batch job, and the other way round.

    Both number their deliveries from 0: sinks would take those of one for those of the other.
    """
    was_batch = home.read(DONE) is not None or bool(home.sub("bounded").names())
    was_stream = home.read("given.json") is not None
    if was_stream if kind == "batch" else was_batch:
        other = "a stream" if kind == "batch" else "a batch job"
        raise StateError(
            f"the checkpoint is of {other}",
            given=home.uri,
            hint="use another checkpoint, or the trigger it was made with",
        )
