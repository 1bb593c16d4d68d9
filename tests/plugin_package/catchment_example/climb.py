"""A window that is bounded by what the events so far have been: as long as a value rises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from catchment.expression import canonical
from catchment.model.window import Move, Stepped, register


@register
@dataclass(frozen=True, slots=True)
class Climb(Stepped):
    """The state is the last value and the time at which the window ends if nothing comes."""

    kind = "climb"

    value: str
    patience: int

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.value,)

    def step(self, state: Any, time: int, values: tuple[Any, ...]) -> tuple[Any, Move]:
        (value,) = values
        if value is None:
            return state, "skip"
        rises = state is None or value >= state[0]
        return [value, time + self.patience], "join" if rises else "begin"

    def until(self, state: Any) -> int | None:
        return None if state is None else int(state[1])


def climb(value: str, patience_ms: int = 1000) -> Climb:
    """As long as a value does not fall, and comes within so many milliseconds."""
    return Climb(canonical(value, "value"), patience_ms * 1000)
