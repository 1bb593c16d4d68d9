"""An edge and its link, over arrays of arrivals: traffic and staleness of a flush policy.

Time goes in ticks. In a tick arrivals enter the cache; at its end the policy says how much may
stay, and the rest goes to the link. The decisions are those of `catchment.flush`, as in a node.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np

from catchment.flush.bandwidth import Estimate, probe
from catchment.flush.evictions import EVICTIONS, Floats, Held, Ints, Memory, first_out
from catchment.flush.line import Line
from catchment.flush.policy import Policy
from catchment.flush.settings import Flush
from catchment.flush.sizes import Past, size
from catchment.flush.tuner import Cost, Spent, Tuner, cost_of
from catchment.flush.watch import Watch
from catchment.simulate.arrivals import Arrivals
from catchment.simulate.outcome import Outcome, outcome
from catchment.simulate.wire import Wire

TICKS = 400
"""Of a window; the last of them are cut finer, since staleness is decided there."""
_FINE = 16
_FINER = 12
_NOBODY = np.empty(0, np.int64)


def ticks(length: float, count: int = TICKS) -> Floats:
    """The ends of a window's ticks, in seconds since its beginning."""
    plain = np.linspace(0.0, length, count + 1)
    fine = np.linspace(plain[-1 - _FINE], length, _FINE * _FINER + 1)
    return np.concatenate([plain[1 : -1 - _FINE], fine])


class Edge:
    """One policy over one edge's arrivals."""

    def __init__(
        self,
        arrivals: Arrivals,
        wire: Wire,
        policy: Policy,
        eviction: str = "likely",
        *,
        paced: bool = True,
        count: int = TICKS,
        tuner: Tuner | None = None,
        cost: Cost | None = None,
        share: float = 1.0,
    ) -> None:
        self.arrivals, self.wire, self.policy = arrivals, wire, policy
        self.order = EVICTIONS[eviction]
        self.paced = paced
        """Whether the edge keeps what the link cannot take yet; the paper's edges do not."""
        self.share = share
        """Of the wire, if others use it too."""
        self.tuner, self.cost = tuner, cost or cost_of(Flush())
        if tuner is None and policy.kind == "auto":
            self.tuner = Tuner()
        self.alphas: list[float] = []
        """What each window was run with."""
        self.ticks = ticks(arrivals.length, count)
        self.cache = np.zeros((arrivals.windows, len(self.ticks)))
        """How much was held at the end of each tick of each window."""
        self._past: Past | None = None
        self._memory = Memory()
        self._departed: list[tuple[float, Ints, int]] = []
        self._sent = 0.0

    def run(self) -> Outcome:
        for _ in self.steps():
            pass
        return self.outcome()

    def steps(self) -> Iterator[float]:
        """Runs tick by tick; gives the time before each, so that several can take turns."""
        arrivals = self.arrivals
        low = 0
        for window in range(arrivals.windows):
            ends = window * arrivals.length + self.ticks
            bounds = np.searchsorted(arrivals.times, ends, "right")
            last = window == arrivals.windows - 1
            high = len(arrivals.times) if last else int(bounds[-1])
            yield from self._window(window, low, high, ends, bounds - low)
            low = high

    def _window(
        self, window: int, low: int, high: int, ends: Floats, bounds: Ints
    ) -> Iterator[float]:
        arrivals = self.arrivals
        begin, end = window * arrivals.length, (window + 1) * arrivals.length
        keys, code = np.unique(arrivals.keys[low:high], return_inverse=True)
        own, times = arrivals.of[low:high] == window, arrivals.times[low:high]
        tidy = bool(own.all())
        cell = Cell(arrivals.size_of(keys), keys, self._memory.recall(keys))
        watch = Watch(begin, end, self._past)
        policy = self.policy if self.tuner is None else self.policy.at(self.tuner.alpha)
        self.alphas.append(policy.alpha)
        self._sent, at = 0.0, 0
        for tick, (now, upto) in enumerate(zip(ends.tolist(), bounds.tolist(), strict=True)):
            yield now
            self.wire.go_on(now)
            some, when = code[at:upto], times[at:upto]
            if not tidy:
                mine = own[at:upto]
                self._late(now, arrivals.of[low + at : low + upto][~mine], keys[some[~mine]])
                some, when = some[mine], when[mine]
            if len(some):
                watch.arrived(len(some), cell.enter(some, when))
            at = upto
            over = tick == len(ends) - 1
            gap = 0.0 if over else float(ends[tick + 1]) - now
            gone = (
                np.flatnonzero(cell.held) if over else self._surplus(cell, watch, policy, now, gap)
            )
            if len(gone):
                self._send(now, keys[gone], cell.leave(gone), window)
            self.cache[window, tick] = cell.total
        if at < len(code):  # what children sent after the last window's end
            self._late(end, arrivals.of[low + at : high], keys[code[at:]], times[at:])
        self._close(cell, begin, end)

    def _surplus(self, cell: Cell, watch: Watch, policy: Policy, now: float, gap: float) -> Ints:
        """What has no place in the cache any more."""
        if not cell.many:
            return _NOBODY
        wire = self.wire
        bandwidth = wire.bandwidth(now, watch.end) * self.share
        surplus = cell.total - size(policy, watch.moment(now, bandwidth, cell.each))
        if self.paced:
            surplus = min(surplus, bandwidth * gap - wire.backlog)
        if self.policy.kind == "auto" and wire.idle:
            length = watch.end - watch.begin
            surplus = max(surplus, probe(cell.total, bandwidth, now - wire.heard, length))
        if surplus <= 0:
            return _NOBODY
        there = cell.there
        held = Held(
            cell.last[there] - watch.begin,
            cell.count[there],
            cell.before[there],
            now - watch.begin,
            self.arrivals.length,
        )
        return there[first_out(self.order(held), cell.sizes[there], surplus)]

    def _late(self, now: float, of: Ints, keys: Ints, times: Floats | None = None) -> None:
        """What comes for a window that has ended goes on at once, merged within the tick."""
        if times is not None:
            for at, window, key in zip(times.tolist(), of.tolist(), keys, strict=True):
                self.wire.go_on(at)
                self._send(
                    at, np.array([key]), float(self.arrivals.size_of(np.array([key]))[0]), window
                )
            return
        for window in np.unique(of).tolist():
            some = np.unique(keys[of == window])
            self._send(now, some, float(self.arrivals.size_of(some).sum()), window)

    def _send(self, now: float, keys: Ints, total: float, window: int) -> None:
        self._departed.append((now, keys, window))
        self._sent += total
        self.wire.send(total, now)

    def _close(self, cell: Cell, begin: float, end: float) -> None:
        seen = cell.count > 0
        length = self.arrivals.length
        self._memory.learn(cell.keys[seen], cell.count[seen])
        self._past = Past.of(
            cell.first[seen] - begin,
            cell.last[seen] - begin,
            cell.count[seen],
            cell.sizes[seen],
            length,
            self.wire.bandwidth(begin, end) * self.share,
        )
        if self.tuner is not None:
            least = max(float(cell.sizes[seen].sum()), 1e-12)
            stale = max(self.wire.clear_at() - end, 0.0)
            self.tuner.spent(
                self.cost(Spent(self._sent / least, stale, length, self._sent / length))
            )

    def outcome(self) -> Outcome:
        """What it has cost, if nobody else uses the wire."""
        parts = self._departed
        many = [len(keys) for _, keys, _ in parts]
        keys = np.concatenate([keys for _, keys, _ in parts] or [_NOBODY])
        depart = np.repeat(np.array([at for at, _, _ in parts], float), many)
        of = np.repeat(np.array([window for _, _, window in parts], np.int64), many)
        return outcome(self.arrivals, depart, keys, of, self.wire.line)


