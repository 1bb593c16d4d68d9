"""A tree of nodes under a virtual clock: links with delays and losses, crashes, full disks.

Folders go wrong too: old copies are put back, files are emptied or cut, two processes run on two
copies of one folder, processes are frozen and thawed. Then somebody looks after the tree as a
person would: where a node is turned away for good, does not start, or finds its folder to be an old
copy, the newest copy of the folder is put back. A node that is turned away although nothing was
done to any folder is an error of the protocol, and ends the run.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from catchment.errors import CatchmentError
from catchment.simulate.agenda import Agenda
from catchment.simulate.memory import EventsInMemory, MemoryDisk, VolatileDisk
from catchment.sinks.base import Delivery
from catchment.sources.base import Source
from catchment.tree.charter import Charter
from catchment.tree.member import Member
from catchment.tree.words import Beat, Hello, Reply, read, said

SECOND = 1_000_000
_TICK = SECOND // 10
_BEAT = SECOND
_NOTICED = 4 * SECOND
"""How long a node may be turned away before somebody looks at it."""


@dataclass(frozen=True)
class Faults:
    """What goes wrong, and how often: chances are per message, or per node and second."""

    delay: float = 0.02
    """The mean delay of a link, in seconds; it varies, so messages overtake each other."""
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
    garbled: float = 0.0
    """Chance of a message to arrive with other bytes than it was sent with."""
    restore: float = 0.0
    """An old copy of the folder is put back."""
    twin: float = 0.0
    """A second process is started on a copy of the folder, while the first one runs."""
    damage: float = 0.0
    """A file of the folder is emptied, cut short, or gone."""
    freeze: float = 0.0
    """A process stands still for as long as a crash lasts, and then goes on (SIGSTOP)."""


NONE = Faults()


class Site:
    """A process of a node and what happens to it."""

    def __init__(
        self,
        id: str,
        parent: str | None,
        batches: list[pa.Table] | None,
        disk: MemoryDisk | None = None,
        twin: bool = False,
    ) -> None:
        self.id, self.parent, self.twin = id, parent, twin
        self.batches = batches
        self.disk: MemoryDisk | VolatileDisk = disk or MemoryDisk()
        self.copies: list[MemoryDisk] = []
        self.right: MemoryDisk | VolatileDisk | None = None
        """The newest copy of the folder, while something is wrong with the one in use."""
        self.wrong_since = 0
        self.tampered = False
        """Whether anything was ever done to its folder."""
        self.attempt = 0
        """The number of its link: words from an earlier link are ignored."""
        self.member: Member | None = None
        self.linked = self.over = False
        self.greeted = -_BEAT
        self.cut_until = self.down_until = self.frozen_until = 0
        self.skew = self.busy_until = 0
        self.beaten = 0


class World(Agenda):
    """Runs a tree until it has nothing left to do."""

    def __init__(
        self,
        charter: Charter,
        batches: Mapping[str, list[pa.Table]],
        seed: int = 0,
        faults: Faults = NONE,
        until: float = 60.0,
        source: Callable[[list[pa.Table]], Source] = EventsInMemory.of,
    ) -> None:
        self.random = random.Random(seed)
        self.source = source
        """Makes the source of a node out of its batches; anew at each of its starts."""
        self.charter, self.faults = charter, faults
        super().__init__()
        self.calm = int(until * SECOND)
        """When the faults end; the tree is then left to itself."""
        self.deliveries: dict[int, Delivery] = {}
        self.bytes: dict[str, int] = {}
        """What went up each node's link."""
        self.faulted = 0
        self.happened: list[str] = []
        """What was done to folders and processes, and what came of it, in order."""
        self.aside: set[tuple[str, str, int]] = set()
        """Messages that a parent has reported as set aside: parent, child, number."""
        self.stuck: str | None = None
        """What was said, where no copy is left that would let the tree go on."""
        self.twins: dict[str, Site] = {}
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

    def replace(self, old: str, new: str, parent: str) -> None:
        """A node is gone for good, and another reads what it read; the charter must know it."""
        gone = self.sites[old]
        self._kill(gone, 0)
        gone.over = True
        site = self.sites[new] = Site(new, parent, gone.batches)
        self._open(site)

    # -- the clock --------------------------------------------------------------------------------

    def run(self, longest: float = 600.0) -> None:
        """Until all events are in results, or for so many seconds."""
        self.pass_time(
            int(longest * SECOND),
            lambda: self.stuck is not None or (self.now > self.calm and self.done),
        )

    @property
    def done(self) -> bool:
        root = self.sites[self.charter.root].member
        return root is not None and root.done

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
                site.id,
                site.disk,
                self._clock(site),
                parent=site.parent,
                source=None if batches is None else lambda: self.source(batches),
                deliver=self._deliver if root else None,
                charter=self.charter if root else None,
            )
        except CatchmentError as error:
            site.member = None  # a full disk: it is started again
            if not site.disk.full and not site.disk.dead:
                self._look_after(site, f"does not start: {error}")
        site.linked = False

    def _deliver(self, delivery: Delivery) -> None:
        """A sink that takes each delivery once, and insists that one that comes again is equal.

        If the root's folder was tampered with it may be another, and takes the place of the first.
        """
        before = self.deliveries.get(delivery.batch, delivery)
        self.deliveries[delivery.batch] = delivery
        if not self.sites[self.charter.root].tampered:
            assert dict(before.results) == dict(delivery.results), "a step was carried out twice"

    def crash(self, id: str, seconds: float) -> None:
        """Kills a node; all but its disk is gone."""
        self._kill(self.sites[id], seconds)

    def _kill(self, site: Site, seconds: float) -> None:
        site.member, site.linked, site.frozen_until = None, False, 0
        site.disk = site.disk.crashed(self.random)
        site.down_until = self.now + int(seconds * SECOND)
        if self.sites[site.id] is not site:
            return
        for other in [*self.sites.values(), *self.twins.values()]:
            if other.parent is not None and self._above(other) == site.id:
                self._unlink(other)

    def _unlink(self, site: Site) -> None:
        site.linked, site.greeted = False, -_BEAT
        site.attempt += 1
        if site.member is not None:
            site.member.lost()

    def _tick(self, site: Site) -> None:
        if site.over:
            return
        self.after(_TICK * self.random.uniform(0.9, 1.1), lambda: self._tick(site))
        self._mishap(site)
        if self.now < site.frozen_until:
            return
        if site.member is None:
            if self.now >= site.down_until:
                self._start(site)
            return
        member = site.member
        try:
            for _ in range(4):
                if not member.step(self._clock(site)):
                    break
        except CatchmentError as error:
            if site.disk.full or site.disk.dead or site.right is None:
                self._reload(site)
            else:
                self._look_after(site, f"does not work: {error}")
        if site.disk.dead:
            self._kill(site, self.random.expovariate(1 / self.faults.down))
        if site.member is not None:
            self._watch(site, site.member)
        self._ask(site)
        if site.parent is not None and self.now >= site.cut_until and site.member is not None:
            with contextlib.suppress(CatchmentError):  # a message that it needs cannot be read
                self._talk(site)

    def _reload(self, site: Site) -> None:
        try:
            assert site.member is not None
            site.member.reload(self._clock(site))
        except CatchmentError:
            self._kill(site, 0.1)

    def _mishap(self, site: Site) -> None:
        faults, dice = self.faults, self.random
        site.disk.full = site.disk.full and dice.random() > 0.1 / faults.down
        if self.now > self.calm:
            site.disk.full = False
            return
        if self.sites[self.charter.root].right is not None:
            return  # a root that is wrong is enough
        if dice.random() < faults.crash / 10:
            self.faulted += 1
            self._kill(site, dice.expovariate(1 / faults.down))
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
        if faults.freeze and dice.random() < faults.freeze / 10:
            self.faulted += 1
            site.frozen_until = self.now + int(dice.expovariate(1 / faults.down) * SECOND)
        if site.id not in self.twins and site.right is None:  # one thing at a time
            self._tamper(site)

    def _tamper(self, site: Site) -> None:
        """Something may happen to the folder of a node."""
        faults, dice, disk = self.faults, self.random, site.disk
        if site.parent is None and not self._sound:
            return
        if not isinstance(disk, MemoryDisk):
            return  # what happens to files is the business of their own faults
        if faults.restore and dice.random() < faults.restore:
            site.copies.append(disk.copy())
        if faults.restore and site.copies and dice.random() < faults.restore / 10:
            self._wrong(site, dice.choice(site.copies), "old copy")
        if faults.damage and dice.random() < faults.damage / 10:
            broken = disk.copy()
            self._wrong(site, broken, f"damage to {broken.tamper(dice)}")
        if faults.twin and site.parent is not None and dice.random() < faults.twin / 10:
            self.faulted += 1
            self.happened.append(f"{site.id}: twin")
            twin = Site(site.id, site.parent, site.batches, disk.copy(), twin=True)
            self.twins[site.id] = twin
            site.tampered = twin.tampered = True
            self._open(twin)

    # -- folders ----------------------------------------------------------------------------------

    def _wrong(self, site: Site, disk: MemoryDisk, what: str) -> None:
        """Kills a node, and starts it on another folder."""
        self.faulted += 1
        self.happened.append(f"{site.id}: {what}")
        site.right, site.wrong_since, site.tampered = site.disk, self.now, True
        self._kill(site, self.random.random())
        site.disk = disk

    @property
    def _sound(self) -> bool:
        """Whether every node is up and linked, so that a child notices what a root forgets.

        What only nodes know that are down, or have old folders themselves, a root can learn only
        when they are back; by then it may have gone on without them.
        """
        return all(
            site.member is not None
            and site.member.living
            and site.right is None
            and self.now >= max(site.frozen_until, site.cut_until)
            and (site.linked or site.parent is None)
            for site in self.sites.values()
        )

    def put_back(self, id: str, disk: MemoryDisk) -> None:
        """Stops a node and puts another folder in the place of its own."""
        self._wrong(self.sites[id], disk, "old copy")

    def _look_after(self, site: Site, why: str) -> None:
        """A node does not go on: the newest copy of its folder is put back."""
        self.happened.append(f"{site.id}: {why}")
        if site.twin:
            site.over = True
            del self.twins[site.id]
            return
        twin = self.twins.pop(site.id, None)
        if twin is not None:
            site.over, twin.twin = True, False
            self._kill(site, 0)
            self.sites[site.id] = twin
            return
        if site.right is None:
            tampered = [other.id for other in self.sites.values() if other.tampered]
            assert tampered, f"{site.id} was turned away without a reason: {why}"
            self.stuck = f"{site.id} {why}"
            return
        site.disk, site.right = site.right, None
        self._kill(site, self.random.random())

    def _watch(self, site: Site, member: Member) -> None:
        """Looks at a node as a person does who reads its status."""
        inbox = member.inbox
        if inbox is not None:
            self.aside |= {(site.id, id, seq) for id in inbox.aside for seq in inbox.aside[id]}
        if member.outdated is not None:
            self._look_after(site, f"is outdated: {member.outdated}")
        elif site.right is not None and site.parent is not None:
            if member.living:
                self.happened.append(f"{site.id}: goes on")
                site.right = None
            elif self.now - site.wrong_since > _NOTICED and site.linked:
                self._look_after(site, "is not taken in")
        elif site.right is not None and self.now - site.wrong_since > 2 * _NOTICED:
            self.happened.append(f"{site.id}: goes on")
            site.right = None

    # -- links ------------------------------------------------------------------------------------

    def _talk(self, site: Site) -> None:
        member = site.member
        assert member is not None
        if not site.linked:
            if self.now - site.greeted > _BEAT:
                site.greeted = self.now
                site.attempt += 1
                self._send(site, "hello", said(member.hello()))
            return
        for body in member.outgoing(self._clock(site)):
            self.bytes[site.id] = self.bytes.get(site.id, 0) + len(body)
            self._send(site, "message", self._garbled(body))
        if self.now - site.beaten > _BEAT:
            site.beaten = self.now
            self._send(site, "beat", said(member.beat(self._clock(site))))
            if self.random.random() < 0.2:
                member.lost()  # a timer: what was not acknowledged by now goes out again

    def _ask(self, site: Site) -> None:
        """What a node asks its children at once goes down their links."""
        if site.member is None or not site.member.has_questions:
            return
        linked = (other for other in self.sites.values() if other.linked)
        below = {other.id: other for other in linked if self._above(other) == site.id}
        for id, question in site.member.due_questions(below).items():
            child = below[id]
            for _ in range(self._copies()):
                told = partial(
                    self._answer, child, child.member, site, "push", child.attempt, said(question)
                )
                self.after(self._delay(), told)

    def _send(self, site: Site, kind: str, what: Any) -> None:
        member, parent = site.member, self.sites[self._above(site)]
        for _ in range(self._copies()):
            wait = self._queue_up(site, what) if kind == "message" else 0.0
            deliver = partial(self._arrive, site, member, parent, kind, what, site.attempt)
            self.after(wait + self._delay(), deliver)

    def _queue_up(self, site: Site, body: bytes) -> float:
        """How long a message takes on a link that is narrow, behind those before it."""
        if not self.faults.narrow:
            return 0.0
        begin = max(site.busy_until, self.now)
        site.busy_until = begin + int(len(body) / self.faults.narrow * SECOND)
        return float(site.busy_until - self.now)

    def _garbled(self, body: bytes) -> bytes:
        if not self.faults.garbled or self.random.random() >= self.faults.garbled:
            return body
        if self.now > self.calm:
            return body
        self.faulted += 1
        at = self.random.randrange(len(body))
        kind = self.random.choice(["cut", "flip", "double", "empty"])
        if kind == "flip":
            return body[:at] + bytes([body[at] ^ 1 << self.random.randrange(8)]) + body[at + 1 :]
        return {"cut": body[:at], "double": body + body[at:], "empty": b""}[kind]

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
        self, site: Site, sender: Member | None, parent: Site, kind: str, what: Any, attempt: int
    ) -> None:
        if parent.over:
            parent = self.sites[parent.id]
        if parent.member is None or self.now < site.cut_until:
            self._unlink(site)
            return
        if self.now < parent.frozen_until:  # it waits in a buffer until the process goes on
            wait = parent.frozen_until - self.now + self.random.random() * _TICK
            self.after(wait, partial(self._arrive, site, sender, parent, kind, what, attempt))
            return
        now = self._clock(parent)
        try:
            if kind == "hello":
                reply = parent.member.on_hello(read(Hello, what), now)
                self._replace_link(site)
            elif kind == "message":
                reply = parent.member.on_message(site.id, what, now)
            else:
                reply = parent.member.on_beat(site.id, read(Beat, what), now)
        except CatchmentError as error:
            refusal = error
            self.after(self._delay(), lambda: self._refuse(site, sender, kind, attempt, refusal))
            return
        for _ in range(self._copies()):
            answer = partial(self._answer, site, sender, parent, kind, attempt, said(reply))
            self.after(self._delay(), answer)

    def _replace_link(self, site: Site) -> None:
        """A node has one link: a new one ends the one that another process of it had."""
        for other in (self.sites[site.id], self.twins.get(site.id)):
            if other is not None and other is not site and other.linked:
                self._unlink(other)

    def _refuse(
        self, site: Site, sender: Member | None, kind: str, attempt: int, error: CatchmentError
    ) -> None:
        member = site.member
        if member is None or member is not sender or self.now < site.cut_until or site.over:
            return
        if self.now < site.frozen_until:
            wait = site.frozen_until - self.now + 1
            self.after(wait, lambda: self._refuse(site, sender, kind, attempt, error))
            return
        if attempt != site.attempt or (kind == "hello" and site.linked):
            return  # of a link that it has given up
        if member.turn_away(error):
            self._look_after(site, f"is turned away: {error}")
        else:
            self._unlink(site)

    @staticmethod
    def _above(site: Site) -> str:
        """Whom a node talks to: its parent, as it knows."""
        moved = None if site.member is None else site.member.moved
        assert site.parent is not None
        return site.parent if moved is None else moved.to

    def _answer(
        self,
        site: Site,
        sender: Member | None,
        parent: Site,
        kind: str,
        attempt: int,
        reply: bytes,
    ) -> None:
        if site.member is None or site.member is not sender or self.now < site.cut_until:
            return
        if self.now < site.frozen_until:
            wait = site.frozen_until - self.now + 1
            self.after(wait, partial(self._answer, site, sender, parent, kind, attempt, reply))
            return
        if attempt != site.attempt:
            return  # of a link that it has given up
        if kind == "hello" and self._above(site) == parent.id:
            site.linked = True
        moved = site.member.moved
        try:
            site.member.heard(read(Reply, reply), self._clock(site))
        except CatchmentError:
            self._reload(site)
            self._unlink(site)
        if kind == "hello" and site.member is not None and not site.member.living:
            self._unlink(site)  # its disk may be full: it asks again
        if site.member is not None and site.member.moved is not moved:
            self._unlink(site)  # it goes on elsewhere
