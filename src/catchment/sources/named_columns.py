"""Labels and attributes as columns: which of them are chosen, and where the others go."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from catchment.errors import SourceError

NamedColumns = tuple[str, ...] | dict[str, str]
"""Names that become columns of the same names, or columns and the names that they stand for."""


def chosen_columns(
    chosen: NamedColumns, others: str | None, fixed: Sequence[str], what: str
) -> dict[str, str]:
    """Column to name; raises if two columns have one name. `what` is the option's name.

    >>> chosen_columns(("job",), None, ["time"], "labels")
    {'job': 'job'}
    """
    found = dict(chosen) if isinstance(chosen, Mapping) else {name: name for name in chosen}
    if not isinstance(chosen, Mapping) and len(found) < len(chosen):
        raise SourceError(f"{what} has a name twice", given=", ".join(chosen))
    for column in [*found, *([] if others is None else [others])]:
        if not column:
            raise SourceError(f"a column of {what} has no name")
        if column in fixed or (column == others and others in found):
            raise SourceError(
                f"a column of {what} has the name of another",
                given=column,
                hint=f"give it one of its own, as in {what}: {{{column}_label: {column}}}",
            )
    return found


def as_json(names: Mapping[str, object], chosen: set[str]) -> str:
    """The others as the text of a JSON object, with its names in order.

    >>> as_json({"b": "2", "a": "1", "job": "x"}, {"job"})
    '{"a":"1","b":"2"}'
    """
    rest = {name: names[name] for name in sorted(names) if name not in chosen}
    return json.dumps(rest, ensure_ascii=False, separators=(",", ":"))
