"""What a window is: the questions that every window type answers.

A window type is one file under `windows/`. It says how its windows are bounded; whoever plans,
slices or assembles asks the window, and never looks at its class. A type derives from one of four
shapes, which answer most of the questions:

* `Periodic`: the edges are known ahead of the data (tumbling, sliding, fixed).
* `Gap`: a window ends where the data pauses (session).
* `Marked`: events open and close the window (cut, between).
* `Counted`: the edges are known ahead, in ranks of events (count_tumbling, count_sliding).

Only the planner and `engine/shapes/states.py` tell shapes apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, get_args

from catchment.errors import CatchmentError, QueryError
from catchment.model import records
from catchment.registry import Registry

Reading = Literal["global", "local", "aligned", "ordered", "gaps"]
READINGS: tuple[Reading, ...] = get_args(Reading)

WindowForm = dict[str, Any]
"""A window as it is written down: its `kind`, and the fields that windows of that kind have."""

Numbered = Literal["key", "bounds"]
"""Among which windows `window_index` counts: all of the key, or those of equal key and bounds."""


class Period(NamedTuple):
    """Windows `[offset + k * slide, offset + k * slide + length)`, for every whole k."""

    length: int
    slide: int
    offset: int = 0
    only: bool = False
    """True when there is just the window k = 0."""


@dataclass(frozen=True, slots=True)
class Window:
    """Base of all window types; `kind` is its name in plans and job files.

    The properties answer for a type that has nothing special; a shape overrides what it has.
    """

    kind: ClassVar[str] = ""

    def to_dict(self) -> WindowForm:
        return {"kind": self.kind} | {f.name: getattr(self, f.name) for f in fields(self)}

    def describe(self) -> str:
        """The window in a few words, for people: it is no text that any reader takes."""
        return repr(self)

    @property
    def periods(self) -> tuple[Period, ...]:
        """The windows whose edges are known ahead of the data, as evenly spaced series.

        Empty where bounds come from the data.
        """
        return ()

    @property
    def session_gap(self) -> int | None:
        """The longest pause within a window that ends where the data pauses."""
        return None

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions that an event meets which opens or closes a window."""
        return ()

    @property
    def bounded_by_events(self) -> bool:
        """Whether single events open and close windows.

        A late one could split a slice, so events must wait until they are settled. At the end of
        the input such a window may be open.
        """
        return False

    @property
    def by_rank(self) -> bool:
        """Whether windows are numbers of events."""
        return False

    @property
    def stream_reading(self) -> Reading | None:
        """How the windows of many streams become results, where each stream has windows of its
        own; None where windows are of all events together."""
        return None

    @property
    def numbered(self) -> Numbered | None:
        """Among which windows `window_index` counts, where bounds may repeat; None elsewhere."""
        return None

    @property
    def bounds_repeat(self) -> bool:
        """Whether a key may have several windows of equal bounds: results then carry
        `window_index`, which tells them apart. Where it is False, bounds are identity enough.
        """
        return self.numbered is not None

    @property
    def reach(self) -> int:
        """How far back from its end a window reaches at most, where that is known; 0: it is not."""
        return 0

    def last_touched(self, time: int) -> int | None:
        """The last start of a window that events up to a time, had they been there, could change.

        None: of any later window, since its bounds follow from those of the windows before.
        """
        return None


@dataclass(frozen=True, slots=True)
class Periodic(Window):
    """Windows whose edges are known ahead of the data: `periods` says all there is to know."""

    @property
    def reach(self) -> int:
        return max(period.length for period in self.periods)

    def last_touched(self, time: int) -> int | None:
        return time


@dataclass(frozen=True, slots=True)
class OnePeriod(Periodic):
    """Windows `[offset + k * slide, offset + k * slide + length)`, for every whole k."""

    length: int
    slide: int
    offset: int = 0

    @property
    def periods(self) -> tuple[Period, ...]:
        return (Period(self.length, self.slide, self.offset),)


@dataclass(frozen=True, slots=True)
class Gap(Window):
    """Events of a key at most `gap` apart share a window `[first, last + gap)`."""

    gap: int

    @property
    def session_gap(self) -> int | None:
        return self.gap

    @property
    def reach(self) -> int:
        return self.gap

    def last_touched(self, time: int) -> int | None:
        return time + self.gap


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
    def conditions(self) -> tuple[str, ...]:
        return (self.opens,) if self.closes is None else (self.opens, self.closes)

    @property
    def bounded_by_events(self) -> bool:
        return True

    @property
    def stream_reading(self) -> Reading | None:
        return None if self.reading == "global" else self.reading

    @property
    def numbered(self) -> Numbered | None:
        """Marks at one instant bound several windows of no length. Read as `gaps`, windows that
        touch are one."""
        if self.reading == "gaps":
            return None
        return "key" if self.reading == "ordered" else "bounds"


@dataclass(frozen=True, slots=True)
class Counted(Window):
    """Windows of `size` events by rank, one every `step` events."""

    size: int
    step: int

    @property
    def bounded_by_events(self) -> bool:
        return True

    @property
    def by_rank(self) -> bool:
        return True

    @property
    def numbered(self) -> Numbered | None:
        """More events may share an instant than a window holds."""
        return "key"


_KINDS: dict[str, type[Window]] = {}

WindowBuilder = Callable[..., Window]
"""Makes a window of arguments as people write them, which it checks."""


def _builder(_: str, found: Any) -> WindowBuilder | None:
    return found if callable(found) else None


BUILDERS: Registry[WindowBuilder] = Registry(
    "window", "catchment.windows", "catchment.windows", _builder
)
"""The window types by the names that SQL, job files and Python call them."""

Made = TypeVar("Made", bound=WindowBuilder)


def window_builder(builder: Made) -> Made:
    """Makes a window known by its builder's name."""
    BUILDERS.add(builder.__name__, builder)
    return builder


def register(window: type[Window]) -> type[Window]:
    """Makes a window type known by its `kind` to plans and job files."""
    _KINDS[window.kind] = window
    return window


def window_from_dict(form: WindowForm) -> Window:
    """The inverse of `Window.to_dict`; every field is checked."""
    kind = str(form.get("kind"))
    if kind not in _KINDS:
        BUILDERS.get(kind)  # the file of the builder registers the class
    if kind not in _KINDS:
        raise QueryError("no such window", given=kind, hint=BUILDERS.missing(kind))
    return records.convert(_KINDS[kind], form, f"the window {kind}", unreadable_query)


def unreadable_query(what: str, why: str) -> CatchmentError:
    """The error for a part of a query that no query has."""
    return QueryError(f"{what} cannot be read", given=why)
