"""`catchment ui`, `run --ui` and `up --ui`: the page of jobs, served from here."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from catchment.cli.needs import has_spark, need_ui
from catchment.errors import CatchmentError
from catchment.job import JobModel, load_job

if TYPE_CHECKING:
    from catchment.ui.spark_job import SparkJob
    from catchment.ui.watched import WatchedJob

RECENT = 200_000
"""Result rows that a job run with --ui keeps in memory for its page; the oldest go first."""


def show(paths: Sequence[Path], port: int, checkpoint: Path | None, browser: bool) -> None:
    """Serves the page of jobs that run elsewhere, or have ended, until Ctrl-C."""
    need_ui()
    jobs = [load_job(path) for path in paths]
    if checkpoint is not None:
        jobs = [job.model_copy(update={"checkpoint": str(checkpoint)}) for job in jobs]
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with (
        served([watched(job) for job in jobs], port, _say) as url,
        _opened(url) if browser else contextlib.nullcontext(),
    ):
        over.wait()


def watched(job: JobModel) -> WatchedJob:
    """What the page looks at."""
    if job.nodes:
        from catchment.ui.tree_job import TreeJob

        return TreeJob(job)
    return on_spark(job)


def on_spark(job: JobModel) -> SparkJob:
    """What the page looks at of a job on Spark."""
    from catchment.ui.spark_job import SparkJob

    if not has_spark():
        raise CatchmentError(
            "a job without nodes runs on Spark, which is not installed",
            hint="pip install 'catchment[spark]'",
        )
    return SparkJob(job)


@contextlib.contextmanager
def served(jobs: Sequence[WatchedJob], port: int, say: Callable[[str], None]) -> Iterator[str]:
    """Serves the page meanwhile; its address, which is said too."""
    from catchment.ui.server import Page

    with Page(jobs, port) as page:
        say(f"the page is at {page.url}")
        yield page.url


@contextlib.contextmanager
def _opened(url: str) -> Iterator[None]:
    """The page in the browser, by a file that leads there: command lines are for all to see."""
    with tempfile.NamedTemporaryFile("w", prefix="catchment-", suffix=".html") as file:
        file.write(f'<meta http-equiv="refresh" content="0; url={url}">')
        file.flush()
        webbrowser.open(Path(file.name).as_uri())
        yield


def _say(text: str) -> None:
    typer.echo(f"catchment: {text}", err=True)
