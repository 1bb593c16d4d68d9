"""The demo of a tree: three sites, a node in between and a root, one site killed on the way."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import typer
from rich.console import Console
from rich.table import Table

from catchment.errors import CatchmentError
from catchment.generator import Generator
from catchment.measure.bed import Bed, JobForm, Layout, Traffic
from catchment.measure.central import Central, central
from catchment.nodes.questions import AskStatus, ask
from catchment.nodes.status import NodeStatus
from catchment.sinks.rows import latest

PARENTS: dict[str, str | None] = {
    "root": None,
    "hub": "root",
    "north": "hub",
    "south": "hub",
    "east": "root",
}
SITES = ("north", "south", "east")
KILLED = "north"
RATE = 20_000
"""Events a second of each site, in real time."""
SHOWN = "speed"
PATIENCE = 80.0
"""Seconds besides those of the events: nodes start, and one is away for a while."""
QUERIES: list[JobForm] = [
    {
        "name": SHOWN,
        "select": ["avg(v) AS mean", "max(v) AS top", "count(*) AS n"],
        "by": "player",
        "window": "tumbling(5s)",
    },
    {"name": "trend", "select": ["avg(v) AS mean"], "by": "player", "window": "sliding(10s, 1s)"},
    {"name": "all", "select": ["count(*) AS n"], "window": "tumbling(1s)"},
]
_OPTIONS: JobForm = {"timeout": "3s", "late": "update", "keep": "10m"}

Say = Callable[[str], None]


@dataclass(frozen=True)
class LinkCost:
    """A link, and what the events behind it would have cost."""

    name: str
    up: int
    down: int
    central: float

    @property
    def share(self) -> float:
        return (self.up + self.down) / self.central


@dataclass
class TreeDemoOutcome:
    """What the demo found."""

    seconds: float = 0.0
    away: float = 0.0
    """Seconds that the killed site was not there."""
    events: int = 0
    counted: int = 0
    """Events in the windows of the query that counts all."""
    results: dict[str, int] = field(default_factory=dict)
    incomplete: int = 0
    revised: int = 0
    """Windows that came without the killed site first, and again with it."""
    links: list[LinkCost] = field(default_factory=list)
    last: pa.Table | None = None

    def to_dict(self) -> dict[str, Any]:
        data = {name: value for name, value in vars(self).items() if name not in ("last", "links")}
        return data | {"links": [asdict(link) | {"share": link.share} for link in self.links]}


def layout(seconds: int) -> Layout:
    """The tree: each site has players and curves of its own."""
    sources: dict[str, JobForm] = {
        site: {
            "type": "generator",
            "seed": number,
            "keys": 5,
            "rate": RATE,
            "events": RATE * seconds,
            "pace": RATE,
            "per_batch": RATE,
            "markers": 0.0,
        }
        for number, site in enumerate(SITES, start=1)
    }
    return Layout(PARENTS, sources, QUERIES, _OPTIONS)


def run(seconds: int, say: Say) -> TreeDemoOutcome:
    """Runs the tree to its end, and looks at what it gave."""
    before = signal.signal(signal.SIGTERM, _stopped)
    try:
        generator = Generator(seed=1, keys=5, rate=RATE, markers=0.0)
        whole = central(generator, 10 * RATE)
        with Bed(layout(seconds)) as bed:
            outcome = TreeDemoOutcome(events=RATE * seconds * len(SITES))
            _watch(bed, seconds, outcome, say)
            _look(bed, outcome)
            outcome.links = _links(bed.traffic(), whole, seconds)
        return outcome
    finally:
        signal.signal(signal.SIGTERM, before)


def _stopped(*_: object) -> None:
    # An exception, so that processes and folders are cleaned up on the way out.
    raise typer.Exit(143)


def _watch(bed: Bed, seconds: int, outcome: TreeDemoOutcome, say: Say) -> None:
    """Lets it run: a site is killed after a third of the time, and is back after half of it."""
    bed.begin()
    launched = time.monotonic()
    began = killed = back = 0.0
    while not bed.done:
        now = time.monotonic()
        if now - launched > seconds + PATIENCE:
            raise CatchmentError("the demo did not end in time", hint=bed.words()[-500:])
        found = _status(bed)
        if not began and found is not None and (found.counts or {}).get("events"):
            began = now
        if began and not killed and now - began > seconds / 3:
            bed.kill(KILLED)
            killed = now
        if killed and not back and now - began > seconds / 2:
            bed.start(KILLED)
            back = now
        state = f"{KILLED} is killed" if killed and not back else f"{KILLED} is back"
        say(_line(bed, now - (began or now), found, state if killed else ""))
        time.sleep(0.3)
    outcome.seconds = time.monotonic() - (began or launched)
    outcome.away = back - killed


def _status(bed: Bed) -> NodeStatus | None:
    try:
        return ask(bed.address("root"), AskStatus(), NodeStatus, timeout=1.0)
    except CatchmentError:
        return None  # it is starting, or has just ended


def _line(bed: Bed, seconds: float, found: NodeStatus | None, state: str) -> str:
    counts = {} if found is None else found.counts or {}
    moved = sum(link.both for link in bed.traffic().values())
    if found is None or not counts:
        return "the nodes say hello"
    missing = ", ".join(found.missing) or "nobody"
    return (
        f"{seconds:3.0f} s  {counts['events']:>10,} events  {counts['results']:>6,} results  "
        f"{moved / 1000:,.0f} kB on links  missing: {missing}{'  ' + state if state else ''}"
    )


def _look(bed: Bed, outcome: TreeDemoOutcome) -> None:
    """Reads the results as anybody would: the last word on every window."""
    for query in QUERIES:
        name, keys = query["name"], tuple(filter(None, [query.get("by")]))
        table = ds.dataset(bed.out / name, format="parquet").to_table()
        final = latest(table, keys)
        outcome.results[name] = final.num_rows
        outcome.incomplete += int(pc.sum(pc.invert(final["complete"])).as_py() or 0)
        outcome.revised += int((final["revision"].to_numpy() > 0).sum())
        if name == "all":
            outcome.counted = int(pc.sum(final["n"]).as_py() or 0)
        if name == SHOWN:
            ordered = final.sort_by([("window_end", "ascending"), ("player", "ascending")])
            shown = ["player", "window_start", "window_end", "mean", "top", "n", "complete"]
            outcome.last = ordered.select(shown).slice(max(0, final.num_rows - 10))


def _links(traffic: dict[str, Traffic], whole: Central, seconds: int) -> list[LinkCost]:
    below = {id: [s for s in SITES if s == id or PARENTS[s] == id] for id in PARENTS}
    each = whole.per_event * RATE * seconds
    return [
        LinkCost(f"{id} to {PARENTS[id]}", link.up, link.down, len(below[id]) * each)
        for id, link in traffic.items()
    ]


# -- on the screen --------------------------------------------------------------------------------


class DemoLine:
    """The live line: rewritten on a terminal, now and then a new one elsewhere."""

    def __init__(self, every: float = 5.0) -> None:
        self._live = sys.stderr.isatty()
        self._every = every
        self._said = -every

    def __call__(self, text: str) -> None:
        if self._live:
            typer.echo(f"\r\x1b[2K{text}", err=True, nl=False)
        elif time.monotonic() - self._said >= self._every:
            self._said = time.monotonic()
            typer.echo(text, err=True)

    def end(self) -> None:
        if self._live:
            typer.echo(err=True)


def show(found: TreeDemoOutcome) -> None:
    """Prints the outcome."""
    console = Console()
    if found.last is not None:
        console.print(_windows(found.last))
    console.print(_bytes(found.links))
    complete = f"{found.incomplete} are not" if found.incomplete else "all of them complete"
    again = f"{found.revised:,} results came without it in time, and again with it"
    counted = "each" if found.counted == found.events else f"{found.counted:,} of them"
    for text in (
        f"{found.events:,} events of three sites in {found.seconds:.0f} s, {counted} counted once",
        f"{KILLED} was killed and away for {found.away:.0f} s: {again}",
        f"{sum(found.results.values()):,} results, {complete}",
    ):
        console.print(text, highlight=False, soft_wrap=True)


def _windows(last: pa.Table) -> Table:
    shown = Table(title=f"The last windows of the query {SHOWN!r}", title_justify="left")
    for name in last.column_names:
        shown.add_column(name, justify="left" if name == "player" else "right")
    for row in last.to_pylist():
        shown.add_row(
            row["player"],
            f"{row['window_start']:%H:%M:%S}",
            f"{row['window_end']:%H:%M:%S}",
            f"{row['mean']:.3f}",
            f"{row['top']:.3f}",
            f"{row['n']:,}",
            "yes" if row["complete"] else "no",
        )
    return shown


def _bytes(links: list[LinkCost]) -> Table:
    title = "Bytes on each link, against sending every event"
    shown = Table(title=title, title_justify="left")
    for heading in ("link", "up", "down", "every event", "share"):
        shown.add_column(heading, justify="left" if heading == "link" else "right")
    for link in links:
        shown.add_row(
            link.name, f"{link.up:,}", f"{link.down:,}", f"{link.central:,.0f}", f"{link.share:.2%}"
        )
    return shown
