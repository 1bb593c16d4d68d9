"""Files as a stream: none is lost or doubled, whatever happens to them or to the job."""

from __future__ import annotations

import math
import os
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import catchment as ct
from catchment.errors import SourceError
from catchment.sources import files, journal, listing, parquet_file
from catchment.sources.arrow_file import ArrowFile
from catchment.sources.parquet_file import Parquet
from catchment.sources.types import fits, schema_of, type_of
from source_reading import aged, events, opened, put, read_all, read_between, read_split, values

# The journal.


def test_a_batch_is_the_same_when_it_is_asked_for_again(tmp_path: Path) -> None:
    put(tmp_path / "in/a.parquet", events(1, 2))
    source = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    first = source.latest(source.start())
    put(tmp_path / "in/b.parquet", events(3))
    assert first == source.latest(source.start()) == {"n": 1}
    # A crash before the batch was used: another process opens the same home.
    again = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    assert again.latest(again.start()) == first
    assert values(read_between(again, again.start(), first)[0], "n") == [1, 2]
    second = again.latest(first)
    assert values(read_between(again, first, second)[0], "n") == [3]
    assert again.latest(second) == second


def test_files_with_old_times_are_not_lost(tmp_path: Path) -> None:
    put(tmp_path / "in/b.parquet", events(1))
    source = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    first = source.latest(source.start())
    aged(put(tmp_path / "in/a.parquet", events(2)), 10**6)
    second = source.latest(first)
    assert values(read_between(source, first, second)[0], "n") == [2]


def test_a_file_that_a_listing_overlooked_still_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when files are put in place while a folder is listed."""
    for name, age in (("a", 3), ("b", 2), ("c", 1)):
        aged(put(tmp_path / f"in/{name}.parquet", events(age)), age)
    source = opened(Parquet(path=str(tmp_path / "in"), max_files_per_batch=1), tmp_path / "home")
    whole = listing.find
    listings = iter([["b"], ["a", "b", "c"]])

    def lacking(paths: tuple[str, ...], endings: tuple[str, ...]) -> list[listing.ListedFile]:
        there = next(listings, ["a", "b", "c"])
        return [found for found in whole(paths, endings) if Path(found.path).stem in there]

    monkeypatch.setattr(files, "find", lacking)
    position, read = source.start(), []
    for _ in range(3):
        after = source.latest(position)
        read += values(read_between(source, position, after)[0], "n")
        position = after
    assert read == [3, 2, 1]


def test_a_file_that_changes_while_it_is_listed_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job over what there is now has no next time."""
    one = pa.table({"ts": pa.array([0], pa.timestamp("us"))})
    for name in ("a", "b"):
        aged(put(tmp_path / f"in/{name}.parquet", one), 5)
    whole = listing.find

    def touching(paths: tuple[str, ...], endings: tuple[str, ...]) -> list[listing.ListedFile]:
        found = whole(paths, endings)
        os.utime(tmp_path / "in/b.parquet")
        return found

    monkeypatch.setattr(files, "find", touching)
    query = ct.Query("n", ct.count().alias("n"), window=ct.tumbling("1h"))
    results = ct.run(tmp_path / "in", query, spark=False)
    assert results.counts["events"] == 2
    (tmp_path / "in/b.parquet").write_bytes(b"PAR1xx")
    with pytest.raises(SourceError, match="cannot be read"):
        ct.run(tmp_path / "in", query, spark=False)


