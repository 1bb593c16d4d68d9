"""How a node stands, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from catchment.counting.orders import lanes_capacity
from catchment.engine.times import now
from catchment.model.capacity import Capacity
from catchment.planner.edges import EARLIEST, LATEST
from catchment.sources.base import NeverRead
from catchment.sources.watch import SourceNote
from catchment.tree.charter import PLANS
from catchment.tree.inbox import Inbox
from catchment.tree.local import Local
from catchment.tree.member import WINDOW, Member
from catchment.tree.root import Root
from catchment.tree.words import Unread


def status(
    member: Member,
    links: set[str],
    source: SourceNote | None = None,
    capacities: Sequence[Capacity] = (),
) -> dict[str, Any]:
    """What a person wants to know of a node and its children.

    `source` says what of the node's source was never read, if it reads one; `capacities` are those
    of the process that runs the node.
    """
    charter, machine = member.charter, member.machine
    found: dict[str, Any] = {
        "node": member.id,
        "role": _role(member),
        "job": charter.job if charter else None,
        "charter": charter.version if charter else None,
        "damage": member.disk.damage(),
    }
    found["life"] = member.held.life if member.living else None
    troubles = [why for why in (member.refused, member.outdated) if why is not None]
    if troubles:
        found["trouble"] = troubles[0]
    refused = member.turned_away()
    if refused:
        found["refused"] = refused
    if charter is not None:
        found["flush"] = str(charter.flush)
        found["places"] = [
            {"id": p.id, "parent": p.parent, "listen": p.listen}
            | ({} if p.was is None else {"moves from": p.was})
            for p in charter.places.values()
        ]
    if isinstance(machine, Root):
        found |= {
            "frontier": _time(machine.frontier),
            "sure": _time(machine.last.get("sure", EARLIEST)),
            "missing": machine.last.get("missing", []),
            "plan": machine.plan,
            "counts": dict(machine.counts),
            "step": machine.number,
        }
        if machine.tally is not None:
            found["count windows"] = machine.tally.status()
    elif machine is not None:
        flow = machine.flow
        found |= {
            "frontier": _time(flow.frontier),
            "sure": _time(flow.sure),
            "plan": flow.plan,
            "missing": flow.note.get("missing", []),
            "sent": flow.outbox.sent,
            "acknowledged": member.acked,
            "waiting bytes": flow.outbox.nbytes,
            "link": flow.link.shown() | flow.early.shown(),
        }
    note = source or SourceNote()
    found["never read"] = [asdict(one) for one in note.never_read]
    found["never read by nodes"] = {
        id: msgspec.to_builtins(told) for id, told in member.never_read().items()
    }
    found["limits"] = [one.to_dict() for one in (*limits(member), *note.limits, *capacities)]
    if member.inbox is not None:
        found["children"] = _children(member.inbox, links, member.links)
    return found


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
    if isinstance(machine, Root):
        found.append(machine.capacity())
        found += [] if machine.assembler is None else machine.assembler.capacities()
        if machine.tally is not None:
            found.append(lanes_capacity(len(machine.tally.lanes)))
    elif machine is not None:
        flow = machine.flow
        then = "nothing more is read or merged until the parent has acknowledged"
        found.append(Capacity("outbox", flow.outbox.nbytes, member.quota, "bytes", then))
        then = "no more messages are sent until one is acknowledged"
        flying = max(member.sent - member.acked, 0)
        found.append(Capacity("messages on their way", flying, WINDOW, "entries", then))
        found += flow.merger.capacities()
        if flow.counting is not None:
            kept = flow.counting.kept
            found += [kept.capacity(), lanes_capacity(len(kept.lanes))]
    if isinstance(machine, Local):
        found.append(machine.slicer.aside.capacity())
        found += [] if member.keep is None else [member.keep.capacity()]
    return found


def _role(member: Member) -> str:
    if member.parent is None:
        return "root"
    return "local" if member.source is not None else "intermediate"


def _children(inbox: Inbox, links: set[str], carried: dict[str, dict[str, Any]]) -> dict[str, Any]:
    at = now()
    return {
        id: {
            "connected": id in links,
            "silent seconds": round((at - inbox.heard.get(id, at)) / 1e6, 1),
            "frontier": _time(child.frontier),
            "received": inbox.received(id),
            "taken": child.taken,
            "missing": list(child.missing),
            "link": carried.get(id),
            **({"set aside": _aside(inbox, id)} if inbox.aside.get(id) else {}),
        }
        for id, child in inbox.children.items()
    }


def _aside(inbox: Inbox, id: str) -> dict[str, str]:
    """Messages that could not be read or taken in, and why; the last of them."""
    return {str(seq): why for seq, why in sorted(inbox.aside[id].items())[-20:]}


def _time(value: int | None) -> int | str | None:
    """A time, or where it is none, in a word."""
    if value is None:
        return "idle"
    if value >= LATEST:
        return "ended"
    return None if value <= EARLIEST else value
