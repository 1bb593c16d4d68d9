"""Flush policies by name: how much a node may hold back at each moment of a slice."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from catchment.errors import JobError, did_you_mean
from catchment.registry import Registry

if TYPE_CHECKING:
    from catchment.flush.sizes import SizeInputs, SliceHistory

_SHAPE = re.compile(r"\s*([a-z]\w*)\s*(?:\(\s*(.*?)\s*\))?\s*$")
_EXAMPLES = "try auto, batching, streaming, hybrid(0.25), eager(uniform) or lazy(pessimistic)"
_WORDS = ("auto", "batching", "streaming", "hybrid", "eager", "lazy")
Side = Literal["eager", "lazy"]
SIDES: tuple[Side, ...] = get_args(Side)


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """How many bytes a cache may hold at a moment of a slice; by one of the two, or by both.

    An eager one is asked from the second slice on, when there is a slice before to go by. A lazy
    one is asked where the link has a bandwidth: while it takes all at once, everything waits.
    """

    eager: Callable[[SizeInputs, SliceHistory], float] | None = None
    """The size of an eager cache: how much of what has come is likely to come again."""
    lazy: Callable[[SizeInputs], float] | None = None
    """What can still be sent by the end of the slice."""

    @property
    def defined_in(self) -> str:
        """The module that it comes from."""
        return str(getattr(self.eager or self.lazy, "__module__", None))


def _cache_policy(_: str, found: Any) -> CachePolicy | None:
    good = isinstance(found, CachePolicy) and (found.eager or found.lazy)
    return found if good else None


POLICIES: Registry[CachePolicy] = Registry(
    "flush policy", "catchment.flush_policies", "catchment.flush.policies", _cache_policy
)
"""The sizes of caches by the names that job files have for them."""


def register_policy(name: str, policy: CachePolicy) -> CachePolicy:
    """Makes a size of a cache known by its name."""
    return POLICIES.add(name, policy)


def cache_policy(name: str) -> CachePolicy:
    """The size of a cache that a setting names."""
    found = POLICIES.get(name)
    if found is None:
        raise JobError("no such flush policy", given=name, hint=POLICIES.missing(name))
    return found


@dataclass(frozen=True, slots=True)
class Policy:
    """A cache holds `alpha * lazy + (1 - alpha) * eager`; or nothing; or everything.

    So a purely lazy policy is a hybrid of 1, a purely eager one a hybrid of 0.

    >>> parse("hybrid(0.25)")
    Policy(kind='hybrid', alpha=0.25, eager='nonuniform', lazy='optimistic')
    >>> str(parse("pessimistic")), str(parse("hybrid(.5, uniform)"))
    ('lazy(pessimistic)', 'hybrid(0.5, uniform, optimistic)')
    """

    kind: str
    """`streaming`, `batching`, `hybrid`, or `auto`: a hybrid whose alpha is found on the way."""
    alpha: float = 1.0
    eager: str = "nonuniform"
    lazy: str = "optimistic"

    def __str__(self) -> str:
        if self.kind != "hybrid":
            return self.kind
        if self == Policy("hybrid", 0.0, eager=self.eager):
            return f"eager({self.eager})"
        if self == Policy("hybrid", 1.0, lazy=self.lazy):
            return f"lazy({self.lazy})"
        if self == Policy("hybrid", self.alpha):
            return f"hybrid({self.alpha:g})"
        return f"hybrid({self.alpha:g}, {self.eager}, {self.lazy})"

    def at(self, alpha: float) -> Policy:
        """The hybrid that a tuned policy is just now."""
        return replace(self, kind="hybrid", alpha=alpha) if self.kind == "auto" else self


def parse(text: object) -> Policy:
    """A policy from its name, as job files have it."""
    found = _SHAPE.match(text.lower()) if isinstance(text, str) else None
    if found is None:
        raise JobError("not a flush policy", given=repr(text), hint=_EXAMPLES)
    name = found[1]
    words = [word.strip() for word in found[2].split(",")] if found[2] else []
    if name in ("auto", "batching", "streaming"):
        return _plain(name, words)
    if name == "hybrid":
        return _hybrid(words)
    for side in SIDES:
        if name == side:
            return _pure(side, words)
    return _named(name, words)


def _named(name: str, words: list[str]) -> Policy:
    """A policy that is one cache size, by the name of that."""
    known = POLICIES.get(name)
    if known is None:
        hint = POLICIES.hint(name, besides=_WORDS)
        raise JobError("no such flush policy", given=name, hint=hint)
    if known.eager and known.lazy:
        raise JobError(
            f"two flush policies are {name}",
            given=name,
            hint=f"write eager({name}) or lazy({name})",
        )
    if words:
        raise JobError("this flush policy takes nothing", given=f"{name}({', '.join(words)})")
    return _pure("eager" if known.eager else "lazy", [name])


def _plain(name: str, words: list[str]) -> Policy:
    if words:
        raise JobError(
            "this flush policy takes nothing",
            given=f"{name}({', '.join(words)})",
            hint=f"write {name}",
        )
    return Policy(name, lazy="bounded") if name == "auto" else Policy(name)


def _pure(side: Side, words: list[str]) -> Policy:
    default = "nonuniform" if side == "eager" else "optimistic"
    if len(words) > 1:
        hint = " or ".join(_known(side))
        raise JobError(f"{side} takes one word", given=", ".join(words), hint=hint)
    word = _one_of(words[0] if words else default, side, side)
    return Policy("hybrid", 0.0, eager=word) if side == "eager" else Policy("hybrid", lazy=word)


def _hybrid(words: list[str]) -> Policy:
    if not 1 <= len(words) <= 3:
        raise JobError(
            "hybrid takes a share of laziness, and may name the two it mixes",
            given=f"hybrid({', '.join(words)})",
            hint="write hybrid(0.25) or hybrid(0.25, uniform, pessimistic)",
        )
    alpha = share(words[0], "the share of laziness")
    eager = _one_of(words[1] if len(words) > 1 else "nonuniform", "eager", "hybrid's eager side")
    lazy = _one_of(words[2] if len(words) > 2 else "optimistic", "lazy", "hybrid's lazy side")
    return Policy("hybrid", alpha, eager, lazy)


def share(value: object, what: str) -> float:
    """A number from 0 to 1."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 <= number <= 1:
        raise JobError(f"{what} must be from 0 to 1", given=value, hint="0.25 is a good start")
    return number


def _one_of(word: str, side: Side, what: str) -> str:
    found = POLICIES.get(word)
    if found is None or getattr(found, side) is None:
        hint = did_you_mean(word, _known(side))
        raise JobError(f"no such policy for {what}", given=word, hint=hint)
    return word


def _known(side: Side) -> list[str]:
    """The names of cache sizes of a side; of those in packages, only what was used before."""
    return [name for name, found in POLICIES.registered().items() if getattr(found, side)]
