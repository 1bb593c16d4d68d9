"""What a window is: the questions that every window type answers.

A window type is one file under `windows/`. It says how its windows are bounded; whoever plans,
slices or assembles asks the window, and never looks at its class. A type derives from one of six
shapes, which answer most of the questions:

* `Periodic`: the edges are known ahead of the data (tumbling, sliding, fixed).
* `Gap`: a window ends where the data pauses (session).
* `Marked`: events open and close the window (cut, between).
* `Counted`: the edges are known ahead, in ranks of events (count_tumbling, count_sliding).
* `Chained`: a window begins where the one before has ended, and ends where it may take in no more
  (sessions with a limit or with gaps of their own, numbers of events within a time).
* `Stepped`: a program says of each event what it does to the windows of its key, by what it has
  seen of those before: windows of one's own.

Only the planner and `engine/shapes/states.py` tell shapes apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, get_args

from catchment.errors import CatchmentError, QueryError
from catchment.model import records
from catchment.model.scale import Scale
from catchment.registry import Registry

Reading = Literal["global", "local", "aligned", "ordered", "gaps", "any"]
READINGS: tuple[Reading, ...] = get_args(Reading)
"""What a window means over the streams of many nodes, each of which is all that one node reads.

By `global` and `any`, a window is one of all streams together; by `any`, the events of a stream are
in it from where the stream has begun it itself. By the others each stream has windows of its own,
which stay apart (`local`) or are one window where their bounds are equal (`aligned`), by their
number (`ordered`), or where they overlap (`gaps`)."""
STREAM = "#stream"
"""Stands for the stream that an event is of, among the keys of groups and what windows read."""

WindowForm = dict[str, Any]
"""A window as it is written down: its `kind`, and the fields that windows of that kind have."""

Numbered = Literal["key", "bounds"]
"""Among which windows `window_index` counts: all of the key, or those of equal key and bounds."""


class Period(NamedTuple):
    """Windows `[offset + k * slide, offset + k * slide + length)`, for every whole k.

    They are microseconds, or numbers of points on a scale.
    """

    length: int
    slide: int
    offset: int = 0
    only: bool = False
    """True when there is just the window k = 0."""
    scale: Scale | None = None

    @property
    def reach(self) -> int:
        """Microseconds that a window takes at most."""
        return self.length if self.scale is None else self.scale.reach(self.length)

    @property
    def pace(self) -> float:
        """Microseconds from one window to the next, typically."""
        return self.slide if self.scale is None else self.slide * self.scale.pace


@dataclass(frozen=True, slots=True)
class Window:
    """Base of all window types; `kind` is its name in plans and job files.

    The properties answer for a type that has nothing special; a shape overrides what it has.
    `reading` says what the window means over the streams of many nodes.
    """

    kind: ClassVar[str] = ""
    readings: ClassVar[tuple[Reading, ...]] = ("global",)
    """The readings that windows of the type may have."""
    as_global: ClassVar[tuple[Reading, ...]] = ()
    """Readings by which they are the same windows as by `global`."""

    reading: Reading = field(default="global", kw_only=True, repr=False)

    def to_dict(self) -> WindowForm:
        form = {"kind": self.kind} | {f.name: getattr(self, f.name) for f in fields(self)}
        if self.reading == "global":  # as windows were written down that had no reading
            del form["reading"]
        return form

    def describe(self) -> str:
        """The window in a few words, for people: it is no text that any reader takes."""
        return repr(self)

    @property
    def periods(self) -> tuple[Period, ...]:
        """The windows whose edges are known ahead of the data, as series that are evenly spaced, in
        time or on a scale.

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
    def durations(self) -> tuple[str, ...]:
        """The expressions whose values, numbers of seconds, say how long a window lasts."""
        return ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The expressions whose values, of whatever type, the window is given of each event."""
        return ()

    @property
    def requires(self) -> str | None:
        """A condition that all events meet which are in a window; None: any event may be."""
        return None

    @property
    def correctable(self) -> bool:
        """Whether late events can correct windows that were given."""
        return True

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
        return None if self.reading in ("global", "any") else self.reading

    @property
    def by_node(self) -> bool:
        """Whether the node is one more key, and nothing else tells its windows from others: so it
        is of local windows whose edges do not depend on the order of events."""
        return self.reading == "local" and not self.bounded_by_events

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
    """Windows whose edges are known ahead of the data: `periods` says all there is to know.

    All streams have the same ones. So `aligned` is nothing else than `global`, the i-th windows of
    two streams have nothing in common, and there are no gaps.
    """

    readings: ClassVar[tuple[Reading, ...]] = ("global", "local")
    as_global: ClassVar[tuple[Reading, ...]] = ("aligned",)

    @property
    def reach(self) -> int:
        return max(period.reach for period in self.periods)

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
    """Events of a key at most `gap` apart share a window `[first, last + gap)`.

    Sessions of single streams that overlap or touch are the sessions of all of them together: so
    `gaps` is nothing else than `global`.
    """

    readings: ClassVar[tuple[Reading, ...]] = ("global", "local", "aligned", "ordered")
    as_global: ClassVar[tuple[Reading, ...]] = ("gaps",)

    gap: int

    @property
    def numbered(self) -> Numbered | None:
        return "key" if self.reading == "ordered" else None

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

    Without `closes`, each opening event closes the window before it. Read as `any`, a window begins
    with the first event of any stream that opens it, each stream takes part from the first of its
    own that does, and the next event of any stream that closes it ends it for all of them; that
    event is in it too.
    """

    readings: ClassVar[tuple[Reading, ...]] = READINGS

    opens: str
    closes: str | None

    def to_dict(self) -> WindowForm:
        return Window.to_dict(self) | {"reading": self.reading}

    @property
    def reads(self) -> tuple[str, ...]:
        return (STREAM,) if self.reading == "any" else ()

    @property
    def conditions(self) -> tuple[str, ...]:
        return (self.opens,) if self.closes is None else (self.opens, self.closes)

    @property
    def bounded_by_events(self) -> bool:
        return True

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

    readings: ClassVar[tuple[Reading, ...]] = ("global", "local", "aligned", "ordered")

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
        return "bounds" if self.reading == "aligned" else "key"


