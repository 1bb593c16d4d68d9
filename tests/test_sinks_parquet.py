"""Parquet files: whole or not there, the same each time, and one job to a folder."""

from __future__ import annotations

import json
import os
import random
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from pyarrow.dataset import dataset

from catchment.durable import store as store_module
from catchment.durable.folder import Folder
from catchment.errors import CatchmentError, SinkError
from catchment.sinks import parquet
from catchment.sinks.naming import folder_name
from catchment.sinks.parquet import ParquetSink
from catchment.sinks.place import FilePlace
from schedules import seed_range, share
from sink_rows import (
    BATCHES,
    ODD,
    QUERIES,
    ROWS,
    TYPES,
    Child,
    child_delivery,
    delivery,
    every_type,
    killed_and_repeated,
    rows,
)

LAYOUTS = ["per-query", "long"]


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*.parquet*"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_delivery_makes_the_same_files(tmp_path: Path, layout: str) -> None:
    sink = ParquetSink(path=str(tmp_path), layout=layout)
    sink.check()
    some = child_delivery("job", 3, 1)
    sink.write(some)
    before = files(tmp_path)
    sink.write(child_delivery("job", 3, 1))
    assert files(tmp_path) == before
    assert {name.rpartition("/")[2] for name in before} == {"000000003-1.parquet"}
    assert len(before) == (1 if layout == "long" else QUERIES)
    assert sink.read().num_rows == ROWS * QUERIES


def test_per_query_keeps_rows_and_types(tmp_path: Path) -> None:
    sink = ParquetSink(path=str(tmp_path))
    table = every_type()
    sink.write(delivery({"q": table}))
    assert sink.read("q").drop_columns("sum(v)").equals(table.drop_columns("sum(v)"))
    assert sink.read("other").num_columns == 0


def test_long_has_a_row_per_aggregate(tmp_path: Path) -> None:
    sink = ParquetSink(path=str(tmp_path), layout="long")
    sink.write(delivery({"q": every_type()}))
    table = sink.read("q")
    assert table.num_rows == 3 * (len(TYPES) + 1)
    found = {
        (row["key"], row["aggregate"]): (row["value"], row["text"]) for row in table.to_pylist()
    }
    first, second = '{"user":"a"}', '{"user":null}'
    assert found[first, "sum(v)"] == (1.0, None)
    assert found[first, "double"] == (0.1, None)
    assert found[first, "int8"] == (-128.0, None)
    assert found[first, "int64"] == (float(2**63), str(2**63 - 1))
    assert found[first, "decimal"] == (-1.25, '"-1.250"')
    numbers = {"int8", "uint16", "half", "float", "double", "nothing"}
    for name, (_, _, text) in TYPES.items():
        assert found[second, name] == (None, None)
        if name not in numbers:
            assert json.loads(found[first, name][1]) == text


@pytest.mark.parametrize("number", [2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1])
def test_long_keeps_integers_exact(tmp_path: Path, number: int) -> None:
    sink = ParquetSink(path=str(tmp_path), layout="long")
    sink.write(delivery({"q": rows(["a"], [number])}))
    row = sink.read("q").to_pylist()[0]
    assert number in (row["value"], int(row["text"] or 0))
    assert (row["text"] is None) == (abs(number) < 2**53)


