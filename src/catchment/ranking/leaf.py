"""A local node's part in finding values: it holds them, and says what some of them are.

Rows of slices and keys with their values go in, and the root's questions; summaries and
answers come out. What the root does not need any more is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct

from catchment.counting import wire
from catchment.counting.orders import HeardWords
from catchment.engine import codec
from catchment.engine.bound import BoundPlan
from catchment.engine.columns import pack, unpack
from catchment.engine.keys import KeyIndex
from catchment.engine.partials import SELECTION, key_columns
from catchment.model.capacity import Capacity
from catchment.operators.ragged import Ints
from catchment.planner.edges import EARLIEST
from catchment.ranking.column import AskedRow
from catchment.ranking.first_keys import CENSUS
from catchment.ranking.groups import RankedGroup
from catchment.ranking.message import (
    VALUES,
    RankNote,
    RankQuestion,
    RootWord,
    Summary,
    ValueAnswer,
)

HELD = 8 * VALUES
"""Bytes of values that a node holds for questions; what is more is sent at once."""
_ROW = 256
"""Bytes that a row takes besides its values, about."""
NUMBER = "#number"


class HeldRow(NamedTuple):
    """The values of a slice and key, by column, under a number of the node's own."""

    start: int
    number: int
    values: tuple[Any, ...]
    """As the columns hold them (`column.SearchedColumn`)."""

    @property
    def nbytes(self) -> int:
        return _ROW + sum(int(values.nbytes) for values in self.values)


class LeafRanksState(Struct, frozen=True, array_like=True):
    """What a `LeafRanks` must not lose."""

    heard: int
    pending: bool
    next: int
    answered: dict[str, int]
    words: dict[str, bytes]
    rows: dict[str, bytes]
    needed: dict[str, int]


class HeldGroup:
    """The rows of a group that are held, by key."""

    def __init__(self, ranked: RankedGroup) -> None:
        self.ranked = ranked
        self.keys = KeyIndex()
        self.rows: dict[int, list[HeldRow]] = {}
        self.nbytes = 0
        self.needed = EARLIEST
        """Slices that begin before it are not asked about: the root has said so."""

    def add(self, table: pa.Table, numbers: Ints) -> None:
        """Takes rows in."""
        keys = key_columns(table, self.ranked.by)
        codes = self.keys.codes_of(codec.ints(table, SELECTION), keys)
        starts = codec.ints(table, "slice_start").tolist()
        columns = [column.held(table) for column in self.ranked.columns]
        for row, (code, start) in enumerate(zip(codes.tolist(), starts, strict=True)):
            held = HeldRow(start, int(numbers[row]), tuple(values[row] for values in columns))
            self.rows.setdefault(code, []).append(held)
            self.nbytes += held.nbytes

    def over(self, frontier: int) -> bool:
        """Whether rows are held whose windows have ended by a time: the root decides on them."""
        needed = self.ranked.series.needed_from(frontier)
        return any(row.start < needed for rows in self.rows.values() for row in rows)

    def forget(self, needed: int) -> None:
        """Forgets slices that begin before a time, for good."""
        self.needed = max(self.needed, needed)
        if not any(row.start < needed for rows in self.rows.values() for row in rows):
            return
        kept = {
            code: left
            for code, rows in self.rows.items()
            if (left := [row for row in rows if row.start >= needed])
        }
        codes = np.array([*kept], np.int64)
        self.keys = self.keys.only(codes) if len(codes) else KeyIndex()
        self.rows = dict(enumerate(kept.values()))
        self.nbytes = sum(row.nbytes for rows in self.rows.values() for row in rows)

    def table(self) -> pa.Table:
        """The rows as a table, with their numbers; `add` takes it back."""
        pairs = [(code, row) for code, rows in self.rows.items() for row in rows]
        codes = np.array([code for code, _ in pairs], np.int64)
        columns: dict[str, Any] = {
            SELECTION: pa.array(self.keys.selections[codes]),
            **dict(zip(self.ranked.keys.names, self.keys.take(codes), strict=True)),
            "slice_start": pa.array([row.start for _, row in pairs], pa.int64()),
            NUMBER: pa.array([row.number for _, row in pairs], pa.int64()),
        }
        for n, column in enumerate(self.ranked.columns):
            columns |= column.lists([row.values[n] for _, row in pairs])
        return pa.table(columns)


