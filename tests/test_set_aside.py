"""Late and bad rows that nobody takes: bounded in memory, then in files, or counted as dropped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import catchment as ct
from catchment.durable.folder import Folder
from catchment.engine.set_aside import SetAside
from catchment.errors import QueryError, StateError
from catchment.simulate.memory import EventsInMemory, MemoryDisk
from catchment.sources import aside_files
from catchment.sources.aside_files import AsideFile, AsideFiles, AsidePlace, encoded
from catchment.tree.local import Local
from catchment.tree.member import Member
from catchment.tree.words import Reply
from trees import SCHEMA, charter

QUERY = ct.Query("n", ct.count(), window=ct.tumbling("10us"))
ONE: dict[str, str | None] = {"root": None, "a": "root"}


def bad(count: int, first: int = 0) -> pa.Table:
    """Rows without a time."""
    values = list(range(first, first + count))
    return pa.table({"ts": pa.array([None] * count, pa.timestamp("us", "UTC")), "v": values})


# -- in memory ------------------------------------------------------------------------------------


def test_rows_that_nobody_takes_do_not_grow_for_ever() -> None:
    engine = ct.Engine([QUERY], aside_bytes=1 << 20)
    for _ in range(40):
        engine.push(bad(50_000))
    stats = engine.stats
    assert stats.bad == stats.events == 2_000_000 and stats.accepted == 0
    assert engine.slicer.aside.nbytes <= 1 << 20
    kept = engine.take_bad()
    assert kept is not None and kept.num_rows + stats.aside_dropped == 2_000_000
    assert 30_000 < kept.num_rows < 70_000  # a megabyte of them
    assert kept["v"].to_pylist()[:50_000] == list(range(50_000)), "the first are kept"
    engine.push(bad(5))
    later = engine.take_bad()
    assert later is not None and later.num_rows == 5, "what was taken makes room"


def test_late_rows_too() -> None:
    engine = ct.Engine([QUERY], late="collect", aside_bytes=2000, schema=bad(0).schema)
    engine.advance(1_000_000)
    late = pa.table({"ts": pa.array([1] * 500, pa.timestamp("us", "UTC")), "v": [0] * 500})
    for _ in range(10):
        engine.push(late)
    kept = engine.take_late()
    assert kept is not None and kept.num_rows < 200
    assert engine.stats.late == 5000 == kept.num_rows + engine.stats.aside_dropped


def test_many_small_pushes_cost_no_more_than_few() -> None:
    held = SetAside(1 << 30)
    for _ in range(3000):
        held.add("bad", bad(1))
    assert len(held.tables()["bad"]) <= 257 and held.take("bad").num_rows == 3000  # type: ignore[union-attr]
    assert held.nbytes == 0


def test_the_texts_of_other_rows_are_not_kept() -> None:
    texts = pa.array([f"{n}" * 50 for n in range(10_000)]).dictionary_encode()
    table = pa.table({"k": texts})
    held = SetAside(1 << 30)
    for n in range(100):
        held.add("late", table.slice(n, 1))
    assert held.nbytes < 1 << 20
    rows = held.take("late")
    assert rows is not None and rows["k"].to_pylist() == [f"{n}" * 50 for n in range(100)]
    assert rows.schema == table.schema


def test_rows_go_to_a_file_where_there_is_one() -> None:
    files: list[tuple[str, pa.Table]] = []
    engine = ct.Engine(
        [QUERY], aside_bytes=10_000, spill=lambda kind, rows: files.append((kind, rows))
    )
    for n in range(20):
        engine.push(bad(200, 200 * n))
    rest = engine.take_bad()
    found = [row for _, table in files for row in table["v"].to_pylist()]
    found += [] if rest is None else rest["v"].to_pylist()
    assert found == list(range(4000)), "each once, in order"
    assert {kind for kind, _ in files} == {"bad"} and engine.stats.aside_dropped == 0
    assert engine.stats.aside_spilled == sum(table.num_rows for _, table in files) > 3000


@settings(max_examples=settings.default.max_examples)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["late", "bad"]), st.integers(0, 40)), max_size=30),
    limit=st.integers(0, 4000),
    takes=st.sets(st.integers(0, 30)),
    room=st.one_of(st.none(), st.integers(0, 5)),
)
def test_every_row_is_held_spilled_or_dropped(
    steps: list[tuple[str, int]], limit: int, takes: set[int], room: int | None
) -> None:
    files: list[pa.Table] = []

    def spill(_: str, rows: pa.Table) -> bool:
        assert room is not None
        if len(files) >= room:
            return False
        files.append(rows)
        return True

    held = SetAside(limit, None if room is None else spill)
    given_rows, taken = 0, 0
    for number, (kind, count) in enumerate(steps):
        held.add(kind, bad(count))
        given_rows += count
        assert held.nbytes <= limit
        if number in takes:
            taken += sum(table.num_rows for table in held.drained().values())
    taken += sum(table.num_rows for table in held.drained().values())
    assert held.spilled == sum(table.num_rows for table in files)
    assert given_rows == taken + held.spilled + held.dropped
    assert held.nbytes == 0


def test_a_snapshot_has_what_is_held_and_what_was_dropped() -> None:
    engine = ct.Engine([QUERY], aside_bytes=1500)
    engine.push(bad(1000))
    again = ct.Engine.restore(engine.snapshot())
    assert again.stats == engine.stats and again.stats.aside_dropped > 900
    assert again.take_bad() == engine.take_bad()


@pytest.mark.parametrize("given", [-1, True, "64MB", 1.5])
def test_what_is_no_number_of_bytes(given: Any) -> None:
    with pytest.raises(QueryError, match="aside_bytes is not a number of bytes"):
        ct.Engine([QUERY], aside_bytes=given)


# -- in files -------------------------------------------------------------------------------------


def store(tmp_path: Path, limit: int = 1 << 30) -> AsideFiles:
    return AsideFiles(Folder(str(tmp_path)), limit)


def rows_in(tmp_path: Path, kind: str = "bad") -> list[int]:
    files = sorted((tmp_path / kind).glob("*.parquet"))
    return [v for path in files for v in pq.read_table(path)["v"].to_pylist()]


def test_a_batch_that_runs_again_writes_the_same(tmp_path: Path) -> None:
    files = store(tmp_path)
    for batch in range(3):
        files.write(batch, 0, "bad", bad(2, 2 * batch))
        files.end(batch)
    again = store(tmp_path)  # a crash after batch 2 was written: it runs again
    again.write(2, 0, "bad", bad(2, 4))
    again.end(2)
    assert rows_in(tmp_path) == list(range(6)) and len(again) == 3


def test_what_an_unfinished_batch_wrote_is_removed(tmp_path: Path) -> None:
    files = store(tmp_path)
    files.write(0, 0, "bad", bad(2))
    files.end(0)
    for part in (0, 1, 2):
        files.write(1, part, "bad", bad(1, 10 + part))
    AsidePlace(files.home, 1, 0, 1 << 20).spill(5)("late", bad(3))
    again = store(tmp_path)  # batch 1 did not end; now it has less to write
    again.write(1, 0, "bad", bad(1, 10))
    again.end(1)
    assert rows_in(tmp_path) == [0, 1, 10] and rows_in(tmp_path, "late") == []


def test_a_step_begun_anew_in_the_same_process(tmp_path: Path) -> None:
    files = store(tmp_path)
    files.write(0, 1, "bad", bad(1, 7))
    files.begin()
    files.write(0, 0, "bad", bad(1, 8))
    files.end(0)
    assert rows_in(tmp_path) == [8]


def test_small_files_are_joined(tmp_path: Path) -> None:
    files = store(tmp_path)
    for batch in range(500):
        files.write(batch, 0, "bad", bad(2, 2 * batch))
        files.end(batch)
        assert len(list((tmp_path / "bad").iterdir())) <= aside_files.APART + 2
    assert sorted(rows_in(tmp_path)) == list(range(1000)) and files.removed == 0
    again = store(tmp_path)
    again.end(500)
    assert len(again) == len(files) and sorted(rows_in(tmp_path)) == list(range(1000))


def test_the_oldest_files_go_first_and_are_counted(tmp_path: Path) -> None:
    files = store(tmp_path, limit=20_000)
    for batch in range(200):
        files.write(batch, 0, "late" if batch % 2 else "bad", bad(5, 5 * batch))
        files.end(batch)
    kept = sorted(rows_in(tmp_path) + rows_in(tmp_path, "late"))
    assert kept and kept[-1] == 999 and files.removed + len(kept) == 1000
    assert files.nbytes <= 20_000
    assert sum(p.stat().st_size for p in tmp_path.rglob("*.parquet")) == files.nbytes
    assert store(tmp_path, 20_000).capacity().used == files.nbytes


@pytest.mark.parametrize("at", ["before the index", "before the removal"])
def test_a_crash_while_files_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    monkeypatch.setattr(aside_files, "APART", 4)
    files = store(tmp_path)
    for batch in range(5):
        files.write(batch, 0, "bad", bad(2, 2 * batch))
        files.end(batch)
    files.write(5, 0, "bad", bad(2, 10))

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "_save" if at == "before the index" else "_delete", crash)
    with pytest.raises(KeyboardInterrupt):
        files.end(5)
    again = store(tmp_path)
    again.write(5, 0, "bad", bad(2, 10))
    again.end(5)
    assert sorted(rows_in(tmp_path)) == list(range(12))


def test_files_of_an_older_version_are_taken_over(tmp_path: Path) -> None:
    Folder(str(tmp_path)).sub("bad").write("000000003.parquet", encoded(bad(4)))
    files = store(tmp_path)
    files.write(7, 0, "bad", bad(2, 4))
    files.end(7)
    held = json.loads((tmp_path / "index.json").read_text())["files"]
    assert [AsideFile(*one).rows for one in held] == [4, 2] and rows_in(tmp_path) == list(range(6))


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    Folder(str(tmp_path)).sub("bad").write("000000003.parquet", b"nonsense")
    with pytest.raises(StateError, match=r"a file of rows set aside cannot be read.*000000003"):
        store(tmp_path).capacity()


# -- on a node ------------------------------------------------------------------------------------


def node(tmp_path: Path, tables: list[pa.Table], disk: MemoryDisk, **settings: Any) -> Member:
    member = Member(
        "a", disk, 5, parent="root", source=lambda: EventsInMemory.of(tables), keep=store(tmp_path)
    )
    member.adopt(charter(ONE, **settings).with_schema(SCHEMA), 5)
    member.heard(Reply(life=1 + member.hello().life), 5)
    return member


def test_a_node_keeps_them_in_its_folder(tmp_path: Path) -> None:
    rows = [{"ts": None, "k": "a", "v": n, "m": None} for n in range(3000)]
    tables = [pa.Table.from_pylist(rows[n : n + 100], SCHEMA) for n in range(0, 3000, 100)]
    disk = MemoryDisk()
    member = node(tmp_path, tables, disk, aside_bytes=4000)
    while member.step(5):
        assert isinstance(member.machine, Local)
        assert member.machine.slicer.aside.nbytes == 0, "a step leaves nothing behind"
    assert sorted(rows_in(tmp_path)) == list(range(3000))
    again = node(tmp_path, tables, disk, aside_bytes=4000)
    while again.step(5):
        pass
    assert sorted(rows_in(tmp_path)) == list(range(3000))
