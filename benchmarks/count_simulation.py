"""Count windows over nodes under a virtual clock: links that delay, lose and double, crashes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from catchment.counting import wire
from catchment.counting.fold import Fold
from catchment.counting.local import LocalCounter, LocalState
from catchment.counting.message import Down, Up
from catchment.counting.root import LATEST, RootCounter, RootCounterState
from catchment.counting.scheme import OURS, CountOptions
from catchment.counting.windows import FullWindow
from catchment.counting.wire import Columns
from catchment.model.window import Counted
from catchment.operators.ragged import Ints
from catchment.simulate.agenda import Agenda

MILLISECOND = 1_000


@dataclass(frozen=True)
class NodeArrivals:
    """A node's events in the order in which they come: event times, when they come, values."""

    times: Ints
    comes: Ints
    data: Columns

    @classmethod
    def of(cls, times: Ints, data: Columns, disorder: Ints | None = None) -> NodeArrivals:
        """Events that come at their time, or somewhat later."""
        comes = times if disorder is None else times + disorder
        order = np.argsort(comes, kind="stable")
        return cls(times[order], comes[order], {n: column[order] for n, column in data.items()})


@dataclass(frozen=True)
class CountingFaults:
    """What goes wrong, and how often: chances are per message, or per node and tick."""

    lost: float = 0.0
    twice: float = 0.0
    jitter: int = 0
    """Links take up to so much longer, so messages overtake each other."""
    crash: float = 0.0
    down: int = 50 * MILLISECOND
    """How long a crash lasts, on average."""


@dataclass
class Measured:
    """What was measured."""

    up: int = 0
    down: int = 0
    messages: int = 0
    blocked: int = 0
    """Time that nodes waited before they read on, added up."""
    most_buffered: int = 0
    """The most events that a node kept."""
    emitted: list[tuple[int, FullWindow]] = field(default_factory=list)
    """Windows, and when they became full."""


class Sums(Fold):
    """The sum of a column. (How many events there are, positions tell.)

    >>> import numpy as np
    >>> Sums.total(Sums("v").lift({"v": np.array([1.5, 2.0])}))
    3.5
    """

    def __init__(self, column: str) -> None:
        self.column = column

    def lift(self, events: Columns) -> bytes:
        return wire.dump(float(events[self.column].sum()))

    def merge(self, partials: Sequence[bytes]) -> bytes:
        return wire.dump(sum(map(self.total, partials)))

    @staticmethod
    def total(partial: bytes) -> float:
        return wire.load(float, partial)


class CountingSite:
    """A node and what happens to it."""

    def __init__(self, counter: LocalCounter, stream: NodeArrivals) -> None:
        self.counter, self.stream = counter, stream
        self.at = 0
        self.saved: tuple[bytes, int] = (wire.dump(counter.state()), 0)
        self.until = 0
        self.since: int | None = None
        """When it began to wait for the root."""
        self.dead = False


