"""A node whose events happen now: each is there when the clock says its time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.timed import Timed, piece
from catchment.engine.times import now
from catchment.nodes.bootstrap import NodeConfig
from catchment.nodes.start import process_of
from catchment.sources.base import Piece, Position, Split


class Clock(Timed):
    """Events of even distance, at whole multiples of it; at the start the first is yet to come."""

    type: Literal["clock"] = "clock"
    events: int
    gap: int = 1000
    """Microseconds from one event to the next."""
    keys: int = 10

    def start(self) -> Position:
        first = now() // self.gap + 1
        return {"n": first, "end": first + self.events}

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        happened = min(now() // self.gap + 1, position["end"])
        return {**position, "n": max(position["n"], happened)}

    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        number = np.arange(split.arrival, split.body["n"], dtype=np.int64)
        yield piece(number * self.gap, number % self.keys, number.astype(np.float64), columns)


def main(id: str, home: str, parent: str, listen: str, events: str, engine: str) -> None:
    """Runs a node: with an address to listen at, one in between; otherwise one that reads."""
    source = None if listen else Clock(events=int(events))
    process_of(
        NodeConfig(id, Path(home), parent, listen or None, source, (), None, None, engine)
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
