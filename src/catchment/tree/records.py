"""What the nodes of a tree write down, as typed records (`catchment.durable.records`).

| where | by whom | record |
|---|---|---|
| log `outbox` | nodes below the root | `OutboxEntry`: a step, what it sends, what is held back |
| log `inbox-ID` | parents, for each child | `Received`, `MovedHere` or `Lost` |
| log `aside` | parents | `Aside`: a message that could not be taken |
| log `steps`, note `snapshot` | the root | `RootStep` for each step, `RootState` |
| logs and notes `counted`, `ranked`, `marked` | nodes that read events | `counting.leaf_log` |
| notes | all nodes | in `member`, `words` and `lives` |

Times are microseconds of event time, except for `now`, which is by the clock of the node.
"""

from __future__ import annotations

from msgspec import Struct, field

from catchment.counting.orders import KeyValue
from catchment.flush.learnt import Learnt
from catchment.model.frontier import Frontier
from catchment.model.node_id import NodeId
from catchment.planner.edges import EARLIEST, LATEST
from catchment.planner.observed import RateWatch
from catchment.sources.base import Position
from catchment.tree.words import (
    EventTime,
    Name,
    NodeProgress,
    NonNegative,
    PartitionsRead,
    Version,
)

FORMAT = 8
"""The format of a node's folder."""

NOWHERE = NodeProgress(EARLIEST, EARLIEST, -1)
"""The progress of a node that has told nothing yet."""


class Lag(Struct, frozen=True, omit_defaults=True):
    """Which events of a node results may lack, and up to which time."""

    cut: dict[NonNegative, EventTime] = field(default_factory=dict)
    """By version of the plan: the newest event that was cut by it after the plan had changed."""
    lost: EventTime | None = None
    """The time of the newest event that may have been in messages that were lost."""
    late: dict[NonNegative, EventTime] = field(default_factory=dict)
    """By group of the plan in use: the end of the last slice that came too late for results."""


Behind = dict[NodeId, Lag]
"""By node: the events that results may lack, because they were cut by an older plan or lost."""


PlansBegun = dict[NonNegative, EventTime]
"""By version of the plan that a parent has gone over to: the newest event that it knew of then.
Only of versions that the charter has."""


class Lagging(Struct, frozen=True):
    """The nodes whose events results of a step may lack, and the plan that brought each query."""

    behind: Behind
    added: dict[str, NonNegative]
    """The version of the plan that brought a query, by its name."""


class View(Struct, frozen=True):
    """The frontier of a subtree, the time up to which it is complete, and who is missing."""

    frontier: EventTime | None
    """No more is expected before it; None: all of it is idle."""
    complete_until: EventTime
    """Nothing is missing before it, also nothing of nodes that are no longer waited for."""
    missing: tuple[NodeId, ...] = ()
    landed: tuple[NonNegative, ...] = ()
    """Moves that end in it: it waits for the nodes that came, and may go back for them."""


class Child(Struct, frozen=True, omit_defaults=True):
    """What a parent knows of a child."""

    since: EventTime = EARLIEST
    """The frontier when it joined: it is waited for from then on."""
    taken: NonNegative = 0
    """The last of its messages that was taken; those after it wait in the log."""
    plan: Version = -1
    """The version of the plan of the last message taken."""
    frontier: EventTime | None = EARLIEST
    complete_until: EventTime = EARLIEST
    missing: tuple[NodeId, ...] = ()
    loose: tuple[tuple[NonNegative, EventTime], ...] = ()
    """Messages taken whose slices are not all passed on: number, and the end of the last slice."""
    landed: tuple[NonNegative, ...] = ()
    """Moves that end below it, as of the last message taken."""
    added: NonNegative = 0
    """The version of the charter that brought it."""
    newest: EventTime = EARLIEST
    """The newest event of the last message taken."""
    read: PartitionsRead | None = None
    """How much of its source it had read by then, if it reads events and says so."""
    ahead: tuple[tuple[NonNegative, EventTime], ...] = ()
    """Messages taken with rows of slices that it still adds to: number, end of the last slice."""
    unsure: EventTime = EARLIEST
    """The end of the last slice of such messages that were too many to be kept."""


# -- the inbox of a parent ------------------------------------------------------------------------


class Received(Struct, frozen=True, tag="received"):
    """A message of the child."""

    body: bytes


class MovedHere(Struct, frozen=True, tag="began"):
    """The child came by a move: messages up to this one are with the parent it had before."""

    at: NodeProgress


class Lost(Struct, frozen=True, tag="lost"):
    """Messages up to this one will never come."""


InboxEntry = Received | MovedHere | Lost


class RefusedMessage(Struct, frozen=True):
    """A message that could not be taken, and why."""

    node: NodeId
    seq: NonNegative
    why: str
    added: NonNegative
    """The version of the charter that brought the node."""
    body: bytes


# -- the outbox of a node below the root ----------------------------------------------------------


class LastSent(Struct, frozen=True):
    """What the last message said besides the frontier. A change of it is worth a message."""

    idle: bool
    plan: NonNegative
    missing: tuple[NodeId, ...]
    complete: bool
    """Whether all nodes are waited for."""
    landed: tuple[NonNegative, ...]
    ended: tuple[NodeId, ...]


