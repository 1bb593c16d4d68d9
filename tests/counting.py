"""Random streams, and count windows by brute force: which events belong to which window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.count_simulation import NodeArrivals
from catchment.counting.fold import Fold
from catchment.counting.wire import Columns, dump, load
from catchment.model.window import Counted
from catchment.operators.ragged import Ints


class Ids(Fold):
    """Keeps which events are in a window, so that each can be told from all others."""

    def lift(self, events: Columns) -> bytes:
        return dump(events["id"])

    def merge(self, partials: Sequence[bytes]) -> bytes:
        return dump(np.concatenate([ids(partial) for partial in partials]))


def ids(partial: bytes) -> Ints:
    """The ids in a partial."""
    return load(Ints, partial)


def stream(
    dice: np.random.Generator,
    node: int,
    events: int,
    span: int,
    *,
    disorder: int = 0,
    ties: int = 1,
    start: int = 0,
) -> NodeArrivals:
    """Events at random times; with `ties` many share one."""
    times = start + np.sort(dice.integers(0, max(span, 1), events)) // ties * ties
    late = dice.integers(0, disorder + 1, events) if disorder else None
    numbers = np.arange(events, dtype=np.int64) * 1000 + node
    return NodeArrivals.of(times.astype(np.int64), {"id": numbers}, late)


def ranked(streams: Mapping[int, NodeArrivals]) -> list[int]:
    """The ids of all events, by time, node, arrival."""
    rows = [
        (int(time), node, arrival, int(id))
        for node, s in streams.items()
        for arrival, (time, id) in enumerate(zip(s.times, s.data["id"], strict=True))
    ]
    return [id for *_, id in sorted(rows)]


def expected(ids: list[int], windows: Sequence[Counted]) -> dict[tuple[int, int], list[int]]:
    """By window and number: the ids of its events."""
    out = {}
    for kind, window in enumerate(windows):
        number = 0
        while number * window.step + window.size <= len(ids):
            start = number * window.step
            out[kind, number] = sorted(ids[start : start + window.size])
            number += 1
    return out
