"""What the rows of results are made of, and which of them count."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from catchment.sinks.base import Delivery

TableLayout = Literal["per-query", "long", "auto"]
MANY = 100
"""With more queries than these, "auto" puts all results in one place."""
BOUNDS = ("window_start", "window_end", "window_index")
UPDATES = ("revision", "retracted")


def filled(delivery: Delivery) -> list[tuple[str, pa.Table]]:
    """The queries that have rows, always in the same order."""
    pairs = ((name, table) for name, table in delivery.results.items() if table.num_rows)
    return sorted(pairs, key=itemgetter(0))


class StackedResults(NamedTuple):
    """Results of queries whose tables look the same, one below the other."""

    table: pa.Table
    keys: tuple[str, ...]
    queries: list[str]
    counts: list[int]
    """The rows of each query."""

    def named(self, words: Sequence[str]) -> pa.Array[Any]:
        """The word of its query in each row."""
        places = np.repeat(np.arange(len(words)), self.counts)
        return pa.array(words, pa.string()).take(places)

    def spans(self) -> Iterator[tuple[str, int, int]]:
        """Each query, where its rows start, and how many they are."""
        starts = accumulate(self.counts, initial=0)
        return zip(self.queries, starts, self.counts, strict=False)


def grouped(delivery: Delivery) -> list[StackedResults]:
    """The rows of a delivery, in as few tables as possible: small ones take most of their time."""
    alike: dict[Hashable, list[tuple[str, pa.Table]]] = {}
    for query, table in filled(delivery):
        look = (delivery.keys[query], *table.column_names, *table.schema.types)
        alike.setdefault(look, []).append((query, table))
    return [_group(delivery, pairs) for pairs in alike.values()]


def _group(delivery: Delivery, pairs: list[tuple[str, pa.Table]]) -> StackedResults:
    queries = [query for query, _ in pairs]
    table = pa.concat_tables([_bare(table) for _, table in pairs]).combine_chunks()
    return StackedResults(table, delivery.keys[queries[0]], queries, [t.num_rows for _, t in pairs])


def _bare(table: pa.Table) -> pa.Table:
    return table.replace_schema_metadata(None) if table.schema.metadata else table


def is_long(layout: TableLayout, delivery: Delivery) -> bool:
    """Whether all results of this delivery go to one place."""
    return layout == "long" or (layout == "auto" and len(delivery.keys) > MANY)


def bounds(table: pa.Table) -> list[str]:
    return [name for name in BOUNDS if name in table.column_names]


def aggregates(table: pa.Table, keys: Sequence[str]) -> list[str]:
    """The columns that are neither keys nor what the engine adds."""
    other = {*keys, *BOUNDS, *UPDATES}
    return [name for name in table.column_names if name not in other]


def latest(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The newest revision of each key and window, in the table's order; retracted ones are gone.

    A window is its bounds and, where those may repeat, its `window_index`. Results have their keys
    in front of the bounds: all of these count, `grouping_id` and `node` too, also where `keys` does
    not name them.

    >>> table = pa.table({"k": [1, 1, 2], "window_start": [0, 0, 0], "window_end": [9, 9, 9],
    ...                   "n": [5, 6, None], "revision": [0, 1, 1],
    ...                   "retracted": [False, False, True]})
    >>> latest(table, ["k"])["n"].to_pylist()
    [6]
    """
    import polars as pl  # here: a node that delivers nothing never loads it

    names = table.column_names
    front = names[: names.index(BOUNDS[0])] if BOUNDS[0] in names else []
    identity = list(dict.fromkeys([*front, *keys, *bounds(table)]))
    revised = "revision" in table.column_names
    # Polars takes two nulls for the same key; joins and groups of Arrow do not.
    chosen = table.select([*identity, "revision"] if revised else identity)
    rows = pl.DataFrame(_for_polars(chosen)).with_row_index("__row")
    if revised:
        rows = rows.sort("revision", maintain_order=True, nulls_last=False)
    places = rows.unique(identity, keep="last")["__row"].sort() if identity else rows["__row"][-1:]
    made = table.take(places.to_arrow())
    if "retracted" not in made.column_names:
        return made
    gone = pl.Series(made["retracted"]).fill_null(False)
    return made.filter((~gone).to_arrow())


def _for_polars(table: pa.Table) -> pa.Table:
    """Decimals of more than 38 digits, which Polars has not, as texts."""
    for place, field in enumerate(table.schema):
        if pa.types.is_decimal256(field.type):
            texts = table.column(place).cast(pa.string())
            table = table.set_column(place, field.name, texts)
    return table
