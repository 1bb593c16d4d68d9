"""What a window is: the shape shared by every window type.

A window type is one file under `windows/`. It says how its windows are bounded; the engine treats
it by its family, never by its class:

* `Periodic`: the edges are known ahead of the data (tumbling, sliding, fixed).
* `Gap`: a window ends where the data pauses (session).
* `Marked`: events open and close the window (cut, between).
* `Counted`: the edges are known ahead, in ranks of events (count_tumbling, count_sliding).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeVar, get_args

from catchment.errors import QueryError
from catchment.registry import Registry


@dataclass(frozen=True, slots=True)
class Window:
    """Base of all window types; `kind` is its name in plans and job files."""

    kind: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind} | {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def bounds_repeat(self) -> bool:
        """Whether a key may have several windows of equal bounds: results then carry
        `window_index`, which tells them apart. Where it is False, bounds are identity enough.
        """
        return False


@dataclass(frozen=True, slots=True)
class Periodic(Window):
    """Windows `[offset + k * slide, offset + k * slide + length)`, for every whole k."""

    length: int
    slide: int
    offset: int = 0

    @property
    def only(self) -> bool:
        """True when there is just the window k = 0."""
        return False


@dataclass(frozen=True, slots=True)
class Gap(Window):
    """Events of a key at most `gap` apart share a window `[first, last + gap)`."""

    gap: int


Reading = Literal["global", "local", "aligned", "ordered", "gaps"]
READINGS: tuple[Reading, ...] = get_args(Reading)


@dataclass(frozen=True, slots=True)
class Marked(Window):
    """Windows opened and closed by events; `opens` and `closes` are SQL conditions.

    Without `closes`, each opening event closes the window before it. `reading` says what that
    means over the streams of many nodes: `global` takes all events in one order; by the others
    each stream has windows of its own, which stay apart (`local`) or are one window where their
    bounds are equal (`aligned`), by their number (`ordered`), or where they overlap (`gaps`).
    """

    opens: str
    closes: str | None
    reading: Reading = "global"

    @property
    def bounds_repeat(self) -> bool:
        """Marks at one instant bound several windows of no length. Read as `gaps`, windows that
        touch are one."""
        return self.reading != "gaps"


def by_stream(window: Window) -> bool:
    """Whether each stream has windows of its own."""
    return isinstance(window, Marked) and window.reading != "global"


@dataclass(frozen=True, slots=True)
class Counted(Window):
    """Windows of `size` events by rank, one every `step` events."""

    size: int
    step: int

    @property
    def bounds_repeat(self) -> bool:
        """More events may share an instant than a window holds."""
        return True


_KINDS: dict[str, type[Window]] = {}

Builder = Callable[..., Window]
"""Makes a window of arguments as people write them, which it checks."""


def _builder(_: str, found: Any) -> Builder | None:
    return found if callable(found) else None


BUILDERS: Registry[Builder] = Registry("window", "catchment.windows", "catchment.windows", _builder)
"""The window types by the names that SQL, job files and Python call them."""

Made = TypeVar("Made", bound=Builder)


def window_builder(builder: Made) -> Made:
    """Makes a window known by its builder's name."""
    BUILDERS.add(builder.__name__, builder)
    return builder


def register(window: type[Window]) -> type[Window]:
    """Makes a window type known by its `kind` to plans and job files."""
    _KINDS[window.kind] = window
    return window


def window_from_dict(data: dict[str, Any]) -> Window:
    """The inverse of `Window.to_dict`."""
    rest = dict(data)
    kind = rest.pop("kind")
    if kind not in _KINDS:
        BUILDERS.get(str(kind))  # the file of the builder registers the class
    if kind not in _KINDS:
        raise QueryError("no such window", given=kind, hint=BUILDERS.missing(str(kind)))
    return _KINDS[kind](**rest)
