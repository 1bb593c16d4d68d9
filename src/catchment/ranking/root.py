"""The root's part in finding values: what nodes say of theirs goes in, and windows that have ended;
questions come out, and the values of windows of which all that is wanted is known.

A window is *due* once the frontier has passed its end. For each key of a due window, the searches
say between which values the wanted ranks lie (`search`), and which values may be among the most
frequent (`frequent`). What is in doubt there is asked for, of all windows, keys and functions of a
group at once: first some places of what is in doubt, where that is much, and all values that are
frequent enough; then all that is still in doubt. So there are two rounds at most, unless nodes are
given up or come back in between. Until then the group's frontier stays before the first window in
doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct, structs

from catchment.counting import wire
from catchment.counting.orders import Key, Lane, Orders, OrdersAfter
from catchment.engine import codec
from catchment.engine.bound import BoundPlan
from catchment.engine.columns import pack, unpack
from catchment.engine.complete import Complete
from catchment.engine.keys import KeyIndex
from catchment.engine.partials import SELECTION, key_columns
from catchment.engine.shapes.periodic import due
from catchment.operators.grouping import Grouping, runs
from catchment.operators.ragged import Array, Ints, Ragged, offsets_of, spans
from catchment.operators.sort import sort_within
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST, LATEST
from catchment.ranking.column import SearchedColumn
from catchment.ranking.counts import CountedColumn, counts_in, listed_values, told_values
from catchment.ranking.first_keys import ToldKeys
from catchment.ranking.frequent import DoubtfulCounts, most_frequent_of, rest_of, untrue
from catchment.ranking.groups import RankedGroup
from catchment.ranking.message import (
    CountAnswer,
    CountQuestion,
    CountSummary,
    RankNote,
    RankQuestion,
    RootWord,
    RunAnswer,
    RunQuestion,
    RunSummary,
    Summary,
    ValueAnswer,
    spread,
)
from catchment.ranking.ordered import TextCodes, to_values
from catchment.ranking.runs import RankedColumn, run_of
from catchment.ranking.search import (
    DoubtfulSpans,
    KnownPlaces,
    contradictory,
    in_order,
    search,
    unknown_yet,
)

_NOBODY = -1
"""Stands for the node of values that were sent completely, and so need no questions."""
_ROUNDS = 2
"""After so many questions, nothing can be in doubt of a node that answered all of them."""
_KEYS = 1000
"""Keys, and texts, that are remembered beyond twice those in use."""
_WORTH = 0.7
"""A first question must leave so little to send, in all, of what is in doubt."""

_OTHER_KIND = "it told of values of another kind than its columns hold"

Bounds = tuple[int, int]
"""Start and end of a window."""


class LackingWindow(NamedTuple):
    """A window whose values were not all found, because nodes did not answer or were not right."""

    group: int
    start: int
    end: int
    nodes: tuple[int, ...]


class Passed(Struct, frozen=True, array_like=True):
    """The nodes that were missing when the frontier passed windows that end in (after, by]."""

    after: int
    by: int
    missing: tuple[str, ...]


class LastQuestion(Struct, frozen=True, array_like=True):
    """The last question about a window: its number, which round it was, the nodes that could not be
    asked, and the number of rows it was about."""

    number: int
    round: int
    gone: tuple[int, ...]
    rows: int


class OpenQuestion(Struct, array_like=True):
    """A question that somebody has not answered yet, and since when it is asked."""

    question: RankQuestion
    waiting: set[int]
    since: int


class GroupRanksState(Struct, frozen=True, array_like=True):
    """What a `GroupRanks` must not lose."""

    done: int
    questioned: list[tuple[int, int, LastQuestion]]
    open: list[OpenQuestion]
    sources: list[Ints]
    keys: bytes
    sizes: dict[str, Ints]
    known: dict[str, list[Ints]]
    word: bytes
    held: bool
    next: int
    rest: dict[str, Ints]
    total: dict[str, Ints]
    texts: list[str]
    coded: list[str]
    every_until: int = EARLIEST


class RootRanksState(Struct, frozen=True, array_like=True):
    """What a `RootRanks` must not lose."""

    orders: OrdersAfter
    silent: set[int]
    aside: dict[int, str]
    reach: int
    passed: list[Passed]
    groups: dict[str, GroupRanksState]


class ToldRows(NamedTuple):
    """What is told of a column of rows, in whole or in part: `known` numbers rows from 0 on."""

    size: Ints
    known: KnownPlaces
    rest: Ints | None = None
    """Of counts: how often any other value occurs at most, and how many values there are."""
    total: Ints | None = None

    @classmethod
    def of_run(cls, size: Ints, sent: Ints, values: Ints) -> ToldRows:
        """Sorted values, of which those at so many places are told, spread evenly."""
        place = spread(np.zeros_like(size), np.maximum(size - 1, 0), sent)
        return cls(size, KnownPlaces(_repeated(sent), place, values))


def _repeated(lengths: Ints) -> Ints:
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


class Sources:
    """Rows of slices and keys whose values are known, in whole or in part."""

    def __init__(self) -> None:
        nothing = np.empty(0, np.int64)
        self.start = self.end = self.key = self.node = self.number = nothing
        self.wrong: Mask = np.empty(0, np.bool_)
        """Rows of nodes that have contradicted themselves: they count for nothing."""
        self.size: dict[str, Ints] = {}
        self.rest: dict[str, Ints] = {}
        """Of counts: how often a value that is not known occurs at most; and how many there are."""
        self.total: dict[str, Ints] = {}
        self._known: dict[str, list[KnownPlaces]] = {}

    def __len__(self) -> int:
        return len(self.start)

    def add(
        self,
        start: Ints,
        end: Ints,
        key: Ints,
        node: int,
        number: Ints,
        values: Mapping[str, ToldRows],
    ) -> None:
        """Takes rows in, and what is told of each column."""
        first, count = len(self), len(start)
        self.start = np.concatenate([self.start, start])
        self.end = np.concatenate([self.end, end])
        self.key = np.concatenate([self.key, key])
        self.node = np.concatenate([self.node, np.full(count, node, np.int64)])
        self.number = np.concatenate([self.number, number])
        self.wrong = np.concatenate([self.wrong, np.zeros(count, np.bool_)])
        nothing = np.zeros(count, np.int64)
        for field in {*self.size, *values}:
            column = values.get(field, ToldRows.of_run(nothing, nothing, nothing[:0]))
            before = self.size.get(field, np.zeros(first, np.int64))
            self.size[field] = np.concatenate([before, column.size])
            for held, more in ((self.rest, column.rest), (self.total, column.total)):
                if field in held or more is not None:
                    before = held.get(field, np.zeros(first, np.int64))
                    held[field] = np.concatenate([before, nothing if more is None else more])
            known = column.known._replace(source=first + column.known.source)
            self._known.setdefault(field, []).append(known)

    def tell(self, field: str, known: KnownPlaces) -> None:
        """Takes in what is known more."""
        self._known.setdefault(field, []).append(known)

    def known(self, field: str) -> KnownPlaces:
        """All that is known of a column, in order."""
        parts = self._known.get(field) or [KnownPlaces(*(np.empty(0, np.int64) for _ in range(3)))]
        if len(parts) > 1:
            joined = KnownPlaces(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
            self._known[field] = parts = [in_order(joined)]
        return parts[0]

    def rows_of(self, node: int, numbers: Ints) -> Ints:
        """The places of a node's rows, by their numbers; -1 for those that are not here."""
        mine = np.flatnonzero(self.node == node)
        if not len(mine):
            return np.full(len(numbers), -1, np.int64)
        order = mine[np.argsort(self.number[mine])]
        at = np.minimum(np.searchsorted(self.number[order], numbers), len(order) - 1)
        return np.where(self.number[order[at]] == numbers, order[at], -1)

    def keep(self, kept: Mask) -> None:
        """Forgets all other rows."""
        if kept.all():
            return
        place = np.cumsum(kept) - 1
        for name in ("start", "end", "key", "node", "number", "wrong"):
            setattr(self, name, getattr(self, name)[kept])
        for held in (self.size, self.rest, self.total):
            held |= {field: numbers[kept] for field, numbers in held.items()}
        for field in self._known:
            known = self.known(field)
            known = known.take(kept[known.source])
            self._known[field] = [known._replace(source=place[known.source])]

    def recoded(self, fields: Iterable[str], texts: TextCodes) -> TextCodes:
        """The texts that are still in use, under new numbers, if these are much fewer."""
        known = {field: self.known(field) for field in fields}
        used = np.unique(np.concatenate([some.place for some in known.values()]))
        if 2 * len(used) + _KEYS >= len(texts):
            return texts
        for field, some in known.items():
            places = np.searchsorted(used, some.place)
            self._known[field] = [in_order(some._replace(place=places))]
        return TextCodes(texts.listed[used].tolist())

    @property
    def nbytes(self) -> int:
        points = sum(len(known.value) for parts in self._known.values() for known in parts)
        return 48 * len(self) + 24 * points


