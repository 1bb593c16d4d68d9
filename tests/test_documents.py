"""What the documents for contributors say of the code: files, classes, tests and layers exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from test_layers import LAYERS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "catchment"
INTERNALS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/internals/*.md"))
DOCUMENTS = ("ARCHITECTURE.md", "CONTRIBUTING.md", "GLOSSARY.md", *INTERNALS)
EXAMPLES = (
    "windows/hopping.py",
    "operators/power.py",
    "functions/halves.py",
    "sources/ticker.py",
    "sinks/pager.py",
    "flush/policies/half.py",
)
"""Files that CONTRIBUTING.md invents, to show where new ones go."""


def quoted(document: str) -> list[str]:
    """What a document has in backquotes, outside of code blocks."""
    text = re.sub(r"```.*?```", "", (ROOT / document).read_text(), flags=re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_and_tests_exist(document: str) -> None:
    for name in quoted(document):
        found = re.fullmatch(r"([\w/]+\.py)(?:::(\w+))?", name)
        if found is None or name in EXAMPLES:
            continue
        file, test = found.groups()
        paths = [ROOT / file, PACKAGE / file, ROOT / "tests" / file, *PACKAGE.rglob(file)]
        there = [path for path in paths if path.exists()]
        assert there, name
        assert test is None or f"def {test}(" in there[0].read_text(), name


@pytest.mark.parametrize("document", DOCUMENTS)
def test_classes_exist(document: str) -> None:
    code = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    known = set(re.findall(r"\w+", code))
    camel = {
        word
        for name in quoted(document)
        if not name.startswith("from ")
        for word in re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", name)
    }
    assert camel - known == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_within_a_document_lead_to_its_headings(document: str) -> None:
    text = (ROOT / document).read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = [re.sub(r"[^\w\- ]", "", one).lower().replace(" ", "-") for one in headings]
    assert len(anchors) == len(set(anchors)), "two headings are the same"
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= set(anchors)


def test_the_table_of_packages_is_the_order_of_layers() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.split("## The packages, in layers")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    told = tuple(tuple(name.strip("/") for name in re.findall(r"`([\w/]+)`", row)) for row in rows)
    assert told == LAYERS


def test_the_architecture_is_read_in_half_an_hour() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().split()) < 6000


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_pages_for_contributors_are_linked(document: str) -> None:
    linked = set(re.findall(r"\]\((docs/internals/[^)#]+)", (ROOT / document).read_text()))
    assert linked >= set(INTERNALS)
