"""What notebooks show: HTML in which nothing of the data is markup, and plots."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import pyarrow as pa
import pytest

import catchment as ct
from catchment import html
from catchment.spark.handle import Status
from patience import PATIENCE

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))

mpl.use("agg")

EVENTS = pa.table(
    {
        "ts": pa.array([1, 2, 3, 11, 12, 25], pa.timestamp("s")),
        "player": ["<b>ann", "bob", "<b>ann", "bob", "<b>ann", None],
        "v": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    }
)
MEAN = ct.Query("mean <1>", ct.avg("v").alias("mean"), by="player", window=ct.tumbling("10s"))
SUMS = ct.Query("sums", ct.sum("v").alias("s"), ct.count().alias("n"), window=ct.tumbling("10s"))


@pytest.fixture
def results() -> Any:
    return ct.run(EVENTS, [MEAN, SUMS], spark=False)


def test_results_show_rows_and_counts(results: Any) -> None:
    shown = results._repr_html_()
    assert "mean &lt;1&gt;" in shown and "&lt;b&gt;ann" in shown and "<b>" not in shown
    assert "2 queries, 8 rows" in shown and "accepted" in shown


def test_engine_results_plans_and_queries_show_themselves() -> None:
    engine = ct.Engine([MEAN, SUMS])
    engine.push(EVENTS)
    shown = engine.close()._repr_html_()
    assert "2 queries with results" in shown and "<b>" not in shown
    plan = ct.plan([MEAN, SUMS])
    assert plan._repr_html_().startswith("<pre>Plan version 1") and "<1>" not in plan._repr_html_()
    assert "over tumbling(10s)" in MEAN._repr_html_()


def test_a_job_shows_no_secret() -> None:
    sink = {"type": "postgres", "dsn": "postgresql://me:secret@db/x"}
    query = {"name": "n", "select": ["count(*)"], "window": "tumbling(1s)"}
    job = ct.load_job({"queries": [query], "sinks": [sink], "name": "a<b"})
    shown = job._repr_html_()
    assert "postgres" in shown and "secret" not in shown and "a&lt;b" in shown


def test_a_status_shows_its_error() -> None:
    status = Status("failed", "j", events=1200, error="it <broke>")
    assert "it &lt;broke&gt;" in status._repr_html_() and "1,200" in status._repr_html_()


def test_long_tables_are_cut() -> None:
    table = pa.table({"n": list(range(100))})
    assert "and 90 more rows" in html.arrow_table(table)


def test_a_display_changes_in_place_in_a_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[str, Any]] = []

    def display(shown: Any, display_id: bool) -> Any:
        calls.append(("display", shown))
        return SimpleNamespace(update=lambda again: calls.append(("update", again)))

    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    shown = html.Display()
    shown.update(1)
    shown.update(2)
    assert calls == [("display", 1), ("update", 2)]
    monkeypatch.delitem(sys.modules, "ipykernel")
    html.Display().update("a line")
    assert capsys.readouterr().out == "a line\n"


def test_explain_takes_queries() -> None:
    assert ct.explain([MEAN, SUMS]) == ct.explain(ct.plan([MEAN, SUMS]))
    assert "1 queries" in ct.explain(MEAN)


def test_a_notebook_shows_the_lines_of_an_explanation() -> None:
    found = ct.explain([ct.Query("<b>", ct.avg("v"), window=ct.tumbling("1s"))])
    shown = found._repr_html_()
    assert shown.startswith("<pre>Plan version") and shown.count("\n") == found.count("\n") > 3
    assert "&lt;b&gt;" in shown and "<b>" not in shown


class TestPlots:
    def test_a_line_for_each_key(self, results: Any) -> None:
        axes = results.plot("mean <1>")
        drawn = {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}
        assert drawn == {"<b>ann": [2.0, 5.0], "bob": [2.0, 4.0], "null": [6.0]}
        assert axes.get_title() == "mean <1>"
        assert results.plot("mean <1>", keys=1).get_lines()[0].get_label() == "<b>ann"

    def test_a_line_for_each_value(self, results: Any) -> None:
        both = results.plot("sums")
        assert [line.get_label() for line in both.get_lines()] == ["s", "n"]
        one = results.plot("sums", "n", ax=both)
        assert one is both and len(both.get_lines()) == 3

    def test_what_cannot_be_drawn(self, results: Any) -> None:
        with pytest.raises(ct.QueryError, match="which query"):
            results.plot()
        with pytest.raises(ct.QueryError, match=r"no such number among the results .*'s'"):
            results.plot("sums", "ss")
        texts = ct.Query("t", ct.first("player").alias("f"), window=ct.tumbling("10s"))
        with pytest.raises(ct.QueryError, match="no number to draw"):
            ct.run(EVENTS, texts, spark=False).plot()


def test_there_are_three_notebooks() -> None:
    assert len(NOTEBOOKS) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code and all(cell["outputs"] == [] for cell in code)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=PATIENCE,
        startup_timeout=PATIENCE,
        kernel_name="python3",
        resources={"metadata": {"path": tmp_path}},
    )
    client.execute()
    shown = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "text/html" in output.get("data", {})
    ]
    assert shown, "nothing was shown"
