"""A link that carries so many bytes a second, which may change and may be nothing for a while."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from catchment.errors import JobError
from catchment.operators.ragged import Floats


class SendQueue:
    """First in, first out. Times are in seconds; after the last change the rate stays.

    >>> SendQueue.steady(2.0).finish(np.array([0.0, 0.0, 5.0]), np.array([2.0, 2.0, 2.0])).tolist()
    [1.0, 2.0, 6.0]
    """

    def __init__(self, times: Sequence[float], rates: Sequence[float]) -> None:
        self.times, self.rates = np.asarray(times, float), np.asarray(rates, float)
        if not len(self.rates) or (self.rates < 0).any() or not self.rates[-1] > 0:
            raise JobError(
                "a link must carry something in the end",
                given=f"{list(rates)} bytes/s",
                hint="give a bandwidth above zero",
            )
        steps = np.diff(self.times)
        self._work = np.concatenate([[0.0], np.cumsum(steps * self.rates[:-1])])

    @classmethod
    def steady(cls, rate: float) -> SendQueue:
        return cls([0.0], [rate])

    def work(self, times: Floats) -> Floats:
        """All that could have been sent by each time."""
        place = np.maximum(np.searchsorted(self.times, times, "right") - 1, 0)
        done: Floats = self._work[place] + (times - self.times[place]) * self.rates[place]
        return done

    def when(self, work: Floats) -> Floats:
        """The first time by which so much could have been sent: the inverse of `work`."""
        place = np.maximum(np.searchsorted(self._work, work, "left") - 1, 0)
        # Where nothing is carried no work ends; what ends there has ended before.
        rates = np.where(self.rates[place] > 0, self.rates[place], np.inf)
        at: Floats = self.times[place] + (work - self._work[place]) / rates
        return at

    def finish(self, depart: Floats, sizes: Floats) -> Floats:
        """When each of these has arrived; they depart in order."""
        after = np.cumsum(sizes)
        begin = np.maximum.accumulate(self.work(depart) - (after - sizes))
        return self.when(begin + after)

    def average(self, begin: float, end: float) -> float:
        """Bytes a second between two times."""
        low, high = self.work(np.array([begin, end])).tolist()
        return float((high - low) / max(end - begin, 1e-12))
