"""Results: one block of columns per group and step, from which each query's table is cut."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment import html
from catchment.engine.keys import KeyIndex
from catchment.engine.outputs import OutputStage
from catchment.engine.rows import Operators, computed
from catchment.engine.subtotals import subtotals
from catchment.errors import CatchmentError
from catchment.functions import function_of
from catchment.model.output import GROUPING_ID
from catchment.model.plan import Group, Plan
from catchment.model.query import NODE, Aggregate
from catchment.model.window import Window
from catchment.operators import Computed
from catchment.operators.base import QUIET
from catchment.operators.ragged import Array, Field, Ints, take
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST, LATEST
from catchment.plotting import PlottedResults

TIME = pa.timestamp("us", "UTC")
_SHOWN = 3
"""Queries whose rows a notebook shows."""
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
    rows: Ints | None = None
    """Of each window, the row that it has of the fields; None: each has its own."""
    complete: bool = True
    """Whether its windows have ended; false: the input ended before they did."""
    _tables: dict[int, pa.Table] = field(default_factory=dict)
    _bounds: list[pa.Array[Any]] = field(default_factory=list)
    _lowered: dict[AggregateText, pa.Array[Any]] = field(default_factory=dict)
    _whole: Computed | None = None

    def __len__(self) -> int:
        return len(self.key)

    def table(self, shape: ResultColumns, answer: int, low: int, high: int) -> pa.Table:
        """The rows `[low, high)` as an answer's results.

        Where most windows of the group have the same aggregates, all are made at once and cut.
        """
        form = shape.forms[answer]
        if form.sets:
            return self._with_subtotals(shape, form, low, high)
        if not form.common:
            return self._make(shape, form, low, high)
        if form.number not in self._tables:
            self._tables[form.number] = self._make(shape, form, 0, len(self))
        return self._tables[form.number].slice(low, high - low)

    def _make(
        self,
        shape: ResultColumns,
        form: Form,
        low: int,
        high: int,
        kept: tuple[int, ...] | None = None,
    ) -> pa.Table:
        """The rows `[low, high)` as a table; of subtotals, with the keys that are kept."""
        if not self._bounds:
            named = [] if self.node is None else [pa.array(self.node, pa.string())]
            keys = [*self.keys.take(self.key), *named]
            self._bounds = [*keys, times(self.start), times(self.end)]
            if self.index is not None:
                self._bounds.append(pa.array(self.index))
        columns = [column.slice(low, high - low) for column in self._bounds]
        if kept is not None:
            width = len(shape.group.by)
            others = set(range(width)).difference(kept)
            for place in others:
                columns[place] = pa.nulls(high - low, columns[place].type)
            id = sum(1 << (width - 1 - place) for place in others)
            columns.insert(width, pa.array(np.full(high - low, id, np.int64)))
        columns += self._lower(shape, form, low, high)
        if self.revision is not None and self.retracted is not None:
            columns += [pa.array(self.revision[low:high]), pa.array(self.retracted[low:high])]
        return pa.Table.from_arrays(columns, schema=shape.schema(form, self._marks))

    def _with_subtotals(self, shape: ResultColumns, form: Form, low: int, high: int) -> pa.Table:
        """The rows of each set of keys: those of the finest keys, merged."""
        part = slice(low, high)
        key, start, end = self.key[part], self.start[part], self.end[part]
        fields = {name: column[part] for name, column in self.fields.items()}
        if self.rows is not None:
            fields = {name: take(c, self.rows[part]) for name, c in self.fields.items()}
        found = subtotals((start, end), self.keys.take(key), fields, self.operators, form.sets)
        made = []
        for places, (rows, merged) in zip(form.sets, found, strict=True):
            some = Block(self.keys, key[rows], start[rows], end[rows], dict(merged), self.operators)
            made.append(some._make(shape, form, 0, len(some), places))
        return pa.concat_tables(made)

    @property
    def _marks(self) -> ResultMarks:
        return ResultMarks(self.index is not None, self.node is not None)

    @QUIET
    def _lower(self, shape: ResultColumns, form: Form, low: int, high: int) -> list[pa.Array[Any]]:
        whole = low == 0 and high == len(self)
        if whole:
            rows, place = self._whole or computed(self.operators, self.fields), self.rows
            self._whole = rows
        else:
            fields, place = self._part(low, high)
            rows = computed(self.operators, fields)
        columns = []
        for aggregate in form.aggregates:
            text = (aggregate.function, aggregate.column, aggregate.params)
            made = self._lowered.get(text) if whole else None
            if made is None:
                made = function_of(aggregate).lower(aggregate, rows, shape.types[aggregate.column])
                made = self._blank(made if place is None else made.take(place), low, high)
                if whole:
                    self._lowered[text] = made
            columns.append(made)
        return columns

    def _part(self, low: int, high: int) -> tuple[dict[str, Field], Ints | None]:
        """The fields of the rows `[low, high)`, and the place of each row among them.

        Rows that windows share are lowered once.
        """
        if self.rows is None or low == high:
            return {name: column[low:high] for name, column in self.fields.items()}, None
        shared, place = np.unique(self.rows[low:high], return_inverse=True)
        if len(shared) == shared[-1] - shared[0] + 1:
            some = slice(int(shared[0]), int(shared[-1]) + 1)
            return {name: column[some] for name, column in self.fields.items()}, place
        return {name: take(column, shared) for name, column in self.fields.items()}, place

    def _blank(self, values: pa.Array[Any], low: int, high: int) -> pa.Array[Any]:
        """Nulls in the rows of windows that are no more."""
        if self.retracted is None or not self.retracted[low:high].any():
            return values
        gone = pa.array(self.retracted[low:high])
        made: pa.Array[Any] = pc.if_else(gone, pa.scalar(None, values.type), values)
        return made


def times(values: Ints) -> pa.Array[Any]:
    return pa.array(values, pa.int64()).view(TIME)


AggregateText = tuple[str, str | None, tuple[object, ...]]


class Leaf(Protocol):
    """Result rows of one group, from which tables are cut."""

    @property
    def complete(self) -> bool: ...

    def table(self, shape: ResultColumns, answer: int, low: int, high: int) -> pa.Table: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class BlockPart:
    """Some following rows of a block; stands where a block would."""

    block: Leaf
    low: int
    high: int

    @property
    def complete(self) -> bool:
        return self.block.complete

    def __len__(self) -> int:
        return self.high - self.low

    def table(self, shape: ResultColumns, answer: int, low: int, high: int) -> pa.Table:
        return self.block.table(shape, answer, self.low + low, self.low + high)


class Form(NamedTuple):
    """Aggregates that some answers of a group have in common, and whether most windows do."""

    number: int
    aggregates: tuple[Aggregate, ...]
    common: bool
    keys: tuple[str, ...]
    """What results call the keys."""
    sets: tuple[tuple[int, ...], ...] = ()
    """The places of the keys of each set that there are subtotals for."""


class ResultMarks(NamedTuple):
    """What the results of a window type say besides the bounds."""

    numbered: bool
    named: bool

    @classmethod
    def of(cls, window: Window) -> ResultMarks:
        return cls(window.bounds_repeat, window.stream_reading == "local" and not window.by_node)


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
        self._staged = {n for n, answer in enumerate(group.answers) if answer.output is not None}
        """The answers of whose aggregates something is made."""
        self._stages: dict[int, OutputStage] = {}
        self._outputs: dict[int, tuple[pa.Schema, int]] = {}

    def schema(self, form: Form, marks: ResultMarks) -> pa.Schema:
        key = (form.number, marks)
        if key not in self._schemas:
            self._schemas[key] = self._schema(form, marks)
        return self._schemas[key]

    def _schema(self, form: Form, marks: ResultMarks) -> pa.Schema:
        kinds = [self.key_types.get(name, pa.null()) for name in self.group.by]
        fields = [pa.field(*pair) for pair in zip(form.keys, kinds, strict=True)]
        fields += [pa.field(GROUPING_ID, pa.int64())] if form.sets else []
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

    def marks(self, answer: int) -> ResultMarks:
        return ResultMarks.of(self.group.windows[self.group.answers[answer].window])

    def stage(self, answer: int) -> OutputStage | None:
        """What is made of an answer's aggregates, if they are not the results as they are."""
        if answer not in self._staged:
            return None
        if answer not in self._stages:
            output, form = self.group.answers[answer].output, self.forms[answer]
            assert output is not None
            self._stages[answer] = OutputStage(output, form.keys, len(form.aggregates))
        return self._stages[answer]

    def result(self, answer: int, table: pa.Table) -> pa.Table:
        """The results of an answer, of the table of its aggregates."""
        stage = self.stage(answer)
        if stage is None:
            return table
        if answer not in self._outputs:
            form, marks = self.forms[answer], self.marks(answer)
            lead = len(form.keys) + bool(form.sets) + marks.named + 2 + marks.numbered
            self._outputs[answer] = stage.schema(self.schema(form, marks), lead), lead
        return stage.apply(table, *self._outputs[answer])

    def result_schema(self, answer: int) -> pa.Schema:
        """The columns of an answer's results."""
        return self.result(answer, self.empty(answer)).schema

    def misfits(self, answer: int, query: str) -> Iterable[CatchmentError]:
        """What an answer makes of its aggregates although their types do not allow it."""
        stage = self.stage(answer)
        if stage is None:
            return ()
        return stage.misfits(self.schema(self.forms[answer], self.marks(answer)), query)

    def empty(self, answer: int) -> pa.Table:
        return self.schema(self.forms[answer], self.marks(answer)).empty_table()


