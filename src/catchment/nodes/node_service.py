"""What a node answers: its children's messages, and the questions of commands."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import assert_never

from msgspec import Struct

from catchment.engine.times import now
from catchment.errors import CatchmentError, JobError, QueryError, RefusedError, did_you_mean
from catchment.model import records
from catchment.model.capacity import Capacity
from catchment.model.node_id import alike, node_id
from catchment.model.query import Query, QueryRecord
from catchment.nodes.questions import (
    QUESTION,
    AddNode,
    AddQueries,
    AskPlan,
    AskQueries,
    AskStatus,
    CheckQueries,
    MoveNode,
    PlanAnswer,
    QueryList,
    Question,
    RemoveNode,
    RemoveQueries,
    ReplaceNode,
    TreeChange,
)
from catchment.nodes.status import NodeStatus, status
from catchment.sources.watch import SourceNote
from catchment.tree.charter import Charter, NodePlace
from catchment.tree.lives import OutdatedError, for_good
from catchment.tree.member import Member
from catchment.tree.take_over import own_windows
from catchment.tree.words import Beat, Hello, read

log = logging.getLogger("catchment.node")

_LOGGED = 100
"""Refusals that are remembered, so that each is said once."""


def _added(charter: Charter, queries: Iterable[QueryRecord]) -> TreeChange:
    """What it means for queries to be added, by the charter that has them."""
    definitions = charter.plans[charter.plan].definitions
    names = tuple(query.name for query in queries)
    return TreeChange(added=names, versions={name: definitions[name].version for name in names})


_READS_ONLY = "a node reads and merges if it has both a source and an address (listen)"


class NodeService:
    """Handles what the transport brings, one request at a time."""

    def __init__(
        self,
        member: Member,
        lock: threading.RLock,
        news: threading.Event,
        changed: Callable[[], None],
    ) -> None:
        self.member, self.lock, self.news, self.changed = member, lock, news, changed
        self.links: Callable[[], set[str]] = set
        """The children that are connected."""
        self.source: Callable[[], SourceNote | None] = lambda: None
        """What of the node's source was never read, if it reads one."""
        self.capacities: Callable[[], list[Capacity]] = list
        """How full what the node's process holds is."""
        self._logged: set[str] = set()

    def hello(self, node: str, note: bytes) -> bytes:
        hello = read(Hello, note)
        if hello.node != node:
            raise RefusedError("a hello names another node", given=f"{hello.node}, from {node}")
        return self._polite(lambda: self.member.on_hello(hello, now()))

    def message(self, node: str, body: bytes) -> bytes:
        return self._polite(lambda: self.member.on_message(node, body, now()))

    def beat(self, node: str, note: bytes) -> bytes:
        return self._polite(lambda: self.member.on_beat(node, read(Beat, note), now()))

    def _polite(self, answer: Callable[[], Struct]) -> bytes:
        """Computes an answer under the lock and encodes it. An error becomes a refusal, which the
        caller gets."""
        with self.lock:
            before = self.member.charter
            try:
                reply = records.encode(answer())
            except CatchmentError as error:
                self._said(error)
                if isinstance(error, RefusedError):
                    raise
                raise RefusedError(error.what, given=error.given, hint=error.hint) from error
            if self.member.charter is not before:
                self.changed()
        self.news.set()
        return reply

    def _said(self, error: CatchmentError) -> None:
        """Writes a refusal to the log where a person must do something about it; once."""
        text = str(error)
        if (for_good(error) or isinstance(error, OutdatedError)) and text not in self._logged:
            log.error("%s: %s", self.member.id, text)
            self._logged = {*[*self._logged][-_LOGGED:], text}

    # -- questions --------------------------------------------------------------------------------

    def ask(self, question: bytes) -> bytes:
        asked: Question = records.decode(QUESTION, question, "a question", records.refused)
        return self._polite(lambda: self._answer(asked))

    def _answer(self, asked: Question) -> NodeStatus | QueryList | PlanAnswer | TreeChange:
        match asked:
            case AskStatus():
                return status(self.member, self.links(), self.source(), self.capacities())
            case AskQueries():
                return self._queries()
            case AskPlan():
                charter = self._charter()
                return PlanAnswer.of(charter.plans[charter.plan])
            case CheckQueries():
                return _added(self._with_queries(asked.queries), asked.queries)
            case AddQueries():
                charter = self._with_queries(asked.queries)
                self.member.adopt(charter, now())
                return _added(charter, asked.queries)
            case RemoveQueries():
                return self._remove_queries(asked)
            case AddNode():
                return self._add_node(asked)
            case MoveNode():
                return self._move_node(asked)
            case RemoveNode():
                return self._remove_node(asked)
            case ReplaceNode():
                return self._replace_node(asked)
            case _:
                assert_never(asked)

    def _charter(self) -> Charter:
        """The charter, where it may be changed."""
        charter = self.member.charter
        if self.member.parent is not None or charter is None:
            raise JobError("only the root decides that", given=self.member.id, hint="ask the root")
        return charter

    def _known(self) -> dict[str, Query]:
        charter = self._charter()
        return dict(charter.plans[charter.plan].queries)

    def _queries(self) -> QueryList:
        charter = self._charter()
        planned = charter.plans[charter.plan]
        return QueryList(
            tuple(query.record() for query in planned.queries.values()),
            {name: planned.definitions[name].version for name in planned.queries},
            tuple(planned.leaving),
        )

    def _with_queries(self, asked: Iterable[QueryRecord]) -> Charter:
        """The charter with more queries; raises where they cannot be added."""
        charter, known = self._charter(), self._known()
        queries = [Query.of(query) for query in asked]
        for query in queries:
            if query.name in known:
                leaves = query.name in charter.plans[charter.plan].leaving
                raise QueryError(
                    "two queries have one name",
                    given=query.name,
                    hint="it is leaving: wait, or remove it without drain"
                    if leaves
                    else "remove one",
                )
        known |= {query.name: query for query in queries}
        return charter.with_queries(known.values())

    def _remove_queries(self, asked: RemoveQueries) -> TreeChange:
        charter, known = self._charter(), self._known()
        for name in asked.names:
            if name not in known:
                raise QueryError("no such query", given=name, hint=did_you_mean(name, known))
        if asked.drain:
            leaving = {*charter.plans[charter.plan].leaving, *asked.names}
            self.member.adopt(charter.with_queries(known.values(), leaving), now())
            return TreeChange(leaving=asked.names)
        self.member.adopt(charter.without_queries(asked.names), now())
        return TreeChange(removed=asked.names)

    def _add_node(self, asked: AddNode) -> TreeChange:
        charter = self._charter()
        parent, listen = asked.parent, asked.listen
        id = _new_id(charter, asked.id)
        if parent not in charter.places:
            raise JobError(
                "a node's parent is unknown",
                given=f"{parent}, the parent of {id}",
                hint=did_you_mean(parent, charter.places),
            )
        if charter.places[parent].source:
            raise JobError("this node has no place for children", given=parent, hint=_READS_ONLY)
        number = 1 + max(place.number for place in charter.places.values())
        reads = listen is None if asked.reads is None else asked.reads
        merges, added = listen is not None, charter.version + 1
        place = NodePlace(id, number, parent, reads and not merges, listen, added=added)
        changed = charter.with_place(place)
        if reads and merges:
            reader = node_id(f"{id}.reader")
            if reader in charter.places:
                raise JobError("two nodes have one id", given=reader, hint="remove one first")
            hosted = NodePlace(reader, number + 1, id, True, host=id, added=added)
            changed = changed.with_place(hosted)
        self.member.adopt(changed, now())
        return TreeChange(added=(id,))

    def _move_node(self, asked: MoveNode) -> TreeChange:
        charter = self._charter()
        id, parent = asked.id, asked.parent
        for name in (id, parent):
            if name not in charter.places:
                raise JobError("no such node", given=name, hint=did_you_mean(name, charter.places))
        check_move(charter, id, parent)
        if self.member.over(parent):  # its process is gone, and the node would wait for it forever
            raise JobError(
                "this node has passed on all it ever will, and takes nobody in",
                given=f"{id} to {parent}",
                hint="choose a parent that still waits for events",
            )
        machine = self.member.machine
        if machine is not None and machine.plan < charter.plan:
            raise JobError(
                "queries are changing just now",
                given=f"{id} to {parent}",
                hint="try again when `catchment status` shows the newest plan",
            )
        self.member.adopt(charter.moved(id, parent), now())
        return TreeChange(moved=(id,))

    def _replace_node(self, asked: ReplaceNode) -> TreeChange:
        charter = self._charter()
        check_replace(charter, asked.old, asked.new)
        if asked.old in self.links():
            raise JobError(
                "this node is there: only one that is gone can be replaced",
                given=asked.old,
                hint="stop it first; what it has not sent by then is read again",
            )
        self.member.adopt(charter.replaced(asked.old, asked.new), now())
        return TreeChange(replaced=(asked.old,), added=(asked.new,))

    def _remove_node(self, asked: RemoveNode) -> TreeChange:
        charter, id = self._charter(), asked.id
        if id not in charter.places:
            raise JobError("no such node", given=id, hint=did_you_mean(id, charter.places))
        if charter.places[id].parent is None:
            raise JobError("the root cannot leave its own tree", given=id)
        _not_a_reader(charter, id)
        children = [
            child
            for child in (*charter.children(id), *charter.leaving(id))
            if charter.places[child].host != id
        ]
        if children:
            raise JobError(
                "a node with children cannot leave",
                given=f"{id} has {', '.join(children)}",
                hint="move or remove them first",
            )
        self.member.adopt(charter.without(id), now())
        return TreeChange(removed=(id,))


