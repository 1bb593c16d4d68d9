"""Everything that grows has a limit; what happens there is what docs/reference/limits.md says."""

from __future__ import annotations

import os
import re
import tempfile
import time
import timeit
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import catchment as ct
from catchment.counting import orders
from catchment.durable.folder import Folder
from catchment.engine.assembler import Assembler
from catchment.engine.merger import Merger
from catchment.engine.partials import Partials
from catchment.engine.rows import Rows, no_rows
from catchment.engine.shapes.base import UnmergedRows
from catchment.errors import SourceError, StateError
from catchment.model.capacity import Capacity, machine_memory
from catchment.model.frontier import Frontier
from catchment.model.window import Window
from catchment.nodes.status import limits, status
from catchment.simulate import World
from catchment.simulate.memory import EventsInMemory, MemoryDisk
from catchment.sinks.base import Delivery
from catchment.sinks.memory import Memory
from catchment.sources import journal
from catchment.sources.aside import Aside, aside
from catchment.sources.journal import Journal, TakenFile
from catchment.sources.kafka import Kafka
from catchment.sources.spool import Spool
from catchment.transport import Server
from catchment.tree import member as members
from catchment.tree.charter import PLANS, Charter
from catchment.tree.local import PARTITIONS
from catchment.tree.member import Member
from catchment.tree.root import Root
from small_tables import table
from trees import GRANTED, QUERIES, SCHEMA, batches, charter

ROOT = Path(__file__).resolve().parent.parent
ONE: dict[str, str | None] = {"root": None, "a": "root"}


def table_of_limits() -> list[list[str]]:
    """The rows of the table in docs/reference/limits.md."""
    text = (ROOT / "docs" / "reference" / "limits.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_every_row_of_the_table_has_its_test() -> None:
    rows = table_of_limits()
    assert len(rows) > 20
    for *_, told in rows:
        (name,) = re.findall(r"`(\w+\.py::\w+)`", told)
        file, test = name.split("::")
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), name


class Silent:
    """A node that is never asked."""

    hello = message = beat = ask = None


def names(found: list[Capacity]) -> set[str]:
    return {one.name for one in found}


def test_what_status_shows_is_in_the_table() -> None:
    told = {row[0] for row in table_of_limits()}
    made = charter(ONE, count="monitor")
    given = {"a": batches(1, 50)}
    world = World(made, given, until=0)
    world.run()
    shown: set[str] = names(Memory().capacities())
    for site in world.sites.values():
        assert site.member is not None
        shown |= names(limits(site.member))
        assert {one.name for one in status(site.member, set()).limits} <= told
    shown |= names(Server("127.0.0.1:1", Silent()).capacities())
    assert shown >= {"inbox", "outbox", "state of windows", "rows set aside, in memory"}
    assert shown <= told


# -- the engine -----------------------------------------------------------------------------------


def keyed(keys: int, first: int = 0) -> pa.Table:
    values = list(range(first, first + keys))
    return pa.table({"ts": pa.array([1] * keys, pa.timestamp("us", "UTC")), "k": values})


def test_state_is_refused_at_its_limit() -> None:
    query = ct.Query("n", ct.count(), by="k", window=ct.tumbling("1h"))
    engine = ct.Engine([query], state_bytes=1 << 20)
    engine.push(keyed(10_000))
    with pytest.raises(StateError) as caught:
        engine.push(keyed(100_000))
    assert "the state takes more memory than it may (given: " in str(caught.value)
    assert "allow more with state_bytes" in str(caught.value)
    (state,) = (one for one in engine.capacities() if one.name == "state of windows")
    assert state.used > state.limit == 1 << 20
    assert ct.Engine([query]).capacities()[1].limit == machine_memory()


