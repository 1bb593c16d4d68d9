"""What transcripts run on: every way that Catchment has to compute queries, behind one protocol.

A runtime says which transcripts it plays in one go, and plays them. The engine and the simulator
take one at a time. The others are jobs, whose start costs more than any transcript: they play a
script of many (`transcript_script.py`).
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pydantic import PrivateAttr

import catchment as ct
from catchment.job import JobModel
from catchment.measure.ports import free_port
from catchment.model.duration import micros
from catchment.nodes.bootstrap import NodeConfig, given
from catchment.nodes.process import NodeProcess
from catchment.simulate import Faults, World
from catchment.simulate.memory import EventsInMemory
from catchment.sinks.base import Delivery
from catchment.sinks.memory import Memory
from catchment.sources import files as source_files
from catchment.sources import listing
from catchment.sources.base import Piece, Position, Split
from catchment.sources.parquet_file import Parquet
from catchment.testing.transcripts import TablesByQuery, Transcript, replay
from catchment.tree.local import Local
from catchment.tree.member import Member
from catchment.tree.root import Root
from notes import answer
from patience import PATIENCE, wait_for
from transcript_script import (
    BEGIN,
    CLOCK,
    END,
    EVENTS,
    OWNER,
    TIME,
    Mark,
    Script,
    Slot,
    ends,
    fitting,
)
from trees import charter, final

EVERY = os.environ.get("CATCHMENT_TRANSCRIPTS") == "all"
"""Whether streaming and nodes on Spark take every transcript that they can, as in `make soak`."""
_SLOTS = 8
"""What a script may have without that."""

Played = dict[str, list[TablesByQuery]]
"""By transcript: results at each frontier and at the close, or all at once."""


class Runtime(Protocol):
    """A way to compute queries."""

    name: str
    family: str
    """A transcript may name either where it says what it cannot run on."""
    by_step: bool
    """Whether it says at which frontier a result came; otherwise it gives the last words."""
    marks: tuple[Any, ...]
    """The marks of its tests: `spark` gives it a session."""

    def parts(self, cases: Sequence[Transcript]) -> list[list[Transcript]]:
        """The transcripts that it plays in one go."""

    def play(self, cases: Sequence[Transcript], home: Path, spark: Any) -> Played:
        """Plays them, with a folder for what it must write, and a session if it is on Spark."""


def one_by_one(cases: Sequence[Transcript]) -> list[list[Transcript]]:
    return [[case] for case in cases]


# -- in this process -------------------------------------------------------------------------------


@dataclass(frozen=True)
class InEngine:
    """`ct.Engine`."""

    name: str = "engine"
    family: str = "engine"
    by_step: bool = True
    marks: tuple[Any, ...] = ()
    parts: ClassVar = staticmethod(one_by_one)

    def play(self, cases: Sequence[Transcript], home: Path, spark: Any) -> Played:
        return {case.name: replay(case, ct.Engine) for case in cases}


# -- batch -----------------------------------------------------------------------------------------


def as_files(events: pa.Table, home: Path, spark: Any) -> Any:
    """A folder of Parquet files, one after the other."""
    size = 1 + events.num_rows // 3
    for number, start in enumerate(range(0, max(1, events.num_rows), size)):
        pq.write_table(events.slice(start, size), home / f"{number}.parquet")
    return home


def as_arrow(events: pa.Table, home: Path, spark: Any) -> Any:
    return events


def as_frame(events: pa.Table, home: Path, spark: Any) -> Any:
    """A DataFrame in one partition, so that its rows have an order.

    Spark has no unsigned integers: they are wider ones.
    """
    # In one chunk: Spark takes an empty one for the end of the table.
    return spark.createDataFrame(events.cast(signed(events.schema)).combine_chunks()).coalesce(1)


def signed(schema: pa.Schema) -> pa.Schema:
    """The columns as Spark may have them."""
    return pa.schema([field.with_type(_SIGNED.get(field.type, field.type)) for field in schema])


_SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def sliced_by_spark(case: Transcript) -> bool:
    """Whether a DataFrame's slices are columns of Spark: edges on a grid, and plain functions."""
    windows = [query.window for query in case.queries]
    functions = {wanted.function for query in case.queries for wanted in query.aggregates}
    on_grid = all(w.kind in _GRIDS and getattr(w, "gap", _GAP) >= _GAP for w in windows)
    return on_grid and functions <= _PLAIN


