"""Groups whose events wait together, bound to columns: what is kept of an event for all of them.

An event is kept once if any group wants it, with each column and condition once. A group that has
conditions finds its own events by a column that says so: `?condition` where it has one condition,
and where it has several, which of them the event meets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from catchment.engine.batch import Batch, Chosen
from catchment.engine.bound_group import BoundGroup, ValueTypes
from catchment.engine.keys import LocalKeys
from catchment.engine.settled import ARRIVAL, KEY, TIME
from catchment.operators.ragged import Array, Ints
from catchment.operators.values import of_truths

_CHOICE = "#selection "
_CHOICES = pa.int32()

SelectionTexts = tuple[str | None, ...]


def choice_of(selections: SelectionTexts) -> str | None:
    """The column that says which events meet selections; None: all events do.

    Its name follows from the selections alone, so that it means the same in every plan.
    """
    if len(selections) > 1:
        text = "\0".join("" if condition is None else condition for condition in selections)
        return _CHOICE + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return None if selections[0] is None else "?" + selections[0]


class WaitingEvents(NamedTuple):
    """Events that wait until they settle; their keys are codes local to the batch."""

    events: pa.Table
    keys: LocalKeys


class BoundWaiting:
    """A set of groups of one key whose events wait together; `id` is that of the first."""

    def __init__(self, groups: Mapping[int, BoundGroup]) -> None:
        self.groups = dict(groups)
        self.id, first = next(iter(self.groups.items()))
        self.by, self.key_types = first.group.by, first.key_types
        self.measure, self.slicing = first.group.measure, first.group.slicing
        bound = self.groups.values()
        self.types: ValueTypes = {text: t for one in bound for text, t in one.types.items()}
        read = {field.name: field for one in bound for field in one.values}
        self.columns = list(read)
        self.selections = list(dict.fromkeys(one.group.selections for one in bound))
        """The selections of the groups, each once."""
        marks = [text for one in bound for text in one.conditions]
        alone = [s[0] for s in self.selections if len(s) == 1 and s[0] is not None]
        self.conditions = list(dict.fromkeys([*marks, *alone]))
        self.choices = {str(choice_of(s)): s for s in self.selections if len(s) > 1}
        """By the name of its column: selections of which an event meets one."""
        places = [pa.field(name, pa.int64()) for name in (KEY, TIME, ARRIVAL)]
        marked = [pa.field("?" + text, pa.bool_()) for text in self.conditions]
        chosen = [pa.field(name, _CHOICES) for name in self.choices]
        self.schema = pa.schema([*places, *read.values(), *marked, *chosen])
        """What is kept of events until they settle."""

    def events(self, batch: Batch, rows: Ints | None = None) -> WaitingEvents:
        """What must be kept of a batch: of the events that a group wants, or of these rows."""
        rows = self._wanted(batch) if rows is None else rows
        kept = Chosen(rows, None)
        keys = batch.keys(self.by)
        codes = np.zeros(len(batch), np.int64) if keys.codes is None else keys.codes
        data: dict[str, pa.Array[Any]] = {
            KEY: pa.array(kept.of(codes)),
            TIME: pa.array(kept.of(batch.times)),
            ARRIVAL: pa.array(kept.of(batch.arrivals)),
        }
        for text in self.columns:
            values = batch.array(text) if rows is None else batch.array(text).take(rows)
            if isinstance(values, pa.DictionaryArray):  # those of batches may not fit together
                values = values.dictionary_decode()
            data[text] = values
        for text in self.conditions:
            data["?" + text] = of_truths(kept.of(batch.mask(text)))
        for name, selections in self.choices.items():
            data[name] = pa.array(kept.of(_choice(batch, selections)))
        return WaitingEvents(pa.table(data), keys)

    def _wanted(self, batch: Batch) -> Ints | None:
        """The events that some group wants; None: all."""
        chosen = [batch.chosen(selections).rows for selections in self.selections]
        wanted = [rows for rows in chosen if rows is not None]
        if len(wanted) < len(chosen):
            return None
        if len(wanted) == 1:
            return wanted[0]
        mask = np.zeros(len(batch), np.bool_)
        for rows in wanted:
            mask[rows] = True
        return np.flatnonzero(mask)


def _choice(batch: Batch, selections: SelectionTexts) -> Array:
    """Which of some selections each event meets; -1: none."""
    rows, met = batch.chosen(selections)
    choice: Array = np.full(len(batch), -1, np.int32)
    choice[slice(None) if rows is None else rows] = 0 if met is None else met
    return choice


def with_columns(table: pa.Table, bound: BoundWaiting) -> pa.Table:
    """Waiting events with the columns of a new plan, in its order; what it does not need goes.

    Windows that need a column which was not kept begin later, so its values do not matter: such an
    event meets no new condition.
    """
    for field in bound.schema:
        if field.name not in table.schema.names:
            table = table.append_column(field, _unknown(field, table.num_rows))
    return table.select(bound.schema.names)


def _unknown(field: pa.Field[Any], rows: int) -> pa.Array[Any]:
    if field.name.startswith("?"):
        return pa.array(np.zeros(rows, np.bool_))
    if field.name.startswith(_CHOICE):
        return pa.array(np.full(rows, -1, np.int32))
    nothing: pa.Array[Any] = pa.nulls(rows, field.type)
    return nothing
