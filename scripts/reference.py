"""Writes the reference of names, commands, job files and metrics from the code: `make reference`.

Each file below docs/reference/ that begins with MADE is written here and nowhere else.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
MADE = "<!-- made by scripts/reference.py: make reference -->"

_FUNCTIONS = """\
Each takes a column of the events, or an SQL expression over columns, and gives an aggregate for a
query: `ct.avg("v").alias("mean")`. They are defined as Spark defines its own, and ignore nulls.
"""
_OF_SPARK = """\
All aggregates of Spark 4.3: exact, approximate or refused, how they are written in SQL, and the
operators that they are computed from, which queries of a group share. What is refused says what to
do instead. Functions of our own, such as `range`, `geometric_mean` and those of users, are in
[Python](python.md#functions).
"""
_JOB = """\
A job file is YAML or JSON. `catchment schema` prints its JSON schema, for editors;
`catchment validate` lists every mistake of a file.
"""
_COMMANDS = """\
`catchment --help` and `catchment COMMAND --help` say the same. `catchment --install-completion`
teaches the shell to complete commands, queries and nodes. Exit code 2 means that what was given is
wrong, 1 that it could not be done. Progress goes to standard error, results to standard output.
"""
_METRICS = """\
`catchment run --metrics PORT` (or `metrics: PORT` in the job file) serves the metrics of a job on
Spark, `catchment node ... --metrics PORT` those of a node, `catchment up --metrics PORT` those of
all nodes, each at the next port. They are served to this host alone unless `--metrics-host` says
otherwise, and need the extra `metrics`. Dashboards for Grafana are in `kit/grafana/`, alerts in
`kit/prometheus/alerts.yml`.

Counts of a job go on over restarts, as the job does; those by query begin with the process. The
first 1,000 queries are counted one by one, all others as `(others)`. Staleness is by the clock: of
events that are read long after they happened it is long. Bytes by
type of window are the share of its rows in the bytes of a message; `catchment_link_bytes_total` is
of whole links. A root that runs on Spark does not count results by query.
"""

GROUPS = {
    "Run": ("run", "as_of", "windows", "window", "Job", "load_job", "every", "TimeColumn"),
    "Queries": ("Query", "rolling", "sql", "expr", "order", "Aggregate", "Expression", "Ordering"),
    "Plans": ("plan", "explain", "Plan"),
    "The engine": ("Engine", "Results", "Stats", "slice", "merge", "assemble"),
    "Extending": ("function", "register_function", "register_operator"),
}


def python_page() -> str:
    """All public names, by what they are for."""
    import catchment as ct
    from catchment.functions import Function
    from catchment.model.window import BUILDERS

    parts = ["# Python\n", "`import catchment as ct`. All of it is what `help()` says.\n"]
    names = set(ct.__all__)
    kinds = {name: getattr(getattr(ct, name), "function", None) for name in sorted(names)}
    functions = [name for name, kind in kinds.items() if isinstance(kind, Function)]
    windows = [n for n in sorted(names) if n in BUILDERS]
    errors = [n for n in sorted(names) if _is_error(getattr(ct, n))]
    for title, members in GROUPS.items():
        parts += [f"## {title}\n", *(_entry(ct, name) for name in members)]
    parts += ["## Windows\n", *(_entry(ct, name) for name in windows)]
    parts += [
        "## Functions\n",
        _FUNCTIONS,
        "| function | |",
        "|---|---|",
    ]
    for name in functions:
        named = inspect.signature(getattr(ct, name)).parameters.values()
        shown = f"{name}({', '.join(str(one).partition(':')[0] for one in named)})"
        said = " ".join(_first(inspect.getdoc(getattr(ct, name).function) or "").split())
        parts.append(f"| `{shown}` | {said.replace('|', '&#124;')} |")
    parts += [
        "\n## Errors\n",
        "All are a `CatchmentError`, with `what`, `given` and `hint`.\n",
        "| error | |",
        "|---|---|",
    ]
    parts += [
        f"| `{name}` | {_first(inspect.getdoc(getattr(ct, name)) or '')} |" for name in errors
    ]
    left = (
        names
        - {n for members in GROUPS.values() for n in members}
        - {*functions, *windows, *errors}
    )
    assert not left, f"give them a group in scripts/reference.py: {left}"
    return "\n".join(parts) + "\n"


def _is_error(found: Any) -> bool:
    return inspect.isclass(found) and issubclass(found, Exception)


def _signature(found: Any) -> str:
    text = str(inspect.signature(found))
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)


def _entry(ct: Any, name: str) -> str:
    found = getattr(ct, name)
    head = f"class {name}" if inspect.isclass(found) else f"{name}{_signature(found)}"
    return (
        f"### {name}\n\n```text\n{_wrapped(head)}\n```\n\n{_prose(inspect.getdoc(found) or '')}\n"
    )


def _wrapped(head: str) -> str:
    if len(head) <= 110:
        return head
    opening, _, rest = head.partition("(")
    inside, _, end = rest.rpartition(")")
    parts, depth, last = [], 0, ""
    for sign in inside:
        depth += (sign in "[(") - (sign in "])")
        if sign == "," and depth == 0:
            parts.append(last.strip())
            last = ""
        else:
            last += sign
    parts.append(last.strip())
    return f"{opening}(\n    " + ",\n    ".join(parts) + f"\n){end}"


def _prose(doc: str) -> str:
    """A docstring as Markdown: examples become blocks."""
    lines, made, inside = doc.splitlines(), [], False
    for line in lines:
        code = line.startswith(("    ", ">>>", "..."))
        if code and not inside:
            made += ["```pycon" if line.startswith(">>>") else "```text"]
            inside = True
        elif inside and not code and (not line.strip()):
            made += ["```"]
            inside = False
        made.append(
            line[4:] if inside and line.startswith("    ") and made[-1] != "```pycon" else line
        )
    return "\n".join([*made, "```"] if inside else made)


def _first(doc: str) -> str:
    return " ".join(doc.partition("\n\n")[0].split())


def job_page() -> str:
    """What a job file may hold."""
    from catchment.job import job_schema
    from catchment.sinks import Sink

    schema = job_schema()
    defs = schema["$defs"]
    parts = [
        "# Job files\n",
        _JOB,
        "## The job\n",
        _keys(schema),
        "## Queries\n",
        "A query is `sql:` with a statement ([SQL](../sql.md)), or `select:` with the rest.\n",
        _keys(defs["QuerySection"]),
        "## Nodes\n",
        _keys(defs["NodeSection"]),
        "## Security\n",
        "See [security](../security.md).\n",
    ]
    kinds = {name: made for name, made in defs.items() if "type" in made.get("properties", {})}
    sinks = {kind.__name__ for kind in Sink.registry.registered().values()}
    for title, which in (("Sources", kinds.keys() - sinks), ("Sinks", kinds.keys() & sinks)):
        parts.append(f"## {title}\n")
        for name in sorted(which, key=lambda name: kinds[name]["properties"]["type"]["const"]):
            made = kinds[name]
            word = made["properties"]["type"]["const"]
            parts += [
                f"### {title[:-1].lower()} `{word}`\n",
                made.get("description", "") + "\n",
                _keys(made),
            ]
    return "\n".join(parts) + "\n"


def _keys(section: dict[str, Any]) -> str:
    rows = ["| key | default | |", "|---|---|---|"]
    needed = set(section.get("required", ()))
    for name, made in section["properties"].items():
        if name == "type":
            continue
        default = "needed" if name in needed else _value(made.get("default"))
        said = made.get("description") or _choices(made)
        rows.append(f"| `{name}` | {default} | {_cell(said)} |")
    return "\n".join(rows) + "\n"


def _value(value: Any) -> str:
    if value is None:
        return ""
    if value in ([], {}, ""):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _choices(made: dict[str, Any]) -> str:
    found = made.get("enum") or [o["const"] for o in made.get("anyOf", ()) if "const" in o]
    return ", ".join(f"`{one}`" for one in found)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "&#124;")


def commands_page() -> str:
    """Every command, its arguments and options."""
    import typer

    from catchment.cli.main import app

    group = typer.main.get_command(app)
    parts = [
        "# Commands\n",
        _COMMANDS,
        *_commands(group, "catchment"),
    ]
    return "\n".join(parts) + "\n"


def _commands(group: Any, path: str) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
            continue
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        words = " ".join(p.metavar or p.name.upper() for p in arguments)
        yield f"## {path} {name}\n\n```text\n{path} {name} {words}".rstrip() + "\n```\n"
        yield " ".join((command.help or "").split()) + "\n"
        options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
        if arguments or options:
            yield "| | |\n|---|---|"
            for one in arguments:
                yield f"| `{one.metavar or one.name.upper()}` | {_cell(one.help or '')} |"
            for one in options:
                takes = "" if one.is_flag else f" {one.metavar or one.name.upper()}"
                default = one.default
                known = default is not None and not callable(default) and not one.is_flag
                shown = getattr(default, "value", default)
                more = f" Default: `{shown}`." if known and shown != "" else ""
                yield f"| `{one.opts[0]}{takes}` | {_cell(one.help or '')}{more} |"
            yield ""


def metrics_page() -> str:
    """Every metric, from the one list of them."""
    from catchment.metrics import CATALOGUE

    rows = ["| metric | kind | labels | of | |", "|---|---|---|---|---|"]
    for name, known in CATALOGUE.items():
        shown = f"catchment_{name}" + ("_total" if known.kind == "counter" else "")
        labels = ", ".join(known.labels)
        of = {"both": "jobs, nodes", "job": "jobs", "node": "nodes"}[known.of]
        rows.append(f"| `{shown}` | {known.kind} | {labels} | {of} | {known.text} |")
    return "\n".join(
        [
            "# Metrics\n",
            _METRICS,
            *rows,
            "",
        ]
    )


def functions_page() -> str:
    """The aggregates of Spark, name by name."""
    import catchment as ct
    from catchment.functions.spark_names import APPROXIMATE, REFUSED, WRITTEN

    rows = ["| of Spark | here | written | operators |", "|---|---|---|---|"]
    for name in sorted({*WRITTEN, *REFUSED}):
        if name in REFUSED:
            rows.append(f"| `{name}` | refused | {REFUSED[name]} | |")
            continue
        text = f"SELECT {WRITTEN[name]} AS x FROM events GROUP BY window(ts, '1 minute')"
        (group,) = ct.plan([ct.sql(text, "q").without_names()]).groups
        kinds = ", ".join(dict.fromkeys(kind for kind, _, _ in group.operators))
        how = "approximate" if name in APPROXIMATE else "exact"
        rows.append(f"| `{name}` | {how} | `{WRITTEN[name]}` | {kinds} |")
    return "\n".join(["# Functions of Spark\n", _OF_SPARK, *rows, ""])


PAGES: dict[str, Callable[[], str]] = {
    "python.md": python_page,
    "job-file.md": job_page,
    "commands.md": commands_page,
    "metrics.md": metrics_page,
    "functions.md": functions_page,
}


def page(name: str) -> str:
    """A page as it should be."""
    return f"{MADE}\n\n{PAGES[name]()}"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        path, made = FOLDER / name, page(name)
        if not path.exists() or path.read_text(encoding="utf-8") != made:
            path.write_text(made, encoding="utf-8")
            sys.stdout.write(f"wrote {path.relative_to(FOLDER.parent.parent)}\n")


if __name__ == "__main__":
    main()
