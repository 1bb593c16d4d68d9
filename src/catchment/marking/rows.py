"""The rows of a note: events of a set of groups, and slices of each of them, as bytes and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from catchment.engine import codec, partials
from catchment.engine.bound import BoundPlan
from catchment.engine.bound_waiting import BoundWaiting, choice_of
from catchment.engine.columns import pack, unpack
from catchment.engine.key_space import KeySpace
from catchment.engine.partials import CENSUS as CENSUS
from catchment.engine.partials import NODE, SEQ, KeyedSlices
from catchment.engine.rows import Rows, no_rows
from catchment.engine.waiting import WaitingSet
from catchment.operators.values import Mask


class GroupRows(KeyedSlices):
    """Slices of a group as bytes, and back."""

    def table(self, rows: Rows) -> pa.Table:
        """Rows as a table, one for each slice and key."""
        return _plain(partials.take(self, rows, 0, 0))

    @property
    def schema(self) -> pa.Schema:
        return self.table(no_rows(self.bound.operators)).schema

    def pack(self, rows: Rows) -> bytes:
        return packed(self.table(rows), self.schema)

    def unpack(self, body: bytes) -> Rows:
        """Rows under the codes of their keys here."""
        return partials.rows_of(self, unpack(body, self.schema))


def empty_set(bound: BoundPlan, id: int) -> WaitingSet:
    """A set of groups whose events wait, without events."""
    return WaitingSet(bound.waiting[id], KeySpace(), None)


def events_schema(bound: BoundPlan, id: int) -> pa.Schema:
    """What the events of a set look like in a note."""
    return _plain(empty_set(bound, id).save(0)).schema


def packed(table: pa.Table, schema: pa.Schema) -> bytes:
    return pack(table.select(schema.names).cast(schema).combine_chunks())


def _plain(table: pa.Table) -> pa.Table:
    return table.drop_columns([NODE, SEQ])


def key_schema(waiting: BoundWaiting) -> pa.Schema:
    return pa.schema([pa.field(f"key {name}", waiting.key_types[name]) for name in waiting.by])


def marking(table: pa.Table, waiting: BoundWaiting) -> Mask:
    """Which events of a set mark the beginning or the end of a window of one of its groups."""
    found = np.zeros(table.num_rows, np.bool_)
    for one in waiting.groups.values():
        met = np.zeros(table.num_rows, np.bool_)
        for text in one.conditions:
            met |= _mask(table, "?" + text)
        choice = choice_of(one.group.selections)
        if choice is not None and len(one.group.selections) > 1:
            met &= codec.ints(table, choice) >= 0
        elif choice is not None:
            met &= _mask(table, choice)
        found |= met
    return found


def _mask(table: pa.Table, name: str) -> Mask:
    mask: Mask = codec.whole(table, name).to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask
