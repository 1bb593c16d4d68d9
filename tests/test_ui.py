"""The page's server: who is let in, what it says of a job, and what it costs."""

from __future__ import annotations

import asyncio
import io
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
import yaml
from msgspec.structs import replace
from starlette.testclient import TestClient
from typer.testing import CliRunner

from catchment.cli import needs
from catchment.cli.main import app as commands
from catchment.cli.run import Options, adjusted
from catchment.cli.ui import RECENT
from catchment.errors import CatchmentError, QueryError
from catchment.job.loading import load_job
from catchment.model import records
from catchment.model.capacity import Capacity
from catchment.nodes.status import ChildStatus, NodeStatus, PlaceStatus
from catchment.serving.strangers import STRANGERS, Strangers
from catchment.sinks.base import Delivery
from catchment.sinks.console import Console
from catchment.sinks.memory import Memory
from catchment.sinks.parquet import ParquetSink
from catchment.ui import server
from catchment.ui.alerts import LOOKS, REMEMBERED, Alerts
from catchment.ui.feed import Feed, Update, event
from catchment.ui.guard import BODY
from catchment.ui.plan_view import QueriesView, queries_view
from catchment.ui.results import ResultReader, as_csv, rows_view
from catchment.ui.server import ASSETS, SHOWN, WATCHERS, Page
from catchment.ui.snapshot import JobView, ShownNode, Snapshot
from catchment.ui.tree_job import node_views
from patience import PATIENCE, wait_for
from watched_jobs import BEGAN, IMAGE, SCRIPT, FakeJob

SQL = "SELECT k, avg(v) FROM events GROUP BY k, window(ts, '10 seconds')"
MARKED = {"x-catchment": "1"}


@pytest.fixture
def job() -> FakeJob:
    return FakeJob()


@pytest.fixture
def page(job: FakeJob) -> Iterator[Page]:
    made = Page([job], 0)
    yield made
    made.close()


@pytest.fixture
def stranger(page: Page) -> Iterator[TestClient]:
    with TestClient(
        page.app, base_url=f"http://127.0.0.1:{page.port}", raise_server_exceptions=False
    ) as client:
        yield client


@pytest.fixture
def client(page: Page, stranger: TestClient) -> TestClient:
    """Somebody who has opened the address that was printed."""
    assert stranger.get(f"/?token={page.token}").status_code == 200
    return stranger


# -- who is let in -----------------------------------------------------------------------------

PATHS = ["/", "/assets/app.js", "/api/jobs", *(f"/api/jobs/0/{p}" for p in ("events", "queries"))]


@pytest.mark.parametrize("path", PATHS)
def test_a_stranger_is_refused_everywhere(stranger: TestClient, path: str) -> None:
    answer = stranger.get(path)
    assert answer.status_code == 403
    assert "open the address that the command has printed" in answer.text


@pytest.mark.parametrize("token", ["", "wrong", "é", "\ud800".encode("utf-8", "replace").decode()])
def test_a_wrong_token_is_refused(stranger: TestClient, token: str) -> None:
    assert stranger.get("/", params={"token": token}).status_code == 403


def test_a_wrong_cookie_is_refused(page: Page, stranger: TestClient) -> None:
    for cookie in ("", "wrong", page.token):
        stranger.cookies.set(f"catchment_{page.port}", cookie)
        assert stranger.get("/api/jobs").status_code == 403


