"""The page in a real browser, over a real tree: every view, a query added, a node that is killed.

Chromium is Debian's (`make servers` brings it). All nodes run in threads of this process but one,
which is killed. CATCHMENT_SCREENSHOTS names a folder into which pictures of the views are written,
as the documents show them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from catchment.job import load_job
from catchment.measure.ports import free_port
from catchment.nodes.bootstrap import given
from catchment.nodes.start import process_of
from catchment.ui.server import Page
from catchment.ui.tree_job import TreeJob
from watched_jobs import SCRIPT, FakeJob

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is missing")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium (apt install chromium)"),
    pytest.mark.servers,
]
QUERIES = [
    {"name": "mean", "select": ["avg(v)", "count(*)"], "by": "player", "window": "tumbling(1s)"},
    {"name": "highest", "select": ["max(v)"], "by": "player", "window": "sliding(4s, 2s)"},
    {"name": "visits", "select": ["count(*)"], "by": "player", "window": "session(300ms)"},
]
SQL = "SELECT player, sum(v) AS total FROM events GROUP BY player, window(ts, '2 seconds')"
PATIENCE = 240_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    made = browser.new_context(viewport={"width": 1280, "height": 860}, color_scheme="light")
    tab = made.new_page()
    tab.set_default_timeout(PATIENCE)
    wrong: list[str] = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    yield tab
    made.close()
    assert wrong == []


def until(tab: Any, script: str) -> None:
    """Waits until a script gives true; the page's own policy forbids the browser to do so."""
    end = time.monotonic() + PATIENCE / 1000
    while not tab.evaluate(script):
        assert time.monotonic() < end, script
        tab.wait_for_timeout(100)


def quickest_update(tab: Any, updates: int = 12) -> float:
    """The least milliseconds that the page took to draw one of some updates.

    Other tests run beside this one, so that a single update may wait for a processor.
    """
    took = dict[str, float]()
    while len(took) < updates:
        shown = "[document.body.dataset.updates, document.body.dataset.took]"
        until(tab, f"Number(document.body.dataset.updates || 0) > {len(took)}")
        number, milliseconds = tab.evaluate(shown)
        took[number] = float(milliseconds)
        tab.wait_for_timeout(50)
    return min(took.values())


def shot(tab: Any, name: str) -> None:
    """Writes a picture for the documents, if one is asked for."""
    folder = os.environ.get("CATCHMENT_SCREENSHOTS")
    if folder:
        tab.screenshot(path=f"{folder}/{name}.png")


# -- a real tree ----------------------------------------------------------------------------------


def job_file(home: Path) -> Path:
    def source(seed: int) -> dict[str, Any]:
        pace = {"rate": 1000, "keys": 4, "per_batch": 500, "pace": 1500}
        return {"type": "generator", "seed": seed, "late_share": 0.01, "late_by": "20s", **pace}

    relay = f"127.0.0.1:{free_port()}"
    made = {
        "name": "plant",
        "queries": QUERIES,
        "timeout": "10m",
        "late": "collect",
        "checkpoint": str(home / "state"),
        "sinks": [{"type": "parquet", "path": str(home / "out")}],
        "nodes": [
            {"id": "root", "listen": f"127.0.0.1:{free_port()}"},
            {"id": "hall", "parent": "root", "listen": relay},
            {"id": "press", "parent": "hall", "source": source(1)},
            {"id": "oven", "parent": "hall", "source": source(2)},
            {"id": "yard", "parent": "root", "source": source(3)},
        ],
    }
    path = home / "job.yaml"
    path.write_text(yaml.safe_dump(made))
    return path


