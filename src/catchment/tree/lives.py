"""Lives: which process may speak for a node, and by which copy of its folder.

A node's folder says how far its source was read and which messages it has made. Whoever starts a
node on an older copy of its folder, or starts two processes on two copies, would read events anew
and give other messages the numbers of messages that its parent has: events would be lost without a
word. So every start of a node is a *life* with a number, and the parent grants it.

The protocol, for a node below the root:

1. A process starts and *asks*: its hello names the last life that its folder holds (0: none), the
   last message that the folder knows of (`sent`), and the last one it has let go of (`settled`).
2. The parent compares that with what it holds of the node, in its own folder: the last life that
   it has *heard* from, and the lives that it has *offered* since. The folder must hold the life
   that was heard from last, or one that was offered since and of which nothing was heard; it must
   know of every message that the parent has; and the parent must have every message that the
   folder has let go of. Then the parent offers the next number that it never offered before, keeps
   that (the disk holds it), and replies.
3. The process keeps the life in its folder (the disk holds it). Only now does it take steps.
4. Its first word in the new life, a message, a beat or a hello on another link, settles it: the
   parent keeps that this life was heard from, and every other offer is void.

Within one process a broken link needs no new life: the hello says that it is `living`.

Invariants:

- A parent takes words only of the last life that it has heard from, or of one that it offered since
  then; hearing from that one ends the former.
- An offer holds only while every message that the parent has is in the folder that it was made to
  (`sent` of the hello): messages of that folder's earlier life may still arrive in between.
- Of two processes that ask with copies of one folder, the first that speaks makes the other's
  offer void. That one is refused for good.
- A lost reply, a hello that comes twice, and a process that dies between 2 and 3 leave an offer
  that nobody uses. Numbers only grow, so that does no harm; the folder still holds the life before.
- A folder is an old copy if and only if it holds a life before the last one heard from, or lacks a
  message that the parent has. What such a copy had not sent before is not known to anybody: that
  can be read again from the source, and is.

The root has no parent. It takes the number after the last in its own folder, and tells it to its
children with every reply, with the time it began and its last step. They keep it, and repeat it in
their hellos. A child that has heard from a later life or step of the root, or has let go of a
message that the root lacks, shows that the root's folder is an old copy (`OutdatedError`): the root
then takes no step, says so, and turns its children away until its folder is the right one. Before
its first step a root waits until every child has said hello whose last message was not taken by a
step, for a few seconds at most: it must be able to finish when its children have gone. What a child
finds out of a node in between is treated in the same way.

A node that starts while its parent cannot be reached takes no step until it has been granted a
life: sources keep what is not read (files and Kafka hold it, a broker of MQTT queues it). A node
that is running goes on without its parent, as far as its disk has room.

A node that moves takes its life along: the new parent begins with the life that the node has, and
the farewell of the former one says which messages that one has. A node that was removed and is
added again begins anew; `added`, the version of the charter that brought it, tells its folders
apart.

A node that was replaced is refused for good, with whatever folder: its place in the charter is
gone, and that of its successor names it (`take_over`).
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from catchment.durable import records
from catchment.durable.disk import Disk
from catchment.errors import RefusedError
from catchment.model.node_id import NodeId
from catchment.tree.words import Hello, NonNegative, RootLife

_NOTE = "lives"
_OPEN = 16
"""Offers to one node that are kept; more processes than this do not wait at once."""

OLD_COPY = "the folder of this node is an old copy"
LOST = "this node has lost its folder"
TAKEN_OVER = "another process has taken over from this one"
REMOVED = "this folder is of a node that was removed from the tree"
REPLACED = "another node has taken over from this one for good"
_FINAL = frozenset((OLD_COPY, LOST, TAKEN_OVER, REMOVED, REPLACED))


class OutdatedError(RefusedError):
    """A child knows of more than this node's own folder: the folder is an old copy."""


def for_good(error: Exception) -> bool:
    """Whether a refusal holds until the folder of the node is replaced.

    >>> for_good(RefusedError(OLD_COPY)), for_good(RefusedError("try again in a moment"))
    (True, False)
    """
    return isinstance(error, RefusedError) and error.what in _FINAL


class Offer(Struct, frozen=True, array_like=True):
    """A life that may begin, and the last message that its folder knows of."""

    life: NonNegative
    sent: NonNegative