def _new_id(charter: Charter, id: str) -> str:
    """The id of a node that is to join; raises where another has it, or had it."""
    id = node_id(id)
    if id in charter.places:
        raise JobError("two nodes have one id", given=id, hint="remove one first")
    if (successor := charter.successor(id)) is not None:
        raise JobError(
            "another node has taken over from this one for good",
            given=f"{id}: {successor.id} is in its place",
            hint="choose another id",
        )
    same = alike(id, charter.places)
    if same is not None:
        raise JobError(
            "two ids differ by nothing but capitals",
            given=f"{same} and {id}",
            hint="some disks cannot tell their folders apart: choose another",
        )
    return id


def check_replace(charter: Charter, old: str, new: str) -> None:
    """Raises unless a node can go on in the place of another."""
    if old not in charter.places:
        raise JobError("no such node", given=old, hint=did_you_mean(old, charter.places))
    _new_id(charter, new)
    _not_a_reader(charter, old)
    place = charter.places[old]
    if not place.source:
        raise JobError(
            "only a node that reads events and has no children can be replaced",
            given=old,
            hint="the root needs the newest copy of its folder; of a node in between, move the "
            "children (catchment nodes mv), then remove it",
        )
    if place.was is not None:
        raise JobError(
            "this node is on its way to another parent",
            given=f"{old}, from {place.was} to {place.parent}",
            hint="remove it, and add another",
        )
    later = own_windows(charter)
    if later:
        raise JobError(
            "windows of the node's own stream, of queries that came later, cannot be read again",
            given=", ".join(later),
            hint=f"remove {old} and add {new}: its windows then begin anew",
        )


