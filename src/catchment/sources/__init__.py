"""Where events come from: one file per source, one line in SOURCES."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from catchment.errors import SourceError
from catchment.sources.arrow_file import ArrowFile
from catchment.sources.base import BAD, Piece, Position, Source, Split
from catchment.sources.csv_file import Csv
from catchment.sources.generated import Generated
from catchment.sources.json_lines import JsonLines
from catchment.sources.kafka import Kafka
from catchment.sources.mqtt import Mqtt
from catchment.sources.parquet_file import Parquet

SOURCES: tuple[type[Source], ...] = (
    Parquet,
    ArrowFile,
    Csv,
    JsonLines,
    Kafka,
    Mqtt,
    Generated,
)


def source_of(events: Any) -> Source:
    """The source that a path or paths stand for, by their endings.

    >>> source_of("events/day=1.parquet").type
    'parquet'
    """
    if isinstance(events, Source):
        return events
    paths = [events] if isinstance(events, str | Path) else events
    if not isinstance(paths, Iterable) or not all(isinstance(p, str | Path) for p in paths):
        raise SourceError(
            "these are no events",
            given=type(events).__name__,
            hint="try a path, an Arrow table, a pandas, Polars or Spark frame",
        )
    texts = tuple(str(path) for path in paths)
    if not texts:
        raise SourceError("no paths are given", hint="name at least one file or folder")
    for kind in SOURCES:
        endings = getattr(kind, "endings", ())
        if endings and all(_ends(text, endings) for text in texts):
            return kind(path=texts)  # type: ignore[call-arg]
    return Parquet(path=texts)


def _ends(text: str, endings: tuple[str, ...]) -> bool:
    path = Path(text)
    if path.is_dir():
        return any(child.name.endswith(endings) for child in path.rglob("*"))
    return text.endswith(endings)


__all__ = ["BAD", "SOURCES", "Piece", "Position", "Source", "Split", "source_of"]
