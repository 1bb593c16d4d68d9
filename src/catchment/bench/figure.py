"""What a benchmark says: one number, and the bar it should reach."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A measured number; `ok` tells whether it reaches its bar (None: there is no bar)."""

    name: str
    value: float
    unit: str
    bar: float | None
    ok: bool | None
    detail: str


def at_least(name: str, value: float, unit: str, bar: float, detail: str) -> Figure:
    """A figure that should not be below its bar.

    >>> at_least("speed", 0.5, "of bincount", 0.25, "").ok
    True
    """
    return Figure(name, value, unit, bar, value >= bar, detail)


def below(name: str, value: float, unit: str, bar: float, detail: str) -> Figure:
    """A figure that should stay below its bar."""
    return Figure(name, value, unit, bar, value < bar, detail)


def exactly(name: str, value: float, unit: str, bar: float, detail: str) -> Figure:
    """A figure that should be its bar."""
    return Figure(name, value, unit, bar, value == bar, detail)


def plain(name: str, value: float, unit: str, detail: str) -> Figure:
    """A figure for information."""
    return Figure(name, value, unit, None, None, detail)
