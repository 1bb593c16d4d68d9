"""The accumulators of the baselines: one window's or slice's state, an array over the keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from catchment.errors import QueryError

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Accumulator(ABC):
    """State of a function over events, by key."""

    @abstractmethod
    def update(self, keys: Ints, values: Floats) -> None:
        """Takes in events, at least one."""

    @abstractmethod
    def merged(self, others: Sequence[Self]) -> Self:
        """This and others as one, all left as they are."""

    @abstractmethod
    def result(self) -> tuple[Ints, Floats]:
        """The keys that have events, and the function of each."""


class Moments(Accumulator):
    """sum, count, avg."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.total: Floats = np.zeros(0)
        self.count: Ints = np.zeros(0, np.int64)

    def update(self, keys: Ints, values: Floats) -> None:
        if self.function == "count":
            self.count = _plus(self.count, np.bincount(keys))
            return
        total = np.bincount(keys, weights=values)
        self.total = _plus(self.total, total)
        if self.function == "avg":
            self.count = _plus(self.count, np.bincount(keys))
            return
        seen = np.zeros(len(total), np.int64)  # a sum need not count, only know that it has events
        seen[keys] = 1
        self.count = _plus(self.count, seen)

    def merged(self, others: Sequence[Self]) -> Self:
        out = type(self)(self.function)
        out.total, out.count = self.total, self.count
        for other in others:
            out.total, out.count = _plus(out.total, other.total), _plus(out.count, other.count)
        return out

    def result(self) -> tuple[Ints, Floats]:
        keys = np.flatnonzero(self.count)
        if self.function == "count":
            return keys, self.count[keys].astype(np.float64)
        if self.function == "sum":
            return keys, self.total[keys]
        return keys, self.total[keys] / self.count[keys]


class Extreme(Accumulator):
    """min, max."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.best: Floats = np.zeros(0)

    @property
    def _worst(self) -> float:
        return np.inf if self.function == "min" else -np.inf

    @property
    def _better(self) -> np.ufunc:
        return np.minimum if self.function == "min" else np.maximum

    def update(self, keys: Ints, values: Floats) -> None:
        self._widen(int(keys.max()) + 1)
        self._better.at(self.best, keys, values)

    def _widen(self, size: int) -> None:
        if size > len(self.best):
            more = np.full(size - len(self.best), self._worst)
            self.best = np.concatenate([self.best, more])

    def merged(self, others: Sequence[Self]) -> Self:
        out = type(self)(self.function)
        for part in (self, *others):
            out._widen(len(part.best))
            best = out.best[: len(part.best)]
            self._better(best, part.best, out=best)
        return out

    def result(self) -> tuple[Ints, Floats]:
        keys = np.flatnonzero(self.best != self._worst)
        return keys, self.best[keys]


class Runs(Accumulator):
    """quantile, median: every value, sorted within its key."""

    def __init__(self, q: float) -> None:
        self.q = q
        self.parts: list[dict[int, Floats]] = []

    def update(self, keys: Ints, values: Floats) -> None:
        counts = np.bincount(keys)
        present = np.flatnonzero(counts)
        if len(present) == 1:
            self.parts.append({int(present[0]): np.sort(values)})
            return
        ordered = values[np.argsort(keys, kind="stable")]
        pieces = np.split(ordered, np.cumsum(counts[present])[:-1])
        runs = zip(present.tolist(), pieces, strict=True)
        self.parts.append({key: np.sort(piece) for key, piece in runs})

    def merged(self, others: Sequence[Self]) -> Self:
        out = type(self)(self.q)
        out.parts = [part for each in (self, *others) for part in each.parts]
        return out

    def result(self) -> tuple[Ints, Floats]:
        runs: dict[int, list[Floats]] = {}
        for part in self.parts:
            for key, run in part.items():
                runs.setdefault(key, []).append(run)
        keys = sorted(runs)
        return np.array(keys, np.int64), np.array([self._quantile(runs[key]) for key in keys])

    def _quantile(self, runs: list[Floats]) -> float:
        # A stable sort of sorted runs is a merge.
        values = runs[0] if len(runs) == 1 else np.sort(np.concatenate(runs), kind="stable")
        position = (len(values) - 1) * self.q
        below, above = int(np.floor(position)), int(np.ceil(position))
        low, high = float(values[below]), float(values[above])
        return low if below == above else (above - position) * low + (position - below) * high


def accumulator(function: str, params: tuple[Any, ...] = ()) -> Accumulator:
    """An empty accumulator of a function."""
    if function in ("sum", "count", "avg"):
        return Moments(function)
    if function in ("min", "max"):
        return Extreme(function)
    if function in ("quantile", "median"):
        return Runs(float(params[0]) if params else 0.5)
    raise QueryError("the baselines have no such function", given=function)


def _plus(one: Array, other: Array) -> Array:
    if len(one) == len(other):
        return one + other
    long, short = (one, other) if len(one) > len(other) else (other, one)
    total = long.copy()
    total[: len(short)] += short
    return total
