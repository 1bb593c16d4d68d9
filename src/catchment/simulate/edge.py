"""An edge and its link, over arrays of arrivals: traffic and staleness of a flush policy.

Time goes in ticks. In a tick arrivals enter the cache; at its end the policy says how much may
stay, and the rest goes to the link. The decisions are those of `catchment.flush`, as in a node.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from catchment.flush.bandwidth import Estimate, probe
from catchment.flush.evictions import EVICTIONS, Floats, Held, Ints, Memory, first_out
from catchment.flush.line import Line
from catchment.flush.optimal import eager_optimal
from catchment.flush.policy import Policy
from catchment.flush.settings import Flush
from catchment.flush.sizes import Past, size
from catchment.flush.tuner import Cost, Spent, Tuner, cost_of
from catchment.flush.watch import Watch
from catchment.simulate.arrivals import Arrivals

TICKS = 400
"""Of a window; the last of them are cut finer, since staleness is decided there."""
_FINE = 16
_FINER = 12


@dataclass(frozen=True)
class Outcome:
    """What a policy cost, window by window."""

    traffic: Floats
    """Bytes (updates, where each has size 1)."""
    least: Floats
    staleness: Floats
    """In lengths of the window."""
    updates: Arrivals
    """When they arrived at the parent."""
    cache: Floats
    """How much was held at the end of each tick of each window."""

    @property
    def ratio(self) -> float:
        """Traffic over the least possible."""
        return float(self.traffic.sum() / max(self.least.sum(), 1e-12))

    def cost(self, weight: float, skip: int = 0) -> float:
        """Traffic over the least possible, plus so much for staleness of a whole window."""
        ratio = self.traffic[skip:].sum() / max(self.least[skip:].sum(), 1e-12)
        return float(ratio + weight * self.staleness[skip:].mean())


def ticks(length: float, count: int = TICKS) -> Floats:
    """The ends of a window's ticks, in seconds since its beginning."""
    plain = np.linspace(0.0, length, count + 1)
    fine = np.linspace(plain[-1 - _FINE], length, _FINE * _FINER + 1)
    return np.concatenate([plain[1 : -1 - _FINE], fine])


