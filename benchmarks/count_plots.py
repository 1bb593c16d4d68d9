"""Plots of what count windows cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.count_cell import correctness, ground, run
from benchmarks.count_load import Load
from catchment.cli.drawing import pyplot
from catchment.counting.scheme import Predictor

CHANGES = (0.001, 0.01, 0.05, 0.1, 0.5, 1.0)
WINDOW, WINDOWS = 10_000, 40
LINES: tuple[tuple[str, Predictor], ...] = (
    ("async", "pace"),
    ("sync", "pace"),
    ("async", "last"),
    ("sync", "last"),
    ("monitor", "pace"),
    ("auto", "pace"),
)


def draw(folder: Path, quick: bool = False) -> Iterator[Path]:
    """Corrections, right events and bytes over the change of rates, each into a file."""
    folder.mkdir(parents=True, exist_ok=True)
    windows = WINDOWS // 4 if quick else WINDOWS
    loads = {change: Load(2, WINDOW, change, windows) for change in CHANGES}
    found = {
        (line, change): run(load, *line)[0] for change, load in loads.items() for line in LINES
    }
    percent = [100 * change for change in CHANGES]
    predicted = [line for line in LINES if line[0] in ("async", "sync")]
    fixes = {_name(ln): [found[ln, c].corrections for c in CHANGES] for ln in predicted}
    share = {
        _name(line): [100 * found[line, c].nbytes / ground(loads[c]).central for c in CHANGES]
        for line in LINES
    }
    right = {
        scheme: [100 * correctness(load, scheme) for load in loads.values()]
        for scheme in ("approx", "async", "monitor")
    }
    x = "change of rates, %"
    where = f"2 nodes, windows of {WINDOW:,} events"
    yield _plot(folder / "corrections.png", percent, fixes, x, f"corrections of 100 edges, {where}")
    yield _plot(folder / "bytes.png", percent, share, x, f"bytes, % of central's, {where}", True)
    yield _plot(folder / "correctness.png", percent, right, x, f"events put right, %, {where}")


def _name(line: tuple[str, str]) -> str:
    scheme, predictor = line
    return f"{scheme}, predicted as in the paper" if predictor == "last" else scheme


def _plot(
    path: Path,
    x: list[float],
    lines: dict[str, list[float]],
    label: str,
    title: str,
    logarithmic: bool = False,
) -> Path:
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(6, 3.6), dpi=90)
    for name, values in lines.items():
        axes.plot(x, values, marker="o", markersize=3, label=name)
    _dress(axes, label, title, logarithmic)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)
    return path


def _dress(axes: Any, label: str, title: str, logarithmic: bool) -> None:
    axes.set_xscale("log")
    if logarithmic:
        axes.set_yscale("log")
    axes.set_xlabel(label)
    axes.set_title(title, fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
