"""Count windows by key over nodes; and the bytes that machines are saved as and talk in."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.counting import wire
from catchment.counting.edges import Edges
from catchment.counting.fold import Runs
from catchment.counting.lanes import LocalLanes, RootLanes
from catchment.counting.local import LATEST
from catchment.counting.message import Columns
from catchment.errors import DataError
from catchment.windows.count import count_sliding, count_tumbling
from counting import Ids, expected

WINDOWS = [count_sliding(40, 25), count_tumbling(60)]
KEYS = ["a", "b", 3, ("x", 1)]


class Bench:
    """Nodes and a root that talk until nothing is left to say, over links that may lose."""

    def __init__(self, seed: int, scheme: str, lost: float = 0.0, fold: object = None) -> None:
        self.dice, self.lost = random.Random(seed), lost
        numbers = np.random.default_rng(seed)
        self.fold = fold or Ids()
        self.locals = [LocalLanes(n, WINDOWS, self.fold) for n in range(3)]  # type: ignore[arg-type]
        patience = 5 if lost else None
        self.root = RootLanes(range(3), WINDOWS, self.fold, scheme, patience=patience)  # type: ignore[arg-type]
        self.events = []
        for node in range(3):
            times = np.sort(numbers.integers(0, 1000, 400)) // 7 * 7
            # Keys are not equally frequent, and one is on a single node.
            codes = numbers.choice(4, 400, p=[0.5, 0.3, 0.15, 0.05])
            codes[codes == 3] = 3 if node == 1 else 0
            self.events.append((times, codes))
        self.found: dict[tuple[object, int, int], list[int]] = {}

    def run(self) -> None:
        now, at = 0, [0, 0, 0]
        for frontier in [*range(100, 1100, 100), LATEST]:
            for node, (times, codes) in enumerate(self.events):
                end = int(np.searchsorted(times, min(frontier, 2000)))
                rows = slice(at[node], end)
                ids = np.arange(at[node], end)
                data: Columns = {"id": ids * 10 + node, "v": (ids * 37 % 101).astype(np.int64)}
                self.locals[node].push(KEYS, codes[rows], times[rows], ids, data)
                self.locals[node].advance(frontier)
                at[node] = end
            for _ in range(60):
                now += 1
                if not self._talk(now) and not self.lost:
                    break

    def _talk(self, now: int) -> bool:
        said = False
        for node, local in enumerate(self.locals):
            body = local.step()
            said = said or body is not None
            if self.dice.random() < 0.1:
                self.locals[node] = LocalLanes.from_bytes(local.to_bytes(), WINDOWS, self.fold)  # type: ignore[arg-type]
            if body is not None and self.dice.random() >= self.lost:
                self.root.receive(body, now)
        down = self.root.step(now)
        for key, window in self.root.take():
            place = (key, window.kind, window.number)
            assert place not in self.found
            self.found[place] = window.partial
        if self.dice.random() < 0.1:
            self.root.load(self.root.to_bytes())
        for local in self.locals:
            if down is not None and self.dice.random() >= self.lost:
                local.hear(down)
        return said or down is not None

    def ranked(self, code: int) -> list[tuple[int, int]]:
        """(id, value) of a key's events in order."""
        rows = sorted(
            (int(time), node, arrival)
            for node, (times, codes) in enumerate(self.events)
            for arrival, time in enumerate(times)
            if codes[arrival] == code
        )
        return [(arrival * 10 + node, arrival * 37 % 101) for _, node, arrival in rows]


@pytest.mark.parametrize(
    ("scheme", "lost"), [("auto", 0.3), ("monitor", 0.0), ("sync", 0.0), ("async", 0.3)]
)
def test_windows_by_key(scheme: str, lost: float) -> None:
    bench = Bench(5, scheme, lost)
    bench.run()
    found = {place: sorted(partial["id"].tolist()) for place, partial in bench.found.items()}
    wanted = {}
    for code, key in enumerate(KEYS):
        ids = [id for id, _ in bench.ranked(code)]
        wanted |= {(key, *place): there for place, there in expected(ids, WINDOWS).items()}
    assert found == wanted


def test_quantiles_come_from_sorted_runs_of_slices() -> None:
    bench = Bench(6, "async", fold=Runs("v"))
    bench.run()
    values = [value for _, value in bench.ranked(0)]
    assert bench.found
    for (key, kind, number), partial in bench.found.items():
        if key == "a":
            start = number * WINDOWS[kind].step
            there = sorted(values[start : start + WINDOWS[kind].size])
            assert partial["run"].tolist() == there  # type: ignore[call-overload]


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(-(2**63), 2**63 - 1), inner)
    ),
)


@pytest.mark.hypothesis
@given(plain)
def test_plain_data_comes_back(value: object) -> None:
    assert wire.load(wire.dump(value)) == value


@pytest.mark.hypothesis
@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.floats(allow_nan=False)))
def test_arrays_come_back(ints: list[int], floats: list[float]) -> None:
    a, b = np.array(ints, np.int64), np.array(floats, np.float64)
    back = wire.load(wire.dump([a, b]))
    assert back[0].tolist() == ints and back[1].tolist() == floats


@pytest.mark.hypothesis
@given(st.data())
def test_bytes_that_are_cut_short_are_refused(data: st.DataObject) -> None:
    body = wire.dump([1, "text", np.arange(50), {"a": 2**60}])
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(DataError):
        wire.load(body[:cut])


@pytest.mark.hypothesis
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=3))
def test_edges_are_all_starts_and_ends(sizes: list[tuple[int, int]]) -> None:
    edges = Edges([count_sliding(size, step) for size, step in sizes])
    wanted = {n * step for _, step in sizes for n in range(1, 300)}
    wanted |= {n * step + size for size, step in sizes for n in range(300)}
    rank, found = 0, []
    while rank < 200:
        rank = edges.after(rank)
        found.append(rank)
    assert found == sorted(edge for edge in wanted if edge <= found[-1])