def _not_a_reader(charter: Charter, id: str) -> None:
    """Refuses what cannot be done with a part of another node."""
    host = charter.places[id].host
    if host is not None:
        raise JobError(
            "this is no node of its own: it reads for another", given=id, hint=f"name {host}"
        )


def check_move(charter: Charter, id: str, parent: str) -> None:
    """Raises unless a node can go on under another."""
    place, asked = charter.places[id], f"{id} to {parent}"
    if place.parent is None:
        raise JobError("the root cannot move", given=asked)
    _not_a_reader(charter, id)
    if charter.places[parent].source:
        raise JobError("this node has no place for children", given=asked, hint=_READS_ONLY)
    if charter.places[parent].listen is None:
        raise JobError("a node with children must say where they find it", given=asked)
    if place.was is not None:
        raise JobError(
            "this node is on its way already",
            given=f"{id}, from {place.was} to {place.parent}",
            hint="a move ends once both parents are up and the node has told the new one",
        )
    if place.parent == parent:
        raise JobError("this node is there already", given=asked)
    if id in charter.settings.spares.values():
        raise JobError(
            "a node that has a spare cannot move",
            given=asked,
            hint="its spare waits at the parent that the job file says",
        )
    above: str | None = parent
    while above is not None:
        if above == id:
            raise JobError("nodes would go round in a circle", given=asked)
        above = charter.places[above].parent