_Alike = tuple[tuple[Aggregate, ...], tuple[str, ...], tuple[tuple[int, ...], ...]]


def _forms(group: Group) -> list[Form]:
    windows: dict[_Alike, set[int]] = {}
    found: list[_Alike] = []
    for answer in group.answers:
        keys = answer.keys or group.by
        sets = answer.output.sets if answer.output is not None else ()
        places = tuple(tuple(keys.index(key) for key in some) for some in sets)
        found.append((answer.aggregates, keys, places))
        windows.setdefault(found[-1], set()).add(answer.window)
    numbers = {form: number for number, form in enumerate(windows)}
    most = {form: 2 * len(w) >= len(group.windows) for form, w in windows.items()}
    return [
        Form(numbers[form], form[0], most[form] and not form[2], form[1], form[2]) for form in found
    ]


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


AnswerId = tuple[int, int, int]
"""Group, window, selection."""


class Results(PlottedResults):
    """Query name to the windows now complete, as an Arrow table made when it is asked for.

    Iterates over the queries that have rows; a query without any gives an empty table.

        results = engine.advance("2026-01-01 00:01")
        results["speed"].to_pandas()
        results.plot("speed")

    `results[name]` raises KeyError for a name that no query has.
    """

    def __init__(
        self,
        plan: Plan,
        shapes: Mapping[int, ResultColumns],
        names: NamesOf,
        limits: Mapping[str, Limit] | None = None,
        with_complete: bool = False,
        early: bool = False,
    ) -> None:
        self.limits = dict(limits or {})
        self._early = early
        """Whether results say of all windows whether they have ended: some are running values."""
        self._with_complete = with_complete
        """Whether results say of windows that may never end whether they have."""
        self._plan = plan
        self.shapes = shapes
        self.names = names
        self.parts: dict[AnswerId, list[tuple[Leaf, int, int]]] = {}
        self._made: dict[tuple[int, int], pa.Table] = {}

    def add(self, group: int, block: Leaf, spans: list[tuple[int, int, int, int]]) -> None:
        """Adds a block whose rows `[low, high)` are of a window and selection."""
        for window, selection, low, high in spans:
            if high > low:
                self.parts.setdefault((group, window, selection), []).append((block, low, high))

    def __getitem__(self, name: str) -> pa.Table:
        tables = [*(self._of(former) for former in self.names.former(name)), self._of(name)]
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def _of(self, name: str) -> pa.Table:
        group, number = self._plan.names[name]
        return self._limited(name, self.answer(group, number))

    def answer(self, group: int, number: int) -> pa.Table:
        """The rows of an answer, once all blocks of its group were added."""
        table = self._made.get((group, number))
        if table is None:
            answer = self._plan.every_group[group].answers[number]
            parts = self.parts.get((group, answer.window, answer.selection))
            table = self._made[group, number] = self._make(group, number, parts or [])
        return table

    def _make(self, group: int, number: int, parts: list[tuple[Leaf, int, int]]) -> pa.Table:
        shape = self.shapes[group]
        if len(parts) == 1 and not self._early and not self._with_complete:
            block, low, high = parts[0]  # as of thousands of queries in a step
            return shape.result(number, block.table(shape, number, low, high))
        tables = [
            self._judged(group, number, block.table(shape, number, low, high), block.complete)
            for block, low, high in parts
        ] or [self._judged(group, number, shape.empty(number), True)]
        whole = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        return shape.result(number, whole)

    def ordered(self, name: str) -> bool:
        """Whether the rows of a query come in an order that it asked for."""
        group, number = self._plan.names[name]
        output = self._plan.every_group[group].answers[number].output
        return output is not None and bool(output.order)

    def _judged(self, group: int, number: int, table: pa.Table, complete: bool) -> pa.Table:
        """The table, and whether its windows have ended where that is to be said."""
        made = self._plan.every_group[group]
        may_be_open = made.windows[made.answers[number].window].bounded_by_events
        if not self._early and not (self._with_complete and may_be_open):
            return table
        column = pa.repeat(pa.scalar(complete), table.num_rows)
        return table.append_column(COMPLETE, column)

    def _limited(self, name: str, table: pa.Table) -> pa.Table:
        return self.limits[name].within(table) if name in self.limits else table

    def _pairs(self) -> Iterator[tuple[str, pa.Table]]:
        """The queries that have rows, each with a table of all of them."""
        former = self._plan.former
        if not former:
            yield from self._places()
            return
        found: dict[str, list[pa.Table]] = {}
        for name, table in self._places():
            tables = found.setdefault(former.get(name, name), [])
            tables.insert(0 if name in former else len(tables), table)  # its windows are older
        for name, tables in found.items():
            yield name, tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def _places(self) -> Iterator[tuple[str, pa.Table]]:
        """The names in the plan that have rows, each distinct computation made once."""
        for place, parts in self.parts.items():
            for number, names in self.names.of(place):
                table = self._made.get((place[0], number))
                if table is None:
                    table = self._make(place[0], number, parts)
                    self._made[place[0], number] = table
                for name in names if table.num_rows else ():
                    if name not in self.limits:
                        yield name, table
                    elif (some := self._limited(name, table)).num_rows:
                        yield name, some

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._pairs())

    def items(self) -> ItemsView[str, pa.Table]:
        return _Items(self)

    def values(self) -> ValuesView[pa.Table]:
        return _ResultValues(self)

    def __len__(self) -> int:
        if self.limits or self.names.some_select:
            return sum(1 for _ in self)
        return sum(self.names.count(place) for place in self.parts)

    def __contains__(self, name: object) -> bool:
        known = name in self._plan.names and name not in self._plan.former
        return known and self[str(name)].num_rows > 0

    def _repr_html_(self) -> str:
        """For notebooks: the first rows of the first queries."""
        names = list(islice(self, _SHOWN))
        parts = [html.heading(f"{len(self):,} queries with results, {self.rows():,} rows")]
        for name in names:
            parts += [html.heading(name), html.arrow_table(self[name], 5)]
        return "".join(parts)

    def rows(self) -> int:
        """Result rows of all queries together, without making their tables where that tells."""
        if self.limits or self.names.some_select:
            return sum(table.num_rows for _, table in self._places())
        return sum(
            self.names.count(place) * sum(high - low for _, low, high in parts)
            for place, parts in self.parts.items()
        )

    def pieces(self, rows: int) -> Iterator[tuple[int, Results]]:
        """The same results in pieces of one block and at most so many of its rows, each with the
        id of its group. Of a group that takes all keys of a window together, they are one piece."""
        blocks: dict[int, tuple[int, Leaf, list[tuple[int, int, int, int]]]] = {}
        whole: dict[int, Results] = {}
        for (group, window, selection), parts in self.parts.items():
            for block, low, high in parts:
                if not self.names.count((group, window, selection)):
                    continue  # other queries have read them
                if self._plan.every_group[group].whole:
                    piece = whole.setdefault(group, self._none())
                    piece.add(group, block, [(window, selection, low, high)])
                    continue
                spans = blocks.setdefault(id(block), (group, block, []))[2]
                spans.append((window, selection, low, high))
        yield from whole.items()
        for group, block, spans in blocks.values():
            for begin in range(0, len(block), rows):
                part = BlockPart(block, begin, min(begin + rows, len(block)))
                inside = [
                    (window, selection, max(low, part.low) - begin, min(high, part.high) - begin)
                    for window, selection, low, high in spans
                ]
                piece = self._none()
                piece.add(group, part, inside)
                yield group, piece

    def _none(self) -> Results:
        return Results(self._plan, self.shapes, self.names, self.limits, self._with_complete)