def test_the_token_gives_a_cookie_that_scripts_and_other_sites_cannot_use(
    page: Page, stranger: TestClient
) -> None:
    answer = stranger.get(f"/?token={page.token}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert page.token not in cookie


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example"])
def test_a_name_that_leads_here_is_refused(page: Page, client: TestClient, host: str) -> None:
    for name in (host, f"{host}:{page.port}"):
        answer = client.get("/api/jobs", headers={"host": name})
        assert (answer.status_code, "at 127.0.0.1 only" in answer.text) == (421, True)


def test_every_answer_has_the_headers_that_keep_scripts_out(client: TestClient) -> None:
    for path in ("/", "/api/jobs", "/nowhere", "/assets/style.css"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"


def test_other_sites_cannot_change_anything(client: TestClient, job: FakeJob) -> None:
    body = {"name": "q00001"}
    assert client.post("/api/jobs/0/remove", json=body).status_code == 403
    strange = MARKED | {"origin": "http://evil.example"}
    assert client.post("/api/jobs/0/remove", json=body, headers=strange).status_code == 403
    assert client.get("/api/jobs/0/remove", headers=MARKED).status_code == 405
    assert client.delete("/api/jobs/0/remove", headers=MARKED).status_code == 405
    assert job.removed == []


def test_a_request_that_is_too_large_is_refused(client: TestClient) -> None:
    answer = client.post("/api/jobs/0/add", content=b"x" * (BODY + 1), headers=MARKED)
    assert (answer.status_code, "at most 65,536 bytes" in answer.text) == (413, True)
    many = (b"x" for _ in range(3))  # in chunks, without a size
    assert client.post("/api/jobs/0/add", content=many, headers=MARKED).status_code == 413


def test_files_beside_the_assets_are_not_served(client: TestClient) -> None:
    for path in ("/assets/../server.py", "/assets/%2e%2e/server.py", "/assets//etc/passwd"):
        assert client.get(path).status_code in (404, 405)


# -- what the page is made of ------------------------------------------------------------------


def test_the_page_works_offline_and_never_makes_html_of_what_it_is_told() -> None:
    for path in ASSETS.iterdir():
        text = path.read_text()
        beyond = [a for a in re.findall(r"https?://[^\s\"')]+", text) if "www.w3.org" not in a]
        assert beyond == [], path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", text)
        assert not re.search(r"\beval\(|new Function|<style|style=", text)
        assert path.suffix != ".html" or not re.search(r"\son\w+=", text)


def test_names_that_bite_come_as_text(client: TestClient) -> None:
    found = client.get("/api/jobs/0/queries")
    assert found.headers["content-type"] == "application/json"
    assert found.json()["queries"][0][0] == SCRIPT
    rows = client.get("/api/jobs/0/results", params={"query": SCRIPT}).json()["rows"]
    assert rows[-1][0] == IMAGE
    assert SCRIPT not in client.get("/").text


# -- queries -------------------------------------------------------------------------------------


def test_queries_are_checked_added_and_removed(client: TestClient, job: FakeJob) -> None:
    def post(path: str, body: object) -> httpx.Response:
        return client.post(f"/api/jobs/0/{path}", json=body, headers=MARKED)

    assert post("check", {"sql": SQL, "name": "new"}).json() == {}
    assert job.added == []
    assert post("add", {"sql": SQL, "name": "new"}).json() == {"added": "new"}
    assert [query.name for query in job.added] == ["new"]
    assert post("remove", {"name": "q00001", "drain": True}).json() == {"removed": "q00001"}
    assert job.removed == [("q00001", True)]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"sql": "SELEC", "name": "n"}, "SELEC"),
        ({"sql": SQL, "name": ""}, "a query needs a name"),
        ({"sql": SQL, "name": "q00001"}, "two queries have one name (given: q00001); remove one"),
        ({"sql": SQL}, "the request cannot be understood"),
        ([], "the request cannot be understood"),
    ],
)
def test_what_is_wrong_with_a_query_is_said(client: TestClient, body: object, said: str) -> None:
    answer = client.post("/api/jobs/0/check", json=body, headers=MARKED)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["text"]


def test_the_plan_is_told_with_what_shares_what(job: FakeJob) -> None:
    found = queries_view(job.planned())
    assert [line.name for line in found.queries] == list(job.planned().queries)
    shared = max(found.groups, key=lambda group: group.queries)
    assert sum(group.queries for group in found.groups) == len(found.queries)
    assert sum(queries for _, queries in shared.windows) == shared.queries
    by_window = {shared.windows[w][0]: set() for w, _ in shared.needs}
    for w, o in shared.needs:
        by_window[shared.windows[w][0]].add(shared.operators[o])
    assert by_window["tumbling(1s)"] >= {"sum(v)", "count(v)"}  # of the average
    line = next(line for line in found.queries if line.name == SCRIPT)
    assert (line.alone, line.group) == (2, shared.id)
    assert any("operator calls an event" in text for text in shared.lines)
    assert records.decode(QueriesView, records.encode(found), "the view") == found


