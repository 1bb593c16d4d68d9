"""Count windows by key over nodes; and the bytes that machines are saved as and talk in."""

from __future__ import annotations

import random
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.counting import distributed, wire
from catchment.counting.distributed import distributed_groups
from catchment.counting.edges import RankEdges
from catchment.counting.leaf_by_key import LeafByKey
from catchment.counting.message import Down, Up
from catchment.counting.orders import Key, Lane, Order, OrdersAfter
from catchment.counting.place import Place
from catchment.counting.root_by_key import RootByKey
from catchment.counting.scheme import SCHEMES
from catchment.engine.bound import BoundPlan
from catchment.engine.results import Results
from catchment.engine.slicer import rank
from catchment.errors import DataError
from catchment.model.rules import EventRules
from catchment.operators.ragged import Ints
from catchment.planner.edges import EARLIEST, LATEST
from catchment.planner.planned import NOTHING
from catchment.windows.count import count_sliding

QUERIES = [
    ct.Query("sliding", ct.sum("id"), ct.median("v"), by="k", window=ct.count_sliding(40, 25)),
    ct.Query(
        "tumbling",
        ct.count(),
        ct.min("id"),
        ct.count_distinct("v"),  # large, as the median is, and cut about as often: so one group
        by="k",
        window=ct.count_tumbling(35),
    ),
]
SHARES = {"a": 0.5, "b": 0.3, "c": 0.15, "d": 0.05}
"""Keys are not equally frequent, and the last is on a single node."""


class Tree:
    """Nodes and a root that talk until nothing is left to say; words of the root may get lost."""

    def __init__(self, seed: int, scheme: str, lost: float = 0.0) -> None:
        self.dice, self.lost, self.scheme = random.Random(seed), lost, scheme
        planned = NOTHING.next(0, {query.name: query for query in QUERIES})
        self.events = [self._events(node, seed) for node in range(3)]
        schema = self.events[0].schema
        self.asked = distributed_groups(planned, schema, scheme)
        self.bound = BoundPlan(planned.plan, EventRules("ts"), schema, apart=self.asked)
        assert len(self.asked) == 1, "both queries are of one group"
        self.names = {name: id for id, name in self.asked.items()}
        self.leaves = [self._leaf(node) for node in range(3)]
        self.root = RootByKey(scheme, self.bound, self.asked)
        self.root.follow([0, 1, 2])
        self.assembler = self.bound.assembler()

    @staticmethod
    def _events(node: int, seed: int) -> pa.Table:
        numbers = np.random.default_rng([seed, node])
        keys = numbers.choice(list(SHARES), 400, p=list(SHARES.values()))
        keys[keys == "d"] = "d" if node == 1 else "a"
        times = np.sort(numbers.integers(0, 1000, 400)) // 7 * 7
        ids = np.arange(400) * 10 + node
        return pa.table(
            {
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "k": keys.tolist(),
                "id": ids,
                "v": ids * 37 % 101,
            }
        )

    def _leaf(self, node: int) -> LeafByKey:
        leaf = LeafByKey(node, self.bound)
        leaf.switch(self.bound, self.names)
        return leaf

    def run(self) -> Results:
        at = [0, 0, 0]
        mergers = [self.bound.merger(node) for node in range(3)]
        slicers = [self.bound.slicer(encoder=merger.encoder) for merger in mergers]
        for frontier in [*range(100, 1100, 100), LATEST]:
            for node, events in enumerate(self.events):
                times = events["ts"].cast(pa.int64()).to_numpy()
                end = int(np.searchsorted(times, min(frontier, 2000)))
                part = events.slice(at[node], end - at[node])
                for sliced in slicers[node].slice(part, EARLIEST, rank(node, at[node])):
                    mergers[node].add(sliced)
                at[node] = end
                waiting = {
                    name: table
                    for name, id in self.names.items()
                    if (table := mergers[node].take_waiting(id)) is not None
                }
                self.leaves[node].feed(waiting, frontier, frontier == LATEST)
            while self._talk():
                pass
        return self.assembler.close()

    def _talk(self) -> bool:
        said = False
        for node, leaf in enumerate(self.leaves):
            notes = leaf.notes()
            if notes is not None:
                said = True
                self.root.take(notes)
            if self.dice.random() < 0.1:
                self.leaves[node] = self._leaf(node)
                self.leaves[node].load(leaf.to_bytes())
        self.assembler.absorb(self.root.step([]))
        if self.dice.random() < 0.1:
            saved = self.root.to_bytes()
            self.root = RootByKey(self.scheme, self.bound, self.asked, saved)
        for leaf in self.leaves:
            if leaf.heard < self.root.orders.number:
                said = True
                if self.dice.random() >= self.lost:
                    leaf.hear(self.root.orders.since(leaf.heard))
        return said

    def ranked(self, key: str) -> list[dict[str, Any]]:
        """A key's events in order."""
        rows = [
            (row["ts"], node, arrival, row)
            for node, events in enumerate(self.events)
            for arrival, row in enumerate(events.to_pylist())
            if row["k"] == key
        ]
        return [row for *_, row in sorted(rows, key=lambda row: row[:3])]


