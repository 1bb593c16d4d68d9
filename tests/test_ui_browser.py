"""The page in a real browser, over a real tree: every view, a query added, a node that is killed.

Chromium is Debian's (`make servers` brings it). All nodes run in threads of this process but one,
which is killed. `scripts/screenshots.py` takes the pictures of the documents.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catchment.errors import QueryError
from catchment.measure.ports import free_port
from catchment.sinks.base import Delivery
from catchment.sqltext import sql
from catchment.ui.server import Page
from catchment.ui.tree_job import TreeJob
from watched_jobs import SCRIPT, FakeJob
from watched_spark import stopped_job
from watched_tree import Tree, job_file

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is missing")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium (apt install chromium)"),
    pytest.mark.servers,
]
SQL = "SELECT player, sum(v) AS total FROM events GROUP BY player, window(ts, '2 seconds')"
PATIENCE = 240_000
UTC = pa.timestamp("us", "UTC")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    made = browser.new_context(viewport={"width": 1280, "height": 860}, reduced_motion="reduce")
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


def at_width(browser: Any, wide: int, **look: Any) -> Any:
    """A tab of a browser that is so wide, and has other wishes."""
    size = {"width": wide, "height": 860}
    made = browser.new_context(viewport=size, reduced_motion="reduce", **look)
    tab = made.new_page()
    tab.set_default_timeout(PATIENCE)
    return tab


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


# -- a real tree ----------------------------------------------------------------------------------


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


def watch_a_kill(tab: Any, tree: Tree) -> None:
    tree.kill("oven")
    tab.wait_for_selector(".tree g.node.missing:has-text('oven')")
    tab.wait_for_selector(".nodes .row.missing:has-text('oven')")
    tab.wait_for_selector("#alerts .bad:has-text('oven is missing')")
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


# -- jobs on Spark, and jobs that have ended ------------------------------------------------------


def test_a_job_on_spark_has_no_tree_and_takes_queries(tab: Any, tmp_path: Path) -> None:
    """By its folder, as a job that runs elsewhere is looked at."""
    job = stopped_job(tmp_path, [{"type": "console"}])
    with Page([job], 0, period=0.3) as page:
        tab.goto(page.url)
        tab.wait_for_selector("#state.stopped")
        assert tab.get_attribute("#tab-health", "aria-selected") == "true"
        assert not tab.is_visible("#tab-tree")
        tab.wait_for_selector(".tiles .warn dd:has-text('2')")  # late events
        tab.click("#tab-queries")
        tab.fill("#new-sql", SQL.replace("sum(v)", "sum(nowhere)"))
        tab.wait_for_selector(".said.bad:has-text('nowhere')")
        tab.fill("#new-sql", SQL)
        tab.fill("#new-name", "total")
        tab.wait_for_selector("button[type=submit]:not([disabled])")
        tab.press("#new-name", "Enter")
        tab.wait_for_selector(".said.good:has-text('added total')")
        with pytest.raises(QueryError, match="two queries have one name"):
            job.add(sql(SQL, "total"))
        tab.click("#tab-results")
        tab.wait_for_selector(".said.bad:has-text('the page cannot read where')")


def test_a_job_that_has_ended_shows_its_results(tab: Any, tmp_path: Path) -> None:
    sink = {"type": "parquet", "path": str(tmp_path / "out")}
    job = stopped_job(tmp_path / "home", [sink], ended=True)
    rows = pa.table({"player": ["a"], "window_end": pa.array([10**6], UTC), "avg(v)": [2.5]})
    job.sinks[0].write(Delivery("j-1", 7, 0, {"mean": rows}, {"mean": ("player",)}))
    with Page([job], 0, period=0.3) as page:
        tab.goto(page.url)
        tab.wait_for_selector("#state.ended")
        assert tab.inner_text("#facts").split("\n")[:2] == ["frontier", "ended"]
        assert not tab.is_visible("#alerts")
        tab.click("#tab-results")
        tab.wait_for_selector("#view-results .row:has-text('2.5')")


# -- dark, narrow, and by keys ---------------------------------------------------------------


def brightness(tab: Any, selector: str, property: str) -> float:
    """From 0, black, to 255."""
    found = tab.eval_on_selector(selector, f"one => getComputedStyle(one)['{property}']")
    red, green, blue = map(float, re.findall(r"[\d.]+", found)[:3])
    return (red + green + blue) / 3


def test_the_page_is_dark_and_narrow_where_that_is_wished(browser: Any) -> None:
    """At 420 pixels nothing is wider than the screen, and what matters is seen at once."""
    job = FakeJob(20, 9)
    job.missing = {"site-4"}
    with Page([job], 0, period=0.3) as page:
        tab = at_width(browser, 420, color_scheme="dark")
        tab.goto(page.url)
        tab.wait_for_selector(".tree g.node.missing:has-text('site-4')")
        for selector in (".panel", "body", ".row.head"):
            assert brightness(tab, selector, "backgroundColor") < 60
        assert brightness(tab, ".nodes .row.connected", "color") > 180
        lefts = tab.eval_on_selector_all(
            ".tree g.node .card", "all => all.map((one) => one.getBoundingClientRect())"
        )
        assert all(one["left"] >= 0 and one["right"] <= 420 for one in lefts)
        tops = [one["top"] for one in lefts]
        assert all(later >= before + 60 for before, later in pairwise(tops))
        for view in ("tree", "queries", "results", "health"):
            tab.click(f"#tab-{view}")
            tab.wait_for_selector(f"#view-{view} .panel")
            assert tab.evaluate("document.documentElement.scrollWidth") <= 420, view
            for selector in IN_SIGHT[view]:
                tab.wait_for_selector(selector)
                rights = tab.eval_on_selector_all(selector, RIGHTS)
                assert rights and all(right <= room for right, room in rights), (selector, rights)
        tab.context.close()


IN_SIGHT = {
    "tree": (".nodes .row.head > :nth-child(7)",),
    "queries": (".bars > b", ".sharing text"),
    "results": (".results .row.head > :nth-child(3)",),
    "health": (".limit > .num", ".cost-row > .num"),
}
"""What is to be seen whole at 420 pixels: of nodes what was sent, of results the first value."""
RIGHTS = """all => all.map((one) => [
    one.getBoundingClientRect().right,
    one.closest(".inside, .limits, .cost, .panel").getBoundingClientRect().right,
])"""


def test_tabs_tree_and_tables_are_used_by_keys(tab: Any) -> None:
    with Page([FakeJob(20, 9)], 0, period=0.3) as page:
        tab.goto(page.url)
        tab.wait_for_selector(".tree g.node >> nth=8")
        tab.focus("#tab-tree")
        tab.keyboard.press("Tab")  # into the drawing, at its root
        assert focused(tab) == "root"
        for key, node in (("Down", "relay-1"), ("Down", "site-2"), ("Right", "site-3")):
            tab.keyboard.press(f"Arrow{key}")
            assert focused(tab) == node
        assert "site-3: connected" in tab.inner_text(".picture .note")
        tab.keyboard.press("ArrowUp")
        assert focused(tab) == "relay-1"
        tab.focus(".nodes .scroller")
        tab.keyboard.press("End")
        assert tab.inner_text(".nodes .row.chosen >> nth=0").startswith("site-8")
        assert "site-8: connected" in tab.inner_text(".picture .note")
        tab.focus("#tab-tree")
        tab.keyboard.press("ArrowRight")
        assert focused(tab, "id") == "tab-queries"
        tab.wait_for_selector(".queries .row >> nth=3")
        tab.focus(".queries .scroller")
        for _ in range(2):
            tab.keyboard.press("ArrowDown")
        tab.wait_for_selector(".detail h2:text('q00001')")
        tab.focus("#tab-queries")
        tab.keyboard.press("ArrowRight")
        tab.wait_for_selector(".legend .key")
        tab.focus(".chart-box canvas >> nth=0")
        tab.keyboard.press("ArrowLeft")
        tab.wait_for_selector("#view-results .tip-line")


def focused(tab: Any, attribute: str = "data-key") -> str | None:
    found: str | None = tab.evaluate(f"document.activeElement.getAttribute('{attribute}')")
    return found
