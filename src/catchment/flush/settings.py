"""The `flush` section of a job file as one frozen value: a policy, its goal, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from catchment.errors import JobError, QueryError, did_you_mean
from catchment.flush.evictions import EVICTIONS
from catchment.flush.policy import Policy, cache_policy, parse
from catchment.flush.units import rate
from catchment.model.duration import micros

WEIGHT = 10.0
"""What `auto` trades by: a result late by a tenth of its window is as bad as sending all twice."""
AUTO = parse("auto")
COMPRESS = ("auto", "on", "off")
_KEYS = (
    "policy",
    "eviction",
    "weight",
    "staleness",
    "budget",
    "meter",
    "bandwidth",
    "priorities",
    "compress",
)


@dataclass(frozen=True)
class Flush:
    """How the nodes of a tree decide what to send when."""

    policy: Policy = AUTO
    eviction: str = "likely"
    weight: float = WEIGHT
    staleness: int | None = None
    """A target, in microseconds: as little traffic as meets it."""
    budget: float | None = None
    """A target, in bytes a second: as little staleness as meets it."""
    meter: float | None = None
    """A limit, in bytes a second over a day: what is over it waits."""
    bandwidth: float | None = None
    """What the link carries in bytes a second, until that is measured."""
    priorities: Mapping[str, float] = field(default_factory=dict)
    """A query's share of a link that is too narrow for all; by default 1 each."""
    compress: str = "auto"

    def check(self) -> None:
        """Raises if this process lacks the package of a policy that another one named."""
        for name in (self.policy.eager, self.policy.lazy):
            cache_policy(name)

    def __str__(self) -> str:
        return str(self.policy)


def read(given: object) -> Flush:
    """The section, from a policy's name or from a mapping; refuses what makes no sense.

    >>> read("hybrid(0.25)").policy.alpha
    0.25
    >>> read({"staleness": "2s"}).staleness
    2000000
    """
    if given is None:
        return Flush()
    if isinstance(given, Flush):
        return given
    if not isinstance(given, Mapping):
        return Flush(parse(given))
    for key in given:
        if key not in _KEYS:
            raise JobError("flush has no such key", given=key, hint=did_you_mean(str(key), _KEYS))
    policy = parse(given.get("policy", "auto"))
    goals = [key for key in ("weight", "staleness", "budget") if given.get(key) is not None]
    if goals and policy.kind != "auto":
        raise JobError(
            "only auto has a goal: another policy does what it says",
            given=f"{policy} and {goals[0]}",
            hint=f"write policy: auto, or leave out {goals[0]}",
        )
    if len(goals) > 1:
        raise JobError("flush has one goal", given=" and ".join(goals), hint="leave out the others")
    return Flush(
        policy,
        _word(given, "eviction", tuple(EVICTIONS), "likely"),
        _weight(given),
        _duration(given),
        _rate(given, "budget"),
        _rate(given, "meter"),
        _rate(given, "bandwidth"),
        _priorities(given.get("priorities") or {}),
        _word(given, "compress", COMPRESS, "auto"),
    )


def _word(given: Mapping[str, Any], key: str, known: tuple[str, ...], default: str) -> str:
    value = given.get(key, default)
    if isinstance(value, bool):  # YAML reads on and off so
        value = "on" if value else "off"
    if value not in known:
        raise JobError(f"no such {key}", given=value, hint=did_you_mean(str(value), known))
    return str(value)


def _number(value: object, what: str, hint: str) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not 0 < float(value) < float("inf"):  # type: ignore[arg-type]
        raise JobError(f"{what} must be a positive number", given=value, hint=hint)
    return float(value)  # type: ignore[arg-type]


def _weight(given: Mapping[str, Any]) -> float:
    value = given.get("weight")
    hint = f"{WEIGHT:g} makes a tenth of a window late as bad as sending all twice"
    return WEIGHT if value is None else _number(value, "the weight of staleness", hint)


def _duration(given: Mapping[str, Any]) -> int | None:
    value = given.get("staleness")
    if value is None:
        return None
    try:
        target = micros(value, "staleness target")
    except QueryError as error:
        raise JobError(error.what, given=error.given, hint=error.hint) from error
    if target <= 0:
        raise JobError("the staleness target must be positive", given=value, hint='try "2s"')
    return target


def _rate(given: Mapping[str, Any], key: str) -> float | None:
    return None if given.get(key) is None else rate(given[key], key)


def _priorities(given: object) -> dict[str, float]:
    if not isinstance(given, Mapping):
        raise JobError("priorities are numbers by query", given=given, hint="{alarms: 5}")
    return {
        str(name): _number(value, f"the priority of {name}", "2 gets twice the share of 1")
        for name, value in given.items()
    }


def flush_schema() -> dict[str, Any]:
    """What the JSON schema of job files says of the section."""
    number, text = {"type": "number", "exclusiveMinimum": 0}, {"type": "string"}
    keys: dict[str, Any] = {
        "policy": {**text, "examples": ["auto", "hybrid(0.25)"]},
        "eviction": {"enum": list(EVICTIONS)},
        "weight": number,
        "staleness": {**text, "examples": ["2s"]},
        "budget": {**text, "examples": ["1 MB/h"]},
        "meter": {**text, "examples": ["500 MB/day"]},
        "bandwidth": {**text, "examples": ["1 MB/s"]},
        "priorities": {"type": "object", "additionalProperties": number},
        "compress": {"enum": [*COMPRESS, True, False]},
    }
    mapping = {"type": "object", "properties": keys, "additionalProperties": False}
    return {"anyOf": [{"type": "null"}, keys["policy"], mapping]}
