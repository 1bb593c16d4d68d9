"""What a local node and the root say to each other about the values of slices, as records.

Numbers are integers in the order of the values (`ordered`), texts are places in a list that is told
with them. A node numbers the rows that it holds, a row for each slice and key, and what it says of
a row stays true.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import numpy as np
import pyarrow as pa
from msgspec import Meta, Struct, field

from catchment.counting import wire
from catchment.operators.ragged import Ints, offsets_of, spans
from catchment.planner.edges import EARLIEST

VALUES = 1 << 25
"""Values that a node holds at most: who tells of more does not tell the truth."""
_Number = Annotated[int, Meta(ge=0)]


def spread(first: Ints, last: Ints, count: Ints) -> Ints:
    """So many places from the first to the last of each row, both among them, spread evenly.

    >>> spread(np.array([0, 5]), np.array([9, 6]), np.array([4, 2])).tolist()
    [0, 3, 6, 9, 5, 6]
    """
    step = spans(np.zeros_like(count), count)
    width, most = (np.repeat(some, count) for some in (last - first, np.maximum(count - 1, 1)))
    # Exact also where the product of the two would be too large for a word.
    quotient, rest = np.divmod(width, most)
    places: Ints = np.repeat(first, count) + step * quotient + step * rest // most
    return places


class RunSummary(Struct, frozen=True, array_like=True, tag="run"):
    """Sorted values of rows, as those at evenly spread places."""

    field: str
    size: Ints
    """How many values there are in each row, and how many of them are told."""
    sent: Ints
    values: Ints

    def __post_init__(self) -> None:
        size, sent = self.size, self.sent
        _even(size, sent)
        _few_enough(size)
        if (size < 0).any() or (sent < np.minimum(size, 2)).any() or (sent > size).any():
            raise ValueError("of a row, the first and the last value are told, or all")
        _rising(self.values, sent)


class CountSummary(Struct, frozen=True, array_like=True, tag="counts"):
    """How often values of rows occur: the most frequent of each row, in the order of values."""

    field: str
    size: Ints
    """How many different values there are in each row, and how many values in all."""
    total: Ints
    rest: Ints
    """How often any value that is not told occurs at most; 0: all are told."""
    sent: Ints
    values: Ints
    times: Ints
    texts: list[str]
    """If not empty: the texts that values are places in."""
    rows: list[bytes] = []
    """Of keys: the partials of those that are told."""

    def __post_init__(self) -> None:
        size, sent, rest = self.size, self.sent, self.rest
        _even(size, self.total, rest, sent)
        _few_enough(size)
        if (size < 0).any() or (sent < 0).any() or (sent > size).any():
            raise ValueError("of a row, as many values are told as there are, or fewer")
        if (rest < 0).any() or ((rest == 0) != (sent == size)).any():
            raise ValueError("the values of a row that are not told occur")
        if (self.total < size).any() or (self.times < 1).any():
            raise ValueError("each value of a row occurs")
        _counted(self.values, self.times, sent, self.texts)


class Summary(Struct, frozen=True, array_like=True):
    """Rows that a node holds: where they are, and some of the values of each."""

    group: str
    first: _Number
    """The number of the first of these rows; the others follow."""
    start: Ints
    end: Ints
    selection: Ints
    keys: bytes
    """The key columns, packed."""
    columns: list[RunSummary | CountSummary]
    events: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Of rows of which no partials climb: how many events they hold."""

    def __post_init__(self) -> None:
        _even(self.start, self.end, self.selection, *(column.size for column in self.columns))
        if len(self.events):
            _even(self.start, self.events)
            if (self.events < 0).any():
                raise ValueError("rows hold no less than no events")


class RunAnswer(Struct, frozen=True, array_like=True, tag="run"):
    """Places of rows that a node was asked about: so many from the first to the last, evenly."""

    field: str
    row: Ints
    first: Ints
    last: Ints
    sent: Ints
    values: Ints

    def __post_init__(self) -> None:
        first, sent = self.first, self.sent
        _even(self.row, first, self.last, sent)
        wide = self.last - first + 1
        if (first < 0).any() or (sent < np.minimum(wide, 2)).any() or (sent > wide).any():
            raise ValueError("places from the first to the last are told, or all")
        _rising(self.values, sent)


