"""A plan bound to the columns of real events and to the rules of a job: checked once, then read.

    plan + schema + rules -> BoundPlan -> Slicer      events to slices, where they are read
                                       -> Merger      slices to fewer, on their way
                                       -> Assembler   slices to windows, at the root

Every runtime is made of these three. Where a plan changes, `follow` binds the next one to the same
columns and rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pyarrow as pa

from catchment.engine.assembler import Assembler
from catchment.engine.binding import Types, bind_types, check_rules, columns_of, key_types
from catchment.engine.bound_group import BoundGroup
from catchment.engine.bound_waiting import BoundWaiting
from catchment.engine.keys import Encoder
from catchment.engine.merger import Merger
from catchment.engine.results import TIME, Limit, NamesOf, ResultColumns, Results
from catchment.engine.set_aside import Spill
from catchment.engine.slicer import Slicer
from catchment.engine.slicing import SharedSlicer
from catchment.engine.times import now
from catchment.model.capacity import MemoryLimits
from catchment.model.duration import micros
from catchment.model.early import FINAL
from catchment.model.plan import Group, Plan, longest
from catchment.model.query import ALONE, WINDOW_TIME
from catchment.model.rules import EventRules
from catchment.planner.together import sliced_together, waiting_together

GroupTypes = tuple[Types, dict[str, pa.DataType]]
"""The types of a group's values, and of its keys."""


