"""Sinks in the driver: the screen and the memory. And what all sinks share: JSON, revisions."""

from __future__ import annotations

import base64
import json
import math
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from catchment.errors import SinkError
from catchment.sinks import options
from catchment.sinks.base import Sink
from catchment.sinks.console import Console
from catchment.sinks.kafka import KafkaSink
from catchment.sinks.memory import Memory
from catchment.sinks.parquet import ParquetSink
from catchment.sinks.postgres import PostgresSink
from catchment.sinks.rows import grouped, latest
from catchment.sinks.text import lists, objects, texts
from sink_rows import ODD, child_delivery, delivery, every_type, rows


def test_memory_keeps_each_delivery_once() -> None:
    memory = Memory()
    memory.check()
    for part in (0, 1, 0):
        memory.write(delivery({"q": rows([None, "b"], [part, 1], revision=0)}, 0, part))
    memory.write(delivery({"q": rows([None], [9], revision=1)}, 1))
    memory.write(delivery({"q": rows(["b"], [None], revision=1, retracted=True)}, 2))
    assert memory.results("q").num_rows == 6
    assert memory.latest("q")["sum(v)"].to_pylist() == [9]
    assert memory.results("other").num_rows == memory.latest("other").num_rows == 0
    assert memory.queries == ["q"] and memory.dropped == 0


def test_memory_lets_the_oldest_batches_go() -> None:
    memory = Memory(limit=3)
    for batch in (0, 1, 2, 0):
        memory.write(delivery({"q": rows(["a", "b"], [batch, batch])}, batch))
    assert memory.results("q")["sum(v)"].to_pylist() == [2, 2]
    assert memory.dropped == 4
    memory.write(delivery({"q": rows(["a"] * 5, [3] * 5)}, 3))
    assert memory.results("q").num_rows == 5 and memory.dropped == 6


def test_memory_takes_any_name_and_type() -> None:
    memory = Memory()
    memory.write(delivery({name: every_type() for name in ODD}))
    assert memory.queries == sorted(ODD)
    assert memory.results(ODD[2]).num_rows == 3


def test_a_pickled_memory_starts_empty() -> None:
    memory = Memory(limit=7)
    memory.write(delivery({"q": rows(["a"], [1])}))
    copy = pickle.loads(pickle.dumps(memory))
    assert copy.limit == 7 and copy.queries == [] and memory.queries == ["q"]


def test_the_console_prints_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(rows=2)
    console.check()
    some = pa.concat_tables([rows(["late\x1b[1m [b]x", None], [0.5, None], 60), rows(["a"], [1.0])])
    for batch in (0, 0):
        console.write(delivery({"q\n": some, "none": some.slice(0, 0)}, batch))
    window = "window_start=2023-11-14 22:14:20 window_end=2023-11-14 22:14:21"
    assert capsys.readouterr().out.splitlines() == [
        f"q\\n: user=late\\x1b[1m [b]x {window} sum(v)=0.5",
        f"q\\n: user=- {window} sum(v)=-",
    ]
    console.write(delivery({"q": some}, 0, part=1))
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_names_on_the_console_do_not_look_alike(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("a\tb", "a\\tb", "a\\\\tb")
    Console().write(delivery({name: rows(["u"], [1]) for name in names}))
    assert len({line.partition(":")[0] for line in capsys.readouterr().out.splitlines()}) == 3


def test_the_console_shows_only_what_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    Console(queries=("q1",)).write(child_delivery("job", 0))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10 and all(line.startswith("q1: ") for line in lines)


def test_a_terminal_gets_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    Console(rows=1).write(delivery({"[red]q": rows(["a", "b"], [1, 2])}))
    out = capsys.readouterr().out
    assert "[red]q (1 of 2)" in out and "\u2502" in out and "sum(v)" in out


def test_the_console_shows_every_type(capsys: pytest.CaptureFixture[str]) -> None:
    Console().write(delivery({"q": every_type()}))
    assert len(capsys.readouterr().out.splitlines()) == 3


SINKS: list[Sink] = [
    Console(),
    Memory(),
    ParquetSink(path="/tmp/x", layout="long"),
    PostgresSink(dsn="postgresql://host/x", schema="s", timeout="5s"),
    KafkaSink(servers="host:9092", topic="t", options={"linger.ms": 1}),
]


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: type(sink).__name__)
def test_sinks_are_plain_frozen_data(sink: Sink) -> None:
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert type(sink).model_validate(sink.model_dump(by_alias=True)) == sink
    assert sink.on_driver == isinstance(sink, Console | Memory)
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        type(sink).model_validate(sink.model_dump(by_alias=True) | {"no_such": 1})
    with pytest.raises(ValidationError, match="frozen"):
        sink.type = "other"  # type: ignore[attr-defined]
    sink.close()


