"""The benchmark of count windows measures what it says: small loads, every scheme."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import count_plots
from benchmarks.count_cell import EXACT, correctness, ground, run
from benchmarks.count_load import Load, streams

SMALL = Load(3, 2_000, 0.2, 6)


@pytest.mark.parametrize("scheme", EXACT)
def test_a_cell_compares_every_window_with_one_node(scheme: str) -> None:
    outcome, _ = run(SMALL, scheme)
    assert outcome.exact == outcome.windows > 4
    assert 0 < outcome.nbytes < ground(SMALL).central


def test_the_approximation_puts_some_events_wrong() -> None:
    assert 0.5 < correctness(SMALL, "approx") < 1.0
    assert correctness(SMALL, "sync") == 1.0


@pytest.mark.parametrize("shape", ["unequal", "step", "burst", "silent"])
def test_loads_are_what_they_are_called(shape: str) -> None:
    counts = [len(s.times) for s in streams(Load(3, 2_000, 0.01, 6, shape)).values()]
    if shape == "silent":
        assert counts[-1] == 0
    elif shape == "unequal":
        assert counts[0] > 1.5 * counts[1] > 2 * counts[2]
    else:
        assert min(counts) > 0


@pytest.mark.slow
def test_plots_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_plots, "CHANGES", (0.01, 0.5))
    monkeypatch.setattr(count_plots, "WINDOW", 1_000)
    monkeypatch.setattr(count_plots, "WINDOWS", 5)
    pytest.importorskip("matplotlib")
    drawn = [path.read_bytes()[1:4] for path in count_plots.draw(tmp_path)]
    assert drawn == [b"PNG"] * 3
