"""The suite of count windows over many nodes: every scheme against sending all events."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import get_args

import numpy as np

from benchmarks import count_nodes
from benchmarks.count_cell import EXACT, Outcome, correctness, ground, run
from benchmarks.count_load import LeanEvents, Load, messages
from benchmarks.figure import Figure, at_least, below, exactly, plain
from catchment.counting.scheme import Predictor
from catchment.counting.wire import load as unpacked

CHANGES = (0.001, 0.01, 0.05, 0.1, 0.5, 1.0)
SHAPES = ("unequal", "step", "burst", "silent")


def figures(quick: bool = False) -> Iterator[Figure]:
    """The paper's load, then many others, then delays."""
    main = Load(windows=12 if quick else 24)
    yield from bytes_and_work(main, 3 if quick else 5)
    yield from everywhere(cells(quick))
    yield from corrections(quick)
    yield from sizes(quick)
    yield from delays(quick)
    yield from count_nodes.figures(quick)


def bytes_and_work(load: Load, runs: int) -> Iterator[Figure]:
    """Eight nodes, rates that change by 1 %, windows of a million events."""
    there = ground(load)
    whole, what = there.central, f"{load.text}; sum; up and down, the beginning with it"
    central = (
        f"central: times and values in Arrow record batches every 10 ms, zstd, "
        f"{there.central / there.events:.2f} bytes an event"
    )
    found = {scheme: run(load, scheme)[0] for scheme in (*EXACT, "approx")}
    bars = {"async": 0.025, "monitor": 0.001}
    for scheme, outcome in found.items():
        name, value = f"bytes, {scheme}", outcome.nbytes / whole
        detail = f"{what}; {central}"
        if scheme in bars:
            yield below(name, value, "of central's", bars[scheme], detail)
        else:
            yield plain(name, value, "of central's", detail)
    tight = f"{what}; all events as pieces are written, {there.lean / there.events:.2f} bytes each"
    for scheme in bars:
        value = found[scheme].nbytes / there.lean
        yield plain(f"bytes, {scheme}, against the tightest central", value, "of central's", tight)
    for scheme in ("sync", "async"):
        paper = run(load, scheme, "last")[0]
        yield plain(
            f"bytes, {scheme}, predicted as in the paper",
            paper.nbytes / whole,
            "of central's",
            f"{what}; {paper.corrections:.0f} corrections in 100 windows, "
            f"{found[scheme].corrections:.0f} by pace; {central}",
        )
    yield _work(load, runs)


def _work(load: Load, runs: int) -> Figure:
    """What the root does for an event, against decoding, ordering and adding up all of them."""
    there, ratios = ground(load), []
    bodies = list(messages(there.streams, lean=True))
    for _ in range(runs):
        seconds = _central(bodies, load.window)
        ratios.append(run(load, "async")[0].work / seconds)
    return below(
        "work at the root, async",
        median(ratios),
        "of central's",
        1 / 9,
        f"{load.text}; central decodes, sorts and adds up {there.events:,} events in "
        f"{seconds:.2f} s: {there.events / seconds / 1e6:.1f} million a second; median of {runs}",
    )


def _central(bodies: list[bytes], window: int) -> float:
    begin = perf_counter()
    parts = [unpacked(LeanEvents, body) for body in bodies]
    times = np.concatenate([part.times for part in parts])
    values = np.concatenate([part.data["v"] for part in parts])
    full = len(times) // window * window
    # Messages of a node follow each other, nodes too: a stable sort by time ranks all events.
    ordered = values[np.argsort(times, kind="stable")][:full]
    np.add.reduce(ordered.reshape(-1, window), axis=1)
    return perf_counter() - begin


def cells(quick: bool) -> list[Load]:
    """Numbers of nodes, changes of rates, and shapes that predictions find hard."""
    window, windows = (20_000, 12) if quick else (100_000, 20)
    counts = (1, 8) if quick else (1, 2, 4, 8, 32)
    changes = (0.01, 0.5) if quick else CHANGES
    loads = [Load(n, window, change, windows) for n in counts for change in changes]
    return loads + [Load(8, window, 0.01, windows, shape) for shape in SHAPES]


def everywhere(loads: list[Load]) -> Iterator[Figure]:
    """Whether every scheme is exact everywhere, and `auto` as good as the best."""
    wrong: list[str] = []
    bytes_, waits = [], []
    for load in loads:
        found: dict[str, Outcome] = {scheme: run(load, scheme)[0] for scheme in EXACT}
        wrong += [f"{s}: {load.text}" for s, o in found.items() if o.exact < o.windows]
        least = min(o.nbytes for o in found.values())
        bytes_.append((found["auto"].nbytes / least, load.text))
        waits.append(found["auto"].blocked - min(o.blocked for o in found.values()))
    yield exactly(
        "windows that are not what one node would say",
        len(wrong),
        "cells",
        0,
        f"{len(loads)} loads by {', '.join(EXACT)}, sums compared window by window; {wrong[:3]}",
    )
    worst, where = max(bytes_)
    yield below(
        "bytes of auto against the best scheme", worst, "times", 1.1, f"the worst cell: {where}"
    )
    yield below(
        "time that nodes wait, auto beyond the best scheme",
        1e3 * max(waits),
        "ms a window",
        0.1,
        f"the worst of {len(loads)} cells",
    )


def corrections(quick: bool) -> Iterator[Figure]:
    """Corrections and right events over the change of rates, on two nodes as in the paper."""
    windows = 20 if quick else 100
    for change in (0.01, 0.1, 1.0) if quick else CHANGES:
        load = Load(2, 20_000, change, windows)
        parts = []
        for scheme in ("sync", "async"):
            for predictor in get_args(Predictor):
                outcome = run(load, scheme, predictor)[0]
                parts.append(f"{scheme} by {predictor} {outcome.corrections:.0f}")
        yield plain(
            f"corrections in 100 windows, change of {100 * change:g} %",
            run(load, "async")[0].corrections,
            "corrections",
            f"{', '.join(parts)}; {load.text}",
        )
        right = {scheme: correctness(load, scheme) for scheme in ("approx", "async")}
        yield at_least(
            f"events in the right window, change of {100 * change:g} %, async",
            right["async"],
            "of all",
            1.0,
            f"approx {right['approx']:.4f}; {load.text}",
        )


def sizes(quick: bool) -> Iterator[Figure]:
    """Bytes by the size of windows."""
    for window in (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000, 10_000_000):
        load = Load(8, window, 0.01, 12 if window < 10_000_000 else 4)
        whole = ground(load).central
        parts = {scheme: run(load, scheme)[0].nbytes / whole for scheme in EXACT}
        detail = ", ".join(f"{scheme} {value:.5f}" for scheme, value in parts.items())
        yield plain(
            f"bytes of auto, windows of {window:,}",
            parts["auto"],
            "of central's",
            f"{detail}; {load.text}",
        )


def delays(quick: bool) -> Iterator[Figure]:
    """Orders for a window, and how long results take on slow links."""
    load = Load(8, 20_000 if quick else 100_000, 0.01, 12 if quick else 20)
    for delay in (1, 20, 100):
        found = {s: run(load, s, delay=1000 * delay)[0] for s in (*EXACT, "approx")}
        detail = ", ".join(
            f"{s} {o.latency:.0f} ms in {o.rounds:.1f} rounds (waits {1e3 * o.blocked:.0f} ms)"
            for s, o in found.items()
        )
        yield plain(
            f"latency of async, links of {delay} ms",
            found["async"].latency,
            "ms",
            f"from a window's last event to its result; {detail}; {load.text}; nodes read every "
            f"10 ms",
        )
