"""The root's part in the count windows of one key.

What nodes say goes in; orders to all nodes and windows that are full come out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from catchment.counting import wire
from catchment.counting.edges import RankEdges
from catchment.counting.fold import Fold
from catchment.counting.forecast import Pace, Shares, doubtful, expected_cuts, span
from catchment.counting.message import Ask, Down, Forecast, FoundEdge, NewLife, SlicePiece, Up, Zone
from catchment.counting.node_view import EARLIEST, NodeView
from catchment.counting.place import Place, at
from catchment.counting.rank_bounds import RankBounds, RankPlace
from catchment.counting.retransmit import Retransmit
from catchment.counting.scheme import OURS, SCHEMES, WAITING, Auto, CountOptions, check, samples
from catchment.counting.windows import FullWindow, Slice, SliceList
from catchment.model.window import Counted

LATEST = 2**62
_FEW = 8
"""Events in doubt, per node, that are sent rather than asked for again."""


class RootCounterState(Struct, frozen=True, array_like=True):
    """What a `RootCounter` must not lose: its attributes of the same names."""

    scheme: str
    predictor: str
    timeout: int | None
    retransmit: Retransmit
    zones: bool
    returns: bool
    views: dict[int, NodeView]
    found: dict[int, FoundEdge]
    edge: int
    complete: int
    slices: list[Slice]
    pace: Pace
    shares: Shares
    auto: Auto
    ask: Ask | None
    zone: Zone | None
    forecast: Forecast | None
    orders: int
    version: int
    corrections: int
    rounds: int
    full: list[FullWindow]
    ordered: int
    corrected: bool
    spent: float
    doubtful: float
    news: bool
    changed: bool


class RootCounter:
    """Finds edges by asking nodes, and puts the slices between edges together.

    An edge is the place with exactly its rank of events before it. That is established from what
    nodes say of their events' times, whichever scheme is used: a scheme only decides what nodes
    send before they are asked.
    """

    def __init__(
        self,
        nodes: Iterable[int],
        windows: Sequence[Counted],
        fold: Fold,
        scheme: str = "auto",
        options: CountOptions = OURS,
        timeout: int | None = None,
        retransmit_after: int | None = None,
        zones: bool = True,
        returns: bool = True,
    ) -> None:
        self.edges, self.fold = RankEdges(windows), fold
        self.scheme = check(scheme)
        self.predictor, self.timeout = options.predictor, timeout
        self.retransmit = Retransmit(retransmit_after)
        self.zones, self.returns = zones, returns
        """Whether events may be sent, or only their places, until an edge is found; and whether a
        node that was given up is back as soon as it is heard of, or when `back` says so."""
        self.views = {node: NodeView(node) for node in nodes}
        for view in self.views.values():
            view.cuts[0] = 0
        self.found = {0: FoundEdge(0, at(EARLIEST))}
        """Edges from the last complete one on."""
        self.edge = self.complete = 0
        """The last edge that was found, and the last up to which all pieces are here."""
        self.slice_list = SliceList(self.edges, fold)
        self.pace = Pace(self.edges.stride, options.memory)
        self.shares = Shares(options.memory)
        self.auto = Auto()
        self.ask: Ask | None = None
        self.zone: Zone | None = None
        self.forecast: Forecast | None = None
        self.orders = self.version = 0
        self.corrections = self.rounds = 0
        """Edges whose prediction was wrong; orders that were sent."""
        self.full: list[FullWindow] = []
        self.ordered, self.corrected = 0, False
        self.spent = self.doubtful = 0.0
        self.news = self.changed = True
        self._lost = False
        """Whether nodes have answered, and what they sent is not here."""

    @property
    def slices(self) -> list[Slice]:
        """Slices that windows still need."""
        return self.slice_list.slices

    @slices.setter
    def slices(self, slices: list[Slice]) -> None:
        self.slice_list.slices = slices

    @property
    def total(self) -> int:
        """Events that are known to be settled, of all nodes."""
        return self._settled

    # -- words in --------------------------------------------------------------------------------

    def receive(self, up: Up, now: int = 0, nbytes: int = 0) -> None:
        """Takes what a node says."""
        view = self.views.get(up.node)
        if view is None:
            return
        view.heard = max(view.heard, now)
        if view.gone and self.returns:
            self.back(up.node)
        if not view.take(up):
            self.changed |= not view.gone  # it does not know yet that it begins anew
            return
        self._answered(view, up)
        if self.pace.time is None and up.settled:
            self.pace.learn(0, float(up.frontier))
        self.news = True
        self.spent += nbytes
        raw = sum(piece.high - piece.low for piece in up.pieces if piece.raw)
        self.auto.saw(raw, nbytes)

    def _answered(self, view: NodeView, up: Up) -> None:
        """What an answer says of the places that were asked about."""
        ask, zone = self.ask, self.zone
        if ask is not None and up.ask == ask.number and up.samples is not None:
            view.counts |= {ask.low: up.samples.low, ask.high: up.samples.high}
        if zone is not None and up.zone == zone.number and up.span is not None:
            view.counts |= {zone.low: up.span[0], zone.high: up.span[1]}

    def join(self, node: int, now: int = 0) -> None:
        """One more node; its events count from the last edge on."""
        if node in self.views:
            return
        time = self._horizon()
        view = self.views[node] = NodeView(node, life=1, frontier=time, fresh=True)
        view.cuts = dict.fromkeys(self.found, 0)
        view.heard, view.passed = now, self.edge
        self.changed = self.news = True

    def leave(self, node: int) -> None:
        """A node that will not come back; what it sent stays."""
        self.views[node].left = True
        if self.views[node].frontier < LATEST:
            self.give_up(node)

    def give_up(self, node: int) -> None:
        """Stops waiting for a node, until a message of it comes."""
        if node in self.views and not self.views[node].gone:
            self._give_up(self.views[node])

    def alive(self, node: int, now: int) -> None:
        """A node is there, though it has nothing to say."""
        self.views[node].heard = max(self.views[node].heard, now)

    def _horizon(self) -> int:
        """A time after all edges that were found."""
        time = self.found[self.edge].place.time
        return EARLIEST if time == EARLIEST else min(time + 1, LATEST)

    def _give_up(self, view: NodeView) -> None:
        view.give_up(self.edge)
        self.news = True

    def back(self, node: int) -> None:
        """A node that was given up: what it has from before the last edge is late."""
        view = self.views[node]
        if not view.gone or view.left:
            return
        view.begin(max(self._horizon(), view.newest + 1))
        view.passed = self.edge
        self.changed = self.news = True

    # -- words out -------------------------------------------------------------------------------

    def say_again(self) -> None:
        """Repeats the last order with the next step: it may not have arrived."""
        self.changed = True

    def step(self, now: int = 0) -> Down | None:
        """Finds the edges that can be found by now; gives the next order to all nodes, if there is
        one."""
        if self.timeout is not None:
            for view in self.views.values():
                if not view.gone and view.frontier < LATEST and now - view.heard > self.timeout:
                    self._give_up(view)
        if self.news:
            self.news = False
            self._work()
        again = self.retransmit.lost(now, self.complete, self.over, self._lost)
        self._lost = False
        if not self.changed and not again:
            return None
        self.changed, self.retransmit.said = False, now
        self.version += 1
        waits = self.scheme in WAITING
        gone = [node for node, view in self.views.items() if view.gone]
        down = Down(
            self.version,
            SCHEMES.index(self.using),
            self.complete,
            {n: found for n, found in self.found.items() if n >= self.complete},
            self.ask,
            self.zone,
            self.forecast,
            self._lives(),
            gone,
            waits,
            again,
        )
        if self.scheme == "auto":
            self.spent += len(wire.dump(down)) * len(self.views)
        return down

    @property
    def using(self) -> str:
        """The scheme in use."""
        return self.auto.using if self.scheme == "auto" else self.scheme

    @property
    def over(self) -> bool:
        """Whether everyone has ended and all edges were found that there are."""
        if self.complete < self.edge or self._reached < LATEST:
            return False
        return self._lacking() or self._settled < self.edges.after(self.found[self.edge].rank)

    def _lacking(self) -> bool:
        """Whether a node has ended and lacks events for the next window, where none is verified."""
        if self.scheme != "approx" or self.forecast is None:
            return False
        cuts = expected_cuts(self.forecast, self.edges.after(self.found[self.edge].rank))
        ended = [n for n, view in self.views.items() if view.frontier >= LATEST and not view.gone]
        return any(cuts.get(node, 0) > self.views[node].settled for node in ended)

    def _lives(self) -> dict[int, NewLife]:
        return {
            node: NewLife(view.life, view.settled, at(view.frontier))
            for node, view in self.views.items()
            if view.fresh
        }

    @property
    def _reached(self) -> int:
        """How far all nodes are that are waited for."""
        return min((t.frontier for t in self.views.values() if not t.gone), default=LATEST)

    @property
    def _settled(self) -> int:
        return sum(t.settled for t in self.views.values())

    # -- finding edges ---------------------------------------------------------------------------

    def _work(self) -> None:
        while self._ready():
            rank = self.edges.after(self.found[self.edge].rank)
            if self.scheme == "approx" and self.forecast is not None:
                self._approximate(rank)
                continue
            edge, found = self.edge, self._search(rank)
            if self.edge > edge:
                self._order()
                continue
            if self.ordered != self.edge + 1:
                self._order()
            if self._ready():
                self._pursue(rank, found)
            break
        self._collect()

    def _search(self, rank: int) -> RankPlace | None:
        """Finds as many edges as can be found, and how much is known of the next."""
        if self._settled < rank:
            return None
        place = self.found[self.edge].place
        bounds = RankBounds({n: t.points(self.edge, place) for n, t in self.views.items()})
        found = bounds.find(rank)
        while found.place is not None:
            self._locate(rank, found.place, found.cuts)
            rank = self.edges.after(rank)
            found = bounds.find(rank)
        return found

    def _ready(self) -> bool:
        """Whether all that was asked for is here, as far as anybody is waited for."""
        live = [view for view in self.views.values() if not view.gone]
        if self.ordered == self.edge + 1:
            if self.ask is not None:
                return all(view.answered_ask >= self.ask.number for view in live)
            if self.zone is not None:
                return all(view.answered_zone >= self.zone.number for view in live)
            if self.forecast is not None:
                return all(view.passed > self.edge for view in live if self._takes_part(view))
        return True

    def _takes_part(self, view: NodeView) -> bool:
        """Whether a node has events to send unasked: without a share of the last window, and where
        nothing is verified, it has none."""
        ahead = self.forecast
        if self.scheme != "approx" or ahead is None or ahead.sizes is None:
            return True
        return view.node in ahead.sizes and ahead.sizes[view.node].share > 0

    def _pursue(self, rank: int, found: RankPlace | None) -> None:
        """Asks closer: the edge is not where it was predicted, or nothing was predicted."""
        ordered = self.ordered == self.edge + 1
        if ordered and self._predicted() and not self.corrected:
            self.corrected = True
            self.corrections += 1
        if found is None or found.high is None:
            if ordered and (self.ask or self.zone or self.forecast):
                self._further(rank, found)
            return
        low = found.low or self.found[self.edge].place
        if self.zones and found.loose <= _FEW * len(self.views):
            zone, last = Zone(self.orders + 1, self.edge + 1, low, found.high), self.zone
            # All events there were sent, so who is asked for them again has to send them again.
            self._lost = last is not None and replace(last, number=zone.number) == zone
            self._give(None, zone)
        else:
            most = samples(found.loose / len(self.views))
            self._give(Ask(self.orders + 1, low, found.high, most), None)

    def _predicted(self) -> bool:
        """Whether the last order rested on a prediction alone."""
        if self.using in ("sync", "async") and self.ask is None:
            return self.forecast is not None or self.zone is not None
        return False

    def _further(self, rank: int, found: RankPlace | None) -> None:
        """The edge is still to come: asks again when it may have."""
        reached = self._reached
        known, place = self.found[self.edge]
        ahead = self.pace.forecast(self.edge, known, float(place.time))
        if reached >= LATEST or ahead is None:
            self._drop_orders()
            return
        lacking = max(rank - self._settled, 0) * ahead.pace
        step = math.ceil(max(lacking * 1.05, 0.02 * ahead.stride * ahead.pace, 1.0))
        low = (found.low if found is not None else None) or place
        most = samples((rank - known) / max(len(self.views), 1))
        self._give(Ask(self.orders + 1, low, at(reached + step), most), None)

    def _drop_orders(self) -> None:
        self.changed |= self.ask is not None or self.zone is not None
        self.ask = self.zone = None

    def _give(self, ask: Ask | None, zone: Zone | None) -> None:
        self.ask, self.zone = ask, zone
        self.orders += 1
        self.rounds += 1
        self.ordered, self.changed = self.edge + 1, True

    def _order(self) -> None:
        """Begins to look for the next edge, by what is predicted of it."""
        rank = self.edges.after(self.found[self.edge].rank)
        self.ordered, self.corrected = self.edge + 1, False
        self.ask = self.zone = self.forecast = None
        self.changed = True
        known, place = self.found[self.edge]
        if self._reached >= LATEST and self._settled < rank:
            return  # no more events will come
        ahead = self.pace.forecast(self.edge, known, float(place.time))
        live = sum(not view.gone for view in self.views.values())
        self.doubtful = 0.0 if ahead is None else doubtful(ahead, rank)
        if self.scheme == "auto" and ahead is not None:
            self.auto.choose(self.edge, self.auto.costs(live, rank - known, self.doubtful))
        if self.using == "central" or ahead is None:
            return
        if self.using == "approx" or (self.predictor == "last" and self.using != "monitor"):
            self._by_shares(ahead, rank)
            return
        low, high = (at(time) for time in span(ahead, rank))
        ask = Ask(self.orders + 1, low, high, samples(self.doubtful / max(live, 1)))
        if not self.pace.tried:
            self._give(ask, None)
        elif self.using == "async":
            self.forecast = ahead
            self.rounds += 1
        elif self.using == "sync":
            self._give(None, Zone(self.orders + 1, self.edge + 1, low, high))
        else:
            self._give(ask, None)

    def _by_shares(self, ahead: Forecast, rank: int) -> None:
        """Predictions as in the paper: every node contributes as many events as the last time."""
        cuts = {node: view.cuts[self.edge] for node, view in self.views.items()}
        if not self.shares.known:
            return
        sizes = self.shares.of(cuts)
        ahead = replace(ahead, sizes=sizes)
        if self.using != "sync":
            self.forecast = ahead
            self.rounds += 1
            return
        spans = {n: (cut + s - d, cut + s + d) for n, (cut, s, d) in sizes.items()}
        wide = max((2 * d / max(s, 1) for _, s, d in sizes.values()), default=0.0)
        wait = (rank - ahead.rank) * ahead.pace * (1 + wide)
        low = self.found[self.edge].place
        high = at(math.ceil(ahead.time + wait))
        self._give(None, Zone(self.orders + 1, self.edge + 1, low, high, spans))

    def _locate(self, rank: int, place: Place, cuts: dict[int, int]) -> None:
        """An edge was found."""
        live = sum(not view.gone for view in self.views.values())
        self.auto.learn(self.spent, live, self.doubtful, self.corrected)
        self.spent = 0.0
        before = {node: view.cuts[self.edge] for node, view in self.views.items()}
        self.edge += 1
        self.found[self.edge] = FoundEdge(rank, place)
        for node, view in self.views.items():
            view.cuts[self.edge] = cuts[node]
        if place.time < LATEST:
            self.pace.learn(rank, float(place.time))
        self.shares.learn(cuts, before)
        self.changed = True

    def _approximate(self, rank: int) -> None:
        """The scheme `approx`: takes the edge to be where the nodes' last shares would put it."""
        assert self.forecast is not None
        cuts, before = expected_cuts(self.forecast, rank), self.edge
        self.edge += 1
        self.ordered = self.edge + 1
        self.found[self.edge] = FoundEdge(rank, self.found[self.edge - 1].place)
        for node, view in self.views.items():
            view.cuts[self.edge] = cuts.get(node, view.cuts[before])

    # -- slices ----------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Puts slices together whose pieces are all here."""
        before = self.complete
        while self.complete < self.edge:
            parts, missing = [], []
            for node, view in self.views.items():
                low, high = view.cuts[self.complete], view.cuts[self.complete + 1]
                tiles = view.tiling(low, high)
                if tiles is None and not view.gone:
                    break
                if view.gone and not view.left:
                    missing.append(node)
                parts += view.most(low, high) if tiles is None else tiles
            else:
                self._slice(parts, tuple(missing))
                continue
            break
        if self.complete > before:
            place = self.found[self.edge].place
            for view in self.views.values():
                view.drop(self.edge, place, self.complete)
            self.found = {n: what for n, what in self.found.items() if n >= self.complete}

    def _slice(self, parts: list[tuple[SlicePiece, int, int]], missing: tuple[int, ...]) -> None:
        low, high = self.found[self.complete].rank, self.found[self.complete + 1].rank
        exact = self.scheme != "approx" or self.complete < 2
        merged = self.slice_list.merged(parts)
        self.full += self.slice_list.add(Slice(low, high, merged, exact, missing))
        self.complete += 1

    def take(self) -> list[FullWindow]:
        """The windows that have become full since the last call."""
        full, self.full = self.full, []
        return full

    # -- what is written down --------------------------------------------------------------------

    def state(self) -> RootCounterState:
        """All that it must not lose, as of now: it must be written down before anything else."""
        return RootCounterState(
            *(getattr(self, name) for name in RootCounterState.__struct_fields__)
        )

    @classmethod
    def restored(
        cls, state: RootCounterState, windows: Sequence[Counted], fold: Fold, repeat: bool = True
    ) -> RootCounter:
        """A root that goes on from a state that was written down; with `repeat` it says all again,
        since what it said last may have gone under."""
        root = cls([], windows, fold)
        for name in RootCounterState.__struct_fields__:
            setattr(root, name, getattr(state, name))
        if repeat:
            root.say_again()
        return root
