"""`catchment status`: how a job stands, a tree's or one on Spark, in lines or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from msgspec import UNSET

from catchment.cli.live import moment, never_read_line, span
from catchment.cli.tree import ask
from catchment.errors import JobError
from catchment.job import JobModel, load_job
from catchment.model import records
from catchment.model.costs import shown

if TYPE_CHECKING:
    from catchment.nodes.status import NodeStatus
    from catchment.spark.handle import Status


def show(job: Path | None, root: str | None, checkpoint: Path | None, as_json: bool) -> None:
    """Prints how a job stands. Nothing needs to run: a folder tells how its job was left."""
    if job is None and root is None and checkpoint is None:
        raise JobError(
            "which job? nothing is given",
            hint="say catchment status JOB.YAML, --checkpoint DIR, or --root host:port of a tree",
        )
    loaded = None if job is None else load_job(job)
    if root is not None or (loaded is not None and loaded.nodes):
        of_tree = tree_status(root, loaded)
        found: Any = of_tree
        lines = _tree_lines(of_tree)
    else:
        of_job = spark_status(loaded, checkpoint)
        found, lines = of_job, _spark_lines(of_job)
    if as_json:
        typer.echo(json.dumps(records.plain(found)))
        return
    for line in lines:
        typer.echo(line)


def tree_status(root: str | None, job: JobModel | None) -> NodeStatus:
    """What the root of a tree says."""
    from catchment.nodes.questions import AskStatus
    from catchment.nodes.status import NodeStatus

    return ask(AskStatus(), NodeStatus, root, None, job)


def spark_status(job: JobModel | None, checkpoint: Path | None) -> Status:
    """What the folder of a job on Spark tells."""
    from catchment.cli.queries import home_at
    from catchment.spark import job_folder
    from catchment.spark.queries import newest_plan

    address = str(checkpoint) if checkpoint else None if job is None else job.checkpoint
    home = home_at(address)
    found = job_folder.found_status(home)
    planned = newest_plan(home)
    if planned is None:
        return found
    rate = planned.plan.rate.per_second
    return replace(found, queries=len(planned.queries), planned_rate=rate)


def _spark_lines(found: Status) -> Iterator[str]:
    batch = "no batch yet" if found.batch < 0 else f"batch {found.batch}"
    queries = f"{found.queries} {'query' if found.queries == 1 else 'queries'}"
    yield f"job {found.job}: {found.state}, {batch}, {queries}"
    yield _frontier_line(found)
    names = ("events", "accepted", "late", "bad", "duplicates", "updates", "results")
    yield "  ".join(f"{name} {getattr(found, name):,}" for name in names)
    if found.state == "running":
        yield f"{found.rate:,.0f} events a second, over the last seconds"
    yield _rates(found.event_rate, found.planned_rate)
    if found.open_windows:
        windows, events = f"{found.open_windows:,} windows", f"{found.open_events:,} events"
        yield f"open when the source ended: {windows}, with {events}"
    if found.aside_dropped:
        yield f"not kept: {found.aside_dropped:,} late and bad rows"
    for name, newest in found.partitions.items():
        yield f"  {name}: {'no event yet' if newest is None else f'newest {moment(newest)}'}"
    for file, why in found.rejected.items():
        yield f"query file rejected: {file}: {why}"
    for file, why in found.waiting.items():
        yield f"file waiting: {file}: {why}"
    for one in found.never_read:
        if one.origin not in found.waiting:
            yield never_read_line(one)
    for limit in found.limits:
        yield limit.line
    if found.error:
        yield f"failed: {found.error}"


def _frontier_line(found: Status) -> str:
    if found.state == "ended":
        complete = "every window that can end" if found.open_windows else "every window"
        return f"frontier: the source has ended, {complete} is complete"
    if found.batch < 0:
        return "frontier: unknown before the first batch"
    if found.frontier is None:
        return "frontier: unknown, some partition has not been heard of yet"
    parts = [f"frontier {moment(found.frontier)}"]
    if found.lag is not None:
        parts.append(f"{span(found.lag)} behind the newest event")
    if found.behind is not None:
        parts.append(f"{span(found.behind)} behind the clock")
    return ", ".join(parts)


def _rates(seen: float | None, planned: float | None) -> str:
    """How many events come in a second of event time, and what the plan was made for."""
    said = "not known yet" if seen is None else f"{shown(seen)} a second"
    more = "" if planned is None else f", planned for {shown(planned)}"
    return f"events in event time: {said}{more}"


def _filling_lines(found: NodeStatus) -> Iterator[str]:
    """The limits of this node, and what is at least half full on those below."""
    yield from (limit.line for limit in found.limits)
    for id, filling in found.filling_by_nodes.items():
        if id != found.node:
            yield from (f"{id}: {limit.line}" for limit in filling)


def _tree_lines(found: NodeStatus) -> Iterator[str]:
    plan = None if found.plan is UNSET else found.plan
    flush = None if found.flush is UNSET else found.flush
    yield f"job {found.job}  plan {plan}  charter {found.charter}"
    yield f"frontier {when(found.frontier)}  complete until {when(found.complete_until)}"
    yield "  ".join(f"{name} {count:,}" for name, count in (found.counts or {}).items())
    seen = None if found.event_rate is UNSET else found.event_rate
    planned = None if found.planned_rate is UNSET else found.planned_rate
    yield _rates(seen, planned)
    yield f"flush: {flush}"
    for one in found.never_read:
        yield never_read_line(one)
    for id, told in found.never_read_by_nodes.items():
        rows = "some" if told.rows is None else f"{told.rows:,}"
        yield (
            f"never read by {id}: {rows} rows of {told.origins} files or partitions, "
            f"such as {told.reason}"
        )
    yield from _filling_lines(found)
    yield f"missing: {', '.join(found.missing) or 'nobody'}"
    for damage in found.damage:
        yield f"damaged: {damage}"
    if found.error is not UNSET:
        yield f"error: {found.error}"
    for id, why in (found.refused or {}).items():
        yield f"refused: {id}: {why}"
    for id, until in (found.lost or {}).items():
        yield f"lost: events of {id}, which results up to {when(until)} may lack"
    for id, why in (found.not_asked or {}).items():
        yield f"not asked for values: {id}: {why}"
    for id, child in (found.children or {}).items():
        for seq, why in (child.set_aside or {}).items():
            yield f"set aside: message {seq} of {id}: {why}"
    for id, child in (found.children or {}).items():
        here = "connected" if child.connected else f"silent {child.silent_seconds} s"
        yield (
            f"  {id}: {here}, frontier {when(child.frontier)}, {child.received} messages"
            f"{_carries(child.link or {})}"
        )


def _carries(link: Mapping[str, float | int | None]) -> str:
    """What a child has found its link to carry."""
    bandwidth, error = link.get("bandwidth"), link.get("error")
    if not bandwidth:
        return ""
    from catchment.flush.units import shown

    off = "" if error is None else f" (off by {100 * error:.0f} % on average)"
    return f", link {shown(bandwidth)}{off}"


def when(value: object) -> str:
    """A time of a tree: microseconds since 1970, or a word.

    >>> when(1_767_225_641_500_000), when("idle"), when(None)
    ('2026-01-01T00:00:41.500+00:00', 'idle', 'unknown')
    """
    if isinstance(value, int):
        try:
            return datetime.fromtimestamp(value / 1e6, UTC).isoformat(timespec="milliseconds")
        except (ValueError, OverflowError):
            return str(value)
    return "unknown" if value is None or value is UNSET else str(value)