_GRIDS = {"tumbling", "sliding", "session", "cumulate"}
_GAP = 10_000
"""Slices as short as smaller gaps of sessions would be too many."""
_PLAIN = {"sum", "avg", "min", "max", "count"}


@dataclass(frozen=True)
class InBatch:
    """`ct.run`, over all events of the transcripts in the order of their arrival."""

    name: str
    form: Callable[[pa.Table, Path, Any], Any]
    apart: Callable[[Transcript], bool] = lambda case: False
    """Transcripts that it plays without the others, which would change how it plays them."""
    family: str = "batch"
    by_step: bool = False
    marks: tuple[Any, ...] = (pytest.mark.spark,)

    def parts(self, cases: Sequence[Transcript]) -> list[list[Transcript]]:
        alone = [case for case in cases if self.apart(case)]
        others = [case for case in cases if not self.apart(case)]
        return [part for some in (alone, others) for part in fitting(some, settings=False)]

    def play(self, cases: Sequence[Transcript], home: Path, spark: Any) -> Played:
        script = Script(cases)
        where = spark if self.marks else False
        found = ct.run(self.form(script.events, home, spark), script.queries, TIME, where)
        return {case.name: [script.results(case, found)] for case in cases}


def affordable(cases: Sequence[Transcript], jobs: int) -> list[list[Transcript]]:
    """The transcripts for a runtime whose every slot costs about a second of processor time.

    Without EVERY it is a selection, always the same: so many jobs, the largest there can be, each
    of as many transcripts as have few enough slots together, in an order drawn by a seed. Those
    without a frontier before the close need no slot of their own, so all of them are there.
    """
    parts = fitting(cases)
    if EVERY:
        return parts
    chosen: list[list[Transcript]] = []
    for part in sorted(parts, key=len, reverse=True)[:jobs]:
        few: list[Transcript] = []
        slots: set[Mark] = set()
        for case in random.Random(1).sample(part, len(part)):
            if len(slots | ends(case)) <= _SLOTS:
                slots |= ends(case)
                few.append(case)
        chosen.append(few)
    return chosen


# -- streaming -------------------------------------------------------------------------------------


_LISTING = threading.Lock()


def _listed(paths: tuple[str, ...], endings: tuple[str, ...]) -> list[listing.ListedFile]:
    with _LISTING:
        return listing.find(paths, endings)


class SlotFiles:
    """Slots as files that a source reads two at a time, one of each partition."""

    def __init__(self, script: Script, folder: Path) -> None:
        self.script, self.folder = script, folder
        for part in (CLOCK, EVENTS):
            (folder / part).mkdir(parents=True)
        self.rows = 0
        self._number = 0
        self._hidden: list[Path] = []

    @property
    def source(self) -> Parquet:
        return Parquet(path=str(self.folder), max_files_per_batch=2)

    def write(self, slot: Slot, events: pa.Table) -> None:
        """Adds a slot with its events, or a share of them, which nobody sees until `show`."""
        for part in (EVENTS, CLOCK):
            self._put(part, self.script.partition(slot, part, events))
        self._number += 1

    def _put(self, part: str, table: pa.Table) -> None:
        beside = self.folder / part / f".{self._number:04d}.parquet"
        pq.write_table(table, beside)
        os.utime(beside, (1 + self._number, 1 + self._number))  # the order in which they are read
        self._hidden.append(beside)
        self.rows += table.num_rows

    def show(self) -> None:
        """Puts all that was written in place, at once for whoever lists files in this process.

        The two files of a slot are to be read together: whoever saw only one of them would be a
        file ahead from then on.
        """
        with _LISTING:
            for path in self._hidden:
                path.rename(path.with_name(path.name[1:]))
        self._hidden.clear()


