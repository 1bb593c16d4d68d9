"""Runs the streaming pipeline without Spark: the same planner, readers and buckets, and crashes."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import pyarrow as pa

from catchment.durable.folder import Folder
from catchment.model.query import Query
from catchment.sinks.base import Delivery, Sink
from catchment.sources.base import Piece, Position, Source, Split
from catchment.spark import reader, state
from catchment.spark.bucket import Bucket
from catchment.spark.deliver import BatchCommitter
from catchment.spark.planning import BatchPlanner, Progress, first_plan
from catchment.spark.queries import QueryFolder
from catchment.spark.reader import SplitReader
from catchment.spark.records import Offset
from catchment.spark.spec import Spec, forget_plans

Batch = list[tuple[str, pa.Table]]
"""The events of a batch, by partition."""

DATA: dict[str, list[Batch]] = {}
WRITTEN: dict[str, dict[tuple[int, int], dict[str, pa.Table]]] = {}


class CrashError(Exception):
    """The process died."""


class GivenEvents(Source):
    """Batches that are all known ahead."""

    type: Literal["given"] = "given"
    data: str

    def check(self) -> None:
        return

    def event_schema(self) -> pa.Schema:
        return DATA[self.data][0][0][1].schema

    def start(self) -> Position:
        return {"n": 0}

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        return {"n": min(position["n"] + 1, len(DATA[self.data]))}

    def bound(self, position: Position) -> Position:
        return {"n": len(DATA[self.data])}

    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        found = []
        arrivals: dict[str, int] = {}
        for number, batch in enumerate(DATA[self.data][: end["n"]]):
            for place, (partition, table) in enumerate(batch):
                arrival = arrivals.get(partition, 0)
                arrivals[partition] = arrival + table.num_rows
                if number >= start["n"]:
                    body = {"batch": number, "place": place}
                    found.append(Split(partition, arrival, body))
        return found

    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        table = DATA[self.data][split.body["batch"]][split.body["place"]][1]
        half = table.num_rows // 2
        for part in (table.slice(0, half), table.slice(half)):
            yield Piece(part if columns is None else part.select(columns))

    def ended(self, position: Position) -> bool:
        return bool(position["n"] >= len(DATA[self.data]))


class Recorder(Sink):
    """Keeps deliveries; one that comes again must be the same."""

    on_driver: ClassVar[bool] = False
    type: Literal["recorder"] = "recorder"
    data: str

    def check(self) -> None:
        return

    def write(self, delivery: Delivery) -> None:
        held = WRITTEN[self.data]
        place = (delivery.batch, delivery.part)
        tables = dict(delivery.results)
        if place in held:
            assert held[place].keys() == tables.keys()
            for name, table in tables.items():  # as texts: NaN equals NaN
                assert str(held[place][name].to_pylist()) == str(table.to_pylist()), name
        held[place] = tables


class Store:
    """A bucket's state store: changes last once the batch commits."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[Any, Any]] = {}
        self.open: dict[str, dict[Any, Any]] = {}

    def begin(self) -> None:
        self.open = {name: dict(held) for name, held in self.kept.items()}

    def commit(self) -> None:
        self.kept = self.open

    def getValueState(self, name: str, schema: str) -> _Value:  # noqa: N802
        return _Value(self.open.setdefault(name, {}))

    def getMapState(self, name: str, key: str, value: str) -> _Map:  # noqa: N802
        return _Map(self.open.setdefault(name, {}))


class _Value:
    def __init__(self, held: dict[Any, Any]) -> None:
        self.held = held

    def exists(self) -> bool:
        return "value" in self.held

    def get(self) -> Any:
        return self.held["value"]

    def update(self, value: Any) -> None:
        self.held["value"] = value


class _Map:
    def __init__(self, held: dict[Any, Any]) -> None:
        self.held = held

    def getValue(self, key: Any) -> Any:  # noqa: N802
        return self.held.get(key)

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802
        self.held[key] = value

    def removeKey(self, key: Any) -> None:  # noqa: N802
        self.held.pop(key, None)


class _Row:
    def __init__(self, body: bytes) -> None:
        self.body = body


class _Rows:
    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def collect(self) -> list[Any]:
        return self._rows

    def where(self, condition: str) -> _Rows:
        assert condition == "kind != 'results'"
        return _Rows([row for row in self._rows if row.kind != "results"])


