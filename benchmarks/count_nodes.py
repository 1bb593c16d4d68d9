"""Count windows in a tree of processes: bytes on the links, against events that climb."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pyarrow.dataset as ds

from benchmarks.figure import Figure, below, exactly
from catchment.measure.bed import Bed, JobForm, Layout, Traffic, stream

RATE, WINDOW = 100_000, 100_000
_TREE: dict[str, str | None] = {"root": None, "mid": "root", "e1": "mid", "e2": "root"}
_QUERY: JobForm = {
    "name": "sums",
    "select": ["sum(v) AS total", "count(*) AS n"],
    "window": f"count_tumbling({WINDOW})",
}
_PATIENCE = 120.0


def figures(quick: bool = False) -> Iterator[Figure]:
    """Two local nodes, one of them below a node in between; a sum over 100,000 events."""
    seconds = 6 if quick else 20
    found = {scheme: _run(scheme, seconds) for scheme in ("central", "auto")}
    sent = {s: sum(link.both for link in links.values()) for s, (links, _) in found.items()}
    what = (
        f"count_tumbling({WINDOW:,}), {RATE:,} events a second on each of two nodes for {seconds} "
        f"s; three links, both directions, connecting and beats with it"
    )
    yield below(
        "bytes on links of real nodes, auto",
        sent["auto"] / sent["central"],
        "of count: central's",
        0.05,
        f"{what}: {sent['auto']:,} of {sent['central']:,} bytes",
    )
    sums = [found[scheme][1] for scheme in ("central", "auto")]
    same = len(sums[0]) == len(sums[1]) and all(map(math.isclose, *sums))
    yield exactly("windows of real nodes that differ", 0 if same else 1, "", 0, what)


def _run(scheme: str, seconds: int) -> tuple[dict[str, Traffic], list[float]]:
    sources = {id: stream(seed, seconds, RATE) for seed, id in enumerate(("e1", "e2"), start=1)}
    with Bed(Layout(_TREE, sources, [_QUERY], {"count": scheme})) as bed:
        links = bed.run(_PATIENCE + 4 * seconds)
        rows = ds.dataset(str(bed.out), format="parquet").to_table().to_pylist()
        return links, [row["total"] for row in sorted(rows, key=lambda row: row["window_index"])]