def test_a_folder_is_not_listed_more_often_than_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find the columns, twice for what is new (so that nothing is overlooked), and at the end
    for what came meanwhile."""
    one = pa.table({"ts": pa.array([0], pa.timestamp("us"))})
    aged(put(tmp_path / "in/a.parquet", one), 5)
    whole, listings = listing.find, 0

    def counted(paths: tuple[str, ...], endings: tuple[str, ...]) -> list[listing.ListedFile]:
        nonlocal listings
        listings += 1
        return whole(paths, endings)

    monkeypatch.setattr(files, "find", counted)
    query = ct.Query("n", ct.count().alias("n"), window=ct.tumbling("1h"))
    ct.run(tmp_path / "in", query, spark=False)
    assert listings == 4


def test_the_columns_are_found_again_where_the_checked_file_is_gone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        aged(put(tmp_path / f"in/{name}.parquet", events(3)), 5)
    source = Parquet(path=str(tmp_path / "in"))
    source.check()
    (tmp_path / "in/a.parquet").unlink()
    assert source.event_schema().names == events(3).schema.names


def test_files_are_taken_in_order_of_their_times(tmp_path: Path) -> None:
    for name, age in (("a", 1), ("b", 3), ("c", 2)):
        aged(put(tmp_path / f"in/{name}.parquet", events(age)), age)
    source = opened(Parquet(path=str(tmp_path / "in"), max_files_per_batch=2), tmp_path / "home")
    bound = source.bound(source.start())
    assert bound == {"n": 2}
    put(tmp_path / "in/d.parquet", events(0))
    batches, position = [], source.start()
    while (after := source.latest(position, bound)) != position:
        batches.append(values(read_between(source, position, after, parallel=1)[0], "n"))
        position = after
    assert batches == [[3, 2], [1]]
    assert source.latest(position) == {"n": 3}
    assert not source.ended(position)


def test_partitions_are_folders_and_go_on_counting(tmp_path: Path) -> None:
    put(tmp_path / "in/a.parquet", events(1, 2))
    put(tmp_path / "in/x/a.parquet", events(3))
    source = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    first = source.latest(source.start())
    assert source.partitions(source.start()) == []
    assert source.partitions(first) == [".", "x"]
    put(tmp_path / "in/b.parquet", events(4))
    put(tmp_path / "in/y/z/a.parquet", events(5))
    again = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    second = again.latest(first)
    places = {s.partition: s.arrival for s in again.splits(first, second, 8)}
    assert places == {".": 2, "y/z": 0}
    assert again.partitions(second) == [".", "x", "y/z"]


def test_old_entries_are_folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "FOLD", 4)
    source = opened(Parquet(path=str(tmp_path / "in"), schema={"n": "bigint"}), tmp_path / "home")
    position = source.start()
    for number in range(10):
        put(tmp_path / f"in/{number % 2}/{number}.parquet", events(number))
        position = source.latest(position)
        if number > 0:
            source.commit({"n": position["n"] - 1})
    names = sorted(path.name for path in (tmp_path / "home").iterdir())
    assert names == ["000000008.folded.json", "000000009.json", "000000010.json", "schema.json"]
    again = opened(Parquet(path=str(tmp_path / "in"), schema={"n": "bigint"}), tmp_path / "home")
    assert again.latest({"n": 9}) == {"n": 10} == again.latest({"n": 10})
    assert [s.arrival for s in again.splits({"n": 8}, {"n": 10}, 1)] == [4, 4]
    assert again.partitions({"n": 10}) == ["0", "1"]
    with pytest.raises(SourceError, match="no such entry"):
        again.splits({"n": 2}, {"n": 3}, 1)


def test_a_journal_behind_the_checkpoint_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "in/a.parquet", events(1))
    source = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    with pytest.raises(SourceError, match="behind the checkpoint"):
        source.latest({"n": 7})


def test_the_schema_outlives_the_file_it_came_from(tmp_path: Path) -> None:
    first = put(tmp_path / "in/a.parquet", events(1))
    source = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    schema = source.event_schema()
    position = source.latest(source.start())
    first.unlink()
    put(tmp_path / "in/b.parquet", pa.table({"other": [1]}))
    again = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    assert again.event_schema() == schema
    assert again.latest(position) == position
    assert list(again.waiting().values()) == ["it has no column 'n'"]


def test_an_opened_source_is_pickled_without_what_it_learned(tmp_path: Path) -> None:
    put(tmp_path / "in/a.parquet", events(1))
    source = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    source.latest(source.start())
    copy = pickle.loads(pickle.dumps(source))
    assert copy == Parquet(path=str(tmp_path / "in"))
    with pytest.raises(SourceError, match="not open"):
        copy.latest(copy.start())


# Splits.


@settings(max_examples=settings.default.max_examples // 4)
@given(
    files=st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 40)), min_size=1, max_size=6),
    group=st.integers(1, 12),
    parallel=st.integers(1, 6),
    per_batch=st.integers(1, 3),
    arrow=st.booleans(),
)
def test_splits_have_every_row_once_in_its_place(
    files: list[tuple[str, int]],
    group: int,
    parallel: int,
    per_batch: int,
    arrow: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("split")
    kind, ending = (ArrowFile, "arrow") if arrow else (Parquet, "parquet")
    expected: dict[str, list[int]] = {}
    for number, (folder, rows) in enumerate(files):
        numbers = range(number * 100, number * 100 + rows)
        put(root / f"in/{folder}/{number}.{ending}", events(*numbers), group)
        aged(root / f"in/{folder}/{number}.{ending}", 1000 - number)
        expected.setdefault(folder, []).extend(numbers)
    source = opened(kind(path=str(root / "in"), max_files_per_batch=per_batch), root / "home")
    found: dict[str, list[tuple[int, int]]] = {folder: [] for folder in expected}
    position = source.start()
    while (after := source.latest(position)) != position:
        splits = source.splits(position, after, parallel)
        assert len(splits) <= parallel + len(expected)
        for split in splits:
            tables, arrivals, bad = read_split(source, split, ["n"])
            assert bad.num_rows == 0
            numbers = [n for table in tables for n in values(table, "n")]
            found[split.partition] += zip(arrivals, numbers, strict=True)
        position = after
    for folder, pairs in found.items():
        assert sorted(pairs) == list(enumerate(expected[folder]))


def test_splits_are_about_even(tmp_path: Path) -> None:
    put(tmp_path / "in/a.parquet", events(*range(1000)), group=10)
    source = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    splits = source.splits(source.start(), source.latest(source.start()), 4)
    assert [split.weight for split in splits] == [250] * 4
    assert [split.arrival for split in splits] == [0, 250, 500, 750]


def test_a_huge_row_group_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_file, "_MANY", 30)
    monkeypatch.setattr(parquet_file, "_TOO_MANY", 50)
    put(tmp_path / "in/a.parquet", events(*range(300)), group=100)
    source = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    [split] = source.splits(source.start(), source.latest(source.start()), 1)
    tables, arrivals, _ = read_split(source, split)
    assert max(table.num_rows for table in tables) <= 30
    assert arrivals == list(range(300)) == [n for table in tables for n in values(table, "n")]


def test_row_groups_that_cannot_match_are_passed_over(tmp_path: Path) -> None:
    put(tmp_path / "in/a.parquet", events(*range(100)), group=10)
    source = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    [split] = source.splits(source.start(), source.latest(source.start()), 1)
    tables, arrivals, _ = read_split(source, split, ["n"], "n BETWEEN 42 AND 55 AND k <> 'a'")
    assert arrivals == list(range(40, 60)) == [n for t in tables for n in values(t, "n")]


# What is found, and in which types.


def test_unfinished_and_other_files_are_passed_over(tmp_path: Path) -> None:
    put(tmp_path / "in/a.parquet", events(1))
    for name in (
        "_SUCCESS",
        ".b.parquet",
        "_c.parquet",
        "d.parquet.tmp",
        "e.csv",
        "_tmp/f.parquet",
    ):
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_bytes(b"junk")
    source = opened(Parquet(path=str(tmp_path / "in")), tmp_path / "home")
    assert values(read_all(source)[0], "n") == [1]
    assert source.waiting() == {}


def test_named_files_and_patterns_are_taken_as_they_are(tmp_path: Path) -> None:
    first = put(tmp_path / "in/a.parquet", events(1)).rename(tmp_path / "in/a.data")
    put(tmp_path / "in/x/b.parquet", events(2)).rename(tmp_path / "in/x/b.data")
    for number, path in enumerate(
        (str(tmp_path / "in/**/*.data"), (str(first), str(tmp_path / "in/x/*")))
    ):
        source = opened(Parquet(path=path), tmp_path / f"home{number}")
        assert sorted(values(read_all(source)[0], "n")) == [1, 2]
        roots = [".", "x"] if number == 0 else [str(tmp_path / "in"), str(tmp_path / "in/x")]
        assert source.partitions({"n": 1}) == roots


def test_texts_with_few_values_stay_codes(tmp_path: Path) -> None:
    table = pa.table({"k": ["a", "b"] * 5000, "u": [f"text {n}" for n in range(10_000)]})
    put(tmp_path / "in/a.parquet", table, group=10_000)
    source = opened(Parquet(path=str(tmp_path / "in"), schema={"k": "string"}), tmp_path / "home")
    assert source.event_schema().types == [pa.dictionary(pa.int32(), pa.string())]
    assert Parquet(path=str(tmp_path / "in")).event_schema().field("u").type == pa.string()
    put(tmp_path / "in/b.parquet", table.slice(0, 3), group=2)
    found, _ = read_all(source)
    assert found.schema == source.event_schema()
    assert values(found, "k") == ["a", "b"] * 5000 + ["a", "b", "a"]


def test_given_types_are_what_is_read(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC)
    table = pa.table(
        {
            "ts": pa.array([moment], pa.timestamp("ns")),
            "v": pa.array([1.5], pa.float32()),
        }
    )
    put(tmp_path / "in/a.parquet", table)
    source = Parquet(path=str(tmp_path / "in"), schema={"v": "double", "ts": "timestamp"})
    found, _ = read_all(opened(source, tmp_path / "home"))
    assert found.to_pylist() == [{"v": 1.5, "ts": moment}]


def test_streams_of_arrow_are_read_once_they_are_settled(tmp_path: Path) -> None:
    path = tmp_path / "in/a.arrow"
    path.parent.mkdir()
    with pa.ipc.new_stream(path, events(1).schema) as stream:
        stream.write_table(events(*range(100)), max_chunksize=30)
    source = opened(ArrowFile(path=str(tmp_path / "in"), settle="1h"), tmp_path / "home")
    assert source.latest(source.start()) == source.start()
    aged(path, 3601)
    found, bad = read_between(source, source.start(), source.latest(source.start()))
    assert values(found, "n") == list(range(100))
    assert bad.num_rows == 0
    with path.open("ab") as file:
        file.write(b"more")
    assert read_between(source, source.start(), {"n": 1})[0].num_rows == 100


# Errors.


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": "nowhere"}, "no such file or folder"),
        ({"path": "no*where"}, "no file matches the path"),
        ({"path": "s3://bucket/x"}, "the path is not local"),
        ({"path": "empty"}, "schema: {ts: timestamp, v: double}"),
        ({"path": "broken"}, "no file can be read"),
        ({"path": "in", "schema": {"m": "int"}}, "it has no column 'm'"),
        ({"path": "in", "schema": {"n": "string"}}, "its column 'n' is int64, not string"),
    ],
)
def test_what_cannot_be_read_is_refused(
    options: Any, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "in/a.parquet", events(1))
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/a.parquet").write_bytes(b"PAR1")
    with pytest.raises(SourceError) as caught:
        Parquet(**options).check()
    assert text in str(caught.value)
    Parquet(path="empty", schema={"n": "bigint"}).check()
    Parquet(path="in", schema={"n": "bigint"}).check()


def test_words_of_types() -> None:
    assert schema_of({"a": "LONG", "b": "decimal(5,1)"}).types == [pa.int64(), pa.decimal128(5, 1)]
    with pytest.raises(SourceError, match="did you mean 'bigint'"):
        type_of("bigin")
    with pytest.raises(SourceError, match="no such decimal type"):
        type_of("decimal(50, 2)")
    with pytest.raises(SourceError, match="no such type of column"):
        Parquet(path="x", schema={"a": "what"})


def test_what_fits_a_type_casts_to_it() -> None:
    numbers = [
        pa.int8(),
        pa.uint8(),
        pa.int16(),
        pa.uint32(),
        pa.int64(),
        pa.uint64(),
        pa.float32(),
        pa.float64(),
    ]
    for have in numbers:
        for want in numbers:
            if not fits(have, want) or pa.types.is_floating(have):
                continue
            most = 2 ** (have.bit_width - pa.types.is_signed_integer(have)) - 1
            assert pa.array([most], have).cast(want)[0].as_py() == most
    assert not fits(pa.int64(), pa.float64()) and not fits(pa.uint64(), pa.int64())
    assert not fits(pa.timestamp("us", "UTC"), pa.timestamp("us"))
    assert math.isnan(pa.array([math.nan], pa.float32()).cast(pa.float64())[0].as_py())
