"""Groups while they are planned, and which of them a query joins.

Queries of one need, key, measure and deduplication are alike. Among the drafts of those, a query
joins the first that has its condition, or else the first open one from whose selections its
condition is disjoint. Drafts are found by the condition and by the terms it speaks of, so that the
time to place a query does not grow with the number of drafts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from catchment.expression import Alternatives, alternatives
from catchment.model.plan import Answer, Group, Slicing
from catchment.model.query import Query
from catchment.model.window import Window
from catchment.planner.cost import cut_alike
from catchment.planner.selections import Selections


class Need(NamedTuple):
    """What a query asks of the slices that it is answered from.

    Queries of one need share slices. Others would only cut each other's slices finer: a median
    would be sorted once for every edge of a sliding average, and an average would wait until the
    events of a count window are settled. For the same reason large partials are shared only by
    queries of one condition whose windows are cut about as often (`Draft.takes`).
    """

    slicing: Slicing
    by_rank: bool
    """Whether windows end at the rank of an event: nodes may then be asked where that is."""
    large: bool
    """Whether partials are more than a few numbers: sorted values, sets, sketches."""
    whole: bool = False
    """Whether all keys of a window are taken together, for which they must be in one place."""


@dataclass(slots=True)
class Draft:
    """A group while queries are still being added to it."""

    by: tuple[str, ...]
    measure: Any
    distinct_on: tuple[str, ...]
    distinct_within: int
    need: Need
    computed: tuple[str, ...] = ()
    selections: Selections = field(default_factory=Selections)
    windows: dict[Window, int] = field(default_factory=dict)
    answers: dict[Answer, int] = field(default_factory=dict)
    before: Group | None = None
    """The running group that this one continues."""

    @property
    def shared(self) -> tuple[Any, ...]:
        own = self.distinct_on, self.distinct_within, self.need, self.computed
        return self.by, self.measure, *own

    def takes(self, window: Window, alike: float) -> bool:
        """Whether a query of one of the selections may join.

        Accumulators stay as they are. Large partials are shared only where together they are cut
        at most `alike` times as often as each asks for.
        """
        before = self.before
        if before is not None and before.way == "accumulators":
            return window in before.windows
        return not self.need.large or cut_alike([*self.windows, *self._running()], window, alike)

    def _running(self) -> tuple[Window, ...]:
        return () if self.before is None else self.before.windows

    def keep(self, answer: Answer) -> int:
        """The number of an answer of the group that is continued, in its old numbers."""
        assert self.before is not None
        window = self.before.windows[answer.window]
        place = self.windows.setdefault(window, len(self.windows))
        kept = replace(answer, window=place)
        return self.answers.setdefault(kept, len(self.answers))

    def add(self, query: Query, asked: Alternatives | None = None) -> int:
        """The number of the query's answer, which is added if it is not there."""
        selection = self.selections.add(query.where, asked)
        window = self.windows.setdefault(query.window, len(self.windows))
        keys = query.by if query.computed else ()
        answer = Answer(selection, window, query.aggregates, keys, query.output)
        return self.answers.setdefault(answer, len(self.answers))


OPEN = 32
"""Drafts of one term that a new condition is tried on: the newest, in their order."""


class SimilarDrafts:
    """The drafts of queries that agree in all but their conditions, aggregates and windows."""

    __slots__ = ("_alike", "_first", "_having", "_open")

    def __init__(self, alike: float) -> None:
        self._alike = alike
        self._having: dict[str | None, list[Draft]] = {}
        """The drafts that have a condition, in order."""
        self._open: dict[str, list[tuple[int, Draft]]] = {}
        """By a term that its first selection speaks of: the drafts that are not of a running plan,
        numbered. Two conditions without a common term cannot be proved disjoint."""
        self._first: Draft | None = None
        """The first draft opened here for a condition: those that no event can meet go there."""

    def running(self, draft: Draft) -> None:
        """Takes a draft in a running group's place: it gets no further selections."""
        for condition in draft.selections.numbers:
            self._having.setdefault(condition, []).append(draft)

    def place(
        self, query: Query, shared: tuple[Any, ...], drafts: list[Draft]
    ) -> tuple[Draft, int]:
        """The first draft that a query fits, or a new one, and the query's answer in it."""
        where = query.where
        having = self._having.get(where)
        for draft in having[-OPEN:] if having else ():
            if draft.takes(query.window, self._alike):
                return draft, draft.add(query)
        asked = None if where is None else alternatives(where)
        draft = Draft(*shared)
        # Large partials of one condition would be made for all the others too.
        found = None if asked is None or draft.need.large else self._fitting(asked)
        if found is None:
            drafts.append(draft)
        else:
            draft = found
        if asked is not None and draft.selections.free and not draft.need.large:
            self._first = self._first or draft
            self._open_for(draft, len(drafts), asked)
        if having is None:
            self._having[where] = [draft]
        else:
            having.append(draft)
        return draft, draft.add(query, asked)

    def _fitting(self, asked: Alternatives) -> Draft | None:
        """The first open draft whose selections are all disjoint from a condition."""
        if self._first is not None and (not asked or self._first.selections.free):
            return self._first
        terms = {term for alternative in asked for term in alternative}
        found = {number: draft for term in terms for number, draft in self._open.get(term, ())}
        for number in sorted(found):
            if found[number].selections.fits(asked):
                return found[number]
        return None

    def _open_for(self, draft: Draft, number: int, asked: Alternatives) -> None:
        for term in {term for alternative in asked for term in alternative}:
            drafts = self._open.setdefault(term, [])
            drafts.append((number, draft))
            if len(drafts) > OPEN:
                del drafts[0]
