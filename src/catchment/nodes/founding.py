"""From a job file to a tree: the charter the root begins with, and what each node is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from catchment.errors import JobError, did_you_mean
from catchment.flush import read as read_flush
from catchment.job import Job
from catchment.job.topology import NodeSection, check_nodes
from catchment.model.duration import micros
from catchment.sinks.base import Sink
from catchment.sources.aside_files import ASIDE_DISK_BYTES
from catchment.sources.base import Source
from catchment.transport import Security
from catchment.tree.charter import Charter, Place


@dataclass(frozen=True)
class Given:
    """What a node must be told to start: the rest comes down from the root."""

    id: str
    home: Path
    parent: str | None
    """Its parent's address."""
    listen: str | None
    source: Source | None
    sinks: tuple[Sink, ...]
    charter: Charter | None
    """Only the root's; it is used once, when its folder is new."""
    security: Security | None
    engine: str
    aside_disk_bytes: int = ASIDE_DISK_BYTES


def founded(job: Job) -> Charter:
    """The charter of a new tree."""
    queries = job.build()
    for query in queries:
        if query.measure == "processing":
            raise JobError(
                "a tree has many clocks: windows by processing time make no sense in it",
                given=query.name, hint="use event time",
            )  # fmt: skip
    check_nodes(job.nodes)
    settings = {
        "time": job.time, "late": job.late, "rate": job.rate,
        "keep": None if job.keep is None else micros(job.keep),
        "lateness": micros(job.lateness),
        "idle": None if job.idle_timeout is None else micros(job.idle_timeout),
        "ahead": None if job.max_ahead is None else micros(job.max_ahead),
        "timeout": None if job.timeout is None else micros(job.timeout),
        "flush": read_flush(job.flush).to_dict(),
        "count": job.counted,
        "incomplete": job.incomplete,
        "aside_bytes": job.aside_bytes,
        "aside_disk_bytes": job.aside_disk_bytes,
        "state_bytes": job.state_bytes,
    }  # fmt: skip
    places = {
        node.id: Place(node.id, number, node.parent, node.source is not None, node.listen)
        for number, node in enumerate(job.nodes)
    }
    charter = Charter(job.new_identity(), 0, settings, places)
    return charter.with_queries(queries)


def given(job: Job, id: str, parent: str | None = None, engine: str = "spark") -> Given:
    """What a node of a job file is told; `parent` is an address, instead of the file's."""
    known = {node.id: node for node in job.nodes}
    if id not in known:
        raise JobError("no such node", given=id, hint=did_you_mean(id, known))
    node = known[id]
    root = node.parent is None and parent is None
    if job.checkpoint is None and node.home is None:
        raise JobError(
            "a node needs a folder", given=id, hint="add checkpoint: folder/ to the job file"
        )
    home = Path(node.home) if node.home else Path(str(job.checkpoint)) / id
    return Given(
        id, home, None if root else parent or _address(node, known), node.listen, node.source,
        job.sinks if root else (), founded(job) if root else None, job.security,
        node.engine or engine, job.aside_disk_bytes,
    )  # fmt: skip


def _address(node: NodeSection, known: dict[str, NodeSection]) -> str:
    """Where a node finds its parent: the file says the address, or the id of one that has it."""
    parent = str(node.parent)
    if parent in known:
        listen = known[parent].listen
        if listen is None:
            raise JobError(
                "a node with children must say where they find it", given=parent,
                hint="add listen: 127.0.0.1:7401",
            )  # fmt: skip
        return listen
    if ":" not in parent:
        raise JobError(
            "a node's parent is unknown", given=f"{parent}, the parent of {node.id}",
            hint=did_you_mean(parent, known) or "give its address, as in 10.0.0.5:7401",
        )  # fmt: skip
    return parent
