"""A simulated node and its link, over arrays of arrivals: traffic and staleness of a flush policy.

The paper calls such a node an edge. Time goes in ticks. In a tick arrivals enter the cache; at its
end an `EarlySender`, the same that nodes run, chooses what leaves. At the end of a window all that
is still held is released, and what comes for a window that has ended goes on at once, as from a
node's merger. Nothing is decided here.

The node may have several groups of queries: each has arrivals, windows and ticks of its own, all
share the sender and the wire.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from catchment.flush.bandwidth import Estimate
from catchment.flush.early import EarlySender, FlushStep, HeldRows
from catchment.flush.line import SendQueue
from catchment.flush.policy import Policy
from catchment.flush.settings import Flush
from catchment.operators.ragged import Floats, Ints
from catchment.simulate.arrivals import Arrivals
from catchment.simulate.outcome import Outcome, outcome
from catchment.simulate.wire import Wire

TICKS = 400
"""Steps in a window; the last ones are shorter, since staleness is decided there."""
_FINE = 16
_FINER = 12
_NOBODY = np.empty(0, np.int64)


def ticks(length: float, count: int = TICKS) -> Floats:
    """The ends of a window's ticks, in seconds since its beginning."""
    plain = np.linspace(0.0, length, count + 1)
    fine = np.linspace(plain[-1 - _FINE], length, _FINE * _FINER + 1)
    return np.concatenate([plain[1 : -1 - _FINE], fine])


class GroupArrivals:
    """The arrivals of one group, tick by tick, and what was sent of them."""

    def __init__(self, group: int, arrivals: Arrivals, weight: float, count: int) -> None:
        self.group, self.arrivals, self.weight = group, arrivals, weight
        self.ticks = ticks(arrivals.length, count)
        self.cache = np.zeros((arrivals.windows, len(self.ticks)))
        """How much was held at the end of each tick of each window."""
        self.departed: list[tuple[float, Ints, int]] = []
        """When keys were sent, and of which window."""
        self.window, self.tick = -1, -1
        self.begin, self.end = self._span(0)
        self._ends: Floats = np.empty(0)
        self._bounds: Ints = _NOBODY
        self._low = 0

    def _span(self, window: int) -> tuple[float, float]:
        begin = window * self.arrivals.length
        return begin, begin + float(self.ticks[-1])

    def advance(self, sender: EarlySender) -> None:
        """Goes on to the next tick, and to the next window after the last tick of one."""
        self.tick += 1
        if self.tick < len(self._ends):
            return
        given = self.arrivals
        self.window, self.tick = self.window + 1, 0
        if self.done:
            return
        self.begin, self.end = self._span(self.window)
        self._ends = self.begin + self.ticks
        self._bounds = np.searchsorted(given.times, self._ends, "right")
        some = slice(self._low, int(self._bounds[-1]))
        expected = np.unique(given.keys[some][given.of[some] == self.window])
        sender.expect(self.group, self.begin, self.end, expected)

    @property
    def done(self) -> bool:
        return self.window == self.arrivals.windows

    @property
    def now(self) -> float:
        """The end of the tick."""
        return float(self._ends[self.tick])

    @property
    def following(self) -> float:
        """The end of the next tick."""
        return math.inf if self.over else float(self._ends[self.tick + 1])

    @property
    def over(self) -> bool:
        """Whether the window ends with this tick."""
        return self.tick == len(self._ends) - 1

    def take(self, sender: EarlySender, wire: Wire) -> None:
        """What came in the tick enters the cache; what is not for the open window goes on."""
        given, upto = self.arrivals, int(self._bounds[self.tick])
        some, self._low = slice(self._low, upto), upto
        keys, times, of = given.keys[some], given.times[some], given.of[some]
        mine = of == self.window
        if not mine.all():
            for window in np.unique(of[~mine]).tolist():
                self._pass_on(sender, wire, np.unique(keys[of == window]), window)
            keys, times = keys[mine], times[mine]
        if len(keys):
            sender.arrived(self.group, self.begin, self.end, keys, times)

    def _pass_on(self, sender: EarlySender, wire: Wire, keys: Ints, window: int) -> None:
        if window < self.window:
            sender.arrived(self.group, *self._span(window), keys, self.now)
        self.send(wire, self.now, keys, window)

    def held_rows(self, sender: EarlySender) -> HeldRows:
        """What is held of the open window."""
        keys = sender.held_keys(self.group, self.begin)
        sizes = self.arrivals.size_of(keys)
        return HeldRows(self.group, self.begin, self.end, keys, sizes, self.weight)

    def send(self, wire: Wire, now: float, keys: Ints, window: int) -> float:
        """Hands keys of a window to the wire; how many bytes that is."""
        if not len(keys):
            return 0.0
        self.departed.append((now, keys, window))
        total = float(self.arrivals.size_of(keys).sum())
        wire.send(total, now)
        return total

    def rest(self, wire: Wire) -> None:
        """What children sent after the end of the last window goes on as it comes."""
        given, since = self.arrivals, slice(self._low, None)
        for at, key, window in zip(
            given.times[since].tolist(), given.keys[since], given.of[since].tolist(), strict=True
        ):
            wire.go_on(at)
            self.send(wire, at, np.array([key]), window)


