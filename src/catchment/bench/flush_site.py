"""A node beside a workload that happens now, shaped as `catchment.simulate.workload` has it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from catchment.engine.engine import now
from catchment.flush.evictions import Ints
from catchment.nodes.founding import Given
from catchment.nodes.start import process_of
from catchment.simulate.workload import SHAPES, arrivals
from catchment.sources.base import Piece, Position, Source, Split

_COLUMNS: dict[str, pa.DataType] = {
    "ts": pa.timestamp("us", "UTC"), "k": pa.int64(), "v": pa.float64(),
}  # fmt: skip
SCHEMA = pa.schema(_COLUMNS)


class Happening(Source):
    """Each event is there when the clock says its time; windows begin at whole lengths."""

    type: Literal["happening"] = "happening"
    shape: str
    windows: int
    per_window: int
    seed: int
    length: float
    """Of a window, in seconds."""

    @cached_property
    def _drawn(self) -> tuple[Ints, Ints]:
        made = arrivals(
            SHAPES[self.shape], self.windows, self.per_window, self.seed, length=self.length
        )
        # A last event much later: the frontier passes the end of the last window.
        times = np.append((made.times * 1e6).astype(np.int64), int((self.windows + 1) * self._us))
        return times, np.append(made.keys, 0)

    @property
    def _us(self) -> int:
        return int(self.length * 1e6)

    def check(self) -> None:
        return

    def event_schema(self) -> pa.Schema:
        return SCHEMA

    def start(self) -> Position:
        assert len(self._drawn[0])
        return {"n": 0, "begin": (now() // self._us + 1) * self._us}

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        happened = int(np.searchsorted(self._drawn[0], now() - position["begin"], "right"))
        return {**position, "n": max(position["n"], happened)}

    def bound(self, position: Position) -> Position:
        return {**position, "n": len(self._drawn[0])}

    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        if start["n"] == end["n"]:
            return []
        return [Split("0", int(start["n"]), {"end": end["n"], "begin": start["begin"]})]

    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        part = slice(split.arrival, split.body["end"])
        times, keys = self._drawn[0][part] + split.body["begin"], self._drawn[1][part]
        values = (np.arange(split.arrival, split.body["end"]) % 1000) / 8
        table = pa.table(
            [pa.array(times).view(pa.timestamp("us", "UTC")), pa.array(keys), pa.array(values)],
            schema=SCHEMA,
        )
        yield Piece(table if columns is None else table.select(columns))

    def ended(self, position: Position) -> bool:
        return bool(position["n"] >= len(self._drawn[0]))

    def partitions(self, position: Position) -> list[str]:
        return ["0"]


def main(id: str, home: str, parent: str, engine: str, *settings: str) -> None:
    """Runs a node that reads such a workload."""
    shape, windows, per_window, seed, length = settings
    source = Happening(
        shape=shape, windows=int(windows), per_window=int(per_window), seed=int(seed),
        length=float(length),
    )  # fmt: skip
    process_of(Given(id, Path(home), parent, None, source, (), None, None, engine)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
