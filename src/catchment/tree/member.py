"""A node as others see it: it says hello, passes messages up, answers its children.

What carries the words is not its business: a connection between machines, a virtual clock in a
simulation. Every reply a child gets may bring it a newer charter.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from catchment.engine.binding import bind_types
from catchment.errors import RefusedError, StateError, did_you_mean
from catchment.sources.base import Source
from catchment.tree.charter import Charter
from catchment.tree.counting import asked
from catchment.tree.disk import Disk
from catchment.tree.inbox import Inbox
from catchment.tree.local import Keep, Local
from catchment.tree.message import head_of
from catchment.tree.orders import Orders
from catchment.tree.outflow import NOWHERE
from catchment.tree.relay import Relay
from catchment.tree.root import Deliver, Root

Note = dict[str, Any]
Machine = Local | Relay | Root

WINDOW = 64
"""Messages on their way before one must be acknowledged."""
QUOTA = 1 << 30


class Member:
    """One node of the tree; all it must not lose is on its disk."""

    def __init__(
        self, id: str, disk: Disk, now: int, *, parent: str | None = None,
        source: Callable[[], Source] | None = None, deliver: Deliver | None = None,
        charter: Charter | None = None, quota: int = QUOTA, keep: Keep | None = None,
    ) -> None:  # fmt: skip
        self.id, self.disk, self.parent = id, disk, parent
        self.source, self.deliver, self.quota, self.keep = source, deliver, quota, keep
        self.machine: Machine | None = None
        self.acked = self.sent = 0
        """Messages that the parent has, and that were handed to the link."""
        self.links: dict[str, Note] = {}
        """What children say that the links to here carry."""
        self._schema: pa.Schema | None = None
        self._came: dict[str, Note] = {}
        """Children that said hello after a move: what the inbox must know of it."""
        held = disk.get("charter")
        if held is None and charter is not None:
            held = charter.data
            disk.put("charter", held)
        self.charter = Charter.from_bytes(held) if held else None
        self._orders = Orders()
        self._ordered: dict[str, int] = {}
        """The last orders that each child has."""
        self.epoch = self._identity(now)
        moved = disk.get("moved")
        self.moved: Note | None = None if moved is None else json.loads(moved)
        """By which move it came to the parent it has, where that is, and what the last one has."""
        if self.charter is not None:
            self._start(now)

    def _identity(self, now: int) -> int:
        held = self.disk.get("identity")
        if held is None:
            held = json.dumps({"node": self.id, "epoch": now}).encode()
            self.disk.put("identity", held)
        known = json.loads(held)
        if known["node"] != self.id:
            raise StateError(
                "the folder is another node's", given=f"{known['node']!r} there, {self.id!r} here",
                hint="give each node a folder of its own",
            )  # fmt: skip
        epoch: int = known["epoch"]
        return epoch

    def _start(self, now: int) -> None:
        """Builds the machine from what is on disk, once it is known what events look like."""
        charter = self.charter
        assert charter is not None
        if self.parent is None:
            self.machine = Root(self.id, self.disk, charter, self.deliver, now)
        elif charter.schema is None:
            self.machine = None
        elif self.source is not None:
            source = self.source()
            self.machine = Local(self.id, self.epoch, self.disk, charter, source, self.keep)
        else:
            self.machine = Relay(self.id, self.epoch, self.disk, charter, now)
        for id, came in self._came.items():
            if self.inbox is not None and id in self.inbox.children:
                self.inbox.begin(id, came)

    def reload(self, now: int) -> None:
        """Goes back to what is on disk, after a step that could not be finished."""
        if self.charter is not None:
            self._start(now)
        self.sent = self.acked

    @property
    def inbox(self) -> Inbox | None:
        return (
            None if self.machine is None or isinstance(self.machine, Local) else self.machine.inbox
        )

    def adopt(self, charter: Charter, now: int) -> None:
        """Takes a newer charter, for good."""
        if self.charter is not None and charter.version <= self.charter.version:
            return
        self.disk.put("charter", charter.data)
        self.charter = charter
        self._orders.keep(asked(charter, charter.plan).values())
        if self.machine is None:
            self._start(now)
        elif isinstance(self.machine, Local):
            self.machine.follow(charter)
        else:
            self.machine.follow(charter, now)

    # -- work -------------------------------------------------------------------------------------

    def step(self, now: int) -> bool:
        """Does what there is to do; whether anything happened."""
        if self.machine is None or self.full:
            return False
        self.tend(now)
        return self.machine.step(now) or self.ease(now)

    def ease(self, now: int) -> bool:
        """Passes some of what is held back up early, if that makes results earlier."""
        flow = getattr(self.machine, "flow", None)
        return flow is not None and not self.full and flow.ease(now)

    def tend(self, now: int) -> None:
        """Lets everybody know of moves and of queries that are over, at the root."""
        landed = self.machine.inbox.landed() if isinstance(self.machine, Root) else ()
        if landed and self.charter is not None:
            self.adopt(self.charter.landed(landed), now)
        if isinstance(self.machine, Root) and self.machine.drained and self.charter is not None:
            leaving = self.charter.plans[self.charter.plan].leaving
            over, self.machine.drained = self.machine.drained, ()
            if set(over) & set(leaving):
                self.adopt(self.charter.without_queries(set(over) & set(leaving)), now)

    @property
    def full(self) -> bool:
        """Whether so much waits for the parent that no more is read or merged."""
        flow = getattr(self.machine, "flow", None)
        return flow is not None and flow.outbox.nbytes > self.quota

    # -- as a child -------------------------------------------------------------------------------

    def hello(self) -> Note:
        """What a node says first."""
        flow = getattr(self.machine, "flow", None)
        known = self.charter
        return {
            "node": self.id, "epoch": self.epoch, "job": None if known is None else known.job,
            "charter": -1 if known is None else known.version,
            "sent": 0 if flow is None else flow.outbox.sent, **self._told_schema(),
            **self._told_orders(),
            **({} if self.moved is None else {"moved": self.moved}),
        }  # fmt: skip

    @property
    def asks(self) -> bool:
        """Whether the root asks for edges of count windows."""
        return self.charter is not None and bool(asked(self.charter, self.charter.plan))

    def beat(self) -> Note:
        """What a node says when it has nothing else to say."""
        known = -1 if self.charter is None else self.charter.version
        flow = getattr(self.machine, "flow", None)
        seen = flow is not None and flow.link.estimate.seen
        told = (
            {"link": flow.link.shown() | flow.easing.shown()} if flow is not None and seen else {}
        )
        return {"charter": known, **self._told_schema(), **told, **self._told_orders()}

    def _told_orders(self) -> Note:
        """The last orders of the root that are here, if there are any."""
        counting = self.machine.flow.counting if isinstance(self.machine, Local) else None
        number = self.orders.number if counting is None else counting.kept.heard
        return {"orders": number} if number else {}

    @property
    def orders(self) -> Orders:
        """What the root has to say of count windows."""
        if isinstance(self.machine, Root):
            return self._orders if self.machine.tally is None else self.machine.tally.orders
        return self._orders

    def _told_schema(self) -> Note:
        """What events look like, until the root knows."""
        if self.charter is not None and self.charter.schema is not None:
            return {}
        if self._schema is None and self.source is not None:
            self._schema = self.source().event_schema()
        if self._schema is None:
            return {}
        return {"schema": base64.b64encode(self._schema.serialize().to_pybytes()).decode()}

    def heard(self, reply: Note, now: int) -> None:
        """Takes the parent's reply to a hello, a message or a beat."""
        if "charter" in reply:
            self.adopt(Charter.from_bytes(base64.b64decode(reply["charter"])), now)
        if "farewell" in reply:
            self._leave(reply["farewell"])
            return
        if "orders" in reply:
            self._obey(base64.b64decode(reply["orders"]))
        if self.machine is None or isinstance(self.machine, Root) or "ack" not in reply:
            return
        if reply.get("again"):
            self.sent = reply["ack"]
            self.machine.flow.link.lost()  # what the parent did not take is not on its way any more
        if reply["ack"] > self.acked:
            self.machine.flow.arrived(reply["ack"], now)
        self.acked = max(self.acked, reply["ack"])
        self.sent = max(self.sent, self.acked)
        self._settle(reply["ack"], reply["settled"])

    def _obey(self, orders: bytes) -> None:
        if isinstance(self.machine, Local) and self.machine.flow.counting is not None:
            self.machine.flow.counting.hear(orders)
        elif isinstance(self.machine, Relay):
            self._orders.take(orders)

    def _settle(self, received: int, settled: int) -> None:
        if isinstance(self.machine, Relay):
            self.machine.acknowledged(received, settled)
        elif isinstance(self.machine, Local):
            self.machine.flow.acknowledged(settled)

    def _leave(self, farewell: Note) -> None:
        """Goes over to another parent; the last one has what it says, and takes no more."""
        if self.moved is not None and farewell["move"] <= self.moved["move"]:
            return  # said twice
        flow = getattr(self.machine, "flow", None)
        stood = NOWHERE if flow is None else flow.stood(farewell["from"])
        moved = farewell | {"at": stood}
        self.disk.put("moved", json.dumps(moved).encode())
        self.moved = moved
        self.acked = self.sent = farewell["from"]
        self._settle(farewell["from"], farewell["from"])

    def outgoing(self, now: int) -> Iterator[bytes]:
        """Messages to hand to the link now."""
        flow = getattr(self.machine, "flow", None)
        if flow is None:
            return
        for seq, body in flow.outbox.after(self.sent):
            if seq > self.acked + WINDOW or not flow.link.open(now / 1e6):
                return
            self.sent = seq
            flow.link.sent(seq, len(body), now / 1e6)
            yield body

    def lost(self) -> None:
        """The link is gone: what was not acknowledged goes out again."""
        self.sent = self.acked
        flow = getattr(self.machine, "flow", None)
        if flow is not None:
            flow.link.lost()

    # -- as a parent ------------------------------------------------------------------------------

    def on_hello(self, hello: Note, now: int) -> Note:
        """Takes a child in, or turns it away."""
        if self.charter is None:
            raise RefusedError(
                "this node does not know its job yet", given=self.id,
                hint="it has not reached its own parent; try again in a moment",
            )  # fmt: skip
        id, inbox = hello["node"], self.inbox
        came = hello.get("moved", {"move": 0})
        if self._leaves(id) and came["move"] < self.charter.places[id].move:
            return self._farewell(id)
        self._check_place(id, hello["job"], came)
        if came["move"]:
            self._came[id] = came | {"epoch": hello["epoch"]}
            if inbox is not None:
                inbox.begin(id, self._came[id])
        self._check_epoch(id, hello)
        if inbox is not None:
            inbox.heard[id] = now
        self._ordered[id] = hello.get("orders", 0)
        self._learn(hello)
        return self._reply(id, hello["charter"]) | {"again": True}

    def _check_place(self, id: str, job: str | None, came: Note) -> None:
        assert self.charter is not None
        children = self.charter.children(self.id)
        if id not in children:
            raise RefusedError(
                "this node is no child of mine", given=f"{id} under {self.id}",
                hint=did_you_mean(id, children) or "add it with: catchment nodes add",
            )  # fmt: skip
        if job not in (None, self.charter.job):
            raise RefusedError(
                "this node is of another job", given=f"{job}, here {self.charter.job}",
                hint="give it an empty folder, or the address of its own tree",
            )  # fmt: skip
        place = self.charter.places[id]
        if came["move"] != place.move:
            raise RefusedError(
                "this node has not left its former parent", given=f"{id}, from {place.was}",
                hint="it must reach that one first: what it sent there is there",
            )  # fmt: skip

    def _check_epoch(self, id: str, hello: Note) -> None:
        received = 0 if self.inbox is None else self.inbox.received(id)
        epoch = None if self.inbox is None else self.inbox.epoch(id)
        if received and (epoch != hello["epoch"] or hello["sent"] < received):
            raise RefusedError(
                "this node has lost its folder", given=f"{id}: {received} messages are here, "
                f"it knows of {hello['sent'] if epoch == hello['epoch'] else 0}",
                hint="restore its folder, or remove the node and add it again to start anew",
            )  # fmt: skip

    def on_message(self, id: str, body: bytes, now: int) -> Note:
        """Writes a child's message down, and only then says so."""
        inbox = self.inbox
        if self._leaves(id):
            return self._farewell(id)
        if inbox is None or self.charter is None or id not in self.charter.children(self.id):
            raise RefusedError("this node is no child of mine", given=f"{id} under {self.id}")
        head = head_of(body)
        if head.node != id:
            raise RefusedError("a node sent another's message", given=f"{id} as {head.node}")
        if inbox.nbytes <= self.quota and head.plan in self.charter.plans:
            inbox.receive(head, body, now)
        inbox.heard[id] = now
        again = {} if inbox.received(id) >= head.seq else {"again": True}
        return self._reply(id, None) | again

    def on_beat(self, id: str, note: Note, now: int) -> Note:
        """Notes that a child is alive."""
        inbox = self.inbox
        if self._leaves(id):
            return self._farewell(id)
        if self.charter is None or id not in self.charter.children(self.id):
            raise RefusedError("this node is no child of mine", given=f"{id} under {self.id}")
        if inbox is not None:
            inbox.heard[id] = now
        if "link" in note:
            self.links[id] = note["link"]
        self._ordered[id] = note.get("orders", 0)
        self._learn(note)
        return self._reply(id, note["charter"])

    def _reply(self, id: str, charter: int | None) -> Note:
        reply: Note = {}
        if self.inbox is not None:
            received = self.inbox.received(id)
            safe = received if isinstance(self.machine, Root) else self.inbox.settled(id)
            reply = {"ack": received, "settled": safe}
        assert self.charter is not None
        if self._ordered.get(id, 0) < self.orders.number:
            orders = self.orders.since(self._ordered.get(id, 0))
            reply["orders"] = base64.b64encode(orders).decode()
            self._ordered[id] = self.orders.number
        if charter is not None and charter < self.charter.version:
            reply |= self.handed_down()
        return reply

    def _leaves(self, id: str) -> bool:
        """Whether a child is about to go on under another parent; no more is taken of it here."""
        return self.charter is not None and id in self.charter.leaving(self.id)

    def _farewell(self, id: str) -> Note:
        """What it is told: what is here, and where to go with the rest."""
        assert self.charter is not None
        place = self.charter.places[id]
        received = 0 if self.inbox is None else self.inbox.received(id)
        farewell = {"move": place.move, "to": place.parent, "from": received}
        return self.handed_down() | {"farewell": farewell}

    def handed_down(self) -> Note:
        """The charter, as a child takes it."""
        assert self.charter is not None
        return {"charter": base64.b64encode(self.charter.data).decode()}

    def _learn(self, note: Note) -> None:
        """A child tells what events look like; the root decides by the first to tell."""
        if "schema" not in note or self.charter is None or self.charter.schema is not None:
            return
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(note["schema"])))
        self._schema = schema
        if self.parent is None:
            bind_types(self.charter.plans[self.charter.plan].plan, schema, self._time)
            self.adopt(self.charter.with_schema(schema), 0)

    @property
    def _time(self) -> str:
        assert self.charter is not None
        return str(self.charter.settings["time"])
