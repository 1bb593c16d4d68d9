"""Fitting a plan to the columns of real events."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from catchment import expression
from catchment.errors import QueryError, SchemaError, did_you_mean
from catchment.functions import function_of
from catchment.model.plan import Group, Plan
from catchment.model.window import Marked

Types = dict[str | None, pa.DataType | None]


def columns_of(group: Group) -> set[str]:
    """The columns of events that a group reads."""
    texts = [column for _, column, _ in group.operators if column]
    texts += [condition for condition in group.selections if condition]
    for window in group.windows:
        if isinstance(window, Marked):
            texts += [text for text in (window.opens, window.closes) if text]
    read = {name for text in texts for name in expression.columns(text)}
    return read | set(group.by) | set(group.distinct_on)


def bind_types(
    plan: Plan, schema: pa.Schema, time: str, late: str = "drop"
) -> tuple[pa.Schema, dict[int, Types]]:
    """The schema events are worked on in, and by group the types of aggregated expressions.

    Refuses what does not fit.
    """
    refuse_updates(plan, late)
    _check_time(schema, time)
    schema = _plain_schema(plan, schema)
    return schema, {
        group.id: group_types(group, schema, _some_name(plan, group)) for group in plan.groups
    }


def refuse_updates(plan: Plan, late: str) -> None:
    """A late mark would split slices that were cut on its node and have climbed already."""
    for group in plan.groups:
        if late == "update" and group.slicing == "stream":
            readings = [w.reading for w in group.windows if isinstance(w, Marked)]
            raise QueryError(
                f"query {_some_name(plan, group)!r}: windows cut on each node cannot be corrected "
                "by late events", given=f"reading={readings[0]!r} with late='update'",
                hint="leave out reading, or drop or collect late events",
            )  # fmt: skip


def _check_time(schema: pa.Schema, time: str) -> None:
    if time not in schema.names:
        raise SchemaError(
            "the events have no such time column", given=time,
            hint=did_you_mean(time, schema.names),
        )  # fmt: skip
    if schema.names.count(time) > 1:
        raise SchemaError("two columns have one name", given=time, hint="rename one of them")
    kind = schema.field(time).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise SchemaError(
            f"the time column {time!r} is not a time", given=str(kind),
            hint="cast it to a timestamp first, or name another column with time=",
        )  # fmt: skip


def _some_name(plan: Plan, group: Group) -> str:
    return next((name for name, (g, _) in plan.names.items() if g == group.id), "?")


def group_types(group: Group, schema: pa.Schema, query: str = "?") -> Types:
    """The types of a group's aggregated expressions."""
    for name in sorted(columns_of(group)):
        if name not in schema.names:
            raise SchemaError(
                f"query {query!r}: no such column", given=name,
                hint=did_you_mean(name, schema.names),
            )  # fmt: skip
    conditions = [(text, "where") for text in group.selections if text]
    for window in group.windows:
        if isinstance(window, Marked):
            conditions += [(t, "window condition") for t in (window.opens, window.closes) if t]
    for text, what in conditions:
        kind = expression.infer(text, schema)
        if not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            raise SchemaError(
                f"query {query!r}: the {what} is not a condition", given=f"{text} is {kind}",
                hint="compare it with something, as in v > 0",
            )  # fmt: skip
    types: Types = {None: None}
    for answer in group.answers:
        for aggregate in answer.aggregates:
            column = aggregate.column
            if column is not None and column not in types:
                types[column] = _value_type(expression.infer(column, schema))
            function_of(aggregate).check_type(aggregate, types[column], query)
    for _, column, _ in group.operators:  # some may outlive the query that brought them
        if column is not None and column not in types:
            types[column] = _value_type(expression.infer(column, schema))
    return types


def _value_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    return pa.float64() if pa.types.is_null(kind) else kind


def _plain_schema(plan: Plan, schema: pa.Schema) -> pa.Schema:
    """The columns that are read, in the types that they are worked on in."""
    needed = set().union(*(columns_of(group) for group in plan.groups))
    keys = set().union(*(group.by for group in plan.groups))
    for name in needed:
        if schema.names.count(name) > 1:
            raise SchemaError("two columns have one name", given=name, hint="rename one of them")
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
        text = pa.types.is_string(inner) or pa.types.is_large_string(inner)
        return kind if text and inner == kind.value_type else inner
    if pa.types.is_run_end_encoded(kind):
        return _plain_type(kind.value_type, key)
    if pa.types.is_null(kind):
        return kind if key else pa.float64()  # a later batch may have numbers
    if kind == pa.string_view():
        return pa.string()
    return pa.binary() if kind == pa.binary_view() else kind


def conform(table: pa.Table, schema: pa.Schema, needed: set[str]) -> pa.Table:
    """The needed columns, in the types first seen; refuses a column that is gone or changed."""
    columns = {}
    for name in schema.names:
        if name not in needed:
            continue
        if table.schema.names.count(name) > 1:
            raise SchemaError("two columns have one name", given=name, hint="rename one of them")
        if name not in table.schema.names:
            raise SchemaError(
                "a column that was there before is missing", given=name,
                hint=did_you_mean(name, table.schema.names),
            )  # fmt: skip
        column = table.column(name)
        wanted = schema.field(name).type
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
            f"column {name!r} changed its type", given=f"{column.type}, before {wanted}",
            hint="push events of one schema, or cast them",
        ) from error  # fmt: skip


def key_type(kind: pa.DataType) -> pa.DataType:
    """The type of a key column in results."""
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind
