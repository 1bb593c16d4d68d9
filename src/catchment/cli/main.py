"""The commands. Each imports what it needs when it runs, so that `catchment --help` is quick."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from catchment.cli import completion
from catchment.cli import queries as query_commands
from catchment.cli import tree as tree_commands
from catchment.cli.options import AsJson, Checkpoint, JobFile
from catchment.errors import CatchmentError, JobError, QueryError, SchemaError, missing_package

if TYPE_CHECKING:
    from catchment.cli.check import Report
    from catchment.job import JobModel


class _Commands(TyperGroup):
    """Shows an error as one line on stderr, and never as a traceback.

    Exit code 2 means that what was given is wrong, 1 that it could not be done.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CatchmentError as error:
            _fail(error)
        except ModuleNotFoundError as error:
            missing = missing_package(error)
            if missing is None:
                raise
            _fail(missing)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Thousands of windowed aggregations over event streams for the price of one pass.",
)


_PORT = 4600
WithPage = Annotated[bool, typer.Option("--ui", help="Serve a live page of the job meanwhile.")]
PagePort = Annotated[
    int, typer.Option("--ui-port", help="Of the page; 0: a free one.", min=0, max=65535)
]


_HOST = "127.0.0.1"
MetricsPort = Annotated[
    int | None,
    typer.Option(help="Serve Prometheus metrics on this port; 0: a free one.", min=0, max=65535),
]
MetricsHost = Annotated[
    str,
    typer.Option(help="The address at which metrics are served; whoever reaches it reads them."),
]


class NodeEngine(StrEnum):
    """What a node of a tree runs on."""

    spark = "spark"
    embedded = "embedded"


def _metrics_at(port: int | None, host: str) -> tree_commands.MetricsAt | None:
    return None if port is None else tree_commands.MetricsAt(port, host)


def _version(wanted: bool) -> None:
    if wanted:
        import catchment as ct

        typer.echo(f"catchment {ct.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Holds the options that stand before a command."""


@app.command()
def demo(
    events: Annotated[
        int | None,
        typer.Option(min=1, help="How many events to generate; by default 10 million."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="How much event time to generate, instead.")
    ] = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="In this process, without Spark.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Stream soccer-like events through a hundred queries on Spark, and show what sharing saves."""
    from catchment.cli import demo as plain
    from catchment.cli import demo_spark, live, show

    wanted = events or (round(seconds * plain.RATE) if seconds else plain.EVERYTHING)
    if embedded:
        with show.progress(wanted / plain.RATE) as report:
            outcome = plain.run(wanted, report)
    else:
        with live.on_screen() as voice:
            outcome = demo_spark.run(wanted, voice)
    if as_json:
        typer.echo(json.dumps(outcome.to_dict()))
    else:
        show.outcome(outcome)


@app.command("demo-tree")
def demo_tree(
    seconds: Annotated[
        int, typer.Option(min=6, max=90, help="How much event time to generate, in seconds.")
    ] = 60,
    as_json: AsJson = False,
) -> None:
    """Run three sites, a node in between and a root here, and kill a site on the way."""
    from catchment.cli import demo_tree as tree

    line = tree.DemoLine()
    outcome = tree.run(seconds, line)
    line.end()
    if as_json:
        typer.echo(json.dumps(outcome.to_dict()))
    else:
        tree.show(outcome)


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="The job file to write.")] = Path("job.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented job file that runs as it is."""
    from catchment.cli import init as template

    template.write(file, force)
    typer.echo(f"wrote {file}; run it with: catchment run {file}")


@app.command()
def run(
    job: JobFile,
    trigger: Annotated[
        str | None,
        typer.Option(
            help="continuous, available-now, batch, or a period such as 5s.",
            autocompletion=completion.triggers,
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="The job's folder, instead of the file's.", metavar="DIR")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object after each batch and at the end.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    metrics: MetricsPort = None,
    metrics_host: MetricsHost = _HOST,
    cores: Annotated[int | None, typer.Option(help="By default all.", min=1)] = None,
    again: Annotated[
        bool, typer.Option("--again", help="A batch job that is done delivers once more.")
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show at the end what batches cost, part by part.")
    ] = False,
    ui: WithPage = False,
    ui_port: PagePort = _PORT,
) -> None:
    """Run a job on Spark until it ends; Ctrl-C stops it, and the next run goes on from there."""
    from catchment.cli import run as running

    port = ui_port if ui else None
    options = running.Options(
        trigger, checkpoint, as_json, quiet, metrics, cores, again, profile, port, metrics_host
    )
    running.run(job, options)


@app.command()
def up(
    job: JobFile,
    engine: Annotated[
        NodeEngine, typer.Option(help="Of nodes that do not say it themselves.")
    ] = NodeEngine.embedded,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    metrics: Annotated[
        int | None,
        typer.Option(
            help="Serve Prometheus metrics of the first node here, of others at the next ports.",
            min=0,
            max=65535,
        ),
    ] = None,
    metrics_host: MetricsHost = _HOST,
    ui: WithPage = False,
    ui_port: PagePort = _PORT,
) -> None:
    """Start every node of a job's tree as a process here, until all is done."""
    from catchment.cli import tree

    tree.up(job, engine.value, quiet, ui_port if ui else None, _metrics_at(metrics, metrics_host))


@app.command()
def ui(
    jobs: Annotated[list[Path], typer.Argument(help="Job files (YAML).", metavar="JOB.YAML...")],
    port: Annotated[
        int, typer.Option(help="Of the page, at this host; 0: a free one.", min=0, max=65535)
    ] = _PORT,
    checkpoint: Annotated[
        Path | None, typer.Option(help="The job's folder, instead of the file's.", metavar="DIR")
    ] = None,
    browser: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser, too.")
    ] = False,
) -> None:
    """Serve a live page of jobs, wherever they run, until Ctrl-C."""
    from catchment.cli import ui as page

    page.show(jobs, port, checkpoint, browser)


@app.command()
def node(
    id: Annotated[str, typer.Argument(help="The node's id.", autocompletion=completion.node_ids)],
    job: JobFile,
    parent: Annotated[
        str | None, typer.Option(help="Its parent's address, instead of the file's.")
    ] = None,
    engine: Annotated[
        NodeEngine, typer.Option(help="If the file does not say it.")
    ] = NodeEngine.spark,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object each second.")
    ] = False,
    metrics: MetricsPort = None,
    metrics_host: MetricsHost = _HOST,
    supervised: Annotated[
        bool, typer.Option(hidden=True, help="End when standard input is closed.")
    ] = False,
) -> None:
    """Run one node of a job's tree on this host, until its work is done."""
    from catchment.cli import tree

    at = _metrics_at(metrics, metrics_host)
    tree.run_node(job, id, parent, engine.value, as_json, supervised, at)


