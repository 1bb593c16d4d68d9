"""What the commands print, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from catchment.cli import live

if TYPE_CHECKING:
    from catchment.cli.demo import AgainstSpark, DemoCost, DemoOutcome, OnProgress
    from catchment.cli.live import Ending
    from catchment.spark.profile import Profile


@contextmanager
def progress(seconds: float) -> Iterator[OnProgress]:
    """A live line on stderr, so that stdout holds only the result."""
    line = Progress(
        TextColumn("{task.fields[at]:6.1f} s of play"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[events]:,} events  {task.fields[speed]}"),
        TextColumn("{task.fields[results]:,} results"),
        console=Console(stderr=True),
        transient=True,
    )
    task = line.add_task("demo", total=seconds, at=0.0, events=0, speed="", results=0)

    def report(at: float, events: int, results: int) -> None:
        elapsed = line.tasks[0].elapsed or 0.0
        speed = f"{events / elapsed / 1e6:.1f} M events/s" if elapsed else ""
        line.update(task, completed=at, at=at, events=events, speed=speed, results=results)

    with line:
        yield report


def outcome(found: DemoOutcome) -> None:
    """The demo's results and what was shared."""
    console = Console()
    for name, table in sorted(found.last.items()):
        console.print(_windows(f"{name}: last of {found.results[name]:,} results", table))
    console.print(_sharing(found))
    if found.against_spark is not None:
        _say(console, _against_spark(found.against_spark))
    rate = found.events / found.seconds
    total = sum(found.results.values())
    after = f", after {found.started:.1f} s to start Spark" if found.started else ""
    _say(
        console,
        f"{found.queries} queries, {found.events:,} events read once in {found.seconds:.1f} s "
        f"({rate:,.0f} events/s{after}), {total:,} results, {found.late:,} events too late.",
    )
    if found.folder:
        _say(console, f"The results lie in {found.folder}, a folder of Parquet files per query:")
        _say(console, f'    polars.read_parquet("{found.folder}/speed/*.parquet")')


def ending(found: Ending) -> None:
    """How a job ended: its counts, which add up, and where to look next."""
    console, status = Console(), found.status
    shown = Table(title=f"{status.job}: {status.state}", title_justify="left", show_header=False)
    shown.add_column()
    shown.add_column(justify="right")
    shown.add_row("events", f"{status.events:,}")
    for name in ("accepted", "late", "bad", "duplicates"):
        shown.add_row(f"  {name}", f"{getattr(status, name):,}")
    if status.updates:
        shown.add_row("late events that corrected results", f"{status.updates:,}")
    shown.add_row("results", f"{status.results:,}")
    if status.open_windows:
        shown.add_row("windows that never ended", f"{status.open_windows:,}")
        shown.add_row("  accepted events in them", f"{status.open_events:,}")
    if status.aside_dropped:
        shown.add_row("late and bad rows that were not kept", f"{status.aside_dropped:,}")
    if status.never_read:
        shown.add_row("rows that were never read", f"{status.never_read_rows:,}")
    console.print(shown)
    _say_where(console, found)


def _say_where(console: Console, found: Ending) -> None:
    """Where the results lie, and what there is to look into."""
    status = found.status
    for place in found.places:
        _say(console, f"results: {place}")
    if found.checkpoint:
        _say(console, f"checkpoint: {found.checkpoint}")
        if status.bad:
            _say(console, f"bad rows: {found.checkpoint}/catchment/aside")
    for name, why in status.rejected.items():
        _say(console, f"query file rejected: {name}: {why}")
    for name, why in status.waiting.items():
        _say(console, f"file waiting: {name}: {why}")
    for one in status.never_read:
        if one.origin not in status.waiting:
            _say(console, live.never_read_line(one))


_PARTS = {
    "read": "reading the source",
    "slice": "slicing events",
    "encode": "packing partials",
    "decode": "waiting for partials, unpacking them",
    "state": "state, read and written",
    "assemble": "merging partials, assembling windows",
    "sink": "sinks",
    "spark": "Spark's own: planning, tasks, shuffle, commits",
}


def profile(found: Profile) -> None:
    """What the batches of a job cost: seconds by the clock, of the slowest task of each stage."""
    title = f"{found.batches:,} batches in {found.seconds:,.1f} s"
    shown = Table(title=title, title_justify="left")
    for heading in ("part", "seconds", "share"):
        shown.add_column(heading, justify="left" if heading == "part" else "right")
    for part, text in _PARTS.items():
        seconds = found.parts[part]
        share = seconds / found.seconds if found.seconds else 0.0
        shown.add_row(text, f"{seconds:,.2f}", f"{share:.0%}")
    Console().print(shown)


class QueryRow(Struct, frozen=True):
    """A query of a job, as `catchment queries ls` shows it."""

    name: str
    text: str
    """On one line."""
    file: str
    """Which holds it; "tree" where a tree does."""
    version: int
    leaving: bool
    """Whether it is removed once its open windows have ended."""


def queries(found: list[QueryRow], rejected: dict[str, str]) -> None:
    """The queries of a job, and the files that cannot be used."""
    console = Console()
    shown = Table()
    for heading in ("name", "version", "query", "file"):
        shown.add_column(heading, overflow="fold")
    for query in found:
        version = f"{query.version}, leaving" if query.leaving else str(query.version)
        texts = (query.name, version, query.text, query.file)
        shown.add_row(*(Text(text) for text in texts))
    console.print(shown)
    for name, why in rejected.items():
        _say(console, f"rejected: {name}: {why}")


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def _windows(title: str, table: pa.Table) -> Table:
    shown = Table(title=title, title_justify="left")
    for name in table.column_names:
        shown.add_column(name, justify="left" if pa.types.is_string(table[name].type) else "right")
    for row in table.to_pylist():
        shown.add_row(*(_text(value) for value in row.values()))
    return shown


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.strftime("%H:%M:%S.%f")[:-3]
    if isinstance(value, float):
        return f"{value:,.3f}"
    if value is None:
        return "null"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _sharing(found: DemoOutcome) -> Table:
    count = found.queries
    title = f"What was shared (measured on {found.sample_seconds:g} s of events)"
    shown = Table(title=title, title_justify="left")
    for heading in ("", "one engine", f"{count} engines", "ratio"):
        shown.add_column(heading, justify="right" if heading else "left")
    for label, together, apart in _pairs(found.together, found.apart):
        ratio = f"{apart / together:.1f}" if together else "-"
        shown.add_row(label, _text(together), _text(apart), ratio)
    return shown


def _against_spark(found: AgainstSpark) -> str:
    """
    >>> from catchment.cli.demo import AgainstSpark
    >>> _against_spark(AgainstSpark(1_000_000, ("speed", "area"), 2.0, 9.0))
    'From Parquet, 1,000,000 events, 2 of the queries (speed, area): 2.0 s here ... 4.5 times as
    long, for the same windows.'
    """
    names = ", ".join(found.queries)
    return (
        f"From Parquet, {found.events:,} events, {len(found.queries)} of the queries ({names}): "
        f"{found.ours:.1f} s here in one pass, {found.spark:.1f} s by Spark itself, one after the "
        f"other: {found.spark / found.ours:.1f} times as long, for the same windows."
    )


def _pairs(together: DemoCost, apart: DemoCost) -> list[tuple[str, float, float]]:
    return [
        ("events read", together.events, apart.events),
        ("slices", together.slices, apart.slices),
        ("operator calls", together.operator_calls, apart.operator_calls),
        ("seconds, reading aside", together.seconds, apart.seconds),
    ]