# -- results -------------------------------------------------------------------------------------


def test_results_are_shown_and_exported(client: TestClient) -> None:
    found = client.get("/api/jobs/0/results", params={"query": SCRIPT}).json()
    assert found["keys"] == ["k"] and found["kinds"][:4] == ["text", "time", "time", "number"]
    assert len(found["rows"]) == 200 and not found["more"]
    assert found["rows"][0][2] == BEGAN + 1_000_000
    exported = client.get("/api/jobs/0/export", params={"query": SCRIPT, "format": "parquet"})
    assert pq.read_table(io.BytesIO(exported.content)).num_rows == 200
    assert exported.headers["content-disposition"].startswith('attachment; filename="')
    assert "<" not in exported.headers["content-disposition"]
    exported = client.get("/api/jobs/0/export", params={"query": SCRIPT, "format": "csv"})
    assert csv.read_csv(io.BytesIO(exported.content)).column_names[:2] == ["k", "window_start"]


def test_a_huge_result_is_cut_to_its_newest_rows(
    client: TestClient, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"window_end": pa.array(range(SHOWN + 500)), "n": range(SHOWN + 500)})
    job.memory.write(Delivery("fake", 99, 0, {"q00001": table}, {"q00001": ()}))
    found = client.get("/api/jobs/0/results", params={"query": "q00001"}).json()
    assert (len(found["rows"]), found["more"], found["rows"][-1][1]) == (SHOWN, True, SHOWN + 499)
    monkeypatch.setattr(server, "EXPORTED", 70)
    export = client.get("/api/jobs/0/export", params={"query": "q00001"})
    rows = csv.read_csv(io.BytesIO(export.content))["n"].to_pylist()
    assert rows == [*range(SHOWN + 430, SHOWN + 500)]


def test_a_job_with_a_page_keeps_few_results_in_memory() -> None:
    asked = {"queries": [{"name": "n", "select": ["count(*)"], "window": "tumbling(1s)"}]}
    (_, held) = adjusted(load_job(asked), Options(ui=0)).sinks
    assert isinstance(held, Memory) and held.limit == RECENT == 200_000


def test_values_that_a_browser_cannot_hold_are_texts() -> None:
    table = pa.table(
        {"i": [2**60, None], "f": [float("nan"), 1.5], "l": [[1, 2], None], "d": [b"\xff", None]}
    )
    rows = [records.decode(list, bytes(row), "a row") for row in rows_view(table).rows]
    assert rows == [[str(2**60), "NaN", [1, 2], "/w=="], [None, 1.5, None, None]]
    assert b"1,2" in as_csv(table.drop_columns(["d"]))


def test_results_of_sinks_that_cannot_be_read_say_so() -> None:
    reader = ResultReader([Console()])
    assert reader.location is None
    with pytest.raises(QueryError, match=r"cannot read where this job's results go.*console"):
        reader.newest("q", 10)
    assert "newest 1,000,000 rows" in (ResultReader([Memory()]).location or "")


@pytest.mark.parametrize("layout", ["per-query", "long"])
def test_of_parquet_files_the_newest_are_read_and_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    sink = ParquetSink(path=str(tmp_path), layout=layout)
    for batch in range(6):
        rows = pa.table({"window_end": pa.array([batch] * 10, pa.timestamp("us", "UTC"))})
        both = {name: rows.append_column("n", [[batch] * 10]) for name in ("q", "other")}
        sink.write(Delivery("job", batch, 0, both, {"q": (), "other": ()}))
    reader = ResultReader([sink])
    column = "n" if layout == "per-query" else "value"
    assert reader.newest("q", 15)[column].to_pylist() == [4] * 5 + [5] * 10
    monkeypatch.setattr(pq, "read_table", lambda *_, **__: pytest.fail("it was read before"))
    assert reader.newest("q", 20)[column].to_pylist() == [4] * 10 + [5] * 10
    assert reader.newest("nobody", 0).num_rows == 0


