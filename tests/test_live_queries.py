"""Queries that come and go again and again, on every runtime, with late events in between."""

from __future__ import annotations

import random
import tempfile
from contextlib import suppress
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import catchment as ct
from catchment.errors import StateError
from catchment.model.frontier import Frontier
from catchment.model.window import READINGS, Counted, Gap, Periodic
from catchment.planner import observed
from catchment.planner.observed import losing
from catchment.planner.planned import Planned
from catchment.simulate import Faults, World
from catchment.spark import planning, state
from catchment.spark.queries import QueryFolder
from catchment.testing.compare import rows_of
from catchment.testing.oracle import STREAM, Row, Step, oracle
from catchment.testing.strategies import KINDS, PERIODIC, to_table
from catchment.tree import charter as tree_charter
from catchment.tree.local import Local
from faulty_trees import HOUR, ended
from live import NEVER, Draw, Life, judge, matching, stripped
from pipeline import WRITTEN, Pipeline
from schedules import seed_range, share
from small_tables import SECOND, examples, starts, table, values
from trees import batches, charter, check_marked, final

FAR = 1 << 60
"""Before this, nothing has happened."""
MIXES = {
    "all": (KINDS, KINDS),
    "periodic": (PERIODIC, (*PERIODIC, "session")),
    "first periodic": (("session", "between", "count_sliding"), (*PERIODIC, "session")),
}
"""The window types of the first queries and of those added: few meet in a group more often."""


class Changing:
    """An engine whose queries change between the steps."""

    def __init__(self, draw: Draw, queries: list[ct.Query], late: str) -> None:
        self.draw, self.dice = draw, draw.dice
        self.engine = ct.Engine(queries, late=late, rate=self._rate(), costs=draw.costs())
        self.lives = [Life(query) for query in queries]

    def change(self, number: int) -> None:
        """Adds a query, removes one, goes on from a snapshot, or plans for another rate."""
        engine = self.engine
        leaving = [n for n, limit in engine.assembler.limits.items() if limit.until is not None]
        there = [name for name in engine.queries if name not in leaving]
        what = self.dice.choice(["add", "add", "add", "remove", "restore", "rate", "rate"])
        if what == "restore":
            self.engine = ct.Engine.restore(engine.snapshot())
        elif what == "rate":
            engine.plan_for(self._rate())
        elif what == "add":
            query = self.draw.query(f"new{len(self.lives)}")
            self.lives.append(Life(query, number, engine.newest))
            engine.add(query)
        elif there:
            gone = self.dice.choice(there)
            life = next(life for life in self.lives if life.query.name == gone)
            life.removed, life.until = number, engine.newest
            life.drain = self.dice.random() < 0.5
            engine.remove(gone, drain=life.drain)

    def _rate(self) -> float:
        """Few events for each edge, or many: so that either way of slicing wins."""
        return 10.0 ** self.dice.randint(-3, 9)

    def step(self, number: int, step: Step) -> None:
        if step[0] == "push":
            self.engine.push(to_table(step[1]))
            return
        results = self.engine.close() if step[0] == "close" else self.engine.advance(step[1])
        for life in self.lives:
            if life.query.name in results:
                life.rows += [(number, row) for row in rows_of(results[life.query.name])]


@pytest.mark.parametrize("mix", MIXES)
@examples(1.5)
@given(seed=st.integers(0, 2**32))
@example(seed=21754630)  # repeats were dropped as since an earlier query's first event, not its own
def test_an_engine(mix: str, seed: int) -> None:
    first, added = MIXES[mix]
    draw = Draw(seed, added)
    queries = [draw.query(f"q{n}", first) for n in range(draw.dice.randint(1, 2))]
    changing = Changing(draw, queries, "drop")
    steps = draw.steps(draw.events(14), late=draw.dice.random() < 0.5)
    for number, step in enumerate(steps):
        for _ in range(draw.dice.choice([0, 0, 1, 2, 3])):
            changing.change(number)
        changing.step(number, step)
    for life in changing.lives:
        judge(life, changing.lives, steps)
        if life.drain and isinstance(life.query.window, Periodic | Gap):
            assert life.query.name not in changing.engine.queries


