"""Results kept in this process, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, NamedTuple

import pyarrow as pa
from pydantic import Field, PrivateAttr

from catchment.model.capacity import Capacity
from catchment.sinks.base import Delivery, Sink, register_sink
from catchment.sinks.rows import filled, latest


class _KeptDelivery(NamedTuple):
    tables: Mapping[str, pa.Table]
    rows: int


@register_sink
class Memory(Sink):
    """Keeps every revision of the newest results; a copy that was pickled starts empty.

    >>> memory = Memory()
    >>> table = pa.table({"window_start": [0], "window_end": [9], "n": [1]})
    >>> delivery = Delivery("job", 0, 0, {"q": table}, {"q": ()})
    >>> memory.write(delivery)
    >>> memory.write(delivery)
    >>> memory.results("q")["n"].to_pylist()
    [1]
    """

    on_driver: ClassVar[bool] = True

    type: Literal["memory"] = "memory"
    limit: int = Field(
        default=1_000_000, gt=0, description="rows kept in all; the oldest batches go first"
    )

    _deliveries: dict[tuple[int, int], _KeptDelivery] = PrivateAttr(default_factory=dict)
    _keys: dict[str, tuple[str, ...]] = PrivateAttr(default_factory=dict)
    _rows: int = PrivateAttr(default=0)
    _dropped: int = PrivateAttr(default=0)
    _gone: int = PrivateAttr(default=-1)

    def check(self) -> None:
        return

    def write(self, delivery: Delivery) -> None:
        tables = dict(filled(delivery))
        place = (delivery.batch, delivery.part)
        if not tables or place in self._deliveries or delivery.batch <= self._gone:
            return
        rows = sum(table.num_rows for table in tables.values())
        self._keys.update({query: delivery.keys[query] for query in tables})
        self._deliveries[place] = _KeptDelivery(tables, rows)
        self._rows += rows
        self._drop()

    def results(self, query: str) -> pa.Table:
        """All revisions of a query's results; a table without columns when there are none."""
        found = [
            kept.tables[query]
            for _, kept in sorted(self._deliveries.items(), key=_place)
            if query in kept.tables
        ]
        return pa.concat_tables(found, promote_options="permissive") if found else pa.table({})

    def latest(self, query: str) -> pa.Table:
        """The newest revision of each key and window; retracted ones are gone."""
        table = self.results(query)
        return latest(table, self._keys[query]) if table.num_columns else table

    @property
    def queries(self) -> list[str]:
        """The queries that have results."""
        return sorted({query for kept in self._deliveries.values() for query in kept.tables})

    @property
    def dropped(self) -> int:
        """Rows that went to make room."""
        return self._dropped

    def capacities(self) -> list[Capacity]:
        then = "the oldest batches are dropped"
        return [Capacity("results in memory", self._rows, self.limit, "rows", then)]

    def _drop(self) -> None:
        """Lets the oldest batches go, but never the newest."""
        while self._rows > self.limit:
            batches = {batch for batch, _ in self._deliveries}
            oldest = min(batches)
            if len(batches) == 1:
                return
            for place in [place for place in self._deliveries if place[0] == oldest]:
                rows = self._deliveries.pop(place).rows
                self._rows -= rows
                self._dropped += rows
            self._gone = oldest


def _place(item: tuple[tuple[int, int], _KeptDelivery]) -> tuple[int, int]:
    return item[0]
