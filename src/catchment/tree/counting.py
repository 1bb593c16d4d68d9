"""Count windows in a tree without collecting events: notes climb, orders come down.

Local nodes keep the events of groups that have count windows only, tell the root where some of
them are, and cut them where the root has found an edge: what climbs is a partial per slice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from catchment.counting import wire
from catchment.counting.local import LocalCounter
from catchment.counting.message import Columns, Down
from catchment.engine import codec, settled
from catchment.engine.cutter import Cutter
from catchment.engine.group import GroupState
from catchment.engine.keys import KeyIndex
from catchment.engine.partials import SELECTION, key_columns, take
from catchment.engine.rows import Operators, Rows, concat_rows, merge_rows, no_rows
from catchment.model.window import Counted
from catchment.operators import Grouping
from catchment.tree import columns
from catchment.tree.charter import Charter

COUNTS = -2
"""The section of a message that holds notes."""
LARGE = 2_000
"""Events between the edges of windows from which on `auto` asks for them: below, that costs more
bytes than the events."""
Key = tuple[Any, ...]
"""Selection and values of a key."""


def counted(charter: Charter) -> list[int]:
    """The groups whose count windows are found by asking: equal on all nodes."""
    given = charter.settings
    if given.get("count", "central") == "central" or charter.schema is None:
        return []
    if given["late"] == "update" or given["idle"] is not None:
        return []
    wires = charter.wire(charter.plan)
    least = LARGE if given["count"] == "auto" else 1
    return [
        group.id for group in charter.plans[charter.plan].plan.groups
        if group.slicing == "settled" and not group.distinct_on and group.measure == "event"
        and all(isinstance(w, Counted) and min(w.size, w.step) >= least for w in group.windows)
        and all(_plain(wires[group.id].field(f"key {name}").type) for name in group.by)
    ]  # fmt: skip


def windows_of(state: GroupState) -> list[Counted]:
    return [window for window in state.group.windows if isinstance(window, Counted)]


def _plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind))


class Lift:
    """Partials as bytes: a row without its key, without its schema."""

    def __init__(self, state: GroupState) -> None:
        self.state = state
        self.operators: Operators = state.operators
        self._schema = codec.rows_to_table(no_rows(self.operators), self.operators).schema
        self.base = 0
        self.tables: list[pa.Table] = []
        """The lane's events, from row `base` on; a node that has none has no tables."""

    @property
    def rows(self) -> int:
        return self.base + sum(table.num_rows for table in self.tables)

    def lift(self, events: Columns) -> Columns:
        table = self.tables[0] if len(self.tables) == 1 else pa.concat_tables(self.tables)
        self.tables = [table]
        chosen = table.take(pa.array(events["row"] - self.base))
        keys = pa.array(np.zeros(chosen.num_rows, np.int64))
        ordered = settled.ordered([chosen.add_column(0, settled.KEY, keys)])
        cuts = np.zeros(len(ordered), np.bool_)
        rows, _ = settled.cut_rows(ordered, cuts, self.state.group, self.operators)
        return {"rows": self.pack(self._one(rows))}

    def merge(self, partials: Any) -> Columns:
        rows = concat_rows([self.unpack(part["rows"]) for part in partials], self.operators)
        return {"rows": self.pack(self._one(rows))}

    def _one(self, rows: Rows) -> Rows:
        starts = np.zeros(1, np.int64)
        groups = Grouping(None, 1, starts=starts, rows=len(rows))
        return merge_rows(rows, groups, self.operators) if len(rows) > 1 else rows

    def pack(self, rows: Rows) -> Any:
        return columns.pack(codec.rows_to_table(rows, self.operators).combine_chunks())

    def unpack(self, body: bytes) -> Rows:
        return codec.table_to_rows(columns.unpack(body, self._schema), self.operators)

    def prune(self, row: int) -> None:
        """Forgets the events before a row."""
        if self.tables and row > self.base:
            table = pa.concat_tables(self.tables).slice(row - self.base)
            self.tables = [table.combine_chunks()] if table.num_rows else []
            self.base = row


class Orders:
    """The last word of the root on every lane, numbered, so that each node gets what it lacks."""

    def __init__(self) -> None:
        self.number = 0
        self.over = False
        """Whether no more windows will be full: nodes that have ended may say so."""
        self.said: dict[tuple[int, Key], tuple[int, bytes]] = {}

    def say(self, words: list[tuple[int, Key, bytes]], over: bool) -> None:
        if words or over != self.over:
            self.number += 1
            self.over = over
            self.said |= {(group, key): (self.number, body) for group, key, body in words}

    def since(self, number: int) -> bytes:
        """What a node lacks that knows of everything up to a number."""
        words = [(g, key, n, body) for (g, key), (n, body) in self.said.items() if n > number]
        return wire.dump([number, self.number, self.over, words])

    def take(self, data: bytes) -> list[tuple[int, Key, bytes]]:
        """Takes what a parent says; what is new of it."""
        known, number, over, words = wire.load(data)
        if known > self.number or number <= self.number:
            return []
        self.number, self.over = number, over
        self.said |= {(group, key): (n, body) for group, key, n, body in words}
        return [(group, key, body) for group, key, _, body in words]

    def to_plain(self) -> list[Any]:
        words = [(g, key, n, body) for (g, key), (n, body) in self.said.items()]
        return [self.number, self.over, words]

    @classmethod
    def from_plain(cls, data: list[Any]) -> Orders:
        orders = cls()
        orders.number, orders.over, words = data
        orders.said = {(group, key): (n, body) for group, key, n, body in words}
        return orders