LONGEST_GAP = 1_000_000_000_000
"""Seconds that a gap of a column may be at most, some 32,000 years: what is longer is no gap."""


@dataclass(frozen=True, slots=True)
class Chained(Window):
    """Windows of a key one after the other, each from the first event that is in none before.

    A window takes in the next event as long as that comes at most a gap after one of its events,
    less than `max_length` after its first, and as long as it has not `max_events`. The gap is the
    same for all events, or each event has its own, of so many seconds as `gap_from` says. A window
    that has `max_events` ends with the last of them; any other ends when its last gap has passed,
    or its length. Windows of fewer events than `min_events` are no results.
    """

    readings: ClassVar[tuple[Reading, ...]] = ("global", "local", "aligned", "ordered")

    gap: int | None = None
    gap_from: str | None = None
    max_length: int | None = None
    max_events: int | None = None
    min_events: int = 1

    @property
    def durations(self) -> tuple[str, ...]:
        return () if self.gap_from is None else (self.gap_from,)

    @property
    def reads(self) -> tuple[str, ...]:
        """The expressions whose values, of whatever type, the window is given of each event."""
        return ()

    @property
    def requires(self) -> str | None:
        if self.gap_from is None:
            return None
        return f"({self.gap_from}) > 0 AND ({self.gap_from}) <= {LONGEST_GAP}"

    @property
    def correctable(self) -> bool:
        """A late event may shift all windows that follow."""
        return False

    @property
    def bounded_by_events(self) -> bool:
        return True

    @property
    def numbered(self) -> Numbered | None:
        """More events may share an instant than a window holds."""
        if self.reading == "ordered":
            return "key"
        return None if self.max_events is None else "bounds"

    @property
    def reach(self) -> int:
        return self.max_length or self.gap or 0


Move = Literal["join", "begin", "end", "skip"]
MOVES: tuple[Move, ...] = get_args(Move)
"""What an event does to the windows of its key: it is in the open one, or in a new one where none
is open; it ends the open one and begins the next; it is the last of the open one, or of a new one;
it is in none, and the open one stays open."""


@dataclass(frozen=True, slots=True)
class Stepped(Window):
    """Windows of a key one after the other, by a program that sees its events in order.

    `step` is called for each event, with what it returned as state for the one before: so it says
    where windows begin and end from all events so far. A window begins with the time of its first
    event. It ends with the time of the event that ended it, or when `until` says, whatever comes.
    The program must be a function of its arguments alone. States are plain values, which can be
    written down: None, numbers, texts, and lists and maps of these.
    """

    readings: ClassVar[tuple[Reading, ...]] = ("global", "local", "aligned", "ordered")

    def step(self, state: Any, time: int, values: tuple[Any, ...]) -> tuple[Any, Move]:
        """What is known after an event, and what it does.

        The state is None before the first event of a key, and after a window that ended by its
        time. `values` are those of the expressions in `reads`.
        """
        raise NotImplementedError

    def until(self, state: Any) -> int | None:
        """When the open window ends by itself: events at that time or later are not in it.

        None: only events end it.
        """
        return None

    @property
    def bounded_by_events(self) -> bool:
        return True

    @property
    def correctable(self) -> bool:
        """A late event may shift all windows that follow."""
        return False

    @property
    def numbered(self) -> Numbered | None:
        """Events of one instant may begin and end several windows."""
        return "key" if self.reading == "ordered" else "bounds"


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


def no_such_reading(window: Window, reading: str) -> QueryError:
    """The error of a reading that has no meaning for a window."""
    return QueryError(
        f"{window.describe()} cannot be read like this",
        given=f"reading={reading!r}",
        hint=f"it can be read as {', '.join((*window.readings, *window.as_global))}",
    )
