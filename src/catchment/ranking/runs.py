"""Sorted values of a group: which ranks are wanted, and what a node tells of the runs it holds."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from catchment.model.plan import Group
from catchment.operators import OperatorRef
from catchment.operators.grouping import runs
from catchment.operators.ragged import Array, Ints, Ragged, offsets_of
from catchment.planner.ranked import value_wants
from catchment.ranking.column import AskedRow, SearchedColumn, bytes_each, list_column, rows_of
from catchment.ranking.message import CountQuestion, RunAnswer, RunQuestion, RunSummary, spread
from catchment.ranking.ordered import to_ints

_ROUNDS = 3.0
"""A summary, answers, and values in doubt, each about as long as the other (`places_in`)."""


class RankedColumn(SearchedColumn):
    """Sorted numbers of a group; a row is held as integers in their order."""

    nothing: ClassVar[Any] = np.empty(0, np.int64)

    def __init__(self, group: Group, ref: OperatorRef, floats: bool) -> None:
        self.field = f"{ref.id}.run"
        self.fields = {self.field: np.float64 if floats else np.int64}
        self.floats = floats
        wants = [*value_wants(group, ref)]
        self.all = not all(by_rank for _, _, by_rank in wants)
        self._wants = [want[:2] for want in wants if want[2]]

    @property
    def texts(self) -> list[str]:
        """The aggregates that want values of some ranks."""
        return [aggregate.text for _, aggregate in self._wants]

    @property
    def searches(self) -> int:
        """How many ranks are wanted that may lie apart."""
        one = np.array([1 << 20], np.int64)
        found = np.concatenate([one, *self._ranks(one)])
        return max(len(np.unique(found // 2)) - 1, 1)

    def _ranks(self, counts: Ints) -> list[Ints]:
        found: list[Ints] = []
        for function, aggregate in self._wants:
            found += function.ranks(aggregate, counts) or ()
        return found

    def ranks(self, counts: Ints) -> tuple[Ints, Ints]:
        """Of windows that have so many values each: a window, and a rank that is wanted of it.

        The first and the last are always wanted: what is between two of them is filled in.
        """
        if self.all:
            rank, row = runs(np.zeros_like(counts), counts)
            return row, rank
        found = [np.zeros_like(counts), counts - 1, *self._ranks(counts)]
        width = int(counts.max(initial=0)) + 1
        row = np.tile(np.arange(len(counts), dtype=np.int64), len(found))
        row, rank = np.divmod(np.unique(row * width + np.concatenate(found)), width)
        return row, rank

    def sizes(self, table: pa.Table) -> Ints:
        return run_of(table, self.field).lengths

    def costs(self, table: pa.Table, searches: int, overlaps: int) -> tuple[Array, Array]:
        run = run_of(table, self.field)
        places = places_in(run.lengths, searches)
        told = run.values[np.repeat(run.offsets[:-1], places) + _evenly(run, places)]
        whole: Array = run.lengths * bytes_each(run.values)
        asked: Array = _ROUNDS * places * bytes_each(told)
        return whole, asked

    def held(self, table: pa.Table) -> list[Any]:
        return rows_of(run_of(table, self.field))

    def lists(self, rows: list[Any]) -> dict[str, pa.Array[Any]]:
        offsets = offsets_of(np.array([len(run) for run in rows], np.int64))
        flat = np.concatenate([np.empty(0, np.int64), *rows])
        made = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(flat))
        return {self.field: made}

    def summary(self, table: pa.Table, searches: int) -> RunSummary:
        run = run_of(table, self.field)
        some = places_in(run.lengths, searches)
        values = run.values[np.repeat(run.offsets[:-1], some) + _evenly(run, some)]
        return RunSummary(self.field, run.lengths, some, values)

    def answer(self, question: RunQuestion | CountQuestion, rows: list[AskedRow]) -> RunAnswer:
        assert isinstance(question, RunQuestion)
        parts = []
        for row in rows:
            at = row.place
            low = None if question.open[at] else int(question.low[at])
            high, most = int(question.high[at]), int(question.most[at])
            parts.append((row.number, *_part(row.values, low, high, most)))
        *places, values = zip(*parts, strict=True)
        numbers, first, last, sent = (np.array(each, np.int64) for each in places)
        return RunAnswer(self.field, numbers, first, last, sent, np.concatenate(values))


def run_of(table: pa.Table, field: str) -> Ragged:
    """A column of sorted numbers, as integers in their order."""
    offsets, flat = list_column(table, field)
    return Ragged(offsets, to_ints(flat.to_numpy(zero_copy_only=False)))


def places_in(sizes: Ints, searches: int) -> Ints:
    """How many places of each row a summary tells.

    Of n values, so many that a summary, the answers to one question and the values in doubt after
    it are about as long as each other: the cube root of 4 n, times a power of the ranks in search.
    """
    wanted = np.ceil(np.cbrt(4.0 * searches * searches * sizes)).astype(np.int64)
    places: Ints = np.clip(wanted, np.minimum(sizes, 2), sizes)
    return places


def _evenly(run: Ragged, places: Ints) -> Ints:
    return spread(np.zeros_like(places), np.maximum(run.lengths - 1, 0), places)


def _part(run: Ints, low: int | None, high: int, most: int) -> tuple[int, int, int, Ints]:
    """Of the values between two bounds and one on either side: first and last place, how many are
    told, and these."""
    first = 0 if low is None else max(int(np.searchsorted(run, low, side="right")) - 1, 0)
    last = min(int(np.searchsorted(run, high)), len(run) - 1)
    last = max(last, first)
    wide = last - first + 1
    told = wide if not most or wide <= most else max(most, 2)
    at = spread(np.array([first]), np.array([last]), np.array([told]))
    return first, last, told, run[at]
