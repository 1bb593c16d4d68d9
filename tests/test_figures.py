"""Figures in documents are those of recorded runs, and nobody wrote one by hand."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from benchmarks import SUITES, records
from benchmarks.figure import Figure
from benchmarks.records import Machine, Record
from benchmarks.tables import CHOSEN, DOCUMENTS, chosen, filled, main
from catchment.errors import CatchmentError

ROOT = Path(__file__).resolve().parent.parent
PLACE = re.compile(r"^<!-- (?:all )?figures: (\w+) -->$", re.MULTILINE)
RECORDS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))

FIGURES = [
    Figure("speed", 0.42441, "of one pass", 0.25, True, "a million events"),
    Figure("rows", 1_694_832_123.0, "rows", None, None),
    Figure("a | b", 19.95, "times", 20.0, False),
]
MACHINE = Machine(2, 24, "3.11.7", "4.3.0")
RECORD = Record("tree", False, "abc1234", date(2026, 11, 17), MACHINE, FIGURES)


def place(kind: str, between: str = "") -> str:
    return f"Before.\n\n<!-- {kind}: tree -->\n{between}<!-- end -->\n\nAfter.\n"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_show_what_is_recorded(document: str) -> None:
    text = (ROOT / document).read_text()
    assert filled(text) == text, "run `make tables`"


def test_every_suite_has_a_place() -> None:
    places = PLACE.findall((ROOT / "docs" / "figures.md").read_text())
    assert sorted(places) == sorted(SUITES)


def test_the_readme_has_six_figures_of_recorded_runs() -> None:
    assert len(CHOSEN) == 6 and "not recorded" not in chosen(records.read)


def test_chosen_figures_name_their_run() -> None:
    made = chosen(lambda suite: RECORD, [("tree", "speed"), ("tree", "nothing")])
    assert "| speed | 0.4244 of one pass | `tree`, 2026-11-17, commit abc1234 |" in made
    assert "| nothing | not recorded | tree |" in made


def test_every_document_with_figures_is_known() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    having = {
        path
        for path in documents
        if re.search(r"^<!-- .*figures(: .*)? -->$", path.read_text(), re.MULTILINE)
    }
    assert having == {ROOT / name for name in DOCUMENTS}


def test_no_figure_is_written_by_hand() -> None:
    """What may be told in the README's words is what a benchmark does, not what it found."""
    (section,) = re.findall(
        r"^## Measured\n(.*?)^## ", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    told = re.sub(r"^<!-- chosen.*?<!-- end -->$", "", section, flags=re.MULTILINE | re.DOTALL)
    told = re.sub(r"`[^`]*`", "", told)
    assert not re.findall(r"\d+\.\d+|\d+ times|\d+ ?%", told)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_records_are_sound(path: Path) -> None:
    suite = path.stem.removesuffix("-quick")
    assert suite in SUITES
    if suite == path.stem:
        record = records.read(suite)
        assert record is not None and record.figures
        assert all((one.bar is None) == (one.ok is None) for one in record.figures)
        assert len({one.name for one in record.figures}) == len(record.figures)
    assert not re.search(r"""["'\s(]/\w+/""", path.read_text()), "no path of a machine"


def test_figures_with_a_bar_are_a_table() -> None:
    assert filled(place("figures", "old\n"), lambda suite: RECORD) == place(
        "figures",
        """
Measured by `catchment bench tree` on 2026-11-17, commit abc1234, 2 cores, 24 GiB, Python 3.11.7, \
Spark 4.3.0. 1 figure misses its bar.

| figure | measured | bar |
|---|---|---|
| speed | 0.4244 of one pass | 0.25 |
| a &#124; b | 19.95 times | 20, missed |

""",
    )


def test_all_figures_are_a_table_that_says_how() -> None:
    *_, first, second, third = filled(place("all figures"), lambda suite: RECORD).splitlines()[:-4]
    assert first == "| speed | 0.4244 of one pass | 0.25 | a million events |"
    assert second == "| rows | 1,695,000,000 rows |  |  |"
    assert third == "| a &#124; b | 19.95 times | 20, missed |  |"


def test_a_suite_without_a_record_says_so() -> None:
    words = "\nNot recorded yet: run `catchment bench tree --record`.\n\n"
    assert filled(place("figures"), lambda suite: None) == place("figures", words)


def test_to_fill_twice_changes_nothing() -> None:
    once = filled(place("figures") + place("all figures"), lambda suite: RECORD)
    assert filled(once, lambda suite: RECORD) == once


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("<!-- figures: tre -->\n<!-- end -->\n", "no such suite .*tree"),
        ("<!-- figures: tree -->\n", "the place for figures has no end"),
        ("<!-- figures: tree -->\n" + place("figures"), "the place for figures has no end"),
    ],
)
def test_a_place_that_is_none_is_refused(text: str, what: str) -> None:
    with pytest.raises(CatchmentError, match=what):
        filled(text, lambda suite: RECORD)


def test_documents_are_brought_up_to_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.tables.ROOT", tmp_path)
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    (tmp_path / "a.md").write_text(place("figures"))
    main(["a.md"])
    assert capsys.readouterr().out == "wrote a.md\n"
    records.write(RECORD)
    main(["a.md"])
    assert "| speed |" in (tmp_path / "a.md").read_text()
    capsys.readouterr()
    main(["a.md"])
    assert capsys.readouterr().out == ""
