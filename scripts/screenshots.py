"""Takes the pictures of the page that the documents show: `make pictures`.

A real tree: one node is killed, rows are sent early over links of a known width, and late events
correct results. The picture of a thousand nodes is of a job that is made up. Chromium is Debian's
(`make servers` brings it); with the font Inter (apt install fonts-inter) pictures look as most
readers see the page.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, FloatRect, sync_playwright

from catchment.measure.ports import free_port
from catchment.ui.server import Page
from catchment.ui.tree_job import TreeJob
from watched_jobs import FakeJob
from watched_tree import QUERIES, Tree, job_file

ROOT = Path(__file__).resolve().parent.parent
SITES = ("press", "oven", "paint", "yard", "gate")
PARTS = "SELECT seq % 300 AS part, avg(v) FROM events GROUP BY seq % 300, window(ts, '8 seconds')"
SQL = "SELECT player, sum(v) AS total FROM events GROUP BY player, window(ts, '2 seconds')"
PATIENCE = 120_000


def plant(home: Path) -> Path:
    """A job of two halls and five sites, whose links are known to be narrow."""
    pace = {"rate": 1000, "keys": 4, "per_batch": 500, "pace": 1000}
    nodes: list[dict[str, Any]] = [
        {"id": "root", "listen": f"127.0.0.1:{free_port()}"},
        {"id": "hall-1", "parent": "root", "listen": f"127.0.0.1:{free_port()}"},
        {"id": "hall-2", "parent": "root", "listen": f"127.0.0.1:{free_port()}"},
    ]
    for n, site in enumerate(SITES):
        source = {"type": "generator", "seed": n, "late_share": 0.003, "late_by": "6s", **pace}
        nodes.append({"id": site, "parent": f"hall-{1 + n // 3}", "source": source})
    return job_file(
        home,
        queries=[*QUERIES, {"name": "parts", "sql": PARTS}],
        nodes=nodes,
        flush={"policy": "hybrid(0.1)", "bandwidth": "12 kB/s"},
        late="update",
        keep="30s",
    )


class Camera:
    """Takes pictures of one page in one browser."""

    def __init__(self, browser: Browser, folder: Path, **look: Any) -> None:
        size = look.pop("viewport", {"width": 1280, "height": 860})
        self._context = browser.new_context(viewport=size, device_scale_factor=1, **look)
        self.tab = self._context.new_page()
        self.tab.set_default_timeout(PATIENCE)
        self.folder = folder

    def take(self, name: str) -> None:
        """A picture of the page, as high as what is on it, within reason."""
        self.tab.mouse.move(2, 2)
        self.tab.wait_for_timeout(1200)
        self.shoot(name)

    def shoot(self, name: str) -> None:
        self.tab.evaluate("document.activeElement && document.activeElement.blur()")
        high = self.tab.evaluate(
            "24 + scrollY + Math.max(...[...document.querySelectorAll('.panel')]"
            ".map((panel) => panel.getBoundingClientRect().bottom))"
        )
        wide = self.tab.evaluate("innerWidth")
        clip = FloatRect(x=0, y=0, width=wide, height=min(high, 1900))
        self.tab.screenshot(path=str(self.folder / f"{name}.png"), clip=clip, full_page=True)

    def close(self) -> None:
        self._context.close()


def of_a_tree(browser: Browser, folder: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as home,
        Tree(plant(Path(home))) as tree,
        Page([TreeJob(tree.job)], 0) as page,
    ):
        light = Camera(browser, folder, color_scheme="light")
        tab = light.tab
        tab.goto(page.url)
        tab.wait_for_selector(".tree g.node.connected >> nth=7")
        add(tab)
        tab.wait_for_timeout(25_000)
        light.take("queries")
        tab.click("#tab-results")
        tab.fill("#result-query", "mean")
        tab.wait_for_selector(".legend .ring")
        tab.wait_for_timeout(2500)
        light.take("results")
        tab.click("#tab-tree")
        tab.wait_for_timeout(4000)
        light.take("tree")
        tree.kill("oven")
        tab.wait_for_selector("#alerts .bad:has-text('oven is missing')")
        tab.wait_for_timeout(9000)
        light.take("missing")
        tab.click("#tab-health")
        tab.select_option("#aside-kind", "late")
        light.take("health")
        light.close()
        dark = Camera(browser, folder, color_scheme="dark")
        dark.tab.goto(page.url)
        dark.tab.wait_for_selector(".tree g.node.missing")
        dark.tab.wait_for_timeout(6000)
        dark.take("dark")
        dark.close()
        small = {"width": 420, "height": 860}
        phone = Camera(browser, folder, color_scheme="light", viewport=small)
        phone.tab.goto(page.url)
        phone.tab.wait_for_selector(".tree g.node.missing")
        phone.tab.wait_for_timeout(6000)
        phone.take("phone")
        for view in ("queries", "results", "health"):
            phone.tab.click(f"#tab-{view}")
            phone.tab.wait_for_timeout(2500)
            if folder.name != "page":
                phone.take(f"phone-{view}")
        phone.close()


def add(tab: Any) -> None:
    """Adds a query, and leaves it chosen."""
    tab.click("#tab-queries")
    tab.fill("#new-sql", SQL)
    tab.fill("#new-name", "total")
    tab.wait_for_selector("button[type=submit]:not([disabled])")
    tab.press("#new-name", "Enter")
    tab.click(".queries .row:has-text('total')")
    tab.wait_for_selector(".detail:has-text('operator calls an event')")


def of_many(browser: Browser, folder: Path) -> None:
    """10,000 queries and 1,000 nodes, of which three do not answer."""
    job = FakeJob(10_000, 1000, name="fleet")
    job.planned()
    job.missing = {"site-444", "site-445", "site-902"}
    with Page([job], 0) as page:
        camera = Camera(browser, folder, color_scheme="light")
        camera.tab.goto(page.url)
        camera.tab.wait_for_selector(".tree g.node.missing:has-text('site-444')")
        camera.tab.wait_for_timeout(6000)
        camera.take("large")
        camera.close()
        if folder.name == "page":
            return
        for name, view in (("large-queries", "queries"), ("large-phone", "tree")):
            wide = 420 if "phone" in name else 1280
            size = {"width": wide, "height": 860}
            camera = Camera(browser, folder, color_scheme="dark", viewport=size)
            camera.tab.goto(f"{page.url}#{view}")
            camera.tab.wait_for_timeout(6000)
            camera.take(name)
            camera.close()


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "page"
    folder.mkdir(parents=True, exist_ok=True)
    parts = sys.argv[2:] or ["tree", "many"]
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        began = time.monotonic()
        if "many" in parts:
            of_many(browser, folder)
        if "tree" in parts:
            of_a_tree(browser, folder)
        browser.close()
    taken = sorted(path.name for path in folder.glob("*.png"))
    sys.stdout.write(f"{', '.join(taken)} in {time.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
