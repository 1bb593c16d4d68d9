"""From a job file to a tree: the charter the root begins with, and what each node is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from catchment.counting.scheme import CountOptions
from catchment.engine.binding import bind_types
from catchment.errors import JobError, did_you_mean
from catchment.flush import read as read_flush
from catchment.job import JobModel
from catchment.job.topology import NodeSection, check_nodes
from catchment.model import records
from catchment.model.definition import change_text, file_changes, removal_text
from catchment.model.duration import micros
from catchment.model.names import file_name
from catchment.model.query import Query, QueryRecord
from catchment.planner import plan
from catchment.sinks.base import Sink
from catchment.sources.aside_files import ASIDE_DISK_BYTES
from catchment.sources.base import Source
from catchment.transport import Security
from catchment.tree.charter import Charter, NodePlace
from catchment.tree.member import Member
from catchment.tree.settings import TreeSettings


@dataclass(frozen=True)
class NodeConfig:
    """The settings that a node needs to start; all others come down from the root."""

    id: str
    home: Path
    parent: str | None
    """Its parent's address."""
    listen: str | None
    source: Source | None
    sinks: tuple[Sink, ...]
    charter: Charter | None
    """Only the root's: all of it counts when its folder is new, later only the queries that the
    job file says anew."""
    security: Security | None
    engine: str
    hosted: bool = False
    """Whether it stands for its parent's own source, and runs in the parent's process."""
    reader: NodeConfig | None = None
    """What the reader of its own source is given, where it has one and merges too."""
    aside_disk_bytes: int = ASIDE_DISK_BYTES


def founded(job: JobModel, engine: str = "spark") -> Charter:
    """The charter of a new tree; `engine` is that of nodes for which the file says none."""
    queries = job.build()
    check_nodes(job.nodes)
    spares = {node.id: node.spare_of for node in job.nodes if node.spare_of is not None}
    if spares and job.timeout is None:
        raise JobError(
            "a spare takes over when its node has been silent for too long: how long is that?",
            given=", ".join(spares),
            hint="say timeout: 30s",
        )
    # Windows are assembled elsewhere where the root is on Spark: it asks for no values, and does
    # not tell of marks.
    root = next((node for node in job.nodes if node.parent is None), None)
    embedded = root is not None and (root.engine or engine) == "embedded"
    settings = TreeSettings(
        **job.stream_options(),
        timeout=None if job.timeout is None else micros(job.timeout),
        flush=read_flush(job.flush),
        count=job.counted,
        count_options=CountOptions(**job.count_options.model_dump()),
        quantiles=job.quantiles if embedded else "send",
        marks=job.marks if embedded else "send",
        tables=tuple(job.tables),
        spares=spares,
    )
    placed = enumerate(_places(job.nodes))
    places = {place.id: replace(place, number=number) for number, place in placed}
    charter = Charter(job.new_identity(), 0, settings, places)
    return charter.with_queries(queries)


GIVEN = "given"
"""The root's note of the queries that its job file had when it was last started."""


def follow_file(member: Member, file: Charter, now: int) -> list[str]:
    """Has the root of a tree do what its job file says anew since the last start: sentences.

    The rule is that of a job (`file_changes`): what the file does not say anew is as it was left.
    """
    charter = member.charter
    assert charter is not None
    queries = list(file.plans[file.plan].queries.values())
    held = member.disk.get(GIVEN)
    before = [] if held is None else records.decode(list[QueryRecord], held, GIVEN)
    said = [] if held is None else _follow(member, charter, before, queries, now)
    member.disk.put(GIVEN, records.encode([query.record() for query in queries]))
    return said


def _follow(
    member: Member, charter: Charter, before: list[QueryRecord], queries: list[Query], now: int
) -> list[str]:
    planned = charter.plans[charter.plan]
    there, leaving = planned.queries, planned.leaving
    anew = file_changes([Query.of(query) for query in before], queries)
    changes = {n: q for n, q in anew.items() if there.get(n) != q or n in leaving}
    new = [query for query in changes.values() if query is not None]
    if charter.schema is not None and new:
        bind_types(plan(new), charter.schema, charter.settings.time)
    # What changed under its name leaves first, and comes back with the version after.
    if there.keys() & changes.keys():
        charter = charter.without_queries(changes)
        member.adopt(charter, now)
    if new:
        charter = charter.with_queries([*charter.plans[charter.plan].queries.values(), *new])
        member.adopt(charter, now)
    said = [change_text(name, there.get(name), query) for name, query in changes.items()]
    left = charter.plans[charter.plan].queries
    return said + [removal_text(query.name) for query in queries if query.name not in left]


def _places(nodes: Sequence[NodeSection]) -> Iterator[NodePlace]:
    """The places of a tree: a node that merges and reads gets a child that reads for it."""
    for node in nodes:
        if node.spare_of is not None:
            continue  # it gets a place when it takes over
        if node.reads_and_merges:
            yield NodePlace(node.id, 0, node.parent, False, node.listen)
            yield NodePlace(node.reader, 0, node.id, True, host=node.id)
        else:
            yield NodePlace(node.id, 0, node.parent, node.source is not None, node.listen)


def given(job: JobModel, id: str, parent: str | None = None, engine: str = "spark") -> NodeConfig:
    """The settings of a node of a job file; `parent` replaces the address that the file has."""
    known = {node.id: node for node in job.nodes}
    if id not in known:
        raise JobError("no such node", given=id, hint=did_you_mean(id, known))
    node = known[id]
    root = node.parent is None and parent is None
    if job.checkpoint is None and node.home is None:
        raise JobError(
            "a node needs a folder", given=id, hint="add checkpoint: folder/ to the job file"
        )
    home = Path(node.home) if node.home else Path(str(job.checkpoint)) / file_name(id)
    return NodeConfig(
        id,
        home,
        None if root else parent or _address(node, known),
        node.listen,
        None if node.reads_and_merges else node.source,
        job.sinks if root else (),
        founded(job, engine) if root else None,
        job.security,
        node.engine or engine,
        reader=_reader(job, node, home, engine) if node.reads_and_merges else None,
        aside_disk_bytes=job.aside_disk_bytes,
    )


def _reader(job: JobModel, node: NodeSection, home: Path, engine: str) -> NodeConfig:
    """What the reader of a node's own source is given; it needs no address and no token."""
    return NodeConfig(
        node.reader,
        home / "reader",
        node.id,
        None,
        node.source,
        (),
        None,
        None,
        node.engine or engine,
        hosted=True,
        aside_disk_bytes=job.aside_disk_bytes,
    )


def _address(node: NodeSection, known: dict[str, NodeSection]) -> str:
    """Where a node finds its parent: the file says the address, or the id of one that has it."""
    parent = str(node.parent)
    if parent in known:
        listen = known[parent].listen
        if listen is None:
            raise JobError(
                "a node with children must say where they find it",
                given=parent,
                hint="add listen: 127.0.0.1:7401",
            )
        return listen
    if ":" not in parent:
        raise JobError(
            "a node's parent is unknown",
            given=f"{parent}, the parent of {node.id}",
            hint=did_you_mean(parent, known) or "give its address, as in 10.0.0.5:7401",
        )
    return parent