class Cell:
    """The cache of one window: what is held of each of its keys."""

    def __init__(self, sizes: Floats, keys: Ints, before: Floats) -> None:
        n = len(sizes)
        self.sizes, self.keys, self.before = sizes, keys, before
        self.held = np.zeros(n, np.bool_)
        self.first, self.last = np.full(n, np.inf), np.zeros(n)
        self.count = np.zeros(n)
        self.total = 0.0
        self.many = 0

    def enter(self, keys: Ints, times: Floats) -> int:
        """Some arrivals in order; how many keys were not there."""
        new = keys[~self.held[keys]]
        if len(new):
            new = np.unique(new)
            self.held[new] = True
            self.total += float(self.sizes[new].sum())
            self.many += len(new)
            self.first[new] = np.minimum(self.first[new], times[0])
        self.last[keys] = times  # of equal keys the last one stays
        np.add.at(self.count, keys, 1.0)
        return len(new)

    def leave(self, keys: Ints) -> float:
        """Lets some go; how much that is."""
        self.held[keys] = False
        self.many -= len(keys)
        gone = float(self.sizes[keys].sum())
        self.total = self.total - gone if self.many else 0.0
        return gone

    @property
    def there(self) -> Ints:
        return np.flatnonzero(self.held)

    @property
    def each(self) -> float:
        """The average size of what is held."""
        return self.total / self.many if self.many else 1.0


def together(edges: Sequence[Edge]) -> list[Outcome]:
    """Several edges that share a wire, each for a group of queries; one outcome for each."""
    queue = [(0.0, n, edge.steps()) for n, edge in enumerate(edges)]
    while queue:
        _, n, steps = heapq.heappop(queue)
        at = next(steps, None)
        if at is not None:
            heapq.heappush(queue, (at, n, steps))
    return shared_outcomes(edges)


def shared_outcomes(edges: Sequence[Edge]) -> list[Outcome]:
    """When what each sent over the one wire arrived there."""
    parts = sorted(
        ((at, n, keys, of) for n, edge in enumerate(edges) for at, keys, of in edge._departed),
        key=lambda part: part[0],
    )
    sizes = [edges[n].arrivals.size_of(keys) for _, n, keys, _ in parts]
    depart = np.repeat(np.array([part[0] for part in parts]), [len(part[2]) for part in parts])
    arrive = edges[0].wire.line.finish(depart, np.concatenate(sizes))
    who = np.repeat(np.array([part[1] for part in parts]), [len(part[2]) for part in parts])
    keys = np.concatenate([part[2] for part in parts])
    of = np.concatenate([np.full(len(part[2]), part[3]) for part in parts])
    return [
        outcome(
            edge.arrivals, depart[who == n], keys[who == n], of[who == n], None, arrive[who == n]
        )
        for n, edge in enumerate(edges)
    ]


def run(
    arrivals: Arrivals,
    line: Line,
    policy: Policy,
    eviction: str = "likely",
    *,
    believed: float | Estimate = 1.0,
    paced: bool = True,
    count: int = TICKS,
) -> Outcome:
    """One edge with a link of its own."""
    return Edge(arrivals, Wire(line, believed), policy, eviction, paced=paced, count=count).run()