# Spark's pipeline.


class Batches:
    """The pipeline of a streaming job whose queries change between batches, crashes included."""

    def __init__(self, draw: Draw, queries: list[ct.Query], folder: str) -> None:
        self.draw, self.dice = draw, draw.dice
        rows, lateness = draw.events(14), self.dice.choice([0, 4]) * draw.unit
        pushes = [step for step in draw.steps(rows, late=True) if step[0] == "push"]
        self.batches = [step[1] for step in pushes]
        self.steps: list[Step] = []
        self.lives = [Life(query) for query in queries]
        frontier, newest = Frontier().knowing(["0"], 0), NEVER
        self.pipeline = Pipeline(
            folder,
            [[("0", to_table(batch))] for batch in self.batches],
            queries,
            seed=self.dice.randrange(1 << 32),
            crashes=0.05,
            buckets=self.dice.randint(1, 2),
            lateness=lateness,
        )
        self.completes: list[int] = []
        """For each batch, the step that gives its results."""
        for number, batch in enumerate(self.batches):
            for _ in range(self.dice.choice([0, 0, 1, 2, 3])):
                self.change(number, newest)
            fit = [row["ts"] for row in batch if row["ts"] >= frontier.value]
            newest = max([newest, *fit])
            frontier = frontier.after({"0": max(fit)} if fit else {}, 0, lateness)
            self.steps.append(("push", batch))
            self.completes.append(len(self.steps))
            self.steps.append(("advance", max(frontier.value, -FAR)))
        self.steps.append(("close",))

    def change(self, batch: int, newest: int) -> None:
        number = len(self.steps)
        there = [life for life in self.lives if life.removed is None and life.added < number]
        if self.dice.random() < 0.7 or not there:
            life = Life(self.draw.query(f"new{len(self.lives)}"), number, newest)
            self.lives.append(life)
            self.pipeline.at(batch, lambda p: QueryFolder(p.spec.home).add(life.query))
            return
        gone = self.dice.choice(there)
        gone.removed, gone.until, gone.drain = number, newest, self.dice.random() < 0.5
        name = gone.query.name

        def remove(pipeline: Pipeline) -> None:
            folder = QueryFolder(pipeline.spec.home)
            folder.drain(name) if gone.drain else folder.remove(name)

        self.pipeline.at(batch, remove)

    def run(self) -> None:
        self.pipeline.run()
        for (batch, _), tables in WRITTEN[self.pipeline.data].items():
            last = batch >= len(self.batches)
            number = len(self.steps) - 1 if last else self.completes[batch]
            for life in self.lives:
                if life.query.name in tables:
                    life.rows += [(number, row) for row in rows_of(tables[life.query.name])]


@pytest.mark.spark
@pytest.mark.parametrize("mix", MIXES)
@examples(0.4)
@given(seed=st.integers(0, 2**32))
def test_the_streaming_pipeline(mix: str, seed: int) -> None:
    first, added = MIXES[mix]
    draw = Draw(seed, added)
    queries = [draw.query(f"q{n}", first) for n in range(draw.dice.randint(1, 2))]
    nothing = Planned(ct.Plan(costs=draw.costs()), {}, {})
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(state, "_SHORTEST", 3_000),
        patch.object(planning, "NOTHING", nothing),
        patch.multiple(observed, EVENTS=1, SPAN=1, FACTOR=1.2),
    ):
        running = Batches(draw, queries, folder)
        running.run()
    for life in running.lives:
        judge(life, running.lives, running.steps, timed=False)


# Trees.

PARENTS: dict[str, str | None] = {"root": None, "m": "root", "a": "m", "b": "m", "c": "root"}


FAULTS = Faults(lost=0.3, crash=0.3, cut=0.3)


