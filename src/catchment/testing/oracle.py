"""The brute-force oracle: every window straight from its definition, over plain lists of events.

It shares no code with the engine and keeps every event for ever. Of a window it takes the kind and
what its builder was given; all that the engine asks a window it works out for itself. `oracle`
answers for a whole input; `oracle_run` replays pushes and frontier steps and answers for each step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, cast

from catchment.errors import QueryError
from catchment.model.calendar import time_zone
from catchment.model.duration import instant, micros
from catchment.model.query import Query
from catchment.model.window import Chained, Counted, Gap, Marked, OnePeriod, Window
from catchment.testing.oracle_expression import holds, order_key, value_of
from catchment.testing.oracle_functions import aggregate
from catchment.windows.calendar import CalendarWindow
from catchment.windows.cumulate import Cumulate

Row = dict[str, Any]
OracleResults = dict[str, list[Row]]
Step = tuple[Any, ...]
"""("push", events), ("advance", microseconds), ("close",) or ("add", query)."""


ALONE = "0"
"""The stream of events that are said to be of none."""
STREAM = "#stream"
"""The column of a given event that says which node's it is; it is no column of the event."""


@dataclass(frozen=True)
class Event:
    """An accepted event: its time, its place in the order of arrival, its columns, its stream."""

    time: int
    arrival: int
    row: Row
    stream: str = ALONE


@dataclass(frozen=True)
class OracleWindow:
    """A complete window of one key; `index` is its number, `node` whose it is, where it has one.

    The number is that among all windows of the key, and of the node where `node` is there (count
    windows, and those read as `ordered`), or among those of the same key, node and bounds (other
    windows whose bounds may be equal).
    """

    start: int
    end: int
    members: Sequence[Event]
    index: int | None = None
    node: str | None = None


def oracle(queries: Iterable[Query], events: Sequence[Row], time: str = "ts") -> OracleResults:
    """The rows of every query once the whole input is read and closed; times in microseconds."""
    return oracle_run(queries, [("push", events), ("close",)], time)[0]


def oracle_run(
    queries: Iterable[Query],
    steps: Iterable[Step],
    time: str = "ts",
    lateness: int | str = 0,
    late: str = "drop",
    keep: int | str | None = None,
) -> list[OracleResults]:
    """The rows expected from every advance and close, in order.

    An event earlier than the frontier when it arrives is dropped, for all queries alike; with
    `late="update"` it counts all the same when it is no older than `keep` before the frontier,
    and rows carry `revision` and `retracted`. A query added on the way answers the windows that
    begin at or after the frontier of that moment (for windows in time; others ask for more care).
    An event's column `#stream` names its node, for windows that each stream has for itself.
    """
    queries, steps = list(queries), _typed(steps)
    slack = _duration(lateness)
    horizon = _duration(keep) if keep is not None else _longest(queries)
    allowed = horizon if late == "update" else 0
    histories = [_History(query, late == "update") for query in queries]
    frontier = -math.inf
    accepted: list[Event] = []
    streams = {row.get(STREAM, ALONE) for step in steps if step[0] == "push" for row in step[1]}
    results: list[OracleResults] = []
    for step in steps:
        if step[0] == "push":
            for row in step[1]:
                at = _time(row[time])
                if at is not None and at >= frontier - allowed:
                    columns = {n: v for n, v in row.items() if n != STREAM} | {time: at}
                    stream = row.get(STREAM, ALONE)
                    accepted.append(Event(at, len(accepted), columns, stream))
            continue
        if step[0] == "add":
            # A window that begins after the newest event so far misses none.
            unseen = max((event.time for event in accepted), default=-math.inf) + 1
            histories.append(_History(step[1], late == "update", since=min(frontier, unseen)))
            continue
        reached = math.inf if step[0] == "close" else instant(step[1]) - slack
        frontier = max(frontier, reached)
        results.append({h.query.name: h.rows(accepted, frontier, streams) for h in histories})
    return results


# Windows: the complete ones among one key's events (sorted by time, then arrival).