class Pipeline:
    """A job from its first batch to its end; `crashes` is how likely each point is its last."""

    def __init__(
        self,
        folder: str,
        batches: list[Batch],
        queries: list[Query],
        seed: int = 0,
        crashes: float = 0.0,
        buckets: int = 2,
        **settings: Any,
    ) -> None:
        self.data = uuid.uuid4().hex
        DATA[self.data], WRITTEN[self.data] = batches, {}
        self.random = random.Random(seed)
        self.crashes = crashes
        values = {"time": "ts", "late": "drop", "keep": None, "lateness": 0, "idle": None}
        self.spec = Spec(
            job=f"test-{self.data}",
            home=Folder(folder),
            source=GivenEvents(data=self.data),
            sinks=(Recorder(data=self.data),),
            schema=batches[0][0][1].schema,
            ahead=None,
            buckets=buckets,
            labels=tuple(range(buckets)),
            parallel=2,
            rate=1000.0,
            **(values | settings),
        )
        forget_plans()
        QueryFolder(self.spec.home).write_all(queries)
        first_plan(self.spec, queries)
        self.stores = {label: Store() for label in self.spec.labels}
        self.progress: list[Progress] = []
        self.before: dict[int, Any] = {}
        self.tallied: dict[str, int] = {}
        """Result rows of each query, as metrics count them."""

    def at(self, batch: int, change: Any) -> None:
        """Does something to the job before a batch is planned."""
        self.before.setdefault(batch, []).append(change)

    def run(self) -> dict[str, pa.Table]:
        """All results, by query."""
        planner = BatchPlanner(self.spec)
        start = planner.first()
        while True:
            for change in self.before.pop(start.batch + 1, []):
                change(self)
            end = planner.next(start)
            if self._dies():
                planner = self._restart()
                continue
            if end == start:
                break
            while not self._batch(planner, start, end):
                planner = self._restart()
            planner.commit(end)
            start = end
        return self.results()

    def _restart(self) -> BatchPlanner:
        if self.random.random() < 0.5:  # another worker may still have what it had
            state._HELD.clear()
            reader._BOUND.clear()
        forget_plans()
        return BatchPlanner(self.spec)

    def _dies(self) -> bool:
        return self.random.random() < self.crashes

    def _batch(self, planner: BatchPlanner, start: Offset, end: Offset) -> bool:
        """Runs a batch; False if it died on the way."""
        try:
            rows = self._read(planner, start, end)
            out: list[Any] = []
            for label, store in self.stores.items():
                store.begin()
                out += self._bucket(label, store, [r for where, r in rows if where == label])
                if self._dies():
                    raise CrashError
            if self.random.random() < 0.3:
                state._HELD.clear()
            heard = lambda progress, *_: self.progress.append(progress)
            committer = BatchCommitter(self.spec, heard)
            committer(_Rows(out), 0)  # type: ignore[arg-type]
            for name, one in committer.tallies.by_query.items():
                self.tallied[name] = self.tallied.get(name, 0) + one.rows
            if self._dies():
                raise CrashError
        except CrashError:
            return False
        for store in self.stores.values():
            store.commit()
        return True

    def _read(self, planner: BatchPlanner, start: Offset, end: Offset) -> list[tuple[int, bytes]]:
        rows: list[tuple[int, bytes]] = []
        for number, (node, split) in enumerate(planner.splits(start, end)):
            reading = SplitReader(self.spec, end.control, number, node)
            rows += reading.rows(split)
            if self._dies():
                raise CrashError
        self.random.shuffle(rows)  # a shuffle keeps no order
        return rows

    def _bucket(self, label: int, store: Store, bodies: list[bytes]) -> list[Any]:
        bucket = Bucket(self.spec.to_text())
        bucket.init(store)  # type: ignore[arg-type]
        return list(bucket.handleInputRows((label,), iter([_Row(b) for b in bodies]), None))

    def results(self) -> dict[str, pa.Table]:
        found: dict[str, list[pa.Table]] = {}
        for _, tables in sorted(WRITTEN[self.data].items()):
            for name, table in tables.items():
                found.setdefault(name, []).append(table)
        return {name: pa.concat_tables(tables) for name, tables in found.items()}
