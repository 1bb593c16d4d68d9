"""A node as others see it: it says hello, passes messages up, answers its children.

What carries the words is not its business: links between machines, a virtual clock in a simulation.
Words are typed records (`words`); a message is bytes. Which process may speak for a node is decided
as `lives` says. Every reply a child gets may bring it a newer charter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgspec
import pyarrow as pa

from catchment.counting.orders import Orders
from catchment.durable import records
from catchment.durable.disk import Disk
from catchment.engine.binding import bind_types
from catchment.errors import CatchmentError, DataError, RefusedError, StateError, did_you_mean
from catchment.model.node_id import NodeId, node_id
from catchment.sources.base import Source
from catchment.tree.charter import Charter
from catchment.tree.inbox import Inbox, UntakenError, set_aside
from catchment.tree.lives import (
    Lives,
    OutdatedError,
    OwnLife,
    for_good,
    outdated,
    replaced_by,
)
from catchment.tree.local import AsideWriter, Local
from catchment.tree.message import DecodedMessage, checked, head_of, heard, spoken
from catchment.tree.outflow import Outflow
from catchment.tree.records import FORMAT, NOWHERE
from catchment.tree.relay import Relay
from catchment.tree.role import Role
from catchment.tree.root import Deliver, Root
from catchment.tree.take_over import NOTE, own_windows
from catchment.tree.window_traffic import ChildTraffic
from catchment.tree.words import (
    Beat,
    Farewell,
    Filling,
    Hello,
    LinkFigures,
    Moved,
    Reply,
    RootLife,
    Unread,
)

WINDOW = 64
"""Messages on their way before one must be acknowledged."""
QUOTA = 1 << 30
GRACE = 5_000_000
"""Microseconds that a root waits for its children's hellos before its first step: longer than a
child pauses between two attempts to reach it."""
_TOLD = 64
"""Refusals, and spares that wait, that are passed up."""
_WAITS = 10_000_000
"""Microseconds after its last word for which a spare counts as ready."""


class _FolderIdentity(msgspec.Struct, frozen=True):
    node: NodeId
    format: int
    """The format of the node's folder."""