class Growing:
    """A simulated tree whose root is told to add and to remove queries, while things go wrong."""

    def __init__(self, draw: Draw, queries: list[ct.Query], seed: int) -> None:
        self.draw, self.dice = draw, draw.dice
        self.events = {id: draw.events(10) for id in "abc"}
        self.lives = {query.name: Life(query) for query in queries}
        tables = {
            id: [to_table(rows[at : at + 2]) for at in range(0, len(rows), 2)]
            for id, rows in self.events.items()
        }
        lateness = max(map(disorder, self.events.values()))
        nothing = Planned(ct.Plan(costs=draw.costs()), {}, {})
        with patch.object(tree_charter, "NOTHING", nothing):
            ruled = charter(PARENTS, queries, lateness=lateness)
        some = self.dice.choice([0, 0.1])
        faults = Faults(lost=some, twice=some, crash=some, cut=some)
        self.world = World(ruled, tables, seed, faults, until=4)
        apart = self.dice.choice([200_000, 20_000])  # a node may hear of several changes at once
        for at in range(self.dice.randint(1, 6)):
            self.world.after(at * apart + self.dice.randrange(200_000), self.change)

    def change(self) -> None:
        root = self.world.sites["root"].member
        if root is None or root.charter is None:
            return
        held = root.charter.plans[root.charter.plan]
        there = sorted(held.queries.keys() - set(held.leaving))
        new = Life(self.draw.query(f"new{len(self.lives)}"), 1)
        gone = self.dice.choice(there) if there else ""
        what = self.dice.choice(["add", "add", "remove", "drain", "rate", "rate"])
        changed = root.charter.with_queries([*held.queries.values(), new.query])
        if what == "remove" and gone:
            changed = root.charter.without_queries([gone])
        elif what == "drain" and gone:
            changed = root.charter.with_queries(held.queries.values(), {*held.leaving, gone})
        elif what == "rate":
            rate = self.dice.choice([1e-5, 1e-4, 1e9])
            handed = losing(held.plan, rate, held.leaving)
            changed = root.charter.handed_over(handed, rate) if handed else root.charter
        with suppress(StateError):  # its disk may be full
            root.adopt(changed, self.world.now)
            if changed.plans[changed.plan].queries.keys() > held.queries.keys():
                self.lives[new.query.name] = new
            elif gone and what != "rate":
                self.lives[gone].removed, self.lives[gone].drain = 1, what == "drain"

    def judge(self) -> None:
        rows = [row | {STREAM: id} for id, part in self.events.items() for row in part]
        times = sorted({row["ts"] for row in rows})
        for name, life in self.lives.items():
            query = life.query
            found = [stripped(query, row) for row in final(self.world.deliveries, name)]
            if life.added:  # a node that went over late lacks in windows of newer queries
                found = [row for row in found if row["complete"]]
            for row in found:
                assert row.pop("complete") is True and row.pop("missing") is None
            counted = isinstance(query.window, Counted) and life.added
            for since in [NEVER, *times] if counted else [NEVER]:
                left = oracle([query], [row for row in rows if row["ts"] > since])[name]
                left = [stripped(query, row) for row in left]
                places = [matching(row, left) for row in found]
                if None not in places and len(set(places)) == len(places):
                    break
            else:
                raise AssertionError(f"wrong: {query} gave {found}, not among {left}")
            rest = [row for place, row in enumerate(left) if place not in places]
            if not life.added and life.removed is None:
                assert not rest, f"missed: {rest} of {query}"
            if not life.added and life.drain and isinstance(query.window, Periodic | Gap):
                last = max((row["window_start"] for row in found), default=NEVER)
                missed = [row for row in rest if row["window_start"] <= last]
                assert not missed, f"missed: {missed} of {query}, which left by {last}"
                root = self.world.sites["root"].member
                assert root is not None and root.charter is not None
                held = root.charter.plans[root.charter.plan]
                # One whose windows end with the last step of all is about to leave.
                assert name not in held.queries or name in held.leaving


def disorder(rows: list[Row]) -> int:
    """How far behind the newest event before it one comes, at most."""
    times = [row["ts"] for row in rows]
    return max(max(times[: n + 1]) - time for n, time in enumerate(times))


