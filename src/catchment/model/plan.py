"""The plan: what all queries together compute, as plain data that nodes exchange."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from msgspec import Struct, structs

from catchment import html
from catchment.errors import StateError
from catchment.model import packed
from catchment.model.costs import ASSUMED, RECORDED, CostModel, EventRate
from catchment.model.output import Output
from catchment.model.query import Aggregate, Measure
from catchment.model.window import Window, WindowForm, window_from_dict

FORMAT = 2
"""Raised when older code could not read a newer plan."""

Slicing = Literal["arrival", "settled", "stream"]
StoreKind = Literal["lazy", "eager"]
Way = Literal["slices", "accumulators"]


class Answer(Struct, frozen=True, cache_hash=True, gc=False):
    """One distinct computation of a group: aggregates over a window, of one selection."""

    selection: int
    window: int
    aggregates: tuple[Aggregate, ...]
    keys: tuple[str, ...] = ()
    """What results call the keys, where that differs from the group's `by`."""
    output: Output | None = None
    """What is made of the aggregates; None: they are the results."""
    feeds: bool = False
    """Whether other queries read its results, which must then be in one place."""


@dataclass(frozen=True, slots=True)
class Group:
    """Queries that share every partial: an event is processed once for all of them.

    `by` are the keys: columns of the events, or expressions, which are listed in `computed`.
    `operators` are (kind, column, params), in an order in which each comes after those it reads.
    `slicing` is `arrival` when events are sliced as they come, `settled` when they must wait,
    sorted, until nothing earlier can come, at the root; `stream` when they wait on the node that
    reads them, and are cut there. `way` is `accumulators` where slicing would lose, and
    `why` says why.
    """

    id: int
    by: tuple[str, ...]
    selections: tuple[str | None, ...]
    measure: Measure
    distinct_on: tuple[str, ...]
    distinct_within: int
    windows: tuple[Window, ...]
    operators: tuple[tuple[str, str | None, tuple[Any, ...]], ...]
    answers: tuple[Answer, ...]
    slicing: Slicing
    store: StoreKind
    way: Way
    why: str
    computed: tuple[str, ...] = ()
    source: str | None = None
    """The results that are its events, as `Plan.sources` calls them; None: the events."""

    @property
    def whole(self) -> bool:
        """Whether all keys must be in one place: some answer takes all keys of a window together,
        or other queries read its results."""
        return self.feeds or any(a.output is not None and a.output.whole for a in self.answers)

    @property
    def feeds(self) -> bool:
        """Whether other queries read results of it."""
        return any(answer.feeds for answer in self.answers)


