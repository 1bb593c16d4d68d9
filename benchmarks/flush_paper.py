"""What the paper states, and what we get: sections 5, 7 and 8 in simulation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.figure import Figure, below, plain
from benchmarks.flush_runs import (
    AMPLE,
    EAGER,
    LAZY,
    SKIP,
    ample,
    capacities,
    edges,
    hops,
    narrow,
)
from benchmarks.flush_workload import SHAPES, arrivals, look
from catchment.simulate.outcome import Outcome

_LARGE = f"large query, 1 edge, low rate, capacity {AMPLE:g} times streaming's"


def figures(quick: bool = False) -> Iterator[Figure]:
    windows = 4 if quick else 12
    yield from workloads(windows)
    yield from eager_and_lazy(windows)
    yield from hybrid(windows)
    yield from many_edges(quick)
    yield from capacity(windows)
    yield from hopping(3 if quick else 6)


def _late(made: Outcome) -> float:
    """The 95th percentile of staleness, in percent of the window."""
    return 100 * float(np.quantile(made.staleness[SKIP:], 0.95))


def workloads(windows: int) -> Iterator[Figure]:
    for name, shape in SHAPES.items():
        seen = look(arrivals(shape, windows))
        yield plain(
            f"keys that come once in a window, {name} query",
            100 * seen.once,
            "%",
            f"paper: {100 * shape.once:.0f} %; the median key comes {seen.median:g} times (paper, "
            f"over the large query's: {shape.median:g}); {seen.per_key:.1f} arrivals a key; "
            f"{100 * (seen.variation > 1).mean():.0f} % of frequent keys are burstier than random",
        )


def eager_and_lazy(windows: int) -> Iterator[Figure]:
    """Figures 3 and 4."""
    for kind, policies, bar, paper in (
        ("best eager", EAGER, 1.10, "1.096 (uniform), 1.28 (nonuniform, LFU)"),
        ("worst lazy", LAZY, 1.04, "below 1.04"),
    ):
        found = {
            (policy, eviction): ample(policy, eviction, True, 1.0, windows).ratio(SKIP)
            for policy in policies
            for eviction in ("lru", "lfu", "likely")
        }
        ours = {policy: found[policy, "likely"] for policy in policies}
        chosen = min(ours.values()) if kind == "best eager" else max(ours.values())
        each = "; ".join(
            f"{policy} "
            + ", ".join(f"{e} {found[policy, e]:.3f}" for e in ("lru", "lfu", "likely"))
            for policy in policies
        )
        yield below(
            f"traffic, {kind} online policy",
            chosen,
            "of optimal",
            bar,
            f"evicting the least likely to come again; {each}; paper: {paper}; {_LARGE}",
        )
    stale = {policy: _late(ample(policy, "likely", True, 1.0, windows)) for policy in LAZY}
    least, others = stale[LAZY[0]], min(stale[policy] for policy in LAZY[1:])
    yield below(
        "staleness, pessimistic against the other lazy ones",
        least / others,
        "of the next",
        1.0,
        ", ".join(f"{policy} {value:.3f} %" for policy, value in stale.items())
        + f" of the window, 95th percentile; {_LARGE}",
    )


def hybrid(windows: int) -> Iterator[Figure]:
    """Section 5.3, and the staleness of figure 6."""
    name = "hybrid(0.25)"
    ours, theirs = (ample(name, eviction, True, 1.0, windows) for eviction in ("likely", "lfu"))
    yield below(
        "traffic, hybrid(0.25)",
        ours.ratio(SKIP),
        "of optimal",
        1.06,
        f"with LFU {theirs.ratio(SKIP):.3f}; paper: 1.06; {_LARGE}",
    )
    batching = ample("batching", "likely", True, 1.0, windows)
    yield below(
        "staleness, hybrid(0.25)",
        ours.stale(SKIP) / batching.stale(SKIP),
        "of batching's",
        0.35,
        f"{100 * ours.stale(SKIP):.3f} and {100 * batching.stale(SKIP):.2f} % of the window; "
        f"paper: 0.35; {_LARGE}",
    )
    for eviction, paced in (("likely", True), ("lfu", False)):
        wrong = ample(name, eviction, paced, 2.0, windows)
        how = "ours" if paced else "as in the paper: LFU, not paced"
        yield below(
            f"staleness, hybrid(0.25), bandwidth over-predicted by 100 %, {eviction}",
            _late(wrong),
            "% of the window",
            0.2,
            f"95th percentile; {how}; paper: 0.19; traffic {wrong.ratio(SKIP):.3f}; {_LARGE}",
        )
    lazy = ample(LAZY[0], "lfu", False, 2.0, windows)
    yield plain(
        "staleness, lazy(pessimistic), bandwidth over-predicted by 100 %",
        _late(lazy),
        "% of the window",
        f"LFU, not paced; paper: up to 9.9; {_LARGE}",
    )


def many_edges(quick: bool) -> Iterator[Figure]:
    """Figures 6 to 8, each edge learning its bandwidth on the way."""
    windows = 3 if quick else 6
    worst = 0.0
    for shape, count, high in (
        ("large", 1, False),
        ("small", 3, False),
        ("medium", 3, False),
        ("large", 3, False),
        ("small", 3, True),
        ("medium", 3, True),
        ("large", 6, False),
        ("large", 6, True),
    ):
        if quick and high:
            continue
        made = {
            policy: edges(shape, count, high, policy, windows)
            for policy in ("hybrid(0.25)", "auto", "batching", "streaming")
        }
        worst = max(worst, made["hybrid(0.25)"].ratio(SKIP))
        yield plain(
            f"traffic, {shape} query, {count} edge{'s' if count > 1 else ''}, "
            f"{'high' if high else 'low'} rate, hybrid(0.25)",
            made["hybrid(0.25)"].ratio(SKIP),
            "of optimal",
            "; ".join(
                f"{policy}: traffic {o.ratio(SKIP):.3f}, staleness {100 * o.stale(SKIP):.3f} %"
                for policy, o in made.items()
            ),
        )
    yield below(
        "traffic, hybrid(0.25), worst of all queries and edges",
        worst,
        "of optimal",
        1.06,
        f"capacity {AMPLE:g} times streaming's; paper, on real networks: below 1.02 for the large "
        "query at one edge",
    )


def capacity(windows: int) -> Iterator[Figure]:
    """Figure 10."""
    steps = capacities()
    for times in (steps[0], steps[3], steps[-1]):
        made = {
            policy: narrow(policy, times, windows)
            for policy in ("hybrid(0.25)", "auto", "batching", "streaming", "optimal")
        }
        plainly = narrow("hybrid(0.25)", times, windows, paced=False)
        yield plain(
            f"traffic, hybrid(0.25), capacity {times:.1f} times the optimum's",
            made["hybrid(0.25)"].ratio(SKIP),
            "of optimal",
            f"not paced, as in the paper: {plainly.ratio(SKIP):.3f}, staleness "
            f"{100 * plainly.stale(SKIP):.2f} %; "
            + "; ".join(
                f"{policy}: traffic {o.ratio(SKIP):.3f}, staleness {100 * o.stale(SKIP):.2f} %"
                for policy, o in made.items()
            ),
        )


def hopping(windows: int) -> Iterator[Figure]:
    """Figure 11: the least traffic grows with W/H, and nobody sends less than the optimum."""
    for parts in (1, 8):
        made = {p: hops(p, parts, windows) for p in ("optimal", "auto", "batching", "streaming")}
        over = float(made["optimal"].traffic.sum() / made["streaming"].traffic.sum())
        yield plain(
            f"traffic of the optimum, windows of {parts} hop{'s' if parts > 1 else ''}",
            over,
            "of streaming's",
            "; ".join(
                f"{policy}: traffic {o.ratio(SKIP):.3f} of optimal, staleness "
                f"{100 * o.stale(SKIP) / parts:.3f} % of the window"
                for policy, o in made.items()
            ),
        )
