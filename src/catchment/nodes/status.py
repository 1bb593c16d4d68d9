"""How a node stands, as a typed record; commands and `status` of a node show it as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from catchment.counting.status import CountStatus
from catchment.engine.times import now
from catchment.model.capacity import Capacity
from catchment.planner.edges import EARLIEST, LATEST
from catchment.sources.base import NeverRead
from catchment.sources.watch import SourceNote
from catchment.tree.charter import PLANS, Charter
from catchment.tree.inbox import Inbox
from catchment.tree.member import WINDOW, Member
from catchment.tree.window_traffic import WindowTraffic
from catchment.tree.words import Filling, LinkFigures, Unread

_TEXT = 16
"""Bytes that a text or list of an event is taken to have."""

HALF = 0.5
"""What is fuller than that is told to the nodes above."""
_TOLD = 16

When = int | str | None
"""A time, "idle" or "ended"; None: it has not begun."""


def _spaced(name: str) -> str:
    """What a field is called in JSON."""
    return name.replace("_", " ")


class PlaceStatus(Struct, frozen=True, rename=_spaced):
    """Where a node is in the tree."""

    id: str
    parent: str | None
    listen: str | None
    moves_from: str | UnsetType = UNSET


class ChildStatus(Struct, frozen=True, rename=_spaced):
    """How a child stands, as its parent sees it."""

    connected: bool
    silent_seconds: float
    frontier: When
    received: int
    taken: int
    missing: tuple[str, ...]
    link: LinkFigures | None
    nbytes: int = 0
    """Bytes of its messages since the parent's process began."""
    windows: dict[str, WindowTraffic] | UnsetType = UNSET
    """What these brought for windows of each type, and how stale windows were when they came."""
    set_aside: dict[str, str] | UnsetType = UNSET
    """Messages that could not be read or taken in, and why; the last of them."""


class NodeStatus(Struct, frozen=True, rename=_spaced, kw_only=True):
    """What a person wants to know of a node and its children; what does not apply is not set."""

    node: str
    role: str
    job: str | None
    charter: int | None
    damage: list[str]
    life: int | None
    error: str | UnsetType | None = UNSET
    refused: dict[str, str] | UnsetType = UNSET
    flush: str | UnsetType = UNSET
    places: list[PlaceStatus] | UnsetType = UNSET
    frontier: When | UnsetType = UNSET
    complete_until: When | UnsetType = UNSET
    """Nothing at all is missing before it."""
    plan: int | UnsetType = UNSET
    missing: tuple[str, ...] = ()
    counts: dict[str, int] | UnsetType = UNSET
    event_rate: float | UnsetType = UNSET
    """Events in a second of event time, as the root has observed."""
    planned_rate: float | UnsetType = UNSET
    """Events in a second of event time that the plan was made for."""
    event_bytes: int | UnsetType = UNSET
    """What an event takes by its columns; texts and lists are taken to have 16 bytes."""
    step: int | UnsetType = UNSET
    count_windows: dict[str, CountStatus] | UnsetType = UNSET
    lost: dict[str, When] | UnsetType = UNSET
    """Of a root: nodes of which messages or events are lost, and the time up to which results may
    lack them."""
    not_asked: dict[str, str] | UnsetType = UNSET
    """At a root: nodes that are not asked for values any more, and why."""
    sent: int | UnsetType = UNSET
    acknowledged: int | UnsetType = UNSET
    waiting_bytes: int | UnsetType = UNSET
    link: LinkFigures | UnsetType = UNSET
    never_read: tuple[NeverRead, ...]
    never_read_by_nodes: dict[str, Unread]
    limits: list[Capacity]
    filling_by_nodes: dict[str, list[Capacity]] = {}
    """What is at least half full on this node and on those below, as they have said."""
    children: dict[str, ChildStatus] | UnsetType = UNSET


def status(
    member: Member,
    links: set[str],
    source: SourceNote | None = None,
    capacities: Sequence[Capacity] = (),
) -> NodeStatus:
    """What a person wants to know of a node and its children.

    `source` says what of the node's source was never read, if it reads one; `capacities` are those
    of the process that runs the node.
    """
    charter, inbox, note = member.charter, member.inbox, source or SourceNote()
    troubles = [why for why in (member.refused, member.outdated) if why is not None]
    found = NodeStatus(
        node=member.id,
        role=_role(member),
        job=charter.job if charter else None,
        charter=charter.version if charter else None,
        damage=member.disk.damage(),
        life=member.own_life.life if member.living else None,
        error=troubles[0] if troubles else UNSET,
        refused=member.turned_away() or UNSET,
        flush=UNSET if charter is None else str(charter.settings.flush),
        places=UNSET if charter is None else _places(charter),
        event_bytes=UNSET if charter is None or charter.schema is None else _width(charter.schema),
        never_read=tuple(note.never_read),
        never_read_by_nodes=member.never_read(),
        limits=[*limits(member), *note.limits, *capacities],
        filling_by_nodes={
            id: [one.capacity for one in told] for id, told in member.filling().items()
        },
        children=UNSET if inbox is None else _children(inbox, links, member),
    )
    return _with_progress(found, member)


