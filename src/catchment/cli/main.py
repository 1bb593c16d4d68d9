"""The commands. Each imports what it needs when it runs, so that `catchment --help` is quick."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from catchment.errors import CatchmentError

if TYPE_CHECKING:
    from catchment.model.query import Query


class _Commands(TyperGroup):
    """Shows a user's mistake as one line on stderr, exit code 2, and never as a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CatchmentError as error:
            _fail(error)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Thousands of windowed aggregations over event streams for the price of one pass.",
)

JobFile = Annotated[Path, typer.Argument(help="A job file (YAML).", metavar="JOB.YAML")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


class Suite(StrEnum):
    """What `catchment bench` can measure."""

    engine = "engine"


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
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How much event time to generate, in seconds.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Run 25 mixed queries over generated soccer-like events and show what they share."""
    from catchment.cli import demo as run
    from catchment.cli import show

    with show.progress(seconds) as report:
        outcome = run.run(seconds, report)
    if as_json:
        typer.echo(json.dumps(outcome.to_dict()))
    else:
        show.outcome(outcome)


@app.command()
def explain(job: JobFile) -> None:
    """Print the shared plan of a job's queries as a tree."""
    import catchment as ct

    typer.echo(ct.explain(ct.plan(_queries(job))))


@app.command()
def validate(job: JobFile) -> None:
    """Check a job file without reading any event."""
    import catchment as ct

    queries = _queries(job)
    ct.plan(queries)
    typer.echo(f"{job} is fine: {len(queries)} {'query' if len(queries) == 1 else 'queries'}")


@app.command()
def schema() -> None:
    """Print the JSON schema of a job file, for editors."""
    from catchment.job import job_schema

    typer.echo(json.dumps(job_schema(), indent=2))


@app.command()
def bench(
    suite: Annotated[Suite, typer.Argument(help="What to measure.")] = Suite.engine,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer events and runs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure speed and size; exit code 1 when a figure misses its bar."""
    from catchment import bench as measure
    from catchment.cli import show

    missed = False
    for figure in measure.run(suite.value, quick):
        typer.echo(json.dumps(show.as_dict(figure)) if as_json else show.figure(figure))
        missed = missed or figure.ok is False
    if missed:
        raise typer.Exit(1)


def _queries(path: Path) -> list[Query]:
    from catchment.job import load_job

    return load_job(path).build()


def _fail(error: CatchmentError) -> NoReturn:
    notes = "".join(f" [{note}]" for note in getattr(error, "__notes__", ()))
    typer.echo("catchment: " + " ".join(f"{error}{notes}".split()), err=True)
    raise typer.Exit(2)


def main() -> None:
    """What the `catchment` command calls."""
    app(prog_name="catchment")
