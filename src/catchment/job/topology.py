"""The nodes of a tree, as the job file has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic import WithJsonSchema as Shown

from catchment.errors import JobError, did_you_mean
from catchment.model.node_id import LONGEST, PATTERN, alike, node_id
from catchment.model.section import Section
from catchment.sinks import Sink, SparkFormat
from catchment.sources import Source


class NodeSection(Section):
    """A node: it reads a source, merges what its children read, or both; the root has no parent."""

    id: Annotated[str, AfterValidator(node_id)] = Field(pattern=PATTERN, max_length=LONGEST)
    parent: str | None = Field(None, description="a node's id; or host:port, from another host")
    listen: str | None = Field(None, description="host:port where its children find it")
    source: Source | None = None
    engine: Literal["spark", "embedded"] | None = Field(
        None, description="spark (default), or embedded: a plain process, for a small device"
    )
    spare_of: str | None = Field(
        None,
        description="the node that it takes over from when that one has been silent for longer "
        "than `timeout`; both have one parent, and read the same events",
    )
    home: Annotated[Any, Shown({"type": ["string", "null"]})] = Field(
        None, description="its folder; by default one of its name in the job's checkpoint"
    )

    @property
    def reads_and_merges(self) -> bool:
        """Whether a node reads events and also takes children, or may take some later."""
        return self.source is not None and (self.parent is None or self.listen is not None)

    @property
    def reader(self) -> str:
        """The id of the child that reads the source of a node which also merges."""
        return f"{self.id}.reader"


def check_nodes(nodes: Sequence[NodeSection]) -> None:
    """Refuses nodes that make no tree."""
    for mistake in node_mistakes(nodes):
        raise mistake


def node_mistakes(nodes: Sequence[NodeSection]) -> Iterator[JobError]:
    """Every reason why nodes make no tree."""
    known: dict[str, NodeSection] = {}
    for node in nodes:
        if node.id in known:
            yield JobError("two nodes have one id", given=node.id, hint="give each its own")
        else:
            same = alike(node.id, known)
            if same is not None:
                yield JobError(
                    "two ids differ by nothing but capitals",
                    given=f"{same} and {node.id}",
                    hint="some disks cannot tell their folders apart: rename one",
                )
        known[node.id] = node
    for node in nodes:
        if node.reads_and_merges:
            node_id(node.reader)
        if node.reads_and_merges and node.reader in known:
            yield JobError(
                "two nodes have one id",
                given=f"{node.reader}, which stands for the source of {node.id}",
                hint="give the node of that name another one",
            )
    roots = [node.id for node in nodes if node.parent is None]
    if len(roots) != 1:
        yield JobError(
            "a tree has one root: one node without a parent",
            given=", ".join(roots) or "no such node",
            hint="name the parent of all others" if roots else "leave out the root's parent",
        )
    for node in nodes:
        if node.parent is not None and node.parent not in known:
            yield JobError(
                "a node's parent is unknown",
                given=f"{node.parent}, the parent of {node.id}",
                hint=did_you_mean(node.parent, known),
            )
    yield from _circles(nodes, known)
    yield from _useless_spares(nodes, known)
    for node in nodes:
        yield from _without_work(node, any(other.parent == node.id for other in nodes))


def sink_mistakes(nodes: Sequence[NodeSection], sinks: Sequence[Sink]) -> Iterator[JobError | None]:
    """For each sink, why the root of a tree cannot write to it; None where it can.

    A root that is elsewhere has sinks of its own.
    """
    roots = [node for node in nodes if node.parent is None]
    for sink in sinks:
        other = [node for node in roots if node.engine != "spark"]
        if not isinstance(sink, SparkFormat) or not other:
            yield None
            continue
        root = other[0]
        said = "engine: embedded" if root.engine else "no engine, so catchment up makes it embedded"
        yield JobError(
            "only a root on Spark writes results through Spark",
            given=f"format: {sink.format}, and the root {root.id} has {said}",
            hint="say engine: spark at the root, or take another sink",
        )


def _circles(nodes: Sequence[NodeSection], known: dict[str, NodeSection]) -> Iterator[JobError]:
    """Nodes whose parents lead to no root; each circle is listed once."""
    told: set[str] = set()
    for node in nodes:
        path = [node.id]
        while (parent := known[path[-1]].parent) is not None and parent in known:
            if parent in told:
                break
            if parent in path:
                told.update(path)
                yield JobError(
                    "nodes go round in a circle",
                    given=" -> ".join([*path, parent]),
                    hint="one of them must have another parent",
                )
                break
            path.append(parent)


def _useless_spares(
    nodes: Sequence[NodeSection], known: dict[str, NodeSection]
) -> Iterator[JobError]:
    """Spares that could not take over."""
    for node in nodes:
        if node.spare_of is None:
            continue
        pair = f"{node.id}, the spare of {node.spare_of}"
        if node.spare_of not in known:
            hint = did_you_mean(node.spare_of, known)
            yield JobError("a spare is of no node of the tree", given=pair, hint=hint)
            continue
        old = known[node.spare_of]
        if old.spare_of is not None:
            yield JobError("a spare has no spare", given=pair, hint=f"say spare_of: {old.spare_of}")
        if any(_merges(one, nodes) or one.source is None for one in (node, old)):
            yield JobError(
                "only nodes that read events and have no children can be spares and have some",
                given=pair,
                hint="give both a source, and neither an address (listen)",
            )
        elif node.parent != old.parent:
            yield JobError(
                "a spare must have the parent of its node",
                given=f"{pair}: {node.parent} and {old.parent}",
                hint=f"say parent: {old.parent}",
            )


def _merges(node: NodeSection, nodes: Sequence[NodeSection]) -> bool:
    return node.listen is not None or any(other.parent == node.id for other in nodes)


def _without_work(node: NodeSection, children: bool) -> Iterator[JobError]:
    if not children and node.source is None:
        yield JobError(
            "a node has neither source nor children",
            given=node.id,
            hint="add source: {type: parquet, path: events/}",
        )
    if children and node.listen is None:
        yield JobError(
            "a node with children must say where they find it",
            given=node.id,
            hint="add listen: 127.0.0.1:7401",
        )
