"""The queries of a running job: a folder of files, which people and commands may change."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import yaml
from pydantic import ValidationError

from catchment.durable.folder import Folder
from catchment.engine.binding import bind_types
from catchment.errors import CatchmentError, JobError, QueryError, did_you_mean
from catchment.job import QuerySection
from catchment.job.reading import explained
from catchment.model.query import Query
from catchment.model.settings import each_its_name
from catchment.planner import plan as make_plan
from catchment.planner.planned import Planned
from catchment.spark.spec import Spec, forget_plans

REJECTED = "rejected.json"

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class QueryFolder:
    """The folder `queries/` of a job: each file holds a query, or a list of them."""

    def __init__(self, home: Folder) -> None:
        self.home = home
        self.folder = home.sub("queries")

    def files(self) -> dict[str, bytes]:
        """The files there are."""
        names = [n for n in self.folder.names() if n.endswith((".yaml", ".yml", ".json"))]
        held = {name: self.folder.read(name) for name in names}
        return {name: data for name, data in held.items() if data is not None}

    def read(self) -> tuple[dict[str, Query], dict[str, str]]:
        """The queries by name, and why files were rejected."""
        found: dict[str, Query] = {}
        rejected: dict[str, str] = {}
        for name, data in self.files().items():
            try:
                for query in parse(data, name):
                    if query.name in found:
                        raise QueryError("two queries have one name", given=query.name)
                    found[query.name] = query
            except CatchmentError as error:
                rejected[name] = str(error)
        return found, rejected

    def add(self, query: Query) -> None:
        """Adds a query, as a file of its own."""
        if query.name in self.read()[0]:
            raise QueryError("two queries have one name", given=query.name, hint="remove one first")
        data = json.dumps(query.to_dict(), indent=1).encode()
        self.folder.write(f"{quote(query.name, safe=' ')}.json", data)

    def remove(self, name: str) -> None:
        """Takes a query out of the file that holds it."""
        known: list[str] = []
        for file, data in self.files().items():
            try:
                queries = parse(data, file)
            except CatchmentError:
                continue
            known += [query.name for query in queries]
            rest = [query.to_dict() for query in queries if query.name != name]
            if len(rest) == len(queries):
                continue
            if rest:
                self.folder.write(file, json.dumps(rest, indent=1).encode())
            else:
                self.folder.remove(file)
            return
        raise QueryError("no such query", given=name, hint=did_you_mean(name, known))

    def write_all(self, queries: list[Query]) -> None:
        """The job file's own queries, all in one file."""
        self.folder.write("job.json", json.dumps([q.to_dict() for q in queries]).encode())


def parse(data: bytes, name: str) -> list[Query]:
    """The queries in a file: as the job file writes them, or as commands do."""
    try:
        # JSON is YAML too, but a thousand queries take seconds to read as such.
        held = json.loads(data) if name.endswith(".json") else yaml.load(data, _LOADER)
    except (yaml.YAMLError, ValueError) as error:
        kind = "JSON" if name.endswith(".json") else "YAML"
        raise JobError(f"a query file is not {kind}", given=name, hint=str(error)) from error
    listed = held if isinstance(held, list) else [held]
    return each_its_name([_query(section, name) for section in listed])


def _query(section: Any, name: str) -> Query:
    if isinstance(section, dict) and "aggregates" in section:
        return Query.from_dict(section)
    try:
        return QuerySection.model_validate(section).build(name)
    except ValidationError as error:
        raise explained(error, QuerySection) from error


class Queries:
    """Watches the folder for the planner: a change makes a new version of the plan."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.folder = QueryFolder(spec.home)
        self._files: dict[str, bytes] | None = None
        self._made: dict[int, int] = {}
        self._rejected: dict[str, str] | None = None

    def first(self) -> int:
        """The version of the plan that a new job begins with."""
        return 0

    def changed(self, version: int) -> int:
        """The version of the plan for the next batch: this one, or one that is new."""
        files = self.folder.files()
        if files == self._files:
            return self._made.get(version, version)
        wanted, rejected = self.folder.read()
        held = self.spec.plan(version)
        # A query that changed under its name leaves first, and comes back with the next batch.
        stay = {n: q for n, q in wanted.items() if held.queries.get(n, q) == q}
        planned = self._planned(held, version + 1, stay, rejected)
        self._note(rejected)
        self._files = files if len(stay) == len(wanted) else None
        self._made = {}
        if planned is None:
            return version
        self.spec.home.sub("plans").write(f"{version + 1:09d}", planned.to_bytes())
        forget_plans()  # one of this number may have been written before, and never used
        self._made[version] = version + 1
        return version + 1

    def _planned(
        self, held: Planned, number: int, queries: dict[str, Query], rejected: dict[str, str]
    ) -> Planned | None:
        """The next version of the plan, or None when nothing that can be used has changed."""
        if queries == held.queries:
            return None
        fitting = {n: q for n, q in queries.items() if n in held.queries or self._fits(q, rejected)}
        if fitting == held.queries:
            return None
        return held.next(number, fitting, self.spec.rate, self.spec.asks)

    def _fits(self, query: Query, rejected: dict[str, str]) -> bool:
        try:
            spec = self.spec
            bind_types(make_plan([query]), spec.schema, spec.time, spec.late)
        except CatchmentError as error:
            rejected[query.name] = str(error)
            return False
        return True

    def _note(self, rejected: dict[str, str]) -> None:
        if rejected != self._rejected:
            self.spec.home.write(REJECTED, json.dumps(rejected).encode())
            self._rejected = rejected


class Handed:
    """The plans of a node of a tree: its driver writes down what comes from the root."""

    def __init__(self, spec: Spec) -> None:
        self.plans = spec.home.sub("plans")

    def first(self) -> int:
        return self.changed(0)

    def changed(self, version: int) -> int:
        """The newest version of the plan."""
        return max([version, *(int(name) for name in self.plans.names())])