@dataclass(frozen=True)
class Streaming:
    """A job on Spark that reads a slot with each batch; it starts again where queries join."""

    name: str = "streaming"
    family: str = "streaming"
    by_step: bool = True
    marks: tuple[Any, ...] = (pytest.mark.spark,)

    def parts(self, cases: Sequence[Transcript]) -> list[list[Transcript]]:
        return affordable(cases, jobs=2)

    def play(self, cases: Sequence[Transcript], home: Path, spark: Any) -> Played:
        script, memory = Script(cases), Memory()
        files = SlotFiles(script, home / "in")
        after: dict[int, dict[str, pa.Table]] = {}
        handle: Any = None
        for stretch in _stretches(script.slots):
            for slot in stretch:
                files.write(slot, slot.events)
            files.show()
            job = ct.Job(
                name="transcripts",
                queries=script.queries,
                source=files.source,
                checkpoint=str(home / "state"),
                sinks=[memory],
                trigger="available-now",
                buckets=1,
                **script.settings,
            )
            handle = job.start(spark)
            handle.watch(
                lambda status: after.update(
                    {status.batch: {name: memory.results(name) for name in memory.queries}}
                )
            )
            handle.wait()
            for query in stretch[-1].joining:
                handle.add_query(query)
        assert sorted(after) == list(range(len(script.slots)))
        found = list(_new_rows([after[n] for n in sorted(after)]))
        return {case.name: script.by_step(case, found) for case in cases}


def _stretches(slots: Sequence[Slot]) -> list[list[Slot]]:
    """Slots up to where queries join, and those after."""
    parts: list[list[Slot]] = [[]]
    for slot in slots:
        parts[-1].append(slot)
        if slot.joining:
            parts.append([])
    return parts


def _new_rows(held: Sequence[Mapping[str, pa.Table]]) -> Iterator[dict[str, pa.Table]]:
    """What each batch added, from all that was held after it."""
    before: Mapping[str, pa.Table] = {}
    for tables in held:
        yield {
            name: table.slice(before[name].num_rows if name in before else 0)
            for name, table in tables.items()
        }
        before = tables


# -- trees -----------------------------------------------------------------------------------------


