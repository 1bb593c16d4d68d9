"""The rate at which events really come, and when a running plan changes because of it.

Whoever reads events or hears of them counts them and notes the newest event time. The rate is
measured over one stretch of event time after the other, each long enough to tell. Where it differs
much from the rate that the plan was made for, the two ways of slicing are compared again. Groups
whose way loses hand their queries over to groups that are made anew, for the rate observed: so the
next change takes a rate that differs much from that one.

All of it is computed from numbers that a runtime writes down, so it comes out the same again.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from catchment.model.costs import EventRate
from catchment.model.plan import Group, Plan
from catchment.operators import OperatorRef, operator_class
from catchment.planner.cost import ways_of

FACTOR = 8.0
"""A rate that differs less than this from the one that the plan was made for changes nothing."""
AGAIN = 2.0
"""A rate that differs less than this from the one compared last is not worth another look."""
EVENTS = 1000
"""Events by which a rate is measured, at least."""
SPAN = 10_000_000
"""Event time over which a rate is measured, at least, in microseconds."""
REPLANS = 8
"""How often a plan changes because of the rate, at most: if it swings for ever, the last stays."""


class RateWatch(Struct, frozen=True):
    """What is known of the rate of events: a stretch that is being measured, and the last one.

    >>> watch = RateWatch().after(5, 0).after(2000, 20_000_000)
    >>> watch.rate, watch.after(2001, 21_000_000).rate
    (99.75, 99.75)
    """

    since: int | None = None
    """The newest event time when the stretch began, in microseconds; None: no event has come."""
    counted: int = 0
    """Events before the stretch."""
    rate: float | None = None
    """Events a second in the last whole stretch; None: there was none."""
    compared: float | None = None
    """The rate by which ways were compared last; None: they were not."""
    replans: int = 0
    """How often the plan has changed because of the rate."""

    def after(self, events: int, newest: int) -> RateWatch:
        """What is known when so many events have come in all, the newest of this time."""
        if self.since is None:
            return replace(self, since=newest, counted=events) if events else self
        more, span = events - self.counted, newest - self.since
        if more < EVENTS or span < SPAN:
            return self
        return replace(self, since=newest, counted=events, rate=more / (span / 1e6))

    def differs(self, planned: EventRate) -> bool:
        """Whether the rate is so far from the planned one that ways are compared again."""
        if self.rate is None or self.replans >= REPLANS:
            return False
        if 1 / FACTOR < self.rate / planned.per_second < FACTOR:
            return False
        return self.compared is None or not 1 / AGAIN < self.rate / self.compared < AGAIN

    def next(self, plan: Plan, leaving: Collection[str]) -> tuple[RateWatch, frozenset[int]]:
        """Compares again if the rate differs: the groups of a plan to hand over, mostly none."""
        if self.rate is None or not self.differs(plan.rate):
            return self, frozenset()
        if plan.former:  # one thing after the other: open windows of the last change end first
            return self, frozenset()
        handed = losing(plan, self.rate, leaving)
        made = replace(self, compared=self.rate, replans=self.replans + bool(handed))
        return made, handed


def losing(plan: Plan, rate: float, leaving: Collection[str] = ()) -> frozenset[int]:
    """The groups of a plan whose way of slicing is not the cheaper one at a rate.

    Groups of accumulators were one group before they were taken apart, and would be one again: so
    all that would share slices are looked at together, but for those with large partials, which may
    not. Groups with a query that leaves stay.
    """
    stay = {plan.names[name][0] for name in (*leaving, *plan.former) if name in plan.names}
    sharing: dict[object, list[Group]] = {}
    for group in plan.groups:
        if group.id not in stay and can_go_over(group):
            apart = group.way == "accumulators" and not _large(group)
            kind = (group.by, group.selections) if apart else group.id
            sharing.setdefault(kind, []).append(group)
    found: set[int] = set()
    for groups in sharing.values():
        windows = dict.fromkeys(window for group in groups for window in group.windows)
        ways = ways_of(tuple(windows), rate, plan.costs)
        if ways is not None and ways.direct_wins != (groups[0].way == "accumulators"):
            found.update(group.id for group in groups)
    return frozenset(found)


def can_go_over(group: Group) -> bool:
    """Whether another group can take over at a time, exactly.

    Windows must be known ahead to begin before it or after it, and an event must mean the same to
    a group that did not see those before it.
    """
    ordered = any(operator_class(ref.kind).ordered(ref) for ref in _operators(group))
    return (
        group.slicing == "arrival"
        and group.measure == "event"
        and not group.distinct_on
        and not group.feeds
        and not ordered
        and all(len(window.periods) == 1 for window in group.windows)
    )


def _large(group: Group) -> bool:
    return not all(operator_class(ref.kind).small for ref in _operators(group))


def _operators(group: Group) -> list[OperatorRef]:
    return [OperatorRef(*ref) for ref in group.operators]
