"""Records of benchmarks: what is kept of a run, and what a quick or doubtful one may not do."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import records
from benchmarks.figure import Figure, at_least, plain
from catchment.cli.main import app
from catchment.errors import CatchmentError

FIGURES = [
    at_least("keyed average", 0.5, "of one pass", 0.25, "some events"),
    at_least("sessions", 0.1, "of one pass", 0.25, "some events"),
    plain("rows", 1_000_000, "rows", "all"),
]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of records, a commit, and a suite that measures nothing."""

    def run(suite: str, quick: bool, only: Sequence[str]) -> Iterator[Figure]:
        yield from FIGURES

    monkeypatch.setattr(records, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(records, "commit", lambda: "abc1234")
    monkeypatch.setattr("benchmarks.run", run)
    return tmp_path / "results"


def bench(*words: str, code: int) -> str:
    done = CliRunner().invoke(app, ["bench", "engine", *words])
    assert done.exit_code == code, done.output
    return done.stderr


def test_a_record_holds_the_figures_and_where_they_were_measured(results: Path) -> None:
    told = bench("--record", code=1)
    assert told == f"recorded in {results / 'engine.json'}\n"
    found = json.loads((results / "engine.json").read_text())
    assert found.pop("figures") == [
        {
            "figure": figure.name,
            "value": figure.value,
            "unit": figure.unit,
            "bar": figure.bar,
            "ok": figure.ok,
            "detail": figure.detail,
        }
        for figure in FIGURES
    ]
    machine = found.pop("machine")
    assert machine.keys() == {"cores", "memory_gib", "python", "spark"}
    assert machine["cores"] >= 1 and machine["memory_gib"] >= 1
    assert platform.node() not in json.dumps(machine) and "/" not in json.dumps(machine)
    today = datetime.now(UTC).date().isoformat()
    assert found == {"suite": "engine", "quick": False, "commit": "abc1234", "date": today}


def test_a_record_is_read_as_it_was_written(results: Path) -> None:
    record = records.made("engine", False, "abc1234", FIGURES)
    records.write(record)
    assert records.read("engine") == record
    assert records.read("tree") is None


def test_a_quick_run_leaves_the_record_of_a_full_one_alone(results: Path) -> None:
    bench("--record", code=1)
    before = (results / "engine.json").read_bytes()
    bench("--record", "--quick", code=1)
    assert (results / "engine.json").read_bytes() == before
    assert json.loads((results / "engine-quick.json").read_text())["quick"] is True


def test_nothing_is_recorded_unless_it_is_asked_for(results: Path) -> None:
    bench(code=1)
    assert not results.exists()


def test_a_run_that_fails_leaves_no_record(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(suite: str, quick: bool, only: Sequence[str]) -> Iterator[Figure]:
        yield FIGURES[0]
        raise CatchmentError("too few windows came")

    monkeypatch.setattr("benchmarks.run", run)
    bench("--record", code=1)
    assert not results.exists()


def test_plots_are_not_recorded(results: Path) -> None:
    told = bench("--record", "--plots", "somewhere", code=2)
    assert told == "catchment: --record and --plots exclude each other; leave out one\n"


def test_a_figure_that_is_no_number_is_refused() -> None:
    with pytest.raises(CatchmentError, match=r"no number is not recorded \(given: rows: inf\)"):
        records.made("engine", False, "abc1234", [plain("rows", float("inf"), "rows", "")])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"suite": "tree"}, r"not of what its name says \(given: engine.json: tree\)"),
        ({"quick": True}, r"given: engine.json: a quick run of engine\)"),
        ({"host": "example"}, r"cannot be read \(given: engine.json\); .*host"),
        ({"figures": [{"figure": "rows"}]}, r"cannot be read .*`value`"),
    ],
)
def test_a_record_that_is_not_one_is_refused(
    results: Path, change: dict[str, object], what: str
) -> None:
    path = records.write(records.made("engine", False, "abc1234", FIGURES))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CatchmentError, match=what):
        records.read("engine")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the layout of ours, that is measured."""
    for name in (
        "src/catchment/__init__.py",
        "benchmarks/__init__.py",
        "benchmarks/results/x.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "All"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(records, "ROOT", tmp_path)
    monkeypatch.setattr("catchment.__file__", str(tmp_path / "src" / "catchment" / "__init__.py"))
    return tmp_path


def test_a_commit_is_that_of_the_code(checkout: Path) -> None:
    words = ["git", "rev-parse", "--short", "HEAD"]
    head = subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=True).stdout
    (checkout / "benchmarks" / "results" / "x.json").write_text("{}")
    (checkout / "README.md").write_text("new figures")
    assert records.commit() == head.strip()
    (checkout / "src" / "catchment" / "faster.py").write_text("")
    assert records.commit() == f"{head.strip()} with changes"


def test_another_package_than_the_checkouts_is_not_recorded(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catchment.__file__", str(checkout / "site" / "catchment" / "__init__.py"))
    with pytest.raises(CatchmentError, match="is not the checkout's, so its commit is not known"):
        records.commit()


def test_without_git_no_commit_is_known(checkout: Path) -> None:
    (checkout / ".git").rename(checkout / "no-git")
    (checkout / ".git").write_text("gitdir: nowhere\n")
    with pytest.raises(CatchmentError, match="the commit that is measured is not known"):
        records.commit()
