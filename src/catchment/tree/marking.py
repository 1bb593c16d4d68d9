"""Results say whether all nodes are in them, and who is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

Lacking = list[tuple[str, ...]]
"""For each window of a table: the nodes whose events may lack."""


def marked(
    results: Mapping[str, pa.Table], sure: int, missing: list[str],
    lacking: Callable[[str, pa.Table], Lacking | None] | None = None,
) -> dict[str, pa.Table]:  # fmt: skip
    """Results with the columns `complete` and `missing`."""
    made: dict[int, pa.Table] = {}
    found: dict[str, pa.Table] = {}
    for name, table in results.items():
        short = None if lacking is None else lacking(name, table)
        if short is not None:
            found[name] = _marked(table, sure, missing, short)
            continue
        if id(table) not in made:  # queries that differ only in name have one table
            made[id(table)] = _marked(table, sure, missing, None)
        found[name] = made[id(table)]
    return found


def _marked(table: pa.Table, sure: int, missing: list[str], lacking: Lacking | None) -> pa.Table:
    late = pa.array(table.column("window_end").cast(pa.int64()).to_numpy() > sure)
    if lacking is None:
        nobody = pa.scalar(None, pa.string())
        names = pc.if_else(late, pa.scalar(", ".join(missing)), nobody)
    else:
        open_ones = [missing if open_one else [] for open_one in late.to_pylist()]
        who = [sorted({*some, *others}) for some, others in zip(lacking, open_ones, strict=True)]
        names = pa.array([", ".join(some) or None for some in who], pa.string())
    complete = pc.invert(pc.or_(late, pc.is_valid(names)))
    return table.append_column("complete", complete).append_column("missing", names)
