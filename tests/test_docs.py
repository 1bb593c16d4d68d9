"""What the documents show, runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import catchment as ct
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