class Cases(NamedTuple):
    """Keys of windows: the rows that each is made of."""

    window: Ints
    """For each case, the place of its window among those looked at."""
    key: Ints
    source: Ints
    """Rows, and the case that each is of; a row may be of several."""
    owner: Ints


class FoundValues(NamedTuple):
    """The values of windows by key, by the field they belong in: those that are wanted, and of
    sorted values others in between."""

    window: Ints
    key: Ints
    fields: dict[str, Ragged]


class GroupRanks:
    """The values of one group."""

    def __init__(self, name: str, ranked: RankedGroup) -> None:
        self.name, self.ranked = name, ranked
        self.keys = KeyIndex()
        self.texts = TextCodes()
        """The texts that integers stand for, in all columns of texts."""
        self.coded: set[str] = set()
        """These columns, also those of queries that have left."""
        self.sources = Sources()
        self.done = EARLIEST
        """Windows that end by it are given."""
        self.questioned: dict[Bounds, LastQuestion] = {}
        self.open: list[OpenQuestion] = []
        self.word = b""
        """What was said last; empty: nothing was."""
        self.held = False
        """Whether a node has ever kept values back: it waits to be told when to forget them."""
        self.next = 1
        self.every_until = EARLIEST
        """Of windows that begin before it all keys are asked for: not all sums are known that
        decide which come first."""
        self._whole: list[pa.Table] = []
        """Partials of keys that came whole, until somebody is asked about others."""
        self._whole_from = EARLIEST
        """Those of slices that begin before it are forgotten."""
        self.rows: list[pa.Table] = []
        """Partials of keys that came with what was told, since they were last taken."""
        self.windows: dict[Bounds, int] = {}
        """The windows that were found in this step, and their values by column."""
        self.found: dict[str, FoundValues] = {}

    def follow(self, ranked: RankedGroup) -> None:
        """Goes on by another version of the plan."""
        if ranked.wants != self.ranked.wants:
            # What is wanted now may be in doubt though all questions so far were answered.
            self.questioned = {
                bounds: structs.replace(asked, round=0) for bounds, asked in self.questioned.items()
            }
        before, after = self.ranked.first, ranked.first
        if before is not None and after is not None and before.score != after.score:
            self._weigh_whole()
            self.every_until = max(self.every_until, int(self.sources.end.max(initial=EARLIEST)))
        self.ranked = ranked

    @property
    def nbytes(self) -> int:
        """Bytes of what is known of values."""
        return self.sources.nbytes + sum(table.nbytes for table in self._whole)

    # -- what nodes say ----------------------------------------------------------------------------

    def absorb(self, table: pa.Table) -> pa.Table:
        """Takes values out of partials that came whole; gives the partials without them."""
        if self.ranked.first is not None:
            self._whole.append(table)
            return table
        values = {}
        for column in self.ranked.ranked:
            run = run_of(table, column.field)
            values[column.field] = ToldRows.of_run(run.lengths, run.lengths, run.values)
        for counted in self.ranked.counted:
            values[counted.field] = self._whole_counts(table, counted)
        for name in (name for column in self.ranked.columns for name in column.fields):
            place = table.schema.get_field_index(name)
            empty = pa.array([[]] * table.num_rows, table.schema.field(place).type)
            table = table.set_column(place, table.schema.field(place), empty)
        some = np.sum([rows.size for rows in values.values()], axis=0) > 0
        if some.any():
            keys = self.keys.codes_of(
                codec.ints(table, SELECTION), key_columns(table, self.ranked.bound.group.by)
            )
            start, end = codec.ints(table, "slice_start"), codec.ints(table, "slice_end")
            nobody = np.full(len(keys), -1, np.int64)
            self.sources.add(start, end, keys, _NOBODY, nobody, values)
        return table

    def _whole_counts(self, table: pa.Table, column: CountedColumn) -> ToldRows:
        """Counts that came whole: nothing is left of them."""
        found = counts_in(table, column)
        flat = found.values.values
        codes = flat
        if column.texts:
            self.coded.add(column.field)
            codes = self.texts.codes_of(flat.tolist())
        sums = np.append(0, np.cumsum(found.times))
        total = sums[found.values.offsets[1:]] - sums[found.values.offsets[:-1]]
        size = found.values.lengths
        known = KnownPlaces(_repeated(size), codes, found.times)
        return ToldRows(size, known, np.zeros_like(size), total)

    def _weigh_whole(self) -> None:
        """Adds the sums of keys whose partials came whole to what is known."""
        column, tables, self._whole = self.ranked.first, self._needed_whole(), []
        if column is None:
            return
        for table in tables:
            ends = codec.ints(table, "slice_end")
            if column.all:
                self.every_until = max(self.every_until, int(ends.max()))
                continue
            sliced = column.sliced(table)
            start, end, selection = (
                codec.ints(sliced.table, name) for name in ("slice_start", "slice_end", SELECTION)
            )
            self.every_until = max(self.every_until, int(end[~sliced.small].max(initial=EARLIEST)))
            keys = self.keys.codes_of(selection, [])
            nobody = np.full(len(keys), -1, np.int64)
            values = {column.field: self._whole_counts(sliced.table, column)}
            self.sources.add(start, end, keys, _NOBODY, nobody, values)

    def _codes(self, field: str, values: Ints, texts: list[str]) -> Ints:
        """Values of a column that were told, as integers that stay what they are."""
        if not texts:
            return values
        self.coded.add(field)
        return self.texts.codes_of(texts)[values]

    def _fits(self, part: RunSummary | CountSummary | RunAnswer | CountAnswer) -> bool:
        """Whether what is told of a column is of its kind, as far as the plan knows it."""
        if isinstance(part, RunSummary | RunAnswer):
            return all(part.field != column.field for column in self.ranked.counted)
        texts = bool(part.texts) if len(part.values) else None
        return all(part.field != column.field for column in self.ranked.ranked) and all(
            texts in (None, column.texts)
            for column in self.ranked.counted
            if part.field == column.field
        )

    def summarized(self, node: int, summary: Summary, too_late: int) -> str | None:
        """Takes in a summary of rows that a node holds; why it cannot be right, if it cannot."""
        self.held = True
        columns = unpack(summary.keys, self.ranked.keys) if len(self.ranked.keys) else None
        keys = self.keys.codes_of(
            summary.selection,
            [] if columns is None else [codec.whole(columns, n) for n in self.ranked.keys.names],
        )
        number = summary.first + np.arange(len(keys), dtype=np.int64)
        values = {}
        fits = [column for column in summary.columns if self._fits(column)]
        for column in fits:
            if isinstance(column, RunSummary):
                rows = ToldRows.of_run(column.size, column.sent, column.values)
            else:
                codes = self._codes(column.field, column.values, column.texts)
                counts = KnownPlaces(_repeated(column.sent), codes, column.times)
                rows = ToldRows(column.size, counts, column.rest, column.total)
            values[column.field] = rows
        before = len(self.sources)
        known = self.sources.rows_of(node, number) >= 0
        kept_rows = (summary.end > too_late) & ~known
        self.sources.add(summary.start, summary.end, keys, node, number, values)
        kept = np.ones(len(self.sources), np.bool_)
        # What ends by then comes too late, as its partials do; what is here already was told twice.
        kept[before:] = kept_rows
        self.sources.keep(kept)
        if len(fits) < len(summary.columns):
            return _OTHER_KIND
        for column in fits:
            if isinstance(column, CountSummary) and self.ranked.first is not None:
                row = np.repeat(np.arange(len(keys), dtype=np.int64), column.sent)
                told = ToldKeys(
                    listed_values(column.values, column.texts),
                    column.times,
                    summary.start[row],
                    summary.end[row],
                    summary.selection[row],
                    np.ones(len(row), np.bool_),
                )
                return self._rows_of(column.rows, told, kept_rows[row])
        return None

    def _rows_of(self, bodies: list[bytes], told: ToldKeys, wanted: Mask) -> str | None:
        """Takes the partials of keys that were told, those that are wanted, and all of these; why
        they cannot be right, if they cannot."""
        column, lacks = self.ranked.first, wanted.copy()
        assert column is not None
        found = []
        for body in bodies:
            try:
                place, rows, alike = column.read_rows(body, told)
            except ValueError as wrong:
                return f"it told of keys with {wrong}"
            some = wanted[place] & lacks[place]
            lacks[place] = False
            found.append(rows.filter(pa.array(some)))
            if not alike:
                ends = told.end[place[some]]
                self.every_until = max(self.every_until, int(ends.max(initial=EARLIEST)))
        if lacks.any():
            return "it told of keys without their rows"
        self.rows += found
        return None

    def answered(self, node: int, answer: ValueAnswer) -> str | None:
        """Takes in an answer; why it cannot be right, if it cannot."""
        for part in answer.columns:
            if not self._fits(part):
                return _OTHER_KIND
            source = self.sources.rows_of(node, part.row)
            why = (
                self._answered_run(part, source)
                if isinstance(part, RunAnswer)
                else self._answered_counts(part, source)
            )
            if why is not None:
                return why
        for question in self.open:
            if question.question.number <= answer.number:
                question.waiting.discard(node)
        return None

    def _answered_run(self, part: RunAnswer, source: Ints) -> str | None:
        here = source >= 0
        size = self.sources.size.get(part.field)
        if size is None or (part.last[here] >= size[source[here]]).any():
            return "it told of places that its rows do not have"
        place = spread(part.first, part.last, part.sent)
        known = KnownPlaces(np.repeat(source, part.sent), place, part.values)
        self.sources.tell(part.field, known.take(np.repeat(here, part.sent)))
        return None

    def _answered_counts(self, part: CountAnswer, source: Ints) -> str | None:
        here = source >= 0
        rest = self.sources.rest.get(part.field)
        if rest is None:
            return "it told of counts that it does not have"
        codes = self._codes(part.field, part.values, part.texts)
        known = KnownPlaces(np.repeat(source, part.sent), codes, part.times)
        known = known.take(np.repeat(here, part.sent))
        new = unknown_yet(self.sources.known(part.field), known)
        if (known.value[new] > rest[known.source[new]]).any():
            return "it told of values that occur more often than it had said of any"
        if self.ranked.first is not None and here.any():
            # Of each key of a row, its partials come once.
            owner = np.repeat(source, part.sent)
            there = owner >= 0
            fresh = np.zeros(len(owner), np.bool_)
            fresh[there] = new & (part.times[there] > 0)
            told = ToldKeys(
                listed_values(part.values, part.texts),
                part.times,
                self.sources.start[owner],
                self.sources.end[owner],
                self.keys.selections[self.sources.key[owner]],
                there,
            )
            why = self._rows_of(part.rows, told, fresh)
            if why is not None:
                return why
        self.sources.tell(part.field, known)
        np.minimum.at(rest, source[here], part.rest[here])
        return None

    # -- windows -----------------------------------------------------------------------------------

    def step(
        self, reach: int, gone: frozenset[int], now: int
    ) -> tuple[list[LackingWindow], dict[int, str]]:
        """Finds the values of windows that end by `reach`, as far as they are known.

        Gives windows whose values are found without some nodes, and nodes that were not right.
        """
        wrong: dict[int, str] = {}
        if reach <= self.done:
            return [], wrong
        if self.ranked.first is not None:
            if not (self.sources.node != _NOBODY).any():
                self._pass_whole(reach)
                return [], wrong
            self._weigh_whole()
        waiting = {q.question.number for q in self.open if q.waiting - gone}
        bounds = self._due(reach)
        held = [b for b in bounds if b in self.questioned and self.questioned[b].number in waiting]
        looked = [b for b in bounds if b not in held]
        lacking: list[LackingWindow] = []
        while looked:
            judged = _Judged(self, looked, gone)
            if judged.wrong:
                wrong |= judged.wrong
                self.sources.wrong |= np.isin(self.sources.node, [*judged.wrong])
                continue
            doubtful = judged.doubtful
            if doubtful:
                self._ask(judged, gone, now)
            held += doubtful
            lacking = judged.lacking
            self.windows = {b: n for n, b in enumerate(looked) if b not in {*doubtful}}
            self.found = judged.found
            break
        before = min((end for _, end in held), default=reach + 1) - 1
        self.windows = {b: n for b, n in self.windows.items() if b[1] <= before}
        lacking = [one for one in lacking if (one.start, one.end) in self.windows]
        self.done = max(self.done, min(before, reach))
        return lacking, wrong

    def _pass_whole(self, reach: int) -> None:
        """All keys of windows that end by a time are here: nobody is asked about them."""
        self.windows, self.found = {}, {}
        self.done = reach
        if self.needed > self._whole_from:
            self._whole_from = self.needed
            self._whole = self._needed_whole()

    def _needed_whole(self) -> list[pa.Table]:
        """The partials that came whole, of slices that a window may still need."""
        needed = self.needed
        tables = [
            table.filter(pa.array(codec.ints(table, "slice_start") >= needed))
            for table in self._whole
        ]
        return [table for table in tables if table.num_rows]

    def _due(self, reach: int) -> list[Bounds]:
        """The windows with rows that end after those given, and by a time."""
        series = self.ranked.asked_series
        kind, number = due(series, self.done, reach, np.unique(self.sources.start))
        starts, ends = series.start_of(kind, number), series.end_of(kind, number)
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        return sorted({*pairs}, key=lambda bounds: (bounds[1], bounds[0]))

    def _ask(self, judged: _Judged, gone: frozenset[int], now: int) -> None:
        """Asks about all that is in doubt, in one question."""
        number, self.next = self.next, self.next + 1
        question = judged.question(number)
        self.open.append(OpenQuestion(question, judged.waiting, now))
        for bounds in judged.doubtful:
            self.questioned[bounds] = LastQuestion(
                number, judged.rounds[bounds], tuple(sorted(gone)), judged.rows[bounds]
            )

    def forget(self, gone: frozenset[int]) -> None:
        """Forgets what no window needs any more, and questions that all have answered."""
        self.questioned = {b: asked for b, asked in self.questioned.items() if b[1] > self.done}
        needed = {asked.number for asked in self.questioned.values()}
        self.open = [q for q in self.open if q.question.number in needed and q.waiting - gone]
        self.sources.keep(self.sources.start >= self.needed)

    def given(self) -> None:
        """The windows of this step are given: forgets their values, and keys that are not used."""
        self.windows, self.found = {}, {}
        used, key = np.unique(self.sources.key, return_inverse=True)
        if 2 * len(used) + _KEYS < len(self.keys):
            self.keys = self.keys.only(used)
            self.sources.key = key.astype(np.int64)
        if len(self.texts) > _KEYS:
            self.texts = self.sources.recoded(self.coded, self.texts)

    @property
    def needed(self) -> int:
        """Slices that begin before it are in no window that is still to come."""
        return self.ranked.series.needed_from(self.done)

    def saying(self) -> bytes | None:
        """What there is to say to nodes, if it is new: nothing before one of them holds rows."""
        word = wire.dump(RootWord(self.needed, [q.question for q in self.open]))
        if word == self.word or not self.held:
            return None
        self.word = word
        return word

    def fill(self, windows: Complete, keys: KeyIndex) -> Complete:
        """Complete windows with their values."""
        made: dict[str, Ragged] = {}
        for column in self.ranked.columns:
            if windows.fields.keys() >= column.fields.keys():
                made |= self._values(column, windows, keys)
        return replace(windows, fields={**windows.fields, **made})

    def _values(
        self, column: SearchedColumn, windows: Complete, keys: KeyIndex
    ) -> dict[str, Ragged]:
        """The values of the rows of windows, of which several may share one."""
        at = rows = np.arange(len(windows))
        if windows.rows is not None:
            rows, at = np.unique(windows.rows, return_index=True)
        before = windows.fields[next(iter(column.fields))]
        assert isinstance(before, Ragged)
        count = len(before)
        found = self.found.get(column.field)
        lengths = np.zeros(count, np.int64)
        if found is None or not len(found.key) or not len(at):
            none = offsets_of(lengths)
            return {name: Ragged(none, np.empty(0, held)) for name, held in column.fields.items()}
        pairs = zip(windows.start[at].tolist(), windows.end[at].tolist(), strict=True)
        window = np.array([self.windows.get(bounds, -1) for bounds in pairs], np.int64)
        codes, place = np.unique(windows.key[at], return_inverse=True)
        key = self.keys.lookup(keys.selections[codes], keys.take(codes))[place]
        width = len(self.keys)
        known = found.window * width + found.key
        order = np.argsort(known)
        wanted = window * width + key
        where = np.minimum(np.searchsorted(known[order], wanted), len(order) - 1)
        row = order[where]
        here = known[row] == wanted
        # Rows come in the order of the fields.
        order = np.argsort(rows[here])
        made = {}
        for name, run in found.fields.items():
            lengths[rows[here]] = run.lengths[row[here]]
            made[name] = Ragged(offsets_of(lengths), run.take(row[here][order]).values)
        return made

    # -- state -------------------------------------------------------------------------------------

    def state(self) -> GroupRanksState:
        self._weigh_whole()
        some = self.sources
        codes = np.arange(len(self.keys), dtype=np.int64)
        columns: dict[str, pa.Array[Any]] = {}
        if len(codes):
            columns = dict(zip(self.ranked.keys.names, self.keys.take(codes), strict=True))
            columns[SELECTION] = pa.array(self.keys.selections)
        return GroupRanksState(
            self.done,
            [(*bounds, asked) for bounds, asked in self.questioned.items()],
            self.open,
            [some.start, some.end, some.key, some.node, some.number, some.wrong.astype(np.int64)],
            codec.to_ipc(pa.table(columns)) if columns else b"",
            some.size,
            {field: [*some.known(field)] for field in some.size},
            self.word,
            self.held,
            self.next,
            some.rest,
            some.total,
            self.texts.listed.tolist(),
            sorted(self.coded),
            self.every_until,
        )

    def restore(self, state: GroupRanksState) -> None:
        self.done, self.word, self.next = state.done, state.word, state.next
        self.held = state.held
        self.questioned = {(start, end): asked for start, end, asked in state.questioned}
        self.open = state.open
        some = self.sources
        some.start, some.end, some.key, some.node, some.number, wrong = state.sources
        some.wrong = wrong.astype(np.bool_)
        some.size, some.rest, some.total = state.sizes, state.rest, state.total
        self.texts, self.coded = TextCodes(state.texts), {*state.coded}
        self.every_until = state.every_until
        for field, parts in state.known.items():
            some.tell(field, KnownPlaces(*parts))
        if state.keys:
            table = codec.from_ipc(state.keys)
            columns = [codec.whole(table, name) for name in self.ranked.keys.names]
            self.keys.lookup(codec.ints(table, SELECTION), columns)


