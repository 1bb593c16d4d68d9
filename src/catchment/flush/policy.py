"""Policies by name: how much an edge may hold back at any time of a slice."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from catchment.errors import JobError, did_you_mean

EAGER = ("uniform", "nonuniform", "empirical")
LAZY = ("pessimistic", "optimistic", "empirical", "bounded")
_SHAPE = re.compile(r"\s*([a-z]+)\s*(?:\(\s*(.*?)\s*\))?\s*$")
_EXAMPLES = "try auto, batching, streaming, hybrid(0.25), eager(uniform) or lazy(pessimistic)"
_KNOWN = (
    "auto",
    "batching",
    "streaming",
    "hybrid",
    "eager",
    "lazy",
    *dict.fromkeys((*EAGER, *LAZY)),
)


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
    if name not in _KNOWN:
        raise JobError("no such flush policy", given=name, hint=did_you_mean(name, _KNOWN))
    if name in ("auto", "batching", "streaming"):
        return _plain(name, words)
    if name == "hybrid":
        return _hybrid(words)
    if name == "empirical":
        raise JobError(
            "two flush policies are empirical",
            given=name,
            hint="write eager(empirical) or lazy(empirical)",
        )
    if name in ("eager", "lazy"):
        return _pure(name, words)
    if words:
        raise JobError("this flush policy takes nothing", given=f"{name}({', '.join(words)})")
    return _pure("eager" if name in EAGER else "lazy", [name])


def _plain(name: str, words: list[str]) -> Policy:
    if words:
        raise JobError(
            "this flush policy takes nothing",
            given=f"{name}({', '.join(words)})",
            hint=f"write {name}",
        )
    return Policy(name, lazy="bounded") if name == "auto" else Policy(name)


def _pure(side: str, words: list[str]) -> Policy:
    known = EAGER if side == "eager" else LAZY
    default = "nonuniform" if side == "eager" else "optimistic"
    if len(words) > 1:
        raise JobError(f"{side} takes one word", given=", ".join(words), hint=" or ".join(known))
    word = _one_of(words[0] if words else default, known, side)
    return Policy("hybrid", 0.0, eager=word) if side == "eager" else Policy("hybrid", lazy=word)


def _hybrid(words: list[str]) -> Policy:
    if not 1 <= len(words) <= 3:
        raise JobError(
            "hybrid takes a share of laziness, and may name the two it mixes",
            given=f"hybrid({', '.join(words)})",
            hint="write hybrid(0.25) or hybrid(0.25, uniform, pessimistic)",
        )
    alpha = share(words[0], "the share of laziness")
    eager = _one_of(words[1] if len(words) > 1 else "nonuniform", EAGER, "hybrid's eager side")
    lazy = _one_of(words[2] if len(words) > 2 else "optimistic", LAZY, "hybrid's lazy side")
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


def _one_of(word: str, known: tuple[str, ...], what: str) -> str:
    if word not in known:
        raise JobError(f"no such policy for {what}", given=word, hint=did_you_mean(word, known))
    return word
