"""A node on Spark: the same talk with parent and children, the work done by a streaming query."""

from __future__ import annotations

import threading
from collections.abc import Callable

from catchment.engine.times import now
from catchment.errors import CatchmentError
from catchment.nodes.bootstrap import NodeConfig
from catchment.nodes.process import BEAT, NodeProcess
from catchment.nodes.spark_execution import (
    AssemblingExecution,
    Execution,
    MergingExecution,
    ReadingExecution,
)
from catchment.sources.base import Source
from catchment.sources.watch import SourceNote
from catchment.spark.stepping import write_charter
from catchment.spark.tree_node import SparkWork


class SparkProcess(NodeProcess):
    """Runs one node as a Spark application."""

    def __init__(self, given: NodeConfig, beat: float = BEAT) -> None:
        super().__init__(given, beat)
        self.work = SparkWork(given.id, given.home, apart=given.hosted)
        self._charter_sent = -1
        self._starter: threading.Thread | None = None
        self._unstarted: Exception | None = None
        self.execution: Execution = _execution_of(given)(self)

    # Spark reads the source and delivers the results: the member only keeps the books.

    def _reads(self) -> Callable[[], Source] | None:
        return None if self.given.source is None else self._unopened

    def _delivers(self) -> None:
        return None

    def source_note(self) -> SourceNote | None:
        # Batches are planned in a process of Spark's: it writes down what it sees.
        if self.reader is not None:
            return self.reader.source_note()
        reads = self.given.source is not None and self.member.machine is not None
        return SourceNote.load(self.work.home.sub("source")) if reads else None

    def _unopened(self) -> Source:
        assert self.given.source is not None
        return self.given.source.model_copy()

    def close(self) -> None:
        if self._starter is not None:
            self._starter.join(60)
        self.work.stop()
        super().close()

    def _work(self) -> bool:
        try:
            # Spark is asked without the lock: it may take its time, and children must not wait.
            failure = self.work.failure()
            if failure is not None:
                self._failed_query(failure)
            charter = self.member.charter
            known = charter is not None and charter.schema is not None
            with self.lock:
                self._report()
                ready = self.member.ready(now())
            if not ready:
                return False
            if self.work.query is None and known and self.member.machine is not None:
                self._start_apart()
                return False
            with self.lock:
                return self._go_on()
        except CatchmentError as error:
            self._keep_error(error)
            self.stopping.wait(0.5)
            return False

    def _go_on(self) -> bool:
        if self.member.machine is None or self.work.query is None:
            return False
        before = self.member.charter
        self.member.tend(now())
        if self.member.charter is not before:
            self._changed()
        self._ask()
        self._hand_down()
        return self.execution.go_on() or self.member.send_early(now())

    def _start_apart(self) -> None:
        """Starts the query on another thread: it takes long, and heartbeats must go on."""
        if self._starter is None:
            self._starter = threading.Thread(target=self._begin, name="start", daemon=True)
            self._starter.start()
        elif not self._starter.is_alive():
            self._starter, failed = None, self._unstarted
            self._unstarted = None
            if failed is not None:
                raise CatchmentError("the work on Spark cannot be started", given=_brief(failed))

    def _begin(self) -> None:
        try:
            self._hand_down()
            self._start()
        except Exception as error:  # noqa: BLE001 - said by the thread that waits
            self._unstarted = error

    def _hand_down(self) -> None:
        """Gives executors the charter."""
        charter = self.member.charter
        assert charter is not None
        if self._charter_sent != charter.version:
            write_charter(self.work.home, charter)
            self._charter_sent = charter.version

    def _failed_query(self, failure: Exception) -> None:
        """Forgets a query that has failed, goes back to what is on disk, and raises the reason; the
        next turn starts the query from its checkpoint."""
        with self.lock:
            self.work.query = None
            self.execution.forget()
            self.member.reload(now())
        raise CatchmentError("the work on Spark has failed", given=_brief(failure))

    def _start(self) -> None:
        assert self.member.charter is not None
        self.execution.start(self.member.charter)


def _execution_of(
    given: NodeConfig,
) -> type[ReadingExecution | MergingExecution | AssemblingExecution]:
    if given.parent is None:
        return AssemblingExecution
    return MergingExecution if given.source is None else ReadingExecution


def _brief(failure: Exception) -> str:
    """The last line of a failure's text that names an error; if none does, its last line."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    told = [line for line in lines if "Error:" in line or "Exception:" in line]
    return (told or lines or [type(failure).__name__])[-1][:300]
