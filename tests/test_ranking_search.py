"""Ranks found among values that are known in part, against sorting them all."""

from __future__ import annotations

import random

import numpy as np
import pytest

from catchment.ranking.ordered import to_ints, to_values
from catchment.ranking.search import KnownPlaces, contradictory, in_order, search


def drawn(dice: random.Random) -> tuple[list[list[int]], list[int], list[set[int]]]:
    """Sorted runs, the case of each, and the places of each that are known."""
    runs, owner, known = [], [], []
    for case in range(dice.randint(1, 4)):
        for _ in range(dice.randint(1, 4)):
            top = dice.choice([0, 3, 40])
            run = sorted(dice.randint(-top, top) for _ in range(dice.randint(1, 20)))
            told = {0, len(run) - 1} | {dice.randrange(len(run)) for _ in range(dice.randint(0, 8))}
            runs.append(run)
            owner.append(case)
            known.append(told)
    return runs, owner, known


def told(runs: list[list[int]], known: list[set[int]]) -> KnownPlaces:
    points = [(s, p, runs[s][p]) for s, places in enumerate(known) for p in places]
    return in_order(KnownPlaces(*np.array(points, np.int64).T))


@pytest.mark.parametrize("seed", range(300))
def test_ranks_are_found_or_lie_between_the_bounds(seed: int) -> None:
    dice = random.Random(seed)
    runs, owner, known = drawn(dice)
    gone = np.array([dice.random() < 0.2 for _ in runs])
    wanted = [
        (case, rank)
        for case in range(max(owner) + 1)
        for rank in range(sum(len(run) for run, c in zip(runs, owner, strict=True) if c == case))
        if dice.random() < 0.3
    ] or [(0, 0)]
    case, rank = np.array(wanted, np.int64).T
    for _ in range(4):
        found = search(told(runs, known), np.array(owner), gone, case, rank)
        asked = found.doubts
        for n, (c, r) in enumerate(wanted):
            values = sorted(v for run, o in zip(runs, owner, strict=True) if o == c for v in run)
            assert found.value[n] >= values[r]
            if not found.unknown[n]:
                assert found.value[n] == values[r]
                continue
            if not found.questioned[n]:
                continue
            # The value is between the bounds of one span of its case, or the upper one.
            assert any(
                asked.case[k] == c
                and (asked.open[k] or asked.low[k] < values[r])
                and values[r] <= asked.high[k]
                for k in range(len(asked.case))
            )
        if not len(asked.case):
            break
        # Whoever is in doubt tells all that is between the bounds, and one place on either side.
        for k in range(len(asked.case)):
            assert asked.places[k] > 0 and asked.sources[k] > 0
            for s, run in enumerate(runs):
                if owner[s] == asked.case[k] and not gone[s]:
                    low = 0 if asked.open[k] else np.searchsorted(run, asked.low[k], side="right")
                    high = np.searchsorted(run, asked.high[k])
                    known[s] |= {p for p in range(low - 1, high + 1) if 0 <= p < len(run)}
        again = search(told(runs, known), np.array(owner), gone, case, rank)
        assert not again.questioned.any() and not again.doubtful.any()


def test_all_equal_is_known_at_once() -> None:
    known = in_order(
        KnownPlaces(np.array([0, 0, 1, 1]), np.array([0, 99, 0, 9]), np.array([7] * 4))
    )
    found = search(known, np.array([0, 0]), np.array([False] * 2), np.array([0]), np.array([50]))
    assert found.value.tolist() == [7] and not found.unknown.any()


def test_what_falls_or_differs_is_contradictory() -> None:
    known = KnownPlaces(
        np.array([0, 0, 1, 1, 2, 2]), np.array([0, 5, 0, 5, 0, 0]), np.arange(6)[::-1]
    )
    assert contradictory(in_order(known)).tolist() == [0, 1, 2]
    rising = KnownPlaces(np.array([0, 0, 1]), np.array([0, 5, 0]), np.array([1, 1, 0]))
    assert not len(contradictory(in_order(rising)))


def test_numbers_as_integers_keep_their_order() -> None:
    dice = np.random.default_rng(1)
    values = np.concatenate([dice.normal(size=100) * 10.0 ** dice.integers(-300, 300, 100)])
    values = np.concatenate([values, [np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0, 5e-324]])
    order = np.argsort(values, kind="stable")
    found = to_ints(values)
    assert (np.diff(found[order]) >= 0).all()
    assert np.array_equal(to_values(found, floats=True), values, equal_nan=True)
