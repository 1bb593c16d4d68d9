"""The stateful operator behind a streaming DataFrame of results, as Spark sees it.

As in `bucket.py`, nothing of ours is imported before there is work to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from catchment.spark.bucket import BucketStates

RESULTS = (
    "events bigint, bad bigint, late bigint, duplicates bigint, rows bigint, grp int, body binary"
)
"""The rows that leave a bucket: what it counted in a batch, and pieces of its results."""


class WindowBucket(StatefulProcessor):
    """Takes the parcels of a bucket of keys, batch by batch, and gives the windows complete."""

    def __init__(self, work: str) -> None:
        self._work = work

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.store = BucketStates.of(handle)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        from catchment.spark.window_stream import StreamWork, bucket_rows

        work = StreamWork.from_text(self._work)
        yield from bucket_rows(work, self.store, key[0], (bytes(row.body) for row in rows))

    def close(self) -> None:
        return None