@pytest.mark.parametrize(
    "query",
    [
        ct.Query("q", ct.median("v"), window=ct.tumbling("1h")),
        ct.Query("q", ct.count(), window=ct.count_tumbling(100)),
        ct.Query("q", ct.count(), window=ct.cut("v < 0")),
        ct.Query("q", ct.count(), window=ct.cut("v < 0", reading="local")),
        ct.Query("q", ct.count(), window=ct.tumbling("1h"), distinct_on="v", distinct_within="1h"),
    ],
    ids=["sorted values", "count", "marks", "marks of a stream", "duplicates"],
)
def test_state_of_every_kind_is_bounded(query: ct.Query) -> None:
    """Whatever is kept counts: slices, events that wait, and times of events seen before."""
    bound = ct.Engine([query], schema=valued(0).schema, state_bytes=1 << 20).bound
    slicer, merger, assembler = bound.slicer(), bound.merger(), bound.assembler()

    def feed(part: Merger | Assembler) -> None:
        for number in range(60):
            for sliced in slicer.slice(valued(number)):
                part.add(sliced)

    for part in (merger, assembler):
        with pytest.raises(StateError, match="the state takes more memory than it may"):
            feed(part)


@pytest.mark.parametrize("window", [ct.tumbling("1h"), ct.session("1h")], ids=["time", "session"])
def test_what_is_held_is_merged_before_it_is_refused(window: Window) -> None:
    """Sixty sketches of a few kilobytes each are one."""
    query = ct.Query("q", ct.approx_count_distinct("v").alias("n"), window=window)
    bound = ct.Engine([query], schema=valued(0).schema, state_bytes=64 << 10).bound
    slicer, merger, assembler = bound.slicer(), bound.merger(), bound.assembler()
    for number in range(60):
        for sliced in slicer.slice(valued(number).slice(0, 3000)):
            merger.add(sliced)
            assembler.add(sliced)
    assert merger.held_bytes < 60 * 4136 / 2  # it was not refused, and half of them are one
    (found,) = assembler.close()["q"]["n"].to_pylist()
    assert abs(found - 180_000) < 0.05 * 180_000


def test_no_more_piles_up_than_is_merged_soon() -> None:
    """A pile is merged by its bytes, which must be the more the more was merged before, and where
    its tables are many."""
    pile = UnmergedRows()
    row = no_rows({})
    for _ in range(64):
        pile.add(row)
        assert not pile.untidy(0)
    pile.add(row)
    assert pile.untidy(0)
    assert not len(pile.emptied({})) and not pile.untidy(0)
    many = np.zeros(1 << 20, np.int64)  # forty megabytes a table
    pile.add(Rows(many, many, many, many, many))
    assert pile.untidy(0) and pile.untidy(10 << 20) and not pile.untidy(30 << 20)


def valued(number: int) -> pa.Table:
    """Ten thousand events of different values."""
    every = range(number * 10_000, (number + 1) * 10_000)
    return table(list(every), v=pa.array([float(n) for n in every]))


def test_a_query_that_goes_takes_no_room_with_it() -> None:
    """How much has come is not reckoned by what is there."""
    queries = [
        ct.Query(name, ct.count(), by="k", window=ct.tumbling("1h"), where=f"v >= {least}")
        for name, least in (("a", 0), ("b", -1))
    ]
    engine = ct.Engine(queries, state_bytes=8 << 20)
    engine.push(keyed_by_number(0, 20_000))
    engine.remove("a", drain=False)
    with pytest.raises(StateError):
        engine.push(keyed_by_number(20_000, 1_000_000))


def keyed_by_number(first: int, count: int) -> pa.Table:
    every = range(first, first + count)
    return table([1] * count, k=pa.array(every), v=pa.array([1.0] * count))


def test_state_of_windows_that_ended_is_let_go() -> None:
    query = ct.Query("n", ct.count(), by="k", window=ct.tumbling("10us"))
    engine = ct.Engine([query], state_bytes=40 << 20)
    for part in range(1, 11):  # all of them together would be too many
        events = keyed(100_000, part * 100_000)
        times = pa.array([part * 10] * 100_000, pa.timestamp("us", "UTC"))
        engine.push(events.set_column(0, "ts", times))
        engine.advance(part * 10 + 10)
    assert engine.stats.results == 1_000_000


# -- sources --------------------------------------------------------------------------------------


def taken(number: int) -> TakenFile:
    return TakenFile(f"{number}", "p", 1, 1, 1, [1], number, 1)


def test_entries_of_the_journal_are_folded(tmp_path: Path) -> None:
    made = Journal(Folder(str(tmp_path)))
    for number in range(1, 3 * journal.FOLD):
        made.add([taken(number)])
        made.commit(number)
        assert len(list(tmp_path.iterdir())) <= journal.FOLD + 2
    assert len(Journal(Folder(str(tmp_path))).seen) == 3 * journal.FOLD - 1