def _periodic(window: OnePeriod, events: list[Event], frontier: float) -> Iterator[OracleWindow]:
    numbers: set[int] = set()
    for event in events:
        newest = (event.time - window.offset) // window.slide
        oldest = (event.time - window.offset - window.length) // window.slide + 1
        numbers.update(range(oldest, newest + 1))
    for k in sorted(numbers):
        start = window.offset + k * window.slide
        end = start + window.length
        if end <= frontier:
            yield OracleWindow(start, end, [e for e in events if start <= e.time < end])


def _fixed(window: OnePeriod, events: list[Event], frontier: float) -> Iterator[OracleWindow]:
    end = window.offset + window.length
    members = [e for e in events if window.offset <= e.time < end]
    if members and end <= frontier:
        yield OracleWindow(window.offset, end, members)


def _cumulate(window: Cumulate, events: list[Event], frontier: float) -> Iterator[OracleWindow]:
    for k in sorted({(event.time - window.offset) // window.size for event in events}):
        start = window.offset + k * window.size
        for end in range(start + window.step, start + window.size + 1, window.step):
            members = [e for e in events if start <= e.time < end]
            if members and end <= frontier:
                yield OracleWindow(start, end, members)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000_000
_HALF_HOUR = 1_800_000_000


def _calendar(
    window: CalendarWindow, events: list[Event], frontier: float
) -> Iterator[OracleWindow]:
    numbers: set[int] = set()
    for event in events:
        day = _EPOCH + timedelta(microseconds=event.time)
        about = (day.year - 1970) * 12 + day.month - 1 if window.unit == "month" else None
        about = event.time // _DAY if about is None else about
        numbers.update(range(about - window.length - 3, about + 4))
    for number in sorted(numbers):
        if (number - window.offset) % window.slide:
            continue
        start, end = (_begins(window, n) for n in (number, number + window.length))
        members = [e for e in events if start <= e.time < end]
        if members and end <= frontier:
            yield OracleWindow(start, end, members)


def _begins(window: CalendarWindow, number: int) -> int:
    """When a day or month begins, counted from that of 1970-01-01."""
    if window.unit == "day":
        first = datetime(1970, 1, 1) + timedelta(days=number)
    else:
        first = datetime(1970 + number // 12, number % 12 + 1, 1)
    return first_shown(window.zone, first + timedelta(microseconds=window.shift))


@lru_cache(maxsize=1 << 16)
def first_shown(zone: str, clock: datetime) -> int:
    """The first instant at which the clocks of a zone show a time or a later one: looked for from
    two days before, by half hours, and then within one."""
    rules = time_zone(zone)

    def reached(time: int) -> bool:
        shown = (_EPOCH + timedelta(microseconds=time)).astimezone(rules)
        return shown.replace(tzinfo=None) >= clock

    time = (clock.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) - 2 * _DAY
    while not reached(time):
        time += _HALF_HOUR
    low, high = time - _HALF_HOUR, time
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _session(window: Gap, events: list[Event], frontier: float) -> Iterator[OracleWindow]:
    sessions: list[list[Event]] = []
    for event in events:
        if sessions and event.time - sessions[-1][-1].time <= window.gap:
            sessions[-1].append(event)
        else:
            sessions.append([event])
    for members in sessions:
        last = members[-1].time + window.gap
        # An event exactly `gap` later would still join; nothing comes after a close.
        if last < frontier:
            yield OracleWindow(members[0].time, last, members)


def _chained(window: Chained, events: list[Event], frontier: float) -> Iterator[OracleWindow]:
    """One event after the other: each joins the window that is open, or closes it and opens one."""
    members: list[Event] = []
    seen: Counter[tuple[int, int]] = Counter()

    def ended(end: int) -> Iterator[OracleWindow]:
        index = None
        if window.max_events is not None:
            index = seen[members[0].time, end]
            seen[members[0].time, end] += 1
        if len(members) >= window.min_events:
            yield OracleWindow(members[0].time, end, members, index)

    def last_chance() -> tuple[float, float]:
        """The last time at which an event may join, by the gaps, and the first too late."""
        gaps = [_gap(window, e) for e in members]
        by_gap = max((e.time + g for e, g in zip(members, gaps, strict=True)), default=math.inf)
        limit = math.inf if window.max_length is None else members[0].time + window.max_length
        return by_gap, limit

    for event in events:
        if event.time >= frontier:
            break
        if members:
            by_gap, limit = last_chance()
            if event.time > by_gap or event.time >= limit:
                yield from ended(int(min(by_gap, limit)))
                members = []
        members = [*members, event]
        if window.max_events is not None and len(members) == window.max_events:
            yield from ended(event.time)
            members = []
    if members:
        by_gap, limit = last_chance()
        if by_gap < frontier or limit <= frontier:
            yield from ended(int(min(by_gap, limit)))


def _gap(window: Chained, event: Event) -> float:
    if window.gap is not None:
        return window.gap
    if window.gap_from is None:
        return math.inf
    return round(float(value_of(window.gap_from, event.row)) * 1_000_000)


def _cut(window: Marked, events: list[Event], frontier: float) -> Iterator[OracleWindow]:
    settled = [e for e in events if e.time < frontier]
    members = settled[:1]
    for event in settled[1:]:
        if holds(window.opens, event.row):
            yield OracleWindow(members[0].time, event.time, members)
            members = []
        members = [*members, event]


def _between(window: Marked, events: list[Event], frontier: float) -> Iterator[OracleWindow]:
    members: list[Event] = []
    for event in events:
        if event.time >= frontier:
            return
        if members:
            members = [*members, event]
            if holds(window.closes, event.row):
                yield OracleWindow(members[0].time, event.time, members)
                members = []
        elif holds(window.opens, event.row):
            members = [event]


def _count(window: Counted, events: list[Event], frontier: float) -> Iterator[OracleWindow]:
    settled = [e for e in events if e.time < frontier]
    for first in range(0, len(settled) - window.size + 1, window.step):
        members = settled[first : first + window.size]
        yield OracleWindow(members[0].time, members[-1].time, members, first // window.step)


_WINDOWS: dict[str, Callable[[Any, list[Event], float], Iterator[OracleWindow]]] = {
    "tumbling": _periodic,
    "sliding": _periodic,
    "fixed": _fixed,
    "cumulate": _cumulate,
    "calendar": _calendar,
    "session": _session,
    "limited_session": _chained,
    "count_within": _chained,
    "cut": _cut,
    "between": _between,
    "count": _count,
}


def _marked(window: Window) -> Marked | None:
    """The window, if marks bound it."""
    return cast(Marked, window) if window.kind in ("cut", "between") else None


def numbered_by_bounds(window: Window) -> bool:
    """Whether `window_index` counts the windows of equal key, node and bounds.

    So it is where marks of one instant bound several windows of no length; those read as
    `ordered` are counted by key, and those read as `gaps` are one where they touch. Count windows
    of single nodes, too, where equal bounds make them one.
    """
    if window.kind in ("count", "count_within"):
        return window.reading == "aligned"
    return _marked(window) is not None and window.reading not in ("ordered", "gaps")


def _windows(
    window: Window, events: list[Event], frontier: float, streams: set[str]
) -> Iterable[OracleWindow]:
    """The complete windows of one key: of all its events, or as its streams' windows are read."""
    whole = _WINDOWS[window.kind]
    if window.reading == "global":
        return whole(window, events, frontier)
    if window.reading == "any":
        found = whole(window, events, frontier)
        return (_begun(cast(Marked, window), one) for one in found)
    by_stream = {name: [e for e in events if e.stream == name] for name in sorted(streams)}
    return _together(window, by_stream, frontier)


def _begun(window: Marked, found: OracleWindow) -> OracleWindow:
    """Of a window of all streams, only the events of streams that have begun it themselves, and the
    event that ends it."""
    members, begun = [], set[str]()
    for event in found.members:
        if holds(window.opens, event.row):
            begun.add(event.stream)
        if event.stream in begun or event is found.members[-1]:
            members.append(event)
    return replace(found, members=members)


# Windows of many streams: each reading straight from its definition.


def _own(
    window: Window, events: list[Event], frontier: float
) -> tuple[list[OracleWindow], int | None]:
    """A stream's windows that have ended before the frontier; the start of the one still open,
    where windows are read as `gaps`."""
    ended = list(_WINDOWS[window.kind](window, events, frontier))
    settled = [e for e in events if e.time < frontier]
    if window.reading != "gaps":
        return ended, None
    last = max((settled.index(found.members[-1]) for found in ended), default=-1)
    opens = cast(Marked, window).opens  # others are not read so
    opening = [e.time for e in settled[last + 1 :] if holds(opens, e.row)]
    return ended, opening[0] if opening else None


def _together(
    window: Window, streams: dict[str, list[Event]], frontier: float
) -> Iterator[OracleWindow]:
    """The complete windows of a key whose streams each have windows of their own."""
    found = {name: _own(window, events, frontier) for name, events in streams.items()}
    closing = frontier == math.inf
    if window.reading == "local":
        for name, (ended, _) in found.items():
            yield from (replace(one, node=name) for one in ended)
    elif window.reading == "aligned":
        alike: dict[Any, list[OracleWindow]] = {}
        for ended, _ in found.values():
            seen: Counter[tuple[int, int]] = Counter()
            for one in ended:
                if one.end >= frontier:
                    continue  # one of equal bounds may still end
                bounds = (one.start, one.end)
                alike.setdefault((*bounds, seen[bounds]), []).append(one)
                seen[bounds] += 1
        yield from map(_union, alike.values())
    elif window.reading == "ordered":
        counts = [len(ended) for ended, _ in found.values()]
        for i in range(max(counts) if closing else min(counts)):
            parts = [ended[i] for ended, _ in found.values() if i < len(ended)]
            yield replace(_union(parts), index=i)
    else:
        yield from _gaps(found, closing)


def _gaps(
    found: dict[str, tuple[list[OracleWindow], int | None]], closing: bool
) -> Iterator[OracleWindow]:
    """Merges any two that overlap until none do; what an open window reaches is not complete."""
    merged = [one for ended, _ in found.values() for one in ended]
    pair: tuple[OracleWindow, OracleWindow] | None
    while pair := next(
        (
            (a, b)
            for n, a in enumerate(merged)
            for b in merged[n + 1 :]
            if a.start <= b.end and b.start <= a.end
        ),
        None,
    ):
        merged = [one for one in merged if one is not pair[0] and one is not pair[1]]
        merged.append(_union(list(pair)))
    opened = [start for _, start in found.values() if start is not None and not closing]
    yield from (one for one in merged if all(start > one.end for start in opened))


def _union(parts: list[OracleWindow]) -> OracleWindow:
    """One window of several: from the least start to the greatest end, in order of time."""
    members = sorted((e for part in parts for e in part.members), key=lambda e: (e.time, e.arrival))
    return OracleWindow(min(p.start for p in parts), max(p.end for p in parts), members)


# One query over the accepted events.


def _selected(query: Query, accepted: list[Event]) -> list[Event]:
    """What meets `where`, without repeats, in order of time, then arrival."""
    kept: list[Event] = []
    seen: dict[Any, list[int]] = {}
    for event in accepted:
        if not holds(query.where, event.row):
            continue
        if query.distinct_on:
            times = seen.setdefault(_key(query.distinct_on, event.row), [])
            if any(abs(event.time - t) <= query.distinct_within for t in times):
                continue
            times.append(event.time)
        kept.append(event)
    return sorted(kept, key=lambda e: (e.time, e.arrival))


def _complete(
    query: Query, accepted: list[Event], frontier: float, streams: set[str]
) -> dict[Any, OracleWindow]:
    """The complete windows by identity: key, node, bounds and, where bounds may repeat, number.

    Windows bounded by marks may have equal bounds, and are numbered in order of their events,
    unless they are merged where they touch.
    """
    by_key: dict[Any, list[Event]] = {}
    for event in _selected(query, accepted):
        keys = _keys(query, event.row)
        for place, some in enumerate(_sets(query)):
            by_key.setdefault((place, _key(some, keys)), []).append(event)
    found: dict[Any, OracleWindow] = {}
    seen: Counter[Any] = Counter()
    for key, events in by_key.items():
        for window in _windows(query.window, events, frontier, streams):
            alike = ((key, window.node), window.start, window.end)
            if numbered_by_bounds(query.window):
                window = replace(window, index=seen[alike])
                seen[alike] += 1
            assert (*alike, window.index) not in found
            found[*alike, window.index] = window
    return found


@dataclass
class _History:
    """What one query has emitted: by identity, the window, its row and its revision."""

    query: Query
    updates: bool
    since: float = -math.inf
    emitted: dict[Any, tuple[OracleWindow | None, Row, int]] = field(default_factory=dict)
    source: _History | None = None
    """Where the query reads results of another one, what that one has emitted."""
    read: list[Event] = field(default_factory=list)
    """The results that were read so far, as events."""

    def __post_init__(self) -> None:
        if self.query.source is not None:
            self.source = _History(self.query.source, False)
        if self.query.measure != "event":
            raise QueryError("the oracle has no clock", given=f"measure={self.query.measure!r}")

    def rows(self, accepted: list[Event], frontier: float, streams: set[str]) -> list[Row]:
        """The rows due at this frontier: windows that are new, changed or gone."""
        if self.source is not None:
            rows = self.source.rows(accepted, frontier, streams)
            rows.sort(key=_order_of_results)
            for row in rows:
                at = row["window_end"] - 1
                self.read.append(Event(at, len(self.read), {**row, "window_time": at}))
            accepted = self.read
        return self._due(accepted, self._reached(frontier), streams)

    def _reached(self, frontier: float) -> float:
        """The time before which there will be no more of what is read.

        A window whose bounds come from the data may still end just at the frontier, and so at each
        stage.
        """
        if self.source is None:
            return frontier
        before = self.source._reached(frontier)
        return before if _known_ahead(self.source.query.window) else before - 1

    def _due(self, accepted: list[Event], frontier: float, streams: set[str]) -> list[Row]:
        found = _complete(self.query, accepted, frontier, streams)
        complete = {i: window for i, window in found.items() if window.start >= self.since}
        rows = [
            self._emit(identity, window, _row(self.query, window, identity[0][0][0]))
            for identity, window in complete.items()
            if identity not in self.emitted or self._changed(identity, window)
        ]
        gone = [i for i, (w, _, _) in self.emitted.items() if w is not None and i not in complete]
        return _output(self.query, rows + [self._retract(identity) for identity in gone])

    def _changed(self, identity: Any, window: OracleWindow) -> bool:
        before = self.emitted[identity][0]
        return before is None or before.members != window.members

    def _emit(self, identity: Any, window: OracleWindow | None, row: Row) -> Row:
        revision = self.emitted[identity][2] + 1 if identity in self.emitted else 0
        self.emitted[identity] = (window, row, revision)
        if not self.updates:
            return row
        return {**row, "revision": revision, "retracted": window is None}

    def _retract(self, identity: Any) -> Row:
        _, before, _ = self.emitted[identity]
        nothing = {a.label: None for a in self.query.aggregates}
        return self._emit(identity, None, before | nothing)


def _order_of_results(row: Row) -> list[Any]:
    """Results of one time are read in the order of their columns, nulls last."""
    rest = [value for name, value in row.items() if name != "window_end"]
    plain = [value for value in rest if not isinstance(value, list | dict)]
    return [row["window_end"], *((v is None, v != v, v) for v in plain)]


def _known_ahead(window: Window) -> bool:
    """Whether time alone says where windows begin and end."""
    return window.kind in ("tumbling", "sliding", "fixed", "cumulate", "calendar")


def _row(query: Query, window: OracleWindow, place: int) -> Row:
    keys = _keys(query, window.members[0].row)
    some = _sets(query)[place]
    row = {name: keys[name] if name in some else None for name in query.by}
    if query.output is not None and query.output.sets:
        bits = ["0" if name in some else "1" for name in query.by]
        row["grouping_id"] = int("".join(bits), 2)
        row |= {f"grouping({name})": int(bit) for name, bit in zip(query.by, bits, strict=True)}
    if window.node is not None:
        row["node"] = window.node
    row |= {"window_start": window.start, "window_end": window.end}
    if window.index is not None:
        row["window_index"] = window.index
    for a in query.aggregates:
        if a.column is None:
            row[a.label] = len(window.members)
        else:
            values = [value_of(a.column, event.row) for event in window.members]
            times = [event.time for event in window.members]
            row[a.label] = aggregate(a.function, values, a.params, times)
    return row


def _keys(query: Query, row: Row) -> Row:
    """The keys of an event, by their names in results."""
    computed = dict(query.computed)
    return {n: value_of(computed[n], row) if n in computed else row[n] for n in query.by}


def _sets(query: Query) -> Sequence[tuple[str, ...]]:
    """The sets of keys that there are rows for: mostly the one of all keys."""
    return (query.output.sets if query.output is not None else ()) or (query.by,)


def _output(query: Query, rows: list[Row]) -> list[Row]:
    """What the query makes of rows of aggregates: its columns, HAVING, and the first rows."""
    output = query.output
    if output is None:
        return rows
    made: list[tuple[Row, Row]] = []
    for row in rows:
        gone = row.get("retracted", False) or not holds(output.having, row)
        if gone and not row.get("revision"):
            continue
        hidden = [a.text for a in query.aggregates] + [f"grouping({name})" for name in query.by]
        shown = {name: value for name, value in row.items() if name not in hidden}
        for column in output.columns:
            shown[column.name] = None if gone else value_of(column.expression, row)
        if "retracted" in shown:
            shown["retracted"] = gone
        made.append((row, shown))
    for name in reversed(("grouping_id", *query.by)):
        made.sort(key=lambda pair: _place(pair[0].get(name), True))
    for order in reversed(output.order):
        places = [
            (_place(value_of(order.expression, row), order.nulls_first), row, shown)
            for row, shown in made
        ]
        down = order.descending
        places.sort(key=lambda triple: triple[0], reverse=down)  # nulls are not compared
        places.sort(key=lambda triple: triple[0][0])
        made = [(row, shown) for _, row, shown in places]
    taken: Counter[tuple[int, int]] = Counter()
    kept = []
    for row, shown in made:
        bounds = (row["window_start"], row["window_end"])
        taken[bounds] += 1
        if output.limit is None or taken[bounds] <= output.limit:
            kept.append(shown)
    return kept


def _place(value: Any, nulls_first: bool) -> tuple[int, tuple[bool, Any]]:
    """Sorts nulls first or last, and other values among themselves."""
    null = value is None
    return (-1 if null and nulls_first else int(null), (False, 0) if null else order_key(value))


# Values.


def _key(columns: Iterable[str], row: Row) -> tuple[Any, ...]:
    """Equal for equal keys: NULL is a key, NaN equals NaN, -0.0 equals 0.0."""
    return tuple(order_key(row[column]) for column in columns)


def _time(value: int | datetime | None) -> int | None:
    return None if value is None else instant(value)


def _duration(value: int | str) -> int:
    return value if isinstance(value, int) else micros(value)


def _longest(queries: list[Query]) -> int:
    """The default of `keep`: the longest window or gap, or an hour where none has a length."""
    return max((_reach(query.window) for query in queries), default=0) or micros("1h")


_LENGTHS = {
    "tumbling": "length",
    "sliding": "length",
    "fixed": "length",
    "cumulate": "size",
    "session": "gap",
}
"""What says how long a window or its gap is, by kind; marks and counts do not tell."""


def _reach(window: Window) -> int:
    if window.kind == "calendar":  # months have 31 days at most; clocks are put back by two at most
        calendar = cast(CalendarWindow, window)
        plain = calendar.unit == "day" and calendar.zone == "UTC"
        days = calendar.length * (31 if calendar.unit == "month" else 1)
        return (days if plain else days + 2) * _DAY
    length = _LENGTHS.get(window.kind)
    return 0 if length is None else int(getattr(window, length))


def _typed(steps: Iterable[Step]) -> list[Step]:
    """A column with any float is a float column, as it is in Arrow."""
    copied = [(s[0], [dict(r) for r in s[1]]) if s[0] == "push" else s for s in steps]
    rows = [row for step in copied if step[0] == "push" for row in step[1]]
    floats = {c for row in rows for c, v in row.items() if isinstance(v, float)}
    for row in rows:
        for column in floats & row.keys():
            if type(row[column]) is int:
                row[column] = float(row[column])
    return copied
