"""Bytes on the wire, link by link, against sending every event to one place."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa

import catchment as ct
from benchmarks import tree_disco as disco
from benchmarks.events import workload
from benchmarks.figure import Figure, at_most, below, plain
from benchmarks.tree_central import coded, one_beat
from benchmarks.tree_machines import RATE, by_key, local, messages
from catchment.errors import CatchmentError
from catchment.generator import Generator
from catchment.measure.bed import Bed, JobForm, Layout, Traffic, stream, windows
from catchment.measure.central import BATCH, Central, CollectorLink, central, encoded
from catchment.nodes.questions import AskStatus, ask
from catchment.nodes.status import NodeStatus

KEYS = 10
WINDOWS = 1000
SLOWER = 100_000
"""Events per second of event time where only the number of partials matters, not of events."""
FASTER = 5.0
"""Seconds of event time in a second, where the size of a message is all that is asked."""
SITE, FEW, MARKS = 20_000, 5, 0.0005
"""Events per second of a site, keys, and the share of marks, where window types are compared."""
_FLAT: dict[str, str | None] = {"root": None, "e1": "root", "e2": "root"}
_DEEP: dict[str, str | None] = {"root": None, "mid": "root", "e1": "mid", "e2": "mid"}
_PATIENCE = 60.0
HOURS = 24
"""Of event time, where long windows are held."""


@dataclass(frozen=True)
class Slope:
    """What a slice costs, what is paid once, and on how many slices that was seen."""

    per_slice: float
    once: float
    slices: int


def figures(quick: bool = False) -> Iterator[Figure]:
    """Averages of few keys, many windows, many keys, another level, other windows, and a median."""
    seconds = 6 if quick else 20
    generator = Generator(seed=1, keys=KEYS, rate=RATE, string_keys=False, markers=0.0)
    whole = central(generator, 500_000 if quick else 2_000_000)
    beat = one_beat()
    yield from average(seconds, whole, beat)
    slices = 20 if quick else 60
    by_windows = {count: slope(count, KEYS, slices) for count in (1, 10, 100, WINDOWS)}
    yield from many_windows(by_windows[1], by_windows[WINDOWS])
    by_keys = {keys: slope(1, keys, slices) for keys in (100, 1000)}
    yield from many_keys({KEYS: by_windows[1], **by_keys})
    yield from disco.figures({count: found.per_slice for count, found in by_windows.items()})
    yield from another_level(seconds, whole, beat)
    yield from beside_a_session(seconds)
    yield from between_marks(seconds)
    yield from coarser(3 * seconds)
    yield from median(3 if quick else 5, whole)


def tree(
    parents: Mapping[str, str | None],
    queries: list[JobForm],
    seconds: int,
    rate: int = RATE,
    keys: int = KEYS,
    pace: float = 1.0,
) -> dict[str, Traffic]:
    """Runs a tree of processes to its end; the bytes of each link."""
    leaves = [id for id in parents if id not in parents.values()]
    sources = {
        id: stream(number, seconds, rate, keys, pace) for number, id in enumerate(leaves, start=1)
    }
    with Bed(Layout(parents, sources, queries)) as bed:
        return bed.run(_PATIENCE + seconds / pace)


def slope(count: int, keys: int, slices: int) -> Slope:
    """What a slice costs on the link of a node, for windows and keys; a slice is a message."""
    source = stream(1, slices, SLOWER, keys, FASTER)
    layout = Layout({"root": None, "e1": "root"}, {"e1": source}, windows(count))
    samples: list[tuple[int, int]] = []
    with Bed(layout) as bed:
        bed.begin()
        end = time.monotonic() + _PATIENCE + slices / FASTER
        while not bed.done and time.monotonic() < end:
            samples += _sample(bed)
            time.sleep(0.02)
    # While nodes start, how much they say depends on who is first.
    steady = [sample for sample in samples if 3 <= sample[0] < slices]
    if len({received for received, _ in steady}) < 2:
        raise CatchmentError("the machine is too busy to look at a link", given=f"{slices} slices")
    (first, few), (last, many) = steady[0], steady[-1]
    each = (many - few) / (last - first)
    return Slope(each, few - first * each, last - first)


def _sample(bed: Bed) -> list[tuple[int, int]]:
    """Messages that have come from a node and bytes on its link, if both stand still just now."""
    before = bed.traffic()["e1"]
    try:
        status = ask(bed.address("root"), AskStatus(), NodeStatus, timeout=1.0)
    except CatchmentError:
        return []  # it has not begun, or is over
    received = status.children["e1"].received if status.children else 0
    return [(received, before.both)] if before == bed.traffic()["e1"] else []


def average(seconds: int, whole: Central, beat: float) -> Iterator[Figure]:
    """The least that a tree can send, in real time."""
    link = tree({"root": None, "e1": "root"}, windows(1), seconds)["e1"]
    all_events = whole.per_event * seconds * RATE
    what = (
        f"avg by {KEYS} keys, 1 s slices, {RATE:,} events per second of event time; {seconds} s in "
        f"real time; up {link.up:,} and down {link.down:,} bytes with connecting, plans, frontiers "
        f"and acknowledgements"
    )
    name = "bytes on a link, average"
    yield at_most(
        name,
        link.both / all_events,
        "of central's",
        0.0002,
        f"{what}; a message a second, so that beats, which fill silences of a second, hardly come; "
        f"{whole.detail}",
    )
    yield below(
        f"{name}, a heartbeat a second besides",
        (link.both + beat * seconds) / all_events,
        "of central's",
        0.0005,
        f"{what}; and {seconds} beats of {beat:.0f} bytes, measured one by one with their answers; "
        f"{whole.detail}",
    )


def many_windows(one: Slope, many: Slope) -> Iterator[Figure]:
    paces = (
        f"avg by {KEYS} keys, windows of 1 to 10 s; one link watched over {one.slices} and "
        f"{many.slices} slices, {FASTER:g} s of event time a second and so no beats"
    )
    yield below(
        f"bytes of a slice, {WINDOWS:,} windows",
        many.per_slice / one.per_slice,
        "of one window's",
        1.05,
        f"{many.per_slice:.0f} and {one.per_slice:.0f} bytes; {paces}",
    )
    yield plain(
        f"bytes paid once, {WINDOWS:,} windows",
        many.once,
        "bytes",
        f"connecting, and the plan that comes down; {one.once:.0f} for one window; {paces}",
    )


def many_keys(slopes: Mapping[int, Slope]) -> Iterator[Figure]:
    for keys, found in slopes.items():
        yield plain(
            f"bytes per key and slice, {keys:,} keys",
            found.per_slice / keys,
            "bytes",
            f"avg by key, one window; {found.per_slice:.0f} bytes a slice, acknowledgement "
            f"included; {SLOWER:,} events per second of event time",
        )
    (few, mid, most) = sorted(slopes)
    first = (slopes[mid].per_slice - slopes[few].per_slice) / (mid - few)
    second = (slopes[most].per_slice - slopes[mid].per_slice) / (most - mid)
    yield plain(
        "bytes of one more key, many against few keys",
        second / first,
        "of few keys'",
        f"{second:.1f} bytes from {mid} to {most:,} keys, {first:.1f} from {few} to {mid}; growing "
        f"linearly would be 1",
    )


def another_level(seconds: int, whole: Central, beat: float) -> Iterator[Figure]:
    """Two sites under the root, and under a node in between: its link is what is added."""
    flat = sum(link.both for link in tree(_FLAT, windows(1), seconds).values())
    deep = tree(_DEEP, windows(1), seconds)
    all_links = sum(link.both for link in deep.values()) + beat * seconds
    all_events = 2 * whole.per_event * seconds * RATE
    yield below(
        "bytes that another level adds",
        (all_links - flat) / all_events,
        "of central's",
        0.01,
        f"two sites of {RATE:,} events/s for {seconds} s in real time: {flat:,} bytes on their two "
        f"links to the root, {all_links:,.0f} on three links with a node in between and a beat a "
        f"second on its own; {whole.detail}",
    )


def watched(queries: list[JobForm], seconds: int, markers: float = 0.0) -> tuple[int, int]:
    """Two sites under the root: the bytes of both links, and the messages that climbed."""
    sources = {
        id: {**stream(number, seconds, SITE, FEW), "markers": markers}
        for number, id in enumerate(("e1", "e2"), start=1)
    }
    climbed: dict[str, int] = {}
    with Bed(Layout(_FLAT, sources, queries)) as bed:
        bed.begin()
        end = time.monotonic() + _PATIENCE + seconds
        while not bed.done and time.monotonic() < end:
            with suppress(CatchmentError):  # it has not begun, or is over
                status = ask(bed.address("root"), AskStatus(), NodeStatus, timeout=1.0)
                climbed |= {id: child.received for id, child in (status.children or {}).items()}
            time.sleep(0.1)
        if not bed.done:
            raise CatchmentError(
                "a tree did not end in time", given=f"{seconds} s", hint=bed.words()[-500:]
            )
        return sum(link.both for link in bed.traffic().values()), sum(climbed.values())


def beside_a_session(seconds: int) -> Iterator[Figure]:
    """What one session costs the windows beside it: their slices climb as before."""
    session = {"name": "s", "select": ["avg(v)"], "by": "player", "window": "session(1s)"}
    small, few = watched(windows(1), seconds)
    large, many = watched([*windows(1), session], seconds)
    what = (
        f"avg by {FEW} keys over 1 s, and the same with a session of 1 s; two sites of {SITE:,} "
        f"events/s for {seconds} s in real time, connecting and plans with it"
    )
    yield at_most(
        "bytes with a session beside windows",
        large / small,
        "of those without",
        1.3,
        f"{large:,} and {small:,} bytes; {what}",
    )
    yield at_most(
        "messages with a session beside windows",
        many / few,
        "of those without",
        1.5,
        f"{many} and {few} messages, the last of them not counted; {what}",
    )


def between_marks(seconds: int) -> Iterator[Figure]:
    """What a window between events of all nodes costs: its events climb."""
    generator = Generator(seed=1, keys=FEW, rate=SITE, string_keys=False, markers=MARKS)
    whole = central(generator, 500_000)
    found = "between(event = 'start', event = 'end')"
    marked = {"name": "b", "select": ["avg(v)"], "by": "player", "window": found}
    nbytes, _ = watched([*windows(1), marked], seconds, MARKS)
    yield at_most(
        "bytes with a window between marks of all nodes",
        nbytes / (2 * whole.per_event * seconds * SITE),
        "of central's",
        0.03,
        f"avg by {FEW} keys over 1 s and between marks, which {MARKS:.2%} of the events are; two "
        f"sites of {SITE:,} events/s for {seconds} s in real time; {whole.detail}",
    )


def coarser(seconds: int) -> Iterator[Figure]:
    """What coarser keys and longer windows cost beside the finest ones: they follow from these."""
    keys = {"player": "player", "two": "seq % 2", "three": "seq % 3", "five": "seq % 5"}
    sets = [some for count in range(len(keys) + 1) for some in combinations(keys, count)]
    cube: list[JobForm] = []
    for number, some in enumerate(sets):
        named = ", ".join([*(f"{keys[key]} AS {key}" for key in some), "avg(v) AS mean"])
        by = ", ".join([*(keys[key] for key in some), "window(ts, '1 second')"])
        cube.append({"name": f"c{number}", "sql": f"SELECT {named} FROM events GROUP BY {by}"})
    large, _ = watched(cube, seconds)
    small, _ = watched(cube[-1:], seconds)
    yield at_most(
        "bytes of a cube of four keys",
        large / small,
        "of its finest set",
        1.05,
        f"avg over 1 s by all {len(sets)} sets of keys, {large:,} bytes, and by all four keys, "
        f"{small:,} bytes; two sites of {SITE:,} events/s for {seconds} s in real time",
    )
    month = {"name": "m", "select": ["avg(v)"], "by": "player", "window": "sliding(30d, 1min)"}
    beside, _ = watched([*windows(1), month], seconds)
    alone, _ = watched(windows(1), seconds)
    yield at_most(
        "bytes of a window of 30 days every minute beside windows of 1 s",
        beside / alone,
        "of those without",
        1.05,
        f"avg by {FEW} keys, {beside:,} and {alone:,} bytes; two sites of {SITE:,} events/s for "
        f"{seconds} s in real time, connecting and plans with it",
    )
    fine = ct.Query("fine", ct.avg("v"), by="k", window=ct.tumbling("1s"))
    long = ct.Query("long", ct.avg("v"), by="k", window=ct.sliding("30d", "1min"))
    both, one = state_of([fine, long]), state_of([long])
    yield at_most(
        "state of a window of 30 days every minute beside windows of 1 s",
        both / one,
        "of that without",
        1.2,
        f"avg by {FEW} keys, an event a second of each, after {HOURS} hours of event time; "
        f"snapshots of an engine, {both:,} and {one:,} bytes",
    )


def state_of(queries: list[ct.Query]) -> int:
    """The bytes of a snapshot after some hours of event time, an event a second of each key."""
    engine = ct.Engine(queries)
    for hour in range(HOURS):
        seconds = np.arange(hour * 3600, (hour + 1) * 3600)
        times = np.repeat(seconds * 1_000_000, FEW).astype("M8[us]")
        keys = np.tile(np.arange(FEW), len(seconds))
        engine.push(pa.table({"ts": times, "k": keys, "v": np.repeat(seconds, FEW)}))
        engine.advance(int(seconds[-1]) * 1_000_000)
    return len(engine.snapshot())


def median(seconds: int, whole: Central) -> Iterator[Figure]:
    """Values of sensors, which repeat, as a job sends them; random ones where all of them climb."""
    link = tree({"root": None, "e1": "root"}, windows(1, "median(v)"), seconds)["e1"]
    yield below(
        "bytes on a link, median of a sensor",
        link.both / (whole.per_event * seconds * RATE),
        "of central's",
        0.6,
        f"median by {KEYS} keys, 1 s slices, {RATE:,} events/s for {seconds} s; values of three "
        f"decimals, which repeat; {whole.detail}",
    )
    load = workload(seconds * RATE, RATE, batch=RATE, keys=KEYS)
    line = CollectorLink()
    try:
        ours = line.cost(messages(local(load, by_key(1, ct.median("v"))))).both
        batches = [b for s in load.steps for b in s.table.to_batches(max_chunksize=BATCH)]
        theirs = line.cost(encoded(batch) for batch in batches).both
        pressed = line.cost(coded(batch) for batch in batches).both
    finally:
        line.close()
    yield below(
        "bytes on a link, median of random values",
        ours / theirs,
        "of central's",
        0.6,
        f"with quantiles: send, values of full precision that never repeat: "
        f"{ours / load.events:.2f} against {theirs / load.events:.2f} bytes an event; the messages "
        f"of a local machine in this process, sent through a real link",
    )
    yield plain(
        "bytes on a link, median, against events pressed by hand",
        ours / pressed,
        "of central's",
        f"central as no Arrow tool sends it: columns byte by byte, times as differences, "
        f"{pressed / load.events:.2f} bytes an event",
    )
