"""Deliveries for the tests of sinks, and processes that write some and may be killed."""

from __future__ import annotations

import multiprocessing
import random
import resource
import signal
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

from catchment.errors import SinkError
from catchment.sinks.base import Delivery, Sink
from patience import PATIENCE

TIME = pa.timestamp("us", "UTC")
START = 1_700_000_000_000_000
ODD = ("plain", "with space", "a/b\\c", 'it\'s "so"', "größe 温度", "..", "_x", "x" * 100, "50%;--")
"""Names of queries that files, tables and topics do not take as they are."""
BATCHES, QUERIES, ROWS = 12, 8, 25
"""What a child process writes."""


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(START / 1e6, UTC) + timedelta(seconds=seconds)


def rows(
    keys: Sequence[object],
    values: Sequence[object],
    second: int = 0,
    revision: int | None = None,
    retracted: bool = False,
) -> pa.Table:
    """A key column `user`, one window, and an aggregate."""
    count = len(keys)
    columns: dict[str, Any] = {
        "user": pa.array(keys, pa.string()),
        "window_start": pa.array([at(second)] * count, TIME),
        "window_end": pa.array([at(second + 1)] * count, TIME),
        "sum(v)": pa.array(values),
    }
    if revision is not None:
        columns["revision"] = pa.array([revision] * count, pa.int64())
        columns["retracted"] = pa.array([retracted] * count, pa.bool_())
    return pa.table(columns)


def delivery(
    results: Mapping[str, pa.Table],
    batch: int = 0,
    part: int = 0,
    job: str = "job-abc",
    keys: tuple[str, ...] = ("user",),
) -> Delivery:
    return Delivery(job, batch, part, results, dict.fromkeys(results, keys))


TYPES: dict[str, tuple[pa.DataType, Any, Any]] = {
    "bool": (pa.bool_(), True, True),
    "int8": (pa.int8(), -128, -128),
    "uint16": (pa.uint16(), 65535, 65535),
    "int64": (pa.int64(), 2**63 - 1, 2**63 - 1),
    "uint64": (pa.uint64(), 2**64 - 1, 2**64 - 1),
    "half": (pa.float16(), 0.5, 0.5),
    "float": (pa.float32(), 0.25, 0.25),
    "double": (pa.float64(), 0.1, 0.1),
    "decimal": (pa.decimal128(20, 3), Decimal("-1.250"), "-1.250"),
    "text": (pa.string(), 'say "hé"\n\\\t', 'say "hé"\n\\\t'),
    "large": (pa.large_string(), "温", "温"),
    "words": (pa.dictionary(pa.int32(), pa.string()), "a", "a"),
    "bytes": (pa.binary(), b"\x00\xff", "AP8="),
    "day": (pa.date32(), date(2024, 2, 29), "2024-02-29"),
    "clock": (pa.time64("us"), clock(1, 2, 3, 4), "01:02:03.000004"),
    "instant": (TIME, at(0), "2023-11-14T22:13:20.000000Z"),
    "local": (pa.timestamp("ms"), datetime(2024, 1, 1), "2024-01-01T00:00:00.000000"),
    "span": (pa.duration("us"), timedelta(microseconds=-1_500_000), "PT-1.500000S"),
    "ints": (pa.list_(pa.int64()), [1, None, 3], [1, None, 3]),
    "pairs": (pa.list_(pa.list_(pa.string())), [["a"], []], [["a"], []]),
    "struct": (
        pa.struct([("n", pa.int64()), ("s", pa.string())]),
        {"n": 1, "s": None},
        {"n": 1, "s": None},
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [("a", 1)], [["a", 1]]),
    "nothing": (pa.null(), None, None),
}
"""Name to Arrow type, a value, and what JSON makes of it."""


def every_type() -> pa.Table:
    """Three rows, of values, of nulls, and of values again, with each type as an aggregate."""
    table = rows(["a", None, "b"], [1.0, None, float("nan")])
    for name, (kind, value, _) in TYPES.items():
        table = table.append_column(name, pa.array([value, None, value], kind))
    return table


def child_delivery(job: str, batch: int, part: int = 0) -> Delivery:
    users = [f"u{number}" for number in range(ROWS)]
    values = [batch * 1000 + number for number in range(ROWS)]
    results = {f"q{number}": rows(users, values, batch, 0) for number in range(QUERIES)}
    return delivery(results, batch, part, job)


# Forked off one that has imported everything, as most of a test would be spent on that.
_BIRTH = multiprocessing.get_context("forkserver")
_BIRTH.set_forkserver_preload(
    [__name__, "catchment.sinks.kafka_transactions", "catchment.sinks.postgres_tables"]
)


class Child:
    """A process that writes deliveries from `start` on and says the number of each."""

    def __init__(self, sink: Sink, job: str, start: int = 0, limit: int = 0) -> None:
        self._from, into = _BIRTH.Pipe(duplex=False)
        self._process = _BIRTH.Process(target=_live, args=(sink, job, start, limit, into))
        self._process.start()
        into.close()

    def hear(self) -> int | str | None:
        """The number of a batch that it wrote, or an error; None when it says no more."""
        try:
            said: int | str = self._from.recv()
        except EOFError:
            return None
        return said

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> list[int | str]:
        """What it said until its end."""
        said = list(iter(self.hear, None))
        self._process.join(PATIENCE)
        self._process.close()
        self._from.close()
        return said


def _live(sink: Sink, job: str, start: int, limit: int, into: Connection) -> None:
    if limit:
        # As on a full disk: a write fails in its middle.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        for batch in range(start, BATCHES):
            _write(sink, child_delivery(job, batch), tries=1 if limit else 4)
            into.send(batch)
    except SinkError as error:
        into.send(str(error))
    sink.close()


def _write(sink: Sink, delivery: Delivery, tries: int) -> None:
    """As Spark does: a delivery that a sink refused comes again, some times."""
    for left in range(tries - 1, -1, -1):
        try:
            sink.write(delivery)
            return
        except SinkError:
            if not left:
                raise


def killed_and_repeated(sink: Sink, job: str, kills: int = 5) -> None:
    """Writes all deliveries through processes that are killed at any moment."""
    done = 0
    for _ in range(kills):
        child = Child(sink, job, done)
        first = child.hear()
        time.sleep(random.uniform(0, 0.1))
        child.kill()
        # The last one that it told of comes again, and so does one that it may have written.
        done = max([done, *(said for said in [first, *child.end()] if isinstance(said, int))])
    assert Child(sink, job, done).end() == list(range(done, BATCHES))