class Edge:
    """Runs one policy over one edge's arrivals."""

    def __init__(
        self, arrivals: Arrivals, line: Line, policy: Policy, eviction: str = "likely", *,
        believed: float | Estimate = 1.0, paced: bool = False, count: int = TICKS,
        tuner: Tuner | None = None, cost: Cost | None = None,
    ) -> None:  # fmt: skip
        self.arrivals, self.line, self.policy = arrivals, line, policy
        self.order = EVICTIONS[eviction]
        self.believed = believed
        """Of the bandwidth: how much it is over-estimated; or what is learnt on the way."""
        self.paced = paced
        """Whether the edge keeps what the link cannot take yet; the paper's edges do not."""
        self.tuner, self.cost = tuner, cost or cost_of(Flush())
        self.alphas: list[float] = []
        """What each window was run with."""
        self.ticks = ticks(arrivals.length, count)
        self._past: Past | None = None
        self._memory = Memory()
        self._departed: list[tuple[float, Ints, int]] = []
        self._queued = 0.0
        """When the link will have sent what it has, in the measure of its work."""
        self._work = self._sent = self._before = self._heard = 0.0
        self._pending: deque[tuple[float, float, float]] = deque()
        """What is on its way: when it began, when it will have arrived, and how much it is."""
        self._cache = np.zeros((arrivals.windows, len(self.ticks)))

    def run(self) -> Outcome:
        arrivals = self.arrivals
        edges = np.concatenate(
            [w * arrivals.length + self.ticks for w in range(arrivals.windows)]
        )
        bounds = np.searchsorted(arrivals.times, edges, "right")
        least = np.zeros(arrivals.windows)
        low = 0
        for window in range(arrivals.windows):
            here = slice(window * len(self.ticks), (window + 1) * len(self.ticks))
            high = len(arrivals.times) if window == arrivals.windows - 1 else int(bounds[here][-1])
            least[window] = self._window(window, low, high, bounds[here] - low)
            low = high
        return self._outcome(least)

    def _bandwidth(self, now: float, end: float) -> float:
        if isinstance(self.believed, Estimate):
            return self.believed.rate
        return self.believed * self.line.average(now, max(end, now + 1e-3 * self.arrivals.length))

    def _window(self, window: int, low: int, high: int, bounds: Ints) -> float:
        """One window's ticks; the least traffic it could have had."""
        arrivals, length = self.arrivals, self.arrivals.length
        begin, end = window * length, (window + 1) * length
        own = arrivals.of[low:high] == window
        keys, code = np.unique(arrivals.keys[low:high], return_inverse=True)
        times = arrivals.times[low:high]
        cell = _Cell(arrivals.size_of(keys), keys, self._memory.recall(keys))
        watch = Watch(begin, end, self._past)
        policy = self.policy if self.tuner is None else self.policy.at(self.tuner.alpha)
        self.alphas.append(policy.alpha)
        at = 0
        for tick, (offset, upto) in enumerate(zip(self.ticks, bounds.tolist(), strict=True)):
            now, some = begin + float(offset), code[at:upto]
            self._pass(now)
            if not own[at:upto].all():
                self._late(now, arrivals, keys, code, own, low, at, upto)
                some = some[own[at:upto]]
            if len(some):
                watch.arrived(len(some), cell.enter(some, times[at:upto][own[at:upto]]))
            at = upto
            last = tick == len(self.ticks) - 1
            gap = 0.0 if last else float(self.ticks[tick + 1] - offset)
            gone = self._evict(cell, watch, policy, now, end, gap, last)
            if len(gone):
                self._send(now, keys[gone], float(cell.sizes[gone].sum()), window)
            self._cache[window, tick] = cell.total
        if at < len(code):  # after the last window's end
            self._late(end, arrivals, keys, code, own, low, at, len(code))
        return self._close(window, cell, begin, end)

    def _pass(self, now: float) -> None:
        """Time goes by, and with it what the link has sent."""
        work = float(self.line.work(np.array([now]))[0])
        while self._pending and self._pending[0][1] <= now:
            began, ended, total = self._pending.popleft()
            if isinstance(self.believed, Estimate):
                self.believed.measured(total, ended - began)
            self._heard = ended
        self._work = work

    def _evict(
        self, cell: _Cell, watch: Watch, policy: Policy, now: float, end: float, gap: float,
        last: bool,
    ) -> Ints:  # fmt: skip
        if last:
            return cell.leave(np.flatnonzero(cell.held))
        bandwidth = self._bandwidth(now, end)
        surplus = cell.total - size(policy, watch.moment(now, bandwidth, cell.each))
        if self.paced:
            surplus = min(surplus, bandwidth * gap - max(self._queued - self._work, 0.0))
        if self.policy.kind == "auto" and not self._pending:
            surplus = max(surplus, probe(cell.total, bandwidth, now - self._heard, end - watch.begin))
        if surplus <= 0 or not cell.total:
            return np.empty(0, np.int64)
        there = np.flatnonzero(cell.held)
        held = Held(
            cell.last[there] - watch.begin, cell.count[there], cell.before[there],
            now - watch.begin, self.arrivals.length,
        )  # fmt: skip
        order = self.order(held)
        return cell.leave(there[first_out(order, cell.sizes[there], surplus)])

    def _late(
        self, now: float, arrivals: Arrivals, keys: Ints, code: Ints, own: Floats, low: int,
        at: int, upto: int,
    ) -> None:  # fmt: skip
        """What comes for a window that has ended goes on at once, merged within the tick."""
        late = at + np.flatnonzero(~own[at:upto].astype(bool))
        span = len(keys)
        cells = np.unique(arrivals.of[low + late] * span + code[late])
        for window in np.unique(cells // span).tolist():
            some = keys[cells[cells // span == window] % span]
            self._send(now, some, float(arrivals.size_of(some).sum()), window)

    def _send(self, now: float, keys: Ints, total: float, window: int) -> None:
        self._departed.append((now, keys, window))
        self._sent += total
        free = max(self._queued, self._work)
        self._queued = free + total
        began, ended = self.line.when(np.array([free, self._queued])).tolist()
        self._pending.append((max(began, now), ended, total))

    def _close(self, window: int, cell: _Cell, begin: float, end: float) -> float:
        seen = cell.count > 0
        self._memory.learn(cell.keys[seen], cell.count[seen])
        length = self.arrivals.length
        self._past = Past.of(
            cell.first[seen] - begin, cell.last[seen] - begin, cell.count[seen], cell.sizes[seen],
            length, self._bandwidth(begin, end),
        )  # fmt: skip
        least = float(cell.sizes[seen].sum())
        if self.tuner is not None:
            sent = self._sent - self._before
            stale = max(float(self.line.when(np.array([self._queued]))[0]) - end, 0.0)
            spent = Spent(sent / max(least, 1e-12), stale, length, sent / length)
            self.tuner.spent(self.cost(spent))
        self._before = self._sent
        return least

    def _outcome(self, least: Floats) -> Outcome:
        arrivals = self.arrivals
        departed = sorted(self._departed, key=lambda part: part[0])
        keys = np.concatenate([k for _, k, _ in departed] or [np.empty(0, np.int64)])
        depart = np.repeat([at for at, _, _ in departed], [len(k) for _, k, _ in departed])
        of = np.repeat([w for _, _, w in departed], [len(k) for _, k, _ in departed])
        of = of.astype(np.int64)
        sizes = arrivals.size_of(keys)
        arrive = self.line.finish(depart.astype(float), sizes)
        traffic = np.bincount(of, sizes, arrivals.windows)
        latest = np.zeros(arrivals.windows)
        np.maximum.at(latest, of, arrive)
        ends = (1 + np.arange(arrivals.windows)) * arrivals.length
        updates = Arrivals(arrive, keys, arrivals.length, arrivals.windows, of, arrivals.each)
        stale = np.maximum(latest - ends, 0.0) / arrivals.length
        return Outcome(traffic, least, stale, updates, self._cache)


class _Cell:
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
        new = np.unique(keys[~self.held[keys]])
        self.held[new] = True
        self.total += float(self.sizes[new].sum())
        self.many += len(new)
        self.last[keys] = times  # of equal keys the last one stays
        np.minimum.at(self.first, keys, times)
        np.add.at(self.count, keys, 1.0)
        return len(new)

    def leave(self, keys: Ints) -> Ints:
        self.held[keys] = False
        self.many -= len(keys)
        self.total = self.total - float(self.sizes[keys].sum()) if self.many else 0.0
        return keys

    @property
    def each(self) -> float:
        """The average size of what is held."""
        return self.total / self.many if self.many else 1.0


def streaming(arrivals: Arrivals, line: Line) -> Outcome:
    """Every arrival is sent as it comes: exactly, without ticks."""
    sizes = arrivals.size_of(arrivals.keys)
    return _outcome_of(arrivals, arrivals.times, arrivals.keys, arrivals.of, sizes, line)


def optimal(arrivals: Arrivals, line: Line) -> Outcome:
    """The eager offline optimum of each window, one after the other over the link."""
    span = int(arrivals.keys.max(initial=0)) + 1
    cells = arrivals.of * span + arrivals.keys
    _, index = np.unique(cells[::-1], return_index=True)
    last = len(cells) - 1 - index
    sizes = arrivals.size_of(arrivals.keys[last])
    plan = eager_optimal(arrivals.times[last], sizes, line)
    order = last[plan.keys]
    return _outcome_of(
        arrivals, plan.depart, arrivals.keys[order], arrivals.of[order], sizes[plan.keys], line
    )


def _outcome_of(
    arrivals: Arrivals, depart: Floats, keys: Ints, of: Ints, sizes: Floats, line: Line
) -> Outcome:
    arrive = line.finish(depart, sizes)
    ends = (1 + np.arange(arrivals.windows)) * arrivals.length
    latest = np.zeros(arrivals.windows)
    np.maximum.at(latest, of, arrive)
    span = int(arrivals.keys.max(initial=0)) + 1
    cells = np.unique(arrivals.of * span + arrivals.keys)
    least = np.bincount(cells // span, arrivals.size_of(cells % span), arrivals.windows)
    updates = Arrivals(arrive, keys, arrivals.length, arrivals.windows, of, arrivals.each)
    return Outcome(
        np.bincount(of, sizes, arrivals.windows), least,
        np.maximum(latest - ends, 0.0) / arrivals.length, updates, np.zeros((arrivals.windows, 0)),
    )  # fmt: skip
