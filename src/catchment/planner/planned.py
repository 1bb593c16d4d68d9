"""A version of the plan on its way to whoever works by it, and how it follows from the last."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from catchment.model.plan import Plan
from catchment.model.query import Query
from catchment.planner.group import replan


@dataclass(frozen=True)
class Planned:
    """A version of the plan, and which groups of the version before its groups continue."""

    plan: Plan
    lineage: dict[int, int]
    queries: dict[str, Query]
    origins: dict[int, str] = field(default_factory=dict)
    """A name for each group that it keeps from version to version, where that matters."""

    def next(self, number: int, queries: Mapping[str, Query], rate: float, apart: bool) -> Planned:
        """The version that follows, with other queries."""
        made, lineage = replan(self.plan, queries.values(), rate, counts_apart=apart)
        origins = {
            group.id: self.origins[lineage[group.id]]
            if lineage.get(group.id) in self.origins else f"{number}.{group.id}"
            for group in made.groups
        }  # fmt: skip
        return Planned(made, lineage, dict(queries), origins)

    def to_bytes(self) -> bytes:
        lineage = {str(new): old for new, old in self.lineage.items()}
        queries = [query.to_dict() for query in self.queries.values()]
        known = {"lineage": lineage, "queries": queries, "origins": self.origins}
        head = json.dumps(known).encode()
        return head + b"\n" + self.plan.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Planned:
        text, _, body = data.partition(b"\n")
        head = json.loads(text)
        queries = [Query.from_dict(query) for query in head["queries"]]
        lineage = {int(new): old for new, old in head["lineage"].items()}
        origins = {int(id): name for id, name in head["origins"].items()}
        named = {query.name: query for query in queries}
        return cls(Plan.from_bytes(body), lineage, named, origins)


NOTHING = Planned(Plan(), {}, {})
"""What the first version of a plan follows."""