@pytest.mark.parametrize("mix", MIXES)
@examples(0.4)
@example(seed=71109)  # the root closed twice, and windows that were open became results
@example(seed=114)  # a node lacks in windows of a newer query, and they say so
@example(seed=154)  # a query whose windows end with the last step of all is about to leave
@example(seed=3904217)  # events that waited had the columns of two plans in different orders
@given(seed=st.integers(0, 2**32))
def test_a_tree(mix: str, seed: int) -> None:
    first, added = MIXES[mix]
    # What is put together of the i-th windows of streams depends on which was the first for whom.
    readings = [reading for reading in READINGS if reading != "ordered"]
    draw = Draw(seed, added, readings, repeats=False, unit=SECOND)
    queries = [draw.query(f"q{n}", first) for n in range(draw.dice.randint(1, 2))]
    growing = Growing(draw, queries, seed)
    growing.world.run()
    assert growing.world.done
    growing.judge()


@pytest.mark.parametrize("seed", [68, 245, *seed_range(share(200))])
def test_long_windows_join_while_messages_are_lost(seed: int) -> None:
    """Nodes hear of several changes at once, and the root knows little of what they read before."""
    dice = random.Random(seed)
    parents = PARENTS | dice.choice([{}, {"c": "m"}, {"a": "root", "b": "root"}])
    events = {id: batches(seed + n, 150, 30, 10) for n, id in enumerate("abc")}
    first = ct.Query("first", ct.sum("v"), window=ct.tumbling(f"{dice.randint(2, 4)}s"))
    second = ct.Query("second", ct.sum("v"), window=ct.sliding(f"{dice.randint(5, 9)}s", "1s"))
    third = ct.Query("third", ct.max("v"), by="k", window=ct.sliding("4s", "2s"))
    world = World(charter(parents, [first]), events, seed, FAULTS, until=5)

    def change(queries: list[ct.Query]) -> None:
        root = world.sites["root"].member
        if root is not None and root.charter is not None and not world.done:
            with suppress(StateError):  # its disk may be full
                root.adopt(root.charter.with_queries(queries), world.now)

    at = 0
    for queries in ([first, second], [second, third], [second]):
        at += dice.randrange(1_200_000)
        world.after(at, lambda queries=queries: change(queries))
    world.run()
    assert world.done
    rows = [row for tables in events.values() for table in tables for row in table.to_pylist()]
    for query in (first, second, third):
        wanted = oracle([query], rows)[query.name]
        for row in final(world.deliveries, query.name):
            if row.pop("complete"):
                assert row.pop("missing") is None
                assert row in wanted, (seed, query.name, row)


@pytest.mark.parametrize("seed", [21, 36, 38, *seed_range(share(400))])
def test_queries_come_and_go_while_nodes_are_given_up(seed: int) -> None:
    """Results do not wait for nodes that are silent: what is said to be complete is exact."""
    dice = random.Random(seed)
    parents = PARENTS | dice.choice([{}, {"c": "m"}, {"a": "root", "b": "root"}])
    events = {id: batches(seed + n, 150, dice.choice([10, 30]), 10) for n, id in enumerate("abc")}
    windows = [
        ct.tumbling(f"{dice.randint(1, 4)}s"),
        ct.tumbling("2s", reading="local"),
        ct.sliding(f"{dice.randint(3, 9)}s", "1s"),
        ct.cumulate("8s", "2s"),
        ct.session(dice.choice(["200ms", "700ms"])),
    ]
    functions = [ct.sum("v"), ct.max("v"), ct.median("v"), ct.count()]
    queries = [
        ct.Query(
            f"q{n}",
            dice.choice(functions),
            by=dice.choice([(), ("k",)]),
            where=dice.choice([None, None, "v > 20"]),
            window=dice.choice(windows),
        )
        for n in range(6)
    ]
    timeout = dice.choice([3, 6, 10, 15]) * 10**5
    late = dice.choice([{"late": "drop"}, {"late": "update", "keep": HOUR}])
    some = dice.choice([0, 0.1, 0.3])
    trouble = Faults(lost=some, crash=0.3, cut=some, down=dice.choice([0.2, 2.0, 4.0]))
    ruled = charter(parents, queries[:2], timeout=timeout, **late)
    world = World(ruled, events, seed, trouble, until=5)
    unused = queries[2:]

    def change() -> None:
        root = world.sites["root"].member
        if root is None or root.charter is None or world.done:
            return
        there = [*root.charter.plans[root.charter.plan].queries.values()]
        if unused and dice.random() < 0.7:
            there.append(unused.pop())
        elif len(there) > 1:
            there.remove(dice.choice(there))
        with suppress(StateError):  # its disk may be full
            root.adopt(root.charter.with_queries(there), world.now)

    at = 0
    for _ in range(dice.randint(1, 6)):
        at += dice.randrange(dice.choice([40_000, 1_200_000]))
        world.after(at, change)
    ended(world, seed)
    check_marked(world.deliveries, events, queries)


