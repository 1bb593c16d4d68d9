"""The root: takes what climbs, assembles windows, and says of each whether anybody is missing."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from catchment.counting.root_by_key import RootByKey
from catchment.durable.disk import Disk, damaged
from catchment.engine.assembler import Assembler
from catchment.engine.partials import Partials
from catchment.model.capacity import Capacity
from catchment.model.plan import longest
from catchment.planner.edges import EARLIEST, LATEST
from catchment.sinks.base import Delivery
from catchment.tree.charter import Charter
from catchment.tree.completeness import lacking_in, marked
from catchment.tree.decode import taken
from catchment.tree.inbox import Child, Inbox, taking
from catchment.tree.message import COUNTS, behind_of, plain_section
from catchment.tree.stale_plan import joined, lost_in, noted, recent

_SHORTEST = 4 << 20
"""A log shorter than this is never worth a snapshot."""
_SIZE = struct.Struct(">Q")
_COUNTS = ("events", "late", "bad", "updates", "aside_dropped")
_OPEN = ("open_windows", "open_events")
"""Windows that had not ended when everybody had, and the events in them."""

Deliver = Callable[[Delivery], None]


def _nowhere(_: Delivery) -> None:
    raise AssertionError  # results are delivered where steps are carried out


class Root:
    """Assembles results step by step. A step is written down before it is carried out.

    After a crash the steps since the last snapshot are carried out again, from the same messages,
    and the last one's results are delivered again: sinks take each once.
    """

    def __init__(
        self, id: str, disk: Disk, charter: Charter, deliver: Deliver | None, now: int
    ) -> None:
        self.id = id
        self.disk = disk
        self.charter = charter
        self._keeps: dict[int, int] = {}
        self.apart = deliver is None
        """Whether steps are carried out elsewhere."""
        self.deliver = deliver or _nowhere
        self.steps = disk.log("steps")
        self.counts = dict.fromkeys((*_COUNTS, *_OPEN, "results", "missed"), 0)
        self.last: dict[str, Any] = {}
        self.drained: tuple[str, ...] = ()
        """Queries that leave and whose windows have all ended, by the last step."""
        self.tally: RootByKey | None = None
        children = self._restored()
        self.inbox = Inbox(disk, children, charter)
        if "tally" in self.last:
            self._tallied()
        self._replay()
        if self.assembler is not None and charter.asked(self.plan):
            self._tallied()
        self._expect(now)

    @property
    def frontier(self) -> int:
        return int(self.last.get("frontier", EARLIEST))

    @property
    def plan(self) -> int:
        return int(self.last.get("plan", min(self.charter.plans)))

    @property
    def number(self) -> int:
        """Of the last step."""
        return int(self.last.get("step", 0))

    # -- after a crash ----------------------------------------------------------------------------

    def _restored(self) -> dict[str, Child]:
        blob = self.disk.get("snapshot")
        if blob is None:
            self.assembler = self._assembler(min(self.charter.plans))
            self._snapshot_bytes, self._log_bytes, self._since = 0, 0, 0
            return {}
        try:
            (size,) = _SIZE.unpack_from(blob)
            at = _SIZE.size + size
            self.last = json.loads(blob[_SIZE.size : at])
        except (struct.error, ValueError) as error:
            raise damaged("snapshot", str(error)) from error
        self.counts |= self.last["counts"]
        self.assembler = self._assembler(self.plan, blob[at:]) if len(blob) > at else None
        self._snapshot_bytes, self._log_bytes, self._since = len(blob), 0, self.number
        return {id: Child.from_dict(note) for id, note in self.last["children"].items()}

    def _assembler(self, plan: int, state: bytes | None = None) -> Assembler | None:
        """None while nobody knows what events look like."""
        return None if self.charter.schema is None else self.charter.bound(plan).assembler(state)

    def _replay(self) -> None:
        lost = self.steps.gap(self.number)
        if lost is not None:
            raise lost.error()  # sinks may have the results of a step that is not known here
        notes = [note for n, note, _ in self.steps.entries() if n > self.number]
        following = [note["step"] for note in notes]
        if following != [*range(self.number + 1, 1 + max(self.number, self.steps.last or 0))]:
            raise damaged("steps", f"{following} follow step {self.number}")
        self.undone = notes if self.apart else []
        for note in notes:
            for id, since in note["since"].items():
                self.inbox.join([id], since)
            self._has(note)
            if not self.apart:
                self._carry_out(note, deliver=note is notes[-1])

    def _has(self, note: dict[str, Any]) -> None:
        """Raises if a step has taken messages of which the inbox does not know any more."""
        for id, last in note["take"].items():
            if last > (here := self.inbox.received(id)):
                why = f"step {note['step']} has taken message {last}, the last one there is {here}"
                raise damaged(f"inbox-{id}", why)

    def _expect(self, now: int) -> None:
        self.inbox.expect(self.charter, self.id, now, self.frontier)
        if self._part() & {*self.charter.children(self.id)}:  # removed and added again
            self.inbox.expect(self.charter, self.id, now, self.frontier)

    def _part(self) -> set[str]:
        """Lets go of children of old; what is kept of them goes too."""
        gone = self.inbox.gone()
        if not gone or self.undone:
            return set()
        self.snapshot()
        self.inbox.forget(gone)
        return {*gone}

    # -- a step -----------------------------------------------------------------------------------

    def step(self, now: int) -> bool:
        """Takes what has come; whether anything happened."""
        note = self.decide(now)
        if note is None:
            return False
        self._carry_out(note, deliver=True)
        self._compact()
        self._part()
        return True

    def decide(self, now: int) -> dict[str, Any] | None:
        """Decides what the next step takes and how far it goes, and writes that down."""
        if self.charter.schema is None:
            return None
        charter = self.charter
        choice = self.inbox.choose(self.plan, charter.plan, now, charter.timeout, self.frontier)
        plan, view = choice.plan, choice.view
        frontier = self.frontier if view.frontier is None else max(self.frontier, view.frontier)
        told = [plan, frontier, view.sure, list(view.missing)]
        if not choice.upto and told == self.last.get("told"):
            return None
        sure = max(int(self.last.get("sure", EARLIEST)), view.sure)
        chosen = self.inbox.chosen(choice.upto)
        heads = [self.inbox.head(id, seq) for id, seq in chosen]
        newest = max([int(self.last.get("newest", EARLIEST)), *(head.newest for head in heads)])
        reached = int(self.last.get("reach", EARLIEST))
        # No further than where every window that holds an event is complete: events of somebody
        # who is missing may still come after the others have ended.
        furthest = newest + 1 + longest(charter.plans[plan].plan)
        reach = min(frontier, furthest) if newest > EARLIEST else frontier
        ended: dict[str, int] = dict(self.last.get("ended", {}))
        for head in heads:
            ended |= head.ended
        found = [behind_of(head, plan) for head in heads]
        found += [self.inbox.lacks(id, seq) for id, seq in chosen]
        oldest = reached - self._keep(plan) - longest(charter.plans[plan].plan)
        known = self.last.get("behind", {}).get("cut", {})
        lagging = recent(joined([known, *found]), oldest)
        note = {
            "step": self.number + 1,
            "plan": plan,
            "now": now,
            "take": choice.upto,
            "frontier": frontier,
            "reach": max(reach, reached),
            "sure": sure,
            "closing": sure >= LATEST,
            "newest": newest,
            "too_late": reached - self._keep(plan),
            "told": told,
            "missing": list(view.missing),
            "charter": charter.version,
            "behind": noted(lagging, charter, plan),
            "ended": ended,
            "live": self._live(plan, ended, max(reach, reached)),
            "since": {id: child.since for id, child in self.inbox.children.items()},
        }
        if charter.asked(plan):
            note |= self._readers(view.missing)
        self.steps.append(self.number + 1, note, b"")
        return note

    def _live(self, plan: int, ended: dict[str, int], reach: int) -> list[str] | None:
        """The nodes that may still bring slices, where some windows are read by stream.

        Until the frontier has passed its last event, those of one that has ended may be on the way.
        """
        groups = self.charter.plans[plan].plan.groups
        if not any(group.slicing == "stream" for group in groups):
            return None
        places = self.charter.places.values()
        return sorted(p.id for p in places if p.source and ended.get(p.id, reach) >= reach)

    def _readers(self, missing: tuple[str, ...]) -> dict[str, list[int]]:
        """Who reads events, and who of them is missing, or below somebody who is."""
        places = [place for place in self.charter.places.values() if place.source]
        away = [place.number for place in places if self.charter.below(place.id, missing)]
        return {"readers": sorted(place.number for place in places), "away": away}

    def _keep(self, plan: int) -> int:
        """How long before the frontier results may still be corrected."""
        if plan not in self._keeps:
            self._keeps[plan] = self.charter.bound(plan).keep
        return self._keeps[plan]

    def _carry_out(self, note: dict[str, Any], deliver: bool) -> None:
        if self.assembler is None:
            self.assembler = self._assembler(self.plan)
        assert self.assembler is not None
        assembler = self.assembler
        assembler.clock = lambda: note["now"]
        if note["plan"] > self.plan:  # what the others had seen when they went over
            assembler.absorb({}, note["newest"])
        for version in range(self.plan + 1, note["plan"] + 1):
            planned = self.charter.plans[version]
            bound = self.charter.bound(version)
            assembler.follow(bound, planned.lineage, planned.leaving)
        tally = self._told(note)
        for id, seq in self.inbox.chosen(note["take"]):
            with taking(id, seq):
                self._take(id, seq, note)
        self._lacks(note)
        if tally is not None:
            assembler.absorb(tally.step(note["away"]))
            self.counts["late"] += tally.newly_late()
            note |= {"uncounted": self._uncounted(tally)}
        closing, assembler.live = note["closing"], note.get("live")
        results = assembler.close() if closing else assembler.advance(note["reach"], note["sure"])
        self.counts["results"] += results.rows()
        if closing:
            self.counts |= self._unended(assembler.counts, tally)
        self.counts["missed"] = assembler.missed
        self.drained = tuple(assembler.drained(self.charter.asked(note["plan"])))
        self.last = note | {"counts": self.counts}
        if deliver and len(results):
            planned = self.charter.plans[note["plan"]]
            short = partial(lacking_in, note["behind"], planned, note.get("uncounted", ()))
            tables = marked(results, note["sure"], note["missing"], short)
            named = planned.delivered(tables)
            self.deliver(Delivery(self.charter.job, note["step"], 0, *named))

    def _unended(self, counts: Mapping[str, int], tally: RootByKey | None) -> dict[str, int]:
        """Windows that never ended: those of the assembler, and those found by asking."""
        asked = (0, 0) if tally is None else tally.not_full()
        return {name: counts.get(name, 0) + asked[n] for n, name in enumerate(_OPEN)}

    def _lacks(self, note: dict[str, Any]) -> None:
        """Notes what could not be taken, where a step that was decided should have taken it."""
        before = lost_in(self.last.get("behind", {}).get("cut", {}))
        lost = joined([self.inbox.take_lost(), before])
        lost = recent(lost, note["too_late"] - longest(self.charter.plans[note["plan"]].plan))
        if lost:
            known = note["behind"].get("cut", {})
            note["behind"] = noted(joined([known, lost]), self.charter, note["plan"])

    def _take(self, id: str, seq: int, note: dict[str, Any]) -> None:
        assert self.assembler is not None
        body = self.inbox.body(id, seq)
        found = taken(body, note["plan"], self.charter, note["too_late"])
        self.assembler.absorb(found.partials, found.head.newest)
        if found.notes is not None and self.tally is not None:
            self.tally.take(found.notes)
        self.counts["late"] += found.late
        for name in _COUNTS:
            self.counts[name] += found.head.counts.get(name, 0)
        self._log_bytes += len(body)
        self.inbox.take(id, found.head, EARLIEST)

    def _tallied(self) -> RootByKey:
        """The count windows that are found by asking."""
        if self.tally is None:
            saved = base64.b64decode(self.last.get("tally", ""))
            scheme, groups = self.charter.settings["count"], self.charter.asked(self.plan)
            self.tally = RootByKey(scheme, self.charter.bound(self.plan), groups, saved)
        return self.tally

    def _told(self, note: dict[str, Any]) -> RootByKey | None:
        """The count windows that are found by asking, as a step begins; None: there are none."""
        if "readers" not in note:
            return None  # it stays: orders go on from the last number that nodes have heard
        tally = self._tallied()
        if note["plan"] > self.plan:
            tally.switch(self.charter.bound(note["plan"]), self.charter.asked(note["plan"]))
        tally.follow(note["readers"])
        return tally

    def count(self, note: dict[str, Any]) -> Partials:
        """For a step that is carried out elsewhere: the count windows that it makes full."""
        tally, late = self._told(note), self.last.get("counted_late", 0)
        if tally is None:
            note |= {"counted_late": late}
            return {}
        for id, seq in self.inbox.chosen(note["take"]):
            notes = plain_section(self.inbox.body(id, seq), COUNTS)
            if notes is not None:
                tally.take(notes)
        full = tally.step(note["away"])
        late += tally.newly_late()
        note |= {"uncounted": self._uncounted(tally), "counted_late": late}
        return full

    def _uncounted(self, tally: RootByKey) -> list[list[Any]]:
        """Count windows of this step that are not all that they should be, and why."""
        ids = {place.number: place.id for place in self.charter.places.values()}
        return [
            [group, number, key, [ids.get(n, str(n)) for n in who]]
            for group, number, key, who in tally.uncounted
        ]

    def carried_out(
        self, note: dict[str, Any], counts: dict[str, int], drained: tuple[str, ...] = ()
    ) -> None:
        """A step was carried out elsewhere, where the state is kept too."""
        self.drained = drained
        for id, seq in self.inbox.chosen(note["take"]):
            self.inbox.take(id, self.inbox.head(id, seq), EARLIEST)
        self._lacks(note)
        self.counts = {name: counts.get(name, 0) for name in self.counts}
        self.counts["late"] += note.get("counted_late", 0)
        if note["closing"]:
            self.counts |= self._unended(self.counts, self.tally)
        self.last = note | {"counts": self.counts}
        self.snapshot()
        self._part()

    # -- letting go -------------------------------------------------------------------------------

    def _compact(self) -> None:
        """Writes the whole state down once the log behind the last snapshot is longer than it."""
        if self.capacity().share >= 1:
            self.snapshot()

    def capacity(self) -> Capacity:
        """How long the log of steps is that a restart carries out again."""
        used = self._log_bytes + 256 * (self.number - self._since)
        most, then = max(_SHORTEST, self._snapshot_bytes), "a snapshot takes the place of the log"
        return Capacity("log of the root's steps", used, most, "bytes", then)

    def snapshot(self) -> None:
        """Writes the whole state down, and lets go of what led to it."""
        children = {id: child.to_dict() for id, child in self.inbox.children.items()}
        tally = {} if self.tally is None else {"tally": _text(self.tally.to_bytes())}
        self.last |= tally
        head = json.dumps(self.last | {"children": children}).encode()
        state = b"" if self.assembler is None else self.assembler.save()
        blob = _SIZE.pack(len(head)) + head + state
        self.disk.put("snapshot", blob)
        self.steps.trim(self.number)
        for id, child in self.inbox.children.items():
            self.inbox.trim(id, child.taken)
        self._snapshot_bytes, self._log_bytes, self._since = len(blob), 0, self.number

    def follow(self, charter: Charter, now: int) -> None:
        """Takes a newer charter."""
        self.charter = charter
        self._expect(now)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
