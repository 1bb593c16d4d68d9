"""What a child says of others: its parent believes it of the nodes that are below that child.

A message speaks of the node that sends it and, where that node has children, of the nodes below.
A child whose token was stolen, or whose memory is bad, could speak of any node: that another's
stream has ended, that nobody need wait for it, that it has moved. So what the head of a message
says of nodes that are elsewhere is not believed. That bounds what a message can leave behind, too:
at most an entry for each node that the charter knows. (Notes in the name of a node that is
elsewhere are refused with their message: `message.checked`.)

Whoever has moved, or is below a node that has, may be told of by others too: what it sent before
may still be on its way.
"""

from __future__ import annotations

from msgspec.structs import replace

from catchment.tree.charter import Charter
from catchment.tree.message import Head
from catchment.tree.records import Behind
from catchment.tree.stale_plan import joined

COUNTED = ("events", "late", "bad", "updates", "no_window", "aside_dropped", "held")
"""What nodes count: the names in the `counts` of a message."""


def credible(head: Head, charter: Charter) -> Head:
    """The head of a message of a child, with what the child may say.

    What it says to lack of others lacks all the same, and it is the child that lacks it.
    """
    child, here, streams = head.node, charter.standing_in, charter.readers

    def own(id: str) -> str:
        return id if id in here and charter.may_bring(child, here[id]) else child

    behind: list[Behind] = [{own(id): lag} for id, lag in head.behind.items()]
    moves = charter.moves
    return replace(
        head,
        missing=tuple(sorted({own(id) for id in head.missing})),
        counts={name: head.counts[name] for name in COUNTED if name in head.counts},
        landed=tuple(n for n in head.landed if n in moves and charter.comes_by(child, moves[n])),
        ended={
            stream: time
            for stream, time in head.ended.items()
            if stream in streams and charter.may_bring(child, streams[stream])
        },
        behind=joined(behind),
    )