def test_a_bad_row_keeps_its_first_megabyte() -> None:
    table = aside([Aside("a", 1, "why", bytes(3 << 20))])
    assert table is not None and len(table["body"][0].as_py()) == 1 << 20


def test_a_full_spool_takes_no_more(tmp_path: Path) -> None:
    mqtt_client = pytest.importorskip("catchment.sources.mqtt_client")
    spool = Spool(tmp_path / "spool", 200)
    receiver = mqtt_client.Receiver(None, "n", spool, 1000)
    acked = []
    client = SimpleNamespace(ack=lambda mid, _: acked.append(mid))
    for number in range(100):
        message = SimpleNamespace(_topic=b"t", payload=bytes(50), qos=1, mid=number)
        receiver._arrived(client, None, message)
        receiver._make_safe(client)
    assert spool.size() <= 1100 and len(acked) < 30
    receiver._arrived(client, None, SimpleNamespace(qos=0))
    assert receiver.dropped == 1
    spool.close()


def test_places_where_messages_were_gone_are_summed_up(tmp_path: Path) -> None:
    source = Kafka(servers="h:1", topic="t", schema={"v": "int"}, on_lost="skip")
    source.open(Folder(str(tmp_path)))
    for number in range(300):
        source._skipped("t/0", number * 10, 2)
        source._skipped("t/0", number * 10, 3)  # planned again, when more were gone
    assert [(one.origin, one.rows) for one in source.never_read()] == [("t/0", 900)]
    assert len(source._gone["t/0"]) <= 101
    again = Kafka(servers="h:1", topic="t", schema={"v": "int"}, on_lost="skip")
    again.open(Folder(str(tmp_path)))
    assert again.never_read() == source.never_read()


# -- sinks ----------------------------------------------------------------------------------------


def test_results_in_memory_are_dropped_oldest_first() -> None:
    memory = Memory(limit=10)
    for batch in range(9):
        rows = pa.table({"window_start": [batch] * 3, "window_end": [batch] * 3})
        memory.write(Delivery("j", batch, 0, {"q": rows}, {"q": ()}))
    assert memory.capacities()[0].used <= 10 and memory.dropped == 18
    assert set(memory.results("q")["window_start"].to_pylist()) == {6, 7, 8}


# -- trees ----------------------------------------------------------------------------------------


def local(quota: int = 1 << 30, events: int = 400, **settings: Any) -> Member:
    given = batches(1, events)
    member = Member(
        "a", MemoryDisk(), 5, parent="root", source=lambda: EventsInMemory.of(given), quota=quota
    )
    return granted(member, charter(ONE, **settings))


def granted(member: Member, made: Charter) -> Member:
    """The node as it is once its parent has taken it in."""
    member.adopt(made.with_schema(SCHEMA), 5)
    member.heard(GRANTED, 5)
    return member


def test_a_full_outbox_holds_the_source_back() -> None:
    member = local(quota=2000)
    while member.step(5):
        pass
    (outbox,) = (one for one in limits(member) if one.name == "outbox")
    assert outbox.share > 1 and not member.machine.ended  # type: ignore[union-attr]
    member.quota = 1 << 30
    while member.step(5):
        pass
    assert member.machine.ended  # type: ignore[union-attr]


def test_a_full_inbox_acknowledges_nothing() -> None:
    made = charter(ONE).with_schema(SCHEMA)
    root = Member("root", MemoryDisk(), 5, deliver=lambda _: None, charter=made, quota=0)
    sender = Member(
        "a", MemoryDisk(), 5, parent="root", source=lambda: EventsInMemory.of(batches(1, 400))
    )
    sender.heard(root.on_hello(sender.hello(), 5), 5)
    while sender.step(5):
        pass
    replies = [root.on_message("a", body, 5) for body in sender.outgoing(5)]
    assert replies[0].ack == 1, "one is taken, so that there is something to work on"
    assert {reply.ack for reply in replies[1:]} == {1} and replies[-1].again


