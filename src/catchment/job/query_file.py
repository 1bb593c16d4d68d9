"""Files of queries: what `catchment queries add` takes, and what the folder of a job holds."""

from __future__ import annotations

import json
from typing import Any

import yaml
from pydantic import ValidationError

from catchment.errors import JobError
from catchment.job.model import QuerySection
from catchment.job.reading import explained
from catchment.model.query import Query
from catchment.model.settings import each_its_name

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(data: bytes, name: str) -> list[Query]:
    """The queries in a file: as the job file writes them, or as commands do.

    >>> parse(b"{name: n, select: [count(*)], window: tumbling(1s)}", "n.yaml")[0].name
    'n'
    """
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
        raise explained(error, QuerySection, section) from error
