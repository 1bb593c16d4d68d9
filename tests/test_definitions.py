"""What a query's name stands for over time: versions, job files, names as files, leaving."""

from __future__ import annotations

import logging
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import catchment as ct
from catchment.cli.main import app
from catchment.durable.files import LocalFiles
from catchment.durable.folder import Folder
from catchment.errors import QueryError
from catchment.model import records
from catchment.model.definition import file_changes, output_name
from catchment.nodes.bootstrap import follow_file
from catchment.nodes.node_service import NodeService
from catchment.simulate import World
from catchment.simulate.memory import MemoryDisk
from catchment.spark import batch_job
from catchment.spark.queries import FORMAT, QueryFolder, newest_plan
from catchment.spark.records import JobIdentity
from catchment.spark.stream import take_up
from catchment.testing.compare import rows_of
from catchment.testing.strategies import to_table
from catchment.tree.charter import Charter
from catchment.tree.member import Member
from catchment.tree.root import Root
from notes import answer
from pipeline import Batch, Pipeline
from small_tables import examples
from trees import batches, charter, final

pytestmark = pytest.mark.spark

SPEED = ct.Query("speed", ct.sum("v").alias("x"), window=ct.tumbling("10us"))
OTHER = ct.Query("other", ct.count(), window=ct.tumbling("10us"))
PEAK = ct.Query("speed", ct.max("v").alias("x"), window=ct.tumbling("10us"))
NAMES = (
    "job",
    "_job",
    ".hidden",
    "..",
    "../../victim",
    "a/b",
    "A",
    "a",
    "ä",
    "a\u0308",
    "x" * 300,
    "x" * 301,
    "nul",
    "",
    "a.query",
    "leaving",
    "speed@2",
    "\U0001f30a",
)


def named(name: str) -> ct.Query:
    return ct.Query(name or "empty", ct.count(), window=ct.tumbling("1s"))


def events(*times: int) -> Batch:
    return [("0", to_table([{"ts": time, "v": float(time)} for time in times]))]


# Names.


def test_no_name_of_a_query_harms_another(tmp_path: Path) -> None:
    folder = QueryFolder(Folder(str(tmp_path / "home")))
    folder.write_all([SPEED, OTHER])
    queries = [named(name) for name in NAMES]
    for query in queries:
        folder.add(query)
    found, rejected = folder.read()
    assert not rejected
    assert found.keys() == {"speed", "other"} | {query.name for query in queries}
    files = folder.folder.names()
    assert len({name.casefold() for name in files}) == len(files) == 1 + len(queries)
    assert {path.parent.name for path in tmp_path.rglob("*.json")} == {"queries"}
    for query in queries:
        folder.remove(query.name)
    assert folder.read()[0].keys() == {"speed", "other"}


def test_a_file_put_in_by_hand_is_not_overwritten(tmp_path: Path) -> None:
    folder = QueryFolder(Folder(str(tmp_path)))
    folder.add(named("a"))
    data = folder.folder.read("a.query.json")
    assert data is not None
    folder.folder.write("b.query.json", data)  # it holds a, under b's name
    folder.remove("a")
    folder.folder.write("b.query.json", data)
    folder.add(named("b"))
    assert folder.read()[0].keys() == {"a", "b"}


@examples(1.0)
@given(
    st.lists(
        st.tuples(st.text("a@12", min_size=1, max_size=4), st.integers(1, 12)),
        unique=True,
        max_size=20,
    )
)
def test_no_two_definitions_have_one_output(pairs: list[tuple[str, int]]) -> None:
    assert len({output_name(*pair) for pair in pairs}) == len(pairs)


# Versions.


def test_results_of_another_definition_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    def change(pipeline: Pipeline) -> None:
        folder = QueryFolder(pipeline.spec.home)
        folder.remove("speed")
        folder.add(PEAK)

    given = [events(1, 12), events(21, 23), events(31, 33), events(41, 43), events(51, 53)]
    with tempfile.TemporaryDirectory() as folder, caplog.at_level(logging.WARNING):
        pipeline = Pipeline(folder, given, [SPEED, OTHER], 1, 0.1)
        pipeline.at(2, change)
        found = pipeline.run()
        planned = newest_plan(pipeline.spec.home)
    assert planned is not None and planned.definitions["speed"].version == 2
    assert [row["x"] for row in rows_of(found["speed"])] == [1.0, 12.0]
    assert [row["x"] for row in rows_of(found["speed@2"])] == [43.0, 53.0]
    assert "query speed has another definition: version 2, whose results are speed@2" in caplog.text
    assert planned.definitions["other"].version == 1 and "other@2" not in found