def test_few_messages_are_on_their_way() -> None:
    member = local(events=800)
    while member.step(5):
        pass
    flow = member.machine.flow  # type: ignore[union-attr]
    sent = list(member.outgoing(5))
    assert len(sent) == members.WINDOW < flow.outbox.sent
    assert not list(member.outgoing(5))
    (flying,) = (one for one in limits(member) if one.name == "messages on their way")
    assert flying.used == len(sent) and flying.limit == members.WINDOW


def test_old_versions_of_the_plan_leave_the_charter() -> None:
    made = charter(ONE)
    for number in range(PLANS + 20):
        query = ct.Query(f"q{number}", ct.count(), window=ct.tumbling("1s"))
        made = made.with_queries([QUERIES[0], query])
    assert len(made.plans) == PLANS and made.plan == PLANS + 20


def test_the_log_of_the_root_gives_way_to_a_snapshot() -> None:
    made = charter(ONE).with_schema(SCHEMA)
    root = Member("root", MemoryDisk(), 5, deliver=lambda _: None, charter=made)
    machine = root.machine
    assert isinstance(machine, Root)
    machine._journal.grew(machine.capacities()[0].limit)
    assert machine._journal.due
    machine.snapshot()
    assert machine.capacities()[0].used == 0 and root.disk.get("snapshot") is not None


def test_keys_that_are_asked_about_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "LANES", 2)
    query = ct.Query("tens", ct.sum("v"), by="k", window=ct.count_tumbling(5))
    member = Member(
        "a", MemoryDisk(), 5, parent="root", source=lambda: EventsInMemory.of(batches(1, 100))
    )
    granted(member, charter(ONE, [query], count="monitor"))
    with pytest.raises(StateError, match=r"more keys than can be asked about \(given: 2\)"):
        any(not member.step(5) for _ in range(1000))


def test_a_node_that_keeps_many_events_reads_no_further() -> None:
    query = ct.Query("many", ct.sum("v"), window=ct.count_tumbling(100))
    rows = [{"ts": n, "k": "a", "v": 1, "m": None} for n in range(30_000)]
    tables = [pa.Table.from_pylist(rows[n : n + 500], SCHEMA) for n in range(0, 30_000, 500)]
    member = Member("a", MemoryDisk(), 5, parent="root", source=lambda: EventsInMemory.of(tables))
    granted(member, charter(ONE, [query], count="monitor"))
    for _ in range(200):
        member.step(5)
    machine: Any = member.machine
    kept = machine.flow.counting.leaf
    assert machine.flow.crowded and not machine.ended
    fullest = kept.capacities()[0]
    assert fullest.limit < fullest.used < fullest.limit + 2000


def test_a_node_reads_so_many_partitions() -> None:
    table = batches(1, 1)[0]

    class Many(EventsInMemory):
        def splits(self, start: Any, end: Any, parallel: int) -> Any:
            from catchment.sources.base import Split

            return [Split(f"p{n}", 0, {}) for n in range(PARTITIONS + 1)]

        def read(self, split: Any, columns: Any, where: Any) -> Any:
            return iter(())

    member = Member("a", MemoryDisk(), 5, parent="root", source=lambda: Many.of([table]))
    granted(member, charter(ONE))
    with pytest.raises(SourceError, match="a node cannot read so many streams"):
        member.step(5)


# -- on Spark -------------------------------------------------------------------------------------

pyspark = pytest.importorskip("pyspark")


def folder_spec(tmp_path: Path) -> Any:
    return SimpleNamespace(home=Folder(str(tmp_path)), job="j")


def test_progress_and_plans_of_old_batches_are_removed(tmp_path: Path) -> None:
    from catchment.spark.planning import KEPT, PLANS_KEPT, Progress
    from catchment.spark.records import JobCounts

    spec = folder_spec(tmp_path)
    for batch in range(KEPT + PLANS_KEPT + 50):
        spec.home.sub("plans").write(f"{batch:09d}", b"")
        Progress(batch, Frontier(), JobCounts(), False, batch, 0).save(spec)
    assert len(list((tmp_path / "progress").iterdir())) == KEPT
    assert len(list((tmp_path / "plans").iterdir())) == PLANS_KEPT
    assert Progress.load(spec, batch).batch == batch


