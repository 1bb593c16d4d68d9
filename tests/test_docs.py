"""What the documents show, runs: Python, SQL, YAML and commands; links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
import typer
import yaml

import catchment as ct
from catchment.cli.main import app
from catchment.expression import FUNCTION_NAMES
from catchment.flush import read as read_flush
from catchment.functions import names
from catchment.windows import BUILDERS

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")]
)
MADE = {"python.md", "job-file.md", "commands.md", "metrics.md"}


def script(name: str) -> ModuleType:
    """A program in scripts/."""
    found = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


PYTHON = [path for path in DOCUMENTS if blocks(path, "python") and path.name != "sql.md"]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            id=shown(path),
            marks=[pytest.mark.spark, pytest.mark.slow] if "session(" in path.read_text() else [],
        )
        for path in PYTHON
        if path.name not in ("CONTRIBUTING.md", "ARCHITECTURE.md")
    ],
)
def test_python_of_the_documents_runs(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    if request.node.get_closest_marker("spark") is not None:
        request.getfixturevalue("spark")  # the session that the document then gets
    scope: dict[str, object] = {}
    for block in blocks(path, "python"):
        exec(block, scope)
    assert capsys.readouterr().out


YAML = [
    pytest.param(block, id=f"{shown(path)}-{number}")
    for path in DOCUMENTS
    for number, block in enumerate(blocks(path, "yaml"))
    if path.name not in ("sql.md", "security.md", "CONTRIBUTING.md", "kit.md")
]


@pytest.mark.parametrize("text", YAML)
def test_job_files_of_the_documents_are_sound(text: str) -> None:
    data = yaml.safe_load(text)
    if set(data) == {"flush"}:
        priorities = data["flush"].get("priorities", {}) if isinstance(data["flush"], dict) else {}
        query = {"select": ["count(*)"], "window": "tumbling(1s)"}
        names = [*priorities, "other"]
        data |= {"queries": [query | {"name": name} for name in names]}
        assert read_flush(data["flush"]) is not None
    assert ct.load_job(data).build()


def commands(text: str) -> list[list[str]]:
    """The commands of ours that a document shows, without what shells would do."""
    found = []
    for line in re.findall(r"^ {4,}(catchment .*)$", text, re.MULTILINE):
        for part in re.split(r"[;&|]+", line.partition("  #")[0]):
            words = shlex.split(part, comments=True)
            if words and words[0] == "catchment":
                found.append(words[1:])
    return found


def wrong_in(words: list[str]) -> str | None:
    """What is wrong with a command; None: nothing."""
    command: Any = typer.main.get_command(app)
    words = list(words)
    while hasattr(command, "commands"):
        if not words or words[0].startswith("--"):
            known = {name for param in command.params for name in param.opts} | {"--help"}
            known |= {"--install-completion", "--show-completion"}
            return None if not words or words[0] in known else f"no such option {words[0]}"
        if words[0] not in command.commands:
            return f"no such command {words[0]}"
        command = command.commands[words.pop(0)]
    known = {name for param in command.params for name in param.opts} | {"--help"}
    return next(
        (f"no such option {word}" for word in words if word[:2] == "--" and word not in known), None
    )


@pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
def test_commands_that_documents_show_exist(path: Path) -> None:
    for words in commands(path.read_text()):
        assert wrong_in(words) is None, f"catchment {' '.join(words)}: {wrong_in(words)}"


def test_a_command_that_does_not_exist_is_found() -> None:
    (first, second, third) = commands(
        "    catchment rn x; catchment run --uii\n    catchment run a --ui  # --x\n"
    )
    assert wrong_in(first) and wrong_in(second) and not wrong_in(third)


def places(path: Path) -> set[str]:
    """The headings of a document, as links name them."""
    heads = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads]
    return set(plain)


@pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" in target:
            continue
        name, _, place = target.partition("#")
        found = (path.parent / name).resolve() if name else path
        assert found.exists(), target
        if place and found.suffix == ".md":
            assert place in places(found), target


@pytest.mark.parametrize("name", sorted(MADE))
def test_the_reference_is_as_the_code_says(name: str) -> None:
    made = script("reference").page(name)
    assert (ROOT / "docs" / "reference" / name).read_text() == made, "run `make reference`"


class TestSite:
    def test_every_page_is_in_the_menu(self) -> None:
        nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
        listed = set(re.findall(r"[\w/.-]+\.md", str(nav)))
        docs = {
            path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")
        }
        assert listed == docs | set(script("site").TOP)

    def test_links_are_fitted_to_one_folder(self) -> None:
        site = script("site")
        text = "[a](../ARCHITECTURE.md#x) [b](docs/sql.md) [c](../examples/README.md) ![d](e.png)"
        assert site.fitted(text, Path("x.md")) == "[a](ARCHITECTURE.md#x) [b](sql.md) c ![d](e.png)"
        deep = site.fitted("[a](../../ARCHITECTURE.md) [b](../sql.md)", Path("tutorials/x.md"))
        assert deep == "[a](../ARCHITECTURE.md) [b](../sql.md)"

    def test_broken_links_are_found(self, tmp_path: Path) -> None:
        site = script("site")
        site.SITE = tmp_path
        (tmp_path / "a.html").write_text(
            '<h1 id="here"></h1><a href="b.html"></a><a href="c.html#x"></a><a href="#here"></a>'
            '<img src="d.png"><a href="https://example.org/"></a>'
        )
        (tmp_path / "c.html").write_text('<h1 id="y"></h1>')
        assert list(site.broken()) == [
            "a.html: b.html",
            "a.html: c.html#x (no such place)",
            "a.html: d.png",
        ]


def test_the_reference_names_every_window_and_function() -> None:
    text = (ROOT / "docs" / "reference" / "python.md").read_text()
    for builder in BUILDERS.registered():
        assert f"### {builder}\n" in text, builder
    for name in ("sum", "stddev_pop", "approx_count_distinct", "geometric_mean"):
        assert name in names() and f"| `{name}(" in text


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
SQL = ROOT / "docs" / "sql.md"


@pytest.mark.parametrize("text", blocks(SQL, "sql"))
def test_every_statement_of_the_sql_reference_runs(text: str) -> None:
    assert ct.run(EVENTS, ct.sql(text, "q"), spark=False)["q"].num_rows


def test_python_and_yaml_of_the_sql_reference_say_the_same() -> None:
    (python,), yaml = blocks(SQL, "python"), blocks(SQL, "yaml")[-1]
    scope: dict[str, object] = {"ct": ct}
    exec(python, scope)
    job = ct.load_job(f"queries:\n{yaml}")
    assert job.build() == [scope["query"]]
    assert ct.run(EVENTS, job.build(), spark=False)["ratios"].num_rows == 1


def test_the_sql_reference_names_every_function_of_expressions() -> None:
    text = SQL.read_text()
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