def test_the_first_definition_again_is_a_version_of_its_own() -> None:
    made = charter({"root": None, "a": "root"}, [SPEED]).without_queries(["speed"])
    made = made.with_queries([PEAK]).without_queries(["speed"]).with_queries([SPEED])
    read = Charter.from_bytes(made.data)
    assert read.plans[read.plan].output("speed") == "speed@3"
    again = read.without_queries(["speed"]).with_queries([SPEED])
    assert again.plans[again.plan].output("speed") == "speed@3", "it is the same as the last"


def test_a_batch_job_tells_definitions_apart(tmp_path: Path) -> None:
    home = Folder(str(tmp_path))

    class Job:
        def __init__(self, *queries: ct.Query) -> None:
            self.queries = list(queries)

        def build(self) -> list[ct.Query]:
            return self.queries

    outputs = [
        batch_job.outputs_of(home, Job(*queries))  # type: ignore[arg-type]
        for queries in ((SPEED, OTHER), (SPEED,), (PEAK, OTHER))
    ]
    assert [held["speed"] for held in outputs] == ["speed", "speed", "speed@2"]
    assert outputs[-1]["other"] == "other"


# The job file against what was done since.


def test_only_what_a_job_file_says_anew_counts() -> None:
    third = named("third")
    assert file_changes([SPEED, OTHER], [OTHER, SPEED]) == {}
    assert file_changes([SPEED, OTHER], [PEAK, third]) == {
        "speed": PEAK,
        "other": None,
        "third": third,
    }


def test_a_removed_query_stays_removed_until_its_own_lines_change(tmp_path: Path) -> None:
    pipeline = Pipeline(str(tmp_path), [events(1)], [SPEED, OTHER])
    folder = QueryFolder(pipeline.spec.home)
    spec = pipeline.spec
    pipeline.spec.home.remove("given.json")
    assert take_up(spec, [SPEED, OTHER]) == []
    folder.remove("speed")
    folder.add(named("by hand"))
    stays = (
        "query speed was removed while the job ran: "
        "it stays so until its definition in the job file changes"
    )
    third = named("third")
    said = take_up(spec, [SPEED, OTHER, third])
    assert said == ["query third is new in the job file: it is added", stays]
    assert folder.read()[0].keys() == {"other", "third", "by hand"}
    assert take_up(spec, [SPEED, third]) == [
        "query other is no longer in the job file: it is removed",
        stays,
    ]
    assert take_up(spec, [PEAK, third]) == ["query speed is new in the job file: it is added"]
    assert folder.read()[0] == {"speed": PEAK, "third": third, "by hand": named("by hand")}
    changed = (
        "query speed has another definition in the job file: "
        "it begins anew, and its results are kept apart"
    )
    assert take_up(spec, [SPEED, third]) == [changed]
    folder.drain("speed")
    assert take_up(spec, [SPEED, third]) == [] and folder.leaving() == ["speed"]
    take_up(spec, [PEAK, third])
    assert folder.leaving() == [] and folder.read()[0]["speed"] == PEAK


def test_the_root_of_a_tree_keeps_the_same_rule() -> None:
    disk = MemoryDisk()
    places: dict[str, str | None] = {"root": None, "a": "root"}

    def started(*queries: ct.Query) -> tuple[Member, list[str]]:
        file = charter(places, queries)
        member = Member("root", disk, 0, deliver=lambda _: None, charter=file)
        return member, follow_file(member, file, 0)

    def queries(member: Member) -> dict[str, ct.Query]:
        assert member.charter is not None
        return member.charter.plans[member.charter.plan].queries

    root, said = started(SPEED, OTHER)
    assert said == []
    assert root.charter is not None
    root.adopt(root.charter.without_queries(["speed"]), 0)
    root, said = started(SPEED, OTHER, named("third"))
    assert queries(root).keys() == {"other", "third"}
    assert said[0] == "query third is new in the job file: it is added"
    assert "speed was removed while the job ran" in said[1]
    root, said = started(PEAK, OTHER, named("third"))
    assert queries(root)["speed"] == PEAK
    root, said = started(SPEED, named("third"))
    assert queries(root) == {"third": named("third"), "speed": SPEED}
    assert root.charter is not None
    assert root.charter.plans[root.charter.plan].output("speed") == "speed@3"


# Leaving.


def test_a_query_leaves_a_job_after_its_last_window(tmp_path: Path) -> None:
    """It leaves when 12 is the newest event: [10, 20) is its last window.

       1       12 | 15  21       31
    [0, 10) [10, 20)  [20, 30)
    """
    pipeline = Pipeline(str(tmp_path), [events(1, 12), events(15), events(21), events(31)], [SPEED])
    folder = QueryFolder(pipeline.spec.home)
    pipeline.at(1, lambda p: QueryFolder(p.spec.home).drain("speed"))
    pipeline.at(2, lambda p: _refused(p))
    found = rows_of(pipeline.run()["speed"])
    assert [(row["window_start"], row["x"]) for row in found] == [(0, 1.0), (10, 27.0)]
    assert folder.read()[0] == {} and folder.leaving() == []