@dataclass(frozen=True, slots=True)
class Plan:
    """All groups, and which answer each query's name stands for: what `ct.plan` gives.

    A plan is plain data. `explain()` says what it means, and notebooks show that.

        plan = ct.plan([speed, runs])
        print(plan.explain())
    """

    version: int = 0
    groups: tuple[Group, ...] = ()
    names: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Query name to (group id, place in its answers)."""
    time: str | None = None
    """The time column that SQL queries named which were planned before they met a job; binding
    compares it. None where the queries were bound already, as every runtime does."""
    rate: EventRate = ASSUMED
    """The rate of events that it was made for."""
    costs: CostModel = RECORDED
    """The costs that it was decided by."""
    former: dict[str, str] = field(default_factory=dict)
    """Queries that were moved to another group while they ran. The group before still gives the
    windows that had begun; a name of its own stands for these, and leads to the query's name."""

    nested: tuple[Group, ...] = ()
    """Groups whose events are results of others; they are computed where windows are assembled."""
    sources: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Results that other queries read: a name that is made from what they are, to (group id, place
    in its answers). Each comes after those that it is made of."""

    explainer: ClassVar[Callable[[Plan], str] | None] = None
    """Set by the planner, which knows what plans mean."""

    @property
    def every_group(self) -> tuple[Group, ...]:
        """The groups over events, and those over results of other queries; the id of a group is
        its place among them."""
        return self.groups + self.nested

    def explain(self) -> str:
        """What will happen, and why, as a tree."""
        return "" if Plan.explainer is None else Plan.explainer(self)

    def _repr_html_(self) -> str:
        """For notebooks: what `explain` says."""
        return html.preformatted(self.explain())

    def to_bytes(self) -> bytes:
        """The plan as bytes; equal plans give equal bytes."""
        groups = tuple(GroupRecord.of(group) for group in self.groups)
        record = PlanRecord(
            self.version,
            self.names,
            groups,
            self.rate,
            self.costs,
            self.time,
            self.former,
            tuple(GroupRecord.of(group) for group in self.nested),
            self.sources,
        )
        return packed.pack(record, FORMAT)

    @classmethod
    def from_bytes(cls, data: bytes) -> Plan:
        read = packed.unpack(data, "plan", FORMAT, PlanRecord)
        try:
            groups = tuple(record.group() for record in read.groups)
            nested = tuple(record.group() for record in read.nested)
        except (KeyError, TypeError) as error:  # of a window
            raise StateError(
                "these bytes are not a plan",
                given=f"{len(data)} bytes",
                hint="a plan is written by Plan.to_bytes()",
            ) from error
        return cls(
            read.version,
            groups,
            read.names,
            read.time,
            read.rate,
            read.costs,
            read.former,
            nested,
            read.sources,
        )


class GroupRecord(Struct, frozen=True):
    """A group as it is written down: its windows as `Window.to_dict` gives them."""

    id: int
    by: tuple[str, ...]
    selections: tuple[str | None, ...]
    measure: Measure
    distinct_on: tuple[str, ...]
    distinct_within: int
    windows: tuple[WindowForm, ...]
    operators: tuple[tuple[str, str | None, tuple[Any, ...]], ...]
    answers: tuple[Answer, ...]
    slicing: Slicing
    store: StoreKind
    way: Way
    why: str
    computed: tuple[str, ...] = ()
    source: str | None = None

    @classmethod
    def of(cls, group: Group) -> GroupRecord:
        forms = tuple(window.to_dict() for window in group.windows)
        told = {field.name: getattr(group, field.name) for field in fields(group)}
        return cls(**told | {"windows": forms})

    def group(self) -> Group:
        """The group that was written down."""
        windows = tuple(window_from_dict(window) for window in self.windows)
        return Group(**structs.asdict(self) | {"windows": windows})


class PlanRecord(Struct, frozen=True, omit_defaults=True):
    """A plan as it is written down."""

    version: int
    names: dict[str, tuple[int, int]]
    groups: tuple[GroupRecord, ...]
    rate: EventRate
    costs: CostModel
    time: str | None = None
    former: dict[str, str] = {}
    nested: tuple[GroupRecord, ...] = ()
    sources: dict[str, tuple[int, int]] = {}


def longest(plan: Plan) -> int:
    """How far back a window reaches at most, of those whose length is known; 0: of none."""
    windows = [window for group in plan.groups for window in group.windows]
    return max((window.reach for window in windows), default=0)


def chain_of(plan: Plan, group: Group, window: Window) -> tuple[tuple[int, Window], ...]:
    """The windows through which events reach a window of a group, the first one first, each with
    its group: more than one where results of other queries are read."""
    found = [(group.id, window)]
    while group.source is not None:
        id, number = plan.sources[group.source]
        group = plan.every_group[id]
        found.append((id, group.windows[group.answers[number].window]))
    return tuple(reversed(found))


def longest_chain(plan: Plan) -> int:
    """How far back a window reaches at most, through the windows whose results it reads.

    Results are read one microsecond before the end of their window, or of what is complete.
    """
    chains = (
        chain_of(plan, group, window) for group in plan.every_group for window in group.windows
    )
    reaches = (sum(window.reach for _, window in chain) + len(chain) - 1 for chain in chains)
    return max(reaches, default=0)


def unbounded(plan: Plan) -> frozenset[int]:
    """The groups of which a window may be open for any length of time."""
    return frozenset(
        group.id for group in plan.groups if not all(window.periods for window in group.windows)
    )
