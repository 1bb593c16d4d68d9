"""The root of a tree.

Messages of its children come in through the inbox. A step decides which of them it takes and how
far the frontier goes, writes that down, assembles the windows that are complete then, and delivers
them, marked with the nodes whose events may lack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from msgspec import UNSET
from msgspec.structs import replace

from catchment.counting.orders import Orders, lanes_capacity
from catchment.counting.root_by_key import RootByKey
from catchment.durable.disk import Disk, damaged
from catchment.durable.journaled import Journaled
from catchment.engine.assembler import Assembler
from catchment.engine.partials import Partials
from catchment.model.capacity import Capacity
from catchment.model.plan import longest
from catchment.planner.edges import EARLIEST, LATEST
from catchment.planner.observed import RateWatch
from catchment.sinks.base import Delivery
from catchment.tree.charter import Charter
from catchment.tree.completeness import lacking_in, marked
from catchment.tree.decode import taken
from catchment.tree.inbox import Inbox, taking
from catchment.tree.message import behind_of, notes_of
from catchment.tree.records import Behind, Readers, RootState, RootStep, Uncounted
from catchment.tree.role_progress import RoleProgress
from catchment.tree.stale_plan import joined, lagging_in, lost_in, recent

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

    source = None
    flow = None

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
        self._journal: Journaled[RootStep, RootState] = Journaled(
            disk, "steps", "snapshot", RootStep, RootState
        )
        self.counts = dict.fromkeys((*_COUNTS, *_OPEN, "results", "missed"), 0)
        self.last: RootStep | None = None
        """The last step that was carried out."""
        self.drained: tuple[str, ...] = ()
        """Queries that leave and whose windows have all ended, by the last step."""
        self.observed = RateWatch()
        """The rate at which events have come."""
        self.counting: RootByKey | None = None
        self.assembler: Assembler | None = None
        saved, self._journal.state = self._journal.state, None
        self._restore(saved)
        self.inbox = Inbox(disk, {} if saved is None else dict(saved.children), charter)
        if saved is not None and saved.counting is not None:
            self.counting = self._root_by_key(saved.counting)
        self._replay()
        if self.assembler is not None and charter.distributed_groups(self.plan):
            self.counting = self.counting or self._root_by_key()
        self._expect(now)

    @property
    def frontier(self) -> int:
        return EARLIEST if self.last is None else self.last.frontier

    @property
    def complete_until(self) -> int:
        """Nothing at all is missing before it, whatever was given up waiting for."""
        return EARLIEST if self.last is None else self.last.complete_until

    @property
    def missing(self) -> tuple[str, ...]:
        return () if self.last is None else self.last.view.missing

    @property
    def plan(self) -> int:
        return min(self.charter.plans) if self.last is None else self.last.plan

    @property
    def number(self) -> int:
        return 0 if self.last is None else self.last.step

    @property
    def done(self) -> bool:
        return self.complete_until >= LATEST

    @property
    def orders(self) -> Orders | None:
        return None if self.counting is None else self.counting.orders

    @property
    def _behind(self) -> Behind:
        """What lacks in results, as of the last step."""
        lagging = None if self.last is None else self.last.lagging
        return {} if lagging is None else lagging.behind

    # -- after a crash ----------------------------------------------------------------------------

    def _restore(self, saved: RootState | None) -> None:
        if saved is None:
            self.assembler = self._assembler(self.plan)
            return
        self.last = saved.last
        self.counts |= saved.counts
        self.observed = saved.observed
        if saved.assembler is not None:
            self.assembler = self._assembler(self.plan, saved.assembler)

    def _assembler(self, plan: int, state: bytes | None = None) -> Assembler | None:
        """An assembler by a version of the plan; None while the columns of events are not known."""
        return None if self.charter.schema is None else self.charter.bound(plan).assembler(state)

    def _replay(self) -> None:
        # Sinks may have the results of a step that is not known here: all must be there.
        steps = [*self._journal.replay()]
        following = [step.step for step in steps]
        if following != [*range(self.number + 1, self.number + 1 + len(steps))]:
            raise damaged("steps", f"{following} follow step {self.number}")
        self.undone = steps if self.apart else []
        for step in steps:
            for id, since in step.since.items():
                self.inbox.join([id], since)
            self._has(step)
            if not self.apart:
                self._carry_out(step, deliver=step is steps[-1])

    def _has(self, step: RootStep) -> None:
        """Raises if a step has taken messages of which the inbox does not know any more."""
        for id, last in step.take.items():
            if last > (here := self.inbox.received(id)):
                why = f"step {step.step} has taken message {last}, the last one there is {here}"
                raise damaged(f"inbox-{id}", why)

    def _expect(self, now: int) -> None:
        self.inbox.expect(self.charter, self.id, now, self.frontier)
        if self._part() & {*self.charter.children(self.id)}:  # removed and added again
            self.inbox.expect(self.charter, self.id, now, self.frontier)

    def _part(self) -> set[str]:
        """Forgets former children; gives their ids. A snapshot is written before, so that no step
        needs their messages again."""
        gone = self.inbox.gone()
        if not gone or self.undone:
            return set()
        self.snapshot()
        self.inbox.forget(gone)
        return {*gone}

    # -- a step -----------------------------------------------------------------------------------

    def step(self, now: int) -> bool:
        """Takes what has come; whether anything happened."""
        step = self.decide(now)
        if step is None:
            return False
        self._carry_out(step, deliver=True)
        if self._journal.due:
            self.snapshot()
        self._part()
        return True

    def decide(self, now: int) -> RootStep | None:
        """Decides what the next step takes and how far it goes, and writes that down."""
        if self.charter.schema is None:
            return None
        charter, last = self.charter, self.last
        choice = self.inbox.choose(
            self.plan, charter.plan, now, charter.settings.timeout, self.frontier
        )
        plan, view = choice.plan, choice.view
        frontier = self.frontier if view.frontier is None else max(self.frontier, view.frontier)
        decided = (plan, frontier, view.complete_until, view.missing)
        if not choice.upto and last is not None and decided == last.decided:
            return None
        chosen = self.inbox.chosen(choice.upto)
        heads = [self.inbox.head(id, seq) for id, seq in chosen]
        newest = max([EARLIEST if last is None else last.newest, *(head.newest for head in heads)])
        reached = EARLIEST if last is None else last.reach
        # No further than where every window that holds an event is complete: events of somebody
        # who is missing may still come after the others have ended.
        furthest = newest + 1 + longest(charter.plans[plan].plan)
        reach = min(frontier, furthest) if newest > EARLIEST else frontier
        ended = {} if last is None else dict(last.ended)
        for head in heads:
            ended |= head.ended
        found = [behind_of(head, plan) for head in heads]
        found += [self.inbox.lacks(id, seq) for id, seq in chosen]
        oldest = reached - self._keep(plan) - longest(charter.plans[plan].plan)
        behind = recent(joined([self._behind, *found]), oldest)
        step = RootStep(
            step=self.number + 1,
            plan=plan,
            now=now,
            take=choice.upto,
            view=view,
            frontier=frontier,
            reach=max(reach, reached),
            complete_until=max(self.complete_until, view.complete_until),
            newest=newest,
            too_late=max(reached - self._keep(plan), EARLIEST),
            charter=charter.version,
            lagging=lagging_in(behind, charter, plan),
            ended=ended,
            live=self._live(plan, ended, max(reach, reached)),
            since={id: child.since for id, child in self.inbox.children.items()},
            readers=self._readers(view.missing) if charter.distributed_groups(plan) else None,
        )
        self._journal.append(step)
        return step

    def _live(self, plan: int, ended: dict[str, int], reach: int) -> tuple[str, ...] | None:
        """The nodes that may still bring slices, where some windows are read by stream.

        Until the frontier has passed its last event, those of one that has ended may be on the way.
        """
        groups = self.charter.plans[plan].plan.groups
        if not any(group.slicing == "stream" for group in groups):
            return None
        places = self.charter.places.values()
        live = (p.id for p in places if p.source and ended.get(p.id, reach) >= reach)
        return tuple(sorted(live))

    def _readers(self, missing: tuple[str, ...]) -> Readers:
        """Who reads events, and who of them is missing, or below somebody who is."""
        places = [place for place in self.charter.places.values() if place.source]
        away = [place.number for place in places if self.charter.below(place.id, missing)]
        return Readers(tuple(sorted(place.number for place in places)), tuple(away))

    def _keep(self, plan: int) -> int:
        """How long before the frontier results may still be corrected."""
        if plan not in self._keeps:
            self._keeps[plan] = self.charter.bound(plan).keep
        return self._keeps[plan]

    def _carry_out(self, step: RootStep, deliver: bool) -> None:
        if self.assembler is None:
            self.assembler = self._assembler(self.plan)
        assert self.assembler is not None
        assembler = self.assembler
        assembler.clock = lambda: step.now
        if step.plan > self.plan:  # what the others had seen when they went over
            assembler.absorb(Partials(), step.newest)
        for version in range(self.plan + 1, step.plan + 1):
            planned = self.charter.plans[version]
            bound = self.charter.bound(version)
            assembler.follow(bound, planned.lineage, planned.leaving)
        counting = self._counting_in(step)
        for id, seq in self.inbox.chosen(step.take):
            with taking(id, seq):
                self._take(id, seq, step)
        step = self._with_lost(step)
        uncounted: tuple[Uncounted, ...] = ()
        if counting is not None and step.readers is not None:
            assembler.absorb(counting.step(step.readers.away))
            self.counts["late"] += counting.newly_late()
            uncounted = self._uncounted(counting)
        assembler.live = step.live
        if step.closing:
            results = assembler.close()
            self.counts |= self._unended(assembler.counts, counting)
        else:
            results = assembler.advance(step.reach, step.complete_until)
        self.counts["results"] += results.rows()
        self.counts["missed"] = assembler.missed
        self.drained = tuple(assembler.drained(self.charter.distributed_groups(step.plan)))
        self.last = step
        self._observe(step)
        if deliver and len(results):
            planned = self.charter.plans[step.plan]
            short = partial(lacking_in, step.lagging, planned, uncounted)
            tables = marked(results, step.complete_until, step.view.missing, short)
            named = planned.delivered(tables)
            self.deliver(Delivery(self.charter.job, step.step, 0, *named))

    def _unended(self, counts: Mapping[str, int], counting: RootByKey | None) -> dict[str, int]:
        """Windows that never ended: those of the assembler, and those found by asking."""
        asked = (0, 0) if counting is None else counting.not_full()
        return {name: counts.get(name, 0) + asked[n] for n, name in enumerate(_OPEN)}

    def _with_lost(self, step: RootStep) -> RootStep:
        """With what could not be taken, where a step that was decided should have taken it."""
        gone = self.inbox.gone_in(step.take, step.newest)
        lost = joined([self.inbox.take_lost(), gone, lost_in(self._behind)])
        lost = recent(lost, step.too_late - longest(self.charter.plans[step.plan].plan))
        if not lost:
            return step
        known = {} if step.lagging is None else step.lagging.behind
        return replace(step, lagging=lagging_in(joined([known, lost]), self.charter, step.plan))

    def _take(self, id: str, seq: int, step: RootStep) -> None:
        assert self.assembler is not None
        body = self.inbox.body(id, seq)
        found = taken(body, step.plan, self.charter, step.too_late)
        self.assembler.absorb(found.partials, found.head.newest)
        if found.notes is not None and self.counting is not None:
            self.counting.take(found.notes)
        self.counts["late"] += found.late
        for name in _COUNTS:
            self.counts[name] += found.head.counts.get(name, 0)
        self._journal.grew(len(body))
        self.inbox.take(id, found.head, EARLIEST)

    def _root_by_key(self, saved: bytes = b"") -> RootByKey:
        """The count windows that are found by asking."""
        scheme, groups = self.charter.settings.count, self.charter.distributed_groups(self.plan)
        return RootByKey(scheme, self.charter.bound(self.plan), groups, saved)

    def _counting_in(self, step: RootStep) -> RootByKey | None:
        """The count windows that are found by asking, as a step begins; None: there are none."""
        if step.readers is None:
            return None  # it stays: orders go on from the last number that nodes have heard
        counting = self.counting = self.counting or self._root_by_key()
        if step.plan > self.plan:
            counting.switch(
                self.charter.bound(step.plan), self.charter.distributed_groups(step.plan)
            )
        counting.follow(list(step.readers.numbers))
        return counting

    def count(self, step: RootStep) -> tuple[RootStep, Partials]:
        """For a step that is carried out elsewhere: the step with what was counted for it, and the
        count windows that it makes full."""
        counting, late = self._counting_in(step), 0 if self.last is None else self.last.counted_late
        if counting is None or step.readers is None:
            return replace(step, counted_late=late), Partials()
        for id, seq in self.inbox.chosen(step.take):
            notes = notes_of(self.inbox.body(id, seq))
            if notes is not None:
                counting.take(notes)
        full = counting.step(step.readers.away)
        late += counting.newly_late()
        return replace(step, uncounted=self._uncounted(counting), counted_late=late), full

    def _uncounted(self, counting: RootByKey) -> tuple[Uncounted, ...]:
        """Count windows of this step that are not all that they should be, and why."""
        ids = {place.number: place.id for place in self.charter.places.values()}
        return tuple(
            Uncounted(
                id, window.number, key.values, tuple(ids.get(n, str(n)) for n in window.missing)
            )
            for id, key, window in counting.uncounted
        )

    def carried_out(
        self, step: RootStep, counts: dict[str, int], drained: tuple[str, ...] = ()
    ) -> None:
        """A step was carried out elsewhere, where the state is kept too."""
        self.drained = drained
        for id, seq in self.inbox.chosen(step.take):
            self.inbox.take(id, self.inbox.head(id, seq), EARLIEST)
        step = self._with_lost(step)
        self.counts = {name: counts.get(name, 0) for name in self.counts}
        self.counts["late"] += step.counted_late
        if step.closing:
            self.counts |= self._unended(self.counts, self.counting)
        self.last = replace(step, uncounted=())  # they were told
        self._observe(step)
        self.snapshot()
        self._part()

    # -- the rate of events -----------------------------------------------------------------------

    @property
    def planned_rate(self) -> float:
        """Events in a second of event time that the plan was made for."""
        return self.charter.plans[self.plan].plan.rate.per_second

    def _observe(self, step: RootStep) -> None:
        accepted = self.counts["events"] - self.counts["late"] - self.counts["bad"]
        self.observed = self.observed.after(accepted, step.newest)

    def losing(self) -> frozenset[int]:
        """Groups whose way of slicing loses at the rate at which events come, each time once.

        Only while all nodes are there and work by the newest plan.
        """
        planned = self.charter.plans[self.charter.plan]
        if self.plan != self.charter.plan or self.missing:
            return frozenset()
        before = self.observed
        self.observed, handed = before.next(planned.plan, planned.leaving)
        if self.observed.replans > before.replans:
            self.snapshot()  # so that they stay few, however often the root starts again
        return handed

    # -- letting go -------------------------------------------------------------------------------

    def capacities(self) -> list[Capacity]:
        # How long the log of steps is that a restart carries out again.
        found = [self._journal.capacity("log of the root's steps")]
        found += [] if self.assembler is None else self.assembler.capacities()
        if self.counting is not None:
            found.append(lanes_capacity(len(self.counting.lanes)))
        return found

    def snapshot(self) -> None:
        """Writes the whole state down, and lets go of what led to it."""
        counting = None if self.counting is None else self.counting.to_bytes()
        assembler = None if self.assembler is None else self.assembler.save()
        children = dict(self.inbox.children)
        state = RootState(self.last, self.counts, children, counting, assembler, self.observed)
        self._journal.compact(state, self.number)
        for id, child in self.inbox.children.items():
            self.inbox.trim(id, child.taken)

    # -- the charter ------------------------------------------------------------------------------

    def commit(self) -> None:
        return

    def follow(self, charter: Charter, now: int) -> None:
        self.charter = charter
        self._expect(now)

    def acknowledged(self, received: int, settled: int) -> None:
        return  # it has no parent

    def amendments(self) -> Iterator[Charter]:
        """Where moves have ended, where queries that leave have given their last window, and where
        events come at quite another rate than the plan was made for."""
        landed = self.inbox.landed()
        if landed:
            yield self.charter.landed(landed)
        over, self.drained = set(self.drained), ()
        planned = self.charter.plans[self.charter.plan]
        if leaving := over & set(planned.leaving):
            yield self.charter.without_queries(leaving)
        if former := over & planned.plan.former.keys():
            yield self.charter.without_former(former)
        handed = self.losing()
        if handed and self.observed.rate is not None:
            yield self.charter.handed_over(handed, self.observed.rate)

    def progress(self) -> RoleProgress:
        return RoleProgress(
            self.frontier,
            self.complete_until,
            self.missing,
            self.plan,
            step=self.number,
            counts=dict(self.counts),
            event_rate=UNSET if self.observed.rate is None else self.observed.rate,
            planned_rate=self.planned_rate,
            count_windows=UNSET if self.counting is None else self.counting.status(),
        )
