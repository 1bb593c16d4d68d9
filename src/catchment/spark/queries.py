"""The queries of a running job: a folder of files, which people and commands may change."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping

from catchment.durable.folder import Folder
from catchment.engine.binding import admitted
from catchment.errors import CatchmentError, QueryError, did_you_mean
from catchment.job.query_file import parse
from catchment.model import records
from catchment.model.costs import EventRate
from catchment.model.definition import change_text, version_texts
from catchment.model.names import file_name
from catchment.model.query import Query
from catchment.model.rules import QueryRules, bound
from catchment.planner.group import refuse_former
from catchment.planner.planned import Planned
from catchment.spark.records import UNCHANGED, FolderFormat, JobIdentity, PlanChange
from catchment.spark.spec import Spec, forget_plans

IDENTITY = "job.json"
FORMAT = 4
"""The format of the job's folder. Folders of other formats are refused."""
REJECTED = "rejected.json"
LEAVING = "leaving.json"
"""The names of queries that leave, each once its open windows have ended."""
_OWN = "_job.json"
"""The job file's own queries. The file of a query that was added never begins like that."""
_LEAVES = "it is leaving: wait, or remove it without drain"

log = logging.getLogger("catchment.queries")


def rules_of(home: Folder) -> QueryRules:
    """What a job demands of its queries, as its folder says."""
    held = read_identity(home)
    if held is None:
        return QueryRules("ts")
    return QueryRules(held.time, held.late, held.tables, emit=held.emit)


def read_identity(home: Folder) -> JobIdentity | None:
    """Whose folder it is; None: nobody's yet."""
    held, what = home.read(IDENTITY), f"{home.shown}/{IDENTITY}"
    if held is None:
        return None
    found = records.decode(FolderFormat, held, what).format
    older = (
        "use another checkpoint and read the events again, or finish with the version that wrote it"
    )
    records.check_format("the checkpoint", found, FORMAT, older)
    return records.decode(JobIdentity, held, what)


def read_rejected(home: Folder) -> dict[str, str]:
    """The query files that a running job cannot use, and why."""
    held = home.read(REJECTED) or b"{}"
    return records.decode(dict[str, str], held, f"{home.shown}/{REJECTED}")


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
        rules = rules_of(self.home)
        parsed: dict[str, list[Query]] = {}
        for name, data in self.files().items():
            try:
                parsed[name] = parse(data, name)
            except CatchmentError as error:
                rejected[name] = str(error)
        others = {query.name: query for queries in parsed.values() for query in queries}
        for name, queries in parsed.items():
            try:
                for given in queries:
                    query = bound(given, rules, others)
                    if query.name in found:
                        raise QueryError("two queries have one name", given=query.name)
                    found[query.name] = query
            except CatchmentError as error:
                rejected[name] = str(error)
        return found, rejected

    def add(self, query: Query) -> None:
        """Adds a query, as a file of its own."""
        self.refuse_known([query])
        query = bound(query, rules_of(self.home), self.read()[0])
        data = json.dumps(query.to_dict(), indent=1).encode()
        self.folder.write(self._free(file_name(query.name)), data)

    def refuse_known(self, queries: Iterable[Query]) -> None:
        """Raises where a name is taken."""
        known, leaving = self.read()[0], self.leaving()
        for query in queries:
            if query.name in known:
                hint = _LEAVES if query.name in leaving else "remove one first"
                raise QueryError("two queries have one name", given=query.name, hint=hint)

    def _free(self, stem: str) -> str:
        """A file that is not there: somebody may have put one of that name in by hand."""
        taken = {name.lower() for name in self.folder.names()}
        name = f"{stem}.query.json"
        while name in taken:
            stem += "_"
            name = f"{stem}.query.json"
        return name

    def leaving(self) -> list[str]:
        """The queries that leave once their open windows have ended."""
        held = self.home.read(LEAVING) or b"[]"
        return records.decode(list[str], held, f"{self.home.shown}/{LEAVING}")

    def drain(self, name: str) -> None:
        """Has a query leave: its open windows end, and no new ones begin."""
        known = self.read()[0]
        if name not in known:
            raise QueryError("no such query", given=name, hint=did_you_mean(name, known))
        self._set_leaving({*self.leaving(), name})

    def drained(self, names: Iterable[str]) -> None:
        """Removes queries that leave and whose windows have ended; others stay."""
        for name in set(names) & set(self.leaving()):
            self.remove(name)

    def _set_leaving(self, names: set[str]) -> None:
        if sorted(names) != self.leaving():
            self.home.write(LEAVING, records.encode(sorted(names)))

    def remove(self, name: str) -> None:
        """Takes a query out of the file that holds it."""
        self._take_out(name)
        self._set_leaving({*self.leaving()} - {name})

    def _take_out(self, name: str) -> None:
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
                self.folder.remove(file, lasting=True)
            return
        raise QueryError("no such query", given=name, hint=did_you_mean(name, known))

    def write_all(self, queries: list[Query]) -> None:
        """The job file's own queries, all in one file."""
        self.folder.write(_OWN, json.dumps([q.to_dict() for q in queries]).encode())

    def follow(self, changes: Mapping[str, Query | None]) -> list[str]:
        """Does what a job file says anew, whatever was done since it was last read: sentences."""
        said = []
        for name, query in changes.items():
            known, leaving = self.read()[0].get(name), name in self.leaving()
            if known == query and not leaving:
                continue
            if known is not None:
                self.remove(name)
            if query is not None:
                self.add(query)
            said.append(change_text(name, known, query))
        return said