class LocalPlace(Struct, frozen=True, tag="local"):
    """How far a node that reads events has come."""

    at: Position | None
    """A position of its source, in the source's own words."""
    partitions: Frontier
    ended: bool
    idle: bool
    batch: NonNegative | None = None
    """The last batch, where batches are read elsewhere."""
    read: PartitionsRead | None = None
    """How far its partitions were read, in places of events; None: they are read elsewhere."""


class RelayPlace(Struct, frozen=True, tag="relay"):
    """How far a node has come that merges what its children send."""

    step: NonNegative
    plan: NonNegative
    view: View
    children: dict[NodeId, Child]
    begun: PlansBegun = field(default_factory=dict)


class FlowNote(Struct, frozen=True):
    """How far a node has come and what it has said, as of a step."""

    place: LocalPlace | RelayPlace
    frontier: EventTime
    complete_until: EventTime
    plan: NonNegative
    newest: EventTime
    last_sent: LastSent | None
    """None: no message was sent yet."""
    counts: dict[Name, NonNegative]
    """Events read, late, bad and so on since the last message."""
    ends: dict[NodeId, EventTime]
    """The nodes below whose streams have ended, and the time of the last event of each."""
    behind: Behind
    """What was cut by an older plan since the last message."""
    flush: Learnt
    last: NodeProgress
    """How far the node was, as of its last message."""
    before: NodeProgress | None
    """How far the node was, as of the message before those of this step."""
    counted: NonNegative | None = None
    """The last entry of the log of events that are counted."""
    ranked: NonNegative | None = None
    """The last entry of the log of values that are kept back."""
    marked: NonNegative | None = None
    """The last entry of the log of events that are kept between marks."""


class OutboxEntry(Struct, frozen=True):
    """A step of a node: how far it has come, what it passes up, and what it holds back."""

    note: FlowNote
    seq: NonNegative
    """The number of the last message so far."""
    messages: tuple[bytes, ...]
    """Together they say what the step did; none may go without the others."""
    carry: bytes
    """What the node holds back, as its merger saved it."""


# -- steps ----------------------------------------------------------------------------------------


class StepRecord(Struct, frozen=True):
    """What a node takes next of its children's messages, and by which plan."""

    step: NonNegative
    plan: NonNegative
    now: int
    take: dict[NodeId, NonNegative]
    """The last message that is taken of each child that sent some."""
    view: View
    """What the children say together."""


class RelayStep(StepRecord, frozen=True, tag="relay"):
    """What a relay takes next."""

    charter: NonNegative
    too_late: EventTime = EARLIEST


class Uncounted(Struct, frozen=True):
    """A count window that lacks events of nodes that were given up."""

    group: int
    number: int
    key: tuple[KeyValue, ...]
    nodes: tuple[str, ...]


class Unranked(Struct, frozen=True):
    """Windows of a group that may lack values of some nodes: those that end after one time and by
    another, and start at `start`, where that is given."""

    group: int
    after: EventTime
    by: EventTime
    nodes: tuple[str, ...]
    start: EventTime | None = None


class Readers(Struct, frozen=True):
    """The numbers of the nodes that read events, and of those of them that are missing."""

    numbers: tuple[NonNegative, ...]
    away: tuple[NonNegative, ...]


class RootStep(StepRecord, frozen=True, tag="root"):
    """What the root takes next, and how far it goes."""

    frontier: EventTime
    reach: EventTime
    """How far windows are given: no further than where every one with an event is complete."""
    complete_until: EventTime
    newest: EventTime
    too_late: EventTime
    """Slices that end by then are only counted."""
    charter: NonNegative
    lagging: Lagging | None
    ended: dict[NodeId, EventTime]
    live: tuple[NodeId, ...] | None
    """The nodes that may still bring slices, where some windows are read by stream."""
    since: dict[NodeId, EventTime]
    """Since when each child is waited for."""
    readers: Readers | None
    """Where the root asks nodes that read events."""
    uncounted: tuple[Uncounted, ...] = ()
    """Found when the step is carried out."""
    counted_late: NonNegative = 0
    """Where a step is carried out elsewhere: events that were counted and came too late so far."""
    begun: PlansBegun = field(default_factory=dict)

    @property
    def decided(self) -> tuple[int, int, int, tuple[str, ...]]:
        """A step that takes no message is worth making only if this differs from the last step."""
        return self.plan, self.frontier, self.view.complete_until, self.view.missing

    @property
    def closing(self) -> bool:
        """Whether all nodes have ended."""
        return self.complete_until >= LATEST


class RootState(Struct, frozen=True):
    """All that the root needs to go on after a step."""

    last: RootStep | None
    counts: dict[str, int]
    children: dict[NodeId, Child]
    counting: bytes | None
    """Count windows that are found by asking; None: there are none."""
    assembler: bytes | None
    """None where steps are carried out elsewhere."""
    observed: RateWatch = RateWatch()
    """The rate at which events have come."""
    ranking: bytes | None = None
    """Values that are asked for; None: there are none."""
    marking: bytes | None = None
    """Rounds about marks; None: there are none."""


class StepFile(Struct, frozen=True):
    """A step that is carried out elsewhere, with all that it depends on."""

    step: RelayStep | RootStep
    bodies: tuple[bytes, ...]
    """The messages that it takes."""
    full: bytes | None = None
    """Count windows that are full by now, as partials."""
