"""What nodes say to each other besides messages, as typed records.

The transport carries notes, which are JSON. `read` turns one into the record that is expected, or
says what is wrong with it, before anything is done with it; `said` is the inverse. Bytes travel as
base64.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from msgspec import Meta, Struct, field

from catchment.model import records
from catchment.model.capacity import Capacity, CapacityUnit
from catchment.model.node_id import NodeId
from catchment.planner.edges import EARLIEST, LATEST

_T = TypeVar("_T", bound=Struct)

MOST = (1 << 62) - 1
"""No number of a message, a life or a version comes near this."""

NonNegative = Annotated[int, Meta(ge=0, le=MOST)]
EventTime = Annotated[int, Meta(ge=EARLIEST, le=LATEST)]
Version = Annotated[int, Meta(ge=-1, le=MOST)]
Blob = Annotated[bytes, Meta(max_length=64 << 20)]
ShortText = Annotated[str, Meta(max_length=2000)]
Name = Annotated[str, Meta(max_length=200)]
PartitionsRead = dict[ShortText, NonNegative]
"""How far each partition of a source was read: the place after its last event."""
LinkFigures = dict[Name, float | int | None]
"""What a node says that its link carries, for people to look at."""


class RootLife(Struct, frozen=True, omit_defaults=True):
    """The life of the root that a node was told of last, and the step that the root was at."""

    life: NonNegative
    began: Annotated[int, Meta(ge=-MOST, le=MOST)]
    """When that life began by the root's clock: two processes never share both numbers."""
    step: NonNegative = 0


class NodeProgress(Struct, frozen=True, array_like=True):
    """How far a node has said to be, as of a message."""

    frontier: EventTime | None
    complete_until: EventTime
    plan: Version


class Farewell(Struct, frozen=True):
    """A former parent's last word: which move this is, where to go, the last message it has."""

    move: NonNegative
    to: NodeId
    last: NonNegative
    highest: NonNegative = 0
    """The last life that it has offered to the node."""


class Moved(Struct, frozen=True):
    """By which move a node came to its parent, and what the parent before has."""

    move: NonNegative
    to: NodeId
    last: NonNegative
    """The last message that the former parent has."""
    at: NodeProgress
    """How far the node was, as of that message."""
    highest: NonNegative = 0
    """The last life that the former parent has offered."""


class Hello(Struct, frozen=True, omit_defaults=True):
    """What a node says first, on every link."""

    node: NodeId
    life: NonNegative = 0
    """The last life that its folder holds; 0: it has never had one."""
    living: bool = False
    """Whether this very process was granted that life; otherwise it asks for the next one."""
    sent: NonNegative = 0
    """The last message that its folder knows of."""
    settled: NonNegative = 0
    """The last message that its folder has let go of, because a parent said so."""
    job: Name | None = None
    charter: Version = -1
    added: NonNegative = 0
    """The version of the charter by which the node of this folder joined."""
    orders: NonNegative = 0
    questions: NonNegative = 0
    edges: NonNegative = 0
    schema: Blob | None = None
    moved: Moved | None = None
    root: RootLife | None = None
    """The newest life of the root that it has heard from."""


class Unread(Struct, frozen=True, omit_defaults=True):
    """How much of a node's source was never read."""

    origins: NonNegative
    """Files or partitions of which something was not read."""
    reason: ShortText
    """The reason of the first of them, with its name."""
    nbytes: NonNegative = 0
    rows: NonNegative | None = None
    """None: nobody knows how many."""


class Filling(Struct, frozen=True):
    """Something of a node that is at least half full, as `Capacity` describes it."""

    name: Name
    used: NonNegative
    limit: NonNegative
    unit: CapacityUnit
    when_reached: ShortText

    @classmethod
    def of(cls, found: Capacity) -> Filling:
        return cls(found.name, found.used, found.limit, found.unit, found.when_reached)

    @property
    def capacity(self) -> Capacity:
        return Capacity(self.name, self.used, self.limit, self.unit, self.when_reached)


class Beat(Struct, frozen=True, omit_defaults=True):
    """What a node says when it has nothing else to say."""

    life: NonNegative = 0
    charter: Version = -1
    orders: NonNegative = 0
    """The last of the root's orders on count windows, of its questions about values, and of what it
    told of marks."""
    questions: NonNegative = 0
    edges: NonNegative = 0
    schema: Blob | None = None
    link: LinkFigures | None = None
    refused: dict[NodeId, ShortText] = field(default_factory=dict)
    """Nodes below that were turned away, and why."""
    unread: dict[NodeId, Unread] = field(default_factory=dict)
    """What of their sources this node and those below have never read, where that is anything."""
    filling: dict[NodeId, tuple[Filling, ...]] = field(default_factory=dict)
    """What is at least half full on this node and on those below."""
    spares: tuple[NodeId, ...] = ()
    """Spares that wait here or below, and whose nodes have been silent for too long."""


class TakeOver(Struct, frozen=True):
    """What the parent of a node that is gone for good tells the node that takes over from it."""

    old: NodeId
    at: NodeProgress
    """How far the old one was, as of its last message here: slices that end by the frontier are
    with the parent, and no others but those in `messages`."""
    newest: EventTime
    read: PartitionsRead | None
    """How much of the source was read by then; None: it did not say."""
    messages: tuple[Blob, ...] = ()
    """Messages with rows of slices that had not ended: these rows are with the parent too."""
    unsure: EventTime = EARLIEST
    """Slices that end by then may have been sent in part, and nobody knows which rows."""


class Reply(Struct, frozen=True, omit_defaults=True):
    """What a parent answers to a hello, a message or a beat."""

    ack: NonNegative | None = None
    """The last message of the child that is safely here."""
    settled: NonNegative = 0
    """The last one that the child may let go of."""
    again: bool = False
    """Whether what follows `ack` must be sent again."""
    full: bool = False
    """Whether there is no room for more just now."""
    life: NonNegative | None = None
    """The life that is granted, as an answer to a hello."""
    added: NonNegative = 0
    orders: Blob | None = None
    questions: Blob | None = None
    edges: Blob | None = None
    due: EventTime | None = None
    """The child is asked to say so as soon as it has passed this time."""
    charter: Blob | None = None
    farewell: Farewell | None = None
    root: RootLife | None = None
    take_over: TakeOver | None = None


def read(kind: type[_T], note: bytes) -> _T:
    """The record that a note is.

    >>> read(Hello, b'{"node": "a", "sent": 3}').sent
    3
    >>> read(Hello, b'{"node": "../a"}')
    Traceback (most recent call last):
    ...
    catchment.errors.RefusedError: a hello cannot be understood (given: Expected `str` matching \
regex '^[A-Za-z0-9][A-Za-z0-9._-]*\\\\Z' - at `$.node`)
    """
    return records.decode(kind, note, f"a {kind.__name__.lower()}", records.refused)


def said(word: Struct) -> bytes:
    """A record as a note.

    >>> said(Reply(ack=4, again=True))
    b'{"ack":4,"again":true}'
    """
    return records.encode(word)
