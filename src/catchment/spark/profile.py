"""What a batch costs: seconds of its tasks, part by part, and what is Spark's own.

Tasks of a stage run side by side, so a stage of a micro-batch lasts as long as its slowest task; in
a batch job, whose cores read several splits each, as long as the seconds of all tasks together,
shared by the cores. What neither splits, nor buckets, nor the driver's sinks took of the time is
Spark's own: planning, starting tasks, the shuffle, committing offsets and state.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec import Struct


class SplitSeconds(Struct, frozen=True):
    """What a split took."""

    read: float = 0.0
    slice: float = 0.0
    encode: float = 0.0
    """Partials packed for the shuffle."""

    @property
    def total(self) -> float:
        return self.read + self.slice + self.encode


class BucketSeconds(Struct, frozen=True):
    """What a bucket of keys took."""

    decode: float = 0.0
    """Partials unpacked after the shuffle, and the time waited for them."""
    state: float = 0.0
    """The log of the state read and written."""
    assemble: float = 0.0
    sink: float = 0.0

    @property
    def total(self) -> float:
        return self.decode + self.state + self.assemble + self.sink


class Stopwatch:
    """Seconds by part of a task: a lap belongs to the part named at its end.

    >>> watch = Stopwatch()
    >>> watch.lap("read")
    >>> list(watch.seconds)
    ['read']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def lap(self, part: str) -> None:
        """What passed since the last lap was this part's."""
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._since
        self._since = now

    def skip(self) -> None:
        """What passed since the last lap was not ours: Spark took what a task gave."""
        self._since = time.perf_counter()


PARTS = ("read", "slice", "encode", "decode", "state", "assemble", "sink")
"""The parts of a batch that are ours, in the order of an event's life."""


class BatchProfile(Struct, frozen=True):
    """What a batch cost, in seconds of its slowest tasks."""

    batch: int
    read: float = 0.0
    slice: float = 0.0
    encode: float = 0.0
    decode: float = 0.0
    state: float = 0.0
    assemble: float = 0.0
    sink: float = 0.0
    """Executors' and the driver's."""

    @property
    def total(self) -> float:
        """What is ours."""
        return float(sum(getattr(self, part) for part in PARTS))


def batch_profile(
    batch: int, splits: Iterable[SplitSeconds], buckets: Iterable[BucketSeconds], sinks: float
) -> BatchProfile:
    """The profile of a batch: its slowest split and bucket, and the sinks on the driver."""
    split = max(splits, key=lambda one: one.total, default=SplitSeconds())
    bucket = max(buckets, key=lambda one: one.total, default=BucketSeconds())
    return BatchProfile(
        batch,
        split.read,
        split.slice,
        split.encode,
        bucket.decode,
        bucket.state,
        bucket.assemble,
        bucket.sink + sinks,
    )


@dataclass(frozen=True)
class Profile:
    """What the batches of a job cost together, in seconds."""

    batches: int
    seconds: float
    """From the trigger of each batch to its commit, as Spark measured it."""
    parts: dict[str, float]
    """Ours by their names, then `spark`: what is left."""

    def delivered(self, seconds: float, sinks: float) -> Profile:
        """With sinks to which results were written afterwards, and so long in all by the clock."""
        parts = self.parts | {"sink": self.parts["sink"] + sinks, "spark": 0.0}
        parts["spark"] = max(seconds - sum(parts.values()), 0.0)
        return Profile(self.batches, seconds, parts)


def pass_profile(
    seconds: float,
    splits: Sequence[SplitSeconds],
    buckets: Sequence[BucketSeconds],
    cores: int,
) -> Profile:
    """What one pass over events cost, which took so long by the clock.

    A core reads several splits one after the other, so their seconds are shared by as many cores as
    read side by side; those of buckets likewise.
    """
    parts = dict.fromkeys((*PARTS, "spark"), 0.0)
    for tasks in (splits, buckets):
        for task in tasks:
            for part in task.__struct_fields__:
                parts[part] += getattr(task, part) / min(cores, len(tasks))
    return Profile(1, seconds, parts).delivered(seconds, 0.0)


class Profiler:
    """Adds up what batches cost. It remembers only those that Spark has not told of yet."""

    WAITING = 100
    """Batches that Spark may be behind with telling, at most; an older one is left out."""

    def __init__(self) -> None:
        self._waiting: deque[BatchProfile] = deque(maxlen=self.WAITING)
        self._parts = dict.fromkeys((*PARTS, "spark"), 0.0)
        self._batches = 0
        self._seconds = 0.0

    def ours(self, found: BatchProfile) -> None:
        """What our own tasks measured of a batch."""
        self._waiting.append(found)

    def finish_batch(self, batch: int, seconds: float) -> None:
        """How long a batch took, as Spark says after it."""
        for found in [one for one in self._waiting if one.batch == batch]:
            self._waiting.remove(found)
            self._batches += 1
            self._seconds += seconds
            for part in PARTS:
                self._parts[part] += getattr(found, part)
            self._parts["spark"] += max(seconds - found.total, 0.0)

    def profile(self) -> Profile:
        """What is known by now."""
        return Profile(self._batches, self._seconds, dict(self._parts))
