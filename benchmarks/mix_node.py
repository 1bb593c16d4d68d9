"""The memory of a small node, which must not grow with what the mixes need."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.figure import Figure, at_most
from benchmarks.tree_start import MEGABYTE, start


def figures(quick: bool = False) -> Iterator[Figure]:
    """The largest of several starts, as the suite of trees measures it."""
    sizes = [start(3 if quick else 10, lean=True)[1] for _ in range(1 if quick else 3)]
    yield at_most(
        "memory of a small node",
        max(sizes) / MEGABYTE,
        "MB",
        150,
        f"the largest resident size of an embedded local node, avg by 10 keys, installed without "
        f"the Spark extra; {len(sizes)} starts",
    )
