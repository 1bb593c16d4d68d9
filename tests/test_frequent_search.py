"""The most frequent values among counts that are known in part, against adding all of them up."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from catchment.ranking.frequent import FoundCounts, most_frequent_of, rest_of, untrue
from catchment.ranking.search import KnownPlaces, in_order

Row = dict[int, int]
"""How often each value of a row occurs."""


def first(rows: list[Row], k: int) -> list[tuple[int, int]]:
    """The k most frequent values of rows and how often they occur, of equals the least."""
    sums = sum((Counter(row) for row in rows), Counter[int]())
    return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))[:k]


def drawn(dice: random.Random) -> tuple[list[Row], list[int]]:
    """Rows, and the case of each."""
    rows, owner = [], []
    for case in range(dice.randint(1, 4)):
        ties = dice.choice([1, 2, 30])
        values = dice.choice([1, 4, 40])
        alone = dice.random() < 0.2
        for _ in range(dice.randint(1, 5)):
            count = 1 if alone and rows else dice.randint(1, values)
            some = dice.sample(range(-values, values), count)
            rows.append({value: dice.randint(1, ties) for value in some})
            owner.append(case)
    return rows, owner


class Nodes:
    """What nodes tell of rows: at first the most frequent, then what they are asked for."""

    def __init__(self, rows: list[Row], owner: list[int], k: int) -> None:
        self.rows, self.owner = rows, owner
        self.known: list[Row] = []
        self.rest: list[int] = []
        for row in rows:
            order = sorted(row, key=lambda value: (-row[value], value))
            self.known.append({value: row[value] for value in order[:k]})
            self.rest.append(max((row[value] for value in order[k:]), default=0))

    @property
    def told(self) -> KnownPlaces:
        points = [(s, v, n) for s, row in enumerate(self.known) for v, n in row.items()]
        return in_order(KnownPlaces(*np.array(points, np.int64).reshape(-1, 3).T))

    @property
    def facts(self) -> tuple[KnownPlaces, np.ndarray, np.ndarray, np.ndarray]:
        size = np.array([len(row) for row in self.rows])
        total = np.array([sum(row.values()) for row in self.rows])
        return self.told, size, total, np.array(self.rest)

    def search(self, gone: np.ndarray, k: int) -> FoundCounts:
        known, size, total, rest = self.facts
        assert not len(untrue(known, size, total, rest))
        least = rest_of(known, size, total, rest)
        for row, mine, most in zip(self.rows, self.known, least.tolist(), strict=True):
            assert max((n for v, n in row.items() if v not in mine), default=0) <= most
        return most_frequent_of(known, np.array(self.owner), least, gone, k)

    def answer(self, found: FoundCounts, gone: np.ndarray) -> int:
        """Answers all that is asked; how many values were told."""
        doubts, before = found.doubts, sum(map(len, self.known))
        for n, case in enumerate(doubts.case.tolist()):
            others = doubts.others.values[doubts.others.offsets[n] : doubts.others.offsets[n + 1]]
            above, upto = int(doubts.above[n]), int(doubts.upto[n])
            for s, row in enumerate(self.rows):
                if self.owner[s] != case or gone[s]:
                    continue
                assert all(v in self.known[s] for v, times in row.items() if times > upto)
                self.known[s] |= {v: times for v, times in row.items() if above < times <= upto}
                self.known[s] |= {
                    v: row.get(v, 0) for v in others.tolist() if row.get(v, 0) <= above
                }
                rest = max((times for times in row.values() if times <= above), default=0)
                self.rest[s] = min(self.rest[s], rest)
        return sum(map(len, self.known)) - before


def listed(found: FoundCounts, case: int) -> list[tuple[int, int]]:
    """What was found of a case, the most frequent first."""
    low, high = found.values.offsets[case : case + 2].tolist()
    pairs = zip(found.values.values[low:high].tolist(), found.times[low:high].tolist(), strict=True)
    inner = [*pairs]
    assert inner == sorted(inner)
    return sorted(inner, key=lambda pair: (-pair[1], pair[0]))


@pytest.mark.parametrize("seed", range(400))
def test_two_questions_find_the_most_frequent_values(seed: int) -> None:
    dice = random.Random(seed)
    rows, owner = drawn(dice)
    k = dice.choice([1, 2, 3, 10, 1 << 40])
    nodes = Nodes(rows, owner, dice.choice([k, 1, 3]) if k < 100 else 3)
    gone = np.array([dice.random() < 0.1 for _ in rows])
    for question in range(3):
        found = nodes.search(gone, k)
        for case in range(max(owner) + 1):
            mine = [row for row, o in zip(rows, owner, strict=True) if o == case]
            if not found.unknown[case]:
                assert listed(found, case) == first(mine, k)
            assert found.unknown[case] or not found.questioned[case]
        if question == 2:
            break
        assert found.questioned.any() == found.doubtful.any() == bool(len(found.doubts.case))
        assert not (found.unseen & ~found.doubtful).any() and not found.doubtful[gone].any()
        nodes.answer(found, gone)
        again = nodes.search(gone, k)
        # The first question leaves no value unseen that may be among the first.
        assert not again.unseen.any()
    assert not found.questioned.any()


def test_what_is_gone_is_not_asked_but_may_be_lacking() -> None:
    nodes = Nodes([{1: 9}, {4: 9, 2: 8}], [0, 0], 1)
    found = nodes.search(np.array([False, True]), 1)
    assert found.questioned.tolist() == [False] and found.unknown.tolist() == [True]
    found = nodes.search(np.array([False, False]), 1)
    assert found.questioned.tolist() == [True] and found.doubtful.tolist() == [False, True]


def test_few_values_of_many_are_asked_for() -> None:
    """As often everywhere, as words in texts are: what is told does not follow the values."""
    rows = [{value: 100_000 // (value + 1) + node for value in range(5000)} for node in range(8)]
    nodes = Nodes(rows, [0] * 8, 10)
    nobody = np.zeros(8, np.bool_)
    found = nodes.search(nobody, 10)
    assert nodes.answer(found, nobody) < 8 * 5
    found = nodes.search(nobody, 10)
    assert nodes.answer(found, nobody) < 8 * 5
    found = nodes.search(nobody, 10)
    assert not found.questioned.any() and listed(found, 0) == first(rows, 10)


def test_rests_that_are_small_leave_others_more() -> None:
    """A node whose values are all rare is not asked for them."""
    nodes = Nodes([{1: 50, 2: 40, 3: 30}, dict.fromkeys(range(10, 60), 2)], [0, 0], 1)
    found = nodes.search(np.array([False, False]), 1)
    assert not found.unseen[1]


LIES = {
    "a count that changes": ([(0, 1, 5), (0, 1, 4)], 2, 9, 3),
    "more values than there are": ([(0, 1, 5), (0, 2, 4)], 1, 9, 0),
    "values that do not make up the sum": ([(0, 1, 5), (0, 2, 4)], 2, 10, 0),
    "others that must be more frequent than said": ([(0, 1, 5)], 2, 10, 4),
    "others that are too many for the sum": ([(0, 1, 5)], 7, 10, 4),
    "others that do not occur": ([(0, 1, 5)], 3, 9, 0),
}


@pytest.mark.parametrize("lie", LIES)
def test_counts_that_do_not_agree(lie: str) -> None:
    points, size, total, rest = LIES[lie]
    known = in_order(KnownPlaces(*np.array(points, np.int64).T))
    facts = (np.array([one]) for one in (size, total, rest))
    assert untrue(known, *facts).tolist() == [0]


def test_counts_that_agree() -> None:
    known = in_order(KnownPlaces(*np.array([(0, 1, 5), (0, 2, 0), (1, 1, 2)], np.int64).T))
    assert not len(untrue(known, np.array([3, 1]), np.array([9, 2]), np.array([3, 0])))
