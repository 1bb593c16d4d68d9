"""Many transcripts as one job: their events in one stream, their frontiers in one order.

Starting a job costs more than any transcript, so runtimes that are jobs play many at once. Every
event gets a column that says whose it is, and every query a condition on it. The frontiers of all
become one sequence, with a **slot** before each: what a transcript pushes between two of its
frontiers is in the slot that begins at the first of the two, so it is as late for the job as it was
for the engine. Nothing but its condition tells a transcript's queries from the others': they share
slices, groups and state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from msgspec import structs

from catchment.model.query import Query
from catchment.testing.transcripts import TablesByQuery, Transcript

OWNER = "transcript"
"""The column that says whose an event is."""
CLOCK = "clock"
EVENTS = "events"
"""The partitions of a source that plays a script. Either ends a slot with an event of no query at
the slot's frontier, which is its owner. The clock has no other events, so it is the slower of the
two, and moves the frontier to just there."""
TIME = "ts"
END = 4_000_000_000_000_000
"""The frontier of the close, in microseconds: long after all events of transcripts."""
_BEFORE = -(2**62)


class Mark(NamedTuple):
    """A moment of a transcript: a frontier, or a query that joins at one."""

    frontier: int
    repeated: int = 0
    """How often the same frontier was told before."""
    joined: int = 0
    """How many queries have joined at it."""


BEGIN = Mark(_BEFORE)
CLOSE = Mark(END)


@dataclass
class Slot:
    """What comes between two moments, and the moment that it ends with."""

    mark: Mark
    events: pa.Table
    joining: list[Query] = field(default_factory=list)
    """Queries that join after it."""

    @property
    def frontier(self) -> int | None:
        """Where the frontier is after it; None before the first."""
        return None if self.mark.frontier == _BEFORE else self.mark.frontier


class Script:
    """Transcripts whose events and settings fit together, as one job."""

    def __init__(self, cases: Sequence[Transcript]) -> None:
        self.cases = list(cases)
        self.settings = self.cases[0].settings
        self.schema = pa.unify_schemas(
            [pa.schema([(OWNER, pa.string())]), *(case.schema for case in self.cases)]
        )
        self.queries = [self._query(n, q) for n, case in self._numbered for q in case.queries]
        self.slots = self._slots()

    @property
    def _numbered(self) -> Iterator[tuple[int, Transcript]]:
        return enumerate(self.cases)

    def _query(self, number: int, query: Query) -> Query:
        """The query of a transcript as one of the job's."""
        mine = f"{OWNER} = '{number}'"
        where = mine if query.where is None else f"{mine} AND ({query.where})"
        return Query.of(structs.replace(query.record(), name=f"{number}/{query.name}", where=where))

    def _slots(self) -> list[Slot]:
        marks = sorted(set().union(*map(ends, self.cases)))
        rows: dict[Mark, list[dict[str, Any]]] = {mark: [] for mark in [BEGIN, *marks]}
        joining: dict[Mark, list[Query]] = {mark: [] for mark in marks}
        for number, case in self._numbered:
            for step, (kind, mark) in zip(case.steps, moments(case), strict=True):
                if kind == "events":
                    rows[mark] += [row | {OWNER: str(number)} for row in step.value]
                elif kind == "add":
                    joining[mark].append(self._query(number, step.value))
        begins = [BEGIN, *marks[:-1]]
        return [
            Slot(mark, pa.Table.from_pylist(rows[begin], self.schema), joining[mark])
            for begin, mark in zip(begins, marks, strict=True)
        ]

    @property
    def all_queries(self) -> list[Query]:
        """The queries that it begins with, and those that join."""
        return [*self.queries, *(query for slot in self.slots for query in slot.joining)]

    @property
    def events(self) -> pa.Table:
        """All events in the order of their arrival."""
        return pa.concat_tables([slot.events for slot in self.slots])

    def partition(self, slot: Slot, name: str, events: pa.Table) -> pa.Table:
        """What a partition brings with a slot: events of its own, and the frontier."""
        last = [] if slot.frontier is None else [{OWNER: name, TIME: slot.frontier}]
        ticks = pa.Table.from_pylist(last, self.schema)
        return pa.concat_tables([events, ticks]) if name == EVENTS else ticks

    def results(self, case: Transcript, found: Mapping[str, pa.Table]) -> TablesByQuery:
        """What of the job's results is one transcript's, by the names of its own queries."""
        number = self.cases.index(case)
        named = {query.name: f"{number}/{query.name}" for query in case.all_queries}
        return {name: found[long] for name, long in named.items() if long in found}

    def by_step(
        self, case: Transcript, found: Sequence[Mapping[str, pa.Table]]
    ) -> list[TablesByQuery]:
        """The results of a transcript by its own steps, from those after each slot."""
        wanted = [m for s, (_, m) in zip(case.steps, moments(case), strict=True) if s.gives]
        parts: dict[Mark, list[TablesByQuery]] = {mark: [] for mark in wanted}
        for slot, results in zip(self.slots, found, strict=True):
            after = next(mark for mark in wanted if mark >= slot.mark)
            parts[after].append(self.results(case, results))
        return [_joined(parts[mark]) for mark in wanted]


def _joined(parts: Sequence[TablesByQuery]) -> TablesByQuery:
    names = list(dict.fromkeys(name for part in parts for name in part))
    return {name: pa.concat_tables([p[name] for p in parts if name in p]) for name in names}


def moments(case: Transcript) -> Iterator[tuple[str, Mark]]:
    """The kind of each step, and the moment that it happens at or, if it makes one, makes."""
    mark = BEGIN
    for step in case.steps:
        if step.kind == "frontier":
            again = step.value == mark.frontier
            assert step.value >= mark.frontier, f"{case.name}: a frontier goes back"
            mark = Mark(step.value, mark.repeated + 1 if again else 0)
        elif step.kind == "add":
            mark = mark._replace(joined=mark.joined + 1)
        elif step.kind == "close":
            mark = CLOSE
        yield step.kind, mark


def ends(case: Transcript) -> set[Mark]:
    """The moments that a slot must end with for a transcript."""
    return {CLOSE, *(mark for _, mark in moments(case))} - {BEGIN}


def fitting(cases: Sequence[Transcript], settings: bool = True) -> list[list[Transcript]]:
    """Transcripts in as few parts as the types of their columns allow, and their `settings`."""
    parts: list[list[Transcript]] = []
    for case in cases:
        alike = [p for p in parts if not settings or p[0].settings == case.settings]
        part = next((part for part in alike if _fits(case, part)), None)
        if part is None:
            parts.append([case])
        else:
            part.append(case)
    return parts


def _fits(case: Transcript, part: Sequence[Transcript]) -> bool:
    known = {field.name: field.type for other in part for field in other.schema}
    return all(known.get(field.name, field.type) == field.type for field in case.schema)