class Counting(Agenda):
    """Runs count windows over streams until nothing is left to do."""

    def __init__(
        self,
        windows: Sequence[Counted],
        streams: Mapping[int, NodeArrivals],
        fold: Fold,
        scheme: str = "auto",
        *,
        options: CountOptions = OURS,
        seed: int = 0,
        delay: int = MILLISECOND,
        tick: int = 10 * MILLISECOND,
        lateness: int = 0,
        troubles: CountingFaults | None = None,
        timeout: int | None = None,
        limit: int | None = None,
    ) -> None:
        self.windows, self.fold = windows, fold
        self.dice = random.Random(seed)
        self.delay, self.tick, self.lateness, self.limit = delay, tick, lateness, limit
        self.troubles = troubles
        retransmit_after = None if troubles is None else 20 * delay + 10 * tick
        self.root = RootCounter(
            streams,
            windows,
            fold,
            scheme,
            options,
            timeout=timeout,
            retransmit_after=retransmit_after,
        )
        self._saved, self._until = b"", 0
        self.sites = {
            node: CountingSite(LocalCounter(node, windows, fold), stream)
            for node, stream in streams.items()
        }
        self.measured = Measured()
        super().__init__(
            min((int(s.comes[0]) for s in streams.values() if len(s.comes)), default=0)
        )
        self.calm = max(
            (int(s.stream.comes[-1]) for s in self.sites.values() if len(s.stream.comes)), default=0
        )
        """When troubles end."""
        for node in self.sites:
            self.after(self.dice.randrange(tick), self._ticks(node))
        self.after(tick, self._watch)

    def run(self, longest: int | None = None) -> Measured:
        """Until all windows that can be full are."""
        end = self.calm + 20_000_000 if longest is None else self.now + longest
        self.pass_time(end, lambda: self.done)
        return self.measured

    @property
    def done(self) -> bool:
        return self.root.over and all(
            site.dead or site.counter.frontier >= LATEST for site in self.sites.values()
        )

    # -- nodes -----------------------------------------------------------------------------------

    def _ticks(self, node: int) -> Callable[[], None]:
        def action() -> None:
            site = self.sites[node]
            if site.dead:
                return
            self.after(self.tick, action)
            if self._down(site):
                return
            self._read(site)
            self._speak(site)

        return action

    def _down(self, site: CountingSite) -> bool:
        """Whether a node is down; one that comes up goes on from what it saved."""
        troubles = self.troubles
        if troubles is not None and self.now < self.calm and self.dice.random() < troubles.crash:
            site.until = self.now + int(self.dice.expovariate(1 / troubles.down))
            data, site.at = site.saved
            site.counter = LocalCounter.restored(
                wire.load(LocalState, data), self.windows, self.fold
            )
        return self.now < site.until

    def _read(self, site: CountingSite) -> None:
        counter, stream = site.counter, site.stream
        full = self.limit is not None and counter.events >= self.limit
        if counter.blocked or full:
            self.measured.blocked += self.tick if full else 0
            return
        end = int(np.searchsorted(stream.comes, self.now, "right"))
        if end > site.at:
            part = slice(site.at, end)
            data = {name: column[part] for name, column in stream.data.items()}
            counter.push(stream.times[part], np.arange(site.at, end), data)
            site.at = end
        over = end == len(stream.comes)
        counter.advance(LATEST if over else self.now - self.lateness)
        self.measured.most_buffered = max(self.measured.most_buffered, counter.events)

    def _speak(self, site: CountingSite) -> None:
        up = site.counter.step()
        if site.counter.blocked and site.since is None:
            site.since = self.now
        read = site.at > site.saved[1] and self.dice.random() < 0.3
        if self.troubles is not None and (up is not None or read):
            site.saved = (wire.dump(site.counter.state()), site.at)
        if up is None:
            return
        body = wire.dump(up)
        self.measured.up += len(body)
        self.measured.messages += 1
        self._send(lambda: self._arrive(body))

    def _hear(self, site: CountingSite, body: bytes) -> None:
        if site.dead or self.now < site.until:
            return
        site.counter.hear(wire.load(Down, body))
        if site.since is not None and not site.counter.blocked:
            # It was asked for more: it reads on at once, not with the next tick.
            self.measured.blocked += self.now - site.since
            site.since = None
            self._read(site)
        self._speak(site)

    # -- the root --------------------------------------------------------------------------------

    def _arrive(self, body: bytes) -> None:
        if self.now < self._until:
            return
        self.root.receive(wire.load(Up, body), self.now, len(body))
        self._rule(heard=True)

    def _watch(self) -> None:
        """The root looks around."""
        self.after(self.tick, self._watch)
        troubles = self.troubles
        if troubles is not None and self.now < self.calm and self.dice.random() < troubles.crash:
            self._until = self.now + int(self.dice.expovariate(1 / troubles.down))
            if self._saved:
                state = wire.load(RootCounterState, self._saved)
                self.root = RootCounter.restored(state, self.windows, self.fold)
        if self.now < self._until:
            return
        for node, site in self.sites.items():
            if not site.dead and self.now >= site.until and node in self.root.views:
                self.root.alive(node, self.now)
        self._rule()

    def _rule(self, heard: bool = False) -> None:
        down = self.root.step(self.now)
        windows = self.root.take()
        if self.troubles is not None and (heard or down is not None or windows):
            self._saved = wire.dump(self.root.state())
        self.measured.emitted += [(self.now, window) for window in windows]
        if down is None:
            return
        body = wire.dump(down)
        for site in self.sites.values():
            self.measured.down += len(body)
            self.measured.messages += 1
            self._send(lambda site=site: self._hear(site, body))  # type: ignore[misc]

    # -- links -----------------------------------------------------------------------------------

    def _send(self, action: Callable[[], None]) -> None:
        copies, jitter = 1, 0
        troubles = self.troubles
        if troubles is not None:
            if self.now < self.calm:
                luck = self.dice.random()
                copies = 0 if luck < troubles.lost else 2 if luck > 1 - troubles.twice else 1
            jitter = troubles.jitter
        for _ in range(copies):
            self.after(self.delay + (self.dice.randrange(jitter) if jitter else 0), action)

    # -- who comes and goes ----------------------------------------------------------------------

    def join(self, node: int, stream: NodeArrivals) -> None:
        """A node that was not there before."""
        self.sites[node] = CountingSite(LocalCounter(node, self.windows, self.fold), stream)
        self.root.join(node, self.now)
        self.after(1, self._ticks(node))

    def kill(self, node: int) -> None:
        """A node that never comes back."""
        self.sites[node].dead = True
