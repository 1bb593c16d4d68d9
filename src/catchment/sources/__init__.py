"""Where events come from: one file per source, and one line here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from catchment.errors import SourceError
from catchment.sources.arrow_file import ArrowFile as ArrowFile
from catchment.sources.base import BAD as BAD
from catchment.sources.base import Piece as Piece
from catchment.sources.base import Position as Position
from catchment.sources.base import Source as Source
from catchment.sources.base import Split as Split
from catchment.sources.base import register_source as register_source
from catchment.sources.csv_file import Csv as Csv
from catchment.sources.generated import Generated as Generated
from catchment.sources.json_lines import JsonLines as JsonLines
from catchment.sources.kafka import Kafka as Kafka
from catchment.sources.mqtt import Mqtt as Mqtt
from catchment.sources.otlp import Otlp as Otlp
from catchment.sources.parquet_file import Parquet as Parquet
from catchment.sources.prometheus import Prometheus as Prometheus


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
    for kind in (Parquet, *Source.registry.registered().values()):
        endings = getattr(kind, "endings", ())
        if endings and all(_ends(text, endings) for text in texts):
            made: Source = kind(path=texts)
            return made
    return Parquet(path=texts)


def _ends(text: str, endings: tuple[str, ...]) -> bool:
    path = Path(text)
    if path.is_dir():
        return any(child.name.endswith(endings) for child in path.rglob("*"))
    return text.endswith(endings)
