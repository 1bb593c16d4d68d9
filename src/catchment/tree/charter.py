"""The charter: all that the root decides and every node works by. It is handed down whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Set
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
from catchment.planner.coarser import coarser_groups
from catchment.planner.marked import MarkedSet, marked_sets, waiting_sets
from catchment.planner.planned import NOTHING, Planned
from catchment.ranking.groups import ranked_groups
from catchment.tree.settings import TreeSettings
from catchment.tree.words import NonNegative

FORMAT = 2
PLANS = 64
"""Versions of the plan that a charter holds. A node that missed more of them starts anew."""


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
    replaces: tuple[NodeId, ...] = ()
    """The nodes that it replaced, directly or through others; the first one of them first."""

    @property
    def stream(self) -> str:
        """The name of what it reads: the id of the first node that read it."""
        return self.replaces[0] if self.replaces else self.id


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
        return list(self._children.get(id, ()))

    @cached_property
    def _children(self) -> dict[str | None, list[str]]:
        """The children of each node that has some, in the order of their numbers."""
        found = defaultdict[str | None, list[str]](list)
        for place in sorted(self.places.values(), key=lambda place: place.number):
            found[place.parent].append(place.id)
        return dict(found)

    def below(self, id: str, above: Iterable[str]) -> bool:
        """Whether a node is one of the nodes in `above`, or below one of them."""
        at: str | None = id
        while at is not None and at not in above:
            at = self.places[at].parent
        return at is not None

    def id_of(self, number: int) -> str | None:
        """The node that has a number; None: it is not known any more."""
        return self._numbers.get(number)

    @cached_property
    def _numbers(self) -> dict[int, str]:
        return {place.number: place.id for place in self.places.values()}

    @cached_property
    def standing_in(self) -> dict[str, str]:
        """Who is in the place of each node: itself or, of one that was replaced, the new one."""
        found = {old: place.id for place in self.places.values() for old in place.replaces}
        return found | {id: id for id in self.places}

    @cached_property
    def readers(self) -> dict[str, str]:
        """Who reads each stream."""
        return {place.stream: place.id for place in self.places.values()}

    def may_bring(self, child: str, id: str) -> bool:
        """Whether something that another node has said may come by way of a child: that node is
        below it, or somebody on the way up from there has moved. Of nodes that are not known it
        may, because they may have been."""
        at: str | None = id if id in self.places else None
        while at is not None:
            place = self.places[at]
            if at == child or child in place.replaces or place.move:
                return True
            at = place.parent
        return id not in self.places

    def comes_by(self, child: str, id: str) -> bool:
        """Whether a node is below a child by where it is now, or by where it or somebody on the way
        comes from."""
        known, ways = set[str](), [id]
        while ways:
            at = ways.pop()
            known.add(at)
            near = (self.places[at].parent, self.places[at].was) if at in self.places else ()
            ways += [next for next in near if next is not None and next not in known]
        return child in known

    def leaving(self, id: str) -> list[str]:
        """Former children that have not landed under their new parent yet."""
        return list(self._leaving.get(id, ()))

    @cached_property
    def _leaving(self) -> dict[str, list[str]]:
        found = defaultdict[str, list[str]](list)
        for place in self.places.values():
            if place.was is not None:
                found[place.was].append(place.id)
        return dict(found)

    def stream(self, id: str) -> str:
        """The name of what a node reads."""
        return self.places[id].stream if id in self.places else id

    def successor(self, id: str) -> NodePlace | None:
        """The node that has taken over from one that is gone for good."""
        if id in self.places:
            return None
        return next((place for place in self.places.values() if id in place.replaces), None)

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

    def ranked_groups(self, version: int) -> dict[int, str]:
        """The groups whose values nodes may keep back and be asked for, and their names for good;
        equal on all nodes."""
        if not self.settings.asks_values or self.schema is None:
            return {}
        if version not in self._ranked_groups:
            self._ranked_groups[version] = ranked_groups(self.plans[version])
        return self._ranked_groups[version]

    @cached_property
    def _ranked_groups(self) -> dict[int, dict[int, str]]:
        return {}

    def marked_sets(self, version: int) -> Mapping[int, MarkedSet]:
        """The sets of groups that wait together of which nodes send marks only, by the id of the
        first; equal on all nodes."""
        if not self.settings.asks_marks or self.schema is None:
            return {}
        if version not in self._marked_sets:
            apart = self.distributed_groups(version)
            self._marked_sets[version] = marked_sets(self.plans[version].plan.groups, apart)
        return self._marked_sets[version]

    @cached_property
    def _marked_sets(self) -> dict[int, dict[int, MarkedSet]]:
        return {}

    def marked_groups(self, version: int) -> Set[int]:
        """The groups of these sets."""
        return {id for one in self.marked_sets(version).values() for id in one.groups}

    def cut_sets(self, version: int) -> dict[int, str]:
        """The names for good of these sets, and of those of which that was so by an older version
        of the plan: events that nodes kept then are still to be cut."""
        if not self.settings.asks_marks or self.schema is None:
            return {}
        if version not in self._cut_sets:
            older = (self.marked_sets(plan).values() for plan in self.plans if plan <= version)
            names = {one.name for sets in older for one in sets}
            sets = waiting_sets(self.plans[version].plan.groups, self.distributed_groups(version))
            self._cut_sets[version] = {
                id: one.name for id, one in sets.items() if one.name in names
            }
        return self._cut_sets[version]

    @cached_property
    def _cut_sets(self) -> dict[int, dict[int, str]]:
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
                made_of=self.plans[version].made_of,
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
        """The charter with another set of queries: the plan gets a new version.

        All queries come through here, those of the job file and those that are added later. Each
        new one must meet the tree's rules, and fit the events once their columns are known.
        `leaving` are the queries that are removed once their windows have ended; None: the same as
        before.
        """
        before = self.plans[self.plan] if self.plans else NOTHING
        asked = {query.name: query for query in queries}
        given = {
            name: query
            if before.queries.get(name) == query
            else admitted(query, self.settings.query_rules, self.schema, asked)
            for name, query in asked.items()
        }
        number = self.plan + 1 if self.plans else 0
        gone = [name for name in (before.leaving if leaving is None else leaving) if name in given]
        rate = None if self.plans else EventRate.of(self.settings.rate)
        return self._with_plan(number, before.next(number, given, gone, rate))

    def _with_plan(self, number: int, planned: Planned) -> Charter:
        before = self.plans[self.plan] if self.plans else NOTHING
        made_of = coarser_groups(planned.plan, planned.lineage, before.made_of)
        planned = replace(planned, made_of=made_of)
        plans = dict(sorted({**self.plans, number: planned}.items())[-PLANS:])
        return replace(self, version=self.version + 1, plans=plans)

    def handed_over(self, groups: Collection[int], rate: float) -> Charter:
        """The charter with the queries of some groups moved to others that suit the rate."""
        held, number = self.plans[self.plan], self.plan + 1
        seen = EventRate(rate, "observed")
        return self._with_plan(number, held.next(number, held.queries, held.leaving, seen, groups))

    def without_former(self, names: Collection[str]) -> Charter:
        """The charter without former groups, once their queries have got all windows from them."""
        held, number = self.plans[self.plan], self.plan + 1
        return self._with_plan(number, held.next(number, held.queries, held.leaving, ended=names))

    def without_queries(self, names: Iterable[str]) -> Charter:
        """The charter without some queries; names that it does not have are ignored."""
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

    def replaced(self, old: str, new: str) -> Charter:
        """With another node in the place of one that is gone for good."""
        place, version = self.places[old], self.version + 1
        number = 1 + max(other.number for other in self.places.values())
        replaces = (*place.replaces, old)
        made = NodePlace(new, number, place.parent, True, added=version, replaces=replaces)
        others = {id: other for id, other in self.places.items() if id != old}
        return replace(self, version=version, places={**others, new: made})

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
    """A charter as it is stored, and sent to children."""

    job: str
    version: NonNegative
    settings: TreeSettings
    places: tuple[NodePlace, ...]
    schema: bytes | None
    """The columns of the events, in Arrow's own format."""
    plans: dict[NonNegative, bytes]


def _without_stamps(schema: pa.Schema) -> pa.Schema:
    """A schema without the columns for node and sequence number: the head of a message has both."""
    fields = [field for field in schema if field.name not in (NODE, SEQ)]
    return pa.schema(fields).with_metadata(schema.metadata)
