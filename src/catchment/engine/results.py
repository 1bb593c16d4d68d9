"""Results: one block of columns per group and step, from which each query's table is cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from catchment.engine.keys import KeyIndex
from catchment.engine.rows import Operators, computed
from catchment.functions import function_of
from catchment.model.plan import Answer, Plan
from catchment.model.query import Aggregate
from catchment.operators.base import QUIET
from catchment.operators import Computed
from catchment.operators.ragged import Field, Ints
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST, LATEST

TIME = pa.timestamp("us", "UTC")


@dataclass(slots=True)
class Block:
    """Result rows of one group: keys, bounds and merged fields, not yet lowered.

    `index` numbers count windows; `revision` and `retracted` are there when late events update.
    """

    keys: KeyIndex
    key: Ints
    start: Ints
    end: Ints
    fields: dict[str, Field]
    operators: Operators
    index: Ints | None = None
    revision: Ints | None = None
    retracted: Mask | None = None
    _cache: dict[object, pa.Array | list[pa.Array]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.key)

    def bounds(self, low: int, high: int) -> list[pa.Array]:
        """The columns that every answer has: keys, start, end, and index where there is one."""
        made = self._cache.get("bounds")
        if made is None:
            made = [
                *self.keys.take(self.key), _times(self.start), _times(self.end),
                *([] if self.index is None else [pa.array(self.index)]),
            ]  # fmt: skip
            self._cache["bounds"] = made
        return [column.slice(low, high - low) for column in made]

    def marks(self, low: int, high: int) -> list[pa.Array]:
        if self.revision is None or self.retracted is None:
            return []
        return [pa.array(self.revision[low:high]), pa.array(self.retracted[low:high])]

    def lowered(self, aggregate: Aggregate, type: pa.DataType | None, low: int, high: int) -> pa.Array:
        """An aggregate's results: of the whole block at once where much of it is asked for."""
        key = (aggregate.function, aggregate.column, aggregate.params)
        made = self._cache.get(key)
        if made is None and (high - low) * 2 < len(self):
            # Other windows' rows may have no use for this function: lower only what is asked for.
            parts = self._cache.setdefault((key, "asked"), [])
            assert isinstance(parts, list)
            parts.extend([pa.nulls(0)] * (high - low))
            if len(parts) * 2 < len(self):
                return self._lower(aggregate, type, low, high)
        if made is None:
            made = self._cache[key] = self._lower(aggregate, type, 0, len(self))
        assert not isinstance(made, list)
        return made.slice(low, high - low)

    @QUIET
    def _lower(self, aggregate: Aggregate, type: pa.DataType | None, low: int, high: int) -> pa.Array:
        if low == 0 and high == len(self):
            rows = self._cache.get("computed")
            if rows is None:
                rows = computed(self.operators, self.fields)  # type: ignore[assignment]
                self._cache["computed"] = rows  # type: ignore[assignment]
        else:
            part = {name: column[low:high] for name, column in self.fields.items()}
            rows = computed(self.operators, part)  # type: ignore[assignment]
        assert isinstance(rows, Computed)
        result = function_of(aggregate).lower(aggregate, rows, type)
        if self.retracted is not None and self.retracted[low:high].any():
            gone = pa.array(self.retracted[low:high])
            result = pc.if_else(gone, pa.scalar(None, result.type), result)
        return result


def _times(values: Ints) -> pa.Array:
    return pa.array(values, pa.int64()).view(TIME)


@dataclass(slots=True)
class Shape:
    """What the results of a group look like: types by column, and whether they carry revisions."""

    key_types: dict[str, pa.DataType]
    types: Mapping[str | None, pa.DataType | None]
    updates: bool
    _schemas: dict[tuple[Answer, bool], pa.Schema] = field(default_factory=dict)

    def schema(self, answer: Answer, by: tuple[str, ...], counted: bool) -> pa.Schema:
        key = (answer, counted)
        if key not in self._schemas:
            fields = [pa.field(name, self.key_types.get(name, pa.null())) for name in by]
            fields += [pa.field("window_start", TIME), pa.field("window_end", TIME)]
            if counted:
                fields.append(pa.field("window_index", pa.int64()))
            for aggregate in answer.aggregates:
                kind = self.types.get(aggregate.column)
                fields.append(pa.field(aggregate.label, self._result(aggregate, kind)))
            if self.updates:
                fields += [pa.field("revision", pa.int64()), pa.field("retracted", pa.bool_())]
            self._schemas[key] = pa.schema(fields)
        return self._schemas[key]

    def _result(self, aggregate: Aggregate, kind: pa.DataType | None) -> pa.DataType:
        if aggregate.column is not None and kind is None:
            return pa.null()  # nothing was pushed yet
        return function_of(aggregate).result(aggregate, kind)


