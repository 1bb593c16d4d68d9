"""The charter: all that the root decides and every node works by. It is handed down whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec
import pyarrow as pa

from catchment.counting.distributed import distributed_groups
from catchment.engine.binding import admitted
from catchment.engine.bound import BoundPlan
from catchment.engine.partials import NODE, SEQ
from catchment.model import packed
from catchment.model.costs import EventRate
from catchment.model.node_id import NodeId
from catchment.model.query import Query
from catchment.planner.planned import NOTHING, Planned
from catchment.tree.settings import TreeSettings
from catchment.tree.words import NonNegative

FORMAT = 2
PLANS = 64
"""Versions of the plan that are handed down: a node that slept through more starts anew."""


@dataclass(frozen=True)
class NodePlace:
    """A node's place in the tree, and the number by which its events rank."""

    id: NodeId
    number: NonNegative
    parent: NodeId | None
    source: bool
    """Whether it reads events, or merges what its children read."""
    listen: str | None = None
    was: NodeId | None = None
    """While it moves: the parent it comes from, which still answers for it."""
    move: int = 0
    """Which move that is: the version of the charter that began it."""
    added: NonNegative = 0
    """The version of the charter that brought it; 0: it was there from the beginning."""
    host: NodeId | None = None
    """The parent in whose process it runs, where it stands for that node's own source."""


