"""The results of a batch job: a table per query, made when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol
from weakref import finalize

import polars as pl
import pyarrow as pa
from pyarrow import compute as pc

from catchment import html
from catchment.engine.results import Results
from catchment.engine.stats import COUNTS
from catchment.errors import JobError, QueryError, did_you_mean, needing
from catchment.plotting import PlottedResults
from catchment.sources.aside_files import AsideFile
from catchment.sources.base import NeverRead
from catchment.sources.reading import UnreadRow
from catchment.spark.profile import Profile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_SHOWN = 3
"""Queries whose rows a notebook shows."""


def batch_counts(parts: Iterable[Mapping[str, int]], kept: int) -> dict[str, int]:
    """What all tasks counted, of whose bad rows so many were kept."""
    counts = dict.fromkeys(COUNTS, 0)
    for part in parts:
        for name, count in part.items():
            counts[name] = counts.get(name, 0) + count
    counts["accepted"] = counts["events"] - counts["late"] - counts["bad"] - counts["duplicates"]
    counts["aside_dropped"] = counts["bad"] - kept
    return counts


class HeldResults(Protocol):
    """Where the results of a batch job are held."""

    rows: int
    """Result rows of all queries together."""

    def table(self, name: str) -> pa.Table: ...

    def ordered(self, name: str) -> bool:
        """Whether the table's rows come in an order that the query asked for."""
        ...

    def frame(self, name: str) -> DataFrame: ...
    def release(self) -> None: ...


class ResultsInProcess:
    """Results that are in this process."""

    def __init__(self, parts: list[Results], spark: SparkSession | None) -> None:
        self._parts = parts
        self._spark = spark
        self.rows = sum(part.rows() for part in parts)

    def table(self, name: str) -> pa.Table:
        return pa.concat_tables([part[name] for part in self._parts])

    def ordered(self, name: str) -> bool:
        return self._parts[0].ordered(name)

    def frame(self, name: str) -> DataFrame:
        if self._spark is None:
            raise JobError(
                "these results were computed without Spark",
                given="spark=False",
                hint="leave spark=False out, or make a DataFrame of results[name]",
            )
        from catchment.spark.session import frame_of

        return frame_of(self._spark, self.table(name))

    def release(self) -> None:
        return


class RunResults(PlottedResults):
    """Query name to its results as an Arrow table, sorted by window and key.

    A table is collected when it is asked for: until then many results stay on Spark's executors.
    """

    def __init__(
        self, held: HeldResults, names: list[str], counts: dict[str, int], unread: list[UnreadRow]
    ) -> None:
        self._held = held
        self._names = names
        self.counts = counts
        """Events read, accepted, bad and duplicates; result rows; windows that are open at the end
        and the events in them; bad rows that were not kept."""
        self.unread = unread
        """Rows that could not be read, the first of each split: origin, place, reason."""
        self.aside: list[AsideFile] = []
        """Files of rows set aside, where the job has a folder for them."""
        self.never_read: list[NeverRead] = []
        """Rows that are in the source now and were not read, such as lines that came meanwhile."""
        self.profile: Profile | None = None
        """What the pass cost on Spark, part by part; None where it was computed without Spark."""
        self._forgotten = finalize(self, _release, held)
        self._forgotten.atexit = False  # Spark may have stopped, and takes everything with it

    def __getitem__(self, name: str) -> pa.Table:
        self._check(name)
        table = self._held.table(name)
        if self._held.ordered(name):
            return table
        keys = table.schema.names[: table.schema.get_field_index("window_start")]
        order = ["window_start", "window_end", *keys]
        order += ["window_index"] if "window_index" in table.schema.names else []
        sortable = [n for n in order if not pa.types.is_nested(table.schema.field(n).type)]
        return table.take(pc.sort_indices(table, [(n, "ascending") for n in sortable]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def rows(self) -> int:
        """Result rows of all queries together, without making their tables."""
        return self._held.rows

    def to_pandas(self, name: str) -> Any:
        """A query's results as a pandas frame."""
        table = self[name]
        with needing("a pandas frame"):
            import pandas  # noqa: F401  (Arrow imports it, and would say less)

            return table.to_pandas()

    def to_polars(self, name: str) -> pl.DataFrame:
        """A query's results as a Polars frame."""
        return pl.DataFrame(self[name])

    def _repr_html_(self) -> str:
        """For notebooks: what was counted, and the first rows of results that are here."""
        counts = {name: count for name, count in self.counts.items() if count}
        parts = [html.heading(f"{len(self):,} queries, {self.rows():,} rows")]
        parts.append(html.table([*counts], [[*counts.values()]]))
        if isinstance(self._held, ResultsInProcess):
            for name in self._names[:_SHOWN]:
                parts += [html.heading(name), html.arrow_table(self[name], 5)]
            if len(self) > _SHOWN:
                parts.append(html.preformatted(f"and {len(self) - _SHOWN:,} more queries"))
        else:
            parts.append(html.preformatted("\n".join(self._names[: html.ROWS])))
        return "".join(parts)

    def frame(self, name: str) -> DataFrame:
        """A query's results as a DataFrame of Spark, in no order.

        Many results stay on the executors, and are read from there. Spark keeps them as long as
        its session lasts, or until `unpersist`.
        """
        self._check(name)
        made = self._held.frame(name)
        self._forgotten.detach()  # nobody can tell how long the frame, and what is made of it, live
        return made

    def spark(self, name: str) -> DataFrame:
        """The same as `frame`."""
        return self.frame(name)

    def unpersist(self) -> None:
        """Lets go of what executors keep of these results, which are asked for no more."""
        self._forgotten.detach()
        self._held.release()

    def _check(self, name: str) -> None:
        if name not in self._names:
            raise QueryError("no such query", given=name, hint=did_you_mean(name, self._names))


def _release(held: HeldResults) -> None:
    with suppress(Exception):  # Spark may have stopped
        held.release()