@pytest.mark.parametrize(
    ("scheme", "lost"), [("auto", 0.3), ("monitor", 0.0), ("sync", 0.0), ("async", 0.3)]
)
def test_windows_by_key(scheme: str, lost: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "LARGE", 1)
    tree = Tree(5, scheme, lost)
    results = tree.run()
    sums, least = {}, {}
    for key in SHARES:
        rows = tree.ranked(key)
        for n in range((len(rows) - 40) // 25 + 1):
            inside = rows[25 * n : 25 * n + 40]
            sums[key, n] = (sum(r["id"] for r in inside), median(r["v"] for r in inside))
        for n in range(len(rows) // 35):
            least[key, n] = (35, min(r["id"] for r in rows[35 * n : 35 * n + 35]))
    assert len(sums) > 30 and len(least) > 10
    found = {
        (r["k"], r["window_index"]): (r["sum(id)"], r["median(v)"])
        for r in results["sliding"].to_pylist()
    }
    assert found == sums
    found = {
        (r["k"], r["window_index"]): (r["count(*)"], r["min(id)"])
        for r in results["tumbling"].to_pylist()
    }
    assert found == least


int64 = st.integers(-(2**63), 2**63 - 1)
int_arrays = st.lists(int64).map(lambda found: np.array(found, np.int64))
float_arrays = st.lists(st.floats(allow_nan=False)).map(lambda found: np.array(found, np.float64))
key_values = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text()
"""Of all types that are counted by asking: unsigned integers have the most digits."""


@pytest.mark.hypothesis
@given(st.lists(key_values), st.integers(0, 2**62), st.binary())
def test_orders_come_back(values: list[int | str | None], number: int, down: bytes) -> None:
    order = Order(Lane("g", Key(3, tuple(values))), number, down)
    given = OrdersAfter(number, number + 1, True, [order])
    assert wire.load(OrdersAfter, wire.dump(given)) == given


@pytest.mark.hypothesis
@given(int_arrays, float_arrays)
def test_arrays_come_back(ints: Ints, floats: npt.NDArray[np.float64]) -> None:
    back = wire.load(wire.Columns, wire.dump({"ints": ints, "floats": floats}))
    assert back["ints"].dtype == np.int64 and back["floats"].dtype == np.float64
    assert back["ints"].tolist() == ints.tolist() and back["floats"].tolist() == floats.tolist()


def up(**changed: object) -> list[object]:
    """The fields of what a node says, some of them changed."""
    times = np.array([5, 5, 9])
    piece = [10, 13, True, times, np.zeros(3, np.int64), b"events"]
    fields: dict[str, Any] = {"node": 1, "life": 0, "frontier": 9, "settled": 13, "passed": 0}
    fields |= {"answered": [0], "counts": {Place(5, -1, 0): 10}, "answers": answers()}
    fields |= {"pieces": [piece], "late": 0, "spans": {1: (10, 13)}}
    assert tuple(fields) == Up.__struct_fields__
    assert changed.keys() <= fields.keys()
    return [*(fields | changed).values()]


def answers(low: int = 10, high: int = 13, count: int = 3, times: object = None) -> list[object]:
    """The samples of one ask."""
    of = np.array([5, 5, 9]) if times is None else times
    return [*(np.array([one]) for one in (1, low, high, count)), of, np.array([0, 0, 0])]


def said(**changed: object) -> bytes:
    return wire.dump(up(**changed))


@pytest.mark.hypothesis
@given(st.data())
def test_bytes_that_are_cut_short_are_refused(data: st.DataObject) -> None:
    body = said()
    assert wire.load(Up, body).pieces[0].arrivals.tolist() == [10, 11, 12]
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(DataError, match="damaged or cut short"):
        wire.load(Up, body[:cut])


FEW, FLOATS = np.arange(2), np.array([0.5, 1.5, 2.5])


@pytest.mark.parametrize(
    "changed",
    [
        {"node": "a"},
        {"frontier": 1.5},
        {"counts": {5: 1}},
        {"answers": answers(low=13, high=10)},
        {"answers": answers(count=2)},
        {"answers": answers(count=-1)},
        {"answers": answers(times=FLOATS)},
        {"answered": 1},
        {"answered": [0.5]},
        {"spans": {1: (10, 13, 14)}},
        {"pieces": [[10, 13, True, FEW, FEW, b""]]},
        {"pieces": [[10, 13, True, FLOATS, FLOATS, b""]]},
        {"pieces": [[10, 10, False, FEW, FEW, b""]]},
        {"pieces": [[10, 13, True, [3, -1], [3, 0], b""]]},
        {"pieces": [[10, 13, True, [3, 0, 3, b"abc"], [3, 0], b""]]},
        {"pieces": [[10, 13, True, [3, 0, 1, b"abc", 9], [3, 0], b""]]},
        {"pieces": [[10, 13, True, [3, 0, 1, b"a"], [3, 0], b""]]},
        {"pieces": [[0, 1 << 40, True, [1 << 40, 0], [1 << 40, 0], b""]]},
    ],
)
def test_what_is_no_word_of_a_node_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(DataError, match="damaged or cut short"):
        wire.load(Up, said(**changed))


def test_a_scheme_that_does_not_exist_is_refused() -> None:
    assert wire.load(Down, wire.dump(Down(1, len(SCHEMES) - 1, 0, {}))).version == 1
    with pytest.raises(DataError):
        wire.load(Down, wire.dump(Down(1, len(SCHEMES), 0, {})))


@pytest.mark.hypothesis
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=3))
def test_edges_are_all_starts_and_ends(sizes: list[tuple[int, int]]) -> None:
    edges = RankEdges([count_sliding(size, step) for size, step in sizes])
    wanted = {n * step for _, step in sizes for n in range(1, 300)}
    wanted |= {n * step + size for size, step in sizes for n in range(300)}
    rank, found = 0, []
    while rank < 200:
        rank = edges.after(rank)
        found.append(rank)
    assert found == sorted(edge for edge in wanted if edge <= found[-1])
