"""The selections of a group while it is planned: which further condition may join them.

An event must meet at most one selection of a group, so a condition joins only where it can be
proved disjoint from every selection. To compare each with each would take, for a million queries, a
million times a million proofs. Of few selections each is compared. Where there are more, some term
must divide them: all of them constrain it, each to ranges of its own or to just the ranges of
others (`site = 'a'`, or `v < 3 AND k = 'x'` beside `v < 3 AND k = 'y'`). The selections that a
condition can meet are then found in the order of the term's ranges; only these few are compared.
"""

from __future__ import annotations

from collections.abc import Iterable

from catchment.expression import Alternatives, apart, constraints
from catchment.planner.cells import Cells

FEW = 8
"""Selections that are all compared with a condition."""


class Selections:
    """Conditions of which an event meets at most one, numbered in the order they came in."""

    __slots__ = ("_dividing", "_few", "numbers")

    def __init__(self, conditions: Iterable[str | None] = ()) -> None:
        self.numbers: dict[str | None, int] = {where: n for n, where in enumerate(conditions)}
        self._few: list[Alternatives] = []
        self._dividing: dict[str, Cells[Alternatives]] | None = None
        """The terms that divide the selections, once there are more than a few of them."""

    @property
    def free(self) -> bool:
        """Whether there is no selection yet that an event can meet: then any may join."""
        return self._dividing is None and not self._few

    def fits(self, asked: Alternatives) -> bool:
        """Whether a condition that is not among the selections may join them."""
        if self._dividing is None:
            return all(apart(asked, other) for other in self._few)
        terms = constraints(asked)
        found = [
            cells.lookup(terms[term]) for term, cells in self._dividing.items() if term in terms
        ]
        least = min((held for held in found if held is not None), key=len, default=None)
        return least is not None and len(least) <= FEW and all(apart(asked, x) for x in least)

    def add(self, where: str | None, asked: Alternatives | None = None) -> int:
        """The number of a condition among the selections, to which it is added if need be.

        `asked` are its alternatives, where others may still join.
        """
        number = self.numbers.get(where)
        if number is not None:
            return number
        if asked and self._dividing is None:
            self._few.append(asked)
            if len(self._few) > FEW:
                self._divide()
        elif asked:
            self._divide_by(asked)
        return self.numbers.setdefault(where, len(self.numbers))

    def _divide(self) -> None:
        """Finds the terms that divide the selections; where none does, nothing joins any more."""
        few, self._few = self._few, []
        self._dividing = {term: Cells() for term in constraints(few[0])}
        for asked in few:
            self._divide_by(asked)

    def _divide_by(self, asked: Alternatives) -> None:
        """Adds a condition on each dividing term; one that it does not keep apart is dropped."""
        terms = constraints(asked)
        kept: dict[str, Cells[Alternatives]] = {}
        for term, cells in (self._dividing or {}).items():
            if term in terms and cells.lookup(terms[term]) is not None:
                cells.add(terms[term], asked)
                kept[term] = cells
        self._dividing = kept
