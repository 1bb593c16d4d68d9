"""Calls that YAML has taken apart: in its lists and mappings a comma parts texts, also in brackets.

`select: [avg(v), quantile(v, 0.95)]` has three elements in YAML, and `{window: sliding(10s, 5s)}`
two keys. Data of a job file goes in (`mend`); it is put right in place, and what was wrong comes
out: the texts that ought to stand in quotes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

BracketPlace = tuple[int | str, ...]


class Parted(NamedTuple):
    """A text that was taken apart."""

    place: BracketPlace
    """The place of its first part."""
    whole: str


def mend(data: Any, place: BracketPlace = ()) -> list[Parted]:
    """Joins what belongs together.

    >>> data = {"select": ["avg(v)", "quantile(v", "0.95) AS p"]}
    >>> data |= {"window": "sliding(10s", "5s)": None}
    >>> mend(data)
    [Parted(place=('select', 1), whole='quantile(v, 0.95) AS p'),
     Parted(place=('window',), whole='sliding(10s, 5s)')]
    >>> data
    {'select': ['avg(v)', 'quantile(v, 0.95) AS p'], 'window': 'sliding(10s, 5s)'}
    """
    found: list[Parted] = []
    if isinstance(data, dict):
        found += [one for key in [*data] for one in mend(data[key], (*place, key))]
        found += _mend_mapping(data, place)
    elif isinstance(data, list):
        for number, value in enumerate(data):
            found += mend(value, (*place, number))
        found += _mend_list(data, place)
    return found


def _mend_list(data: list[Any], place: BracketPlace) -> list[Parted]:
    found = []
    for number in range(len(data)):
        if number >= len(data) or not _open(data[number]):
            continue
        end = _end([data[number], *data[number + 1 :]])
        if end is not None:
            whole = ", ".join(map(str, data[number : number + end]))
            data[number : number + end] = [whole]
            found.append(Parted((*place, number), whole))
    return found


def _mend_mapping(data: dict[Any, Any], place: BracketPlace) -> list[Parted]:
    """A key without a value that closes the bracket of the value before it is a part of it."""
    found = []
    keys = [*data]
    for number, key in enumerate(keys):
        if key not in data or not _open(data[key]):
            continue
        after = keys[number + 1 :]
        while_empty = next(
            (n for n, name in enumerate(after) if data[name] is not None), len(after)
        )
        end = _end([data[key], *after[:while_empty]])
        if end is not None:
            parts = after[: end - 1]
            data[key] = ", ".join(map(str, [data[key], *parts]))
            for name in parts:
                del data[name]
            found.append(Parted((*place, key), data[key]))
    return found


def _end(parts: list[Any]) -> int | None:
    """How many parts there are until the brackets of the first are closed; None: they are not."""
    depth = 0
    for number, part in enumerate(parts):
        if isinstance(part, dict | list):
            return None
        depth += _depth(str(part))
        if depth <= 0:
            return number + 1 if depth == 0 else None
    return None


def _open(value: Any) -> bool:
    return isinstance(value, str) and _depth(value) > 0


def _depth(text: str) -> int:
    """Brackets that a text opens and does not close, less those that it only closes."""
    return text.count("(") - text.count(")")