class _Items(ItemsView[str, pa.Table]):
    _mapping: Results

    def __iter__(self) -> Iterator[tuple[str, pa.Table]]:
        return self._mapping._pairs()


class _ResultValues(ValuesView[pa.Table]):
    _mapping: Results

    def __iter__(self) -> Iterator[pa.Table]:
        return (table for _, table in self._mapping._pairs())


class NamesOf:
    """The answers over a window and selection of a group, and their names; made once per plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._answers: dict[AnswerId, dict[int, list[str]]] = {}
        self._former: dict[str, list[str]] = {}
        self.some_select = any(
            answer.output is not None and answer.output.selects
            for group in plan.every_group
            for answer in group.answers
        )
        """Whether a query may give other rows than one for each key and window."""

    def of(self, place: AnswerId) -> Iterable[tuple[int, list[str]]]:
        if not self._answers:
            for name, (group, number) in self._plan.names.items():
                answer = self._plan.every_group[group].answers[number]
                key = (group, answer.window, answer.selection)
                self._answers.setdefault(key, {}).setdefault(number, []).append(name)
        return self._answers.get(place, {}).items()

    def former(self, query: str) -> list[str]:
        """The names that stand for windows of a query which other groups have open."""
        if not self._former and self._plan.former:
            for name, owner in self._plan.former.items():
                self._former.setdefault(owner, []).append(name)
        return self._former.get(query, [])

    def count(self, place: AnswerId) -> int:
        return sum(len(names) for _, names in self.of(place))
