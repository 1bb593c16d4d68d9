"""Results: one block of columns per group and step, from which each query's table is cut."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from catchment.engine.keys import KeyIndex
from catchment.engine.rows import Operators, computed
from catchment.functions import function_of
from catchment.model.plan import Group, Plan
from catchment.model.query import NODE, Aggregate
from catchment.model.window import Window
from catchment.operators import Computed
from catchment.operators.base import QUIET
from catchment.operators.ragged import Array, Field, Ints
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST, LATEST

TIME = pa.timestamp("us", "UTC")
COMPLETE = "complete"
"""The column that says whether a window has ended, and whether no node's events are missing."""


@dataclass(slots=True)
class Block:
    """Result rows of one group: keys, bounds and merged fields, not yet lowered.

    `index` tells windows apart whose bounds may be equal; `revision` and `retracted` are there
    when late events update; `node` says whose windows are that each node has for itself.
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
    node: Array | None = None
    complete: bool = True
    """Whether its windows have ended; false: the input ended before they did."""
    _tables: dict[int, pa.Table] = field(default_factory=dict)
    _bounds: list[pa.Array[Any]] = field(default_factory=list)
    _lowered: dict[Text, pa.Array[Any]] = field(default_factory=dict)
    _whole: Computed | None = None

    def __len__(self) -> int:
        return len(self.key)

    def table(self, shape: ResultColumns, answer: int, low: int, high: int) -> pa.Table:
        """The rows `[low, high)` as an answer's results.

        Where most windows of the group have the same aggregates, all are made at once and cut.
        """
        form = shape.forms[answer]
        if not form.common:
            return self._make(shape, form, low, high)
        if form.number not in self._tables:
            self._tables[form.number] = self._make(shape, form, 0, len(self))
        return self._tables[form.number].slice(low, high - low)

    def _make(self, shape: ResultColumns, form: Form, low: int, high: int) -> pa.Table:
        if not self._bounds:
            named = [] if self.node is None else [pa.array(self.node, pa.string())]
            keys = [*self.keys.take(self.key), *named]
            self._bounds = [*keys, _times(self.start), _times(self.end)]
            if self.index is not None:
                self._bounds.append(pa.array(self.index))
        columns = [column.slice(low, high - low) for column in self._bounds]
        columns += self._lower(shape, form, low, high)
        if self.revision is not None and self.retracted is not None:
            columns += [pa.array(self.revision[low:high]), pa.array(self.retracted[low:high])]
        return pa.Table.from_arrays(columns, schema=shape.schema(form, self._marks))

    @property
    def _marks(self) -> ResultMarks:
        return ResultMarks(self.index is not None, self.node is not None)

    @QUIET
    def _lower(self, shape: ResultColumns, form: Form, low: int, high: int) -> list[pa.Array[Any]]:
        whole = low == 0 and high == len(self)
        if whole:
            rows = self._whole = self._whole or computed(self.operators, self.fields)
        else:
            rows = computed(self.operators, {n: c[low:high] for n, c in self.fields.items()})
        columns = []
        for aggregate in form.aggregates:
            text = (aggregate.function, aggregate.column, aggregate.params)
            made = self._lowered.get(text) if whole else None
            if made is None:
                made = function_of(aggregate).lower(aggregate, rows, shape.types[aggregate.column])
                made = self._blank(made, low, high)
                if whole:
                    self._lowered[text] = made
            columns.append(made)
        return columns

    def _blank(self, values: pa.Array[Any], low: int, high: int) -> pa.Array[Any]:
        """Nulls in the rows of windows that are no more."""
        if self.retracted is None or not self.retracted[low:high].any():
            return values
        gone = pa.array(self.retracted[low:high])
        made: pa.Array[Any] = pc.if_else(gone, pa.scalar(None, values.type), values)
        return made


def _times(values: Ints) -> pa.Array[Any]:
    return pa.array(values, pa.int64()).view(TIME)


Text = tuple[str, str | None, tuple[object, ...]]


class Leaf(Protocol):
    """Result rows of one group, from which tables are cut."""

    complete: bool

    def table(self, shape: ResultColumns, answer: int, low: int, high: int) -> pa.Table: ...

    def __len__(self) -> int: ...


class Form(NamedTuple):
    """Aggregates that some answers of a group have in common, and whether most windows do."""

    number: int
    aggregates: tuple[Aggregate, ...]
    common: bool


class ResultMarks(NamedTuple):
    """What the results of a window type say besides the bounds."""

    numbered: bool
    named: bool

    @classmethod
    def of(cls, window: Window) -> ResultMarks:
        return cls(window.bounds_repeat, window.stream_reading == "local")


class ResultColumns:
    """What the results of a group look like."""

    def __init__(
        self,
        group: Group,
        types: Mapping[str | None, pa.DataType | None],
        key_types: Mapping[str, pa.DataType],
        updates: bool,
    ) -> None:
        self.group = group
        self.types = types
        self.key_types = key_types
        self.updates = updates
        self.forms = _forms(group)
        self._schemas: dict[tuple[int, ResultMarks], pa.Schema] = {}

    def schema(self, form: Form, marks: ResultMarks) -> pa.Schema:
        key = (form.number, marks)
        if key not in self._schemas:
            self._schemas[key] = self._schema(form, marks)
        return self._schemas[key]

    def _schema(self, form: Form, marks: ResultMarks) -> pa.Schema:
        fields = [pa.field(name, self.key_types.get(name, pa.null())) for name in self.group.by]
        fields += [pa.field(NODE, pa.string())] if marks.named else []
        fields += [pa.field("window_start", TIME), pa.field("window_end", TIME)]
        if marks.numbered:
            fields.append(pa.field("window_index", pa.int64()))
        for aggregate in form.aggregates:
            unknown = aggregate.column is not None and aggregate.column not in self.types
            kind = self.types.get(aggregate.column)
            result = pa.null() if unknown else function_of(aggregate).result(aggregate, kind)
            fields.append(pa.field(aggregate.label, result))
        if self.updates:
            fields += [pa.field("revision", pa.int64()), pa.field("retracted", pa.bool_())]
        return pa.schema(fields)

    def empty(self, answer: int) -> pa.Table:
        window = self.group.windows[self.group.answers[answer].window]
        return self.schema(self.forms[answer], ResultMarks.of(window)).empty_table()


def _forms(group: Group) -> list[Form]:
    windows: dict[tuple[Aggregate, ...], set[int]] = {}
    for answer in group.answers:
        windows.setdefault(answer.aggregates, set()).add(answer.window)
    numbers = {aggregates: number for number, aggregates in enumerate(windows)}
    most = {aggregates: 2 * len(w) >= len(group.windows) for aggregates, w in windows.items()}
    return [Form(numbers[a.aggregates], a.aggregates, most[a.aggregates]) for a in group.answers]


class Limit(NamedTuple):
    """Which windows a query gives that was added while others ran, or that leaves: those that start
    after `since`, and at most at `until`."""

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
        self,
        plan: Plan,
        shapes: Mapping[int, ResultColumns],
        names: NamesOf,
        limits: Mapping[str, Limit] | None = None,
        told: bool = False,
    ) -> None:
        self.limits = dict(limits or {})
        self._told = told
        """Whether results say of windows that may never end whether they have."""
        self._plan = plan
        self.shapes = shapes
        self.names = names
        self.parts: dict[Place, list[tuple[Leaf, int, int]]] = {}
        self._made: dict[tuple[int, int], pa.Table] = {}

    def add(self, group: int, block: Leaf, spans: list[tuple[int, int, int, int]]) -> None:
        """Adds a block whose rows `[low, high)` are of a window and selection."""
        for window, selection, low, high in spans:
            if high > low:
                self.parts.setdefault((group, window, selection), []).append((block, low, high))

    def __getitem__(self, name: str) -> pa.Table:
        group, number = self._plan.names[name]
        return self._limited(name, self._table(group, number))

    def _table(self, group: int, number: int) -> pa.Table:
        table = self._made.get((group, number))
        if table is None:
            answer = self._plan.groups[group].answers[number]
            parts = self.parts.get((group, answer.window, answer.selection))
            table = self._made[group, number] = self._make(group, number, parts or [])
        return table

    def _make(self, group: int, number: int, parts: list[tuple[Leaf, int, int]]) -> pa.Table:
        shape = self.shapes[group]
        if not parts:
            return self._judged(group, number, shape.empty(number), True)
        tables = [
            self._judged(group, number, block.table(shape, number, low, high), block.complete)
            for block, low, high in parts
        ]
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def _judged(self, group: int, number: int, table: pa.Table, complete: bool) -> pa.Table:
        """The table, and whether its windows have ended where that is to be said."""
        made = self._plan.groups[group]
        if not self._told or not made.windows[made.answers[number].window].bounded_by_events:
            return table
        column = pa.repeat(pa.scalar(complete), table.num_rows)
        return table.append_column(COMPLETE, column)

    def _limited(self, name: str, table: pa.Table) -> pa.Table:
        return self.limits[name].within(table) if name in self.limits else table

    def _pairs(self) -> Iterator[tuple[str, pa.Table]]:
        """The queries that have rows, each distinct computation made once."""
        for place, parts in self.parts.items():
            for number, names in self.names.of(place):
                table = self._made.get((place[0], number))
                if table is None:
                    table = self._make(place[0], number, parts)
                    self._made[place[0], number] = table
                for name in names:
                    if name not in self.limits:
                        yield name, table
                    elif (some := self._limited(name, table)).num_rows:
                        yield name, some

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._pairs())

    def items(self) -> ItemsView[str, pa.Table]:
        return _Items(self)

    def values(self) -> ValuesView[pa.Table]:
        return _Values(self)

    def __len__(self) -> int:
        if self.limits:
            return sum(1 for _ in self)
        return sum(self.names.count(place) for place in self.parts)

    def __contains__(self, name: object) -> bool:
        return name in self._plan.names and self[str(name)].num_rows > 0

    def rows(self) -> int:
        """Result rows of all queries together, without making their tables."""
        return sum(
            self.names.count(place) * sum(high - low for _, low, high in parts)
            for place, parts in self.parts.items()
        )


class _Items(ItemsView[str, pa.Table]):
    _mapping: Results

    def __iter__(self) -> Iterator[tuple[str, pa.Table]]:
        return self._mapping._pairs()


class _Values(ValuesView[pa.Table]):
    _mapping: Results

    def __iter__(self) -> Iterator[pa.Table]:
        return (table for _, table in self._mapping._pairs())


class NamesOf:
    """The answers over a window and selection of a group, and their names; made once per plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._answers: dict[Place, dict[int, list[str]]] = {}

    def of(self, place: Place) -> Iterable[tuple[int, list[str]]]:
        if not self._answers:
            for name, (group, number) in self._plan.names.items():
                answer = self._plan.groups[group].answers[number]
                key = (group, answer.window, answer.selection)
                self._answers.setdefault(key, {}).setdefault(number, []).append(name)
        return self._answers.get(place, {}).items()

    def count(self, place: Place) -> int:
        return sum(len(names) for _, names in self.of(place))
