"""A node on Spark: the same talk with parent and children, the work done by a streaming query."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from catchment.engine.partials import Partials
from catchment.engine.times import now
from catchment.errors import CatchmentError, RefusedError
from catchment.nodes.bootstrap import NodeConfig
from catchment.nodes.process import BEAT, NodeProcess
from catchment.sources.base import Source
from catchment.sources.watch import SourceNote
from catchment.spark.stepping import read_step, write_charter, write_step
from catchment.spark.tree_node import SparkWork
from catchment.tree.local import Local, SlicedElsewhere
from catchment.tree.records import RelayStep, RootStep
from catchment.tree.relay import Relay
from catchment.tree.root import Root

_FULL = 0.2
"""Seconds between looks at whether there is room for more."""


class SparkProcess(NodeProcess):
    """Runs one node as a Spark application."""

    def __init__(self, given: NodeConfig, beat: float = BEAT) -> None:
        super().__init__(given, beat)
        self.work = SparkWork(given.id, given.home, apart=given.hosted)
        self._charter_sent = -1
        self._starter: threading.Thread | None = None
        self._unstarted: Exception | None = None
        self._at_hand: RelayStep | RootStep | None = None

    # Spark reads the source and delivers the results: the member only keeps the books.

    def _reads(self) -> Callable[[], Source] | None:
        return None if self.given.source is None else self._unopened

    def _delivers(self) -> None:
        return None

    def source_note(self) -> SourceNote | None:
        # Batches are planned in a process of Spark's: it writes down what it sees.
        if self.reader is not None:
            return self.reader.source_note()
        reads = isinstance(self.member.machine, Local)
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
        machine = self.member.machine
        if machine is None or self.work.query is None:
            return False
        before = self.member.charter
        self.member.tend(now())
        if self.member.charter is not before:
            self._changed()
        self._hand_down()
        if isinstance(machine, Local):
            machine.refresh(now())
            return self.member.send_early(now())
        return self._decide(machine) or self.member.send_early(now())

    def _start_apart(self) -> None:
        """Starts the query on a thread of its own: it takes long, and the node must be heard."""
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
            self._at_hand = None
            self.member.reload(now())
        raise CatchmentError("the work on Spark has failed", given=_brief(failure))

    def _start(self) -> None:
        machine, charter = self.member.machine, self.member.charter
        assert charter is not None
        if isinstance(machine, Local):
            assert self.given.source is not None
            self.work.read(charter, self.given.source, self._took_batch, self.aside)
        elif isinstance(machine, Relay):
            self.work.merge(charter, self._took_step)
        else:
            self.work.assemble(charter, self.given.sinks, self._took_results)

    def _decide(self, machine: Relay | Root) -> bool:
        """Writes the next step down for the query, one at a time."""
        if self._at_hand is not None or self.member.full:
            return False
        folder = self.work.home.sub("steps")
        following = f"{1 + machine.number:012d}"
        if isinstance(machine, Relay) and following in folder.names():
            self._at_hand = read_step(folder, int(following)).step  # decided before a crash
            return True
        undone = machine.undone if isinstance(machine, Root) else []
        step = undone[0] if undone else machine.decide(now())
        if step is None:
            return False
        full = Partials()
        if isinstance(machine, Root) and isinstance(step, RootStep):
            step, full = machine.count(step)
        chosen = machine.inbox.chosen(step.take)
        try:
            write_step(folder, step, [machine.inbox.body(id, seq) for id, seq in chosen], full)
        except CatchmentError:
            self.member.reload(now())  # a disk may be full, and what was decided stays decided
            raise
        del undone[:1]
        self._at_hand = step
        return True

    # -- from the query, on its thread ------------------------------------------------------------

    def _took_batch(self, batch: SlicedElsewhere, at: int) -> None:
        while self._has_no_room() and not self.stopping.is_set():
            time.sleep(_FULL)  # a batch that waits holds the source back
        with self.lock:
            machine = self.member.machine
            assert isinstance(machine, Local)
            if self.member.refused is not None:
                raise RefusedError(self.member.refused)  # nothing more may be written down
            machine.take(batch, at)
        self.news.set()

    def _has_no_room(self) -> bool:
        machine = self.member.machine
        return self.member.full or (isinstance(machine, Local) and machine.crowded)

    def _took_step(self, step: int, partials: Partials, ends: dict[tuple[str, int], int]) -> None:
        with self.lock:
            machine = self.member.machine
            assert isinstance(machine, Relay)
            if step > machine.number:
                decided = read_step(self.work.home.sub("steps"), step).step
                assert isinstance(decided, RelayStep)
                machine.carried_out(decided, partials, ends)
            self._at_hand = None
        self.news.set()

    def _took_results(self, step: int, counts: dict[str, int], drained: tuple[str, ...]) -> None:
        with self.lock:
            machine = self.member.machine
            assert isinstance(machine, Root)
            if step > machine.number:
                decided = read_step(self.work.home.sub("steps"), step).step
                assert isinstance(decided, RootStep)
                machine.carried_out(decided, counts, drained)
            self._at_hand = None
        self.news.set()


def _brief(failure: Exception) -> str:
    """The last line of a failure's text that names an error; if none does, its last line."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    told = [line for line in lines if "Error:" in line or "Exception:" in line]
    return (told or lines or [type(failure).__name__])[-1][:300]
