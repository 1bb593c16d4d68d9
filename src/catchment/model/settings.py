"""What an engine is told besides its queries, checked the same wherever it comes from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar

from catchment.errors import QueryError
from catchment.model.duration import Duration, micros
from catchment.model.query import Query

Late = Literal["drop", "update", "collect"]
Bad = Literal["collect", "fail"]
Incomplete = Literal["count", "emit"]
QuantileMode = Literal["auto", "ask", "send"]
"""What nodes of a tree do with sorted values and counts of values: keep those back that cost more
than questions about them, all that they can, or none."""
MarkMode = Literal["ask", "send"]
"""What nodes of a tree do with events between marks of user-defined windows: keep them until the
root tells where to cut, or send them."""
LATE: tuple[Late, ...] = ("drop", "update", "collect")
BAD: tuple[Bad, ...] = ("collect", "fail")
INCOMPLETE: tuple[Incomplete, ...] = ("count", "emit")
"""What happens to windows that are open when the input ends: counted only, or given as results."""
T = TypeVar("T", bound=str)


def one_of(value: T, options: tuple[T, ...], what: str) -> T:
    if value not in options:
        raise QueryError(
            f"no such choice for {what}", given=repr(value), hint="one of: " + ", ".join(options)
        )
    return value


def not_negative(value: Duration, what: str) -> int:
    """A duration of zero or more, in microseconds."""
    duration = micros(value, what)
    if duration < 0:
        raise QueryError(f"the {what} must not be negative", given=value, hint='try "0s" or longer')
    return duration


def positive_rate(rate: float) -> float:
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0:
        raise QueryError(
            "the rate must be positive", given=repr(rate), hint="say how many events a second come"
        )
    return rate


def positive(value: int, what: str) -> int:
    """A whole number of one or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise QueryError(f"{what} must be a positive whole number", given=repr(value))
    return value


def column_name(name: str, what: str) -> str:
    if not isinstance(name, str) or not name:
        raise QueryError(f"the {what} is not a name", given=repr(name), hint='try time="ts"')
    return name


def each_its_name(queries: Iterable[Query]) -> list[Query]:
    """The queries; refuses two of one name, and what is no query."""
    if isinstance(queries, Query):
        raise QueryError(
            "queries come in a list", given=queries.name, hint="put brackets around it"
        )
    given = list(queries)
    names: set[str] = set()
    for query in given:
        if not isinstance(query, Query):
            raise QueryError(
                "not a query", given=repr(query), hint="try ct.Query(...) or ct.sql(...)"
            )
        if query.name in names:
            raise QueryError(
                "two queries have one name", given=query.name, hint="give each query its own"
            )
        names.add(query.name)
    return given
