"""Writes recorded figures into documents: `python -m benchmarks.tables`, or `make tables`.

A document says where a suite's figures belong by a pair of comments. What is between them is
written here and nowhere else:

    <!-- figures: tree -->           figures that have a bar
    <!-- end -->
    <!-- all figures: tree -->       all of them
    <!-- end -->
    <!-- chosen figures -->          a few of several suites, for those who have a minute
    <!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import typer

from benchmarks import SUITES, records
from benchmarks.figure import Figure
from benchmarks.process import ROOT
from benchmarks.records import Record
from catchment.errors import CatchmentError, did_you_mean

DOCUMENTS = ("README.md", "docs/comparison.md", "docs/figures.md")
"""Those that have such comments."""
CHOSEN = (
    ("spark", "1000 windows, against Spark's one window"),
    ("spark", "sliding 20 s / 1 s"),
    ("spark", "streaming 1000 windows against Spark's 20"),
    ("spark", "seconds until a result is seen, median"),
    ("engine", "keyed average, 1000 windows, against one"),
    ("engine", "a million queries, planned"),
)
"""The figures that the README has: a suite, and a figure of it."""
_BEGIN = re.compile(r"^<!-- (?:(all )?figures: (.*)|chosen figures) -->$", re.MULTILINE)
_END = "<!-- end -->"

Find = Callable[[str], Record | None]
"""Gives the record of a suite, if there is one."""


def filled(text: str, find: Find = records.read) -> str:
    """A document with the figures of all its suites as they are recorded now."""
    parts, at = [], 0
    for begin in _BEGIN.finditer(text):
        suite = begin[2]
        if suite is not None and suite not in SUITES:
            raise CatchmentError("no such suite", given=suite, hint=did_you_mean(suite, SUITES))
        end = text.find(_END, begin.end())
        if end < 0 or _BEGIN.search(text, begin.end(), end):
            raise CatchmentError(
                "the place for figures has no end", given=begin[0], hint=f"write {_END} below it"
            )
        made = chosen(find) if suite is None else table_text(suite, find(suite), bool(begin[1]))
        parts += [text[at : begin.end()], "\n\n", made, "\n"]
        at = end
    return "".join([*parts, text[at:]])


def table_text(suite: str, record: Record | None, everything: bool) -> str:
    """What a document says of a suite: when and where it was measured, and a table."""
    if record is None:
        return f"Not recorded yet: run `catchment bench {suite} --record`.\n"
    figures = [one for one in record.figures if everything or one.bar is not None]
    missed = sum(one.ok is False for one in figures)
    heads = ["figure", "measured", "bar"]
    rows = [_cells(one) for one in figures]
    if everything and any(one.detail for one in figures):
        heads.append("how")
        rows = [[*row, one.detail] for row, one in zip(rows, figures, strict=True)]
    lines = [
        f"Measured by `catchment bench {suite}` on {_circumstances(record)}. {_counted(missed)}",
        "",
        _line(heads),
        f"|{'---|' * len(heads)}",
        *map(_line, rows),
    ]
    return "\n".join(lines) + "\n"


def chosen(find: Find, wanted: Iterable[tuple[str, str]] = CHOSEN) -> str:
    """A table of some figures, each with the run that it was recorded in."""
    rows = []
    for suite, name in wanted:
        record = find(suite)
        found = (
            None if record is None else next((f for f in record.figures if f.name == name), None)
        )
        if record is None or found is None:
            rows.append([name, "not recorded", suite])
        else:
            run = f"`{suite}`, {record.date}, commit {record.commit}"
            rows.append([name, _cells(found)[1], run])
    return (
        "\n".join([_line(["figure", "measured", "recorded"]), "|---|---|---|", *map(_line, rows)])
        + "\n"
    )


def _circumstances(record: Record) -> str:
    on = record.machine
    spark = f", Spark {on.spark}" if on.spark else ""
    return (
        f"{record.date}, commit {record.commit}, {on.cores} cores, {on.memory_gib} GiB, "
        f"Python {on.python}{spark}"
    )


def _counted(missed: int) -> str:
    if not missed:
        return "Every bar is reached."
    return f"{missed} figure{'s miss their bars' if missed > 1 else ' misses its bar'}."


def _cells(one: Figure) -> list[str]:
    bar = "" if one.bar is None else number(one.bar)
    missed = ", missed" if one.ok is False else ""
    return [one.name, f"{number(one.value)} {one.unit}".strip(), f"{bar}{missed}"]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def number(value: float) -> str:
    """Four digits of a number, written as people write numbers.

    >>> [number(each) for each in (0.42441, 60.0, 5606.3, 1.6948e9, 0.00017)]
    ['0.4244', '60', '5,606', '1,695,000,000', '0.00017']
    """
    short = f"{value:.4g}"
    return f"{float(short):,.0f}" if abs(float(short)) >= 1000 else short


def main(documents: Iterable[str] = DOCUMENTS) -> None:
    """Brings the documents up to the records, and says which of them that changed."""
    for name in documents:
        path = ROOT / name
        before = path.read_text()
        after = filled(before)
        if after != before:
            path.write_text(after)
            typer.echo(f"wrote {name}")


if __name__ == "__main__":
    main()
