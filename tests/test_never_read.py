"""Rows that a source has and that nobody reads: they are counted, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catchment.durable.folder import Folder
from catchment.errors import SourceError
from catchment.sources.arrow_file import ArrowFile
from catchment.sources.base import NeverRead, abridged
from catchment.sources.csv_file import Csv
from catchment.sources.json_lines import JsonLines
from catchment.sources.parquet_file import Parquet
from catchment.sources.watch import SourceNote, SourceWatch
from source_reading import aged, events, opened, put, read_all


def text(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def csv(tmp_path: Path, **options: Any) -> Any:
    return opened(Csv(path=str(tmp_path / "in"), settle="0s", **options), tmp_path / "home")


def test_lines_appended_after_a_file_was_read(tmp_path: Path) -> None:
    path = text(tmp_path / "in/a.csv", b"v\n1\n2\n")
    source = csv(tmp_path, schema={"v": "int"})
    assert read_all(source)[0].num_rows == 2 and source.never_read() == []
    with path.open("ab") as file:
        file.write(b"3\n4\n5")
    wanted = NeverRead(str(path), "5 bytes came after the file was read", 5, 3)
    assert source.never_read() == [wanted]
    again = csv(tmp_path, schema={"v": "int"})  # after a restart it is still known
    assert again.never_read() == [wanted]
    with path.open("ab") as file:
        file.write(b"6\n")
    assert source.never_read() == [
        NeverRead(str(path), "7 bytes came after the file was read", 7, 3)
    ]
    path.unlink()
    assert source.never_read() == []


@pytest.mark.parametrize(("kind", "ending"), [(Parquet, "parquet"), (ArrowFile, "arrow")])
def test_a_file_written_anew_after_it_was_read(tmp_path: Path, kind: Any, ending: str) -> None:
    path = put(tmp_path / f"in/a.{ending}", events(1, 2))
    source = opened(kind(path=str(tmp_path / "in")), tmp_path / "home")
    read_all(source)
    put(path, events(1, 2, 3, 4))
    (found,) = source.never_read()
    assert found.rows == 4 and found.reason == "the file was written anew after it was read"
    assert not found.waiting


def test_a_file_written_anew_with_the_same_size(tmp_path: Path) -> None:
    path = text(tmp_path / "in/a.csv", b"v\n1\n2\n")
    aged(path, 10)
    source = csv(tmp_path, schema={"v": "int"})
    read_all(source)
    path.write_bytes(b"v\n8\n9\n")
    (found,) = source.never_read()
    assert (found.rows, found.nbytes) == (2, 6)


def test_a_file_that_lacks_a_column(tmp_path: Path) -> None:
    text(tmp_path / "in/a.csv", b"v,w\n1,1\n")
    lacking = text(tmp_path / "in/b.csv", b"v\n1\n2\n3\n")
    source = csv(tmp_path, schema={"v": "int", "w": "int"})
    assert read_all(source)[0].num_rows == 1
    (found,) = source.never_read()
    assert found == NeverRead(str(lacking), "it has no column 'w'", 8, 3, waiting=True)
    lacking.write_bytes(b"v,w\n1,2\n")
    source.bound(source.start())
    assert source.never_read() == []


def test_a_parquet_file_that_lacks_a_column(tmp_path: Path) -> None:
    put(tmp_path / "in/a.parquet", events(1, 2))
    put(tmp_path / "in/b.parquet", events(1, 2, 3).drop_columns(["n"]))
    source = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    source.bound(source.start())
    (found,) = source.never_read()
    assert found.rows == 3 and found.waiting and "no column 'n'" in found.reason


def test_many_files_are_told_in_one_line() -> None:
    found = abridged(NeverRead(f"{n:04d}", "why", 10, 2) for n in range(150))
    assert len(found) == 101 and found[-1].rows == 100 and found[-1].nbytes == 500
    assert found[-1].reason == "and 50 others, for reasons such as: why"
    unknown = abridged(
        NeverRead(f"{n:04d}", "why", 10, None if n == 149 else 2) for n in range(150)
    )
    assert unknown[-1].rows is None


def test_what_the_planner_sees_is_written_down(tmp_path: Path) -> None:
    text(tmp_path / "in/a.jsonl", b'{"v": 1}\n')
    source: Any = JsonLines(path=str(tmp_path / "in"), schema={"v": "int"}, settle="0s")
    source = opened(source, tmp_path / "home")
    read_all(source)
    with (tmp_path / "in/a.jsonl").open("ab") as file:
        file.write(b'{"v": 2}\n')
    home = Folder(str(tmp_path / "home"))
    watch = SourceWatch(home, source)
    watch.look(last=False)
    note = SourceNote.load(home)
    assert [one.rows for one in note.never_read] == [1]
    assert [(one.name, one.used) for one in note.limits] == [("files known as read", 1)]
    with (tmp_path / "in/a.jsonl").open("ab") as file:
        file.write(b'{"v": 3}\n')
    watch.look(last=False)  # not so soon
    assert SourceNote.load(home) == note
    watch.look(last=True)
    assert [one.rows for one in SourceNote.load(home).never_read] == [2]


def test_names_of_files_are_bounded(tmp_path: Path) -> None:
    source = csv(tmp_path, schema={"v": "int"}, max_known_files=2)
    for name in "abc":
        text(tmp_path / f"in/{name}.csv", b"v\n1\n")
    with pytest.raises(
        SourceError, match=r"more files were read than can be remembered \(given: 3"
    ):
        source.bound(source.start())
    (tmp_path / "in/c.csv").unlink()
    position = source.bound(source.start())
    (tmp_path / "in/a.csv").unlink()
    text(tmp_path / "in/d.csv", b"v\n1\n")  # the name of one that is gone makes room
    assert source.latest(position) == {"n": position["n"] + 1}
