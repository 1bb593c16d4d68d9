"""A node whose events happen now: each is there when the clock says its time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from catchment.engine.engine import now
from catchment.nodes.founding import Given
from catchment.nodes.start import process_of
from catchment.sources.base import Piece, Position, Source, Split

_COLUMNS: dict[str, pa.DataType] = {
    "ts": pa.timestamp("us", "UTC"), "k": pa.int64(), "v": pa.float64(),
}  # fmt: skip
_SCHEMA = pa.schema(_COLUMNS)


class Clock(Source):
    """Events of even distance, at whole multiples of it; at the start the first is yet to come."""

    type: Literal["clock"] = "clock"
    events: int
    gap: int = 1000
    """Microseconds from one event to the next."""
    keys: int = 10

    def check(self) -> None:
        return

    def event_schema(self) -> pa.Schema:
        return _SCHEMA

    def start(self) -> Position:
        first = now() // self.gap + 1
        return {"n": first, "end": first + self.events}

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        happened = min(now() // self.gap + 1, position["end"])
        return {**position, "n": max(position["n"], happened)}

    def bound(self, position: Position) -> Position:
        return {**position, "n": position["end"]}

    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        if start["n"] == end["n"]:
            return []
        return [Split("0", int(start["n"]), {"end": int(end["n"])})]

    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        number = np.arange(split.arrival, split.body["end"], dtype=np.int64)
        times = pa.array(number * self.gap).view(pa.timestamp("us", "UTC"))
        values = pa.array(number.astype(np.float64))
        table = pa.table([times, pa.array(number % self.keys), values], schema=_SCHEMA)
        yield Piece(table if columns is None else table.select(columns))

    def ended(self, position: Position) -> bool:
        return bool(position["n"] >= position["end"])

    def partitions(self, position: Position) -> list[str]:
        return ["0"]


def main(id: str, home: str, parent: str, listen: str, events: str, engine: str) -> None:
    """Runs a node: with an address to listen at, one in between; otherwise one that reads."""
    source = None if listen else Clock(events=int(events))
    process_of(Given(id, Path(home), parent, listen or None, source, (), None, None, engine)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