def _refused(pipeline: Pipeline) -> None:
    with pytest.raises(QueryError, match="it is leaving: wait, or remove it without drain"):
        QueryFolder(pipeline.spec.home).add(PEAK)


def test_only_a_query_that_is_there_can_leave(tmp_path: Path) -> None:
    folder = QueryFolder(Folder(str(tmp_path)))
    folder.add(SPEED)
    with pytest.raises(QueryError, match=r"no such query.*speed"):
        folder.drain("sped")
    folder.drained(["speed"])
    assert "speed" in folder.read()[0], "it was not asked to leave"


class Told:
    """The root of a tree that is asked by commands."""

    def __init__(self) -> None:
        second = ct.Query("slow", ct.sum("v"), ct.count(), by="k", window=ct.tumbling("3s"))
        self.events = {id: batches(n, 600, 60, 2) for n, id in enumerate("ab")}
        parents: dict[str, str | None] = {"root": None, "a": "root", "b": "root"}
        self.world = World(charter(parents, [second, named("stays")]), self.events, until=0)

    def ask(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        root = self.world.sites["root"].member
        assert root is not None
        office = NodeService(root, threading.RLock(), threading.Event(), lambda: None)
        return answer(office, what, body)


def test_a_query_leaves_a_tree_after_its_last_window() -> None:
    told = Told()
    seen: list[dict[str, Any]] = []

    def drain() -> None:
        root = told.world.sites["root"].member
        machine = None if root is None else root.machine
        if not isinstance(machine, Root) or not machine.number:
            told.world.after(50_000, drain)
            return
        seen.append(told.ask("remove query", {"names": ["slow"], "drain": True}))
        seen.append(told.ask("queries", {}))
        with pytest.raises(ct.CatchmentError, match="two queries have one name"):
            told.ask("add query", {"queries": [named("slow").to_dict()]})

    told.world.after(100_000, drain)
    told.world.run()
    assert told.world.done and seen[0] == {"leaving": ["slow"]}
    assert seen[1]["leaving"] == ["slow"] and seen[1]["versions"] == {"slow": 1, "stays": 1}
    left = told.ask("queries", {})
    assert [query["name"] for query in left["queries"]] == ["stays"] and left["leaving"] == []
    rows = [row for tables in told.events.values() for t in tables for row in t.to_pylist()]
    given = final(told.world.deliveries, "slow")
    last = max(row["window_start"] for row in given)
    query = ct.Query("slow", ct.sum("v"), ct.count(), by="k", window=ct.tumbling("3s"))
    truth = ct.testing.oracle([query], rows)["slow"]
    due = {(r["k"], r["window_start"]): r["sum(v)"] for r in truth if r["window_start"] <= last}
    assert {(r["k"], r["window_start"]): r["sum(v)"] for r in given} == due
    assert len(due) < len(truth)


# Commands.


def test_commands_show_versions_and_let_queries_leave(tmp_path: Path) -> None:
    home = Folder(str(tmp_path)).sub("catchment")
    Pipeline(home.uri, [events(1)], [SPEED, OTHER])
    home.write(
        "job.json", records.encode(JobIdentity(FORMAT, "j", "j", "csv", "ts", "drop", 1, ()))
    )

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, ["queries", *words, "--checkpoint", str(tmp_path)])
        assert done.exit_code == 0, done.output
        return done.output

    assert run("rm", "--drain", "other") == "leaves after its open windows: other\n"
    assert run("rm", "speed") == "removed speed\n"
    out = run(
        "add",
        "--sql",
        "SELECT max(v) FROM events GROUP BY window(ts, '5 seconds')",
        "--name",
        "speed",
    )
    assert out == "added speed, version 2: its results are speed@2\n"
    shown = run("ls", "--json")
    assert '"version": 2, "leaving": false' in shown and '"version": 1, "leaving": true' in shown
    assert "1, leaving" in run("ls")


@pytest.mark.parametrize("drain", [False, True])
def test_a_removed_query_stays_removed_after_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drain: bool
) -> None:
    """The folder is on the disk without it, before anything else is written down."""
    folder = QueryFolder(Folder(str(tmp_path)))
    folder.add(SPEED)
    if drain:
        folder.drain("speed")
    done: list[str] = []

    def noted(name: str) -> None:
        real = getattr(LocalFiles, name)

        def call(self: LocalFiles, path: str, *more: str) -> Any:
            done.append(f"{name} {Path(path).relative_to(tmp_path)}")
            return real(self, path, *more)

        monkeypatch.setattr(LocalFiles, name, call)

    for name in ("unlink", "sync_folder", "create"):
        noted(name)
    folder.drained(["speed"]) if drain else folder.remove("speed")
    assert done[0].startswith("unlink ")
    assert done[1] == f"sync_folder {Path(done[0].split(' ', 1)[1]).parent}"
