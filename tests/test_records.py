"""What is kept in files and handed to workers is checked when it is read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from msgspec.structs import replace

import catchment as ct
from catchment.durable.folder import Folder
from catchment.errors import QueryError, SinkError, SourceError, StateError
from catchment.model import records
from catchment.model.frontier import Frontier
from catchment.model.query import Aggregate, QueryRecord
from catchment.sinks.base import Delivery
from catchment.sinks.parquet import ParquetSink
from catchment.sources.aside_files import AsideFiles
from catchment.sources.journal import Journal
from catchment.sources.watch import SourceNote
from catchment.spark.job_folder import ended_batch, ended_stream, name_of
from catchment.spark.planning import Progress
from catchment.spark.queries import QueryFolder, read_rejected, rules_of
from catchment.spark.records import Control, JobCounts, LogHead, Offset
from catchment.tree.records import Lag, Lagging, Uncounted
from patience import PATIENCE

QUERY = ct.Query("n", ct.count(), by="k", window=ct.tumbling("1h"))
EVENTS = pa.table({"ts": pa.array([1, 2], pa.timestamp("us", "UTC")), "k": ["a", "b"]})


def spec(folder: Path) -> Any:
    return cast(Any, SimpleNamespace(home=Folder(str(folder))))


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("job.json", rules_of),
        ("job.json", name_of),
        ("rejected.json", read_rejected),
        ("leaving.json", lambda home: QueryFolder(home).leaving()),
        ("done.json", ended_batch),
        ("never_read.json", SourceNote.load),
        ("index.json", lambda home: AsideFiles(home).capacity()),
    ],
)
@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b'{"files": 3, "job": 1, "limits": ""}'])
def test_a_broken_note_is_named(tmp_path: Path, name: str, read: Any, text: bytes) -> None:
    home = Folder(str(tmp_path))
    home.write(name, text or b"\xff")
    with pytest.raises(StateError, match=f"{name} cannot be read .*changed by hand"):
        read(home)


def test_broken_progress_is_named(tmp_path: Path) -> None:
    home = Folder(str(tmp_path))
    home.sub("progress").write("000000003.json", b'{"batch": 3}')
    with pytest.raises(StateError, match="the progress of batch 3 cannot be read"):
        Progress.load(spec(tmp_path), 3)
    with pytest.raises(StateError, match="the progress of batch 3 cannot be read"):
        ended_stream(home)


def test_progress_is_read_without_what_is_zero(tmp_path: Path) -> None:
    text = {
        "batch": 7,
        "frontier": {"value": 5, "partitions": {"a": [9, 1], "b": [None, 1]}},
        "counts": {"events": 4, "accepted": 4, "results": 2},
        "ended": True,
        "plan": 1,
        "now": 12,
    }
    home = Folder(str(tmp_path))
    home.sub("progress").write("000000007.json", json.dumps(text).encode())
    read = Progress.load(spec(tmp_path), 7)
    frontier = Frontier(5, {"a": (9, 1), "b": (None, 1)})
    assert read == Progress(7, frontier, JobCounts(4, 4, results=2), True, 1, 12)
    status = ended_stream(home)
    assert status is not None and (status.batch, status.events, status.frontier) == (7, 4, 5)


@pytest.mark.parametrize(("format", "age"), [(1, "an older"), (99, "a newer")])
def test_the_folder_of_another_version_is_told(tmp_path: Path, format: int, age: str) -> None:
    home = Folder(str(tmp_path))
    home.write("job.json", json.dumps({"format": format, "called": "j"}).encode())
    given = rf"written by {age} version \(given: format {format}\)"
    for ask in (rules_of, name_of):
        with pytest.raises(StateError, match=given):
            ask(home)


def test_an_offset_is_what_the_batch_is_told_and_how_far_it_reads() -> None:
    frontier = Frontier().knowing(["a"], 3).after({"a": 8}, 4)
    told = {
        "missing": ("x",),
        "live": ("y",),
        "lagging": Lagging({"x": Lag({3: 7}, lost=5)}, {"n": 2}),
        "uncounted": (Uncounted(0, 4, ("k",), ("x",)),),
    }
    control = Control(2, 1, 4, False, frontier, 9, **told)  # type: ignore[arg-type]
    offset = Offset.of({"a": 5}, control)
    plain = json.loads(json.dumps(records.plain(offset)))
    assert plain["at"] == {"a": 5} and plain["batch"] == 2
    again = records.convert(Offset, plain, "an offset")
    assert again == offset and again.control == control
    with pytest.raises(StateError, match=r"an offset cannot be read .*missing required field `at`"):
        records.convert(Offset, {k: v for k, v in plain.items() if k != "at"}, "an offset")
    with pytest.raises(StateError, match=r"Expected `int`, got `str` - at `\$\.at\[\.\.\.\]`"):
        records.convert(Offset, plain | {"at": {"a": "5"}}, "an offset")


def test_the_head_of_a_log_of_an_older_version_is_read() -> None:
    held = {"first": 1, "next": 3, "bytes": 9, "chunks": 1, "size": 8, "plan": 0, "base": "b"}
    read = records.decode(LogHead, json.dumps(held | {"tag": "t"}).encode(), "the head")
    assert read == LogHead(0, 1, 3, 9, 1, 8, "b", "t")


def test_a_query_is_read_as_it_was_written_whatever_its_numbers() -> None:
    given = replace(QUERY.record(), aggregates=(Aggregate("f", "v", (2**70, -1.5, "x")),))
    back = records.decode(QueryRecord, records.encode(given), "a query")
    assert back == given and back.aggregates[0].params == (2**70, -1.5, "x")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"name": 5}, "`$.name`"),
        ({"aggregates": [{"function": 5}]}, "`$.aggregates[0].function`"),
        ({"window": {"kind": "tumbling", "length": "x", "slide": 1, "offset": 0}}, "`$.length`"),
        ({"window": {"kind": "tumbling"}}, "missing required field `length`"),
        ({"measure": "other"}, "`$.measure`"),
    ],
)
def test_what_is_no_query_is_refused(changed: dict[str, object], why: str) -> None:
    with pytest.raises(QueryError, match=f"cannot be read .*{re.escape(why)}"):
        ct.Query.from_dict(QUERY.to_dict() | changed)


@pytest.mark.parametrize("bounds", [(0, 2**70), (-(2**70), 0), (-(2**62), 2**62)])
def test_a_fixed_window_beyond_all_bounds_is_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(QueryError, match=r"too far from now|too long"):
        ct.fixed(*bounds)


def test_the_snapshot_of_something_else_is_refused() -> None:
    engine = ct.Engine([QUERY])
    engine.push(EVENTS)
    part = engine.assembler.save()
    with pytest.raises(StateError, match=r"the record of a snapshot cannot be read .*plan"):
        ct.Engine.restore(part)


def test_a_broken_journal_says_what_it_always_said(tmp_path: Path) -> None:
    home = Folder(str(tmp_path))
    for text in (b"{", b'{"files": [{"path": 3}]}'):
        home.write("000000001.json", text)
        with pytest.raises(SourceError, match="the journal of files cannot be read"):
            Journal(home)


def test_a_marker_that_no_job_wrote_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_catchment.json").write_text('{"job": 3}')
    sink = ParquetSink(path=str(tmp_path))
    delivery = Delivery("j", 0, 0, {"n": EVENTS}, {"n": ("k",)})
    with pytest.raises(SinkError, match="the folder is marked, but not by a job"):
        sink.write(delivery)


FIRST_MET = """
    import sys, threading, types
    from catchment.model import records

    sys.setswitchinterval(1e-6)

    def module(number):
        # Twelve records, each of which holds those before it, with annotations to be evaluated.
        text = "from __future__ import annotations\\nfrom dataclasses import dataclass\\n"
        for place in range(12):
            inner = f"Held{place - 1} | None" if place else "int | None"
            fields = [f"    field{n}: dict[str, {inner}] | None = None" for n in range(8)]
            text += "\\n".join(["@dataclass", f"class Held{place}:", *fields, ""])
        made = sys.modules[f"held{number}"] = types.ModuleType(f"held{number}")
        exec(text, made.__dict__)
        return made

    def read(kind, start, wrong):
        start.wait()
        for how in (
            lambda: records.unpack(kind, records.pack({}), "it"),
            lambda: records.decode(kind, b"{}", "it"),
            lambda: records.convert(kind, {}, "it"),
        ):
            if how() != kind():
                wrong.append(kind)

    for number in range(40):
        kind, start, wrong = module(number).Held11, threading.Barrier(4), []
        threads = [threading.Thread(target=read, args=(kind, start, wrong)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
"""


def test_threads_that_read_a_kind_for_the_first_time() -> None:
    """Two threads that made msgspec learn a class at once crashed the process."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FIRST_MET)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