@dataclass(frozen=True)
class Charter:
    """Versions of the plan, who is whose child, how events are treated; equal on all nodes."""

    job: str
    version: int
    settings: TreeSettings
    places: Mapping[str, NodePlace]
    schema: pa.Schema | None = None
    """The columns of the events; None until the first node that reads some has told them."""
    plans: Mapping[int, Planned] = field(default_factory=dict)

    @property
    def plan(self) -> int:
        """The newest version of the plan."""
        return max(self.plans)

    @property
    def root(self) -> str:
        return next(place.id for place in self.places.values() if place.parent is None)

    def children(self, id: str) -> list[str]:
        """The ids of a node's children, in the order of their numbers."""
        found = [place for place in self.places.values() if place.parent == id]
        return [place.id for place in sorted(found, key=lambda place: place.number)]

    def below(self, id: str, above: Iterable[str]) -> bool:
        """Whether a node is one of the nodes in `above`, or below one of them."""
        at: str | None = id
        while at is not None and at not in above:
            at = self.places[at].parent
        return at is not None

    def leaving(self, id: str) -> list[str]:
        """Former children that have not landed under their new parent yet."""
        return [place.id for place in self.places.values() if place.was == id]

    @property
    def moves(self) -> dict[int, str]:
        """Moves that are not over, by number, and who moves."""
        return {place.move: place.id for place in self.places.values() if place.was is not None}

    def distributed_groups(self, version: int) -> dict[int, str]:
        """The groups whose count windows are found by asking, and their names for good.

        Equal on all nodes, and the same for a group in all versions of the plan that have it. Local
        nodes keep the events of these groups, tell the root where some of them are, and cut them
        where the root has found an edge: what climbs is a partial per slice.
        """
        if not self.settings.distributes_counts or self.schema is None:
            return {}
        if version not in self._distributed_groups:
            self._distributed_groups[version] = distributed_groups(
                self.plans[version], self.schema, self.settings.count
            )
        return self._distributed_groups[version]

    @cached_property
    def _distributed_groups(self) -> dict[int, dict[int, str]]:
        return {}

    def bound(self, version: int) -> BoundPlan:
        """A version of the plan, bound to the columns of the events."""
        if version not in self._bound:
            given = self.settings
            self._bound[version] = BoundPlan(
                self.plans[version].plan,
                given.event_rules,
                self.schema,
                census=True,
                limits=given.memory_limits,
                apart=self.distributed_groups(version),
            )
        return self._bound[version]

    @cached_property
    def _bound(self) -> dict[int, BoundPlan]:
        return {}

    def wire(self, version: int) -> dict[int, pa.Schema]:
        """What the partials of each group look like on their way, by a version of the plan."""
        if version not in self._wires:
            empty = self.bound(version).merger(stream="").take()
            self._wires[version] = {
                id: _without_stamps(table.schema) for id, table in empty.groups.items()
            }
        return self._wires[version]

    @cached_property
    def _wires(self) -> dict[int, dict[int, pa.Schema]]:
        return {}

    # -- changes, each a new version --------------------------------------------------------------

    def with_queries(
        self, queries: Iterable[Query], leaving: Iterable[str] | None = None
    ) -> Charter:
        """With another set of queries: the plan gets a new version.

        This is the one door for queries, those of the job file and those that are added later:
        each that is new must meet the tree's rules, and fit the events once these are known.
        `leaving` are those that leave once their windows have ended; None: those that did before.
        """
        before = self.plans[self.plan] if self.plans else NOTHING
        given = {
            query.name: query
            if before.queries.get(query.name) == query
            else admitted(query, self.settings.query_rules, self.schema)
            for query in queries
        }
        number = self.plan + 1 if self.plans else 0
        gone = [name for name in (before.leaving if leaving is None else leaving) if name in given]
        rate = None if self.plans else EventRate.of(self.settings.rate)
        return self._with_plan(number, before.next(number, given, gone, rate))

    def _with_plan(self, number: int, planned: Planned) -> Charter:
        plans = dict(sorted({**self.plans, number: planned}.items())[-PLANS:])
        return replace(self, version=self.version + 1, plans=plans)

    def handed_over(self, groups: Collection[int], rate: float) -> Charter:
        """With the queries of some groups in others, made for the rate at which events come."""
        held, number = self.plans[self.plan], self.plan + 1
        seen = EventRate(rate, "observed")
        return self._with_plan(number, held.next(number, held.queries, held.leaving, seen, groups))

    def without_former(self, names: Collection[str]) -> Charter:
        """Without what queries were owed by the groups before, once they have been given it."""
        held, number = self.plans[self.plan], self.plan + 1
        return self._with_plan(number, held.next(number, held.queries, held.leaving, ended=names))

    def without_queries(self, names: Iterable[str]) -> Charter:
        """Without some queries, as far as they are there."""
        gone, there = set(names), self.plans[self.plan].queries
        return self.with_queries(query for name, query in there.items() if name not in gone)

    def with_schema(self, schema: pa.Schema) -> Charter:
        return replace(self, version=self.version + 1, schema=schema)

    def with_place(self, place: NodePlace) -> Charter:
        places = {**self.places, place.id: place}
        return replace(self, version=self.version + 1, places=places)

    def moved(self, id: str, parent: str) -> Charter:
        """With a node under another parent; the old one answers for it until it has landed."""
        place, number = self.places[id], self.version + 1
        return self.with_place(replace(place, parent=parent, was=place.parent, move=number))

    def landed(self, moves: Iterable[int]) -> Charter:
        """The charter after some moves have ended: every node above the new parent waits for the
        node that came."""
        over = {self.moves[move] for move in moves}
        places = {id: replace(p, was=None) if id in over else p for id, p in self.places.items()}
        return replace(self, version=self.version + 1, places=places)

    def without(self, id: str) -> Charter:
        """Without a node, and without the reader of its own source."""
        places = {
            name: place
            for name, place in self.places.items()
            if name != id and (place.host is None or place.host != id)
        }
        return replace(self, version=self.version + 1, places=places)

    # -- as bytes ---------------------------------------------------------------------------------

    @cached_property
    def data(self) -> bytes:
        """The charter as bytes."""
        record = _Record(
            self.job,
            self.version,
            self.settings,
            tuple(self.places.values()),
            None if self.schema is None else self.schema.serialize().to_pybytes(),
            {number: planned.to_bytes() for number, planned in self.plans.items()},
        )
        return packed.pack(record, FORMAT)

    @classmethod
    def from_bytes(cls, data: bytes) -> Charter:
        read = packed.unpack(data, "charter", FORMAT, _Record)
        read.settings.flush.check()
        schema = None if read.schema is None else pa.ipc.read_schema(pa.py_buffer(read.schema))
        places = {place.id: place for place in read.places}
        plans = {number: Planned.from_bytes(body) for number, body in read.plans.items()}
        return cls(read.job, read.version, read.settings, places, schema, plans)


class _Record(msgspec.Struct, frozen=True):
    """A charter as it is written down and handed down."""

    job: str
    version: NonNegative
    settings: TreeSettings
    places: tuple[NodePlace, ...]
    schema: bytes | None
    """In Arrow's own format."""
    plans: dict[NonNegative, bytes]


def _without_stamps(schema: pa.Schema) -> pa.Schema:
    """A schema without the columns for node and sequence number: the head of a message has both."""
    fields = [field for field in schema if field.name not in (NODE, SEQ)]
    return pa.schema(fields).with_metadata(schema.metadata)