class Member:
    """One node of the tree; all it must not lose is on its disk."""

    def __init__(
        self,
        id: str,
        disk: Disk,
        now: int,
        *,
        parent: str | None = None,
        source: Callable[[], Source] | None = None,
        deliver: Deliver | None = None,
        charter: Charter | None = None,
        quota: int = QUOTA,
        keep: AsideWriter | None = None,
    ) -> None:
        self.id, self.disk, self.parent = node_id(id), disk, parent
        self.source, self.deliver, self.quota, self.keep = source, deliver, quota, keep
        self.machine: Role | None = None
        """What it does, once it is known what events look like; the root begins at once."""
        self.acked = self.sent = 0
        """Messages that the parent has, and that were handed to the link."""
        self.links: dict[str, LinkFigures] = {}
        """What children say that the links to here carry."""
        self.carried: dict[str, int] = {}
        """Bytes of the messages that children have sent here since this process began."""
        self.traffic: dict[str, ChildTraffic] = {}
        """What these brought for windows of each type."""
        self.refusals: dict[str, str] = {}
        """Nodes that were turned away, and why, until they are taken in."""
        self.below: dict[str, dict[str, str]] = {}
        """Nodes further below that were turned away, and why, as children tell."""
        self.unread: Unread | None = None
        """What of its own source was never read, as far as whoever runs this node has said."""
        self.unread_below: dict[str, dict[str, Unread]] = {}
        self.fills: tuple[Filling, ...] = ()
        """What of this node is at least half full, as far as whoever runs it has said."""
        self.filling_below: dict[str, dict[str, tuple[Filling, ...]]] = {}
        self._spares: dict[str, int] = {}
        """Spares that wait here, and when each was last heard of."""
        self._spares_below: dict[str, tuple[str, ...]] = {}
        self.refused: str | None = None
        """Why the parent has turned this node away for good: it takes no step any more."""
        self._claims: dict[str, str] = {}
        """What children know that this node's folder does not: it is an old copy."""
        self._schema: pa.Schema | None = None
        self._open: Source | None = None
        """Its source. One that receives holds a port and a spool: it cannot be open twice."""
        self._came: dict[str, Moved] = {}
        """Children that said hello after a move: what the inbox must know of it."""
        held = disk.get("charter")
        if held is None and charter is not None:
            if disk.get("identity") is not None:  # it is written after the charter
                raise StateError(
                    "the charter of the tree is gone from the root's folder",
                    given=self.id,
                    hint="restore the newest copy of the folder",
                )
            held = charter.data
            disk.put("charter", held)
        self.charter = None if held is None else Charter.from_bytes(held)
        self._orders = Orders()
        self._ordered: dict[str, int] = {}
        """The last orders that each child has."""
        self._questions = Orders()
        self._questioned: dict[str, int] = {}
        """The last questions that each child has."""
        self._edges = Orders()
        self._edged: dict[str, int] = {}
        """The last word about marks that each child has."""
        self._due: dict[str, int] = {}
        """The time about which each child was asked last."""
        self._identify()
        self.lives = Lives(self.id, disk)
        self.own_life = records.get(disk, "life", OwnLife) or OwnLife()
        self.living = False
        """Whether this process was granted the life that its folder holds."""
        self._began, self._greeted, self._in_touch = now, set[str](), False
        if parent is None:
            self._keep_life(OwnLife(self.own_life.life + 1))
        if self.charter is None and self.own_life.life:  # it came before the first life
            raise StateError(
                "the charter of the tree is gone from the node's folder",
                given=self.id,
                hint="restore the newest copy of the folder",
            )
        self.moved = records.get(disk, "moved", Moved)
        """By which move it came to the parent it has, where that is, and what the last one has."""
        if self.charter is not None:
            self._start(now)

    def _identify(self) -> None:
        held = self.disk.get("identity")
        if held is not None and held.startswith(b"{"):
            # The first formats are JSON, and do not say their number.
            raise _other_format(self.id, "2 or older")
        known = records.get(self.disk, "identity", _FolderIdentity)
        if known is None:
            records.put(self.disk, "identity", _FolderIdentity(self.id, FORMAT))
            return
        if known.format != FORMAT:
            raise _other_format(self.id, str(known.format))
        if known.node != self.id:
            raise StateError(
                "the folder is another node's",
                given=f"{known.node!r} there, {self.id!r} here",
                hint="give each node a folder of its own",
            )

    def _keep_life(self, held: OwnLife) -> None:
        """Keeps a life; from now on this process is in it."""
        records.put(self.disk, "life", held)
        self.own_life, self.living = held, True

    def _start(self, now: int) -> None:
        """Builds the machine from what is on disk, once it is known what events look like."""
        while not self._started(now):
            pass

    def _started(self, now: int) -> bool:
        """Whether it could be built; False: a message had to be set aside first."""
        charter = self.charter
        assert charter is not None
        if isinstance(self.machine, Local):
            self.close()  # what it has read may be more than what is on disk
        self.machine = None
        if self.parent is None:
            try:
                self.machine = Root(self.id, self.disk, charter, self.deliver, now)
            except UntakenError as error:
                set_aside(self.disk, charter, error.id, error.seq, str(error))
                return False
        elif charter.schema is None:
            return True
        elif self.source is not None:
            self.machine = Local(self.id, self.disk, charter, self._opened(self.source), self.keep)
        else:
            self.machine = Relay(self.id, self.disk, charter, now)
        for id, came in self._came.items():
            if self.inbox is not None and id in self.inbox.children:
                self.inbox.begin(id, came)
        return True

    def _opened(self, source: Callable[[], Source]) -> Source:
        if self._open is None:
            self._open = source()
        return self._open

    def close(self) -> None:
        """Lets go of the source."""
        if self._open is not None:
            self._open.close()
        self._open = None

    def reload(self, now: int) -> None:
        """Goes back to what is on disk, after a step that could not be finished."""
        due = None if self.flow is None else self.flow.due
        if self.charter is not None:
            self._start(now)
        if self.flow is not None:
            self.flow.due = due
        self.sent = self.acked

    @property
    def inbox(self) -> Inbox | None:
        """What children have sent, if it may have children."""
        return None if self.machine is None else self.machine.inbox

    @property
    def flow(self) -> Outflow | None:
        """What it passes up, unless it is the root."""
        return None if self.machine is None else self.machine.flow

    def adopt(self, charter: Charter, now: int) -> None:
        """Takes a newer charter and keeps it on disk."""
        if self.charter is not None and charter.version <= self.charter.version:
            return
        self.disk.put("charter", charter.data)
        self.charter = charter
        self._orders.keep(charter.distributed_groups(charter.plan).values())
        self._questions.keep(charter.ranked_groups(charter.plan).values())
        self._edges.keep(charter.cut_sets(charter.plan).values())
        here = {*charter.children(self.id), *charter.leaving(self.id)}
        self.lives.keep(here)
        self.below = {id: told for id, told in self.below.items() if id in here}
        self.unread_below = {id: told for id, told in self.unread_below.items() if id in here}
        self.filling_below = {id: told for id, told in self.filling_below.items() if id in here}
        self._spares_below = {id: told for id, told in self._spares_below.items() if id in here}
        self.carried = {id: nbytes for id, nbytes in self.carried.items() if id in here}
        self.traffic = {id: found for id, found in self.traffic.items() if id in here}
        self.refusals = {id: why for id, why in self.refusals.items() if id in charter.places}
        self._claims = {id: why for id, why in self._claims.items() if id in here}
        if self.machine is None:
            self._start(now)
        else:
            self.machine.follow(charter, now)

    # -- work -------------------------------------------------------------------------------------

    def step(self, now: int) -> bool:
        """Does what there is to do; whether anything happened."""
        if self.machine is None and self.charter is not None:
            self._start(now)  # its source could not be opened when the charter came
        if self.machine is None or self.full or not self.ready(now):
            return False
        self.tend(now)
        try:
            return self.machine.step(now) or self.send_early(now)
        except UntakenError as error:
            assert self.charter is not None
            set_aside(self.disk, self.charter, error.id, error.seq, str(error))
            self.reload(now)
            return True

    def ready(self, now: int) -> bool:
        """Whether this process may take steps: it was granted a life, and no child has shown that
        its folder is an old copy."""
        if not self.living or self.refused is not None or self.outdated is not None:
            return False
        return self.parent is not None or self._met(now)

    def _met(self, now: int) -> bool:
        """Whether all children that may know more than the root's folder have said hello, or the
        time to wait for them is over."""
        if not self._in_touch:
            inbox = self.inbox
            awaited = () if inbox is None else inbox.unfinished()
            self._in_touch = {*awaited} <= self._greeted or now - self._began > GRACE
        return self._in_touch

    @property
    def outdated(self) -> str | None:
        """Why this node's folder must be an old copy, if a child has shown that."""
        return next(iter(self._claims.values()), None)

    def send_early(self, now: int) -> bool:
        """Passes some of what is held back up early, if that makes results earlier."""
        return self.flow is not None and not self.full and self.flow.send_early(now)

    def tend(self, now: int) -> None:
        """Adopts the charters that are due; only a root makes any."""
        if self.machine is not None:
            for newer in self.machine.amendments():
                self.adopt(newer, now)
            if self.parent is None and self.charter is not None and self.charter.settings.spares:
                self._call_spares(self.charter, now)

    def _call_spares(self, charter: Charter, now: int) -> None:
        """Has spares take over that are ready for it."""
        for spare in self.spares(now):
            old = charter.settings.spares.get(spare, "")
            if old in charter.places and spare not in charter.places and not own_windows(charter):
                charter = charter.replaced(old, spare)
                self.adopt(charter, now)

    def spares(self, now: int) -> tuple[str, ...]:
        """The spares that wait here or below, and whose nodes are silent there."""
        inbox, charter = self.inbox, self.charter
        found = {id for told in self._spares_below.values() for id in told}
        if inbox is not None and charter is not None:
            spares = charter.settings.spares
            ready = [id for id, heard in self._spares.items() if now - heard <= _WAITS]
            found |= {id for id in ready if inbox.silent(spares[id], now)}
        return tuple(sorted(found))[:_TOLD]

    def over(self, id: str) -> bool:
        """Whether a node below has sent all it ever will, as far as is known here."""
        charter, inbox = self.charter, self.inbox
        child: str | None = id
        while charter is not None and child is not None and child in charter.places:
            if inbox is not None and child in inbox.children and inbox.over(child):
                return True
            child = charter.places[child].parent
        return False

    @property
    def done(self) -> bool:
        """Whether nothing can come any more, and the parent has all that there was."""
        if self.machine is None or (self.flow is not None and self.acked < self.flow.outbox.sent):
            return False
        return self.machine.done

    @property
    def full(self) -> bool:
        """Whether so much waits for the parent that no more is read or merged."""
        return self.flow is not None and self.flow.outbox.nbytes > self.quota

    # -- as a child -------------------------------------------------------------------------------

    def hello(self) -> Hello:
        """What a node says first."""
        outbox = None if self.flow is None else self.flow.outbox
        known = self.charter
        return Hello(
            self.id,
            life=self.own_life.life,
            living=self.living,
            sent=0 if outbox is None else outbox.sent,
            settled=0 if outbox is None else outbox.settled,
            job=None if known is None else known.job,
            charter=-1 if known is None else known.version,
            added=self.own_life.added,
            orders=self._heard_orders,
            questions=self._heard_questions,
            edges=self._heard_edges,
            schema=self._told_schema(),
            moved=self.moved,
            root=self.own_life.root,
        )

    @property
    def asked_soon(self) -> bool:
        """Whether the root asks for edges of count windows, or is about to ask about values."""
        if self.charter is not None and self.charter.distributed_groups(self.charter.plan):
            return True
        return self.flow is not None and self.flow.expects_questions

    def beat(self, now: int) -> Beat:
        """What a node says when it has nothing else to say."""
        flow = self.flow
        return Beat(
            life=self.own_life.life,
            charter=-1 if self.charter is None else self.charter.version,
            orders=self._heard_orders,
            questions=self._heard_questions,
            edges=self._heard_edges,
            schema=self._told_schema(),
            link=None if flow is None else flow.link_figures(),
            refused=dict([*self.turned_away().items()][:_TOLD]),
            unread=dict([*self.never_read().items()][:_TOLD]),
            filling=dict([*self.filling().items()][:_TOLD]),
            spares=self.spares(now),
        )

    def turned_away(self) -> dict[str, str]:
        """The nodes in this subtree that were turned away, and why."""
        found = dict(self.refusals)
        for told in self.below.values():
            found |= told
        if self.outdated is not None:
            found[self.id] = self.outdated
        return {id: why[:1000] for id, why in found.items()}

    def never_read(self) -> dict[str, Unread]:
        """The nodes in this subtree that have not read all of their sources."""
        found = {} if self.unread is None else {self.id: self.unread}
        for told in self.unread_below.values():
            found |= told
        return found

    def filling(self) -> dict[str, tuple[Filling, ...]]:
        """The nodes in this subtree on which something is at least half full, and what."""
        found = {self.id: self.fills} if self.fills else {}
        for told in self.filling_below.values():
            found |= told
        return found

    @property
    def _heard_orders(self) -> int:
        """The last orders of the root that are here."""
        counting = None if self.flow is None else self.flow.counting
        return self.orders.number if counting is None else counting.leaf.heard

    @property
    def orders(self) -> Orders:
        """What the root has to say of count windows."""
        own = None if self.machine is None else self.machine.orders
        return self._orders if own is None else own

    @property
    def _heard_questions(self) -> int:
        """The last questions of the root that are here."""
        ranking = None if self.flow is None else self.flow.ranking
        return self.questions.number if ranking is None else ranking.leaf.heard

    @property
    def questions(self) -> Orders:
        """What the root asks about values that nodes keep back."""
        own = None if self.machine is None else self.machine.questions
        return self._questions if own is None else own

    @property
    def _heard_edges(self) -> int:
        """The last word of the root about marks that is here."""
        marking = None if self.flow is None else self.flow.marking
        return self.edges.number if marking is None else marking.leaf.heard

    @property
    def edges(self) -> Orders:
        """What the root tells of marks."""
        own = None if self.machine is None else self.machine.edges
        return self._edges if own is None else own

    def _told_schema(self) -> bytes | None:
        """What events look like, until the root knows."""
        if self.charter is not None and self.charter.schema is not None:
            return None
        if self._schema is None and self.source is not None:
            self._schema = self._opened(self.source).event_schema()
        return None if self._schema is None else bytes(self._schema.serialize().to_pybytes())

    def heard(self, reply: Reply, now: int) -> None:
        """Takes the parent's reply to a hello, a message or a beat."""
        begins = reply.take_over is not None and self.disk.get(NOTE) is None
        if begins:
            records.put(self.disk, NOTE, reply.take_over)
        if reply.charter is not None:
            self.adopt(Charter.from_bytes(reply.charter), now)
        if begins and self.machine is not None:
            self._start(now)
        if reply.farewell is not None:
            self._leave(reply.farewell)
            return
        self._live(reply)
        if reply.orders is not None:
            self._obey(reply.orders)
        if reply.questions is not None:
            self._hear(reply.questions)
        if reply.edges is not None:
            self._hear_edges(reply.edges)
        if self.flow is not None and reply.due is not None:
            self.flow.due = reply.due
        if self.flow is None or reply.ack is None:
            return
        if reply.again:
            self.sent = reply.ack
            self.flow.link.lost()  # what the parent did not take is not on its way any more
        if reply.ack > self.acked:
            self.flow.arrived(reply.ack, now)
        # A parent that was started anew on a copy of its folder may have less than it once had.
        self.acked = reply.ack if reply.life is not None else max(self.acked, reply.ack)
        self.sent = max(self.sent, self.acked)
        self._settle(reply.ack, reply.settled)

    def _live(self, reply: Reply) -> None:
        """Takes the life that the parent grants, and stores the life of the root."""
        held = self.own_life
        if reply.life is not None and not self.living:
            if reply.life <= held.life:
                raise RefusedError(
                    "a parent grants a life that was had before",
                    given=f"{self.id}: {reply.life} after {held.life}",
                )
            self._keep_life(OwnLife(reply.life, reply.added, reply.root or held.root))
        elif reply.root is not None and self.living:
            known = held.root
            if known is None or (known.life, known.began) != (reply.root.life, reply.root.began):
                self._keep_life(msgspec.structs.replace(held, root=reply.root))
            elif reply.root.step > known.step:  # in memory is enough: all children know it
                self.own_life = msgspec.structs.replace(held, root=reply.root)

    def turn_away(self, error: CatchmentError) -> bool:
        """The parent refuses this node; whether that is for good."""
        if for_good(error) and self.refused is None:
            self.refused = str(error)
        return for_good(error)

    def _obey(self, orders: bytes) -> None:
        if self.flow is None:
            return
        if self.flow.counting is not None:
            self.flow.counting.hear(orders)
        else:
            self._orders.take(orders)

    def _hear(self, questions: bytes) -> None:
        if self.flow is None:
            return
        self.flow.told_ranks = False
        if self.flow.ranking is not None:
            self.flow.ranking.hear(questions)
        else:
            self._questions.take(questions)

    def _hear_edges(self, edges: bytes) -> None:
        if self.flow is None:
            return
        if self.flow.marking is not None:
            self.flow.marking.hear(edges)
        else:
            self._edges.take(edges)

    def _settle(self, received: int, settled: int) -> None:
        if self.machine is not None:
            self.machine.acknowledged(received, settled)

    def _leave(self, farewell: Farewell) -> None:
        """Goes over to another parent; the last one has what it says, and takes no more."""
        if self.moved is not None and farewell.move <= self.moved.move:
            return  # said twice
        stood = NOWHERE if self.flow is None else self.flow.stood(farewell.last)
        moved = Moved(farewell.move, farewell.to, farewell.last, stood, farewell.highest)
        records.put(self.disk, "moved", moved)
        self.moved = moved
        self.acked = self.sent = farewell.last
        self._settle(farewell.last, farewell.last)

    def outgoing(self, now: int) -> Iterator[bytes]:
        """Messages to hand to the link now."""
        flow = self.flow
        if flow is None or not self.living or self.refused is not None:
            return
        for seq, body in flow.outbox.after(self.sent):
            if seq > self.acked + WINDOW or not flow.link.open(now / 1e6):
                return
            self.sent = seq
            flow.link.sent(seq, len(body), now / 1e6)
            yield spoken(self.own_life.life, body)

    def lost(self) -> None:
        """The link is gone: what was not acknowledged goes out again."""
        self.sent = self.acked
        if self.flow is not None:
            self.flow.link.lost()

    # -- as a parent ------------------------------------------------------------------------------

    def on_hello(self, hello: Hello, now: int) -> Reply:
        """Takes a child in, or turns it away."""
        try:
            reply = self._welcome(hello, now)
        except RefusedError as error:
            if self.charter is not None and hello.node in self.charter.places:
                self.refusals[hello.node] = str(error)
            if isinstance(error, OutdatedError):
                self._claims[hello.node] = str(error)
            raise
        self._at_peace(hello.node)
        self._greeted.add(hello.node)
        return reply

    def _at_peace(self, id: str) -> None:
        """Forgets why a child was refused, because it has been accepted since."""
        self.refusals.pop(id, None)
        self._claims.pop(id, None)

    def _welcome(self, hello: Hello, now: int) -> Reply:
        charter, id = self.charter, hello.node
        if charter is None:
            raise RefusedError(
                "this node does not know its job yet",
                given=self.id,
                hint="it has not reached its own parent; try again in a moment",
            )
        if not self.living or self.refused is not None:
            raise RefusedError(
                "this node has no life yet",
                given=self.id,
                hint="it has not reached its own parent; try again in a moment",
            )
        move = 0 if hello.moved is None else hello.moved.move
        if self._leaves(id) and move < charter.places[id].move:
            self.lives.ask(hello, self._received(hello), charter.places[id].added, offers=False)
            return self._farewell(id)
        self._check_place(id, hello.job, move, now)
        self._check_root(hello)
        added = charter.places[id].added
        if self.inbox is not None and id not in self.inbox.children:
            raise RefusedError(
                "what the node before this one has sent is still being taken",
                given=f"{id}, after {charter.places[id].replaces[-1]}",
                hint="try again in a moment",
            )
        if self.inbox is not None and self.inbox.children[id].added != added:
            raise RefusedError(
                "the node that had this id before is still being let go",
                given=id,
                hint="try again in a moment",
            )
        life = self.lives.ask(hello, self._received(hello), added)
        if hello.moved is not None:
            self._came[id] = hello.moved
            if self.inbox is not None:
                self.inbox.begin(id, hello.moved)
        if self.inbox is not None:
            self.inbox.heard[id] = now
        self._ordered[id], self._questioned[id] = hello.orders, hello.questions
        self._edged[id] = hello.edges
        self._due.pop(id, None)
        self._learn(hello.schema)
        reply = self._reply(id, hello.charter)
        told = None if self.inbox is None or hello.sent else self.inbox.take_over(id)
        if told is not None and told.read is None:
            raise RefusedError(
                "nobody knows how much of its source the node before this one has read",
                given=f"{id}, after {told.old}",
                hint="it ran on Spark, had just moved, or read many partitions with long names: "
                "catchment nodes rm, then add a node",
            )
        return msgspec.structs.replace(reply, again=True, life=life, added=added, take_over=told)

    def _received(self, hello: Hello) -> int:
        """The last message of a child that is here, or with the parent it comes from."""
        inbox, moved = self.inbox, hello.moved
        if inbox is None or hello.node not in inbox.children:
            return 0 if moved is None else moved.last
        if moved is not None and inbox.begins(hello.node, moved):
            return moved.last
        return inbox.received(hello.node)

    def _check_place(self, id: str, job: str | None, move: int, now: int) -> None:
        assert self.charter is not None
        children = self.charter.children(self.id)
        if id not in children:
            self._check_replaced(id)
            if id in self.charter.settings.spares and id not in self.charter.places:
                self._spares[id] = now
                raise RefusedError(
                    "this node is a spare, and is not needed yet",
                    given=f"{id}, for {self.charter.settings.spares[id]}",
                    hint="it takes over as soon as that one is missing",
                )
            raise RefusedError(
                "this node is no child of mine",
                given=f"{id} under {self.id}",
                hint=did_you_mean(id, children) or "add it with: catchment nodes add",
            )
        if job not in (None, self.charter.job):
            raise RefusedError(
                "this node is of another job",
                given=f"{job}, here {self.charter.job}",
                hint="give it an empty folder, or the address of its own tree",
            )
        place = self.charter.places[id]
        if move != place.move:
            raise RefusedError(
                "this node has not left its former parent",
                given=f"{id}, from {place.was}",
                hint="it must reach that one first: what it sent there is there",
            )

    def _check_replaced(self, id: str) -> None:
        """Refuses a node for good whose place another has."""
        successor = None if self.charter is None else self.charter.successor(id)
        if successor is not None:
            raise replaced_by(id, successor.id)

    def _check_root(self, hello: Hello) -> None:
        """Raises where a child knows of more than the folder of this root does."""
        own, told, charter = self.root_life, hello.root, self.charter
        if own is None or charter is None:
            return
        if hello.charter > charter.version:
            raise outdated(
                self.id,
                f"{hello.node} has version {hello.charter} of the charter, "
                f"the last one here is {charter.version}",
            )
        if told is None:
            return
        lives = f"{hello.node} has heard from its life {told.life}"
        if told.life > own.life or (told.life == own.life and told.began != own.began):
            raise outdated(self.id, f"{lives}, this is life {own.life} of an older folder")
        if told.step > own.step:
            raise outdated(self.id, f"{lives}, step {told.step}; the last step here is {own.step}")

    @property
    def root_life(self) -> RootLife | None:
        """At the root: which life this is, and its last step."""
        if self.parent is not None:
            return None
        step = 0 if self.machine is None else self.machine.number
        return RootLife(self.own_life.life, self._began, step)

    def on_message(self, id: str, data: bytes, now: int) -> Reply:
        """Checks a child's message completely, writes it to the inbox, and only then acknowledges
        it."""
        self._speaks(id, (said := heard(data))[0])
        if self._leaves(id):
            return self._farewell(id)
        inbox, charter = self.inbox, self.charter
        if inbox is None or charter is None or id not in charter.children(self.id):
            raise RefusedError("this node is no child of mine", given=f"{id} under {self.id}")
        full = inbox.nbytes > self.quota
        self.carried[id] = self.carried.get(id, 0) + len(data)
        try:
            head = head_of(said[1])
            if head.node != id:
                raise RefusedError("a node sent another's message", given=f"{id} as {head.node}")
            follows = head.seq == inbox.received(id) + 1 and head.plan in charter.plans
            if follows and not full:
                found = checked(said[1], charter)
                inbox.receive(head, said[1], now)
                self._note_traffic(id, found, len(data), now)
        except (DataError, RefusedError) as error:
            self.refusals[id] = str(error)
            raise RefusedError(error.what, given=error.given, hint=error.hint) from error
        inbox.heard[id] = now
        self._at_peace(id)
        again = inbox.received(id) < head.seq
        return msgspec.structs.replace(self._reply(id, None), again=again, full=full)

    def _note_traffic(self, id: str, message: DecodedMessage, nbytes: int, now: int) -> None:
        """Notes what a message brings for windows of each type, and how stale they are."""
        assert self.charter is not None
        head, traffic = message.head, self.traffic.setdefault(id, ChildTraffic())
        rows = {group: table.num_rows for group, table in message.partials.groups.items()}
        plan = self.charter.plans[head.plan].plan
        traffic.came(head.plan, plan, rows, nbytes, head.frontier, now)

    def _speaks(self, id: str, life: int) -> None:
        """Checks that a child may speak in this life; raises otherwise."""
        charter = self.charter
        here = () if charter is None else (*charter.children(self.id), *charter.leaving(self.id))
        if charter is None or id not in here:
            self._check_replaced(id)
            raise RefusedError("this node is no child of mine", given=f"{id} under {self.id}")
        inbox = self.inbox
        known = inbox is not None and id in inbox.children
        received = inbox.received(id) if inbox is not None and known else 0
        self.lives.heard(id, life, received, charter.places[id].added)

    def on_beat(self, id: str, beat: Beat, now: int) -> Reply:
        """Notes that a child is alive."""
        self._speaks(id, beat.life)
        if self._leaves(id):
            return self._farewell(id)
        if self.inbox is not None:
            self.inbox.heard[id] = now
        if beat.link is not None:
            self.links[id] = dict(beat.link)
        self.below[id] = dict(beat.refused)
        self.unread_below[id] = dict(beat.unread)
        self.filling_below[id] = dict(beat.filling)
        self._spares_below[id] = beat.spares
        self._at_peace(id)
        self._ordered[id], self._questioned[id] = beat.orders, beat.questions
        self._edged[id] = beat.edges
        self._learn(beat.schema)
        return self._reply(id, beat.charter)

    def _reply(self, id: str, charter: int | None) -> Reply:
        assert self.charter is not None
        received = settled = None
        if self.inbox is not None:
            received = self.inbox.received(id)
            # What the root has is safe; others ask how far their own parent is.
            settled = received if self.parent is None else self.inbox.settled(id)
        orders = None
        if self._ordered.get(id, 0) < self.orders.number:
            orders = self.orders.since(self._ordered.get(id, 0))
            self._ordered[id] = self.orders.number
        questions = None
        if self._questioned.get(id, 0) < self.questions.number:
            questions = self.questions.since(self._questioned.get(id, 0))
            self._questioned[id] = self.questions.number
        edges = None
        if self._edged.get(id, 0) < self.edges.number:
            edges = self.edges.since(self._edged.get(id, 0))
            self._edged[id] = self.edges.number
        newer = charter is not None and charter < self.charter.version
        return Reply(
            ack=received,
            settled=settled or 0,
            orders=orders,
            questions=questions,
            edges=edges,
            due=self._question(id),
            charter=self.charter.data if newer else None,
            root=self.root_life,
        )

    def _question(self, id: str) -> int | None:
        """The time about which a child is asked, if it does not know."""
        due = None if self.machine is None else self.machine.due
        if due is None or self._due.get(id) == due:
            return None
        self._due[id] = due
        return due

    @property
    def has_questions(self) -> bool:
        """Whether there is a time about which children may be asked at once."""
        return self.machine is not None and self.machine.due is not None

    def due_questions(self, linked: Collection[str]) -> dict[str, Reply]:
        """What children that are linked to this node are asked at once."""
        asked = {id: self._question(id) for id in linked if not self._leaves(id)}
        return {id: Reply(due=due) for id, due in asked.items() if due is not None}

    def _leaves(self, id: str) -> bool:
        """Whether a child is about to go on under another parent; no more is taken of it here."""
        return self.charter is not None and id in self.charter.leaving(self.id)

    def _farewell(self, id: str) -> Reply:
        """The last reply to a child that moves: the last message that is here, and its new
        parent."""
        assert self.charter is not None
        place = self.charter.places[id]
        assert place.parent is not None
        received = 0 if self.inbox is None else self.inbox.received(id)
        highest = self.lives.of(id, place.added).highest
        farewell = Farewell(place.move, place.parent, received, highest)
        return Reply(charter=self.charter.data, farewell=farewell)

    def handed_down(self) -> Reply:
        """The charter, as a child takes it."""
        assert self.charter is not None
        return Reply(charter=self.charter.data)

    def _learn(self, told: bytes | None) -> None:
        """A child tells what events look like; the root decides by the first to tell. What does not
        fit the queries is not passed on: the parent would refuse this node for it."""
        if told is None or self.charter is None or self.charter.schema is not None:
            return
        planned, settings = self.charter.plans[self.charter.plan], self.charter.settings
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(told))
            bind_types(planned.plan, schema, settings.time)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise RefusedError("a schema cannot be read", given=str(error)[:200]) from error
        self._schema = schema
        if self.parent is None:
            self.adopt(self.charter.with_schema(schema), 0)


def _other_format(id: str, format: str) -> StateError:
    return StateError(
        "the folder of the node was written by another version",
        given=f"{id}: format {format}",
        hint=f"this version reads format {FORMAT} only: start the tree anew with empty folders, "
        "or finish with the version that wrote it",
    )
