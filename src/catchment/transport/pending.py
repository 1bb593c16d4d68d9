"""Connections that are no links of nodes yet: a bounded number, whatever comes."""

from __future__ import annotations

from collections import Counter

from catchment.transport.peer import Peer


class Pending:
    """Some peers, the oldest first; one too many makes another leave.

    That is one of the address that has the most peers here: whoever opens many connections pushes
    out its own. It is one that has begun nothing, if there is any: however many come and are
    silent, whoever is in the middle of a handshake stays. Of these the oldest leaves: a peer that
    is quick has said what it wants before its turn comes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._peers: dict[Peer, str] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def enter(self, peer: Peer) -> None:
        if len(self._peers) >= self.most:
            self.shrink()
        self._peers[peer] = peer.name.rpartition(":")[0]

    def leave(self, peer: Peer) -> None:
        self._peers.pop(peer, None)

    def shrink(self) -> None:
        """Makes one peer leave, at once and without a word."""
        if not self._peers:
            return
        counts = Counter(self._peers.values())
        crowd = max(counts, key=lambda address: counts[address])
        theirs = [peer for peer, address in self._peers.items() if address == crowd]
        oldest = next((peer for peer in theirs if not peer.begun), theirs[0])
        del self._peers[oldest]
        oldest.abort()
