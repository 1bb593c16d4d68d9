"""The root's part in the count windows of one key.

What nodes say goes in; orders to all nodes and windows that are full come out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from catchment.counting import wire
from catchment.counting.edges import RankEdges
from catchment.counting.fold import Fold
from catchment.counting.forecast import Pace, Shares, doubtful, expected_cuts, span
from catchment.counting.message import (
    Ask,
    AskList,
    Down,
    Forecast,
    FoundEdge,
    NewLife,
    SlicePiece,
    Up,
    Zone,
)
from catchment.counting.node_view import EARLIEST, NodeView
from catchment.counting.place import Place, at
from catchment.counting.rank_bounds import RankBounds, RankPlace, narrowed
from catchment.counting.retransmit import Retransmit
from catchment.counting.scheme import OURS, SCHEMES, WAITING, Auto, CountOptions, check, samples
from catchment.counting.windows import FullWindow, Slice, SliceList
from catchment.errors import CatchmentError
from catchment.model.window import Counted

LATEST = 2**62
_FEW = 2
"""Events in doubt, per node, that are sent rather than asked for again."""
_SOON = 0.5
"""How far ahead of nodes edges are asked for, in strides: as long as asking takes, or longer."""
MANY = 64
"""Edges that are looked for at once."""


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
    asks_told: dict[int, Ask]
    zones_told: dict[int, Zone]
    forecast: Forecast | None
    together: int
    orders: int
    version: int
    corrections: int
    rounds: int
    full: list[FullWindow]
    ordered: int
    corrected: set[int]
    owed: dict[int, tuple[int, int]]
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
        self.asks_told: dict[int, Ask] = {}
        self.zones_told: dict[int, Zone] = {}
        """By edge: where it is looked for. An edge has an ask or a zone, or none."""
        one_by_one = options.wait or options.predictor == "last" or scheme == "approx"
        self.together = 1 if one_by_one else MANY
        """Edges that are looked for at once: where nodes wait for each, or its share follows from
        that of the one before, one."""
        self.forecast: Forecast | None = None
        self.orders = self.version = 0
        self.corrections = self.rounds = 0
        """Edges whose prediction was wrong; orders that were sent."""
        self.full: list[FullWindow] = []
        self.ordered = 0
        """The last edge that nodes were asked about by what was predicted of it."""
        self.corrected: set[int] = set()
        self.owed: dict[int, tuple[int, int]] = {}
        """By node: what it owes first, a slice or an answer, and since when."""
        self.spent = self.doubtful = 0.0
        self.news = self.changed = True
        self.told_more = False
        """Whether nodes are told of more since the last step."""
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
        if view.gone and self.returns and not view.refused:
            self.back(up.node)
        taken = view.take(up)
        if taken:
            self._answered(view, up)
            view.wrong = self._false_piece(up.pieces) or view.wrong
        if view.wrong and not view.gone:
            self.refuse(up.node, view.wrong)
            return
        if not taken:
            self.changed |= not view.gone  # it does not know yet that it begins anew
            return
        if self.pace.time is None and up.settled:
            self.pace.learn(0, float(up.frontier))
        self.news = True
        self.spent += nbytes
        raw = sum(piece.high - piece.low for piece in up.pieces if piece.raw)
        self.auto.saw(raw, nbytes)

    def _answered(self, view: NodeView, up: Up) -> None:
        """What an answer says of the places that were asked about."""
        found = {} if up.answers is None else up.answers.samples
        for ask in self.asks_told.values():
            if (samples := found.get(ask.number)) is not None:
                view.learn(ask.low, samples.low)
                view.learn(ask.high, samples.high)
        for zone in self.zones_told.values():
            if (span := up.spans.get(zone.number)) is not None:
                view.learn(zone.low, span[0])
                view.learn(zone.high, span[1])

    def _false_piece(self, pieces: list[SlicePiece]) -> str:
        """What is wrong with partials that hold more or fewer events than they are said to."""
        for piece in pieces:
            told = piece.high - piece.low
            try:
                if not piece.raw and self.fold.count(piece.data) not in (None, told):
                    return f"a partial of {told} events does not hold so many"
            except (CatchmentError, pa.ArrowException, LookupError, ValueError) as error:
                return f"a partial cannot be read: {error}"[:200]
        return ""

    def refuse(self, node: int, why: str) -> None:
        """Stops waiting for a node that was not right, and takes nothing of it until it is back."""
        view = self.views[node]
        view.wrong, view.refused = why, True
        self._give_up(view)
        self.changed = True

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

    def watch(self, now: int, reach: int, timeout: int) -> None:
        """Refuses nodes that owe the same for too long, though all have passed a time."""
        before, self.owed = self.owed, {}
        for node, what in self._owing(reach):
            known = before.get(node, (what, now))
            self.owed[node] = known if known[0] == what else (what, now)
        for node in self.overdue(now, timeout):
            self.refuse(node, "it does not answer")

    def overdue(self, now: int, timeout: int) -> list[int]:
        """Nodes that have owed the same for too long."""
        return [node for node, (_, since) in self.owed.items() if now - since > timeout]

    def _owing(self, reach: int) -> Iterator[tuple[int, int]]:
        """Nodes that owe an answer on events before a time, or a slice, and the number of that."""
        if self.scheme == "approx":
            return
        orders: list[Ask | Zone] = [*self.asks_told.values(), *self.zones_told.values()]
        due = sorted(order.number for order in orders if order.high <= at(reach))
        for node, view in self.views.items():
            if view.gone:
                continue
            lacking = next((number for number in due if number not in view.answered), None)
            if lacking is not None:
                yield node, lacking
            elif self.complete < self.edge:
                low, high = view.cuts[self.complete], view.cuts[self.complete + 1]
                if view.tiling(low, high) is None:
                    yield node, -1 - self.complete

    def _give_up(self, view: NodeView) -> None:
        view.give_up(self.edge)
        self.news = True

    def back(self, node: int) -> None:
        """A node that was given up: what it has from before the last edge is late."""
        view = self.views[node]
        if not view.gone or view.left:
            return
        refused = view.refused
        view.begin(max(self._horizon(), view.newest + 1))
        view.passed = self.edge
        view.lacks = self.edge + 1 if refused else view.lacks
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
        while self.news:
            self.news = False
            self._work()
        self.rounds += self.told_more
        self.told_more = False
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
            AskList.of([self.asks_told[edge] for edge in sorted(self.asks_told)]),
            [self.zones_told[edge] for edge in sorted(self.zones_told)],
            self.forecast,
            self._lives(),
            gone,
            [node for node, view in self.views.items() if view.refused],
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
        while self._approximates():
            self._approximate(self.edges.after(self.found[self.edge].rank))
        if self.scheme == "approx" and self.forecast is not None:
            self._collect()
            return
        edge, bounds = self.edge, self._search()
        if self.edge > edge or self.ordered == 0:
            self._go_on()
        for number, rank in self._following():
            self._pursue(number, rank, bounds)
        self._collect()

    def _approximates(self) -> bool:
        """Whether the next edge is taken to be where it was predicted."""
        return self.scheme == "approx" and self.forecast is not None and self._passed(self.edge + 1)

    def _search(self) -> RankBounds | None:
        """Finds as many edges as can be found; what is known of the places of the next."""
        if self._settled < self.edges.after(self.found[self.edge].rank):
            return None
        if not any(self._all_said(number) for number, _ in self._following()):
            return None
        bounds = self._bounds()
        while bounds is not None:
            rank = self.edges.after(self.found[self.edge].rank)
            found = bounds.find(rank)
            if found.place is None:
                break
            self._locate(rank, found.place, found.cuts)
        return bounds

    def _bounds(self) -> RankBounds:
        """What is known of places past the last edge; nodes that contradict themselves go."""
        place = self.found[self.edge].place
        points = {n: view.points(self.edge, place) for n, view in self.views.items()}
        wrong = [n for n, view in self.views.items() if view.wrong and not view.gone]
        if not wrong or self.scheme == "approx":
            return RankBounds(points)
        for node in wrong:
            self.refuse(node, self.views[node].wrong)
        return self._bounds()

    def _following(self) -> Iterator[tuple[int, int]]:
        """The edges to look for now, and their ranks: the next one, those that have come, and those
        that are expected before nodes can be asked again."""
        known, place = self.found[self.edge]
        ahead = self.pace.forecast(self.edge, known, float(place.time))
        settled, rank = self._settled, known
        soon = self._reached if ahead is None else self._reached + ahead.stride * ahead.pace * _SOON
        for number in range(self.edge + 1, self.edge + 1 + self.together):
            rank = self.edges.after(rank)
            expected = ahead is not None and span(ahead, rank)[0] <= soon
            if number > self.edge + 1 and rank > settled and not expected:
                return
            yield number, rank

    def _passed(self, edge: int) -> bool:
        """Whether all nodes that are waited for have sent what they send unasked of an edge."""
        live = (view for view in self.views.values() if not view.gone)
        return all(view.passed >= edge for view in live if self._takes_part(view))

    def _takes_part(self, view: NodeView) -> bool:
        """Whether a node has events to send unasked: without a share of the last window, and where
        nothing is verified, it has none."""
        ahead = self.forecast
        if self.scheme != "approx" or ahead is None or ahead.sizes is None:
            return True
        return view.node in ahead.sizes and ahead.sizes[view.node].share > 0

    def _ordered(self, edge: int) -> Ask | Zone | None:
        """What nodes were asked about an edge and may not have answered."""
        return self.asks_told.get(edge) or self.zones_told.get(edge)

    def _all_said(self, edge: int) -> bool:
        """Whether all nodes that are waited for have said what they were asked about an edge, or
        what they send unasked. Before, its place is hardly ever known."""
        order = self._ordered(edge)
        if order is None:
            return self.forecast is None or self._passed(edge)
        return all(order.number in view.answered for view in self.views.values() if not view.gone)

    def _pursue(self, edge: int, rank: int, bounds: RankBounds | None) -> None:
        """Asks for an edge by what is predicted of it; or closer, where that was wrong, or nothing
        was predicted."""
        if edge > self.ordered:
            self.ordered = edge
            self._predict(edge, rank)
            if self.scheme == "approx" and self.forecast is not None:
                self.news = True
                return
        if not self._all_said(edge):
            return
        order = self._ordered(edge)
        found = None if bounds is None or self._settled < rank else bounds.find(rank)
        if found is not None and found.place is not None:
            self._drop_orders(edge)  # it waits for an edge before it
            return
        if self._predicted(edge) and edge not in self.corrected:
            self.corrected.add(edge)
            self.corrections += 1
        if found is None or found.high is None:
            if order is not None or self.forecast is not None:
                self._further(edge, rank, found)
            return
        low = found.low or self.found[self.edge].place
        if self.zones and found.loose <= _FEW * len(self.views):
            zone = Zone(self.orders + 1, edge, low, found.high)
            last = self.zones_told.get(edge)
            # All events there were sent, so who is asked for them again has to send them again.
            self._lost |= last is not None and replace(last, number=zone.number) == zone
            self._tell(edge, zone)
        else:
            self._ask_closer(edge, order, found._replace(low=low), found.high)

    def _ask_closer(
        self, edge: int, order: Ask | Zone | None, found: RankPlace, high: Place
    ) -> None:
        """Asks where an edge is expected between two places; where it was not, between all."""
        low, loose = found.low or self.found[self.edge].place, found.loose
        inside = order is None or (order.low <= low and high <= order.high)
        if inside:
            low, high, loose = narrowed(low, high, loose, found.share)
        most = samples(loose / len(self.views))
        self._tell(edge, Ask(self.orders + 1, low, high, most))

    def _predicted(self, edge: int) -> bool:
        """Whether the last order on an edge rested on a prediction alone."""
        if self.using in ("sync", "async") and edge not in self.asks_told:
            return self.forecast is not None or edge in self.zones_told
        return False

    def _further(self, edge: int, rank: int, found: RankPlace | None) -> None:
        """The edge is still to come: asks again when it may have."""
        reached = self._reached
        known, place = self.found[self.edge]
        ahead = self.pace.forecast(self.edge, known, float(place.time))
        if reached >= LATEST or ahead is None:
            self._drop_orders(edge)
            return
        lacking = max(rank - self._settled, 0) * ahead.pace
        step = math.ceil(max(lacking * 1.05, 0.02 * ahead.stride * ahead.pace, 1.0))
        low = (found.low if found is not None else None) or place
        most = samples((rank - known) / max(len(self.views), 1))
        self._tell(edge, Ask(self.orders + 1, low, at(reached + step), most))

    def _drop_orders(self, edge: int) -> None:
        self.changed |= self._ordered(edge) is not None
        self.asks_told.pop(edge, None)
        self.zones_told.pop(edge, None)

    def _tell(self, edge: int, order: Ask | Zone) -> None:
        """Tells all nodes where to look for an edge, instead of what was told before."""
        self._drop_orders(edge)
        if isinstance(order, Ask):
            self.asks_told[edge] = order
        else:
            self.zones_told[edge] = order
        self.orders += 1
        self.told_more = self.changed = True

    def _go_on(self) -> None:
        """An edge was found: chooses how the next ones are looked for."""
        for edge in [*self.asks_told, *self.zones_told]:
            if edge <= self.edge:
                self._drop_orders(edge)
        self.corrected = {edge for edge in self.corrected if edge > self.edge}
        self.forecast = None
        self.changed = True
        known, place = self.found[self.edge]
        rank = self.edges.after(known)
        self.ordered = max(self.ordered, self.edge)
        if self._reached >= LATEST and self._settled < rank:
            return  # no more events will come
        ahead = self.pace.forecast(self.edge, known, float(place.time))
        live = sum(not view.gone for view in self.views.values())
        self.doubtful = 0.0 if ahead is None else doubtful(ahead, rank)
        if self.scheme == "auto" and ahead is not None:
            self.auto.choose(self.edge, self.auto.costs(live, rank - known, self.doubtful))
        if self.using == "async" and ahead is not None and self.pace.tried and not self._shared:
            self.forecast = ahead
            self.told_more = True

    @property
    def _shared(self) -> bool:
        """Whether nodes are expected to have as much of each window as of the last."""
        return self.using == "approx" or (self.predictor == "last" and self.using != "monitor")

    def _predict(self, edge: int, rank: int) -> None:
        """Asks for an edge by what is predicted of it."""
        known, place = self.found[self.edge]
        if self._reached >= LATEST and self._settled < rank:
            return  # no more events will come
        ahead = self.pace.forecast(self.edge, known, float(place.time))
        if self.using == "central" or ahead is None:
            return
        if self._shared:
            self._by_shares(ahead, edge, rank)
            return
        if self.forecast is not None:
            return  # nodes send unasked what is there
        low, high = (at(time) for time in span(ahead, rank))
        live = sum(not view.gone for view in self.views.values())
        if self.using == "sync" and self.pace.tried:
            self._tell(edge, Zone(self.orders + 1, edge, low, high))
        else:
            most = samples(doubtful(ahead, rank) / max(live, 1))
            self._tell(edge, Ask(self.orders + 1, low, high, most))

    def _by_shares(self, ahead: Forecast, edge: int, rank: int) -> None:
        """Predictions as in the paper: every node contributes as many events as the last time."""
        cuts = {node: view.cuts[self.edge] for node, view in self.views.items()}
        if not self.shares.known:
            return
        sizes = self.shares.of(cuts)
        ahead = replace(ahead, sizes=sizes)
        if self.using != "sync":
            self.forecast = ahead
            self.told_more = self.changed = True
            return
        spans = {n: (cut + s - d, cut + s + d) for n, (cut, s, d) in sizes.items()}
        wide = max((2 * d / max(s, 1) for _, s, d in sizes.values()), default=0.0)
        wait = (rank - ahead.rank) * ahead.pace * (1 + wide)
        low = self.found[self.edge].place
        high = at(math.ceil(ahead.time + wait))
        self._tell(edge, Zone(self.orders + 1, edge, low, high, spans))

    def _locate(self, rank: int, place: Place, cuts: dict[int, int]) -> None:
        """An edge was found."""
        live = sum(not view.gone for view in self.views.values())
        self.auto.learn(self.spent, live, self.doubtful, self.edge + 1 in self.corrected)
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
                if (view.gone and not view.left) or self.complete < view.lacks:
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