class CountAnswer(Struct, frozen=True, array_like=True, tag="counts"):
    """How often values occur in rows that a node was asked about; 0 times: not at all."""

    field: str
    row: Ints
    rest: Ints
    """How often any value occurs at most that was told neither now nor before."""
    sent: Ints
    values: Ints
    times: Ints
    texts: list[str]
    rows: list[bytes] = []
    """Of keys: the partials of those that are told for the first time."""

    def __post_init__(self) -> None:
        _even(self.row, self.rest, self.sent)
        if (self.rest < 0).any() or (self.sent < 0).any() or (self.times < 0).any():
            raise ValueError("values occur so many times, or not at all")
        _counted(self.values, self.times, self.sent, self.texts)


class ValueAnswer(Struct, frozen=True, array_like=True):
    """What a node says of rows that it was asked about."""

    group: str
    number: _Number
    """The last question that this answers."""
    columns: list[RunAnswer | CountAnswer]


class RankNote(Struct, frozen=True, array_like=True):
    """What a node says of the values that it holds."""

    node: _Number
    summaries: list[Summary]
    answers: list[ValueAnswer]


class RunQuestion(Struct, frozen=True, array_like=True, tag="run"):
    """Spans of values in doubt: where are your values between two bounds, in slices of a window?

    Each span is of a window and a key; `most` places are told of each row, or all where it is 0.
    """

    field: str
    start: Ints
    end: Ints
    key: Ints
    """The key, by its place in the keys of the question."""
    low: Ints
    """What is greater than this and less than `high` is in doubt."""
    open: Ints
    """1: all that is less than `high`, and `low` means nothing."""
    high: Ints
    most: Ints


class CountQuestion(Struct, frozen=True, array_like=True, tag="counts"):
    """Which of your values occur more than `above` and up to `upto` times, in slices of a window?
    And how often do these other values, if not more often than `above`?"""

    field: str
    start: Ints
    end: Ints
    key: Ints
    above: Ints
    upto: Ints
    sent: Ints
    """How many other values are meant, and these."""
    values: Ints
    texts: list[str]


class RankQuestion(Struct, frozen=True, array_like=True):
    """All that is in doubt of the values of a group."""

    number: _Number
    selection: Ints
    """The selection of each key in `keys`."""
    keys: bytes
    columns: list[RunQuestion | CountQuestion]


class RootWord(Struct, frozen=True, array_like=True):
    """What the root tells all nodes of a group. Each word is complete: only the last one counts."""

    needed: int
    """Slices that begin before it are not asked about any more."""
    questions: list[RankQuestion]
    """The questions that at least one node has not answered yet."""


def late_rows(notes: pa.Table | None, too_late: int) -> dict[str, tuple[int, int]]:
    """By group: events in rows that nodes keep back, of slices that end by a time, and the last of
    these ends. Of groups whose partials climb, these tell it."""
    found: dict[str, tuple[int, int]] = {}
    for body in [] if notes is None or too_late <= EARLIEST else notes.column("note"):
        for summary in wire.load(RankNote, body.as_py()).summaries:
            late = summary.end[: len(summary.events)] <= too_late
            if late.any():
                events, end = found.get(summary.group, (0, EARLIEST))
                last = int(summary.end[late].max())
                found[summary.group] = events + int(summary.events[late].sum()), max(end, last)
    return found


def falls(values: Ints, sent: Ints, repeated: bool = True) -> bool:
    """Whether the values of some row do not rise; `sent` are the lengths of the rows, and equal
    neighbours are as good where values may be `repeated`."""
    down = values[1:] < values[:-1] if repeated else values[1:] <= values[:-1]
    heads = offsets_of(sent)[1:-1]
    down[heads[(heads > 0) & (heads < len(values))] - 1] = False
    return bool(down.any())


def _even(*columns: Ints) -> None:
    if any(len(column) != len(columns[0]) for column in columns):
        raise ValueError("rows have one entry in each column")


def _few_enough(size: Ints) -> None:
    if float(size.sum(dtype=np.float64)) > VALUES:
        raise ValueError("a node does not hold so many values")


def _rising(values: Ints, sent: Ints) -> None:
    if int(sent.sum()) != len(values) or falls(values, sent):
        raise ValueError("the values of a row rise, and are as many as told")


def _counted(values: Ints, times: Ints, sent: Ints, texts: list[str]) -> None:
    _even(values, times)
    if int(sent.sum()) != len(values) or falls(values, sent, repeated=False):
        raise ValueError("the values of a row rise, and are as many as told")
    if texts and len(values) and (values.min() < 0 or values.max() >= len(texts)):
        raise ValueError("texts are as many as told")
    if any(one >= other for one, other in pairwise(texts)):
        raise ValueError("texts are told in order, each once")