class Queries:
    """Watches the folder for the planner: a change makes a new version of the plan."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.folder = QueryFolder(spec.home)
        self._files: tuple[dict[str, bytes], list[str]] | None = None
        self._made: dict[int, int] = {}
        self._rejected: dict[str, str] | None = None

    def first(self) -> int:
        """The version of the plan that a new job begins with."""
        return 0

    def changed(self, version: int, asked: PlanChange = UNCHANGED) -> int:
        """The version of the plan for the next batch: this one, or one that is new."""
        files = self.folder.files(), self.folder.leaving()
        if files == self._files and (version in self._made or asked == UNCHANGED):
            return self._made.get(version, version)
        wanted, rejected = self.folder.read()
        held = self.spec.plan(version)
        # A query that changed under its name leaves first, and comes back with the next batch.
        stay = {n: q for n, q in wanted.items() if held.queries.get(n, q) == q}
        planned = self._planned(held, version + 1, stay, rejected, files[1], asked)
        self._note(rejected)
        begins = set(files[1]) & (stay.keys() - held.queries.keys())
        self._files = files if len(stay) == len(wanted) and not begins else None
        self._made = {}
        if planned is None:
            return version
        for text in version_texts(held.definitions, planned.definitions):
            log.warning("%s", text)
        self.spec.home.sub("plans").write(f"{version + 1:09d}", planned.to_bytes())
        forget_plans()  # one of this number may have been written before, and never used
        self._made[version] = version + 1
        return version + 1

    def _planned(
        self,
        held: Planned,
        number: int,
        queries: dict[str, Query],
        rejected: dict[str, str],
        leaving: list[str],
        asked: PlanChange,
    ) -> Planned | None:
        """The next version of the plan, or None when nothing that can be used has changed."""
        fitting = {
            name: query
            for name, query in queries.items()
            if name in held.queries or self._fits(query, held, rejected)
        }
        # Who has not begun yet has nothing to end: such a query leaves with the version after.
        gone = sorted(name for name in leaving if name in fitting and name in held.queries)
        if fitting == held.queries and tuple(gone) == held.leaving and asked == UNCHANGED:
            return None
        rate = None if asked.rate is None else EventRate(asked.rate, "observed")
        return held.next(number, fitting, gone, rate, asked.handed, asked.ended)

    def _fits(self, query: Query, held: Planned, rejected: dict[str, str]) -> bool:
        try:
            refuse_former(held.plan, query.name)
            admitted(query, rules_of(self.spec.home), self.spec.schema)
        except CatchmentError as error:
            rejected[query.name] = str(error)
            return False
        return True

    def _note(self, rejected: dict[str, str]) -> None:
        if rejected != self._rejected:
            self.spec.home.write(REJECTED, records.encode(rejected))
            self._rejected = rejected


def newest_plan(home: Folder) -> Planned | None:
    """The newest version of a job's plan; None before there is one."""
    plans = home.sub("plans")
    names = plans.names()
    data = plans.read(names[-1]) if names else None
    return None if data is None else Planned.from_bytes(data)


class PlansFromRoot:
    """The plans of a node of a tree: its driver writes down what comes from the root."""

    def __init__(self, spec: Spec) -> None:
        self.plans = spec.home.sub("plans")

    def first(self) -> int:
        return self.changed(0)

    def changed(self, version: int, _: PlanChange = UNCHANGED) -> int:
        """The newest version of the plan."""
        return max([version, *(int(name) for name in self.plans.names())])
