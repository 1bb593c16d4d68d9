"""From a job file to a tree: the charter the root begins with, and what each node is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from catchment.errors import JobError, did_you_mean
from catchment.flush import read as read_flush
from catchment.job import Job
from catchment.job.topology import NodeSection, check_nodes
from catchment.model.duration import micros
from catchment.sinks.base import Sink
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
    hosted: bool = False
    """Whether it stands for its parent's own source, and runs in the parent's process."""
    reader: Given | None = None
    """What the reader of its own source is given, where it has one and merges too."""


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
        "count": job.count,
    }  # fmt: skip
    placed = enumerate(_places(job.nodes))
    places = {place.id: replace(place, number=number) for number, place in placed}
    charter = Charter(job.new_identity(), 0, settings, places)
    return charter.with_queries(queries)


def _places(nodes: Sequence[NodeSection]) -> Iterator[Place]:
    """The places of a tree: a node that merges and reads gets a child that reads for it."""
    for node in nodes:
        if node.reads_and_merges:
            yield Place(node.id, 0, node.parent, False, node.listen)
            yield Place(node.reader, 0, node.id, True, host=node.id)
        else:
            yield Place(node.id, 0, node.parent, node.source is not None, node.listen)


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
        id,
        home,
        None if root else parent or _address(node, known),
        node.listen,
        None if node.reads_and_merges else node.source,
        job.sinks if root else (),
        founded(job) if root else None,
        job.security,
        node.engine or engine,
        reader=_reader(node, home, node.engine or engine) if node.reads_and_merges else None,
    )


def _reader(node: NodeSection, home: Path, engine: str) -> Given:
    """What the reader of a node's own source is given; it needs no address and no token."""
    return Given(
        node.reader, home / "reader", node.id, None, node.source, (), None, None, engine, True
    )


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
