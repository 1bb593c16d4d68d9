"""`catchment up`, `node` and `nodes`: a tree of nodes, started and talked to.

Nothing that takes long to import is imported above: `catchment --help` needs the commands.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from catchment.cli import completion
from catchment.cli.options import AsJson
from catchment.errors import CatchmentError, JobError, RefusedError

if TYPE_CHECKING:
    from catchment.job import JobModel
    from catchment.nodes.questions import Question
    from catchment.nodes.status import NodeStatus

_T = TypeVar("_T")

JobOf = Annotated[
    Path | None, typer.Option("--job", help="The tree's job file.", metavar="JOB.YAML")
]
RootAt = Annotated[
    str | None, typer.Option("--root", help="The root's address, instead of a job file.")
]

nodes = typer.Typer(
    no_args_is_help=True, help="List, add, move, replace and remove the nodes of a tree."
)


def run_node(
    path: Path,
    id: str,
    parent: str | None,
    engine: str,
    as_json: bool,
    supervised: bool = False,
    metrics: MetricsAt | None = None,
) -> None:
    """Runs one node here until its work is done."""
    from catchment.job import load_job
    from catchment.nodes.bootstrap import given
    from catchment.nodes.start import process_of
    from catchment.nodes.supervisor import REFUSED, end_with_supervisor

    # Where every thread stands, for whoever wonders why a node does not move: kill -USR1.
    faulthandler.register(signal.SIGUSR1)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    process = process_of(given(load_job(path), id, parent, engine))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: process.stop())
    if supervised:
        end_with_supervisor(process.stop)
    if as_json:
        process.watchers.append(_Reporter().report)
    try:
        with contextlib.nullcontext() if metrics is None else _metrics(process, metrics):
            process.run()
    except RefusedError as error:
        typer.echo(f"catchment: {error}", err=True)
        raise typer.Exit(REFUSED) from error


class MetricsAt(NamedTuple):
    """Where a node serves metrics."""

    port: int
    host: str


@contextlib.contextmanager
def _metrics(process: Any, at: MetricsAt) -> Iterator[None]:
    """Serves the metrics of a node meanwhile."""
    from catchment.nodes.metrics import NodeMetrics
    from catchment.sinks.result_counts import ResultCounts

    def plan() -> Any:
        with process.lock:
            charter = process.member.charter
            return None if charter is None else charter.plans[charter.plan].plan

    process.tallies = ResultCounts()
    served = NodeMetrics(at.port, lambda: _standing(process), process.tallies, plan, at.host)
    typer.echo(f"catchment: metrics of {process.given.id} are at {served.address}", err=True)
    try:
        yield
    finally:
        served.close()


def _standing(process: Any) -> NodeStatus:
    """How a node of this process stands."""
    import msgspec

    from catchment.nodes.status import status

    links = process.links()
    with process.lock:
        found = status(process.member, links, process.source_note(), process.capacities())
    return msgspec.structs.replace(found, error=process.last_error)


class _Reporter:
    """Prints how a node stands, a JSON object a second."""

    def __init__(self) -> None:
        self._last = 0.0

    def report(self, process: Any) -> None:
        from catchment.model import records

        if time.monotonic() - self._last < 1:
            return
        self._last = time.monotonic()
        typer.echo(records.encode(_standing(process)).decode())
        sys.stdout.flush()


def up(
    path: Path,
    engine: str,
    quiet: bool,
    ui: int | None = None,
    metrics: MetricsAt | None = None,
) -> None:
    """Starts every node of the topology as a process here, and waits until all are done.

    `ui` is the port of a page that shows the tree meanwhile. The first node serves metrics at the
    port given, each other one at the next.
    """
    from catchment.engine.binding import bind_types
    from catchment.job import load_job
    from catchment.nodes.bootstrap import founded
    from catchment.nodes.supervisor import Supervisor

    job = load_job(path)
    if not job.nodes:
        raise JobError("the job has no nodes", given=path, hint="add nodes, or use catchment run")
    charter = founded(job)
    for node in job.nodes:
        if node.source is not None:
            node.source.check()
            plan = charter.plans[charter.plan].plan
            bind_types(plan, node.source.event_schema(), job.time, job.late)
    supervisor = Supervisor(
        {
            node.id: _command(path, node.id, engine, _nth(metrics, number))
            for number, node in enumerate(job.nodes)
        },
        {node.id: node.parent for node in job.nodes},
        lambda sentence: typer.echo(f"catchment: {sentence}", err=True),
        [node.id for node in job.nodes if node.spare_of is not None],
    )
    interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        supervisor.interrupt()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    with contextlib.nullcontext() if ui is None else _page(job, ui):
        supervisor.watch(_nothing if quiet else _Lines(job).show)
    if interrupted:
        raise typer.Exit(130)


def _page(job: JobModel, port: int) -> contextlib.AbstractContextManager[object]:
    """The page of the tree."""
    from catchment.cli.needs import need_ui
    from catchment.cli.ui import served, watched

    need_ui()
    return served([watched(job)], port, lambda text: typer.echo(f"catchment: {text}", err=True))


def _nth(first: MetricsAt | None, number: int) -> MetricsAt | None:
    """Where a node serves metrics, of those that are started together."""
    if first is None or first.port == 0:
        return first
    return first._replace(port=first.port + number)


def _command(path: Path, id: str, engine: str, metrics: MetricsAt | None = None) -> list[str]:
    command = [sys.executable, "-m", "catchment.cli.main", "node", id, str(path)]
    if metrics is not None:
        command += ["--metrics", str(metrics.port), "--metrics-host", metrics.host]
    return [*command, "--engine", engine, "--supervised"]


def _nothing() -> None:
    """Shows nothing."""


class _Lines:
    """Prints a line on how the tree stands, every other second."""

    def __init__(self, job: JobModel) -> None:
        self._job, self._shown = job, 0.0

    def show(self) -> None:
        if time.monotonic() - self._shown > 2:
            self._shown = time.monotonic()
            _line(self._job)


def _line(job: JobModel) -> None:
    from catchment.cli.status import tree_status, when

    try:
        found = tree_status(None, job)
    except CatchmentError:
        return
    counts = found.counts or {}
    typer.echo(
        f"frontier {when(found.frontier)}  {counts.get('events', 0):,} events  "
        f"{counts.get('results', 0):,} results  missing: {', '.join(found.missing) or 'nobody'}",
        err=True,
    )


def ask(
    question: Question,
    kind: type[_T],
    root: str | None,
    path: Path | None,
    job: JobModel | None = None,
) -> _T:
    """Asks the root, found by its address or by a job file."""
    from catchment.job import load_job
    from catchment.nodes import questions

    if job is None and path is not None:
        job = load_job(path)
    if root is None and job is None:
        raise JobError(
            "which tree? nothing is given", hint="say --job JOB.YAML or --root host:port"
        )
    address = root or questions.root_of(job)  # type: ignore[arg-type]
    return questions.ask(address, question, kind, questions.admin(job))


@nodes.command("ls")
def list_nodes(job: JobOf = None, root: RootAt = None, as_json: AsJson = False) -> None:
    """List the nodes of the tree."""
    from catchment.cli.status import tree_status
    from catchment.job import load_job
    from catchment.model import records

    found = tree_status(root, None if job is None else load_job(job)).places or []
    if as_json:
        typer.echo(json.dumps(records.plain(found)))
        return
    for place in found:
        where = f" at {place.listen}" if place.listen else ""
        typer.echo(f"{place.id} under {place.parent or 'nobody: the root'}{where}")


@nodes.command("add")
def add_node(
    id: Annotated[str, typer.Argument(help="The new node's id.")],
    parent: Annotated[str, typer.Option(help="The id of its parent.")],
    listen: Annotated[
        str | None, typer.Option(help="Where its children find it, if it is to have any.")
    ] = None,
    reads: Annotated[
        bool, typer.Option("--reads", help="It reads a source of its own, besides its children's.")
    ] = False,
    job: JobOf = None,
    root: RootAt = None,
) -> None:
    """Let a node join; start it with: catchment node ID JOB.YAML --parent host:port."""
    from catchment.nodes.questions import AddNode, TreeChange

    ask(AddNode(id, parent, listen, reads or listen is None), TreeChange, root, job)
    typer.echo(f"added {id} under {parent}")


NodeName = Annotated[str, typer.Argument(help="The node's id.", autocompletion=completion.node_ids)]


@nodes.command("mv")
def move_node(
    id: NodeName,
    parent: Annotated[str, typer.Option(help="The id of its new parent.")],
    job: JobOf = None,
    root: RootAt = None,
) -> None:
    """Let a node go on under another parent, while all of them run."""
    from catchment.nodes.questions import MoveNode, TreeChange

    ask(MoveNode(id, parent), TreeChange, root, job)
    typer.echo(f"{id} moves to {parent}")


@nodes.command("replace")
def replace_node(
    old: Annotated[
        str,
        typer.Argument(help="The node that is gone for good.", autocompletion=completion.node_ids),
    ],
    new: Annotated[str, typer.Argument(help="The id of the node that takes over.")],
    job: JobOf = None,
    root: RootAt = None,
) -> None:
    """Let a new node take over from one that is gone for good; then start the new one.

    It reads the same source from its beginning, and goes on from what the parent of the old one
    has. The old one is refused from then on.
    """
    from catchment.nodes.questions import ReplaceNode, TreeChange

    ask(ReplaceNode(old, new), TreeChange, root, job)
    typer.echo(f"{new} takes over from {old}")


@nodes.command("rm")
def remove_node(
    id: NodeName,
    job: JobOf = None,
    root: RootAt = None,
) -> None:
    """Let a node go: what it has sent counts, and nobody waits for it any more."""
    from catchment.nodes.questions import RemoveNode, TreeChange

    ask(RemoveNode(id), TreeChange, root, job)
    typer.echo(f"removed {id}")
