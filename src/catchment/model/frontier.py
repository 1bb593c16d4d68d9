"""The frontier: the time up to which all live partitions of a source have come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

EARLIEST = -(2**62)


@dataclass(frozen=True, slots=True)
class Frontier:
    """What is known of each partition, and the frontier that follows from it.

    The slowest live partition counts: the fastest would make the others' events late. One that
    was silent for longer than `idle` no longer holds the frontier back; its events, when they
    come, may be late.

    >>> start = Frontier().knowing(["a", "b"], now=0)
    >>> both = start.after({"a": 50, "b": 20}, now=10, lateness=5)
    >>> both.value, both.after({"a": 70}, now=100, lateness=5, idle=60).value
    (15, 65)
    """

    value: int = EARLIEST
    partitions: Mapping[str, tuple[int | None, int]] = field(default_factory=dict)
    """By name, in the order they became known: newest event time, and when it was last heard of."""

    def knowing(self, names: Iterable[str], now: int) -> Frontier:
        """With partitions that are known to exist, though no event came from them yet."""
        new = {name: (None, now) for name in names if name not in self.partitions}
        return Frontier(self.value, {**self.partitions, **new}) if new else self

    def after(
        self, heard: Mapping[str, int], now: int, lateness: int = 0, idle: int | None = None
    ) -> Frontier:
        """The frontier after a batch whose newest event times by partition are `heard`."""
        known = dict(self.partitions)
        for name, newest in heard.items():
            before = known.get(name, (None, now))[0]
            known[name] = (newest if before is None else max(before, newest), now)
        return Frontier(max(self.value, _slowest(known, now, idle, lateness)), known)

    def number(self, name: str) -> int:
        """The place of a partition among all; it never changes."""
        return list(self.partitions).index(name)

    @property
    def newest(self) -> int:
        """The newest event time of all."""
        return max((t for t, _ in self.partitions.values() if t is not None), default=EARLIEST)


def _slowest(
    known: Mapping[str, tuple[int | None, int]], now: int, idle: int | None, lateness: int
) -> int:
    live = [newest for newest, at in known.values() if idle is None or now - at <= idle]
    times = [newest for newest in live if newest is not None]
    if not times or len(times) < len(live):
        return EARLIEST  # nobody is live, or one that may still bring anything
    return min(times) - lateness
