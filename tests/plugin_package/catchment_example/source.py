"""A source: numbers that go up and start again, one every so many microseconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
from pydantic import Field

from catchment.sources import Piece, Position, Source, Split


class Ramp(Source):
    """Events 0, 1, 2, ... in one partition; each at its number times `every`."""

    type: Literal["ramp"] = "ramp"
    events: int = Field(gt=0, description="how many there are")
    every: int = Field(default=100_000, gt=0, description="microseconds between two")
    per_batch: int = Field(default=50, gt=0)

    def check(self) -> None:
        return

    def event_schema(self) -> pa.Schema:
        return pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("v", pa.int64())])

    def start(self) -> Position:
        return {"n": 0}

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        return {"n": min(position["n"] + self.per_batch, self.events)}

    def bound(self, position: Position) -> Position:
        return {"n": self.events}

    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        if start["n"] == end["n"]:
            return []
        return [Split("ramp", start["n"], {"first": start["n"], "last": end["n"]})]

    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        numbers = range(split.body["first"], split.body["last"])
        rows = [{"ts": n * self.every, "k": n % 3, "v": n % 7} for n in numbers]
        table = pa.Table.from_pylist(rows, schema=self.event_schema())
        yield Piece(table if columns is None else table.select(columns))

    def ended(self, position: Position) -> bool:
        return bool(position["n"] >= self.events)