def test_rows_set_aside_are_shown_with_their_reason(client: TestClient) -> None:
    found = client.get("/api/jobs/0/aside", params={"kind": "bad"}).json()
    assert (found["columns"], found["rows"][0]) == (["origin", "reason"], ["a.csv", SCRIPT])
    assert client.get("/api/jobs/0/aside", params={"kind": "late"}).json()["rows"] == []
    assert client.get("/api/jobs/0/aside", params={"kind": "../x"}).status_code == 404
    assert client.get("/api/jobs/7/aside").status_code == 404


def test_several_jobs_have_one_page(job: FakeJob) -> None:
    other = FakeJob(3, kind="spark")
    made = Page([job, other], 0)
    with TestClient(made.app, base_url=f"http://127.0.0.1:{made.port}") as client:
        client.get(f"/?token={made.token}")
        found = client.get("/api/jobs").json()
        assert found == [{"number": n, "name": job.name} for n in (0, 1)]
        counts = [len(client.get(f"/api/jobs/{n}/queries").json()["queries"]) for n in (0, 1)]
    made.close()
    assert counts == [20, 3]


# -- looking -------------------------------------------------------------------------------------


def test_a_watcher_gets_all_and_then_what_changes() -> None:
    job = FakeJob(nodes=12)

    async def told() -> list[Update]:
        feed = Feed(job, period=0.01)
        found = []
        async for update in feed.updates():
            assert update is not None
            found.append(update)
            if len(found) == 3:
                break
        return found

    first, second, third = asyncio.run(told())
    assert {"job", "counts", "node/root", "node/site-5"} <= set(first.set)
    assert "notices" not in second.set and "job" in second.set
    assert first.look < second.look < third.look
    assert event(first).startswith(b"data: {") and event(first).endswith(b"}\n\n")


def test_a_slow_watcher_gets_what_it_missed_at_once_and_what_has_gone() -> None:
    job = FakeJob(nodes=5)

    async def told() -> Update | None:
        feed = Feed(job, period=60)
        updates = feed.updates()
        await anext(updates)
        job.nodes = 3
        for _ in range(3):
            await feed.look()
        return await anext(updates)

    found = asyncio.run(told())
    assert found is not None and found.gone == ["node/site-3", "node/site-4"]
    assert records.decode(dict, bytes(found.set["counts"]), "counts")["events"] == 4 * 5000


def test_nobody_looks_while_nobody_watches() -> None:
    job = FakeJob()

    async def watched() -> tuple[int, int]:
        feed = Feed(job, period=0.01)
        assert job.step == 0
        updates = feed.updates()
        await anext(updates)
        await updates.aclose()  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)
        before = job.step
        await asyncio.sleep(0.1)
        return before, job.step

    before, after = asyncio.run(watched())
    assert before == after


def test_a_job_that_cannot_be_looked_at_does_not_end_the_page() -> None:
    class Broken(FakeJob):
        def look(self) -> Snapshot:
            if self.step < 2:
                self.step += 1
                raise RuntimeError("a bug")
            return super().look()

    async def told() -> Update | None:
        return await anext(Feed(Broken(), period=0.01).updates())

    assert asyncio.run(told()) is not None


def test_an_update_is_quick_and_small_at_ten_thousand_queries_and_a_thousand_nodes() -> None:
    """CPU time of this process: others may run beside. The page's own share is measured in the
    browser."""
    job = FakeJob(10_000, 1000)
    assert len(queries_view(job.planned()).queries) == 10_000

    async def taken() -> tuple[float, int]:
        feed = Feed(job, period=60)
        updates = feed.updates()
        await anext(updates)
        began = time.process_time()
        await feed.look()
        update = await anext(updates)
        size = len(event(update))
        return time.process_time() - began, size

    tries = [asyncio.run(taken()) for _ in range(5)]
    assert min(seconds for seconds, _ in tries) < 0.1
    assert max(size for _, size in tries) < 400_000


def test_only_so_many_pages_watch_at_once(client: TestClient, page: Page) -> None:
    page.watched[0].feed.watchers = WATCHERS
    answer = client.get("/api/jobs/0/events")
    assert (answer.status_code, f"{WATCHERS} pages watch" in answer.text) == (503, True)


