"""Plots of what count windows cost: `python -m catchment.bench.count_plots FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from catchment.bench.count_cell import correctness, ground, run
from catchment.bench.count_load import Load

CHANGES = (0.001, 0.01, 0.05, 0.1, 0.5, 1.0)
WINDOW, WINDOWS = 10_000, 40
LINES = (
    ("async", "pace"), ("sync", "pace"), ("async", "last"), ("sync", "last"), ("monitor", "pace"),
    ("auto", "pace"),
)  # fmt: skip


def draw(folder: Path) -> list[Path]:
    """Corrections, right events and bytes over the change of rates, and bytes over nodes."""
    folder.mkdir(parents=True, exist_ok=True)
    loads = {change: Load(2, WINDOW, change, WINDOWS) for change in CHANGES}
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
    return [
        _plot(folder / "corrections.png", percent, fixes, x, f"corrections of 100 edges, {where}"),
        _plot(folder / "bytes.png", percent, share, x, f"bytes, % of central's, {where}", True),
        _plot(folder / "correctness.png", percent, right, x, f"events put right, %, {where}"),
    ]


def _name(line: tuple[str, str]) -> str:
    scheme, predictor = line
    return f"{scheme}, predicted as in the paper" if predictor == "last" else scheme


def _plot(
    path: Path, x: list[float], lines: dict[str, list[float]], label: str, title: str,
    logarithmic: bool = False,
) -> Path:  # fmt: skip
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.6), dpi=90)
    for name, values in lines.items():
        axes.plot(x, values, marker="o", markersize=3, label=name)
    _dress(axes, label, title, logarithmic)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)
    return path


def _dress(axes: Any, label: str, title: str, logarithmic: bool) -> None:
    axes.set_xscale("log")
    if logarithmic:
        axes.set_yscale("log")
    axes.set_xlabel(label)
    axes.set_title(title, fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


if __name__ == "__main__":
    for path in draw(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/count")):
        sys.stdout.write(f"{path}\n")