class ColumnDoubts(NamedTuple):
    """What is in doubt of one column, by window and key."""

    column: RankedColumn | CountedColumn
    window: Ints
    key: Ints
    start: Ints
    """Slices that begin from then on, and before the end, may be in doubt."""
    end: Ints
    doubts: DoubtfulSpans | DoubtfulCounts


class _Judged:
    """Windows of a group, as far as they are known: values found, and what is in doubt."""

    def __init__(self, group: GroupRanks, looked: list[Bounds], gone: frozenset[int]) -> None:
        self._group, self._looked = group, looked
        self.wrong: dict[int, str] = {}
        self.found: dict[str, FoundValues] = {}
        self._doubting: dict[int, set[int]] = {}
        """By window, the nodes that can be asked and are in doubt."""
        self._unseen: dict[int, set[int]] = {}
        """By window, the nodes among these that have frequent values which they have not told."""
        self._doubts: list[ColumnDoubts] = []
        sources = group.sources
        away = np.isin(sources.node, [*gone]) if gone else np.zeros(len(sources), np.bool_)
        window, source = self._rows()
        self.rows = dict(
            zip(looked, np.bincount(window, minlength=len(looked)).tolist(), strict=True)
        )
        self._lacking: dict[int, set[int]] = {}
        bad = sources.wrong[source]
        self._lacks(window[bad], sources.node[source[bad]])
        window, source = window[~bad], source[~bad]
        doubtful = np.zeros(len(looked), np.bool_)
        for column in group.ranked.ranked:
            doubtful |= self._search(column, window, source, away)
        for counted in group.ranked.counted:
            doubtful |= self._count(counted, window, source, away)
        if self.wrong:
            return
        self.doubtful = [looked[n] for n in np.flatnonzero(doubtful)]
        self.rounds = {b: self._round(b, gone) for b in self.doubtful}
        self._blame()

    @property
    def waiting(self) -> set[int]:
        """The nodes that are asked."""
        return set().union(*self._doubting.values())

    def _rows(self) -> tuple[Ints, Ints]:
        """The windows by place, and the rows of each."""
        sources = self._group.sources
        order = np.argsort(sources.start, kind="stable")
        starts = sources.start[order]
        low = np.searchsorted(starts, np.array([b[0] for b in self._looked], np.int64))
        high = np.searchsorted(starts, np.array([b[1] for b in self._looked], np.int64))
        index, window = runs(low, high)
        return window, order[index]

    def _lacks(self, windows: Ints, nodes: Ints) -> None:
        for window, node in {*zip(windows.tolist(), nodes.tolist(), strict=True)}:
            self._lacking.setdefault(window, set()).add(node)

    @property
    def lacking(self) -> list[LackingWindow]:
        """Windows that lack values of nodes."""
        id = self._group.ranked.bound.group.id
        return [
            LackingWindow(id, *self._looked[window], tuple(sorted(nodes)))
            for window, nodes in sorted(self._lacking.items())
        ]

    def _cases(self, field: str, window: Ints, source: Ints) -> Cases | None:
        """Keys of windows that have values of a column; None: there are none."""
        sources, width = self._group.sources, len(self._group.keys)
        size = sources.size.get(field)
        if size is None or not len(source):
            return None
        filled = size[source] > 0
        window, source = window[filled], source[filled]
        if not len(source):
            return None
        case, owner = np.unique(window * width + sources.key[source], return_inverse=True)
        return Cases(*np.divmod(case, width), source, owner)

    def _blames(self, liars: Ints, why: str) -> bool:
        """Whether some of the rows are of nodes that were not right, which was not known."""
        sources = self._group.sources
        nodes = np.unique(sources.node[liars[~sources.wrong[liars]]])
        self.wrong |= dict.fromkeys(nodes[nodes != _NOBODY].tolist(), why)
        return bool(self.wrong)

    def _points(self, cases: Cases, known: KnownPlaces) -> KnownPlaces:
        """What is known of each row, for each case that the row is in."""
        ends = np.searchsorted(known.source, np.arange(len(self._group.sources) + 1))
        counts = ends[cases.source + 1] - ends[cases.source]
        index = spans(ends[cases.source], counts)
        return KnownPlaces(_repeated(counts), known.place[index], known.value[index])

    def _doubt(self, windows: Ints, nodes: Ints, into: dict[int, set[int]]) -> None:
        for n, node in {*zip(windows.tolist(), nodes.tolist(), strict=True)}:
            into.setdefault(n, set()).add(node)

    def _search(self, column: RankedColumn, window: Ints, source: Ints, away: Mask) -> Mask:
        """Looks for the wanted ranks of all windows and keys; gives the windows in doubt."""
        sources = self._group.sources
        doubtful = np.zeros(len(self._looked), np.bool_)
        cases = self._cases(column.field, window, source)
        if cases is None:
            return doubtful
        of_window, of_key, source, owner = cases
        known = sources.known(column.field)
        if self._blames(contradictory(known), "what it said of its values contradicts itself"):
            return doubtful
        points = self._points(cases, known)
        size, counts = sources.size[column.field], np.bincount(points.source, minlength=len(source))
        totals = np.bincount(owner, size[source], len(of_key)).astype(np.int64)
        whole = np.bincount(owner, counts, len(of_key)).astype(np.int64) == totals
        run = self._whole(points, owner, whole)
        parts = [(of_window[whole], of_key[whole], run)]
        some = np.flatnonzero(~whole)
        if len(some):
            place = np.cumsum(~whole) - 1
            mine = ~whole[owner]
            number = np.cumsum(mine) - 1
            chosen = mine[points.source]
            points = points.take(chosen)
            points = points._replace(source=number[points.source])
            source, owner = source[mine], place[owner[mine]]
            row, rank = column.ranks(totals[some])
            result = search(points, owner, away[source], row, rank)
            lost = np.unique(row[(result.unknown > 0) & (result.questioned == 0)])
            held = np.isin(owner, lost) & away[source]
            part = size[source] > np.bincount(points.source, minlength=len(source))
            held &= part
            self._lacks(of_window[some[owner[held]]], sources.node[source[held]])
            at = some[result.doubts.case]
            doubtful[of_window[at]] = True
            asked = result.doubtful
            self._doubt(of_window[some[owner[asked]]], sources.node[source[asked]], self._doubting)
            bounds = np.array(self._looked, np.int64).reshape(-1, 2)[of_window[at]]
            self._doubts.append(
                ColumnDoubts(
                    column, of_window[at], of_key[at], bounds[:, 0], bounds[:, 1], result.doubts
                )
            )
            filled_in = Ragged(offsets_of(totals[some]), np.repeat(result.value, _steps(row, rank)))
            parts.append((of_window[some], of_key[some], filled_in))
        self.found[column.field] = _joined(column, parts)
        return doubtful

    def _count(self, column: CountedColumn, window: Ints, source: Ints, away: Mask) -> Mask:
        """Looks for the most frequent values of windows and keys; gives the windows in doubt."""
        group, sources = self._group, self._group.sources
        doubtful = np.zeros(len(self._looked), np.bool_)
        cases = self._cases(column.field, window, source)
        if cases is None:
            return doubtful
        of_window, of_key, source, owner = cases
        known = sources.known(column.field)
        size, total, rest = (
            held[column.field] for held in (sources.size, sources.total, sources.rest)
        )
        if self._blames(
            untrue(known, size, total, rest), "what it said of its counts contradicts itself"
        ):
            return doubtful
        points = self._points(cases, known)
        order = ranks = np.empty(0, np.int64)
        if column.texts:
            ranks = group.texts.ranks
            order = np.argsort(ranks)
            points = points._replace(place=ranks[points.place])
        rest = rest_of(known, size, total, rest)[source]
        begins = np.array([begin for begin, _ in self._looked], np.int64)[of_window]
        result = most_frequent_of(
            points,
            owner,
            rest,
            away[source],
            column.wanted,
            ties=column.ties,
            whole=begins < group.every_until,
        )
        lost = result.unknown & ~result.questioned
        held = lost[owner] & away[source] & (rest > 0)
        self._lacks(of_window[owner[held]], sources.node[source[held]])
        doubtful[of_window[result.questioned]] = True
        for some, into in ((result.doubtful, self._doubting), (result.unseen, self._unseen)):
            self._doubt(of_window[owner[some]], sources.node[source[some]], into)
        at, doubts, values = result.doubts.case, result.doubts, result.values
        found = to_values(values.values, column.floats)
        if column.texts:
            found = group.texts.listed[order[values.values]]
            others = doubts.others
            doubts = doubts._replace(others=Ragged(others.offsets, order[others.values]))
        # What is known of slices since an earlier window is not asked for again.
        start, end = np.full(len(of_key), LATEST, np.int64), np.full(len(of_key), EARLIEST)
        asked = result.doubtful
        np.minimum.at(start, owner[asked], sources.start[source[asked]])
        np.maximum.at(end, owner[asked], sources.start[source[asked]] + 1)
        self._doubts.append(
            ColumnDoubts(column, of_window[at], of_key[at], start[at], end[at], doubts)
        )
        offsets = values.offsets
        fields = {column.value: Ragged(offsets, found), column.times: Ragged(offsets, result.times)}
        self.found[column.field] = FoundValues(of_window, of_key, fields)
        return doubtful

    def _whole(self, points: KnownPlaces, owner: Ints, whole: Mask) -> Ragged:
        """The values of cases that are known whole."""
        place = np.cumsum(whole) - 1
        of = owner[points.source]
        mine = whole[of]
        if not whole.any():
            return Ragged(np.zeros(1, np.int64), np.empty(0, np.int64))
        return sort_within(points.value[mine], Grouping(place[of[mine]], int(whole.sum())))

    def _round(self, bounds: Bounds, gone: frozenset[int]) -> int:
        """How many questions there have been about a window, with the one that follows."""
        asked = self._group.questioned.get(bounds)
        alike = asked is not None and (asked.gone, asked.rows) == (
            tuple(sorted(gone)),
            self.rows[bounds],
        )
        return asked.round + 1 if asked is not None and alike else 1

    def _blame(self) -> None:
        """After one question nobody who answered can have values that are frequent enough and were
        not told; after two, nobody can be in doubt. Such a node left some out."""
        why = "it left out values that it was asked for"
        for n, bounds in enumerate(self._looked):
            following = self.rounds.get(bounds, 0)
            if following > _ROUNDS:
                self.wrong |= dict.fromkeys(self._doubting.get(n, ()), why)
            elif following > 1:
                self.wrong |= dict.fromkeys(self._unseen.get(n, ()), why)

    def question(self, number: int) -> RankQuestion:
        """All that is in doubt, as one question."""
        group, schema = self._group, self._group.ranked.keys
        parts = [part for part in self._doubts if len(part.window)]
        codes = np.unique(np.concatenate([part.key for part in parts]))
        columns = group.keys.take(codes)
        return RankQuestion(
            number,
            group.keys.selections[codes],
            pack(pa.Table.from_arrays(columns, schema=schema)) if len(schema) else b"",
            [self._part(part, np.searchsorted(codes, part.key)) for part in parts],
        )

    def _part(self, part: ColumnDoubts, key: Ints) -> RunQuestion | CountQuestion:
        """What is in doubt of one column."""
        where = part.column.field, part.start, part.end, key
        doubts = part.doubts
        if isinstance(doubts, DoubtfulCounts):
            others: Array = doubts.others.values
            if isinstance(part.column, CountedColumn) and part.column.texts:
                others = self._group.texts.listed[others]
            lengths = doubts.others.lengths
            return CountQuestion(*where, doubts.above, doubts.upto, lengths, *told_values(others))
        rounds = np.array([self.rounds.get(b, 0) for b in self._looked], np.int64)[part.window]
        places, sources = doubts.places, np.maximum(doubts.sources, 1)
        most = np.ceil(np.sqrt(2 * places / sources)).astype(np.int64) + 2
        cost = sources * most + 2 * places / most
        most = np.where((rounds < _ROUNDS) & (cost < _WORTH * places), most, 0)
        return RunQuestion(*where, doubts.low, doubts.open.astype(np.int64), doubts.high, most)


