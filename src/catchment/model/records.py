"""The codec of records: what is kept in files and handed to workers, as JSON and back.

A record is a frozen msgspec Struct or dataclass, or a list or mapping of plain values. Reading
checks every field against its type, so what a module gets is what its record says, or an error
whose sentence names what cannot be read:

    record --- encode ---> JSON text    --- decode(kind, ...) ---> record, or StateError
    record --- plain ----> JSON objects --- convert(kind, ...) --> record, or StateError

The second pair is for the edges where somebody else makes the text: Spark's offsets, the command
line's `--json`, YAML.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from catchment.errors import StateError

_T = TypeVar("_T")


def encode(record: object) -> bytes:
    """A record as JSON text."""
    return msgspec.json.encode(record)


def decode(kind: type[_T], data: bytes | msgspec.Raw, what: str) -> _T:
    """The record that JSON text holds; `what` names it in the error.

    >>> decode(dict[str, int], b'{"a": 1}', "the counts")
    {'a': 1}
    >>> decode(dict[str, int], b'{"a": "b"}', "the counts")
    Traceback (most recent call last):
    ...
    catchment.errors.StateError: the counts cannot be read (given: Expected `int`, got `str` - at \
`$[...]`); it was changed by hand, or by another version
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(what, error) from error


def plain(record: object) -> Any:
    """A record as objects of JSON."""
    return msgspec.to_builtins(record, str_keys=True)


def convert(kind: type[_T], given: object, what: str) -> _T:
    """The record that objects of JSON hold; `what` names it in the error."""
    try:
        return msgspec.convert(given, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise _unreadable(what, error) from error


def check_format(what: str, found: int, format: int, older: str) -> None:
    """Refuses what was written in another format; `older` says what to do with an older one.

    >>> check_format("the plan", 1, 2, "plan again")
    Traceback (most recent call last):
    ...
    catchment.errors.StateError: the plan was written by an older version (given: format 1); this \
version reads format 2 only: plan again
    """
    if found != format:
        age, hint = ("a newer", "upgrade it") if found > format else ("an older", older)
        raise StateError(
            f"{what} was written by {age} version",
            given=f"format {found}",
            hint=f"this version reads format {format} only: {hint}",
        )


def _unreadable(what: str, error: Exception) -> StateError:
    return StateError(
        f"{what} cannot be read",
        given=str(error)[:300],
        hint="it was changed by hand, or by another version",
    )
