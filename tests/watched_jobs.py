"""A made-up job for tests of the page: as many queries and nodes as wanted, and names that bite."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa

import catchment as ct
from catchment.errors import QueryError
from catchment.model.capacity import Capacity
from catchment.model.query import Query
from catchment.planner.planned import NOTHING, Planned
from catchment.sinks.base import Delivery, Sink
from catchment.sinks.memory import Memory
from catchment.ui.snapshot import BatchCost, JobView, Notice, ShownNode, Snapshot

BEGAN = 1_767_225_600_000_000
SCRIPT = "<script>window.bitten=1</script>"
IMAGE = "<img src=x onerror=window.bitten=1>"


def queries(count: int) -> list[Query]:
    """Queries of five window lengths and five functions; the first has a name that bites."""
    functions = [ct.avg("v"), ct.sum("v"), ct.min("v"), ct.max("v"), ct.count()]
    found = [ct.Query(SCRIPT, ct.avg("v").alias("mean"), by="k", window=ct.tumbling("1s"))]
    for n in range(1, count):
        window = ct.tumbling(f"{1 + n % 5}s") if n % 3 else ct.sliding(f"{2 + n % 4}s", "1s")
        by = () if n % 7 == 0 else "k"
        found.append(ct.Query(f"q{n:05d}", functions[n % 5], by=by, window=window))
    return found


class FakeJob:
    """A job that nobody runs. `step` counts its looks: each of them moves it on."""

    def __init__(
        self,
        count: int = 20,
        nodes: int = 6,
        kind: str = "tree",
        name: str = "fake <b>job</b>",
        state: str = "running",
    ) -> None:
        self.count, self.nodes, self.kind, self.name, self.state = count, nodes, kind, name, state
        self.step = 0
        self.missing: set[str] = set()
        self.added: list[Query] = []
        self.removed: list[tuple[str, bool]] = []
        self.memory = Memory()
        keys = [f"device {n}" for n in range(4)] + [IMAGE]
        for batch in range(40):
            self._deliver(batch, keys)

    def _deliver(self, batch: int, keys: list[str]) -> None:
        end = BEGAN + (batch + 1) * 1_000_000
        table = pa.table(
            {
                "k": keys,
                "window_start": pa.array([end - 1_000_000] * len(keys), pa.timestamp("us", "UTC")),
                "window_end": pa.array([end] * len(keys), pa.timestamp("us", "UTC")),
                "mean": [20 + n * 3 + (batch * (n + 3)) % 7 for n in range(len(keys))],
                "revision": [int(batch % 9 == 4)] * len(keys),
                "retracted": [False] * len(keys),
            }
        )
        self.memory.write(Delivery("fake", batch, 0, {SCRIPT: table}, {SCRIPT: ("k",)}))

    @property
    def sinks(self) -> Sequence[Sink]:
        return (self.memory,)

    @cached_property
    def first_plan(self) -> Planned:
        return NOTHING.next(0, {query.name: query for query in queries(self.count)})

    def planned(self) -> Planned:
        return self.first_plan

    def look(self) -> Snapshot:
        self.step += 1
        events = 5000 * self.step
        job = JobView(
            self.name,
            "tree" if self.kind == "tree" else "spark",
            self.state,
            frontier=BEGAN + self.step * 1_000_000,
            lag=1.5 + self.step % 3,
            plan=0,
            queries=self.count,
            rate=4800.0 + self.step % 400,
            batch=self.step,
            flush="auto",
            event_bytes=40,
            results="memory of the job",
        )
        counts = {"events": events, "accepted": events - 12, "late": 9, "bad": 3, "results": 200}
        return Snapshot(
            job,
            counts,
            self._nodes() if self.kind == "tree" else (),
            (Capacity("inbox", 950 + self.step % 2, 1000, "bytes", "children wait"),),
            (Notice("never read", "a.csv", SCRIPT),),
            {},
            BatchCost(10, 8.0, {"read": 1.0, "slice": 2.0, "spark": 5.0}),
        )

    def _nodes(self) -> tuple[ShownNode, ...]:
        """A root, a node in between for every forty readers, and readers, a few of them slow; those
        that are missing stand still."""
        between = max(1, self.nodes // 40)
        found = [ShownNode("root", None, "root", "connected", BEGAN + self.step * 1_000_000, 2.0)]
        for n in range(1, self.nodes):
            inner = n <= between
            id = f"relay-{n}" if inner else f"site-{n}"
            gone = id in self.missing
            behind = 9.0 if n % 83 == 0 else float(n % 3)
            step = 1 if gone else self.step
            found.append(
                ShownNode(
                    id,
                    "root" if inner else f"relay-{1 + n % between}",
                    "merges" if inner else "reads",
                    "missing" if gone else "connected",
                    BEGAN + (step + 2) * 1_000_000 - int(behind * 1e6),
                    behind + self.step - step,
                    silent=float(self.step - step) if gone else 0.0,
                    messages=3 * step,
                    nbytes=(400 + n % 50) * (step // (1 + n % 7)),
                    bandwidth=1e3 * (1 + n % 9),
                    early=n,
                    alpha=0.25,
                )
            )
        return tuple(found)

    def check(self, query: Query) -> None:
        if query.name in self.first_plan.queries:
            raise QueryError("two queries have one name", given=query.name, hint="remove one")

    def add(self, query: Query) -> None:
        self.check(query)
        self.added.append(query)

    def remove(self, name: str, drain: bool) -> None:
        if name not in self.first_plan.queries:
            raise QueryError("no such query", given=name)
        self.removed.append((name, drain))

    def set_aside(self, kind: str, rows: int) -> pa.Table:
        if kind != "bad":
            return pa.table({})
        return pa.table({"origin": ["a.csv"] * 3, "reason": [SCRIPT] * 3}).slice(0, rows)