class LocalCount:
    """The events of a local node in groups that are counted, and what it says of them."""

    def __init__(self, groups: list[int], number: int, data: bytes, cutter: Cutter) -> None:
        self.number = number
        self.groups = groups
        self._cutter = cutter
        self.lanes: dict[tuple[int, Key], tuple[LocalCounter, Lift]] = {}
        self.heard = 0
        self.over = self.pending = self.ended = self._told_end = False
        self.frontier: int | None = None
        if data:
            self._restore(data)

    def _lane(self, group: int, key: Key) -> tuple[LocalCounter, Lift]:
        if (group, key) not in self.lanes:
            lift = Lift(self._cutter.states[group])
            lane = LocalCounter(self.number, windows_of(lift.state), lift)
            if self.frontier is not None:
                lane.advance(self.frontier)
            self.lanes[group, key] = (lane, lift)
        return self.lanes[group, key]

    def feed(self, frontier: int, ended: bool) -> None:
        """Takes the events that wait in the cutter, and moves the frontier on."""
        self.ended = ended
        for id in self.groups:
            state = self._cutter.states[id]
            if state.waiting:
                shapes = dict(self._cutter._shapes[id].key_types)
                table = take(state, no_rows(state.operators), state.waiting, shapes, 0, 0)
                state.waiting, state.keys = [], KeyIndex()
                self._push(id, state, table)
        self.frontier = frontier
        for lane, _ in self.lanes.values():
            lane.advance(frontier)

    def _push(self, id: int, state: GroupState, table: pa.Table) -> None:
        parts = [codec.ints(table, SELECTION).tolist()]
        parts += [column.to_pylist() for column in key_columns(table, state.group)]
        rows: dict[Key, list[int]] = {}
        for row, key in enumerate(zip(*parts, strict=True)):
            rows.setdefault(key, []).append(row)
        names = [settled.TIME, settled.ARRIVAL, *state.columns]
        for key, chosen in rows.items():
            lane, lift = self._lane(id, key)
            some = table.select(names).take(pa.array(chosen))
            first = lift.rows
            lift.tables.append(some)
            numbers = np.arange(first, first + some.num_rows, dtype=np.int64)
            times, arrivals = (codec.ints(some, name) for name in names[:2])
            lane.push(times, arrivals, {"row": numbers})

    def hear(self, data: bytes) -> None:
        """Takes orders; what they ask for is done with the next step."""
        known, number, over, words = wire.load(data)
        if known > self.heard or number <= self.heard:
            return
        self.heard, self.over, self.pending = number, over, True
        for group, key, _, body in words:
            lane, lift = self._lane(group, key)
            lane.hear(Down.from_bytes(body))
            lift.prune(lane.first("row", lift.rows))

    def notes(self) -> pa.Table | None:
        """What there is to say, as a section of a message."""
        self.pending, ended = False, self.ended
        said = [
            (group, key, up.to_bytes())
            for (group, key), (lane, _) in self.lanes.items() if (up := lane.step()) is not None
        ]  # fmt: skip
        if not said and ended == self._told_end:
            return None
        self._told_end = ended
        return pa.table({"note": [wire.dump([self.number, ended, said])]})

    def to_bytes(self) -> bytes:
        lanes = [
            (group, key, lane.to_bytes(), lift.base, _ipc(lift.tables))
            for (group, key), (lane, lift) in self.lanes.items()
        ]
        return wire.dump([self.heard, self.over, self._told_end, self.frontier, lanes])

    def _restore(self, data: bytes) -> None:
        self.heard, self.over, self._told_end, self.frontier, lanes = wire.load(data)
        for group, key, body, base, tables in lanes:
            lift = Lift(self._cutter.states[group])
            lift.base = base
            lift.tables = [pa.ipc.open_stream(tables).read_all()] if tables else []
            lane = LocalCounter.from_bytes(body, windows_of(lift.state), lift)
            self.lanes[group, key] = (lane, lift)


def _ipc(tables: list[pa.Table]) -> bytes:
    if not tables:
        return b""
    sink = pa.BufferOutputStream()
    whole = pa.concat_tables(tables)
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    return bytes(sink.getvalue().to_pybytes())
