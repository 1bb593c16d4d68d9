"""A job from its file: every mistake of the file is found, or the first one is raised.

What a file holds goes in (`examine`); the job comes out, its queries, and the mistakes, each with
its place in the file. A part that is wrong is told and then left out, or put right where it is
plain what was meant (`windw:` is read as `window:`), so that the parts after it are still checked.
`load_job` takes a file only whole: it raises the first mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from catchment.errors import CatchmentError, JobError, did_you_mean
from catchment.flush import read as read_flush
from catchment.job.brackets import Parted, mend
from catchment.job.model import TRIGGERS, JobModel, located, period
from catchment.job.reading import FieldError, JobPath, path_text, read, tell_all
from catchment.model.early import emit_of
from catchment.model.query import Query
from catchment.model.rules import QueryRules, reading_others, refusals
from catchment.model.settings import LATE, each_its_name, not_negative, one_of
from catchment.model.time_column import time_spec
from catchment.transport.security import check_listening

_ROUNDS = 20
"""How often a file is read anew without what was wrong in it."""
_LISTS = ("queries", "sinks", "nodes")
_DURATIONS = ("lateness", "keep", "idle_timeout", "max_ahead", "timeout")
_SURE = 0.7
"""How much a key must look like a known one to be read as that one."""


@dataclass(frozen=True)
class Mistake:
    """What is wrong with a job, and where in its file."""

    place: str
    """As people write it, such as `queries[2].window`; empty for the file as a whole."""
    error: CatchmentError

    @property
    def text(self) -> str:
        """The mistake in one line."""
        said = " ".join(str(self.error).split())
        known = not self.place or self.place in said
        return said if known else f"{said} [in the job file: {self.place}]"

    def to_dict(self) -> dict[str, str | None]:
        error = self.error
        given = None if error.given is None else str(error.given)
        return {
            "place": self.place,
            "kind": type(error).__name__,
            "what": error.what,
            "given": given,
            "hint": error.hint,
            "text": self.text,
        }


@dataclass(frozen=True)
class ExaminedJob:
    """A job file, read as far as it can be."""

    job: JobModel | None
    """Without the parts that are wrong; None where nothing is left to make a job of."""
    queries: Mapping[int, Query]
    """Those that are well formed, by their number in the file."""
    mistakes: tuple[Mistake, ...]
    left_out: frozenset[str] = frozenset()
    """The sections of which something was left out."""
    numbers: Mapping[str, list[int]] = field(default_factory=dict)
    """The numbers in the file of the queries, sinks and nodes that are left."""
    mistimed: Mapping[int, Query] = field(default_factory=dict)
    """Those that are well formed, but for the time column that they name."""


def load_job(source: str | Path | Mapping[str, Any]) -> JobModel:
    """A job from a file, from text, or from what a file would hold: `source`.

    >>> query = {"name": "n", "select": ["count(*)"], "window": "tumbling(1s)"}
    >>> load_job({"queries": [query]}).build()[0].window
    Tumbling(length=1000000, slide=1000000, offset=0)

    Raises JobError, or the error of a query, for the first thing that is wrong; all of them are
    listed by `catchment validate`.
    """
    return checked(JobModel, source if isinstance(source, Mapping) else read(source))


JobType = TypeVar("JobType", bound=JobModel)


def checked(kind: type[JobType], data: Mapping[str, Any]) -> JobType:
    """A job of some kind, whose parts are known to fit together."""
    found = examine(data)
    for mistake in found.mistakes:
        raise mistake.error
    assert found.job is not None
    return found.job if isinstance(found.job, kind) else kind.model_validate(data)


def examine(source: str | Path | Mapping[str, Any]) -> ExaminedJob:
    """All that is wrong with a job file, as far as the file alone tells."""
    try:
        data = source if isinstance(source, Mapping) else read(source)
    except JobError as error:
        return ExaminedJob(None, {}, (Mistake("", error),))
    held = _copied(data)
    mistakes = [_parted(one) for one in mend(held)]
    draft = _JobDraft(held)
    job = None
    while job is None and draft.rounds < _ROUNDS:
        try:
            job = JobModel.model_validate(draft.data)
        except ValidationError as error:
            mistakes += draft.without(tell_all(error, JobModel, draft.data))
        except CatchmentError as error:
            mistakes.append(draft.without_cause(error))
    if job is None:
        return ExaminedJob(None, {}, tuple(mistakes))
    wrong = [Mistake(place, error) for place, error in _settings(job)]
    mistimed: dict[int, Query] = {}
    queries = _queries(job, draft, {mistake.place for mistake in wrong}, mistakes, mistimed)
    whole = len(queries) == len(job.queries) and "queries" not in draft.left_out
    mistakes += [*wrong, *(Mistake("flush", error) for error in _flush(job, queries, whole))]
    left_out = frozenset(draft.left_out)
    return ExaminedJob(job, queries, tuple(mistakes), left_out, draft.numbers, mistimed)


def _parted(found: Parted) -> Mistake:
    path = path_text(found.place)
    error = JobError(
        "a comma parts texts in YAML, in brackets too",
        given=f"{path}: {found.whole}",
        hint=f'put it in quotes: "{found.whole}"',
    )
    return Mistake(path, error)


def _copied(data: Any) -> Any:
    """The same containers anew; what they hold is not copied."""
    if isinstance(data, Mapping):
        return {key: _copied(value) for key, value in data.items()}
    return [_copied(value) for value in data] if isinstance(data, list | tuple) else data


@dataclass
class _JobDraft:
    """What a job file holds, less what was found to be wrong."""

    data: dict[str, Any]
    rounds: int = 0
    left_out: set[str] = field(default_factory=set)
    numbers: dict[str, list[int]] = field(default_factory=dict)
    """The places in the file of the elements of lists that are left."""

    def __post_init__(self) -> None:
        for key in _LISTS:
            if isinstance(self.data.get(key), list):
                self.numbers[key] = list(range(len(self.data[key])))

    def in_file(self, place: JobPath) -> JobPath:
        """A place in what is left, as a place in the file."""
        if len(place) > 1 and place[0] in self.numbers and isinstance(place[1], int):
            return (place[0], self.numbers[str(place[0])][place[1]], *place[2:])
        return place

    def without(self, told: list[FieldError]) -> list[Mistake]:
        """Leaves out, or puts right, what is wrong; the mistakes as they are in the file."""
        self.rounds += 1
        meant = {one.place: key for one in told if (key := self._meant(one)) is not None}
        # A key that is missing because it is misspelt is not told twice.
        caused = {(*place[:-1], key) for place, key in meant.items()}
        told = [one for one in told if one.kind != "missing" or one.place not in caused]
        found = []
        for one in told:
            path = path_text(self.in_file(one.place))
            found.append(Mistake(path, one.error(path)))
        elements: set[JobPath] = set()
        for one in told:
            if one.kind == "extra_forbidden":
                at = _at(self.data, one.place[:-1])
                value = at.pop(one.place[-1])
                if one.place in meant:
                    at[meant[one.place]] = value
            else:
                listed = len(one.place) > 1 and isinstance(one.place[1], int)
                elements.add(one.place[: 2 if listed else 1])
        for place in sorted(elements, key=_order, reverse=True):
            self._leave_out(place)
        return found

    def _meant(self, told: FieldError) -> str | None:
        """The key that a misspelt one was surely meant to be."""
        if told.kind != "extra_forbidden":
            return None
        there = _at(self.data, told.place[:-1])
        close = get_close_matches(str(told.place[-1]), told.known, n=1, cutoff=_SURE)
        return close[0] if close and close[0] not in there else None

    def without_cause(self, error: CatchmentError) -> Mistake:
        """Leaves out the section that raises an error which does not tell its place."""
        self.rounds += 1
        places: list[JobPath] = [(key,) for key in self.data if key not in _LISTS]
        for key in _LISTS:
            held = self.data.get(key)
            places += [(key, n) for n in range(len(held))] if isinstance(held, list) else []
        for place in places:
            trial = _JobDraft(_copied(self.data))
            trial._leave_out(place)
            if not _raises(trial.data, error):
                path = path_text(self.in_file(place))
                self._leave_out(place)
                return Mistake(path, error)
        self.rounds = _ROUNDS  # no single section is to blame
        return Mistake("", error)

    def _leave_out(self, place: JobPath) -> None:
        """Takes out an element of a list, or a whole section."""
        key = str(place[0])
        self.left_out.add(key)
        if len(place) > 1 and isinstance(place[1], int):
            del self.data[key][place[1]]
            del self.numbers[key][place[1]]
        elif key == "queries":
            self.data[key], self.numbers[key] = [], []
        else:
            self.data.pop(key, None)


def _order(place: JobPath) -> tuple[str, int]:
    return str(place[0]), place[1] if len(place) > 1 and isinstance(place[1], int) else -1


def _at(data: Any, place: JobPath) -> Any:
    for part in place:
        data = data[part]
    return data


def _raises(data: Mapping[str, Any], error: CatchmentError) -> bool:
    """Whether what is left still gives this error, which hides all others."""
    try:
        JobModel.model_validate(data)
    except ValidationError:
        return False
    except CatchmentError as other:
        return str(other) == str(error)
    return False


def _queries(
    job: JobModel,
    draft: _JobDraft,
    wrong: set[str],
    mistakes: list[Mistake],
    mistimed: dict[int, Query],
) -> dict[int, Query]:
    """The queries that are well formed, by their number in the file."""
    made: dict[int, Query] = {}
    seen: dict[str, Query] = {}
    unsure = bool(draft.left_out & {"name", "source", "nodes"})
    built: dict[int, Query] = {}
    for index, section in enumerate(job.queries):
        number = draft.numbers["queries"][index]
        path = f"queries[{number}]"
        try:
            query = section if isinstance(section, Query) else section.build(path, job.lookups)
        except CatchmentError as error:
            parts = [] if isinstance(section, Query) else section.mistakes(path, job.lookups)
            mistakes += [Mistake(path, located(one, path)) for one in [*parts] or [error]]
            continue
        built[number] = query
    others = {query.name: query for query in built.values()}
    for number, query in built.items():
        path = f"queries[{number}]"
        rules = _rules(job, query, wrong, unsure)
        errors: list[CatchmentError] = []
        try:
            query = reading_others(query, rules, others)
            errors += refusals(query, rules, others)
        except CatchmentError as error:
            errors.append(error)
        try:
            each_its_name([seen[query.name], query] if query.name in seen else [query])
        except CatchmentError as error:
            errors.append(error)
        mistakes += [Mistake(path, located(one, path)) for one in errors]
        seen.setdefault(query.name, query)
        if not errors:
            made[number] = query.without_names()
        elif _mistimed(query, rules, others, errors):
            mistimed[number] = query.without_names()
    return made


def _mistimed(
    query: Query, rules: QueryRules, others: Mapping[str, Query], errors: list[CatchmentError]
) -> bool:
    """Whether nothing is wrong with a query but the time column that it names."""
    if query.source is not None or query.time is None or len(errors) > 1:
        return False
    return not [*refusals(query, replace(rules, time=query.time), others)]


def _rules(job: JobModel, query: Query, wrong: set[str], unsure: bool) -> QueryRules:
    """The job's rules; of what is wrong in the job itself, no query is accused too."""
    rules = job.rules
    if "time" in wrong and query.time is not None:
        rules = replace(rules, time=query.time)
    if unsure and query.table is not None:
        rules = replace(rules, tables=(query.table,))
    return rules


