"""The plan: what all queries together compute, as plain data that nodes exchange."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from catchment.errors import StateError
from catchment.model import packed
from catchment.model.query import Aggregate, Measure
from catchment.model.window import Window, window_from_dict

FORMAT = 1
"""Raised when older code could not read a newer plan."""

Slicing = Literal["arrival", "settled", "stream"]
StoreKind = Literal["lazy", "eager"]
Way = Literal["slices", "accumulators"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One distinct computation of a group: aggregates over a window, of one selection."""

    selection: int
    window: int
    aggregates: tuple[Aggregate, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Queries that share every partial: an event is processed once for all of them.

    `operators` are (kind, column, params), in an order in which each comes after those it reads.
    `slicing` is `arrival` when events are sliced as they come, `settled` when they must wait,
    sorted, until nothing earlier can come, at the root; `stream` when they wait on the node that
    reads them, and are cut there. `way` is `accumulators` where slicing would lose, and
    `why` says why.
    """

    id: int
    by: tuple[str, ...]
    selections: tuple[str | None, ...]
    measure: Measure
    distinct_on: tuple[str, ...]
    distinct_within: int
    windows: tuple[Window, ...]
    operators: tuple[tuple[str, str | None, tuple[Any, ...]], ...]
    answers: tuple[Answer, ...]
    slicing: Slicing
    store: StoreKind
    way: Way
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All groups, and which answer each query's name stands for."""

    version: int = 0
    groups: tuple[Group, ...] = ()
    names: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Query name to (group id, place in its answers)."""
    time: str | None = None
    """The time column that SQL queries named which were planned before they met a job; binding
    compares it. None where the queries were bound already, as every runtime does."""

    explainer: ClassVar[Callable[[Plan], str] | None] = None
    """Set by the planner, which knows what plans mean."""

    def explain(self) -> str:
        """What will happen, and why, as a tree."""
        return "" if Plan.explainer is None else Plan.explainer(self)

    def to_bytes(self) -> bytes:
        """The plan as bytes; equal plans give equal bytes."""
        data = {
            "version": self.version,
            "names": self.names,
            "groups": [_group_to_dict(group) for group in self.groups],
            **({} if self.time is None else {"time": self.time}),
        }
        return packed.pack(data, FORMAT)

    @classmethod
    def from_bytes(cls, data: bytes) -> Plan:
        read = packed.unpack(data, "plan", FORMAT)
        try:
            groups = tuple(_group_from_dict(group) for group in read["groups"])
            names = {name: (place[0], place[1]) for name, place in read["names"].items()}
            return cls(read["version"], groups, names, read.get("time"))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise StateError(
                "these bytes are not a plan",
                given=f"{len(data)} bytes",
                hint="a plan is written by Plan.to_bytes()",
            ) from error


def longest(plan: Plan) -> int:
    """How far back a window reaches at most, of those whose length is known; 0: of none."""
    windows = [window for group in plan.groups for window in group.windows]
    return max((window.reach for window in windows), default=0)


def _group_to_dict(group: Group) -> dict[str, Any]:
    plain = {name: getattr(group, name) for name in _PLAIN}
    plain["windows"] = [window.to_dict() for window in group.windows]
    plain["answers"] = [asdict(answer) for answer in group.answers]
    return plain


_PLAIN = (
    "id",
    "by",
    "selections",
    "measure",
    "distinct_on",
    "distinct_within",
    "operators",
    "slicing",
    "store",
    "way",
    "why",
)


def _group_from_dict(data: dict[str, Any]) -> Group:
    data = dict(data)
    for name in ("by", "selections", "distinct_on"):
        data[name] = tuple(data[name])
    data["operators"] = tuple((kind, column, tuple(p)) for kind, column, p in data["operators"])
    data["windows"] = tuple(window_from_dict(window) for window in data["windows"])
    data["answers"] = tuple(
        Answer(a["selection"], a["window"], tuple(Aggregate.from_dict(x) for x in a["aggregates"]))
        for a in data["answers"]
    )
    return Group(**data)