class Granted(Struct, frozen=True, omit_defaults=True):
    """What a parent keeps of the lives of a child."""

    life: NonNegative = 0
    """The last one that it has heard from."""
    highest: NonNegative = 0
    """The last number that it has offered."""
    offers: tuple[Offer, ...] = ()
    """What was offered since the last one was heard from."""
    move: NonNegative = 0
    """The move by which the node came, if it did."""
    added: NonNegative = 0

    def offer(self, life: int) -> Offer | None:
        return next((offer for offer in self.offers if offer.life == life), None)

    def heard_from(self, life: int) -> Granted:
        return msgspec.structs.replace(self, life=life, offers=())


class OwnLife(Struct, frozen=True, omit_defaults=True):
    """What a node stores of its own life and of the life of the root."""

    life: NonNegative = 0
    added: NonNegative = 0
    root: RootLife | None = None


class Lives:
    """The lives of a node's children, as its disk has them."""

    def __init__(self, id: str, disk: Disk) -> None:
        self._id, self._disk = id, disk
        self._granted = records.get(disk, _NOTE, dict[NodeId, Granted]) or {}

    def of(self, id: str, added: int) -> Granted:
        known = self._granted.get(id)
        return Granted(added=added) if known is None or known.added != added else known

    def ask(self, hello: Hello, received: int, added: int, offers: bool = True) -> int:
        """The life that a child may go on with; raises if it may not."""
        known = self._begun(hello, added)
        self._compare(hello, known, received)
        if hello.life != known.life:
            known = known.heard_from(hello.life)  # the folder holds what was only offered so far
        life = hello.life
        if offers and not hello.living:
            life = 1 + max(known.highest, known.life)
            open_ones = (*known.offers, Offer(life, hello.sent))[-_OPEN:]
            known = msgspec.structs.replace(known, highest=life, offers=open_ones)
        self._keep(hello.node, known)
        return life

    def heard(self, id: str, life: int, received: int, added: int) -> None:
        """A child speaks in a life; raises if it is not the one that may."""
        known = self.of(id, added)
        if life == known.life:
            return
        offer = known.offer(life)
        if offer is None or received > offer.sent:
            raise _refused(TAKEN_OVER, id, f"life {life}; life {known.life} speaks for the node")
        self._keep(id, known.heard_from(life))

    def keep(self, ids: set[str]) -> None:
        """Forgets all nodes but these; the disk does when something else is written."""
        self._granted = {id: known for id, known in self._granted.items() if id in ids}

    def _begun(self, hello: Hello, added: int) -> Granted:
        if hello.life and hello.added != added:
            raise _refused(REMOVED, hello.node, f"added as {hello.added}, then as {added}")
        known = self.of(hello.node, added)
        if hello.moved is None or hello.moved.move <= known.move:
            return known
        highest = max(hello.life, hello.moved.highest)
        return Granted(hello.life, highest, move=hello.moved.move, added=added)

    def _compare(self, hello: Hello, known: Granted, received: int) -> None:
        id, life, offer = hello.node, hello.life, known.offer(hello.life)
        if life > max(known.highest, known.life):
            raise outdated(self._id, f"{id} has life {life}, the last known here is {known.life}")
        if life == known.life:
            holds = received <= hello.sent
        else:
            holds = offer is not None and received <= min(offer.sent, hello.sent)
        if not holds and hello.living:
            raise _refused(TAKEN_OVER, id, f"life {life}; life {known.life} speaks for the node")
        if not holds and not life and not hello.sent:
            raise _refused(LOST, id, f"life {known.life}, {received} messages are at its parent")
        if not holds:
            raise _refused(
                OLD_COPY,
                id,
                f"life {life} and {hello.sent} messages; its parent has heard from "
                f"life {known.life} and has {received}",
            )
        if hello.settled > received:
            raise outdated(
                self._id, f"{id} has let go of {hello.settled} messages, {received} are here"
            )

    def _keep(self, id: str, known: Granted) -> None:
        if self._granted.get(id) != known:
            changed = self._granted | {id: known}
            records.put(self._disk, _NOTE, changed)
            self._granted = changed


def replaced_by(id: str, new: str) -> RefusedError:
    """Why a node is refused whose place another has."""
    return RefusedError(
        REPLACED,
        given=f"{id}: {new} is in its place",
        hint="stop it; its machine may run a node of another id, with an empty folder",
    )


def outdated(id: str, why: str) -> OutdatedError:
    return OutdatedError(
        "the folder of a parent is an old copy, or is damaged",
        given=f"{id}: {why}",
        hint=f"stop {id} and restore the newest copy of its folder; without one, start the tree "
        "anew with empty folders",
    )


def _refused(what: str, id: str, given: str) -> RefusedError:
    return RefusedError(
        what,
        given=f"{id}: {given}",
        hint=f"stop it and start it with the newest copy of its folder; without one: catchment "
        f"nodes rm {id}, then add it again with an empty folder",
    )
