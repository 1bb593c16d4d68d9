"""A tree of nodes under a virtual clock: links with delays and losses, crashes, full disks."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from catchment.errors import CatchmentError
from catchment.simulate.agenda import Agenda
from catchment.simulate.memory import Events, MemoryDisk, VolatileDisk
from catchment.sinks.base import Delivery
from catchment.tree.charter import Charter
from catchment.tree.member import Member

SECOND = 1_000_000
_TICK = SECOND // 10
_BEAT = SECOND


@dataclass(frozen=True)
class Faults:
    """What goes wrong, and how often: chances are per message, or per node and second."""

    delay: float = 0.02
    """Of a link, in seconds, up to twice this; so messages overtake each other."""
    lost: float = 0.0
    twice: float = 0.0
    crash: float = 0.0
    cut: float = 0.0
    full: float = 0.0
    power: float = 0.0
    """Power fails in the middle of what a node does. Its disk then loses what was not synced, as it
    also does at every crash; without this, disks lose nothing."""
    down: float = 3.0
    """How long a crash, a cut or a full disk lasts, in seconds, on average."""
    skew: float = 0.0
    """How wrong clocks are, in seconds."""
    narrow: float = 0.0
    """Bytes a second that a link carries upwards; 0: as many as there are."""


NONE = Faults()


class Site:
    """A node and what happens to it."""

    def __init__(self, id: str, parent: str | None, batches: list[pa.Table] | None) -> None:
        self.id, self.parent = id, parent
        self.batches = batches
        self.disk: MemoryDisk | VolatileDisk = MemoryDisk()
        self.member: Member | None = None
        self.linked = False
        self.greeted = -_BEAT
        self.cut_until = self.down_until = 0
        self.skew = self.busy_until = 0
        self.beaten = 0


class World(Agenda):
    """Runs a tree until it has nothing left to do."""

    def __init__(
        self, charter: Charter, batches: Mapping[str, list[pa.Table]], seed: int = 0,
        faults: Faults = NONE, until: float = 60.0,
    ) -> None:  # fmt: skip
        self.random = random.Random(seed)
        self.charter, self.faults = charter, faults
        super().__init__()
        self.calm = int(until * SECOND)
        """When the faults end; the tree is then left to itself."""
        self.deliveries: dict[int, Delivery] = {}
        self.bytes: dict[str, int] = {}
        """What went up each node's link."""
        self.faulted = 0
        self.sites = {
            place.id: Site(place.id, place.parent, batches.get(place.id))
            for place in charter.places.values()
        }
        for site in self.sites.values():
            self._open(site)

    def _open(self, site: Site) -> None:
        if self.faults.power:
            site.disk = VolatileDisk()
        site.skew = int(self.random.uniform(-1, 1) * self.faults.skew * SECOND)
        self._start(site)
        self.after(self.random.random() * _TICK, partial(self._tick, site))

    def join(self, id: str, parent: str, batches: list[pa.Table]) -> None:
        """A node that was not there before; the charter must know it."""
        site = self.sites[id] = Site(id, parent, batches)
        self._open(site)

    # -- the clock --------------------------------------------------------------------------------

    def run(self, longest: float = 600.0) -> None:
        """Until all events are in results, or for so many seconds."""
        self.pass_time(int(longest * SECOND), lambda: self.now > self.calm and self.done)

    @property
    def done(self) -> bool:
        root = self.sites[self.charter.root].member
        if root is None or root.machine is None:
            return False
        return bool(getattr(root.machine, "last", {}).get("sure", 0) >= 2**62)

    # -- nodes ------------------------------------------------------------------------------------

    def _clock(self, site: Site) -> int:
        return self.now + site.skew

    def _start(self, site: Site) -> None:
        batches = site.batches
        root = site.parent is None
        if site.disk.dead:  # the power failed while it was starting
            site.disk = site.disk.crashed(self.random)
        try:
            site.member = Member(
                site.id, site.disk, self._clock(site), parent=site.parent,
                source=None if batches is None else lambda: Events.of(batches),
                deliver=self._deliver if root else None, charter=self.charter if root else None,
            )  # fmt: skip
        except CatchmentError:
            site.member = None  # a full disk: it is started again
        site.linked = False

    def _deliver(self, delivery: Delivery) -> None:
        """A sink that takes each delivery once, and insists that one that comes again is equal."""
        before = self.deliveries.get(delivery.batch)
        if before is not None:
            assert dict(before.results) == dict(delivery.results), "a step was carried out twice"
        self.deliveries[delivery.batch] = delivery

    def crash(self, id: str, seconds: float) -> None:
        """Kills a node; all but its disk is gone."""
        site = self.sites[id]
        site.member, site.linked = None, False
        site.disk = site.disk.crashed(self.random)
        site.down_until = self.now + int(seconds * SECOND)
        for other in self.sites.values():
            if other.parent is not None and self._above(other) == id:
                self._unlink(other)

    def _unlink(self, site: Site) -> None:
        site.linked, site.greeted = False, -_BEAT
        if site.member is not None:
            site.member.lost()

    def _tick(self, site: Site) -> None:
        self.after(_TICK * self.random.uniform(0.9, 1.1), lambda: self._tick(site))
        self._mishap(site)
        if site.member is None:
            if self.now >= site.down_until:
                self._start(site)
            return
        member = site.member
        try:
            for _ in range(4):
                if not member.step(self._clock(site)):
                    break
        except CatchmentError:
            self._reload(site)
        if site.disk.dead:
            self.crash(site.id, self.random.expovariate(1 / self.faults.down))
        if site.member is None:
            return
        if site.parent is not None and self.now >= site.cut_until:
            with contextlib.suppress(CatchmentError):  # a message that it needs cannot be read
                self._talk(site)

    def _reload(self, site: Site) -> None:
        try:
            assert site.member is not None
            site.member.reload(self._clock(site))
        except CatchmentError:
            self.crash(site.id, 0.1)

    def _mishap(self, site: Site) -> None:
        faults, dice = self.faults, self.random
        site.disk.full = site.disk.full and dice.random() > 0.1 / faults.down
        if self.now > self.calm:
            site.disk.full = False
            return
        if dice.random() < faults.crash / 10:
            self.faulted += 1
            self.crash(site.id, dice.expovariate(1 / faults.down))
        if dice.random() < faults.cut / 10:
            self.faulted += 1
            site.cut_until = self.now + int(dice.expovariate(1 / faults.down) * SECOND)
            self._unlink(site)
        if faults.power and dice.random() < faults.power / 10:
            self.faulted += 1
            site.disk.fail_soon(dice)
        if dice.random() < faults.full / 10:
            self.faulted += 1
            site.disk.full = True

    # -- links ------------------------------------------------------------------------------------

    def _talk(self, site: Site) -> None:
        member = site.member
        assert member is not None
        if not site.linked:
            if self.now - site.greeted > _BEAT:
                site.greeted = self.now
                self._send(site, "hello", member.hello())
            return
        for body in member.outgoing(self._clock(site)):
            self.bytes[site.id] = self.bytes.get(site.id, 0) + len(body)
            self._send(site, "message", body)
        if self.now - site.beaten > _BEAT:
            site.beaten = self.now
            self._send(site, "beat", member.beat())
            if self.random.random() < 0.2:
                member.lost()  # a timer: what was not acknowledged by now goes out again

    def _send(self, site: Site, kind: str, what: Any) -> None:
        member, parent = site.member, self.sites[self._above(site)]
        for _ in range(self._copies()):
            wait = self._queue_up(site, what) if kind == "message" else 0.0
            self.after(wait + self._delay(), lambda: self._arrive(site, member, parent, kind, what))

    def _queue_up(self, site: Site, body: bytes) -> float:
        """How long a message takes on a link that is narrow, behind those before it."""
        if not self.faults.narrow:
            return 0.0
        begin = max(site.busy_until, self.now)
        site.busy_until = begin + int(len(body) / self.faults.narrow * SECOND)
        return float(site.busy_until - self.now)

    def _copies(self) -> int:
        if self.now <= self.calm:
            if self.random.random() < self.faults.lost:
                self.faulted += 1
                return 0
            if self.random.random() < self.faults.twice:
                self.faulted += 1
                return 2
        return 1

    def _delay(self) -> float:
        return self.random.random() * 2 * self.faults.delay * SECOND

    def _arrive(
        self, site: Site, sender: Member | None, parent: Site, kind: str, what: Any
    ) -> None:
        if parent.member is None or self.now < site.cut_until:
            self._unlink(site)
            return
        now = self._clock(parent)
        try:
            if kind == "hello":
                reply = parent.member.on_hello(what, now)
            elif kind == "message":
                reply = parent.member.on_message(site.id, what, now)
            else:
                reply = parent.member.on_beat(site.id, what, now)
        except CatchmentError:
            self.after(self._delay(), lambda: self._unlink(site))
            return
        for _ in range(self._copies()):
            self.after(self._delay(), lambda: self._answer(site, sender, parent, kind, reply))

    @staticmethod
    def _above(site: Site) -> str:
        """Whom a node talks to: its parent, as it knows."""
        moved = None if site.member is None else site.member.moved
        assert site.parent is not None
        return site.parent if moved is None else str(moved["to"])

    def _answer(
        self, site: Site, sender: Member | None, parent: Site, kind: str, reply: dict[str, Any]
    ) -> None:
        if site.member is None or site.member is not sender or self.now < site.cut_until:
            return
        if kind == "hello" and self._above(site) == parent.id:
            site.linked = True
        moved = site.member.moved
        try:
            site.member.heard(reply, self._clock(site))
        except CatchmentError:
            self._reload(site)
        if site.member is not None and site.member.moved is not moved:
            self._unlink(site)  # it goes on elsewhere