# By hand.


@pytest.mark.parametrize(("above", "crash"), [("root", 1_500_000), ("m", 3_000_000)])
@pytest.mark.parametrize(
    "new",
    [
        ct.Query("new", ct.sum("v"), window=ct.sliding("8s", "1s")),
        ct.Query("new", ct.max("v"), by="k", window=ct.tumbling("1s")),
        ct.Query("new", ct.count(), by="k", window=ct.session("700ms")),
    ],
    ids=lambda query: query.window.kind,
)
def test_a_query_joins_while_nobody_waits_for_a_node(new: ct.Query, above: str, crash: int) -> None:
    """The node has read ahead of all others, and nobody knows of it when the query joins.

                   0         1         2         3
    a              xxx.....................................  and so on
    c              x   xxxxxxxxxxxxxxxxxxxxxxxxx    x x x x  when it is back
                   |   in a slice that has not ended
                   its first message
    """
    parents: dict[str, str | None] = {"root": None, "m": "root", "a": "m", "c": above}
    first = ct.Query("first", ct.sum("v"), window=ct.tumbling("3s"))

    def at(key: str, *times: float) -> pa.Table:
        ts = [round(time * SECOND) for time in times]
        return pa.table({"ts": ts, "k": [key] * len(ts), "v": [1] * len(ts)}).cast(
            pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("v", pa.int64())])
        )

    ahead = at("c", *(n / 10 for n in range(1, 27)))
    nothing = [at("c")] * 80
    slow = [*(n / 200 for n in range(400)), *(n / 10 for n in range(20, 80))]
    events = {
        "a": [at("a", time) for time in slow],
        "c": [at("c", 0), ahead, *nothing, *(at("c", n / 10) for n in range(30, 80))],
    }
    world = World(charter(parents, [first], timeout=1_500_000), events, until=0)
    root = world.sites["root"]

    def silence() -> None:
        leaf = world.sites["c"].member
        assert leaf is not None and isinstance(leaf.machine, Local)
        assert leaf.machine.flow.merger.newest == 2_600_000, "it has not read ahead yet"
        world.crash("c", 6.5)

    def join() -> None:
        assert root.member is not None and root.member.charter is not None
        root.member.adopt(root.member.charter.with_queries([first, new]), world.now)

    world.after(crash, silence)
    world.after(crash + 1_700_000, join)
    world.run()
    assert world.done
    rows = [row for tables in events.values() for table in tables for row in table.to_pylist()]
    marked = set[bool]()
    for query in (first, new):
        wanted = oracle([query], rows)[query.name]
        for row in final(world.deliveries, query.name, once=False):
            marked.add(row.pop("complete"))
            missing = row.pop("missing")
            assert missing is not None or row in wanted, row
    assert marked == {True, False}


def test_windows_of_a_type_added_twice_over_begin_with_the_newest_event() -> None:
    """Slices are kept from when a group first has periodic windows, not from when it began.

                 30   33   37   40   42  44
    session       .    .    x    .    .       is all there is
    add tumbling                |             37 is in no slice that is kept
    add sliding                 |             [30, 44) would lack it
    events             8             17
    """
    engine = ct.Engine([ct.Query("old", ct.sum("v"), window=ct.session("16us"))])
    engine.push(table([37], v=[1]))
    engine.add(ct.Query("five", ct.sum("v"), window=ct.tumbling("5us")))
    engine.add(ct.Query("new", ct.sum("v"), window=ct.sliding("14us", "10us")))
    engine.push(table([33, 42], v=[8, 17]))
    found = engine.close()
    assert starts(found, "new") == [40] and values(found, "new") == [(17,)]
    assert values(found, "old") == [(26,)]
