"""Fitting queries and plans to a job's rules and to the columns of real events.

A plan and a schema go in; the schema that events are worked on in and the types of the aggregated
expressions come out, or the mistakes: the first is raised (`bind_types`, `admitted`), or all are
listed (`misfits`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catchment import expression
from catchment.engine.nested import column_at, with_paths
from catchment.engine.results import ResultColumns
from catchment.engine.times import read_times, timed_schema
from catchment.errors import CatchmentError, SchemaError, did_you_mean
from catchment.expression import column_in
from catchment.expression.values import is_text
from catchment.functions import function_of
from catchment.model.early import FINAL
from catchment.model.plan import Group, Plan
from catchment.model.query import Query
from catchment.model.rules import (
    QueryRules,
    bound,
    correcting,
    no_updates,
    no_updates_of_chains,
    no_updates_of_whole,
    other_time,
)
from catchment.model.settings import Late
from catchment.model.time_column import TimeColumn, TimeSpec, time_name
from catchment.model.window import STREAM
from catchment.planner import plan as plan_of

Types = dict[str | None, pa.DataType | None]


def columns_of(group: Group) -> set[str]:
    """The columns of events that a group reads."""
    texts = [column for _, column, _ in group.operators if column]
    texts += [condition for condition in group.selections if condition]
    texts += group.computed
    for window in group.windows:
        texts += [*window.conditions, *window.durations, *window.reads]
    read = {name for text in texts if text != STREAM for name in expression.columns(text)}
    return read | (set(group.by) - {*group.computed, STREAM}) | set(group.distinct_on)


def key_types(group: Group, schema: pa.Schema) -> dict[str, pa.DataType]:
    """The types of a group's keys in results, by its columns and expressions."""
    return {
        name: expression.infer(name, schema)
        if name in group.computed
        else key_type(pa.string() if name == STREAM else schema.field(name).type)
        for name in group.by
    }


Refuse = Callable[[CatchmentError], None]
"""What is done with a mistake: it is raised, or collected with others."""


def _raise(mistake: CatchmentError) -> None:
    raise mistake


def admitted(
    query: Query,
    rules: QueryRules,
    schema: pa.Schema | None = None,
    others: Mapping[str, Query] | None = None,
) -> Query:
    """The query as one of a job's; raises the first reason why it cannot be one.

    Whoever adds a query to a job that exists calls this: the job's rules are applied, the query is
    planned on its own, and where the columns of the events are known it is fitted to them. It may
    read results of `others`.
    """
    query = bound(query, rules, others)
    made = plan_of([query])
    if schema is not None:
        bind_types(made, schema, rules.time, rules.late)
    return query


def bind_types(
    plan: Plan, schema: pa.Schema, time: TimeSpec, late: Late = "drop"
) -> tuple[pa.Schema, dict[int, Types]]:
    """The schema events are worked on in, and by group the types of aggregated expressions.

    Refuses what does not fit.
    """
    check_rules(plan, time_name(time), correcting(late, FINAL))
    schema = timed_schema(schema, time)
    schema = _plain_schema(plan, schema, _raise)
    names, known = _some_names(plan), dict[str, pa.DataType]()
    return schema, {
        group.id: _group_types(group, schema, names.get(group.id, "?"), _raise, known)
        for group in plan.groups
    }


def misfits(plan: Plan, schema: pa.Schema) -> list[CatchmentError]:
    """Every reason why a plan does not fit the columns of events, other than their time."""
    found: list[CatchmentError] = []
    schema = _plain_schema(plan, schema, found.append)
    names, known = _some_names(plan), dict[str, pa.DataType]()
    for group in plan.groups:
        _group_types(group, schema, names.get(group.id, "?"), found.append, known)
    return found


def check_rules(plan: Plan, time: str, corrects: str | None) -> None:
    """Refuses a plan whose queries name another time column, or whose results cannot be corrected.

    `corrects` is what lets results be corrected that were given; None: nothing.
    """
    if plan.time is not None and plan.time != time:
        raise other_time("a query of the plan names", plan.time, time)
    if corrects is None:
        return
    for group in plan.groups:
        name = _some_names(plan).get(group.id, "?")
        if group.slicing == "stream":
            readings = [w.stream_reading for w in group.windows if w.stream_reading]
            raise no_updates(name, readings[0], corrects)
        if not all(window.correctable for window in group.windows):
            raise no_updates_of_chains(name, corrects)
        if group.whole:
            raise no_updates_of_whole(name, corrects)


