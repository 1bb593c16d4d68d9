"""Soccer-like events made up on the fly: for demos, tests and load, without a file or a broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from catchment.generator import BLOCK, Generator
from catchment.sources.base import Piece, Position, Source, Split, register_source

_ROWS = 1 << 18
"""Events of a piece."""


class GeneratedShare(NamedTuple):
    """Some events of a partition, from the place where the split begins."""

    number: int
    """The number of the partition."""
    rows: int


@register_source
class Generated(Source):
    """Events of `catchment.generator`: the same settings always give the same events.

    `rate` and `events` are of all partitions together. Each partition is a stream of its own, with
    its own players' curves; the first has the events that the generator itself would give.
    """

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["generator"] = "generator"
    seed: int = 0
    keys: int = 10
    rate: float = 100_000
    begin: str = Field(default="2026-01-01", alias="start", description="the first time")
    gaps: tuple[str, str] | None = None
    markers: float = 0.001
    late_share: float = 0.0
    late_by: str = "2s"
    key_skew: float = 0.0
    string_keys: bool = True
    events: int | None = Field(default=None, ge=0, description="how many events; by default no end")
    streams: int = Field(default=1, gt=0, alias="partitions", description="how many partitions")
    per_batch: int = Field(default=1_000_000, gt=0, description="events of a batch")
    pace: float | None = Field(default=None, gt=0, description="events a second, at most")

    _began: tuple[float, int] | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _sound(self) -> Generated:
        self.generator(0)  # it refuses wrong settings
        return self

    def generator(self, number: int) -> Generator:
        """What makes the events of a partition."""
        seed = self.seed
        if number:
            seed = int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0])
        return Generator(
            seed=seed,
            keys=self.keys,
            rate=self.rate / self.streams,
            start=self.begin,
            gaps=self.gaps,
            markers=self.markers,
            late_share=self.late_share,
            late_by=self.late_by,
            key_skew=self.key_skew,
            string_keys=self.string_keys,
        )

    def check(self) -> None:
        return

    def event_schema(self) -> pa.Schema:
        return self.generator(0).schema

    def start(self) -> Position:
        return {"n": 0}

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        n = position["n"]
        ends = [n + self._step]
        if bound is not None:
            ends.append(bound["n"])
        if self._last is not None:
            ends.append(self._last)
        if self.pace is not None:
            ends.append(self._released(n, self.pace))
        return {"n": max(min(ends), n)}

    def bound(self, position: Position) -> Position:
        # Of an endless stream, what there is now is a batch.
        n = position["n"]
        return {"n": n + self._step if self._last is None else max(self._last, n)}

    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        each = -(-max(parallel, 1) // self.streams)
        found = []
        for number in range(self.streams):
            first, last = (self._reach(number, p) for p in (start, end))
            for a, b in _cut(first, last, each):
                found.append(Split(str(number), a, GeneratedShare(number, b - a), b - a))
        return found

    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        share: GeneratedShare = split.body
        generator = self.generator(share.number)
        arrival = split.arrival
        for batch in generator.batches(_ROWS, share.rows, split.arrival):
            table = pa.Table.from_batches([batch])
            yield Piece(table.select(columns) if columns else table, None, arrival)
            arrival += batch.num_rows

    def ended(self, position: Position) -> bool:
        return self._last is not None and position["n"] >= self._last

    def partitions(self, position: Position) -> list[str]:
        return [str(number) for number in range(self.streams)]

    @property
    def _step(self) -> int:
        return max(self.per_batch // self.streams, 1)

    @property
    def _last(self) -> int | None:
        """The events of the partition that has most."""
        return None if self.events is None else -(-self.events // self.streams)

    def _reach(self, number: int, position: Position) -> int:
        """How many events of a partition there are up to a position."""
        n = position["n"]
        if self.events is None:
            return n
        return min(n, self.events // self.streams + (number < self.events % self.streams))

    def _released(self, n: int, pace: float) -> int:
        """Events of a partition that the clock allows since the job began or resumed."""
        now = time.monotonic()
        if self._began is None:
            self._began = (now, n)
        began, first = self._began
        return first + int((now - began) * pace / self.streams)


def _cut(first: int, last: int, parts: int) -> Iterator[tuple[int, int]]:
    """A range in about equal parts, cut between the generator's blocks where it can be."""
    step = -(-max(last - first, 1) // parts)
    if step > BLOCK:
        step = -(-step // BLOCK) * BLOCK
    while first < last:
        end = first + step
        if step >= BLOCK:
            end -= end % BLOCK
        yield first, min(end, last)
        first = min(end, last)
