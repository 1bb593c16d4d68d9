"""A node beside a workload that happens now, shaped as `benchmarks.flush_workload` has it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.flush_workload import SHAPES, arrivals
from benchmarks.timed import Timed, piece
from catchment.engine.times import now
from catchment.nodes.bootstrap import NodeConfig
from catchment.nodes.start import process_of
from catchment.operators.ragged import Ints
from catchment.sources.base import Piece, Position, Split


class Happening(Timed):
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

    def start(self) -> Position:
        begin = (now() // self._us + 1) * self._us
        return {"n": 0, "end": len(self._drawn[0]), "begin": begin}

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        happened = int(np.searchsorted(self._drawn[0], now() - position["begin"], "right"))
        return {**position, "n": max(position["n"], happened)}

    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        part = slice(split.arrival, split.body["n"])
        times, keys = self._drawn[0][part] + split.body["begin"], self._drawn[1][part]
        values = (np.arange(part.start, part.stop) % 1000) / 8
        yield piece(times, keys, values, columns)


def main(id: str, home: str, parent: str, engine: str, *settings: str) -> None:
    """Runs a node that reads such a workload."""
    shape, windows, per_window, seed, length = settings
    source = Happening(
        shape=shape,
        windows=int(windows),
        per_window=int(per_window),
        seed=int(seed),
        length=float(length),
    )
    process_of(NodeConfig(id, Path(home), parent, None, source, (), None, None, engine)).run()


if __name__ == "__main__":
    # By its real name: Spark's workers must find the source where it is defined.
    from benchmarks import flush_site

    flush_site.main(*sys.argv[1:])
