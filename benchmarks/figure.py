"""What a benchmark says: one number, and the bar it should reach."""

from __future__ import annotations

import msgspec


class Figure(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"name": "figure"},
):
    """A measured number; `ok` tells whether it reaches its bar (None: there is no bar).

    In records its name is called `figure`.
    """

    name: str
    value: float
    unit: str
    bar: float | None
    ok: bool | None
    detail: str = ""
    """How it was measured, in words."""


def at_least(name: str, value: float, unit: str, bar: float, detail: str) -> Figure:
    """A figure that should not be below its bar.

    >>> at_least("speed", 0.5, "of bincount", 0.25, "").ok
    True
    """
    return Figure(name, value, unit, bar, value >= bar, detail)


def below(name: str, value: float, unit: str, bar: float, detail: str) -> Figure:
    """A figure that should stay below its bar."""
    return Figure(name, value, unit, bar, value < bar, detail)


def at_most(name: str, value: float, unit: str, bar: float, detail: str) -> Figure:
    """A figure that should not be above its bar."""
    return Figure(name, value, unit, bar, value <= bar, detail)


def exactly(name: str, value: float, unit: str, bar: float, detail: str) -> Figure:
    """A figure that should be its bar."""
    return Figure(name, value, unit, bar, value == bar, detail)


def plain(name: str, value: float, unit: str, detail: str) -> Figure:
    """A figure for information."""
    return Figure(name, value, unit, None, None, detail)


def line(figure: Figure) -> str:
    """A figure on one line: does it reach its bar, its value, its name.

    >>> line(at_least("tumbling, 10 keys", 0.413, "of bincount", 0.25, ""))
    'ok    0.413 of bincount (bar 0.25)  tumbling, 10 keys'
    """
    verdict = "" if figure.ok is None else "ok" if figure.ok else "MISS"
    bar = "" if figure.bar is None else f" (bar {figure.bar:g})"
    return f"{verdict:5} {figure.value:.4g} {figure.unit}{bar}  {figure.name}"