def _with_progress(found: NodeStatus, member: Member) -> NodeStatus:
    """Adds to the status what the role of the node says of its progress."""
    if member.machine is None:
        return found
    progress, flow = member.machine.progress(), member.flow
    found = replace(
        found,
        frontier=_time(progress.frontier),
        complete_until=_time(progress.complete_until),
        missing=progress.missing,
        plan=progress.plan,
        counts=progress.counts,
        event_rate=progress.event_rate,
        planned_rate=progress.planned_rate,
        step=progress.step,
        count_windows=progress.count_windows,
        lost=_times(progress.lost),
        not_asked=progress.not_asked or UNSET,
    )
    if flow is None:
        return found
    return replace(
        found,
        sent=flow.outbox.sent,
        acknowledged=member.acked,
        waiting_bytes=flow.outbox.nbytes,
        link=flow.link.shown() | flow.early.shown(),
    )


def _places(charter: Charter) -> list[PlaceStatus]:
    return [
        PlaceStatus(p.id, p.parent, p.listen, UNSET if p.was is None else p.was)
        for p in charter.places.values()
    ]


def unread_of(found: Sequence[NeverRead]) -> Unread | None:
    """What was never read of a source, summed up; None where it was all read."""
    if not found:
        return None
    rows = [one.rows for one in found]
    return Unread(
        len(found),
        f"{found[0].origin}: {found[0].reason}"[:1000],
        sum(one.nbytes for one in found),
        None if None in rows else sum(count or 0 for count in rows),
    )


def limits(member: Member) -> list[Capacity]:
    """What grows on a node, how large it is and may get, and what happens then."""
    machine, charter = member.machine, member.charter
    found: list[Capacity] = []
    if charter is not None:
        then = "the oldest is forgotten: a node that slept through all of them starts anew"
        found.append(Capacity("versions of the plan", len(charter.plans), PLANS, "entries", then))
    if member.inbox is not None:
        then = "messages are not acknowledged, and children keep them"
        found.append(Capacity("inbox", member.inbox.nbytes, member.quota, "bytes", then))
    if member.flow is not None:
        outbox = member.flow.outbox
        then = "nothing more is read or merged until the parent has acknowledged"
        found.append(Capacity("outbox", outbox.nbytes, member.quota, "bytes", then))
        then = "no more messages are sent until one is acknowledged"
        flying = max(member.sent - member.acked, 0)
        found.append(Capacity("messages on their way", flying, WINDOW, "entries", then))
    return found if machine is None else [*found, *machine.capacities()]


def filling_of(found: Sequence[Capacity]) -> tuple[Filling, ...]:
    """What is at least half full, the fullest first."""
    half = sorted((one for one in found if one.share >= HALF), key=lambda one: -one.share)
    return tuple(Filling.of(one) for one in half[:_TOLD])


def _role(member: Member) -> str:
    if member.parent is None:
        return "root"
    return "local" if member.source is not None else "intermediate"


def _width(schema: pa.Schema) -> int:
    """Bytes of an event by its columns."""
    widths = [field.type.bit_width / 8 if _fixed(field.type) else _TEXT for field in schema]
    return math.ceil(sum(widths))


def _fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _children(inbox: Inbox, links: set[str], member: Member) -> dict[str, ChildStatus]:
    at = now()
    return {
        id: ChildStatus(
            connected=id in links,
            silent_seconds=round((at - inbox.heard.get(id, at)) / 1e6, 1),
            frontier=_time(child.frontier),
            received=inbox.received(id),
            taken=child.taken,
            missing=child.missing,
            link=member.links.get(id),
            nbytes=member.carried.get(id, 0),
            windows=_traffic(member, id),
            set_aside=_aside(inbox, id) if inbox.aside.get(id) else UNSET,
        )
        for id, child in inbox.children.items()
    }


def _traffic(member: Member, id: str) -> dict[str, WindowTraffic] | UnsetType:
    found = member.traffic.get(id)
    return UNSET if found is None or not found.windows else dict(found.windows)


def _aside(inbox: Inbox, id: str) -> dict[str, str]:
    """Messages that could not be read or taken in, and why; the last of them."""
    return {str(seq): why for seq, why in sorted(inbox.aside[id].items())[-20:]}


def _times(found: dict[str, int] | UnsetType) -> dict[str, When] | UnsetType:
    """Times by node, as status shows them; not set where there is none."""
    return {id: _time(value) for id, value in found.items()} if found else UNSET


def _time(value: int | None) -> When:
    """A time as status shows it: `idle` where nobody waits for the node, `ended` at its end, None
    before its beginning."""
    if value is None:
        return "idle"
    if value >= LATEST:
        return "ended"
    return None if value <= EARLIEST else value
