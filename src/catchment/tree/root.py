"""The root of a tree.

Messages of its children come in through the inbox. A step decides which of them it takes and how
far the frontier goes, writes that down, assembles the windows that are complete then, and delivers
them, marked with the nodes whose events may lack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import UNSET
from msgspec.structs import replace

from catchment.counting.orders import Orders, lanes_capacity
from catchment.counting.root_by_key import RootByKey
from catchment.durable.disk import Disk, damaged
from catchment.durable.journaled import Journaled
from catchment.engine.assembler import Assembler
from catchment.engine.partials import Partials
from catchment.errors import StateError
from catchment.marking.root import RootMarks
from catchment.model.capacity import Capacity
from catchment.model.plan import longest_chain, unbounded
from catchment.planner.cost import smallest_gap
from catchment.planner.edges import EARLIEST, LATEST
from catchment.planner.observed import RateWatch
from catchment.ranking.root import RootRanks
from catchment.sinks.base import Delivery
from catchment.tree.charter import Charter
from catchment.tree.completeness import inclusive_in, lacking_in, marked
from catchment.tree.decode import last_end, taken
from catchment.tree.edges_told import next_edge
from catchment.tree.inbox import Inbox, taking
from catchment.tree.known_plans import KnownPlans, speaker_of
from catchment.tree.message import Head, behind_of, notes_of
from catchment.tree.records import (
    Behind,
    Lag,
    PlansBegun,
    Readers,
    RootState,
    RootStep,
    Uncounted,
    Unranked,
)
from catchment.tree.role_progress import RoleProgress
from catchment.tree.stale_plan import followed, joined, lagging_in, lost_in, recent
from catchment.tree.words import MOST

_COUNTS = ("events", "late", "bad", "updates", "no_window", "aside_dropped")
_OPEN = ("open_windows", "open_events")
"""Counts of windows that had not ended when all nodes had ended, and of the events in them."""

_SOON = 64
"""The root asks nodes about the end of a session only if that saves more than one part in so many
of the time until they tell their frontier by themselves."""

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
        self.ranking: RootRanks | None = None
        self.marking: RootMarks | None = None
        self.due: int | None = None
        """When the next session ends, if nodes would not tell their frontier soon after that. The
        nodes are then asked, so that the result of the session does not wait for their next
        message."""
        self.assembler: Assembler | None = None
        saved, self._journal.state = self._journal.state, None
        self._restore(saved)
        self.inbox = Inbox(disk, {} if saved is None else dict(saved.children), charter)
        if saved is not None and saved.counting is not None:
            self.counting = self._root_by_key(saved.counting)
        if saved is not None and saved.ranking is not None:
            self.ranking = self._root_ranks(saved.ranking)
        if saved is not None and saved.marking is not None:
            self.marking = self._root_marks(saved.marking)
        self._replay()
        if self.assembler is not None and charter.distributed_groups(self.plan):
            self.counting = self.counting or self._root_by_key()
        self._expect(now)

    @property
    def frontier(self) -> int:
        return EARLIEST if self.last is None else self.last.frontier

    @property
    def complete_until(self) -> int:
        """Nothing is missing before it, also nothing of nodes that are no longer waited for."""
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
    def questions(self) -> Orders | None:
        return None if self.ranking is None else self.ranking.orders

    @property
    def edges(self) -> Orders | None:
        return None if self.marking is None else self.marking.orders

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
        """Raises if a step took messages that the inbox has lost."""
        for id, last in step.take.items():
            if last > (here := self.inbox.received(id)):
                why = f"step {step.step} has taken message {last}, the last one there is {here}"
                raise damaged(f"inbox-{id}", why)

    def _expect(self, now: int) -> None:
        self.inbox.expect(self.charter, self.id, now, self.frontier)
        if self._part(now) & {*self.charter.children(self.id)}:  # removed and added again
            self.inbox.expect(self.charter, self.id, now, self.frontier)

    def _part(self, now: int) -> set[str]:
        """Forgets former children; gives their ids. A snapshot is written before, so that no step
        needs their messages again."""
        self.inbox.succeed(now)
        gone = self.inbox.gone()
        if not gone or self.undone:
            return set()
        self.snapshot()
        self.inbox.forget(gone)
        return {*gone}

    # -- a step -----------------------------------------------------------------------------------

    def step(self, now: int) -> bool:
        """Takes messages that have come, as one step; False where there was nothing to do."""
        step = self.decide(now)
        if step is None:
            return False
        self._carry_out(step, deliver=True)
        if self._journal.due:
            self.snapshot()
        self._part(now)
        return True

    def decide(self, now: int) -> RootStep | None:
        """Decides what the next step takes and how far it goes, and writes that down."""
        if self.charter.schema is None:
            return None
        charter, last = self.charter, self.last
        kept = charter.ranked_groups(charter.plan) or charter.cut_sets(charter.plan)
        if self.apart and kept:
            raise StateError(
                "nodes keep rows back until the root asks, and a root on Spark does not ask",
                given=self.id,
                hint="start the root with the engine it was first started with",
            )
        choice = self.inbox.choose(
            self.plan, charter.plan, now, charter.settings.timeout, self.frontier
        )
        plan, view = choice.plan, choice.view
        frontier = self.frontier if view.frontier is None else max(self.frontier, view.frontier)
        decided = (plan, frontier, view.complete_until, view.missing)
        timeout = charter.settings.timeout
        silent: object = self.ranking is not None and self.ranking.overdue(now, timeout)
        silent = silent or (self.marking is not None and self.marking.overdue(now, timeout))
        silent = silent or (self.counting is not None and self.counting.overdue(now, timeout))
        if not choice.upto and last is not None and decided == last.decided and not silent:
            return None
        chosen = self.inbox.chosen(choice.upto)
        heads = [self.inbox.head(id, seq) for id, seq in chosen]
        newest = max([EARLIEST if last is None else last.newest, *(head.newest for head in heads)])
        begun = (
            {} if last is None else {n: at for n, at in last.begun.items() if n in charter.plans}
        )
        if plan > self.plan:
            newest = max(newest, self.inbox.newest_before(plan))
            begun[plan] = newest
        reached = EARLIEST if last is None else last.reach
        # No further than where every window that holds an event is complete: events of somebody
        # who is missing may still come after the others have ended, or have had none.
        reach = min(frontier, newest + 1 + longest_chain(charter.plans[plan].plan))
        ended = {} if last is None else dict(last.ended)
        for head in heads:
            ended |= head.ended
        found = self._behind_of(heads, plan, begun)
        found += [self.inbox.lacks(id, seq) for id, seq in chosen]
        too_late = max(reached - self._keep(plan), EARLIEST)
        found += [self._late_in(id, seq, plan, too_late) for id, seq in chosen]
        known = self._behind
        for version in range(self.plan + 1, plan + 1):
            known = followed(known, charter.plans[version].lineage)
        # Of windows that wait for answers, none later was given than they.
        given = min([reached, *self._held.values()])
        oldest = given - self._keep(plan) - longest_chain(charter.plans[plan].plan)
        behind = recent(joined([known, *found]), oldest, unbounded(charter.plans[plan].plan))
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
            too_late=too_late,
            charter=charter.version,
            lagging=lagging_in(behind, charter, plan),
            ended=ended,
            live=self._live(plan, ended, max(reach, reached)),
            since={id: child.since for id, child in self.inbox.children.items()},
            readers=self._readers(view.missing) if self._questions_readers(plan) else None,
            begun=begun,
        )
        self._journal.append(step)
        return step

    def _behind_of(self, heads: Sequence[Head], plan: int, begun: PlansBegun) -> list[Behind]:
        """What messages tell of events that were cut by older plans than the one in use."""
        before = {id: child.plan for id, child in self.inbox.children.items()}
        found = []
        for head in heads:
            found.append(behind_of(head, plan, before[head.node], begun))
            before[head.node] = head.plan
        return found

    def _late_in(self, id: str, seq: int, plan: int, too_late: int) -> Behind:
        """What results lack after a message of a child that was no longer waited for: those of its
        slices that come too late."""
        if self.inbox.children[id].complete_until >= too_late:
            return {}
        with taking(id, seq):
            found = taken(self.inbox.body(id, seq), plan, self.charter, too_late, at_root=True)
        return {id: Lag(late=found.late_until)} if found.late_until else {}

    def _live(self, plan: int, ended: dict[str, int], reach: int) -> tuple[str, ...] | None:
        """The nodes that may still bring slices, where some windows are read by stream.

        Slices of a node that has ended may still be on their way until the frontier has passed its
        last event.
        """
        groups = self.charter.plans[plan].plan.groups
        if not any(group.slicing == "stream" for group in groups):
            return None
        places = self.charter.places.values()
        live = (p.stream for p in places if p.source and ended.get(p.stream, reach) >= reach)
        return tuple(sorted(live))

    def _questions_readers(self, plan: int) -> bool:
        """Whether nodes that read events are asked something, by a version of the plan."""
        charter = self.charter
        ranked = charter.distributed_groups(plan) or charter.ranked_groups(plan)
        return bool(ranked) or charter.settings.asks_marks

    def _readers(self, missing: tuple[str, ...]) -> Readers:
        """The nodes that read events, and those of them that are missing or below such a node."""
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
        counting, ranking = self._counting_in(step), self._ranking_in(step)
        marking = self._marking_in(step)
        for id, seq in self.inbox.chosen(step.take):
            with taking(id, seq):
                self._take(id, seq, step)
        step = self._with_lost(step)
        uncounted: tuple[Uncounted, ...] = ()
        if counting is not None and step.readers is not None:
            assembler.absorb(self._count_in(counting, step, step.readers))
            self.counts["late"] += counting.newly_late()
            uncounted = self._uncounted(counting)
        unranked: tuple[Unranked, ...] = ()
        assembler.held, assembler.fill = {}, None
        if ranking is not None and step.readers is not None:
            reach = LATEST if step.closing else step.reach
            ranking.over(reach, step.complete_until, step.view.missing)
            timeout = self.charter.settings.timeout
            ranking.step(reach, step.readers.numbers, step.readers.away, step.now, timeout)
            assembler.held, assembler.fill = ranking.held, ranking.fill
            assembler.beside = ranking.nbytes
            unranked = self._unranked(ranking)
        if marking is not None and step.readers is not None and not step.closing:
            step = self._cut_at_marks(marking, step, step.readers, assembler)
            assembler.held = self._held
        assembler.live = step.live
        if step.closing:
            results = assembler.close()
            self.counts |= self._unended(assembler.counts, counting)
        else:
            results = assembler.advance(step.reach, step.complete_until)
        if ranking is not None:
            ranking.given()
        self.counts["results"] += results.rows()
        self.counts["missed"] = assembler.missed
        self.drained = tuple(assembler.drained(self.charter.distributed_groups(step.plan)))
        self.last = step
        self.due = self._next_due(step, assembler.next_end())
        self._observe(step)
        if deliver and len(results):
            planned = self.charter.plans[step.plan]
            short = partial(lacking_in, step.lagging, planned, uncounted, unranked)
            inclusive = inclusive_in(planned)
            tables = marked(results, step.complete_until, step.view.missing, short, inclusive)
            named = planned.delivered(tables)
            self.deliver(Delivery(self.charter.job, step.step, 0, *named))

    def _next_due(self, step: RootStep, end: int | None) -> int | None:
        """The end of the next session, if it is worth a question."""
        if end is None or step.closing or step.reach <= EARLIEST:
            return None
        asked = self.charter.distributed_groups(step.plan)
        marked = self.charter.marked_groups(step.plan)
        told = next_edge(self.charter.plans[step.plan].plan, asked, marked, step.reach)
        return end if (told - end) * _SOON > told - step.reach else None

    def _has_sessions(self, plan: int) -> bool:
        groups = self.charter.plans[plan].plan.every_group
        return any(smallest_gap(group.windows) is not None for group in groups)

    def _unended(self, counts: Mapping[str, int], counting: RootByKey | None) -> dict[str, int]:
        """Windows that never ended: those of the assembler, and those found by asking."""
        asked = (0, 0) if counting is None else counting.not_full()
        return {name: counts.get(name, 0) + asked[n] for n, name in enumerate(_OPEN)}

    def _with_lost(self, step: RootStep) -> RootStep:
        """With what could not be taken, where a step that was decided should have taken it."""
        gone = self.inbox.gone_in(step.take, step.newest)
        lost = joined([self.inbox.take_lost(), gone, lost_in(self._behind)])
        lost = recent(lost, step.too_late - longest_chain(self.charter.plans[step.plan].plan))
        if not lost:
            return step
        known = {} if step.lagging is None else step.lagging.behind
        return replace(step, lagging=lagging_in(joined([known, lost]), self.charter, step.plan))

    def _take(self, id: str, seq: int, step: RootStep) -> None:
        assert self.assembler is not None
        body, head = self.inbox.body(id, seq), self.inbox.head(id, seq)
        found = taken(body, step.plan, self.charter, step.too_late, at_root=True)
        partials = found.partials
        if self.ranking is not None:
            partials = Partials(self.ranking.absorb(partials.groups), partials.events)
        self.assembler.absorb(partials, head.newest)
        if self.marking is not None:
            plans = KnownPlans(self.charter, step.plan)
            speaker = speaker_of(head, self.charter)
            self.marking.take(found.marks, speaker, self.assembler, plans)
        if found.ranks is not None and self.ranking is not None:
            self.ranking.take(found.ranks, step.too_late)
            for group, rows in self.ranking.rows():
                self.assembler.absorb(Partials({group: rows}))
        if found.notes is not None and self.counting is not None:
            self.counting.take(found.notes)
        self.counts["late"] = min(self.counts["late"] + found.late, MOST)
        for name in _COUNTS:
            self.counts[name] = min(self.counts[name] + head.counts.get(name, 0), MOST)
        self._journal.grew(len(body))
        self.inbox.take(id, head, found.end, passes_on=False)

    def _root_by_key(self, saved: bytes = b"") -> RootByKey:
        """The count windows that are found by asking."""
        settings, groups = self.charter.settings, self.charter.distributed_groups(self.plan)
        bound, options = self.charter.bound(self.plan), settings.count_options
        return RootByKey(settings.count, bound, groups, saved, options)

    def _root_ranks(self, saved: bytes = b"") -> RootRanks:
        """The values that are asked for."""
        return RootRanks(
            self.charter.bound(self.plan), self.charter.ranked_groups(self.plan), saved
        )

    def _ranking_in(self, step: RootStep) -> RootRanks | None:
        """The values that are asked for, as a step begins; None: there are none."""
        groups = self.charter.ranked_groups(step.plan)
        if self.ranking is None and not groups:
            return None
        ranking = self.ranking = self.ranking or self._root_ranks()
        if step.plan > self.plan:
            ranking.switch(self.charter.bound(step.plan), groups)
        return ranking

    @property
    def _held(self) -> dict[int, int]:
        """By group: the time up to which windows can be given that wait for answers of nodes."""
        ranked = {} if self.ranking is None else self.ranking.held
        return ranked if self.marking is None else ranked | self.marking.held

    def _root_marks(self, saved: bytes = b"") -> RootMarks:
        """The user-defined windows that are found by their marks."""
        return RootMarks(self.charter.bound(self.plan), self.charter.cut_sets(self.plan), saved)

    def _marking_in(self, step: RootStep) -> RootMarks | None:
        """The windows that are found by their marks, as a step begins; None: events climb."""
        if not self.charter.settings.asks_marks:
            return None
        if self.marking is None or step.plan > self.plan:
            marking = self.marking = self.marking or self._root_marks()
            marking.switch(self.charter.bound(step.plan), self.charter.cut_sets(step.plan))
        return self.marking

    def _cut_at_marks(
        self, marking: RootMarks, step: RootStep, readers: Readers, assembler: Assembler
    ) -> RootStep:
        """Tells nodes of marks; the step, with what windows lack of nodes that did not answer."""
        marking.step(
            assembler,
            step.reach,
            step.frontier,
            readers.numbers,
            readers.away,
            step.now,
            self.charter.settings.timeout,
        )
        self.counts["late"] += marking.newly_late()
        ids = {place.number: place.id for place in self.charter.places.values()}
        lags = [
            {ids[node]: Lag(late=dict.fromkeys(one.groups, one.until))}
            for one in marking.lacking
            for node in one.nodes
        ]
        if not lags:
            return step
        known = {} if step.lagging is None else step.lagging.behind
        return replace(step, lagging=lagging_in(joined([known, *lags]), self.charter, step.plan))

    def _unranked(self, ranking: RootRanks) -> tuple[Unranked, ...]:
        """Windows of this step that lack values of nodes, and whose."""
        ids = {place.number: place.id for place in self.charter.places.values()}
        found = [
            Unranked(
                one.group,
                one.end - 1,
                one.end,
                tuple(ids.get(n, str(n)) for n in one.nodes),
                one.start,
            )
            for one in ranking.lacking
        ]
        found += [
            Unranked(id, one.after, one.by, one.missing)
            for one in ranking.passed
            for id in ranking.held
        ]
        return tuple(found)

    def _counting_in(self, step: RootStep) -> RootByKey | None:
        """The count windows that are found by asking, as a step begins; None: there are none."""
        if step.readers is None or not self.charter.distributed_groups(step.plan):
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
        full = self._count_in(counting, step, step.readers)
        late += counting.newly_late()
        return replace(step, uncounted=self._uncounted(counting), counted_late=late), full

    def _count_in(self, counting: RootByKey, step: RootStep, readers: Readers) -> Partials:
        """The count windows that a step makes full."""
        timeout = self.charter.settings.timeout
        return counting.step(readers.away, step.frontier, step.now, timeout)

    def _uncounted(self, counting: RootByKey) -> tuple[Uncounted, ...]:
        """Count windows of this step that are not all that they should be, and why."""
        ids = {place.number: place.id for place in self.charter.places.values()}
        found = []
        for id, key, window in counting.uncounted:
            # Where the edge was not verified, any node may have had other events in the window.
            numbers = window.missing if window.exact else sorted(counting.nodes)
            nodes = tuple(ids.get(number, str(number)) for number in numbers)
            found.append(Uncounted(id, window.number, key.values, nodes))
        return tuple(found)

    def carried_out(
        self, step: RootStep, counts: dict[str, int], drained: tuple[str, ...] = ()
    ) -> None:
        """A step was carried out elsewhere, where the state is kept too."""
        self.drained = drained
        for id, seq in self.inbox.chosen(step.take):
            end = last_end(self.inbox.body(id, seq), self.charter)
            self.inbox.take(id, self.inbox.head(id, seq), end, passes_on=False)
        step = self._with_lost(step)
        self.counts = {name: counts.get(name, 0) for name in self.counts}
        self.counts["late"] += step.counted_late
        if step.closing:
            self.counts |= self._unended(self.counts, self.counting)
        self.last = replace(step, uncounted=())  # they were told
        # When sessions end is known only there: any step of the nodes may complete one.
        self.due = self._next_due(step, step.reach if self._has_sessions(step.plan) else None)
        self._observe(step)
        self.snapshot()
        self._part(step.now)

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
        """Writes the whole state down, and removes the steps that led to it."""
        counting = None if self.counting is None else self.counting.to_bytes()
        assembler = None if self.assembler is None else self.assembler.save()
        children = dict(self.inbox.children)
        ranking = None if self.ranking is None else self.ranking.to_bytes()
        marking = None if self.marking is None else self.marking.to_bytes()
        state = RootState(
            self.last, self.counts, children, counting, assembler, self.observed, ranking, marking
        )
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
            lost={id: lag.lost for id, lag in self._behind.items() if lag.lost is not None},
            not_asked=self._not_asked(),
        )

    def _not_asked(self) -> dict[str, str]:
        """Nodes whose answers are set aside, and why."""
        ids = {place.number: place.id for place in self.charter.places.values()}
        aside = {} if self.ranking is None else self.ranking.aside
        aside = aside if self.marking is None else aside | self.marking.aside
        aside = aside if self.counting is None else aside | self.counting.aside
        return {ids[number]: why for number, why in aside.items() if number in ids}
