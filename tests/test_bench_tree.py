"""The suite of trees: its baselines are right, its machines do the work, its figures add up."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

import benchmarks
import catchment as ct
from benchmarks import (
    tree_capacity,
    tree_disco,
    tree_first_keys,
    tree_frequent,
    tree_latency,
    tree_mixed,
    tree_ranks,
    tree_wire,
)
from benchmarks.events import SECOND, workload
from benchmarks.tree_clock import Clock
from benchmarks.tree_machines import by_key, charter, local, messages
from catchment.errors import CatchmentError
from catchment.generator import Generator
from catchment.job import load_job
from catchment.measure import central
from catchment.measure.bed import Bed, Layout, Traffic, stream, windows
from catchment.model.window import Window
from catchment.testing.compare import assert_same, rows_of
from catchment.tree.message import decode, heard
from patience import PATIENCE

pytestmark = pytest.mark.slow


@pytest.fixture
def line() -> Iterator[central.CollectorLink]:
    made = central.CollectorLink()
    yield made
    made.close()


def test_it_is_a_suite() -> None:
    assert benchmarks.SUITES["tree"] == "benchmarks.tree"


def test_what_central_sends_can_be_read_again() -> None:
    batch = Generator(seed=1, keys=3, rate=1000).table(500).select([*central.NEEDED])
    (whole,) = batch.combine_chunks().to_batches()
    body = central.encoded(whole)[12:]
    size = int.from_bytes(body[:4], "big")
    rest = pa.Codec("zstd").decompress(body[4:], decompressed_size=size, asbytes=True)
    assert pa.ipc.read_record_batch(pa.py_buffer(rest), whole.schema) == whole


def test_a_line_counts_both_ways(line: central.CollectorLink) -> None:
    body = bytes(10_000)
    cost = line.cost([body, body])
    assert cost.up > 2 * len(body) and 0 < cost.down < 1000
    assert line.collector.messages == 2
    beats = line.cost([], beats=3)
    assert line.collector.beats == 3 and 0 < beats.both < 3 * 1000


def test_central_is_counted_by_event() -> None:
    found = central.central(Generator(keys=3, rate=1000, string_keys=False), 20_000)
    assert found.events == 20_000 and 1 < found.per_event < 3 * 8
    assert "20,000" in found.detail


def test_a_local_machine_reads_all_and_passes_up_every_slice() -> None:
    load = workload(400, 100, batch=100, keys=3)
    queries = by_key(1)
    ruled = charter({"root": None, "e1": "root"}, queries, load.steps[0].table.schema)
    assembler = ruled.bound(ruled.plan).assembler()
    events = 0
    for body in messages(local(load, queries)):
        head, partials, *_ = decode(heard(body)[1], ruled)
        assembler.absorb(partials, head.newest)
        events += head.counts.get("events", 0)
    alone = ct.Engine(queries)
    for step in load.steps:
        alone.push(step.table)
    assert events == load.events
    assert_same(rows_of(alone.close()["q0"]), assembler.close()["q0"], "q0", keys=("k",))


@pytest.mark.parametrize("windows", [1, 20])
def test_the_root_takes_every_partial(windows: int) -> None:
    ruled = tree_capacity.ruling(windows, children=3)
    root = tree_capacity.Absorbing(ruled, tree_capacity.climbing(ruled, keys=7, slices=20))
    root()
    # Windows of n seconds that end by the 20th, by key.
    wanted = sum(20 // (1 + number % 10) for number in range(windows)) * 7
    assert root.rows == wanted
    machine = root.root.machine
    assert machine is not None and machine.counts["events"] == 3 * 20 * 2 * 7  # type: ignore[union-attr]


@pytest.mark.parametrize("windows", [1, 20])
def test_a_node_in_between_passes_on_every_slice(windows: int) -> None:
    assert tree_capacity.relay_rate(windows, children=3, keys=7, slices=5) > 0


def test_windows_of_all_types_cost_what_one_of_each_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_mixed, "RATE", 1000)
    monkeypatch.setattr(tree_mixed, "MANY", 40)
    windows = tree_mixed.windows(40)
    assert len({*windows}) == 40
    assert {type(window) for window in windows} == {type(w) for w in tree_mixed.windows(10)}
    figure = tree_mixed.mixed(3)
    assert figure.ok, figure


@pytest.mark.parametrize(
    ("window", "most"),
    [(ct.tumbling("300ms"), 0), (ct.session("300ms"), 2), (ct.cut("m = 1"), 2)],
    ids=str,
)
def test_round_trips_until_a_window_is_given(
    window: Window, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_mixed, "RATE", 5000)
    found = tree_mixed.trips(window, 5)
    assert found and 0 <= max(found) <= most, found


def test_what_sites_do_together_is_said_to_be_computed() -> None:
    figures = {figure.name: figure for figure in tree_capacity.on_paper(1, 1)}
    one, eight = (figures[f"events of {n}, on paper"] for n in ("1 local node", "8 local nodes"))
    assert one.value <= eight.value <= 8 * one.value * 1.001
    assert "not measured but computed" in eight.detail


def test_disco_sends_each_window_and_key() -> None:
    found = list(tree_disco.figures({1: 100.0, 1000: 100.0}))
    assert [figure.ok for figure in found] == [None] * 4
    merged = [figure.value for figure in found if "merges" in figure.name]
    assert merged[0] == 1 and merged[1] == pytest.approx(292.9, abs=0.1)
    sizes = [figure.value for figure in found if "bytes" in figure.name]
    assert sizes[1] / sizes[0] == pytest.approx(292.9, abs=0.1)


def test_ratios_of_slopes() -> None:
    one, many = tree_wire.Slope(100.0, 2000.0, 10), tree_wire.Slope(104.0, 9000.0, 10)
    within, once = tree_wire.many_windows(one, many)
    assert within.value == pytest.approx(1.04) and within.ok
    assert once.value == 9000.0
    keys = {10: one, 100: tree_wire.Slope(1000.0, 0, 10), 1000: tree_wire.Slope(10_000.0, 0, 10)}
    *_, growth = tree_wire.many_keys(keys)
    assert growth.value == pytest.approx(1.0)


def test_a_clock_gives_events_as_they_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5 * SECOND
    monkeypatch.setattr("benchmarks.tree_clock.now", lambda: now)
    clock = Clock(events=3000, gap=1000)
    start = clock.start()
    assert clock.latest(start) == start
    now += SECOND
    later = clock.latest(start)
    (split,) = clock.splits(start, later, 1)
    (piece,) = clock.read(split, ["ts"], None)
    times = piece.events["ts"].cast(pa.int64()).to_pylist()
    assert times == list(range(5 * SECOND + 1000, 6 * SECOND + 1000, 1000))
    now += 5 * SECOND
    assert clock.ended(clock.latest(later)) and not clock.ended(later)


def test_a_watch_takes_the_first_word_on_each_window() -> None:
    watch = tree_latency.Watch()
    watch._seen = {end * SECOND: end * SECOND + 9000 for end in range(1, 5)}
    assert watch.delays == [10.0] * 4


def test_a_bed_is_a_job_and_cleans_up() -> None:
    sources = {"e1": stream(1, 2, 100, keys=2, pace=50.0)}
    parents = {"root": None, "mid": "root", "e1": "mid"}
    with Bed(Layout(parents, sources, windows(3))) as bed:
        job = load_job(json.loads(bed.job.read_text()))
        assert [node.id for node in job.nodes] == ["root", "mid", "e1"]
        assert [query.name for query in job.build()] == ["q0", "q1", "q2"]
        assert bed.traffic() == {"mid": Traffic(0, 0), "e1": Traffic(0, 0)}
        links = bed.run(PATIENCE)
        assert all(link.up and link.down for link in links.values())
        home = bed.home
    assert not home.exists()
    assert all(process.poll() is not None for process in bed.processes.values())


def test_a_node_that_fails_is_named() -> None:
    layout = Layout({"root": None, "e1": "root"}, {"e1": stream(1, 1, 10)}, windows(1))
    with Bed(layout) as bed:
        bed.job.write_text("no job")
        with pytest.raises(CatchmentError, match="a node has ended"):
            bed.run(PATIENCE)


@pytest.mark.parametrize(("keys", "most"), [(None, 0.1), (4, 0.2)])
def test_quantiles_by_asking(keys: int | None, most: float) -> None:
    """Small windows: exact, in two rounds, for a part of the bytes (what is measured is larger)."""
    share, rounds, detail = tree_ranks.measured(20_000, keys, nodes=3)
    assert share < most, detail
    assert 1 <= rounds <= 2, detail


@pytest.mark.parametrize("alike", [True, False])
def test_frequent_values_by_asking(alike: bool) -> None:
    """A small window: exact, in two rounds, for a part of the bytes."""
    found = tree_frequent.measured(50_000, 20_000, alike, nodes=3)
    assert found.of_counts < 0.3 and found.of_events < 0.04, found.detail
    assert found.rounds <= 2 and (alike or found.rounds > 0), found.detail


@pytest.mark.parametrize(("by", "alike"), [("sum", True), ("sum", False), ("count", False)])
def test_first_keys_by_asking(by: str, alike: bool) -> None:
    """Small windows: exact, in two rounds each, for a part of the bytes."""
    share, rounds, detail = tree_first_keys.measured(30_000, 3, by, alike, nodes=3)
    assert share < 0.35, detail
    assert rounds <= 2, detail
