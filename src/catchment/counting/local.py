"""A local node's part in the count windows of one key.

Events and what the root says go in; facts about positions of events, and pieces (partials or
events) come out. Events are cut where the root has found edges, or unasked where the next ones are
expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from catchment.counting import wire
from catchment.counting.edges import RankEdges
from catchment.counting.event_buffer import EventBuffer
from catchment.counting.fold import Fold
from catchment.counting.forecast import span
from catchment.counting.message import Columns, Down, Forecast, Samples, SlicePiece, Up, evenly
from catchment.counting.place import Place, after, at
from catchment.model.window import Counted
from catchment.operators.ragged import Ints

AHEAD = 8
"""Edges past the last known one for which a node sends pieces unasked."""
EARLIEST, LATEST = -(2**62), 2**62
_GROWN = 1.1


class LocalCounter:
    """Holds a node's events until the root has what it needs of them.

    What was sent is remembered as tiles: positions from, to, and whether they went as events. An
    edge, or a zone around one, may ask for a tile to be cut finer; nothing else is sent twice.
    """

    def __init__(self, node: int, windows: Sequence[Counted], fold: Fold) -> None:
        self.node, self.fold = node, fold
        self.edges = RankEdges(windows)
        self.held = EventBuffer(node)
        self.life = 0
        self.down: Down | None = None
        self.asked = self.zoned = 0
        """The last ask and the last zone that were answered."""
        self.known: dict[int, tuple[int, Place]] = {0: (0, at(EARLIEST))}
        """Edges that the root found, from the last complete one on: rank and place."""
        self.done = self.passed = 0
        self.tiles: list[tuple[int, int, bool]] = []
        self.sent = 0
        self._last_sent: tuple[int, int] = (EARLIEST, 0)
        self._seen = -1
        self._pieces: list[SlicePiece] = []
        self._counts: list[tuple[Place, int]] = []
        self._samples = Samples()
        self._span: tuple[int, int] | None = None
        self._speak = False

    # -- events and words in ---------------------------------------------------------------------

    def push(self, times: Ints, arrivals: Ints, data: Columns) -> None:
        self.held.push(times, arrivals, data)

    def advance(self, frontier: int) -> None:
        self.held.advance(frontier)

    @property
    def frontier(self) -> int:
        return EARLIEST if self.held.frontier is None else self.held.frontier

    def hear(self, down: Down) -> None:
        """Takes what the root says; what it said before that is out of date."""
        if self.down is not None and down.version <= self.down.version:
            return
        if self.node in down.gone:
            self._speak = True
            return
        life, position, place = down.lives.get(self.node, (0, 0, at(EARLIEST)))
        if life > self.life:
            self._begin(life, position, place, down)
        self.down = down
        for edge, rank, where in down.edges:
            if edge not in self.known and edge > self.done:
                self.known[edge] = (rank, where)
                if edge > down.complete:
                    cut = self.held.before(where)
                    self._expose(cut, cut)
                self.passed = max(self.passed, edge)
        self._forget(down.complete)
        if down.again:
            self._repeat()

    def _begin(self, life: int, position: int, place: Place, down: Down) -> None:
        """Begins a new life after this node was given up, or is new: events before the place that
        the root names are late."""
        self.life = life
        self.held.advance(place[0])
        self.held.renumber(position, place)
        self.tiles, self._pieces, self._counts, self._samples = [], [], [], Samples()
        self._span = None
        self.sent = position
        self.asked = self.zoned = 0
        self.known = {edge: (rank, where) for edge, rank, where in down.edges}
        self.done = down.complete
        self.passed = max([down.complete, *self.known])
        self._speak = True

    def _forget(self, complete: int) -> None:
        """The root has all pieces up to an edge: the events are not needed any more."""
        if complete <= self.done or complete not in self.known:
            return
        cut = self.held.before(self.known[complete][1])
        self.held.drop(cut)
        self.tiles = [(max(low, cut), high, raw) for low, high, raw in self.tiles if high > cut]
        self.known = {edge: what for edge, what in self.known.items() if edge >= complete}
        self.done = complete

    def _repeat(self) -> None:
        """Says again what may have been lost."""
        for low, high, raw in self.tiles:
            self._send(low, high, raw)
        self.asked = self.zoned = 0
        self._speak = True

    # -- words out -------------------------------------------------------------------------------

    def step(self) -> Up | None:
        """What there is to say now."""
        down, scheme = self.down, "" if self.down is None else self.down.scheme
        if scheme == "central":
            self._expose(self.sent, self.held.end)
        self._on_zone()
        self._on_ask()
        if down is not None and down.forecast is not None and scheme in ("async", "approx"):
            self._ahead(down.forecast, scheme == "approx")
        silent = down is not None and (
            down.ask is not None or down.zone is not None or down.forecast is not None
        )
        now = (self.frontier, self.held.end)
        news = not silent and now != self._last_sent and self._worth(now)
        if not (news or self._speak or self._pieces or self._counts):
            return None
        self._last_sent = now
        up = Up(
            self.node,
            self.life,
            self.frontier,
            self.held.end,
            self.passed,
            self.asked,
            self.zoned,
            self._counts,
            self._samples,
            self._pieces,
            self.held.late,
            self._span,
        )
        self._pieces, self._counts, self._samples, self._speak = [], [], Samples(), False
        self._span = None
        return up

    def _worth(self, now: tuple[int, int]) -> bool:
        """Whether to tell unasked how far this node is: not of every few events."""
        still, self._seen = now[1] == self._seen, now[1]
        ended = now[0] >= LATEST
        return now[0] > EARLIEST and (still or ended or now[1] >= _GROWN * self._last_sent[1])

    def _on_ask(self) -> None:
        ask = None if self.down is None else self.down.ask
        if ask is None or ask.number <= self.asked or at(self.frontier) < ask.high:
            return
        low, high = self.held.before(ask.low), self.held.before(ask.high)
        count = min(ask.most, high - low)
        rows = evenly(low, high, count)
        times, arrivals, _ = self.held.events(low, high)
        self._samples = Samples(low, high, rows, times[rows - low], arrivals[rows - low])
        self.asked, self._speak = ask.number, True

    def _on_zone(self) -> None:
        zone = None if self.down is None else self.down.zone
        if zone is None or zone.number <= self.zoned:
            return
        span = None if zone.spans is None else zone.spans.get(self.node)
        due = at(self.frontier) >= zone.high
        if span is not None and (due or self.held.end >= span[1]):
            low, high = (min(max(position, self.held.base), self.held.end) for position in span)
            self._fence(low, high)
        elif due:
            low, high = self.held.before(zone.low), self.held.before(zone.high)
            self._span = (low, high)
        else:
            return
        self._expose(low, high)
        self.passed = max(self.passed, zone.edge)
        self.zoned, self._speak = zone.number, True

    def _ahead(self, forecast: Forecast, blind: bool) -> None:
        """Cuts where the next edges are expected, without waiting to be told."""
        edge, rank = forecast.edge, forecast.rank
        last = max(self.known)
        while blind or edge < last + AHEAD:
            edge, rank = edge + 1, self.edges.after(rank)
            if edge <= self.passed:
                continue
            if forecast.sizes is None:
                low, high = span(forecast, rank)
                if self.frontier < high:
                    return
                bounds = self.held.before(at(low)), self.held.before(at(high))
                self._counts += [(at(low), bounds[0]), (at(high), bounds[1])]
            else:
                found = self._share(forecast, rank, blind)
                if found is None:
                    return
                bounds = found
                self._fence(*bounds)
            self._expose(*bounds)
            self.passed = edge
            self._speak = True

    def _share(self, forecast: Forecast, rank: int, blind: bool) -> tuple[int, int] | None:
        """From which position to which an edge is expected, by this node's share of a stride."""
        assert forecast.sizes is not None
        start, share, buffer = forecast.sizes.get(self.node, (self.sent, 0, 0))
        strides = (rank - forecast.rank) / forecast.stride
        middle = start + round(share * strides)
        low, high = (middle, middle) if blind else (middle - buffer, middle + buffer)
        wait = strides * forecast.stride * forecast.pace * (1 + 2 * buffer / max(share, 1))
        if self.held.end < high and (blind or self.frontier < forecast.time + wait):
            return None
        low, high = (min(max(p, self.held.base), self.held.end) for p in (low, high))
        return low, high

    def _fence(self, low: int, high: int) -> None:
        """Tells the places at both ends of a zone that is given by positions."""
        if low > self.held.base:
            self._counts.append((after(self.held.place(low - 1)), low))
        if high < self.held.end:
            self._counts.append((self.held.place(high), high))

    # -- tiles -----------------------------------------------------------------------------------

    def _expose(self, low: int, high: int) -> None:
        """Has tiles end at two positions, and everything between them go as events."""
        low = max(low, self.held.base)
        tiles = []
        for tile in self.tiles:
            if tile[2] or tile[1] <= low or tile[0] >= high:
                tiles.append(tile)
                continue
            tiles += self._split(tile, low, high)
        self.tiles = tiles
        if low > self.sent:
            self._tile(self.sent, low, raw=False)
        if high > self.sent:
            self._tile(self.sent, high, raw=True)

    def _split(
        self, tile: tuple[int, int, bool], low: int, high: int
    ) -> list[tuple[int, int, bool]]:
        start, end, _ = tile
        low, high = max(low, start), min(max(high, low), end)
        parts = [(start, low, False), (low, high, True), (high, end, False)]
        parts = [part for part in parts if part[1] > part[0]]
        if len(parts) > 1 or parts[0][2]:
            for part in parts:
                self._send(*part)
        return parts

    def _tile(self, low: int, high: int, raw: bool) -> None:
        self.tiles.append((low, high, raw))
        self._send(low, high, raw)
        self.sent = high

    def _send(self, low: int, high: int, raw: bool) -> None:
        times, arrivals, data = self.held.events(low, high)
        if not raw:
            ends = np.array([0, high - low - 1])
            times, arrivals = times[ends], arrivals[ends]
        made = self.fold.raw(data) if raw else self.fold.lift(data)
        self._pieces.append(SlicePiece(low, high, raw, times, arrivals, made))

    # -- for those who run it --------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """Whether this node has said all it was asked for, in a scheme where it waits then."""
        down = self.down
        if down is None or not down.waits or not (down.ask or down.zone):
            return False
        asked = down.ask is not None and down.ask.number > self.asked
        zoned = down.zone is not None and down.zone.number > self.zoned
        return not asked and not zoned

    def first(self, column: str, default: int) -> int:
        """The least value of a column in the events that are kept."""
        return self.held.least(column, default)

    @property
    def events(self) -> int:
        """Events that are kept."""
        return self.held.settled + self.held.waiting

    def to_bytes(self) -> bytes:
        down = None if self.down is None else self.down.to_bytes()
        return wire.dump(
            [
                self.held.to_plain(),
                self.life,
                down,
                self.asked,
                self.zoned,
                self.known,
                self.done,
                self.passed,
                self.tiles,
                self.sent,
                self._last_sent,
                self._speak,
                [p.to_plain() for p in self._pieces],
                self._counts,
                self._samples.to_plain(),
                self._span,
            ]
        )

    @classmethod
    def from_bytes(cls, data: bytes, windows: Sequence[Counted], fold: Fold) -> LocalCounter:
        held, *rest = wire.load(data)
        made = cls(held[0], windows, fold)
        made.held = EventBuffer.from_plain(held)
        made._restore(rest)
        return made

    def _restore(self, rest: list[Any]) -> None:
        self.life, down, self.asked, self.zoned, self.known, self.done = rest[:6]
        self.down = None if down is None else Down.from_bytes(down)
        self.passed, self.tiles, self.sent, self._last_sent, self._speak = rest[6:11]
        self._pieces = [SlicePiece(*piece) for piece in rest[11]]
        self._counts, self._samples, self._span = rest[12], Samples(*rest[13]), rest[14]
