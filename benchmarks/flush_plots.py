"""The paper's figures redrawn from our runs: `catchment bench flush --plots docs/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.flush_runs import (
    AMPLE,
    EAGER,
    LAZY,
    SKIP,
    ample,
    capacities,
    done,
    edge,
    edges,
    hops,
    narrow,
)
from benchmarks.flush_workload import SHAPES, arrivals, look
from catchment.cli.drawing import pyplot
from catchment.flush import read
from catchment.flush.line import SendQueue
from catchment.simulate.edge import Edge
from catchment.simulate.wire import Wire

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_EVICTIONS = ("lru", "lfu", "likely")
_FOUR = ("optimal", "hybrid(0.25)", "auto", "batching", "streaming")
_SMALL = 60
"""Dots an inch: the pictures lie in the repository."""


def draw(folder: Path, quick: bool = False) -> Iterator[Path]:
    """Draws each figure into a file, and gives its path."""
    plt = pyplot()
    folder.mkdir(parents=True, exist_ok=True)
    windows = 4 if quick else 8
    pictures: dict[str, tuple[int, Callable[[Any, int], None]]] = {
        "flush-workloads": (3, workloads),
        "flush-eager": (2, _sides(EAGER)),
        "flush-lazy": (2, _sides(LAZY)),
        "flush-caches": (1, caches),
        "flush-edges": (2, by_edges),
        "flush-alpha": (2, by_alpha),
        "flush-capacity": (2, by_capacity),
        "flush-hopping": (2, by_hops),
    }
    for name, (panels, fill) in pictures.items():
        figure, axes = plt.subplots(1, panels, figsize=(5.2 * panels, 3.6), squeeze=False)
        fill(axes[0], windows)
        figure.tight_layout()
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=_SMALL)
        plt.close(figure)
        yield path


def _label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def workloads(axes: Any, _: int) -> None:
    """Figure 2: how often keys come, how many an hour, how burstily."""
    for name, shape in SHAPES.items():
        given = arrivals(shape, 24, first=0)
        seen = look(given)
        span = int(given.keys.max()) + 1
        count = np.sort(np.unique(given.of * span + given.keys, return_counts=True)[1])
        axes[0].semilogx(count, np.linspace(0, 1, len(count)), label=name)
        axes[1].semilogy(seen.keys / seen.keys.max(), label=name)
        axes[2].plot(np.sort(seen.variation), np.linspace(0, 1, len(seen.variation)), label=name)
    paper = [shape.once for shape in SHAPES.values()]
    axes[0].plot([1] * 3, paper, "k_", ms=14, label="once, in the paper")
    _label(axes[0], "as figure 2(a)", "arrivals of a key in a window", "share of keys")
    _label(axes[1], "as figure 2(b)", "hour", "distinct keys, of the most")
    _label(axes[2], "as figure 2(c)", "variation of times between arrivals", "share of keys")
    axes[2].set_xlim(0, 4)
    axes[0].legend()


def _sides(policies: tuple[str, ...]) -> Callable[[Any, int], None]:
    """Figures 3(b), 3(c), 4(b), 4(c)."""

    def fill(axes: Any, windows: int) -> None:
        places = np.arange(len(policies))
        for n, eviction in enumerate(_EVICTIONS):
            made = [ample(policy, eviction, True, 1.0, windows) for policy in policies]
            at = places + 0.27 * (n - 1)
            axes[0].bar(at, [o.ratio(SKIP) for o in made], 0.25, label=eviction)
            late = [100 * np.quantile(o.staleness[SKIP:], 0.95) for o in made]
            axes[1].bar(at, late, 0.25, label=eviction)
        stated = 1.096 if policies is EAGER else 1.04
        words = "paper's best" if policies is EAGER else "paper's worst is below"
        axes[0].axhline(stated, color="k", ls=":", label=f"{words}: {stated:g}")
        axes[0].set_ylim(0.95, None)
        for one in axes:
            one.set_xticks(places, [policy.split("(")[1][:-1] for policy in policies])
        _label(axes[0], "traffic, large query", "", "of optimal")
        _label(axes[1], "staleness, 95th percentile", "", "% of the window")
        axes[0].legend()

    return fill


def caches(axes: Any, _: int) -> None:
    """Figures 3(a), 4(a) and 5: what caches hold over three windows."""
    given = edge("large", 4)
    line = SendQueue.steady(AMPLE * given.rate)
    for policy in ("uniform", "nonuniform", "pessimistic", "optimistic", "hybrid(0.25)"):
        run = Edge([given], Wire(line, 1.0), read(policy))
        run.run()
        (stream,) = run.streams
        at = np.concatenate([w + stream.ticks / given.length for w in range(4)])
        axes[0].plot(at, stream.cache.ravel(), label=policy, lw=1)
    axes[0].set_xlim(1, 4)
    _label(axes[0], "large query, capacity 5", "window", "updates held")
    axes[0].legend(fontsize=7)


def by_edges(axes: Any, windows: int) -> None:
    """Figures 6 to 8."""
    cases = (
        ("large", 1, False),
        ("small", 3, False),
        ("medium", 3, False),
        ("large", 3, False),
        ("large", 6, False),
    )
    places = np.arange(len(cases))
    for n, policy in enumerate(_FOUR):
        made = [edges(s, count, high, policy, min(windows, 6)) for s, count, high in cases]
        axes[0].bar(places + 0.16 * (n - 2), [o.ratio(SKIP) for o in made], 0.15, label=policy)
        axes[1].bar(places + 0.16 * (n - 2), [100 * o.stale(SKIP) for o in made], 0.15)
    axes[0].set_ylim(0.9, 4)
    for one in axes:
        one.set_xticks(places, [f"{s}\n{count} edges" for s, count, _ in cases])
    _label(axes[0], "traffic (streaming is cut off)", "", "of optimal")
    _label(axes[1], "staleness, mean", "", "% of the window")
    axes[0].legend(fontsize=7)


def by_alpha(axes: Any, windows: int) -> None:
    """Figure 9: the share of laziness, when bandwidth is known and when it is over-predicted."""
    given = edge("large", windows)
    line = SendQueue.steady(AMPLE * given.rate)
    alphas = np.linspace(0, 1, 9)
    for wrong, name in ((1.0, "bandwidth known"), (2.0, "over-predicted by 100 %")):
        made = [done(given, line, f"hybrid({a:g})", believed=wrong) for a in alphas]
        axes[0].plot(alphas, [o.ratio(SKIP) for o in made], "o-", label=name)
        axes[1].plot(alphas, [100 * o.stale(SKIP) for o in made], "o-", label=name)
    axes[0].axhline(1.06, color="k", ls=":", label="paper, alpha 0.25: 1.06")
    axes[1].axhline(0.19, color="k", ls=":", label="paper, alpha 0.25, over-predicted: 0.19")
    axes[1].set_yscale("log")
    _label(axes[0], "traffic, large query", "alpha", "of optimal")
    _label(axes[1], "staleness, mean", "alpha", "% of the window")
    for one in axes:
        one.legend(fontsize=7)


def by_capacity(axes: Any, windows: int) -> None:
    """Figure 10."""
    steps = capacities()
    for policy in _FOUR:
        made = [narrow(policy, times, min(windows, 6)) for times in steps]
        axes[0].plot(steps, [o.ratio(SKIP) for o in made], "o-", label=policy)
        late = [100 * max(o.stale(SKIP), 1e-6) for o in made]
        axes[1].plot(steps, late, "o-", label=policy)
    for one in axes:
        one.set_xscale("log")
    axes[1].set_yscale("log")
    _label(axes[0], "traffic, large query", "capacity over the optimum's need", "of optimal")
    _label(axes[1], "staleness, mean", "capacity over the optimum's need", "% of the window")
    axes[0].legend()


def by_hops(axes: Any, windows: int) -> None:
    """Figure 11."""
    parts = [1, 2, 4, 8, 16]
    for policy in _FOUR:
        made = [hops(policy, n, min(windows, 4)) for n in parts]
        every = [hops("streaming", n, min(windows, 4)).traffic.sum() for n in parts]
        axes[0].plot(
            parts,
            [o.traffic.sum() / s for o, s in zip(made, every, strict=True)],
            "o-",
            label=policy,
        )
        late = [100 * max(o.stale(SKIP), 1e-7) / n for o, n in zip(made, parts, strict=True)]
        axes[1].plot(parts, late, "o-")
    axes[1].set_yscale("log")
    _label(axes[0], "traffic, large query, capacity 2.1", "W / H", "of streaming's")
    _label(axes[1], "staleness, mean", "W / H", "% of the window")
    axes[0].legend(fontsize=7)
