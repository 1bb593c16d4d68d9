"""Events that wait until they are settled, sorted, and cut where the data says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.engine.batch import Batch, Chosen
from catchment.engine.rows import Rows, flat
from catchment.engine.slicing import lift
from catchment.model.plan import Group
from catchment.operators import Grouping, Operator
from catchment.operators.grouping import segment_codes, sort_order
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask, one_piece
from catchment.planner.cost import edges_of, smallest_gap
from catchment.planner.edges import Edges

KEY, TIME, ARRIVAL = "#key", "#time", "#arrival"


def conditions_of(group: Group) -> list[str]:
    """The conditions that open and close the group's windows, each once."""
    return list(dict.fromkeys(text for window in group.windows for text in window.conditions))


def waiting_schema(
    types: Mapping[str | None, pa.DataType | None], columns: list[str], conditions: list[str]
) -> pa.Schema:
    """The columns of events that wait: key, time and arrival, values, and marks met."""
    places = [pa.field(name, pa.int64()) for name in (KEY, TIME, ARRIVAL)]
    values = [pa.field(text, types[text] or pa.null()) for text in columns]
    return pa.schema(places + values + [pa.field("?" + text, pa.bool_()) for text in conditions])


def waiting(
    batch: Batch, kept: Chosen, keys: Ints, columns: list[str], conditions: list[str]
) -> pa.Table:
    """What must be kept of events until they settle: time, arrival, key, values and marks."""
    rows = kept.rows
    data: dict[str, pa.Array[Any]] = {
        KEY: pa.array(keys),
        TIME: pa.array(kept.of(batch.times)),
        ARRIVAL: pa.array(kept.of(batch.arrivals)),
    }
    for text in columns:
        values = batch.array(text) if rows is None else batch.array(text).take(rows)
        if isinstance(values, pa.DictionaryArray):  # dictionaries of batches may not fit together
            values = values.dictionary_decode()
        data[text] = values
    for text in conditions:
        data["?" + text] = pa.array(kept.of(batch.mask(text)))
    return pa.table(data)


@dataclass(slots=True)
class Ordered:
    """Settled events in order of key, time, arrival; `heads` is where each key's events begin."""

    key: Ints
    time: Ints
    heads: Ints
    segment: Ints
    table: pa.Table

    def __len__(self) -> int:
        return len(self.key)

    def condition(self, text: str) -> Mask:
        met: Mask = one_piece(self.table.column("?" + text)).to_numpy(zero_copy_only=False)
        return met

    @property
    def first(self) -> Mask:
        """Where a key's events begin, as a mask."""
        mask = np.zeros(len(self), np.bool_)
        mask[self.heads] = True
        return mask


def ordered(tables: list[pa.Table]) -> Ordered:
    """Sorts events by key, time, arrival."""
    table = pa.concat_tables(tables, promote_options="permissive")
    key, time, arrival = (_ints(table, name) for name in (KEY, TIME, ARRIVAL))
    order = sort_order(arrival, time, key)
    table = table.take(order)
    key, time = key[order], time[order]
    new = np.ones(len(key), np.bool_)
    new[1:] = key[1:] != key[:-1]
    heads = np.flatnonzero(new)
    return Ordered(key, time, heads, segment_codes(heads, len(key)), table)


def _ints(table: pa.Table, name: str) -> Ints:
    return table.column(name).to_numpy()


def recode(table: pa.Table, place: Ints) -> pa.Table:
    """Renumbers the keys."""
    keys = pa.array(place[_ints(table, KEY)])
    return table.set_column(table.schema.get_field_index(KEY), KEY, keys)


def cut_rows(
    events: Ordered, cuts: Mask, group: Group, operators: Mapping[str, Operator]
) -> tuple[Rows, Ints]:
    """Slices sorted events at every edge and cut: the rows, and the first event of each."""
    low, high = int(events.time.min()), int(events.time.max())
    edges = slice_edges(group).around(events.time, low, high)
    place = np.searchsorted(edges, events.time, side="right") - 1
    new = cuts | events.first
    new[1:] |= place[1:] != place[:-1]
    gap = smallest_gap(group.windows)
    if gap is not None:
        new[1:] |= events.time[1:] - events.time[:-1] > gap
    heads = np.flatnonzero(new)
    groups = Grouping(None, len(heads), starts=heads, rows=len(events))
    fields = flat(lift(_Read(events), Chosen(None, None), lambda: events.time, groups, operators))
    last = np.concatenate([heads[1:], [len(events)]]) - 1
    rows = Rows(
        edges[place[heads]],
        edges[place[heads] + 1],
        events.key[heads],
        events.time[heads],
        events.time[last],
        fields,
    )
    return rows, heads


def slice_edges(group: Group) -> Edges:
    """Edges known ahead; sessions are cut at the data's own gaps here, and need no grid.

    But slices that climb are merged with others: then none may be longer than a gap.
    """
    if group.slicing == "stream":
        return edges_of(group.windows)
    return edges_of([window for window in group.windows if window.session_gap is None])


class _Read(Batch):
    """Events whose expressions were evaluated on arrival: they are columns by their own text."""

    def __init__(self, events: Ordered) -> None:
        super().__init__(events.table, events.time, 0)
        self.arrivals = _ints(events.table, ARRIVAL)

    def array(self, expression: str) -> pa.Array[Any]:
        return self.read(expression)
