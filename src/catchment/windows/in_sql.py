"""What SQL calls windows that have a call of their own there, such as `session_window(ts, gap)`.

All others are called by the names of their builders (`BUILDERS` of `model/window.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from catchment.model.window import Window

Build = TypeVar("Build", bound=Callable[..., Window])


@dataclass(frozen=True)
class SqlCall:
    """How a window is written in GROUP BY."""

    usage: str
    """For messages: `session_window(ts, gap)`."""
    takes_time: bool
    """Whether the time column comes first."""
    build: Callable[..., Window]
    """Takes the arguments in order, without the time column."""


SQL_CALLS: dict[str, SqlCall] = {}
"""Windows in SQL whose arguments are literals, by the name of the call in lower case."""


def in_sql(usage: str, *, takes_time: bool = True) -> Callable[[Build], Build]:
    """Makes a window known to SQL, by a call that is written like this.

    With `takes_time`, the first argument of the call is the time column; the builder gets the
    others.
    """

    def known(build: Build) -> Build:
        SQL_CALLS[usage.partition("(")[0]] = SqlCall(usage, takes_time, build)
        return build

    return known