def _settings(job: JobModel) -> Iterator[tuple[str, CatchmentError]]:
    """What is wrong with the settings of a job, one by one."""
    checks: list[tuple[str, Callable[[], object]]] = [
        ("time", lambda: time_spec(job.time)),
        ("late", lambda: one_of(job.late, LATE, "late")),
        ("emit", lambda: emit_of(job.emit)),
        ("count", job.check_count),
    ]
    for key in _DURATIONS:
        value = getattr(job, key)
        if value is not None:
            checks.append((key, lambda key=key, value=value: not_negative(value, key)))  # type: ignore[misc]
    if job.trigger not in TRIGGERS:
        checks.append(("trigger", lambda: period(job.trigger)))
    if job.security is None or job.security.token is None:
        # A file with a token is one node's own; it need not hold what its parent listens with.
        for index, node in enumerate(job.nodes):
            if node.listen is not None:
                checks.append(
                    (f"nodes[{index}].listen", partial(check_listening, node.listen, job.security))
                )
    for place, check in checks:
        try:
            check()
        except CatchmentError as error:
            yield place, error
    if job.nodes and job.source is not None:
        yield (
            "nodes",
            JobError("the job has both source and nodes", hint="give the source to a node"),
        )


def _flush(job: JobModel, queries: Mapping[int, Query], whole: bool) -> Iterator[CatchmentError]:
    """What is wrong with `flush`; which queries there are is known only if all could be read."""
    try:
        priorities = read_flush(job.flush).priorities
    except CatchmentError as error:
        yield error
        return
    names = [query.name for query in queries.values()]
    for name in priorities:
        if whole and name not in names:
            yield JobError(
                "flush has a priority for a query that is not there",
                given=name,
                hint=did_you_mean(name, names),
            )
