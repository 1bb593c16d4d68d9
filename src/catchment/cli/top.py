"""`catchment top`: what the page shows of a job, in a terminal.

It looks at jobs as the page does (`catchment.ui`), and draws what it finds: a line on the job, what
was counted, the nodes of a tree with those first that need a person, limits, notices and alerts.
What does not fit the screen is counted.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from catchment.cli.live import moment, span
from catchment.cli.ui import watched
from catchment.engine.times import now
from catchment.flush.units import shown as bytes_shown
from catchment.job import load_job
from catchment.model.costs import shown
from catchment.ui.alerts import Alerts
from catchment.ui.snapshot import JobView, ShownNode, ShownTime, Snapshot
from catchment.ui.watched import WatchedJob

_ROWS = 40
"""Rows of a screen whose height is not known."""
_STATES = {"missing": "red", "unknown": "yellow", "connected": "green", "ended": "dim"}
_ORDER = ["missing", "unknown", "connected", "ended"]


def show(paths: Sequence[Path], checkpoint: Path | None, every: float, once: bool) -> None:
    """Draws jobs until Ctrl-C, or once."""
    jobs = [load_job(path) for path in paths]
    if checkpoint is not None:
        jobs = [job.model_copy(update={"checkpoint": str(checkpoint)}) for job in jobs]
    screen = Screen([watched(job) for job in jobs])
    console = Console()
    if once or not sys.stdout.isatty():
        console.print(screen.draw(_ROWS))
        return
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while not over.is_set():
            live.update(screen.draw(console.height), refresh=True)
            over.wait(every)


class Screen:
    """Draws how jobs stand, look after look."""

    def __init__(self, jobs: Sequence[WatchedJob]) -> None:
        self._jobs = [(job, Alerts()) for job in jobs]

    def draw(self, height: int) -> RenderableType:
        """All jobs, each with its share of the rows."""
        rows = max(height // max(len(self._jobs), 1), 8)
        return Group(*(self._job(job.look(), alerts, rows) for job, alerts in self._jobs))

    def _job(self, found: Snapshot, alerts: Alerts, rows: int) -> RenderableType:
        parts: list[RenderableType] = [_title(found.job), _where(found.job), _counted(found)]
        for alert in alerts.of(found):
            parts.append(Text(f"! {alert.text}", "bold red" if alert.level == "bad" else "yellow"))
        for notice in found.notices[:5]:
            parts.append(Text(f"{notice.what}: {notice.where}: {notice.text}", "yellow"))
        near = [limit for limit in found.limits if limit.share >= 0.5]
        for limit in near:
            parts.append(Text(f"{limit.name}: {limit.share:.0%} of {limit.limit:,} {limit.unit}"))
        left = rows - len(parts) - 5
        if found.nodes:
            parts.append(_nodes(found.nodes, max(left, 3)))
        elif found.partitions:
            parts.append(_partitions(found, max(left, 3)))
        return Group(*parts, Text(""))


def _title(job: JobView) -> Text:
    style = {"running": "bold green", "failed": "bold red", "unreachable": "bold red"}
    title = Text.assemble((job.name, "bold"), "  ", (job.state, style.get(job.state, "bold")))
    kind = "a tree" if job.kind == "tree" else "on Spark"
    step = "" if job.batch is None else f", {'step' if job.kind == 'tree' else 'batch'} {job.batch}"
    title.append(f"  {kind}, {job.queries:,} queries{step}", "dim")
    return title


def _where(job: JobView) -> Text:
    parts = [f"frontier {_time(job.frontier)}"]
    if job.lag is not None:
        what = "its slowest node is behind by" if job.kind == "tree" else "lag"
        parts.append(f"{what} {span(job.lag)}")
    if isinstance(job.frontier, int) and job.state == "running":
        parts.append(f"{span((now() - job.frontier) / 1e6)} behind the clock")
    if job.rate is not None:
        parts.append(f"{shown(job.rate)} events/s")
    if job.flush is not None:
        parts.append(f"flush {job.flush}")
    return Text("  ".join(parts))


def _counted(found: Snapshot) -> Text:
    named = ((name, found.counts.get(name, 0)) for name in found.counts)
    shown_first = {"events", "accepted", "late", "bad", "duplicates", "results"}
    text = Text()
    for name, count in named:
        if count or name in shown_first:
            warns = count and name in ("bad", "aside_dropped")
            text.append(f"{name.replace('_', ' ')} {count:,}  ", "yellow" if warns else "")
    return text


def _nodes(nodes: Sequence[ShownNode], rows: int) -> Table:
    """The nodes of a tree, those first that a person should look at."""
    table = Table(box=None, pad_edge=False)
    for heading in (
        "node",
        "under",
        "state",
        "frontier",
        "behind",
        "messages",
        "bytes",
        "link",
        "",
    ):
        right = heading in ("behind", "messages", "bytes", "link")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    order = sorted(nodes, key=lambda node: (_ORDER.index(node.state), -(node.behind or 0.0)))
    for node in order[:rows]:
        table.add_row(
            Text(node.id),
            Text(node.parent or ""),
            Text(node.state, _STATES[node.state]),
            _time(node.frontier),
            "" if node.behind is None else span(node.behind),
            f"{node.messages:,}",
            f"{node.nbytes:,}",
            "" if node.bandwidth is None else bytes_shown(node.bandwidth),
            Text(node.why or (f"silent {span(node.silent)}" if node.silent else "")),
        )
    if len(nodes) > rows:
        states = [node.state for node in order[rows:]]
        rest = ", ".join(f"{states.count(s)} {s}" for s in _ORDER if s in states)
        table.add_row(f"and {len(states):,} more: {rest}")
    return table


def _partitions(found: Snapshot, rows: int) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("partition", no_wrap=True)
    table.add_column("newest event", no_wrap=True)
    order = sorted(found.partitions.items(), key=lambda item: (item[1] is not None, item[1] or 0))
    for name, newest in order[:rows]:
        table.add_row(Text(name), "none yet" if newest is None else moment(newest))
    if len(order) > rows:
        table.add_row(f"and {len(order) - rows:,} more", "")
    return table


def _time(value: ShownTime) -> str:
    return moment(value) if isinstance(value, int) else value or "unknown"
