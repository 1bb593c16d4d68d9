"""What a job says while it runs: a live line, plain lines, JSON, or nothing.

Progress goes to standard error, so that standard output holds only results.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from catchment.model.costs import shown
from catchment.sinks.console import Console as Results
from catchment.sources.base import NeverRead

if TYPE_CHECKING:
    from catchment.spark.handle import Status
    from catchment.spark.profile import Profile

_EVERY = 5.0
"""Seconds between plain lines, at least."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Ending:
    """How a job ended, and what a person may look for next."""

    status: Status
    places: list[str] = field(default_factory=list)
    """Where the results lie."""
    checkpoint: str | None = None
    """None when it was not kept."""
    seconds: float = 0.0


class RunReporter:
    """Says nothing; the others say more."""

    def __enter__(self) -> RunReporter:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def note(self, text: str) -> None:
        """A sentence that stays."""

    def phase(self, text: str, done: int = 0, total: int = 0) -> None:
        """What is being done now, and how much of it is done where that is known."""

    def heard(self, status: Status) -> None:
        """A batch is done."""

    def profile(self, found: Profile) -> None:
        """What the batches cost."""

    def end(self, ending: Ending) -> None:
        """The job is over."""


class JsonReporter(RunReporter):
    """One object a batch on standard output, and one at the end."""

    def note(self, text: str) -> None:
        typer.echo(f"catchment: {text}", err=True)

    def heard(self, status: Status) -> None:
        _print(status.to_dict())

    def profile(self, found: Profile) -> None:
        _print({"profile": asdict(found)})

    def end(self, ending: Ending) -> None:
        _print(ending.status.to_dict() | {"final": True, "places": ending.places})


class LineReporter(RunReporter):
    """Lines for logs: one now and then, and one for each new phase."""

    def __init__(self) -> None:
        self._said = -_EVERY
        self._phase = ""

    def note(self, text: str) -> None:
        typer.echo(f"catchment: {text}", err=True)

    def phase(self, text: str, done: int = 0, total: int = 0) -> None:
        if text != self._phase:
            self._phase = text
            self.note(text + (f" ({done:,} of {total:,} done)" if total else ""))

    def heard(self, status: Status) -> None:
        if time.monotonic() - self._said >= _EVERY:
            self._said = time.monotonic()
            self.note(line(status))

    def profile(self, found: Profile) -> None:
        from catchment.cli import show

        show.profile(found)

    def end(self, ending: Ending) -> None:
        from catchment.cli import show

        show.ending(ending)


class StatusLine(LineReporter):
    """One line that changes in place, on a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._console = Console(stderr=True)
        self._line = _Board(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            _Bar(bar_width=30),
            _Elapsed(),
            console=self._console,
            transient=True,
            # What others print meanwhile goes above the line, unless it goes to a file.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=False,
        )
        self._task = self._line.add_task("", total=None, timed=True)

    def __enter__(self) -> RunReporter:
        if sys.stdout.isatty():
            Results.board = self._line.show
        self._line.start()
        return self

    def __exit__(self, *_: object) -> None:
        Results.board = None
        self._line.stop()
        for table in self._line.tables:  # what was live stays
            Console().print(table)

    def note(self, text: str) -> None:
        self._console.print(f"catchment: {text}", highlight=False, soft_wrap=True)

    def phase(self, text: str, done: int = 0, total: int = 0) -> None:
        self._line.update(
            self._task, description=text, completed=done, total=total or None, timed=True
        )

    def heard(self, status: Status) -> None:
        self._line.update(self._task, description=line(status, brief=True), total=None, timed=False)


class _Board(Progress):
    """A line under tables of results that change in place."""

    def __init__(self, *columns: Any, **options: Any) -> None:
        self.tables: list[Table] = []
        super().__init__(*columns, **options)

    def show(self, tables: list[Table]) -> None:
        self.tables = tables
        self.refresh()

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from self.tables
        yield from super().get_renderables()


class _Bar(BarColumn):
    """A bar only where it is known how much there is to do."""

    def render(self, task: Task) -> Any:
        return Text("") if task.total is None else super().render(task)


class _Elapsed(TimeElapsedColumn):
    """The time that it takes, but not beside a stream's line, which needs all the width."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.fields["timed"] else Text("")


def voice(as_json: bool, quiet: bool) -> RunReporter:
    """How this command speaks."""
    if quiet:
        return RunReporter()
    if as_json:
        return JsonReporter()
    return on_screen()


def on_screen() -> RunReporter:
    """A live line for people, plain lines for logs."""
    return StatusLine() if sys.stderr.isatty() else LineReporter()


def line(status: Status, brief: bool = False) -> str:
    """How a job stands, on one line; a brief one fits a terminal of 80 columns."""
    parts = [f"{status.events:,} events"]
    if status.rate:
        parts.append(f"{status.rate:,.0f}/s" if brief else f"{status.rate:,.0f} events/s")
    if not brief and status.event_rate is not None and status.planned_rate is not None:
        rates = f"{shown(status.event_rate)}/s of event time"
        parts.append(f"{rates} (planned for {shown(status.planned_rate)})")
    if status.frontier is not None:
        at = moment(status.frontier)
        parts.append(f"frontier {at[11:19] if brief and at[10:11] == ' ' else at}")
    if status.lag is not None:
        parts.append(f"lag {span(status.lag)}")
    if status.behind is not None and not brief:
        parts.append(f"{span(status.behind)} behind the clock")
    parts += [f"late {status.late:,}", f"results {status.results:,}"]
    if status.bad:
        parts.append(f"bad {status.bad:,}")
    if status.rejected:
        parts.append(f"{len(status.rejected)} query file(s) rejected")
    if status.waiting:
        parts.append(f"{len(status.waiting)} file(s) waiting")
    if status.never_read:
        parts.append(f"never read {status.never_read_rows:,}")
    if status.aside_dropped:
        parts.append(f"not kept {status.aside_dropped:,}")
    return "  ".join(parts)


def never_read_line(found: NeverRead) -> str:
    """Which rows were never read, and why.

    >>> never_read_line(NeverRead("a.csv", "12 bytes came after the file was read", 12, 2))
    'never read: a.csv: 12 bytes came after the file was read (2 rows)'
    """
    rows = "" if found.rows is None else f" ({found.rows:,} rows)"
    return f"never read: {found.origin}: {found.reason}{rows}"


def span(seconds: float) -> str:
    """A length of time, for people.

    >>> span(0.25), span(75), span(3 * 86400 + 7200), span(-2)
    ('0.2 s', '1 min 15 s', '3 d 2 h', '-2.0 s')
    """
    if seconds < 60:
        return f"{seconds:,.1f} s"
    for unit, length, below, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60)):
        if seconds >= length:
            return f"{seconds // length:,.0f} {unit} {seconds % length // part:.0f} {below}"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def moment(micros: int) -> str:
    """A time in microseconds since 1970, for people.

    >>> moment(1_767_225_641_500_000)
    '2026-01-01 00:00:41.5'
    """
    try:
        at = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:  # years that a calendar does not have
        return f"{micros / 1e6:,.1f} s"
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 100_000}"


def _print(data: dict[str, Any]) -> None:
    typer.echo(json.dumps(data))
    sys.stdout.flush()
