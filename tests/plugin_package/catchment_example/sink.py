"""A sink: a JSON file a delivery."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import Field

from catchment.sinks import Delivery, Sink


class Lines(Sink):
    """Files of JSON lines; a delivery that comes again replaces its file."""

    type: Literal["lines"] = "lines"
    path: str = Field(description="a folder")

    def check(self) -> None:
        Path(self.path).mkdir(parents=True, exist_ok=True)

    def write(self, delivery: Delivery) -> None:
        rows = [
            {"query": query, **{name: _plain(value) for name, value in row.items()}}
            for query, table in delivery.results.items()
            for row in table.to_pylist()
        ]
        self.check()  # which another process may have done, or none
        place = Path(self.path) / f"{delivery.batch:06d}-{delivery.part:03d}.jsonl"
        place.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _plain(value: object) -> object:
    return value if isinstance(value, int | float | str | None) else str(value)