def _some_names(plan: Plan) -> dict[int, str]:
    """By group, the name of its first query."""
    names: dict[int, str] = {}
    for name, (group, _) in plan.names.items():
        names.setdefault(group, name)
    return names


def group_types(group: Group, schema: pa.Schema, query: str = "?") -> Types:
    """The types of a group's aggregated expressions; refuses what does not fit the columns."""
    return _group_types(group, schema, query, _raise, {})


def _group_types(
    group: Group, schema: pa.Schema, query: str, refuse: Refuse, known: dict[str, pa.DataType]
) -> Types:
    """Does what `group_types` does; `known` has types of expressions that were found before."""
    missing = frozenset(columns_of(group)) - set(schema.names)
    for name in sorted(missing):
        hint = did_you_mean(name, schema.names)
        refuse(SchemaError(f"query {query!r}: no such column", given=name, hint=hint))
    typing = _Typing(schema, missing, refuse, known)
    lengths = typing.check_lengths(group, query)  # before the conditions that follow from them
    typing.check_conditions(group, query)
    keys = _check_keys(group, schema, typing, query)
    types: Types = {None: None}
    aggregates = [aggregate for answer in group.answers for aggregate in answer.aggregates]
    # Some operators may outlive the query that brought them.
    columns = [a.column for a in aggregates] + [column for _, column, _ in group.operators]
    columns += lengths
    for column in columns:
        if column is not None and column not in types:
            kind = typing.infer(column)
            types[column] = None if kind is None else _value_type(kind)
    for aggregate in aggregates:
        kind = types[aggregate.column]
        if kind is not None or aggregate.column is None:
            try:
                function_of(aggregate).check_type(aggregate, kind, query)
            except CatchmentError as mistake:
                refuse(mistake)
    computed = any(answer.output is not None for answer in group.answers)
    known_all = None not in [types[a.column] for a in aggregates if a.column]
    if computed and keys is not None and known_all:
        _check_outputs(ResultColumns(group, types, keys, False), query, refuse)
    return types


def _check_keys(
    group: Group, schema: pa.Schema, typing: _Typing, query: str
) -> dict[str, pa.DataType] | None:
    """The types of the keys; None where a mistake in one of them was told."""
    for text in group.computed:
        if text in schema.names and expression.columns(text) != (text,):
            hint = "rename the column, or compute the key before"
            told = f"query {query!r}: a computed key is written like the name of a column"
            typing.refuse(SchemaError(told, given=text, hint=hint))
            return None
        if typing.infer(text) is None:
            return None
    if typing.missing:
        return None
    for keys in {answer.keys for answer in group.answers if answer.keys}:
        for name, text in zip(keys, group.by, strict=True):
            own = expression.columns(text) if text in group.computed else (text,)
            if name in schema.names and name not in own and text != STREAM:
                typing.refuse(
                    SchemaError(
                        f"query {query!r}: a key is ambiguous: events have a column of its name",
                        given=f"{name} for {text}",
                        hint="give the key a name that no column has",
                    )
                )
                return None
    return key_types(group, schema)


def _check_outputs(shape: ResultColumns, query: str, refuse: Refuse) -> None:
    for number in range(len(shape.group.answers)):
        for mistake in shape.misfits(number, query):
            refuse(mistake)


