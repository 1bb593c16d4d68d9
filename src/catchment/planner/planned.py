"""A version of the plan as it is handed to readers, buckets and nodes.

Beside the plan it has the queries, which groups of the version before its groups continue, and the
versions of all definitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from msgspec import Struct

from catchment.model import records
from catchment.model.costs import EventRate
from catchment.model.definition import Definition, next_definitions, output_name
from catchment.model.plan import Plan
from catchment.model.query import Query, QueryRecord
from catchment.planner.group import replan
from catchment.planner.ranked import is_ranked, takes_first_keys


class PlannedRecord(Struct, frozen=True):
    """What is written down with the bytes of a plan."""

    lineage: dict[int, int]
    queries: list[QueryRecord]
    origins: dict[int, str]
    definitions: dict[str, Definition]
    leaving: tuple[str, ...]
    made_of: dict[int, int] = {}
    keys_kept: tuple[int, ...] = ()


@dataclass(frozen=True)
class Planned:
    """A version of the plan, and which groups of the version before its groups continue."""

    plan: Plan
    lineage: dict[int, int]
    queries: dict[str, Query]
    origins: dict[int, str] = field(default_factory=dict)
    """A name for each group that it keeps from version to version, where that matters."""
    definitions: dict[str, Definition] = field(default_factory=dict)
    """All names there have ever been, with their last definitions."""
    leaving: tuple[str, ...] = ()
    """The queries that give the windows that have begun, and then are removed."""
    made_of: dict[int, int] = field(default_factory=dict)
    """Where partials travel: the groups that are made of the partials of others at the root."""
    keys_kept: tuple[int, ...] = ()
    """The groups of which a version before took first keys only: nodes may still hold others."""

    def next(
        self,
        number: int,
        queries: Mapping[str, Query],
        leaving: Iterable[str] = (),
        rate: EventRate | None = None,
        handed: Collection[int] = (),
        ended: Collection[str] = (),
    ) -> Planned:
        """The version that follows, with other queries, of which some leave.

        Of rates and of groups handed over, see `replan`.
        """
        made, lineage = replan(self.plan, queries.values(), rate=rate, handed=handed, ended=ended)
        origins = {
            group.id: self.origins[lineage[group.id]]
            if lineage.get(group.id) in self.origins
            else f"{number}.{group.id}"
            for group in made.groups
        }
        definitions = next_definitions(self.definitions, queries)
        kept = {one.id for one in self.plan.groups if is_ranked(one) and takes_first_keys(one)}
        kept |= {*self.keys_kept}
        return Planned(
            made,
            lineage,
            dict(queries),
            origins,
            definitions,
            tuple(sorted(leaving)),
            keys_kept=tuple(group.id for group in made.groups if lineage.get(group.id) in kept),
        )

    def output(self, name: str) -> str:
        """The name under which a query's results are delivered."""
        known = self.definitions.get(name)
        return output_name(name, 1 if known is None else known.version)

    def delivered(
        self, tables: Mapping[str, pa.Table]
    ) -> tuple[dict[str, pa.Table], dict[str, tuple[str, ...]]]:
        """Results, and the keys of all queries, by the names under which they are delivered."""
        named = {self.output(name): table for name, table in tables.items()}
        return named, {self.output(name): query.keys for name, query in self.queries.items()}

    def to_bytes(self) -> bytes:
        queries = [query.record() for query in self.queries.values()]
        head = PlannedRecord(
            self.lineage,
            queries,
            self.origins,
            self.definitions,
            self.leaving,
            self.made_of,
            self.keys_kept,
        )
        return records.encode(head) + b"\n" + self.plan.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Planned:
        text, _, body = data.partition(b"\n")
        head = records.decode(PlannedRecord, text, "a version of the plan")
        queries = [Query.of(query) for query in head.queries]
        named = {query.name: query for query in queries}
        plan = Plan.from_bytes(body)
        told = head.lineage, named, head.origins, head.definitions, head.leaving, head.made_of
        return cls(plan, *told, head.keys_kept)


NOTHING = Planned(Plan(), {}, {})
"""What the first version of a plan follows."""