OneJob = Annotated[
    Path | None, typer.Argument(help="A job file (YAML).", metavar="[JOB.YAML]", show_default=False)
]


@app.command()
def status(
    file: OneJob = None,
    job: Annotated[
        Path | None, typer.Option("--job", help="The same as JOB.YAML.", metavar="JOB.YAML")
    ] = None,
    root: Annotated[
        str | None, typer.Option("--root", help="The address of a tree's root.")
    ] = None,
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
) -> None:
    """Tell how a job stands: a tree, or a job on Spark, whether it runs or not."""
    from catchment.cli import status as standing

    standing.show(file or job, root, checkpoint, as_json)


@app.command()
def top(
    jobs: Annotated[list[Path], typer.Argument(help="Job files (YAML).", metavar="JOB.YAML...")],
    checkpoint: Checkpoint = None,
    every: Annotated[float, typer.Option(help="Seconds between looks.", min=0.2)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, print and end.")] = False,
) -> None:
    """Watch jobs in the terminal, wherever they run: nodes, counts, lag, limits. Ctrl-C ends it."""
    from catchment.cli import top as watching

    watching.show(jobs, checkpoint, every, once)


@app.command()
def doctor(
    job: OneJob = None,
    start: Annotated[
        bool, typer.Option("--start", help="Start Spark too, and let it count.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Examine this machine: Java, Spark, packages, ports, disk, clock; with a job, all it needs."""
    from catchment.cli import doctor as examining

    if not examining.run(job, start, as_json):
        raise typer.Exit(1)


Offline = Annotated[bool, typer.Option("--offline", help="Ask no source: check the file alone.")]


@app.command()
def explain(job: JobFile, offline: Offline = False, as_json: AsJson = False) -> None:
    """Print the shared plan of a job's queries as a tree, and how the job will run."""
    import catchment as ct
    from catchment.cli import check

    found = check.inspect(job, offline=offline)
    loaded = _sound(found, as_json)
    text = ct.explain(ct.plan(loaded.build(), rate=loaded.rate))
    runtime = "" if offline else check.runtime(loaded)
    if as_json:
        typer.echo(json.dumps(found.to_dict() | {"plan": text, "runtime": runtime}))
        return
    typer.echo(text)
    if runtime:
        typer.echo(runtime)


@app.command()
def validate(
    job: JobFile,
    connect: Annotated[
        bool, typer.Option("--connect", help="Sources and sinks must answer.")
    ] = False,
    offline: Offline = False,
    as_json: AsJson = False,
) -> None:
    """Check a job file and its queries against the columns of the events, without reading any.

    Every mistake is listed. A source that cannot be reached is only a warning, unless --connect.
    """
    from catchment.cli import check

    if connect and offline:
        raise QueryError("--connect and --offline exclude each other", hint="leave out one")
    found = check.inspect(job, connect=connect, offline=offline)
    loaded = _sound(found, as_json)
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
        return
    reached = "" if found.columns is None else f", {found.columns} columns"
    if connect:
        reached = f", source and {len(loaded.sinks)} sink(s) answer{reached}"
    count = f"{found.queries} {'query' if found.queries == 1 else 'queries'}"
    typer.echo(f"{job} is fine: {count}{reached}")


def _sound(found: Report, as_json: bool) -> JobModel:
    """The job, where nothing is wrong with it; otherwise all that is, and the end.

    Mistakes and warnings go to stderr, a line each; as JSON, all of it goes to stdout.
    """
    if as_json and found.mistakes:
        typer.echo(json.dumps(found.to_dict()))
    elif not as_json:
        for warning in found.warnings:
            typer.echo(f"catchment: warning: {warning.text}", err=True)
        for mistake in found.mistakes:
            typer.echo(f"catchment: {mistake.text}", err=True)
    if found.mistakes or found.job is None:
        raise typer.Exit(found.code)
    return found.job


@app.command()
def schema() -> None:
    """Print the JSON schema of a job file, for editors."""
    from catchment.job import job_schema

    typer.echo(json.dumps(job_schema(), indent=2))


@app.command()
def bench(
    suite: Annotated[
        str, typer.Argument(help="What to measure: a suite.", autocompletion=completion.suites)
    ] = "engine",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer events and runs.")] = False,
    as_json: AsJson = False,
    record: Annotated[
        bool, typer.Option("--record", help="Write the figures into benchmarks/results too.")
    ] = False,
    plots: Annotated[
        Path | None, typer.Option(help="Draw the suite's plots there instead.", metavar="DIR")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Measure this part of the suite (may be repeated).", metavar="PART"),
    ] = None,
) -> None:
    """Measure speed and size, in a checkout; exit code 1 when a figure misses its bar."""
    from catchment.cli import bench as benching

    if record and plots is not None:
        raise QueryError("--record and --plots exclude each other", hint="leave out one")
    if record and only:
        raise QueryError(
            "a record is of a whole suite", given="--only", hint="leave out --record or --only"
        )
    if not benching.run(suite, quick, as_json, record, plots, only or ()):
        raise typer.Exit(1)


@app.command()
def advise(
    job: JobFile,
    events: Annotated[Path, typer.Option(help="A sample: a file or folder of events.")],
    bandwidth: Annotated[
        str | None, typer.Option(help="Of the link, as in '200 kB/s'; by default three are tried.")
    ] = None,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw a picture into this file too.", metavar="FILE")
    ] = None,
) -> None:
    """Replay a sample, and show what each flush policy would cost on your own events."""
    from catchment.cli import advise as advising

    advising.run(job, events, bandwidth, as_json, plot)


app.add_typer(query_commands.app, name="queries")
app.add_typer(tree_commands.nodes, name="nodes")


def _fail(error: CatchmentError) -> NoReturn:
    notes = "".join(f" [{note}]" for note in getattr(error, "__notes__", ()))
    typer.echo("catchment: " + " ".join(f"{error}{notes}".split()), err=True)
    raise typer.Exit(2 if isinstance(error, JobError | QueryError | SchemaError) else 1)


def main() -> None:
    """What the `catchment` command calls."""
    app(prog_name="catchment")


if __name__ == "__main__":
    main()