class Edge:
    """Runs one flush policy over the arrivals of one node."""

    def __init__(
        self,
        groups: Sequence[Arrivals],
        wire: Wire,
        flush: Flush,
        *,
        weights: Sequence[float] | None = None,
        paced: bool = True,
        count: int = TICKS,
    ) -> None:
        """`weights` are the priorities of groups; `paced` says whether the edge keeps what the
        link cannot take yet, which the paper's edges do not; `count` how many ticks a window has.
        """
        given = [1.0] * len(groups) if weights is None else weights
        self.wire = wire
        self.streams = [
            GroupArrivals(n, arrivals, weight, count)
            for n, (arrivals, weight) in enumerate(zip(groups, given, strict=True))
        ]
        each = float(np.mean([np.mean(arrivals.each) for arrivals in groups]))
        self.sender = EarlySender(flush, wire, each=each, paced=paced)
        self._seq = 0

    def run(self) -> list[Outcome]:
        """Runs to the end; what it has cost, group by group."""
        for stream in self.streams:
            stream.advance(self.sender)
        while running := [stream for stream in self.streams if not stream.done]:
            now = min(stream.now for stream in running)
            self.wire.go_on(now, min(stream.end for stream in running))
            due = [stream for stream in running if stream.now == now]
            for stream in due:
                stream.take(self.sender, self.wire)
            self._flush(now, running, due)
            for stream in due:
                stream.advance(self.sender)
        for stream in self.streams:
            stream.rest(self.wire)
        return self.outcomes()

    def _flush(
        self, now: float, running: Sequence[GroupArrivals], due: Sequence[GroupArrivals]
    ) -> None:
        """Releases windows that end now, and asks what else should leave."""
        ended = [stream for stream in due if stream.over]
        for stream in ended:
            stream.send(self.wire, now, stream.held_rows(self.sender).keys, stream.window)
        clear = self.wire.clear_at()
        still = [stream for stream in running if stream not in ended]
        coming = [stream.following if stream in due else stream.now for stream in still]
        gap = min(coming, default=now) - now
        held = [stream.held_rows(self.sender) for stream in still]
        self._seq += 1
        chosen = self.sender.choose(held, FlushStep(now, now, now, seq=self._seq, gap=gap))
        for stream, rows, gone in zip(still, held, chosen, strict=True):
            sent = stream.send(self.wire, now, rows.keys[gone], stream.window)
            stream.cache[stream.window, stream.tick] = float(rows.sizes.sum()) - sent
        if ended:
            self.sender.acknowledged(self._seq, clear)

    def outcomes(self) -> list[Outcome]:
        """When all that was sent over the wire arrived, and what that cost, group by group."""
        parts = sorted(
            (
                (at, stream.group, keys, window)
                for stream in self.streams
                for at, keys, window in stream.departed
            ),
            key=lambda part: part[0],
        )
        many = [len(keys) for _, _, keys, _ in parts]
        depart = np.repeat(np.array([at for at, _, _, _ in parts], float), many)
        who = np.repeat(np.array([group for _, group, _, _ in parts], np.int64), many)
        of = np.repeat(np.array([window for _, _, _, window in parts], np.int64), many)
        keys = np.concatenate([keys for _, _, keys, _ in parts] or [_NOBODY])
        sizes = [self.streams[group].arrivals.size_of(keys) for _, group, keys, _ in parts]
        arrive = self.wire.line.finish(depart, np.concatenate(sizes or [np.empty(0)]))
        return [
            outcome(stream.arrivals, depart[mine], keys[mine], of[mine], None, arrive[mine])
            for stream in self.streams
            for mine in [who == stream.group]
        ]


def run(
    arrivals: Arrivals,
    line: SendQueue,
    policy: Policy,
    eviction: str = "likely",
    *,
    believed: float | Estimate = 1.0,
    paced: bool = True,
    count: int = TICKS,
) -> Outcome:
    """Runs a policy for one group, on a node with a link of its own."""
    flush = Flush(policy, eviction)
    return Edge([arrivals], Wire(line, believed), flush, paced=paced, count=count).run()[0]
