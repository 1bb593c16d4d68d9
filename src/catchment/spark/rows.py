"""The rows of the job's stages."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Row

PARCEL = "bucket int, body binary"
"""The rows that travel through Spark: a bucket of keys, and partials or results as bytes."""

OUTPUT = "bucket int, kind string, body binary"
"""The rows that leave a bucket."""


def row_of(bucket: int, kind: str, body: bytes) -> Any:
    return Row(bucket=bucket, kind=kind, body=body)