def shares(events: pa.Table, leaves: Sequence[str]) -> dict[str, pa.Table]:
    """Who reads which events: those of one instant stay together, and so in their order."""
    times = events.column(TIME).cast(pa.int64()).to_pylist()
    owners = pa.array([leaves[t // 1000 % len(leaves)] for t in times], pa.string())
    return {leaf: events.filter(pc.equal(owners, leaf)) for leaf in leaves}


def _last_words(script: Script, deliveries: Mapping[int, Delivery]) -> Played:
    """The last word on every window, all of them complete."""
    names = {name for delivery in deliveries.values() for name in delivery.results}
    found: dict[str, pa.Table] = {}
    for name in names:
        rows = final(deliveries, name)
        for row in rows:
            assert row.pop("complete") is True and row.pop("missing") is None, (name, row)
        found[name] = pa.Table.from_pylist(rows) if rows else pa.table({})
    return {case.name: [script.results(case, found)] for case in script.cases}


class Scripted(EventsInMemory):
    """Slots in memory, in two partitions: events, and the clock."""

    type: Literal["scripted"] = "scripted"
    _gate: Joining | None = PrivateAttr(default=None)

    @classmethod
    def gated(cls, gate: Joining, batches: list[pa.Table]) -> Scripted:
        """A source that gives as many of its batches as it may."""
        made = cls()
        made._batches, made._gate = batches, gate
        return made

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        open = self._gate is None or position["batch"] < self._gate.allowed
        return super().latest(position) if open else position

    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        return [
            Split(part, split.arrival, split.body)
            for split in super().splits(start, end, parallel)
            for part in self.partitions(end)
        ]

    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        table = self._batches[split.body["batch"]]
        ticks = pc.equal(table.column(OWNER), CLOCK)
        rows = table.filter(ticks if split.partition == CLOCK else pc.invert(ticks))
        yield Piece(rows if columns is None else rows.select(columns))

    def partitions(self, position: Position) -> list[str]:
        return [EVENTS, CLOCK]


@dataclass(frozen=True)
class Simulated:
    """A tree under a virtual clock, whose links and processes fail, by the name of the case."""

    name: str = "simulator"
    family: str = "tree"
    by_step: bool = False
    marks: tuple[Any, ...] = ()
    parts: ClassVar = staticmethod(one_by_one)
    tree: ClassVar[dict[str, str | None]] = {
        "root": None,
        "mid": "root",
        "a": "mid",
        "b": "mid",
        "c": "root",
    }
    leaves: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    faults: ClassVar[Faults] = Faults(delay=0.05, lost=0.05, twice=0.05, crash=0.05, cut=0.05)

    def play(self, cases: Sequence[Transcript], home: Path, spark: Any) -> Played:
        script = Script(cases)
        rules = {
            "late": script.settings.get("late", "drop"),
            "lateness": micros(script.settings.get("lateness", "0s")),
            "keep": micros(script.settings["keep"]) if "keep" in script.settings else None,
        }
        batches: dict[str, list[pa.Table]] = {leaf: [] for leaf in self.leaves}
        for slot in script.slots:
            for leaf, events in shares(slot.events, self.leaves).items():
                both = [script.partition(slot, part, events) for part in (EVENTS, CLOCK)]
                batches[leaf].append(pa.concat_tables(both))
        joining = Joining(script)
        world = World(
            charter(self.tree, script.queries, **rules),
            batches,
            seed=sum(cases[0].name.encode()),
            faults=self.faults,
            until=3,
            source=partial(Scripted.gated, joining),
        )
        joining.follow(world)
        world.run()
        assert world.done, f"not done after {world.now / 1e6:.0f} s"
        return _last_words(script, world.deliveries)


class Joining:
    """Lets a simulated tree read up to where queries join, has them join, and so on."""

    def __init__(self, script: Script) -> None:
        self._joins = [(n + 1, slot.joining) for n, slot in enumerate(script.slots) if slot.joining]
        self._end = len(script.slots)
        self._plan = 0

    @property
    def allowed(self) -> int:
        """How many slots may be read now."""
        return self._joins[0][0] if self._joins else self._end

    def follow(self, world: World) -> None:
        """Looks after it every tenth of a second."""
        if not self._joins:
            return
        world.after(100_000, partial(self.follow, world))
        members = {id: site.member for id, site in world.sites.items()}
        root = members["root"]
        if root is None or root.charter is None:
            return
        if not all(self._waits(members[leaf], root.charter.plan) for leaf in Simulated.leaves):
            return
        if root.charter.plan == self._plan:
            known = root.charter.plans[self._plan].queries.values()
            root.adopt(root.charter.with_queries([*known, *self._joins[0][1]]), world.now)
        else:
            self._plan = root.charter.plan
            del self._joins[0]

    def _waits(self, leaf: Member | None, plan: int) -> bool:
        """Whether a node has read all that it may, and goes by this version of the plan."""
        machine = None if leaf is None else leaf.machine
        if not isinstance(machine, Local) or machine.at is None:
            return False
        return bool(machine.at["batch"] == self.allowed and machine.flow.plan == plan)


@dataclass(frozen=True)
class TreeOfNodes:
    """Nodes as processes have them, with folders and links of their own, on threads of this one."""

    name: str
    marks: tuple[Any, ...]
    spark_nodes: tuple[str, ...] = ()
    family: str = "tree"
    by_step: bool = False

    def parts(self, cases: Sequence[Transcript]) -> list[list[Transcript]]:
        return affordable(cases, jobs=1) if self.spark_nodes else fitting(cases)

    def play(self, cases: Sequence[Transcript], home: Path, spark: Any) -> Played:
        script, memory = Script(cases), Memory()
        leaves = {leaf: SlotFiles(script, home / "in" / leaf) for leaf in Simulated.leaves}
        stretches = _stretches(script.slots)
        _hand_out(stretches[0], leaves)
        with running(self._job(script, leaves, home, memory)) as tree:
            for before, stretch in pairwise(stretches):
                tree.have_read(sum(files.rows for files in leaves.values()))
                tree.add(before[-1].joining)
                _hand_out(stretch, leaves)
            tree.wait(lambda: tree.frontier >= END - micros(script.settings.get("lateness", "0s")))
        found = {name: memory.results(name) for name in memory.queries}
        keys = {query.name: query.keys for query in script.all_queries}
        return _last_words(script, {0: Delivery("", 0, 0, found, keys)})

    def _job(
        self, script: Script, leaves: Mapping[str, SlotFiles], home: Path, sink: Memory
    ) -> JobModel:
        doors = {id: f"127.0.0.1:{free_port()}" for id in Simulated.tree if id not in leaves}
        nodes = [
            {
                "id": id,
                "engine": "spark" if id in self.spark_nodes else "embedded",
                **({"parent": parent} if parent else {}),
                **({"listen": doors[id]} if id in doors else {"source": leaves[id].source}),
            }
            for id, parent in Simulated.tree.items()
        ]
        return JobModel(
            name="transcripts",
            queries=script.queries,
            nodes=nodes,
            checkpoint=str(home / "state"),
            sinks=[sink],
            **script.settings,
        )


def _hand_out(slots: Sequence[Slot], leaves: Mapping[str, SlotFiles]) -> None:
    for slot in slots:
        for leaf, events in shares(slot.events, list(leaves)).items():
            leaves[leaf].write(slot, events)
    for files in leaves.values():
        files.show()


class RunningTree:
    """Nodes that run on threads, and how they stand."""

    def __init__(self, nodes: Mapping[str, NodeProcess]) -> None:
        self._nodes = nodes

    def have_read(self, events: int) -> None:
        """Waits until so many events were read."""
        self.wait(lambda: self._events() == events)

    def _events(self) -> int:
        """What the nodes have counted and not told yet, and what the root was told."""
        machines = [node.member.machine for node in self._nodes.values()]
        counts = [m.counts if isinstance(m, Root) else m.flow.counts for m in machines if m]
        return sum(count.get("events", 0) for count in counts)

    @property
    def frontier(self) -> int:
        """How far results have come, those too that wait for answers of nodes."""
        machine = self._nodes["root"].member.machine
        if not isinstance(machine, Root) or machine.last is None:
            return BEGIN.frontier
        asking = [one for one in (machine.ranking, machine.marking) if one is not None]
        held = [done for one in asking for done in one.held.values() if done < machine.last.reach]
        return min([machine.frontier, *held])

    def add(self, queries: Sequence[ct.Query]) -> None:
        """Adds queries, and waits until every node that reads goes by the new plan."""
        told = {"queries": [query.to_dict() for query in queries]}
        root, leaves = self._nodes["root"], [self._nodes[leaf].service for leaf in Simulated.leaves]
        answer(root.service, "add query", told)
        charter = root.member.charter
        assert charter is not None
        self.wait(lambda: all(answer(a, "status", {}).get("plan") == charter.plan for a in leaves))

    def wait(self, met: Callable[[], bool]) -> None:
        """Waits until something is so; a failure says which nodes are in trouble."""
        wait_for(met, said=lambda: {id: node.last_error for id, node in self._nodes.items()})


def _process(told: NodeConfig) -> NodeProcess:
    if told.engine == "embedded":
        return NodeProcess(told)
    from catchment.nodes.spark_process import SparkProcess

    # As a guest it leaves the Spark application running when it ends.
    return SparkProcess(replace(told, hosted=True))


@contextmanager
def running(job: JobModel) -> Iterator[RunningTree]:
    """Runs the nodes of a job until the end of the block."""
    nodes: dict[str, NodeProcess] = {}
    threads: list[threading.Thread] = []
    source_files.find = _listed
    try:
        for section in job.nodes:
            nodes[section.id] = _process(given(job, section.id))
        for node in nodes.values():
            node.start()
            threads.append(threading.Thread(target=node.run, daemon=True))
            threads[-1].start()
        yield RunningTree(nodes)
    finally:
        for node in nodes.values():
            node.stop()
        for thread in threads:
            thread.join(PATIENCE)
        source_files.find = listing.find


BATCH = (
    InBatch("batch-in-process", as_files, marks=()),
    InBatch("batch-path", as_files),
    InBatch("batch-arrow", as_arrow),
    InBatch("batch-dataframe", as_frame, sliced_by_spark),
)
EMBEDDED = TreeOfNodes("tree-embedded", (pytest.mark.slow,))
SPARK_TREE = TreeOfNodes("tree-spark", (pytest.mark.spark,), spark_nodes=("root", "a"))
RUNTIMES: tuple[Runtime, ...] = (
    InEngine(),
    *BATCH,
    Streaming(),
    EMBEDDED,
    SPARK_TREE,
    Simulated(),
)