def _steps(row: Ints, rank: Ints) -> Ints:
    """How many places there are from the rank before to each rank, of the same row."""
    first = np.ones(len(row), np.bool_)
    first[1:] = row[1:] != row[:-1]
    before = np.empty_like(rank)
    before[1:] = rank[:-1]
    before[first] = -1
    return rank - before


def _joined(column: RankedColumn, parts: list[tuple[Ints, Ints, Ragged]]) -> FoundValues:
    windows, keys, found = zip(*parts, strict=True)
    lengths = np.concatenate([run.lengths for run in found])
    values = to_values(np.concatenate([run.values for run in found]), column.floats)
    run = Ragged(offsets_of(lengths), values)
    return FoundValues(np.concatenate(windows), np.concatenate(keys), {column.field: run})


class RootRanks:
    """The groups whose values are asked for.

    What it asks and what it finds follow from what it has taken, and from its steps, alone.
    """

    def __init__(self, bound: BoundPlan, groups: Mapping[int, str], saved: bytes = b"") -> None:
        self.groups: dict[str, GroupRanks] = {}
        self._names: dict[int, str] = {}
        self.orders = Orders()
        self.silent: set[int] = set()
        """Nodes that have not answered for too long."""
        self.aside: dict[int, str] = {}
        """Nodes that were not right, and why, the last time each."""
        self.lacking: list[LackingWindow] = []
        """Windows of the last step that lack values of nodes."""
        self._reach = EARLIEST
        self.passed: list[Passed] = []
        """Who was missing when windows were over that are not given yet, or are given now."""
        self.switch(bound, groups)
        if saved:
            self._restore(saved)

    def switch(self, bound: BoundPlan, groups: Mapping[int, str]) -> None:
        """Goes on by another version of the plan."""
        before, self.groups, self._names = self.groups, {}, {}
        for id, name in groups.items():
            ranked = RankedGroup(bound, id)
            if ranked.columns:
                group = self.groups[name] = before.get(name) or GroupRanks(name, ranked)
                group.follow(ranked)
                self._names[id] = name
        self.orders.keep(self.groups)

    def absorb(self, tables: Mapping[int, pa.Table]) -> dict[int, pa.Table]:
        """Takes values out of partials; gives all partials, those without them."""
        return {
            id: self.groups[self._names[id]].absorb(table)
            if id in self._names and table.num_rows
            else table
            for id, table in tables.items()
        }

    def take(self, notes: pa.Table, too_late: int) -> None:
        """Takes what nodes say; slices that end by `too_late` are left out."""
        for body in notes.column("note"):
            note = wire.load(RankNote, body.as_py())
            for summary in note.summaries:
                if summary.group in self.groups:
                    why = self.groups[summary.group].summarized(note.node, summary, too_late)
                    if why is not None:
                        self._put_aside(summary.group, note.node, why)
            for answer in note.answers:
                self.silent.discard(note.node)
                if answer.group in self.groups:
                    why = self.groups[answer.group].answered(note.node, answer)
                    if why is not None:
                        self._put_aside(answer.group, note.node, why)

    def _put_aside(self, name: str, node: int, why: str) -> None:
        self.aside[node] = why
        sources = self.groups[name].sources
        sources.wrong |= sources.node == node
        for question in self.groups[name].open:
            question.waiting.discard(node)

    def overdue(self, now: int, timeout: int | None) -> set[int]:
        """Nodes that have not answered a question for too long, and are still waited for."""
        if timeout is None:
            return set()
        late = (q for group in self.groups.values() for q in group.open if now - q.since > timeout)
        return {node for question in late for node in question.waiting} - self.silent

    def over(self, reach: int, complete_until: int, missing: tuple[str, ...]) -> None:
        """Notes that the frontier has passed windows that end by `reach`, and who was missing then:
        these windows may be given later, when the missing nodes are back."""
        self.passed = [one for one in self.passed if any(d < one.by for d in self.held.values())]
        if missing and complete_until < reach > self._reach:
            self.passed.append(Passed(max(self._reach, complete_until), reach, missing))
        self._reach = max(self._reach, reach)

    def step(
        self, reach: int, nodes: Iterable[int], away: Iterable[int], now: int, timeout: int | None
    ) -> None:
        """Finds what can be found of windows that end by `reach`, and asks about the others.

        Of the nodes that read events, those in `away` are given up.
        """
        self.silent |= self.overdue(now, timeout)
        self.lacking = []
        for name, group in self.groups.items():
            there = {*np.unique(group.sources.node).tolist()} - {_NOBODY}
            gone = frozenset((there - {*nodes}) | {*away} | self.silent)
            lacking, wrong = group.step(reach, gone, now)
            self.lacking += lacking
            self.aside |= wrong
            group.forget(gone)
            word = group.saying()
            if word is not None:
                self.orders.say([(Lane(name, Key(0, ())), word)], over=False)

    def rows(self) -> Iterator[tuple[int, pa.Table]]:
        """Takes the partials of keys that came with what nodes said, by the id of their group."""
        for id, name in self._names.items():
            rows, self.groups[name].rows = self.groups[name].rows, []
            yield from ((id, table) for table in rows if table.num_rows)

    def given(self) -> None:
        """The windows of a step are given."""
        for group in self.groups.values():
            group.given()

    @property
    def held(self) -> dict[int, int]:
        """By group: the time up to which its windows can be given."""
        return {id: self.groups[name].done for id, name in self._names.items()}

    def fill(self, id: int, windows: Complete, keys: KeyIndex) -> Complete:
        """Complete windows of a group, with their values."""
        name = self._names.get(id)
        return windows if name is None else self.groups[name].fill(windows, keys)

    @property
    def nbytes(self) -> int:
        """Bytes of what is known of values."""
        return sum(group.nbytes for group in self.groups.values())

    def to_bytes(self) -> bytes:
        groups = {name: group.state() for name, group in self.groups.items()}
        orders = self.orders.after(0)
        return wire.dump(
            RootRanksState(orders, self.silent, self.aside, self._reach, self.passed, groups)
        )

    def _restore(self, saved: bytes) -> None:
        state = wire.load(RootRanksState, saved)
        self.orders = Orders(state.orders)
        self.orders.keep(self.groups)
        self.silent, self.aside = state.silent, state.aside
        self._reach, self.passed = state.reach, state.passed
        for name, group in state.groups.items():
            if name in self.groups:
                self.groups[name].restore(group)