def test_old_charters_are_removed(tmp_path: Path) -> None:
    from catchment.spark.stepping import CHARTERS, newest_charter, write_charter

    home, made = Folder(str(tmp_path)), charter(ONE)
    for _ in range(CHARTERS + 20):
        made = made.with_schema(SCHEMA)
        write_charter(home, made)
    assert len(list((tmp_path / "charters").iterdir())) == CHARTERS
    assert newest_charter(home.uri) == made.version


class Values:
    """A map of Spark's state store."""

    def __init__(self) -> None:
        self.held: dict[Any, Any] = {}

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802
        self.held[key] = value

    def getValue(self, key: Any) -> Any:  # noqa: N802
        return self.held.get(key)

    def removeKey(self, key: Any) -> None:  # noqa: N802
        del self.held[key]


class FakeLog:
    """The state store's side of a bucket, in memory."""

    def __init__(self) -> None:
        self.entries, self.base = Values(), Values()
        self.said: Any = None
        self.head = SimpleNamespace(update=self._update)

    def _update(self, value: Any) -> None:
        self.said = value

    def read_head(self) -> Any:
        from catchment.model.records import decode
        from catchment.spark.records import LogHead

        return None if self.said is None else decode(LogHead, self.said[0].encode(), "the head")


def keeper(log: FakeLog, bucket: int = 0) -> Any:
    from catchment.spark.state import BucketState

    query = ct.Query("n", ct.count(), by="k", window=ct.tumbling("1h"))
    spec = SimpleNamespace(
        job="limits",
        bound=lambda _: ct.Engine([query], schema=keyed(1).schema).bound,
        asked=lambda _: {},
    )
    return BucketState(cast(Any, spec), bucket, cast(Any, log))


def move(partials: Partials, plan: int = 0) -> Any:
    from catchment.spark.records import StepNote
    from catchment.spark.state import BatchStep

    return BatchStep(partials, StepNote(plan, 0, 0, 0, False))


def test_the_log_of_a_bucket_gives_way_to_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    from catchment.spark import state

    monkeypatch.setattr(state, "_SHORTEST", 4000)
    log = FakeLog()
    snapshots = 0
    for number in range(60):
        one = keeper(log)
        held = one.load(0)
        bound = held.assembler.bound
        for sliced in bound.slicer().slice(keyed(10, number * 10)):
            held.assembler.add(sliced)
        one.save(held, move(Partials()), 0)
        assert one.capacity().used <= one.capacity().limit
        snapshots += not log.entries.held
        assert len(log.entries.held) < 60
    assert snapshots and log.base.held


def test_a_log_that_reaches_back_many_plans_gives_way_too() -> None:
    from catchment.spark.planning import PLANS_BEHIND

    log = FakeLog()
    for plan in range(3 * PLANS_BEHIND):
        one = keeper(log)
        held = one.load(plan)
        held.plan = plan
        one.save(held, move(Partials(), plan), plan)
        assert plan - log.read_head().plan <= PLANS_BEHIND


def test_a_worker_keeps_few_engines() -> None:
    from catchment.spark import state

    for bucket in range(state.ENGINES + 10):
        one = keeper(FakeLog(), bucket)
        one.save(one.load(0), move(Partials()), 0)
    assert len(state._HELD) <= state.ENGINES
    state._HELD.clear()


def test_sparks_log_rolls_over() -> None:
    from catchment.spark import session

    text = Path(session.__file__).with_name("log4j2.properties").read_text()
    assert "SizeBasedTriggeringPolicy" in text and "size.size = 16MB" in text
    assert "strategy.max = 1" in text


def test_sparks_logs_stay_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from catchment.spark import session

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name, hours in (("old", 25), ("old.log", 25), ("new", 23)):
        path = tmp_path / f"catchment-spark-{name}.log"
        path.write_text("x")
        os.utime(path, (time.time() - hours * 3600,) * 2)
    (tmp_path / "other.log").write_text("x")
    session.remove_old_logs()
    assert sorted(os.listdir(tmp_path)) == ["catchment-spark-new.log", "other.log"]


def test_what_is_looked_at_costs_little() -> None:
    """Status is asked for often: to weigh a state of many keys takes no time to speak of."""
    query = ct.Query("n", ct.count(), by="k", window=ct.tumbling("1h"))
    engine = ct.Engine([query])
    engine.push(keyed(300_000))
    assert min(timeit.repeat(engine.capacities, number=1, repeat=10)) < 0.5