class Tree:
    """Nodes that run, in threads; `oven` is a process of its own, so that it can be killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.job = load_job(path)
        self.sites: dict[str, subprocess.Popen[bytes]] = {}
        self._inner: list[tuple[Any, threading.Thread]] = []

    def __enter__(self) -> Tree:
        for node in self.job.nodes:
            if node.id != "oven":
                process = process_of(given(self.job, node.id, engine="embedded"))
                thread = threading.Thread(target=process.run, daemon=True)
                thread.start()
                self._inner.append((process, thread))
            else:
                self.begin(node.id)
        return self

    def begin(self, id: str) -> None:
        command = [sys.executable, "-m", "catchment.cli.main", "node", id, str(self.path)]
        self.sites[id] = subprocess.Popen([*command, "--engine", "embedded"])

    def kill(self, id: str) -> None:
        self.sites[id].kill()
        self.sites[id].wait()

    def __exit__(self, *_: object) -> None:
        for site in self.sites.values():
            site.kill()
            site.wait()
        for process, thread in reversed(self._inner):
            process.stop()
            thread.join(PATIENCE / 1000)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    with ExitStack() as stack:
        yield stack.enter_context(Tree(job_file(tmp_path)))


def test_a_tree_is_watched_changed_and_seen_to_its_end(tree: Tree, tab: Any) -> None:
    with Page([TreeJob(tree.job)], 0, period=0.3) as page:
        tab.goto(page.url)
        assert tab.url == f"http://127.0.0.1:{page.port}/#tree" or tab.url.endswith("/")
        tab.wait_for_selector(".tree g.node.connected >> nth=4")
        until(tab, "document.querySelector('.share') !== null")  # bytes against all events
        tab.wait_for_selector("#state.running")
        watch_queries(tab)
        watch_results(tab)
        watch_health(tab)
        tab.click("#tab-tree")
        watch_a_kill(tab, tree)
    lost = tab.locator("#connection")
    lost.wait_for()
    assert "lost" in lost.inner_text()


def watch_queries(tab: Any) -> None:
    tab.click("#tab-queries")
    tab.wait_for_selector(".queries .row:has-text('sliding(4s, 2s)')")
    tab.wait_for_selector(".sharing .needs path")
    tab.fill("#new-sql", SQL.replace("sum(v)", "sum(nowhere)"))
    tab.wait_for_selector(".said.bad:has-text('nowhere')")
    assert tab.is_disabled("button[type=submit]")
    tab.fill("#new-sql", SQL)
    tab.fill("#new-name", "total")
    tab.wait_for_selector(".said.good:has-text('it can be added')")
    tab.wait_for_selector("button[type=submit]:not([disabled])")
    tab.press("#new-name", "Enter")
    tab.click(".queries .row:has-text('total')")
    tab.wait_for_selector(".detail:has-text('operator calls an event')")
    shot(tab, "queries")
    tab.click(".queries .row:has-text('visits')")
    tab.click(".detail button:has-text('Remove')")
    until(tab, "!document.querySelector('.queries').innerText.includes('visits')")


def watch_results(tab: Any) -> None:
    tab.click(".queries .row:has-text('mean')")
    tab.click(".detail button:has-text('Results')")
    tab.wait_for_selector("#view-results .row:not(.head) >> nth=12")
    assert tab.locator("#result-value option").all_inner_texts() == ["avg(v)", "count(*)"]
    tab.wait_for_selector(".legend .key >> nth=3")
    tab.hover(".chart-box canvas >> nth=0", position={"x": 500, "y": 100})
    tab.wait_for_selector(".tip-line")
    shot(tab, "results")
    with tab.expect_download() as download:
        tab.click("a:has-text('CSV')")
    assert Path(download.value.path()).read_text().startswith('"player","window_start"')
    tab.fill("#result-query", "total")
    until(tab, "document.querySelector('#result-value').value === 'total'")


def watch_health(tab: Any) -> None:
    tab.press("#tab-results", "ArrowRight")  # by keyboard
    assert tab.evaluate("document.activeElement.id") == "tab-health"
    tab.wait_for_selector(".limit:has-text('inbox')")
    tab.wait_for_selector(".tiles .warn dd")  # late events
    tab.select_option("#aside-kind", "late")
    tab.wait_for_selector("#view-health .results .row:not(.head, .none)")
    shot(tab, "health")


def watch_a_kill(tab: Any, tree: Tree) -> None:
    tree.kill("oven")
    tab.wait_for_selector(".tree g.node.missing:has-text('oven')")
    tab.wait_for_selector(".nodes .row.missing:has-text('oven')")
    tab.wait_for_selector("#alerts .bad:has-text('oven is missing')")
    shot(tab, "missing")
    tree.begin("oven")
    tab.wait_for_selector(".tree g.node.connected:has-text('oven')")
    until(tab, "!document.querySelector('#alerts').innerText.includes('missing')")


def test_a_wrong_token_shows_no_page(tab: Any) -> None:
    with Page([FakeJob()], 0) as page:
        answer = tab.goto(f"http://127.0.0.1:{page.port}/?token=wrong")
        assert answer.status == 403
        assert "open the address that the command has printed" in tab.inner_text("body")


def test_many_queries_and_nodes_stay_usable_and_names_do_not_bite(browser: Any, tab: Any) -> None:
    """10,000 queries, 1,000 nodes: what an update takes, and what is in the document."""
    job = FakeJob(10_000, 1000)
    job.planned()
    job.missing = {"site-444"}
    with Page([job], 0, period=0.5) as page:
        tab.goto(page.url)
        tab.wait_for_selector(".tree g.node.missing:has-text('site-444')")
        assert quickest_update(tab) < 100
        assert tab.evaluate("document.querySelectorAll('*').length") < 4000
        shot(tab, "large")
        tab.click("#tab-queries")
        tab.wait_for_selector(".queries .row >> nth=10")
        tab.fill("#view-queries input[type=search]", "q09999")
        tab.wait_for_selector(".queries .row:has-text('q09999')")
        assert tab.locator(".queries .row").count() < 60
        tab.click("#tab-results")
        tab.wait_for_selector("#view-results .row:has-text('onerror')")
        tab.click("#tab-health")
        tab.wait_for_selector(".notices:has-text('bitten=1')")
        assert tab.evaluate("window.bitten") is None
        assert SCRIPT in tab.inner_text(".notices")


def test_a_lost_connection_comes_back(tab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()

    def page() -> Page:
        return Page([FakeJob()], port, period=0.2)

    with monkeypatch.context() as same:
        same.setattr("secrets.token_urlsafe", lambda _: "the same again")
        with page() as first:
            tab.goto(first.url)
            tab.wait_for_selector("#state.running")
        tab.wait_for_selector("#connection:has-text('lost')")
        with page():
            tab.wait_for_selector("#connection", state="hidden")
    with page():  # with another token
        tab.wait_for_selector("#connection:has-text('open the address')")
