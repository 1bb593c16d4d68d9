"""The stateful operator of the streaming job, as Spark sees it.

When a job starts, Spark makes a Python process that only asks which states the operator has. So
this module imports nothing of ours but what that needs, and the work is in `state.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle


class BucketStates(NamedTuple):
    """The states of a bucket in Spark's state store."""

    head: Any
    """Where the log begins and ends."""
    entries: Any
    """The entries of the log, by number."""
    base: Any
    """The snapshot before the log, in chunks."""

    @classmethod
    def of(cls, handle: StatefulProcessorHandle) -> BucketStates:
        return cls(
            handle.getValueState("head", "note string"),
            handle.getMapState("entries", "n bigint", "tag string, body binary"),
            handle.getMapState("base", "n bigint", "body binary"),
        )


class Bucket(StatefulProcessor):
    """Takes the parcels of a bucket of keys, batch by batch."""

    def __init__(self, spec: str) -> None:
        self._spec = spec

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.store = BucketStates.of(handle)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        from catchment.spark.spec import Spec
        from catchment.spark.state import BucketStep

        step = BucketStep(Spec.from_text(self._spec), self.store)
        yield from step.rows(key[0], (bytes(row.body) for row in rows))

    def close(self) -> None:
        return None
