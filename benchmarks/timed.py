"""Sources whose events happen now: each is there when the clock says its time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from catchment.operators.ragged import Ints
from catchment.sources.base import Piece, Position, Source, Split

_COLUMNS: dict[str, pa.DataType] = {
    "ts": pa.timestamp("us", "UTC"),
    "k": pa.int64(),
    "v": pa.float64(),
}
SCHEMA = pa.schema(_COLUMNS)


class Timed(Source):
    """One stream of numbered events; a position knows the number of the next and of the last."""

    def check(self) -> None:
        return

    def event_schema(self) -> pa.Schema:
        return SCHEMA

    def bound(self, position: Position) -> Position:
        return {**position, "n": position["end"]}

    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        if start["n"] == end["n"]:
            return []
        return [Split("0", int(start["n"]), {**start, "n": int(end["n"])})]

    def ended(self, position: Position) -> bool:
        return bool(position["n"] >= position["end"])

    def partitions(self, position: Position) -> list[str]:
        return ["0"]


def piece(
    times: Ints, keys: Ints, values: np.ndarray[Any, Any], columns: list[str] | None
) -> Piece:
    """Events as they are read."""
    stamps = pa.array(times).view(pa.timestamp("us", "UTC"))
    table = pa.table([stamps, pa.array(keys), pa.array(values)], schema=SCHEMA)
    return Piece(table if columns is None else table.select(columns))