class BoundPlan:
    """A plan, the columns of the events, and how events are treated.

    Without a schema nobody knows yet what events look like: no group is bound, and the results are
    empty tables.
    """

    def __init__(
        self,
        plan: Plan,
        rules: EventRules,
        schema: pa.Schema | None = None,
        *,
        census: bool = False,
        limits: MemoryLimits | None = None,
        apart: Collection[int] = (),
        late_by_slice: bool = False,
        made_of: Mapping[int, int] | None = None,
    ) -> None:
        check_rules(plan, rules.time_name, rules.corrects)
        self.plan, self.rules, self.census = plan, rules, census
        self.apart = frozenset(apart)
        """Groups whose events wait by themselves, because somebody else takes them."""
        self.late_by_slice = late_by_slice
        """Whether slicers do not know the frontier: see `Assembler.on_time`."""
        self.made_of = dict(made_of or {})
        """Groups that are not sliced: they are made of the partials of others, where windows are
        assembled (`planner.coarser`)."""
        self.limits = limits or MemoryLimits.of()
        known: dict[int, GroupTypes] = {}
        self.events = schema
        """The columns of events as they come."""
        if schema is not None:
            schema, types = bind_types(plan, schema, rules.time)
            known = {
                group.id: (
                    types[group.id],
                    key_types(group, schema),
                )
                for group in plan.groups
            }
        self.schema = schema
        """The columns of events, in the types that they are worked on in."""
        self._bind(known)

    def _bind(self, known: Mapping[int, GroupTypes]) -> None:
        self.names = NamesOf(self.plan)
        self.columns = set().union(*(columns_of(group) for group in self.plan.groups))
        self.columns |= {self.rules.time_name}
        """The columns that are read of events."""
        windows = [window for group in self.plan.groups for window in group.windows]
        self.requirements = tuple(dict.fromkeys(w.requires for w in windows if w.requires))
        """Conditions without which an event is in no window of some query, whatever that asks."""
        self.groups = {
            group.id: BoundGroup(group, *known[group.id], self.updates(group), self.census)
            for group in self.plan.groups
            if group.id in known
        }
        """The groups whose types are known, by their ids."""
        alike = sorted(
            self.groups, key=lambda id: [c or "" for c in self.groups[id].group.selections]
        )
        self.by_selections = {id: self.groups[id] for id in alike}
        """The same, those of the same conditions one after the other."""
        sliced = [bound.group for id, bound in self.groups.items() if id not in self.made_of]
        sets = sliced_together(sliced)
        self.shared = [SharedSlicer({id: self.groups[id].slicer for id in ids}) for ids in sets]
        """Slicers of groups that may be sliced together."""
        self.waiting = {
            ids[0]: BoundWaiting({id: self.groups[id] for id in ids})
            for ids in waiting_together(self.plan.groups, self.apart)
            if ids[0] in self.groups
        }
        """Sets of groups whose events wait together, by the id of the first."""
        self.shapes = {
            group.id: self.groups[group.id].shape
            if group.id in self.groups
            else ResultColumns(group, {None: None}, {}, self.updates(group))
            for group in self.plan.groups
        }
        self.sources: dict[str, BoundPlan] = {}
        """By results that other queries read: the groups that read them, bound to their columns."""
        for label in self.plan.sources:
            self.sources[label] = self._over_results(label)
            self.shapes |= self.sources[label].shapes

    def _over_results(self, label: str) -> BoundPlan:
        """The groups whose events are some results."""
        id, number = self.plan.sources[label]
        groups = tuple(group for group in self.plan.nested if group.source == label)
        inside = {group.id for group in groups}
        names = {name: place for name, place in self.plan.names.items() if place[0] in inside}
        known = id in self.groups or any(id in source.groups for source in self.sources.values())
        columns = self.shapes[id].result_schema(number) if known else None
        if columns is not None:
            columns = columns.append(pa.field(WINDOW_TIME, TIME))
        rules = EventRules(WINDOW_TIME, incomplete=self.rules.incomplete)
        return BoundPlan(Plan(groups=groups, names=names), rules, columns, limits=self.limits)

    @property
    def every_group(self) -> dict[int, BoundGroup]:
        """The groups whose types are known, over events and over results, by their ids."""
        found = dict(self.groups)
        for source in self.sources.values():
            found |= source.groups
        return found

    @property
    def every_waiting(self) -> dict[int, BoundWaiting]:
        """Sets of groups whose events, or results that they read, wait together."""
        found = dict(self.waiting)
        for source in self.sources.values():
            found |= source.waiting
        return found

    @classmethod
    def of_partials(cls, plan: Plan, known: Mapping[int, GroupTypes]) -> BoundPlan:
        """A plan over partials, which tell the types of their values and keys.

        Groups whose types are not given take no part.
        """
        made = cls(plan, EventRules(plan.time or "ts"))
        made._bind(known)
        return made

    def bind(self, schema: pa.Schema) -> BoundPlan:
        """The same plan over events of these columns."""
        return BoundPlan(
            self.plan,
            self.rules,
            schema,
            census=self.census,
            limits=self.limits,
            apart=self.apart,
            late_by_slice=self.late_by_slice,
            made_of=self.made_of,
        )

    def follow(self, plan: Plan) -> BoundPlan:
        """Another plan over the same columns, by the same rules."""
        return BoundPlan(plan, self.rules, self.events, census=self.census, limits=self.limits)

    def updates(self, group: Group) -> bool:
        """Whether results of a group may be corrected: by late events, or as they were early."""
        return self.rules.corrects is not None and group.measure == "event"

    def no_results(
        self, limits: Mapping[str, Limit] | None = None, emit: bool | None = None
    ) -> Results:
        """Results of no windows: every query's table is empty."""
        told = self.rules.incomplete == "emit" if emit is None else emit
        early = self.rules.emit != FINAL
        return Results(self.plan, self.shapes, self.names, limits or {}, told, early)

    @property
    def keep(self) -> int:
        """How long before the frontier results may still be corrected."""
        if self.rules.late != "update":
            return 0
        if self.rules.keep is not None:
            return self.rules.keep
        return longest(self.plan) or micros("1h")

    def slicer(
        self,
        stream: str = ALONE,
        *,
        encoder: Encoder | None = None,
        clock: Callable[[], int] = now,
        spill: Spill | None = None,
    ) -> Slicer:
        """Slices the events of a stream, for the merger or assembler whose encoder it is given."""
        return Slicer(self, stream, encoder or Encoder(), clock, spill)

    def merger(
        self, node: int = 0, stream: str | None = None, state: bytes | None = None
    ) -> Merger:
        """Merges slices; of a whole stream, if it is named, whose own windows are cut here.

        It goes on from the state that another one saved, if that is given.
        """
        made = Merger(self, node, stream)
        if state is not None:
            made.load(state)
        return made

    def assembler(self, state: bytes | None = None, clock: Callable[[], int] = now) -> Assembler:
        """Assembles windows; from the state that another one saved, if it is given."""
        made = Assembler(self, clock)
        if state is not None:
            made.load(state)
        return made
