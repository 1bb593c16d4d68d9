"""`catchment advise`: what each flush policy would cost on the user's own events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import typer

from catchment.cli.drawing import pyplot
from catchment.errors import SourceError
from catchment.flush.settings import WEIGHT
from catchment.flush.units import rate, shown
from catchment.job import load_job
from catchment.simulate.advice import PolicyRow, SampledGroup, advise, samples

_FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".arrow": "arrow",
    ".feather": "feather",
}
_TIMES = (1.2, 2.0, 5.0)
"""Links to look at, over what cannot be avoided, where none is given."""
_WIDE = 40


def run(job: Path, events: Path, bandwidth: str | None, as_json: bool, plot: Path | None) -> None:
    """Replays the sample, prints a table and a plot for each group of queries and link."""
    loaded = load_job(job)
    given = rate(bandwidth, "bandwidth") if bandwidth else None
    found = samples(loaded.build(), read_events(events), loaded.time)
    drawn: list[tuple[str, list[PolicyRow]]] = []
    for sample in found:
        for link in [given] if given else [times * sample.least for times in _TIMES]:
            rows = advise(sample, link)
            title = f"{', '.join(sample.queries)}: a link of {shown(link)}"
            drawn.append((title, rows))
            if as_json:
                for row in rows:
                    typer.echo(json.dumps({"queries": sample.queries, **asdict(row)}))
            else:
                typer.echo("\n".join([title, _sample_line(sample), *table(rows, sample), ""]))
    if plot is not None:
        draw(drawn, plot)
        typer.echo(f"drew {plot}", err=as_json)


def read_events(path: Path) -> pa.Table:
    """The events of a file, or of a folder of files of one kind."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    kinds = {file.suffix for file in files if file.suffix in _FORMATS}
    if not path.exists() or len(kinds) != 1:
        raise SourceError(
            "the sample cannot be read",
            given=f"{path}: {', '.join(sorted(kinds)) or 'no events'}",
            hint="give a file, or a folder of Parquet, CSV, JSON or Arrow files of one kind",
        )
    kind = kinds.pop()
    chosen = [str(file) for file in files if file.suffix == kind]
    found: pa.Table = ds.dataset(chosen, format=_FORMATS[kind]).to_table()  # type: ignore[call-overload]
    return found


def _sample_line(sample: SampledGroup) -> str:
    slices, length = sample.arrivals.windows, sample.arrivals.length
    return (
        f"  {slices:,} slices of {length:g} s, {sample.arrivals.distinct().mean():,.0f} keys and "
        f"{len(sample.arrivals.times) / slices:,.0f} touches each, {sample.each:.0f} bytes an "
        f"update; the least is {shown(sample.least)}"
    )


def table(rows: Sequence[PolicyRow], sample: SampledGroup) -> list[str]:
    """The policies, the cheapest marked, and a plot: traffic as #, staleness as =."""
    length = sample.arrivals.length
    costs = [row.traffic + WEIGHT * row.late / length for row in rows]
    best = min(cost for row, cost in zip(rows, costs, strict=True) if row.policy != "optimal")
    most = max(max(costs), 1e-9)
    heads = f"{'bytes/h':>12} {'traffic':>8} {'late, s':>9} {'worst':>9} {'cost':>7}"
    lines = [f"  {'policy':18} {heads}"]
    for row, cost in zip(rows, costs, strict=True):
        bar = "#" * round(_WIDE * row.traffic / most)
        bar += "=" * (round(_WIDE * cost / most) - len(bar))
        mark = "*" if cost == best and row.policy != "optimal" else " "
        lines.append(
            f"{mark} {row.policy:18} {row.hourly:12,.0f} {row.traffic:8.3f} {row.late:9.3f} "
            f"{row.latest:9.3f} {cost:7.3f} {bar}"
        )
    lines.append(
        f"  cost: # traffic over the least, = {WEIGHT:g} times staleness over the slice's length"
    )
    return lines


def draw(drawn: Sequence[tuple[str, list[PolicyRow]]], path: Path) -> None:
    """Traffic against staleness, a panel for each link."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(drawn), figsize=(4.5 * len(drawn), 3.6), squeeze=False)
    for one, (title, rows) in zip(axes[0], drawn, strict=True):
        for row in rows:
            one.plot(max(row.late, 1e-4), row.traffic, "o", label=row.policy)
        one.set_xscale("log")
        one.set_title(title, fontsize=8)
        one.set_xlabel("late, seconds")
        one.set_ylabel("traffic, over the least")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)