def test_auto_is_long_when_the_job_has_many_queries(tmp_path: Path) -> None:
    sink = ParquetSink(path=str(tmp_path))
    some = delivery({"q": rows(["a"], [1])})
    sink.write(some)
    many = dict.fromkeys((f"q{n}" for n in range(100)), ("user",)) | some.keys
    sink.write(type(some)("job-abc", 1, 0, some.results, many))
    assert set(files(tmp_path)) == {"q/000000000-0.parquet", "000000001-0.parquet"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_newest_revision_counts(tmp_path: Path, layout: str) -> None:
    sink = ParquetSink(path=str(tmp_path), layout=layout)
    for batch, (revision, value) in enumerate([(0, 1), (2, 3), (1, 2)]):
        sink.write(delivery({"q": rows([None, "b"], [value, 0], revision=revision)}, batch))
    sink.write(delivery({"q": rows(["b"], [None], revision=3, retracted=True)}, 3))
    keys = ["user"] if layout == "per-query" else ["query", "key", "aggregate"]
    kept = sink.latest(sink.read("q"), keys).to_pylist()
    assert [row["sum(v)" if layout == "per-query" else "value"] for row in kept] == [3]
    assert sink.read("q").num_rows == 7


def test_columns_may_come_and_types_may_become_known(tmp_path: Path) -> None:
    sink = ParquetSink(path=str(tmp_path))
    sink.write(delivery({"q": rows(["a"], pa.nulls(1))}, 0))
    sink.write(delivery({"q": rows(["a"], [1.5], revision=1)}, 1))
    assert sink.read("q")["sum(v)"].to_pylist() == [None, 1.5]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_odd_names(tmp_path: Path, layout: str) -> None:
    sink = ParquetSink(path=str(tmp_path / "an odd % place"), layout=layout)
    sink.write(delivery({name: rows(["a"], [n]) for n, name in enumerate(ODD)}))
    for number, name in enumerate(ODD):
        table = sink.read(name)
        assert table["sum(v)" if layout == "per-query" else "value"].to_pylist() == [number]
    assert sorted(set(sink.read()["query"].to_pylist())) == sorted(ODD)
    assert len({folder_name(name * 30) for name in ODD}) == len(ODD)
    assert all(len(folder_name(name * 30)) < 255 for name in ODD)


def test_no_two_queries_share_a_folder(tmp_path: Path) -> None:
    """Not even where the file system ignores case, or the long layout has a file of that name."""
    names = ("Speed", "speed", "000000001-0.parquet", "a/b", "a@2fb", "x" * 300, "x" * 301)
    sink = ParquetSink(path=str(tmp_path))
    sink.write(delivery({name: rows(["a"], [n]) for n, name in enumerate(names)}))
    for number, name in enumerate(names):
        assert sink.read(name)["sum(v)"].to_pylist() == [number]
    assert len({path.name.casefold() for path in tmp_path.iterdir() if path.is_dir()}) == len(names)
    ParquetSink(path=str(tmp_path), layout="long").write(delivery({"q": rows(["a"], [9])}, 1))
    assert sink.read("q")["value"].to_pylist() == [9]


@pytest.mark.parametrize(("query", "folder"), [("Speed", "Speed"), ("a/b 5%", "a%2Fb 5%25")])
def test_folders_of_older_versions_are_read(tmp_path: Path, query: str, folder: str) -> None:
    sink = ParquetSink(path=str(tmp_path))
    sink.write(delivery({query: rows(["a"], [1])}))
    (tmp_path / folder_name(query)).rename(tmp_path / folder)
    sink.write(delivery({query: rows(["a"], [2])}, 1))
    sink.write(delivery({folder: rows(["a"], [4])}, 2))
    found = sink.read(query)["sum(v)"].to_pylist()
    assert sorted(found) == ([1, 2, 4] if folder == query else [1, 2])


def test_without_rows_nothing_is_written(tmp_path: Path) -> None:
    ParquetSink(path=str(tmp_path)).write(delivery({"q": rows([], pa.array([], pa.int64()))}))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_belongs_to_one_job(tmp_path: Path) -> None:
    sink = ParquetSink(path=str(tmp_path))
    sink.write(delivery({"q": rows(["a"], [1])}, job="one"))
    with pytest.raises(SinkError, match=r"results of another job \(given: .*: one\); .*own folder"):
        sink.write(delivery({"q": rows(["a"], [2])}, job="two"))
    (tmp_path / "_catchment.json").write_text("?")
    with pytest.raises(SinkError, match="marked, but not by a job"):
        sink.write(delivery({"q": rows(["a"], [2])}, job="two"))


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sink = ParquetSink(path=str(tmp_path / "file" / "sub"))
    with pytest.raises(SinkError, match=r"cannot be written .*a file is in the way"):
        sink.check()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_no_permission(tmp_path: Path) -> None:
    os.seteuid(65534)
    try:
        with pytest.raises(SinkError, match="this user may not write there"):
            ParquetSink(path=str(tmp_path)).check()
    finally:
        os.seteuid(0)


def test_an_address_that_means_nothing() -> None:
    with pytest.raises(SinkError, match="the folder cannot be reached"):
        ParquetSink(path="nosuch://bucket/x").check()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_full_disk_leaves_no_half_file(tmp_path: Path, layout: str) -> None:
    sink = ParquetSink(path=str(tmp_path), layout=layout, compression="none")
    (said,) = Child(sink, "job", limit=1000).end()
    assert "the results cannot be written" in str(said) and "make room" in str(said)
    assert files(tmp_path) == {}


@pytest.mark.parametrize("roll", [1, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_killed_at_any_moment(tmp_path: Path, layout: str, roll: int) -> None:
    sink = ParquetSink(path=str(tmp_path), layout=layout, roll=roll)
    killed_and_repeated(sink, "job")
    assert sink.read().num_rows == BATCHES * QUERIES * ROWS
    sink.finish()
    named = [name for name in files(tmp_path) if not name.rpartition("/")[2].startswith(".")]
    assert len(named) == -(-BATCHES // roll) * (1 if layout == "long" else QUERIES)
    assert sink.read().num_rows == BATCHES * QUERIES * ROWS
    # As any reader of folders sees them.
    assert dataset(tmp_path, format="parquet").count_rows() == BATCHES * QUERIES * ROWS


class KilledError(Exception):
    """The process is gone at this write or removal."""


@pytest.mark.parametrize("seed", seed_range(share(1250, 2)))
def test_files_of_several_deliveries_hold_each_once(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is killed and comes again, and however `roll` changes meanwhile."""
    dice = random.Random(seed)

    def fragile(name: str) -> None:
        real = getattr(FilePlace, name)

        def called(self: FilePlace, *given: Any) -> None:
            before = dice.random() < 0.05
            if not before:
                real(self, *given)
            if before or dice.random() < 0.05:
                raise KilledError

        monkeypatch.setattr(FilePlace, name, called)

    fragile("write")
    fragile("remove")
    layout = dice.choice(LAYOUTS)
    parts, batches = dice.randint(1, 3), 30
    given = {
        (batch, part): [batch * 10 + part] * (dice.random() < 0.8)
        for batch in range(batches)
        for part in range(parts)
    }

    def values(table: pa.Table) -> list[int]:
        name = "value" if layout == "long" else "sum(v)"
        return sorted(map(int, table[name].to_pylist())) if table.num_columns else []

    def started() -> ParquetSink:
        parquet._looked.clear()  # another process
        return ParquetSink(path=str(tmp_path), layout=layout, roll=dice.randint(1, 9))

    sink, at = started(), [0] * parts
    while min(at) < batches:
        part = at.index(min(at))
        here = at[part], part
        try:
            if given[here]:
                sink.write(delivery({"q": rows(["u"], given[here], at[part])}, *here))
            at[part] += 1
        except KilledError:
            sink = started()
            at[part] = max(at[part] - dice.randint(0, 1), 0)
        written = sorted(v for (batch, of), some in given.items() for v in some if batch < at[of])
        found = values(sink.read("q"))
        assert len(set(found)) == len(found) and set(found) >= set(written)
    monkeypatch.undo()
    sink.finish()
    assert values(sink.read("q")) == values(sink.newest("q", 10**6)) == written
    assert dataset(tmp_path, format="parquet").count_rows() == len(written)
    assert not list(tmp_path.rglob("_waiting/*"))


@pytest.mark.parametrize("call", range(8))
def test_two_that_roll_the_same_lose_nothing(
    tmp_path: Path, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process rolls the files while this one looks at them, between any two looks, and has
    removed some of those that waited."""
    sink = ParquetSink(path=str(tmp_path), roll=4)
    given = [delivery({"q": rows(["u"], [n], n)}, n) for n in range(5)]
    for one in given[:4]:
        sink.write(one)
    real, looks, removals = FilePlace.names, [0], [0]

    def remove(self: FilePlace, name: str) -> None:
        removals[0] += 1
        if removals[0] == 3:
            raise KilledError
        (tmp_path / name).unlink(missing_ok=True)

    def names(self: FilePlace, folder: str = "") -> tuple[list[str], list[str]]:
        looks[0] += 1
        if looks[0] == call + 1:
            with monkeypatch.context() as patch, suppress(KilledError):
                patch.setattr(FilePlace, "remove", remove)
                ParquetSink(path=str(tmp_path), roll=4).write(given[4])
        return real(self, folder)

    monkeypatch.setattr(FilePlace, "names", names)
    with suppress(SinkError):  # its file is gone: the delivery comes again
        sink.write(given[4])
    monkeypatch.undo()
    sink.write(given[4])
    assert sorted(sink.read("q")["sum(v)"].to_pylist()) == list(range(5))


def test_two_write_the_same(tmp_path: Path) -> None:
    sink = ParquetSink(path=str(tmp_path))
    for child in [Child(sink, "job") for _ in range(2)]:
        assert child.end() == list(range(BATCHES))
    assert sink.read().num_rows == BATCHES * QUERIES * ROWS
    assert not [name for name in files(tmp_path) if "/." in name]


def test_leftovers_of_crashes_go_when_they_are_old(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    old, new = tmp_path / "q" / ".1.parquet.abc", tmp_path / ".2.parquet.abc"
    old.write_text("")
    new.write_text("")
    os.utime(old, (0, 0))
    ParquetSink(path=str(tmp_path)).check()
    assert not old.exists() and new.exists()


def test_another_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that is not the local one, as far as the sink can tell."""
    store = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    monkeypatch.setattr(store_module, "opened", lambda uri: (store, "bucket"))
    sink = ParquetSink(path=f"other://{uuid4()}")
    sink.check()
    for _ in range(2):
        sink.write(delivery({"q": rows(["a"], [1])}))
    assert sink.read("q").num_rows == 1
    assert set(files(tmp_path)) == {"bucket/q/000000000-0.parquet"}


def test_a_uri_of_a_local_folder(tmp_path: Path) -> None:
    sink = ParquetSink(path=f"file://{tmp_path}/x")
    sink.write(delivery({"q": rows(["a"], [1])}))
    assert (tmp_path / "x" / "q" / "000000000-0.parquet").exists()


@pytest.mark.parametrize("place", [FilePlace, Folder])
def test_errors_do_not_tell_the_keys_of_a_store(place: type[FilePlace | Folder]) -> None:
    with pytest.raises(CatchmentError, match="the folder cannot be reached") as caught:
        place("s3://key:hidden@bucket/out?region=x&odd=1")
    assert "s3://bucket/out" in str(caught.value)
    assert "hidden" not in str(caught.value)