@pytest.mark.parametrize("timeout", ["-1s", "soon"])
def test_a_timeout_is_a_duration(timeout: str) -> None:
    with pytest.raises(ValidationError, match=r"duration|negative"):
        KafkaSink(servers="h", topic="t", timeout=timeout)


def test_a_missing_package_is_named() -> None:
    with pytest.raises(SinkError, match=r"given: no_such_one\); pip install 'catchment\[x\]'"):
        options.need("no_such_one", "x")


VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(allow_nan=True),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.bool_(): st.booleans(),
    pa.list_(pa.string()): st.lists(st.none() | st.text()),
    pa.list_(pa.list_(pa.float64())): st.lists(st.none() | st.lists(st.floats())),
    pa.struct([("a", pa.string()), ('"', pa.int64())]): st.fixed_dictionaries(
        {"a": st.none() | st.text(), '"': st.none() | st.integers(-5, 5)}
    ),
}


def plain(value: Any) -> Any:
    """A value as JSON would give it back."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value


@st.composite
def columns(draw: st.DrawFn) -> list[tuple[pa.DataType, list[Any]]]:
    """Up to four columns of any length, most of which are parts of longer ones."""
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), max_size=4))
    return [(kind, draw(st.lists(st.none() | VALUES[kind], max_size=6))) for kind in kinds]


@given(columns(), st.integers(0, 2))
def test_json_gives_every_value_back(given: list[tuple[Any, list[Any]]], skip: int) -> None:
    arrays = [pa.array(values, kind)[skip:] for kind, values in given]
    found = [[json.loads(text) for text in made.to_pylist()] for made in texts(arrays)]
    assert found == [[plain(value) for value in values[skip:]] for _, values in given]


def test_rows_of_no_columns() -> None:
    assert objects([], [], 2).to_pylist() == ["{}", "{}"]
    assert lists([], 1).to_pylist() == ["[]"]


def test_queries_that_look_the_same_are_written_together() -> None:
    words = [pa.array([word], pa.dictionary(pa.int32(), pa.string())) for word in "abc"]
    tables = {f"q{n}": rows(["u"], [n]).append_column("w", word) for n, word in enumerate(words)}
    tables["r"] = rows(["u", "v"], [7, 8])
    tables["q1"] = tables["q1"].replace_schema_metadata({"x": "y"})
    first, second = grouped(delivery(tables))
    assert first.table["w"].to_pylist() == ["a", "b", "c"]
    assert first.named(first.queries).to_pylist() == ["q0", "q1", "q2"]
    assert list(first.spans()) == [("q0", 0, 1), ("q1", 1, 1), ("q2", 2, 1)]
    assert second.named(["x"]).to_pylist() == ["x", "x"] and second.keys == ("user",)


Row = tuple[str | None, int, int, bool]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, "a", "b"]), st.integers(0, 1), st.integers(0, 3), st.booleans()
        )
    )
)
def test_latest_is_what_a_dictionary_would_keep(given: list[Row]) -> None:
    tables = [
        rows([key], [n], second, revision, gone)
        for n, (key, second, revision, gone) in enumerate(given)
    ]
    table = pa.concat_tables([rows([], pa.array([], pa.int64()), revision=0), *tables])
    kept: dict[tuple[str | None, int], tuple[int, int, bool]] = {}
    for n, (key, second, revision, gone) in enumerate(given):
        if revision >= kept.get((key, second), (-1, 0, False))[0]:
            kept[key, second] = (revision, n, gone)
    wanted = sorted(n for _, n, gone in kept.values() if not gone)
    assert latest(table, ["user"])["sum(v)"].to_pylist() == wanted


def test_a_board_gets_live_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[list[str]] = []

    def board(tables: list[Any]) -> None:
        shown.append([f"{table.title}: {table.row_count}" for table in tables])

    monkeypatch.setattr(Console, "board", staticmethod(board))
    console = Console(rows=2)
    for batch in range(3):
        console.write(delivery({"q": rows(["a"], [batch]), "r": rows(["b"], [1])}, batch=batch))
    assert shown == [["q: 1", "r: 1"], ["q: 2", "r: 2"], ["q (2 of 3): 2", "r (2 of 3): 2"]]