def browsing(**more: Any) -> httpx.Client:
    return httpx.Client(timeout=PATIENCE, **more)


def test_a_real_server_streams_and_ends_at_once(job: FakeJob) -> None:
    took = []
    for _ in range(3):
        with Page([job], 0, period=0.05) as page, browsing(follow_redirects=True) as browser:
            assert browser.get(page.url).status_code == 200
            events = f"http://127.0.0.1:{page.port}/api/jobs/0/events"
            with browser.stream("GET", events) as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                lines = stream.iter_lines()
                assert next(lines).startswith("data: {")
                assert "server" not in stream.headers
            began = time.monotonic()
        took.append(time.monotonic() - began)
    assert min(took) < 5


def test_silent_strangers_neither_stay_nor_keep_others_out(job: FakeJob) -> None:
    """Hundreds say nothing, or half a request: few of them are held, and not for long."""
    few = Strangers(seconds=5.0)
    with Page([job], 0, period=0.05, strangers=few) as page, browsing() as browser:
        address = ("127.0.0.1", page.port)
        silent = [socket.create_connection(address) for _ in range(300)]
        for one in silent[-20:]:
            one.sendall(b"GET / HTTP/1.1\r\nhost: ")
        assert browser.get(page.url).status_code == 303
        with browser.stream("GET", f"http://127.0.0.1:{page.port}/api/jobs/0/events") as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: {")
            assert len(few) <= STRANGERS
            for one in silent:
                one.settimeout(PATIENCE)
                with suppress(ConnectionError):
                    assert one.recv(1) == b""  # cut off
                one.close()
            wait_for(lambda: len(few) == 0)
            assert any(line.startswith("data: {") for line in lines)  # who was let in stays


def test_who_is_refused_is_a_stranger_still(job: FakeJob) -> None:
    few = Strangers(seconds=1.0)
    with (
        Page([job], 0, strangers=few) as page,
        socket.create_connection(("127.0.0.1", page.port), timeout=PATIENCE) as refused,
    ):
        ask = f"GET / HTTP/1.1\r\nhost: 127.0.0.1:{page.port}\r\n\r\n".encode()
        end = time.monotonic() + 60
        with suppress(ConnectionError):
            # It asks again and again, so that it is never idle.
            while time.monotonic() < end and (refused.sendall(ask) or refused.recv(1024)):
                time.sleep(0.1)
        assert time.monotonic() < end, "it was not cut off"


def test_a_second_page_on_the_port_says_which(page: Page, job: FakeJob) -> None:
    with pytest.raises(CatchmentError, match=f"the page cannot have port {page.port}.*in use"):
        Page([job], page.port)


def test_a_missing_extra_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(needs, "find_spec", lambda name: None)
    done = CliRunner().invoke(commands, ["ui", str(tmp_path / "job.yaml")])
    assert done.exit_code == 1
    assert done.stderr == (
        "catchment: the page is not installed (given: no starlette and no uvicorn); "
        "pip install 'catchment[ui]'\n"
    )


def test_help_does_not_load_the_server() -> None:
    """`catchment --help` must be quick."""
    import subprocess

    code = (
        "import sys, catchment.cli.main, catchment.cli.run\n"
        "print([name for name in ('starlette', 'uvicorn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


# -- what is wrong --------------------------------------------------------------------------------


def snapshot(**given: object) -> Snapshot:
    return replace(Snapshot(JobView("j", "tree", "running")), **given)


def test_missing_nodes_failures_and_full_limits_are_alerts() -> None:
    nodes = tuple(ShownNode(f"n{n}", "root", "reads", "missing") for n in range(5))
    full = Capacity("inbox", 95, 100, "bytes", "children wait")
    half = Capacity("outbox", 50, 100, "bytes", "nothing is read")
    found = Alerts().of(snapshot(nodes=nodes, limits=(full, half)))
    assert [(a.level, a.text) for a in found] == [
        ("bad", "n0, n1, n2 and 2 more are missing"),
        ("warn", "inbox: 95% used; when full, children wait"),
    ]
    failed = snapshot(job=JobView("j", "spark", "failed", error="the disk is full"))
    assert [a.text for a in Alerts().of(failed)] == ["the disk is full"]
    ended = snapshot(job=JobView("j", "tree", "ended"), nodes=nodes)
    assert Alerts().of(ended) == ()


def test_a_lag_that_grows_is_an_alert_and_one_that_does_not_is_none() -> None:
    growing, steady = Alerts(), Alerts()
    for n in range(LOOKS):
        more = growing.of(snapshot(job=JobView("j", "tree", "running", lag=6.0 + n)))
        same = steady.of(snapshot(job=JobView("j", "tree", "running", lag=30.0 + n % 2)))
    assert [a.text for a in more] == ["the lag grows: from 6.0 s to 15.0 s"]
    assert same == ()


def test_a_lag_that_has_risen_is_an_alert_until_it_is_usual() -> None:
    alerts = Alerts()

    def told(lag: float) -> list[str]:
        return [a.text for a in alerts.of(snapshot(job=JobView("j", "tree", "running", lag=lag)))]

    assert told(0.4) == []
    assert told(16.0) == ["the lag is 16 s, and was 0.4 s"]
    assert told(0.5) == []
    for n in range(REMEMBERED):
        last = told(15.0 + n % 2)
    assert last == []


def child(connected: bool, frontier: int | str | None, **given: object) -> ChildStatus:
    made = ChildStatus(connected, 7.0, frontier, 4, 4, (), None)
    return replace(made, **given)


def status(**given: object) -> NodeStatus:
    return NodeStatus(
        node="root",
        role="root",
        job="j",
        charter=1,
        damage=[],
        life=1,
        frontier=10_000_000,
        never_read=(),
        never_read_by_nodes={},
        limits=[],
        **given,
    )


def test_nodes_are_seen_as_their_parents_see_them() -> None:
    places = [
        PlaceStatus("root", None, "h:1"),
        PlaceStatus("relay", "root", "h:2"),
        PlaceStatus("a", "relay", None),
        PlaceStatus("b", "relay", None),
        PlaceStatus("c", "root", None),
    ]
    children = {"relay": child(True, 10_000_000), "c": child(False, "ended")}
    root = status(places=places, children=children)
    below = {"a": child(True, 14_000_000, nbytes=99), "b": child(False, 12_000_000)}
    relay = status(children=below)
    found = {node.id: node for node in node_views(root, {"relay": relay}, True)}
    assert {id: node.state for id, node in found.items()} == {
        "root": "connected",
        "relay": "connected",
        "a": "connected",
        "b": "missing",
        "c": "ended",
    }
    assert (found["a"].nbytes, found["a"].behind, found["b"].behind) == (99, 0.0, 2.0)
    assert (found["b"].silent, found["root"].behind, found["relay"].role) == (7.0, 4.0, "merges")
    # The relay does not answer: of what is below nobody can tell.
    unanswered = {node.id: node.state for node in node_views(root, {"relay": None}, True)}
    assert (unanswered["a"], unanswered["b"]) == ("unknown", "unknown")


def test_the_browser_is_opened_without_the_token_on_a_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []

    def look(address: str) -> bool:
        opened.append(address)
        path = Path(address.removeprefix("file://"))
        assert path.stat().st_mode & 0o077 == 0
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=[\w-]+", path.read_text())
        assert found is not None and httpx.get(found[0], follow_redirects=False).status_code == 303
        raise CatchmentError("seen enough")

    monkeypatch.setattr("webbrowser.open", look)
    nodes = [
        {"id": "root", "listen": "127.0.0.1:9"},
        {"id": "a", "parent": "root", "source": {"type": "generator"}},
    ]
    query = {"name": "q", "select": ["count(*)"], "window": "tumbling(1s)"}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"queries": [query], "nodes": nodes}))
    done = CliRunner().invoke(commands, ["ui", str(path), "--port", "0", "--open"])
    assert "seen enough" in done.stderr and "the page is at http://127.0.0.1:" in done.stderr
    assert len(opened) == 1 and "token" not in opened[0]
    assert not Path(opened[0].removeprefix("file://")).exists()
