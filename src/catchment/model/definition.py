"""Definitions of queries over time: versions under a name, and what a job file says anew.

A name may stand for one query today and for another tomorrow. In comes what is known of the names
so far, and the queries asked for; out comes a version for each name, and the name under which
results of that version are delivered, so that results of two definitions never mix.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from catchment.model.query import Query

_VERSIONED = re.compile(r"@[0-9]+$")


class Definition(NamedTuple):
    """The last definition known under a name."""

    version: int
    """1 for the first; it grows whenever the name stands for something else."""
    digest: str


def digest_of(query: Query) -> str:
    """A short text that is equal for equal definitions, whatever their names."""
    plain = {key: value for key, value in query.to_dict().items() if key != "name"}
    text = json.dumps(plain, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def next_definitions(
    known: Mapping[str, Definition], queries: Mapping[str, Query]
) -> dict[str, Definition]:
    """The definitions after these queries were asked for; names that are gone stay known."""
    found = dict(known)
    for name, query in queries.items():
        digest = digest_of(query)
        before = found.get(name)
        if before is None:
            found[name] = Definition(1, digest)
        elif before.digest != digest:
            found[name] = Definition(before.version + 1, digest)
    return found


def version_texts(before: Mapping[str, Definition], after: Mapping[str, Definition]) -> list[str]:
    """A sentence for each name that stands for something else than before.

    >>> version_texts({"speed": Definition(1, "a")}, {"speed": Definition(2, "b")})
    ['query speed has another definition: version 2, whose results are speed@2']
    """
    return [
        f"query {name} has another definition: version {known.version}, "
        f"whose results are {output_name(name, known.version)}"
        for name, known in after.items()
        if name in before and before[name].version < known.version
    ]


def output_name(name: str, version: int) -> str:
    """The name under which results of a version are delivered; no two pairs have the same.

    >>> output_name("speed", 1), output_name("speed", 2), output_name("speed@2", 1)
    ('speed', 'speed@2', 'speed@2@1')
    """
    return f"{name}@{version}" if version > 1 or _VERSIONED.search(name) else name


def file_changes(before: Iterable[Query], after: Iterable[Query]) -> dict[str, Query | None]:
    """What a job file says anew since it was last read: queries by name, None for one it lost.

    Only these count when a job is started again. A query whose own lines are as they were is as it
    was left when the job last ran, also where it was removed or replaced then.
    """
    old, new = ({query.name: query for query in queries} for queries in (before, after))
    return {n: new.get(n) for n in {**old, **new} if old.get(n) != new.get(n)}


def change_text(name: str, before: Query | None, after: Query | None) -> str:
    """What a job file's change to a query does, in a sentence."""
    if after is None:
        return f"query {name} is no longer in the job file: it is removed"
    if before is None:
        return f"query {name} is new in the job file: it is added"
    return (
        f"query {name} has another definition in the job file: "
        "it begins anew, and its results are kept apart"
    )


def removal_text(name: str) -> str:
    """What becomes of a query that the job file still has, in a sentence."""
    return (
        f"query {name} was removed while the job ran: "
        "it stays so until its definition in the job file changes"
    )
