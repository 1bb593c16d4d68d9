"""The rows that leave a bucket: a report, results for the driver, rows set aside."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Row

OUTPUT = "bucket int, kind string, body binary"


def row_of(bucket: int, kind: str, body: bytes) -> Any:
    return Row(bucket=bucket, kind=kind, body=body)
