"""The rows of the job's stages."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Row

PARCEL = "bucket int, body binary"
"""The rows that travel through Spark: a bucket of keys, and partials as bytes."""

RESULT = "grp int, note binary, body binary"
"""The rows that leave a bucket of a batch: what is said of it, and pieces of its results. A piece
has the id of its group; null, where it holds the results of all groups."""

OUTPUT = "bucket int, kind string, body binary"
"""The rows that leave a bucket of a streaming job."""


def row_of(bucket: int, kind: str, body: bytes) -> Any:
    return Row(bucket=bucket, kind=kind, body=body)
