"""Groups while they are planned, and which of them a query joins.

Queries of one need, key, measure and deduplication are alike. Among the drafts of those, a query
joins the first that has its condition, or else the first open one from whose selections its
condition is disjoint. Drafts are found by the condition and by the terms it speaks of, so that the
time to place a query does not grow with the number of drafts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

from msgspec import structs

from catchment.expression import Alternatives, alternatives
from catchment.model.plan import Answer, Group, Slicing
from catchment.model.query import Query
from catchment.model.window import Window
from catchment.planner.cost import PartialCuts, cuts_of
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
    source: str | None = None
    selections: Selections = field(default_factory=Selections)
    windows: dict[Window, int] = field(default_factory=dict)
    answers: dict[Answer, int] = field(default_factory=dict)
    before: Group | None = None
    """The running group that this one continues."""
    cuts: PartialCuts | None = None
    """Where large partials are cut, of all windows so far; None before it was asked."""

    @property
    def shared(self) -> tuple[Any, ...]:
        own = self.distinct_on, self.distinct_within, self.need, self.computed, self.source
        return self.by, self.measure, *own

    def takes(self, window: Window, alike: float) -> bool:
        """Whether a query of one of the selections may join.

        Accumulators stay as they are. Large partials are shared only where together they are cut
        at most `alike` times as often as each asks for.
        """
        before = self.before
        if before is not None and before.way == "accumulators":
            return window in before.windows
        running = () if before is None else before.windows
        if not self.need.large or window in self.windows or window in running:
            return True
        if self.cuts is None:
            self.cuts = reduce(PartialCuts.joined, map(cuts_of, {*self.windows, *running}))
        return self.cuts.joined(cuts_of(window)).alike(alike)

    def keep(self, answer: Answer) -> int:
        """The number of an answer of the group that is continued, in its old numbers."""
        assert self.before is not None
        window = self.before.windows[answer.window]
        place = self.windows.setdefault(window, len(self.windows))
        kept = structs.replace(answer, window=place)
        return self.answers.setdefault(kept, len(self.answers))

    def add(self, query: Query, asked: Alternatives | None = None, feeds: bool = False) -> int:
        """The number of the query's answer, which is added if it is not there.

        `feeds` says whether other queries read its results.
        """
        selection = self.selections.add(query.where, asked)
        count = len(self.windows)
        window = self.windows.setdefault(query.window, count)
        if window == count and self.cuts is not None:
            self.cuts = self.cuts.joined(cuts_of(query.window))
        keys = query.by if query.computed else ()
        if query.window.by_node:
            keys = query.keys
        answer = Answer(selection, window, query.aggregates, keys, query.output, feeds)
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
        self, query: Query, shared: tuple[Any, ...], drafts: list[Draft], feeds: bool = False
    ) -> tuple[Draft, int]:
        """The first draft that a query fits, or a new one, and the query's answer in it."""
        where = query.where
        having = self._having.get(where)
        for known in having[-OPEN:] if having else ():
            if known.takes(query.window, self._alike):
                return known, known.add(query, None, feeds)
        need: Need = shared[4]
        # Large partials of one condition would be made for all the others too.
        asked = None if where is None or need.large else alternatives(where)
        draft = None if asked is None else self._fitting(asked)
        if draft is None:
            draft = Draft(*shared)
            drafts.append(draft)
        if asked is not None and draft.selections.free:
            self._first = self._first or draft
            self._open_for(draft, len(drafts), asked)
        if having is None:
            self._having[where] = [draft]
        else:
            having.append(draft)
        return draft, draft.add(query, asked, feeds)

    def _fitting(self, asked: Alternatives) -> Draft | None:
        """The first open draft whose selections are all disjoint from a condition."""
        if self._first is not None and (not asked or self._first.selections.free):
            return self._first
        for _, draft in self._speaking(asked):
            if draft.selections.fits(asked):
                return draft
        return None

    def _speaking(self, asked: Alternatives) -> Iterable[tuple[int, Draft]]:
        """The open drafts that speak of a term of a condition, in their order."""
        terms = {term for alternative in asked for term in alternative}
        each = [self._open[term] for term in terms if term in self._open]
        if len(each) < 2:
            return each[0] if each else ()
        found = {number: draft for drafts in each for number, draft in drafts}
        return ((number, found[number]) for number in sorted(found))

    def _open_for(self, draft: Draft, number: int, asked: Alternatives) -> None:
        for term in {term for alternative in asked for term in alternative}:
            drafts = self._open.setdefault(term, [])
            drafts.append((number, draft))
            if len(drafts) > OPEN:
                del drafts[0]
