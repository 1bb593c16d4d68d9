"""The versions of the plan that a charter knows, as those see them who take notes by older ones."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from catchment.engine.bound import BoundPlan
from catchment.engine.partials import Partials
from catchment.marking.agreement import Speaker
from catchment.tree.charter import Charter
from catchment.tree.decode import upgraded
from catchment.tree.message import Head


class KnownPlans:
    """The versions of the plan that a charter knows, seen from the one in use."""

    def __init__(self, charter: Charter, plan: int) -> None:
        self._charter, self._plan = charter, plan

    def bound(self, version: int) -> BoundPlan:
        return self._charter.bound(version)

    def set_in(self, version: int, name: str) -> int | None:
        """The first group of a set of groups in a version; None: it was not there."""
        return _named(self._charter.cut_sets(version), name)

    def group_now(self, version: int, id: int) -> int | None:
        """The group that continues one of another version; None: it is gone."""
        plans = self._charter.plans
        return _named(plans[self._plan].origins, plans[version].origins[id])

    def events_now(self, version: int, id: int, events: pa.Table) -> pa.Table | None:
        """Events of a set of another version, as the plan in use would have kept them."""
        found = upgraded(Partials({id: events}), version, self._plan, self._charter).groups
        return next((table for table in found.values() if table.num_rows), None)


def speaker_of(head: Head, charter: Charter) -> Speaker:
    """Who says a message, as far as events between marks are concerned."""
    place = charter.places.get(head.node)
    number = None if place is None else place.number
    return Speaker(number, head.seq, head.counts.get("held", 0))


def _named(names: Mapping[int, str], name: str) -> int | None:
    return next((id for id, known in names.items() if known == name), None)
