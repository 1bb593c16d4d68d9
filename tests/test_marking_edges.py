"""Behind which edge events stand, against looking at every edge."""

from __future__ import annotations

import random

import numpy as np
import pytest

from catchment.marking.edges import MarkEdges, edge_before


@pytest.mark.parametrize("seed", range(300))
def test_edges_of_random_events(seed: int) -> None:
    dice = random.Random(seed)
    places = [
        (dice.randrange(3), dice.randrange(6), arrival) for arrival in range(dice.randrange(40))
    ]
    dice.shuffle(places)
    marks = places[: dice.randrange(len(places) + 1)]
    events = places[len(marks) :]
    cuts = sorted(dice.sample(range(7), dice.randrange(3)))
    edges = MarkEdges(*_columns(marks), np.array(cuts, np.int64))
    before = edge_before(edges, *_columns(events))
    times, arrivals = edges.places(0)
    for (key, time, arrival), number in zip(events, before.tolist(), strict=True):
        found = [(t, a, n) for n, (k, t, a) in enumerate(marks, start=1) if k == key]
        found += [(t, -1, n) for n, t in enumerate(cuts, start=1 + len(marks))]
        earlier = [edge for edge in found if edge[:2] < (time, arrival)]
        expected = max(earlier, default=(0, -1, 0))
        assert number == expected[2]
        assert (int(times[number]), int(arrivals[number])) == expected[:2]


def _columns(rows: list[tuple[int, int, int]]) -> list[np.ndarray]:
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    return [np.array(column, np.int64) for column in columns]