class LeafRanks(HeardWords):
    """Holds the values of groups that are asked about.

    All it does follows from what it is told: `feed`, `hear`, `switch` and `notes`, in their order.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.held: dict[str, HeldGroup] = {}
        self._next = 0
        """The number of the next row."""
        self._answered: dict[str, int] = {}
        self._summaries: list[Summary] = []

    def switch(self, bound: BoundPlan, groups: dict[str, int]) -> None:
        """Goes on by another version of the plan."""
        before, self.held = self.held, {}
        for name, id in groups.items():
            ranked = RankedGroup(bound, id)
            if ranked.columns:
                held = self.held[name] = before.get(name) or HeldGroup(ranked)
                known = [column.field for column in held.ranked.columns]
                if known == [column.field for column in ranked.columns]:
                    held.ranked = ranked
                else:
                    self.held[name] = _widened(held, ranked)

    @property
    def speaks(self) -> bool:
        """Whether there may be something to say."""
        return bool(self._summaries) or self.pending

    @property
    def nbytes(self) -> int:
        return sum(held.nbytes for held in self.held.values())

    @property
    def room(self) -> int:
        """How many bytes more may be held."""
        return max(HELD - self.nbytes, 0)

    @property
    def empty(self) -> bool:
        """Whether nothing is held."""
        return not any(held.rows for held in self.held.values())

    def capacities(self) -> list[Capacity]:
        then = "values climb with their slices"
        return [Capacity("values held for questions", self.nbytes, HELD, "bytes", then)]

    def feed(self, events: dict[str, pa.Table], frontier: int, ended: bool) -> None:
        """Takes rows that are not sent.

        Those of a group that has left since then, met again after a restart, have had numbers too.
        """
        for name, table in events.items():
            if name in self.held:
                self._hold(name, self.held[name], table)
            else:
                self._next += table.num_rows

    def _hold(self, name: str, held: HeldGroup, table: pa.Table) -> None:
        ranked, rows, first = held.ranked, table.num_rows, self._next
        self._next += rows
        held.add(table, np.arange(first, first + rows, dtype=np.int64))
        start, end, selection = (
            codec.ints(table, column) for column in ("slice_start", "slice_end", SELECTION)
        )
        keys = b""
        if len(ranked.keys):
            keys = pack(table.select(ranked.keys.names).cast(ranked.keys).combine_chunks())
        events = codec.ints(table, CENSUS) if CENSUS in table.schema.names else start[:0]
        columns = [column.summary(table, ranked.searches) for column in ranked.columns]
        self._summaries.append(Summary(name, first, start, end, selection, keys, columns, events))

    def notes(self) -> pa.Table | None:
        """What there is to say, as a section of a message."""
        summaries, self._summaries, self.pending = self._summaries, [], False
        answers = [*self._answers()]
        if not summaries and not answers:
            return None
        return pa.table({"note": [wire.dump(RankNote(self.number, summaries, answers))]})

    def _answers(self) -> Iterator[ValueAnswer]:
        """Does what the root said; what it said of groups of a newer plan stays until then."""
        for name, told in self.taken(self.held):
            word, held = wire.load(RootWord, told), self.held[name]
            for question in word.questions:
                if question.number > self._answered.get(name, 0):
                    self._answered[name] = question.number
                    answer = answered(name, question, held)
                    if answer is not None:
                        yield answer
            held.forget(word.needed)

    def to_bytes(self) -> bytes:
        rows = {name: codec.to_ipc(held.table()) for name, held in self.held.items() if held.rows}
        needed = {name: held.needed for name, held in self.held.items()}
        return wire.dump(
            LeafRanksState(
                self.heard, self.pending, self._next, self._answered, self.words, rows, needed
            )
        )

    def load(self, data: bytes) -> None:
        """Goes on from saved state."""
        found = wire.load(LeafRanksState, data)
        self.heard, self.pending, self._next = found.heard, found.pending, found.next
        self._answered, self.words = found.answered, found.words
        for name, needed in found.needed.items():
            if name in self.held:
                self.held[name].needed = needed
        for name, body in found.rows.items():
            if name in self.held:
                table = codec.from_ipc(body)
                self.held[name].add(table, codec.ints(table, NUMBER))


def _widened(held: HeldGroup, ranked: RankedGroup) -> HeldGroup:
    """The same rows by a plan that has other columns of values: new ones have none in them."""
    made = HeldGroup(ranked)
    made.keys, made.needed = held.keys, held.needed
    places = {column.field: n for n, column in enumerate(held.ranked.columns)}
    for code, rows in held.rows.items():
        made.rows[code] = [
            HeldRow(
                row.start,
                row.number,
                tuple(
                    row.values[places[column.field]] if column.field in places else column.nothing
                    for column in ranked.columns
                ),
            )
            for row in rows
        ]
    made.nbytes = sum(row.nbytes for rows in made.rows.values() for row in rows)
    return made


def answered(name: str, question: RankQuestion, held: HeldGroup) -> ValueAnswer | None:
    """What rows are held that a question is about; None: there are no such rows."""
    keys = unpack(question.keys, held.ranked.keys) if len(held.ranked.keys) else None
    columns = [] if keys is None else [codec.whole(keys, name) for name in keys.schema.names]
    codes = held.keys.lookup(question.selection, columns)
    places = {column.field: n for n, column in enumerate(held.ranked.columns)}
    answers = []
    for part in question.columns:
        n = places.get(part.field)
        if n is None:
            continue
        asks = zip(part.start.tolist(), part.end.tolist(), codes[part.key].tolist(), strict=True)
        rows = [
            AskedRow(row.number, row.values[n], place)
            for place, (start, end, code) in enumerate(asks)
            for row in held.rows.get(code, ())
            if start <= row.start < end and len(row.values[n])
        ]
        if rows:
            answers.append(held.ranked.columns[n].answer(part, rows))
    return ValueAnswer(name, question.number, answers) if answers else None
