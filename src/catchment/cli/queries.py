"""`catchment queries`: the queries of a job, looked at and changed while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from catchment.cli import completion
from catchment.cli.options import AsJson, Checkpoint
from catchment.cli.tree import ask
from catchment.errors import CatchmentError, JobError, QueryError

if TYPE_CHECKING:
    from catchment.cli.show import QueryRow
    from catchment.durable.folder import Folder
    from catchment.model.query import Query

app = typer.Typer(
    no_args_is_help=True, help="List, add and remove the queries of a job, also while it runs."
)

JobOrTree = Annotated[
    Path | None,
    typer.Option("--job", help="A job file, for its checkpoint or its tree.", metavar="JOB.YAML"),
]
TreeRoot = Annotated[
    str | None, typer.Option("--root", help="The address of a tree's root.", metavar="HOST:PORT")
]


@app.command("ls")
def listed(
    checkpoint: Checkpoint = None,
    job: JobOrTree = None,
    root: TreeRoot = None,
    as_json: AsJson = False,
) -> None:
    """List the queries, and the files that were rejected, with the reason."""
    from catchment.cli import show
    from catchment.model import records
    from catchment.model.query import Query

    if _in_tree(job, root):
        from catchment.nodes.questions import AskQueries, QueryList

        held = ask(AskQueries(), QueryList, root, job)
        found = [
            show.QueryRow(
                q.name, q.describe(), "tree", held.versions[q.name], q.name in held.leaving
            )
            for q in map(Query.of, held.queries)
        ]
        rejected: dict[str, str] = {}
    else:
        found, rejected = _stored_queries(home_of(checkpoint, job))
    if as_json:
        typer.echo(json.dumps({"queries": records.plain(found), "rejected": rejected}))
    else:
        show.queries(found, rejected)


@app.command("add")
def add(
    file: Annotated[
        Path | None,
        typer.Argument(help="A file with a query, or a list of them (YAML).", metavar="QUERY.YAML"),
    ] = None,
    sql: Annotated[str | None, typer.Option(help="A query in SQL, instead of a file.")] = None,
    name: Annotated[str | None, typer.Option(help="The name of the SQL query.")] = None,
    checkpoint: Checkpoint = None,
    job: JobOrTree = None,
    root: TreeRoot = None,
) -> None:
    """Add queries; the job takes them up with its next batch."""
    asked = _given_queries(file, sql, name)
    if _in_tree(job, root):
        from catchment.nodes.questions import AddQueries, TreeChange

        new = AddQueries(tuple(query.record() for query in asked))
        for added, version in ask(new, TreeChange, root, job).versions.items():
            typer.echo(_added(added, version))
        return
    from catchment.spark.job_folder import fit
    from catchment.spark.queries import QueryFolder

    home = home_of(checkpoint, job)
    folder = QueryFolder(home)
    fit(home, asked)
    folder.refuse_known(asked)
    versions = _versions(home, {query.name: query for query in asked})
    for query in asked:
        folder.add(query)
        typer.echo(_added(query.name, versions[query.name]))


@app.command("rm")
def remove(
    names: Annotated[
        list[str],
        typer.Argument(
            help="The queries' names.",
            metavar="NAME...",
            autocompletion=completion.query_names,
        ),
    ],
    checkpoint: Checkpoint = None,
    job: JobOrTree = None,
    root: TreeRoot = None,
    drain: Annotated[
        bool,
        typer.Option("--drain", help="Let open windows end; no new ones begin. Then remove."),
    ] = False,
) -> None:
    """Remove queries; without --drain, their open windows give no results any more."""
    if _in_tree(job, root):
        from catchment.nodes.questions import RemoveQueries, TreeChange

        ask(RemoveQueries(tuple(names), drain), TreeChange, root, job)
    else:
        from catchment.spark.queries import QueryFolder

        folder = QueryFolder(home_of(checkpoint, job))
        for name in names:
            folder.drain(name) if drain else folder.remove(name)
    done = "leaves after its open windows:" if drain else "removed"
    typer.echo("\n".join(f"{done} {name}" for name in names))


def _added(name: str, version: int) -> str:
    """What is said of a query that was added; of another definition under a name, more."""
    from catchment.model.definition import output_name

    if version == 1:
        return f"added {name}"
    return f"added {name}, version {version}: its results are {output_name(name, version)}"


def _versions(home: Folder, queries: dict[str, Query]) -> dict[str, int]:
    """The version of each definition, as the job has it or will have it with its next batch."""
    from catchment.model.definition import next_definitions
    from catchment.spark.queries import newest_plan

    planned = newest_plan(home)
    found = next_definitions({} if planned is None else planned.definitions, queries)
    return {name: found[name].version for name in queries}


def _in_tree(job: Path | None, root: str | None) -> bool:
    """Whether a tree's root is to be asked, and not a job's folder."""
    from catchment.job import load_job

    return root is not None or (job is not None and bool(load_job(job).nodes))


def home_of(checkpoint: Path | None, job: Path | None) -> Folder:
    """The folder of the job that is meant; there must be a job."""
    from catchment.job import load_job

    address = str(checkpoint) if checkpoint else None
    if address is None and job is not None:
        address = load_job(job).checkpoint
    return home_at(address)


def home_at(address: str | None) -> Folder:
    """The folder of the job at a checkpoint; there must be a job."""
    from catchment.spark import job_folder

    if address is None:
        raise JobError(
            "which job? no checkpoint is given",
            hint="say --checkpoint DIR, or --job with a job file that has a checkpoint",
        )
    home = job_folder.home_of(address)
    if job_folder.name_of(home) is None:
        raise JobError(
            "no job has run there", given=address, hint="start it with catchment run JOB.YAML"
        )
    return home


def _given_queries(file: Path | None, sql: str | None, name: str | None) -> list[Query]:
    from catchment.sqltext import sql as query_of

    if (file is None) == (sql is None):
        raise QueryError("give either a file or --sql with --name")
    if sql is not None:
        if name is None:
            raise QueryError("a query in SQL needs a name", hint="add --name")
        return [query_of(sql, name)]
    assert file is not None
    try:
        data = file.read_bytes()
    except OSError as error:
        raise JobError(
            "the query file cannot be read", given=file, hint=f"{error.strerror}".lower()
        ) from error
    from catchment.job.query_file import parse

    return parse(data, file.name)


def _stored_queries(home: Folder) -> tuple[list[QueryRow], dict[str, str]]:
    """The queries with their files, and the files that cannot be used."""
    from catchment.cli.show import QueryRow
    from catchment.job.query_file import parse
    from catchment.spark.queries import QueryFolder, read_rejected

    folder = QueryFolder(home)
    queries, rejected = folder.read()
    versions, leaving = _versions(home, queries), folder.leaving()
    found = []
    for file, data in folder.files().items():
        try:
            names = [query.name for query in parse(data, file)]
        except CatchmentError:
            continue
        for name in names:
            if name in queries:
                shown = queries[name].describe()
                found.append(QueryRow(name, shown, file, versions[name], name in leaving))
    # What only the running job can tell: a query that does not fit its events.
    return found, {**read_rejected(home), **rejected}
