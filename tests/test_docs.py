"""What the documents show, runs."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

import catchment as ct
from catchment.expression import FUNCTION_NAMES
from catchment.functions import names
from catchment.windows import BUILDERS

ROOT = Path(__file__).parent.parent


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    scope: dict[str, object] = {}
    exec(block, scope)
    printed = capsys.readouterr().out
    assert "mean" in printed and "group 0: by player" in printed


def test_the_example_job_runs() -> None:
    job = ct.load_job(ROOT / "examples" / "job.yaml")
    engine = ct.Engine(job.build(), **job.engine_options())
    assert "between(event = 'start', event = 'end')" in engine.explain()


def test_the_readme_names_every_window_and_function() -> None:
    text = (ROOT / "README.md").read_text()
    for builder in BUILDERS.registered():
        assert f"`{builder}(" in text, builder
    for name in ("sum", "stddev_pop", "approx_count_distinct", "geometric_mean"):
        assert name in names() and name in text


EVENTS = pa.table(
    {
        "ts": pa.array([1_000_000, 2_000_000, 63_000_000], pa.timestamp("us", "UTC")),
        "site": ["a", "a", "b"],
        "kind": ["x", None, "y"],
        "a": [1, 2, 3],
        "b": [2, 4, 0],
        "v": [1.0, 3.5, 2.0],
    }
)


def _blocks(language: str) -> list[str]:
    text = (ROOT / "docs" / "sql.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("text", _blocks("sql"))
def test_every_statement_of_the_sql_reference_runs(text: str) -> None:
    assert ct.run(EVENTS, ct.sql(text, "q"), spark=False)["q"].num_rows


def test_python_and_yaml_of_the_sql_reference_say_the_same() -> None:
    (python,), (yaml,) = _blocks("python"), _blocks("yaml")
    scope: dict[str, object] = {"ct": ct}
    exec(python, scope)
    job = ct.load_job(f"queries:\n{yaml}")
    assert job.build() == [scope["query"]]
    assert ct.run(EVENTS, job.build(), spark=False)["ratios"].num_rows == 1


def test_the_sql_reference_names_every_function_of_expressions() -> None:
    text = (ROOT / "docs" / "sql.md").read_text()
    for name in FUNCTION_NAMES:
        assert re.search(rf"[` \n]{name}[` \n]", text), name


def test_the_glossary_is_in_order() -> None:
    rows = re.findall(r"^\| ([a-z, ]+) \|", (ROOT / "GLOSSARY.md").read_text(), re.MULTILINE)[1:]
    words = [row.split(",")[0].strip() for row in rows if row.strip() != "word"]
    assert words == sorted(words)


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_that_documents_name_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    for path in re.findall(r"`((?:src|tests|examples|engine|planner|model)/[\w/.]+\.\w+)`", text):
        found = [ROOT / path, ROOT / "src" / "catchment" / path]
        assert any(place.exists() for place in found), path
