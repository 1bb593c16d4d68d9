"""The id of a node of a tree: one rule, checked wherever an id comes in.

An id comes from a job file, a command, the network or a file. It becomes part of file names and of
columns, so it is checked before anything else is done with it. Text goes in; the same text comes
out, or an error that says what an id may be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

from catchment.errors import JobError

LONGEST = 64
PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""Letters, digits, `-`, `_` and `.`; the first is a letter or a digit, so that no id is a hidden
file, a path or an option of a command."""
RESERVED = ("admin",)
"""Commands go by this name where nodes go by their ids."""

_WHOLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

NodeId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z", max_length=LONGEST)]
"""An id in a typed record: msgspec refuses every other text."""


def node_id(text: object) -> str:
    """The id, if it is one.

    >>> node_id("site-7.north")
    'site-7.north'
    >>> node_id("x/../../victim")
    Traceback (most recent call last):
    ...
    catchment.errors.JobError: this cannot be the id of a node (given: 'x/../../victim'); an id is \
at most 64 letters, digits, '-', '_' and '.', and begins with a letter or a digit
    """
    if (
        not isinstance(text, str)
        or len(text) > LONGEST
        or not _WHOLE.fullmatch(text)
        or text in RESERVED
    ):
        taken = isinstance(text, str) and text in RESERVED
        raise JobError(
            "this cannot be the id of a node",
            given=repr(text)[:100],
            hint="commands go by this name"
            if taken
            else f"an id is at most {LONGEST} letters, digits, '-', '_' and '.', and begins with "
            "a letter or a digit",
        )
    return text


def alike(id: str, others: Iterable[str]) -> str | None:
    """Another id that some file systems cannot tell from this one, if there is one.

    >>> alike("Site", ["a", "site"])
    'site'
    """
    return next((o for o in others if o != id and o.casefold() == id.casefold()), None)