class Limit(NamedTuple):
    """A query that came late answers windows that start after `since`; one that leaves, until `until`."""

    since: int | None = None
    until: int | None = None

    def within(self, table: pa.Table) -> pa.Table:
        start = table.column("window_start").cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
        low = EARLIEST if self.since is None else self.since
        high = LATEST if self.until is None else self.until
        return table.filter(pa.array((start > low) & (start <= high)))


Place = tuple[int, int, int]
"""Group, window, selection."""


class Results(Mapping[str, pa.Table]):
    """Query name to the windows now complete, as an Arrow table made when it is asked for.

    Iterates over the queries that have rows; a query without any gives an empty table.
    """

    def __init__(
        self, plan: Plan, shapes: Mapping[int, Shape], names: NamesOf,
        limits: Mapping[str, Limit] | None = None,
    ) -> None:  # fmt: skip
        self._limits = dict(limits or {})
        self._plan = plan
        self._shapes = shapes
        self._names = names
        self._parts: dict[Place, list[tuple[Block, int, int]]] = {}
        self._made: dict[str, pa.Table] = {}

    def add(self, group: int, block: Block, spans: list[tuple[int, int, int, int]]) -> None:
        """Adds a block whose rows `[low, high)` are of a window and selection."""
        for window, selection, low, high in spans:
            if high > low:
                self._parts.setdefault((group, window, selection), []).append((block, low, high))

    def _place(self, name: str) -> tuple[Place, Answer]:
        group, number = self._plan.names[name]
        answer = self._plan.groups[group].answers[number]
        return (group, answer.window, answer.selection), answer

    def __getitem__(self, name: str) -> pa.Table:
        if name not in self._made:
            self._made[name] = self._table(name)
        return self._made[name]

    def _table(self, name: str) -> pa.Table:
        place, answer = self._place(name)
        group = self._plan.groups[place[0]]
        shape = self._shapes[place[0]]
        counted = hasattr(group.windows[answer.window], "step")
        schema = shape.schema(answer, group.by, counted)
        tables = []
        for block, low, high in self._parts.get(place, ()):
            columns = block.bounds(low, high)
            for aggregate in answer.aggregates:
                kind = shape.types.get(aggregate.column)
                columns.append(block.lowered(aggregate, kind, low, high))
            tables.append(pa.Table.from_arrays(columns + block.marks(low, high), schema=schema))
        if not tables:
            return schema.empty_table()
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        limit = self._limits.get(name)
        return table if limit is None else limit.within(table)

    def __iter__(self) -> Iterator[str]:
        for place in self._parts:
            for name in self._names.of(place):
                if name not in self._limits or self[name].num_rows:
                    yield name

    def __len__(self) -> int:
        if self._limits:
            return sum(1 for _ in self)
        return sum(len(self._names.of(place)) for place in self._parts)

    def __contains__(self, name: object) -> bool:
        if name not in self._plan.names or self._place(str(name))[0] not in self._parts:
            return False
        return name not in self._limits or self[str(name)].num_rows > 0

    def rows(self) -> int:
        """Result rows of all queries together, without making their tables."""
        return sum(
            len(self._names.of(place)) * sum(high - low for _, low, high in parts)
            for place, parts in self._parts.items()
        )


class NamesOf:
    """The query names that a window and selection of a group answer; made once per plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._names: dict[Place, list[str]] | None = None

    def of(self, place: Place) -> list[str]:
        if self._names is None:
            self._names = {}
            for name, (group, number) in self._plan.names.items():
                answer = self._plan.groups[group].answers[number]
                key = (group, answer.window, answer.selection)
                self._names.setdefault(key, []).append(name)
        return self._names.get(place, [])


