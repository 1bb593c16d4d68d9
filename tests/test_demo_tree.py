"""The demo of a tree: it ends by itself, with every event counted, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from catchment.cli import demo_tree
from catchment.cli.main import app


@pytest.mark.slow
def test_a_site_is_killed_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(demo_tree, "RATE", 1000)
    done = CliRunner().invoke(app, ["demo-tree", "--seconds", "6", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["events"] == found["counted"] == 3 * 6 * 1000
    assert found["incomplete"] == 0 and found["away"] > 0
    assert [link["name"] for link in found["links"]] == [
        "hub to root",
        "north to hub",
        "south to hub",
        "east to root",
    ]
    assert all(link["up"] and link["down"] for link in found["links"])
    assert not [*tmp_path.iterdir()]


def test_what_a_person_reads(capsys: pytest.CaptureFixture[str]) -> None:
    links = [demo_tree.LinkCost("north to hub", 900, 100, 100_000.0)]
    demo_tree.show(
        demo_tree.TreeDemoOutcome(
            seconds=61.0,
            away=10.0,
            events=1200,
            counted=1200,
            results={"speed": 40},
            revised=5,
            links=links,
        )
    )
    said = capsys.readouterr().out
    assert "1.00%" in said and "each counted once" in said
    assert "away for 10 s: 5 results came without it in time" in said
    assert "40 results, all of them complete" in said


def test_what_is_missing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    demo_tree.show(demo_tree.TreeDemoOutcome(events=1200, counted=1000, incomplete=2))
    said = capsys.readouterr().out
    assert "1,000 of them counted once" in said and "2 are not" in said