@dataclass(frozen=True)
class _Typing:
    """Finds the types of expressions over a schema; each mistake is told once."""

    schema: pa.Schema
    missing: frozenset[str]
    """Columns that the schema lacks, which was told already."""
    refuse: Refuse
    known: dict[str, pa.DataType]
    """Types that were found before, of expressions that fit the schema."""

    def infer(self, text: str) -> pa.DataType | None:
        """The type of an expression; None where a mistake in it was told."""
        found = pa.string() if text == STREAM else self.known.get(text)
        if found is not None:
            return found
        if self.missing and self.missing.intersection(expression.columns(text)):
            return None
        try:
            found = self.known[text] = expression.infer(text, self.schema)
        except CatchmentError as mistake:
            self.refuse(mistake)
        return found

    def check_conditions(self, group: Group, query: str) -> None:
        """Refuses conditions of queries and windows that are not true or false."""
        conditions = [(text, "where") for text in group.selections if text]
        for window in group.windows:
            conditions += [(text, "window condition") for text in window.conditions]
        for text, what in conditions:
            kind = self.infer(text)
            if kind is not None and not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
                self.refuse(
                    SchemaError(
                        f"query {query!r}: the {what} is not a condition",
                        given=f"{text} is {kind}",
                        hint="compare it with something, as in v > 0",
                    )
                )

    def check_lengths(self, group: Group, query: str) -> list[str | None]:
        """What windows are given of events; refuses a length that is no number."""
        texts = dict.fromkeys(text for window in group.windows for text in window.durations)
        for text in texts:
            kind = self.infer(text)
            if kind is not None and not _is_number(kind):
                self.refuse(
                    SchemaError(
                        f"query {query!r}: the gap of a session is a number of seconds",
                        given=f"{text} is {kind}",
                        hint="name a column of numbers, or an expression, as in gap_ms / 1000",
                    )
                )
        return [*texts, *(text for window in group.windows for text in window.reads)]


def _is_number(kind: pa.DataType) -> bool:
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return plain or pa.types.is_decimal(kind) or pa.types.is_null(kind)


def _value_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    return pa.float64() if pa.types.is_null(kind) else kind


def _plain_schema(plan: Plan, schema: pa.Schema, refuse: Refuse) -> pa.Schema:
    """The columns that are read, in the types that they are worked on in."""
    needed = set().union(*(columns_of(group) for group in plan.groups))
    schema = with_paths(schema, needed, refuse)
    keys = set().union(*({*group.by} - {*group.computed} for group in plan.groups))
    for name in needed:
        if schema.names.count(name) > 1:
            hint = "rename one of them"
            refuse(SchemaError("two columns have one name", given=name, hint=hint))
    fields = [
        pa.field(field.name, _plain_type(field.type, field.name in keys))
        if field.name in needed
        else field
        for field in schema
    ]
    return pa.schema(fields)


def _plain_type(kind: pa.DataType, key: bool) -> pa.DataType:
    if isinstance(kind, pa.DictionaryType):
        inner = _plain_type(kind.value_type, key)
        return kind if is_text(inner) and inner == kind.value_type else inner
    if pa.types.is_run_end_encoded(kind):
        return _plain_type(kind.value_type, key)
    if pa.types.is_null(kind):
        return kind if key else pa.float64()  # a later batch may have numbers
    if kind == pa.string_view():
        return pa.string()
    return pa.binary() if kind == pa.binary_view() else kind


def conform(
    table: pa.Table, schema: pa.Schema, needed: set[str], time: TimeSpec | None = None
) -> pa.Table:
    """The needed columns, in the types first seen; refuses a column that is gone or changed.

    Epochs and texts of the time column become times; null where they are none.
    """
    columns = {}
    for name in schema.names:
        if name not in needed:
            continue
        if table.schema.names.count(name) > 1:
            raise SchemaError("two columns have one name", given=name, hint="rename one of them")
        there = name in table.schema.names
        if not there and column_in(table.schema.names, name) is None:
            raise SchemaError(
                "a column that was there before is missing",
                given=name,
                hint=did_you_mean(name, table.schema.names),
            )
        column = table.column(name) if there else column_at(table, name)
        wanted = schema.field(name).type
        if isinstance(time, TimeColumn) and name == time.column:
            column = read_times(column, time)
        if column.type != wanted:
            column = _cast(column, name, wanted)
        columns[name] = column
    return pa.table(columns)


def _cast(column: pa.ChunkedArray[Any], name: str, wanted: pa.DataType) -> pa.ChunkedArray[Any]:
    try:
        if isinstance(wanted, pa.DictionaryType):
            column = column.cast(wanted.value_type)
            return column.dictionary_encode()
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {name!r} changed its type",
            given=f"{column.type}, before {wanted}",
            hint="push events of one schema, or cast them",
        ) from error


def key_type(kind: pa.DataType) -> pa.DataType:
    """The type of a key column in results, by its type in events."""
    plain = _plain_type(kind, True)
    return plain.value_type if isinstance(plain, pa.DictionaryType) else plain
