"""An open slice as its sender follows it: which keys came, when, how often, and which are held.

Keys are integers, kept in order; every other array has one entry for each of them.

    keys   3    7    8    12
    first  0.2  0.4  1.9  2.0     seconds: the first arrival of each
    last   3.1  0.4  1.9  2.6     the last one
    count  5    1    1    2       arrivals; 0: the key is expected, and has not come
    here   yes  no   yes  yes     whether a row of it is held: no after it was sent, until it comes

An arrival costs a binary search, and the first of a key moves the arrays by one place.
"""

from __future__ import annotations

import numpy as np

from catchment.flush.evictions import CachedAggregates, KeyHistory
from catchment.flush.sizes import SliceHistory
from catchment.flush.watch import SliceWatch
from catchment.operators.ragged import Floats, Ints
from catchment.operators.values import Mask


class OpenSlice:
    """What has come for a slice; times are in seconds of event time."""

    def __init__(
        self, begin: float, end: float, past: SliceHistory | None, expected: Ints | None = None
    ) -> None:
        """`expected` names keys that will come, in order and once each, where that is known: a
        place is then kept for each. Nothing that is decided depends on it."""
        self.begin, self.end = begin, end
        self.watch = SliceWatch(begin, end, past)
        self.keys: Ints = np.empty(0, np.int64) if expected is None else expected
        many = len(self.keys)
        self.first, self.last, self.count = np.zeros(many), np.zeros(many), np.zeros(many)
        self.here: Mask = np.zeros(many, np.bool_)
        self.cached = 0
        """How many keys are here."""
        self.sent = 0
        """Rows that have left early."""

    @property
    def length(self) -> float:
        return self.end - self.begin

    def arrived(self, keys: Ints, times: Floats | float) -> None:
        """Takes arrivals in order of time: their keys, each as often as it came, and when."""
        place = self._placed(keys)
        absent = ~self.here[place]
        missed = 0
        if absent.any():
            missed = self._enter(
                place[absent], times if isinstance(times, float) else times[absent]
            )
        self.watch.arrived(len(keys), missed)
        np.add.at(self.count, place, 1.0)
        self.last[place] = times  # of equal keys the last one stays

    def _enter(self, place: Ints, times: Floats | float) -> int:
        """Keys come that are not held, some perhaps several times; how many keys they are."""
        fresh = self.count[place] == 0
        if isinstance(times, float):
            self.first[place[fresh]] = times
        else:
            self.first[place[fresh][::-1]] = times[fresh][::-1]  # of equal keys the first one stays
        self.here[place] = True
        missed = len(place) if (place[1:] > place[:-1]).all() else len(np.unique(place))
        self.cached += missed
        return missed

    def places(self, keys: Ints, now: float) -> Ints:
        """Where keys that are held stand; what is not known of them counts as arrived now, since
        rows outlive a crash and what was noticed of them does not."""
        place = self.held_places()
        if np.array_equal(self.keys[place], keys):
            return place
        place = np.searchsorted(self.keys, keys)
        strange = place == len(self.keys)
        found = place[~strange]
        strange[~strange] = (self.keys[found] != keys[~strange]) | ~self.here[found]
        if not strange.any():
            return place
        self.arrived(keys[strange], now)
        return np.searchsorted(self.keys, keys)

    def leave(self, places: Ints) -> None:
        """Rows at these places are sent."""
        self.here[places] = False
        self.cached -= len(places)
        self.sent += len(places)

    def held_places(self) -> Ints:
        """Where the keys stand of which a row is held."""
        return np.flatnonzero(self.here)

    def held_keys(self) -> Ints:
        """Keys of which a row is held, in order."""
        return self.keys[self.held_places()]

    def at(self, places: Ints, memory: KeyHistory, now: float) -> CachedAggregates:
        """What an eviction goes by."""
        return CachedAggregates(
            self.last[places] - self.begin,
            self.count[places],
            memory.recall(self.keys[places]),
            now - self.begin,
            self.length,
        )

    def closed(self, each: float, bandwidth: float) -> SliceHistory:
        """What the slice tells of the next one, once it has ended; a row takes `each` bytes."""
        seen = self.count > 0
        return SliceHistory.of(
            self.first[seen] - self.begin,
            self.last[seen] - self.begin,
            self.count[seen],
            np.full(int(seen.sum()), each),
            self.length,
            bandwidth,
        )

    def _placed(self, keys: Ints) -> Ints:
        """Where keys stand; those that are new get a place."""
        place = np.searchsorted(self.keys, keys)
        known = np.zeros(len(keys), np.bool_)
        if len(self.keys):
            known = self.keys.take(place, mode="clip") == keys
        if known.all():
            return place
        new = np.unique(keys[~known])
        at = np.searchsorted(self.keys, new)
        self.keys = np.insert(self.keys, at, new)
        self.first, self.last = np.insert(self.first, at, 0.0), np.insert(self.last, at, 0.0)
        self.count = np.insert(self.count, at, 0.0)
        self.here = np.insert(self.here, at, False)
        return np.searchsorted(self.keys, keys)
