"""Lists and maps as values: how many elements they have, and whether one is among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.expression.casting import cast
from catchment.expression.nodes import Call, Literal
from catchment.expression.values import (
    BOOL,
    INT,
    STRING,
    Value,
    common,
    convert,
    is_list,
    kind,
    mismatch,
    null,
)


def size(node: Call, args: Sequence[Value]) -> Value:
    """How many elements a list or a map has; null of null, as in Spark's ANSI mode."""
    (value,) = args
    if pa.types.is_null(value.type):
        return null(INT)
    if pa.types.is_map(value.type):
        value = pc.cast(value, pa.list_(pa.struct([value.type.key_field, value.type.item_field])))
    elif not is_list(value.type):
        raise mismatch(node, args, "a list or a map", "length(text) counts characters")
    return pc.cast(pc.list_value_length(value), INT)


def contains(node: Call, args: Sequence[Value]) -> Value:
    """Whether a list has an element; null of a null list, and where only a null may be it."""
    values, wanted = args
    if not is_list(values.type) or not isinstance(node.args[1], Literal):
        raise mismatch(node, args, "a list and a constant", "as in array_contains(tags, 'a')")
    if pa.types.is_null(wanted.type) or isinstance(values, pa.Scalar):
        return null(BOOL)
    element = pa.array([], values.type.value_type)
    if kind(element) != kind(wanted):
        raise mismatch(node, [element, wanted], "values of one type")
    found = pc.equal(values.flatten(), convert(wanted, values.type.value_type))
    parents = pc.list_parent_indices(values)
    grouped = pa.table({"row": parents, "found": found}).group_by("row", use_threads=False)
    # Of no element but nulls, nobody knows: any() of nulls and false is null, as OR is.
    known = pc.ScalarAggregateOptions(skip_nulls=False, min_count=0)
    told = grouped.aggregate([("found", "any", known)])
    rows = pa.array(range(len(values)), told.column("row").type)
    place = pc.index_in(rows, value_set=told.column("row").combine_chunks())
    among = told.column("found_any").combine_chunks().take(place)
    empty = pc.equal(pc.list_value_length(values), pa.scalar(0))
    return pc.if_else(pc.coalesce(empty, pa.scalar(False)), pa.scalar(False), among)


def element_at(node: Call, args: Sequence[Value]) -> Value:
    """An element by its place from 1, or from the end if it is negative; a value by its key."""
    values, wanted = args
    if pa.types.is_null(values.type):
        return null(pa.null())
    if pa.types.is_map(values.type):
        key = pa.scalar(_fixed(node, args), values.type.key_type)
        return pc.map_lookup(values, key, "first")
    if not is_list(values.type):
        raise mismatch(node, args, "a list or a map", "as in element_at(items, 1)")
    place = _fixed(node, args)
    if not isinstance(place, int) or place == 0 or wanted.type != INT:
        raise mismatch(node, args, "a list and a place from 1", "as in element_at(items, 1)")
    scalar = isinstance(values, pa.Scalar)
    lists: Any = pa.array([values.as_py()], values.type) if scalar else values
    lengths = pc.cast(pc.list_value_length(lists), INT)
    first = pa.scalar(place - 1) if place > 0 else pc.add(lengths, pa.scalar(place))
    there = pc.and_(pc.less(first, lengths), pc.greater_equal(first, pa.scalar(0)))
    known = pc.coalesce(lengths, pa.scalar(0))
    starts = pc.subtract(pc.cumulative_sum(known), known)
    at = pc.if_else(pc.coalesce(there, pa.scalar(False)), pc.add(starts, first), null(INT))
    made: Any = lists.flatten().take(at)
    return made[0] if scalar else made


def _fixed(node: Call, args: Sequence[Value]) -> object:
    if not isinstance(node.args[1], Literal):
        raise mismatch(node, args, "a constant", "as in element_at(items, 1)")
    return node.args[1].value


def extreme(node: Call, args: Sequence[Value]) -> Value:
    """array_max and array_min: nulls are passed over, NaN is the greatest; null of no values."""
    (values,) = args
    if pa.types.is_null(values.type):
        return null(pa.null())
    if not is_list(values.type):
        raise mismatch(node, args, "a list", "as in array_max(items)")
    scalar = isinstance(values, pa.Scalar)
    lists: Any = pa.array([values.as_py()], values.type) if scalar else values
    flat = lists.flatten()
    if kind(flat) not in ("int", "float", "decimal", "string", "time", "date", "bool", "null"):
        raise mismatch(node, [flat], "values with an order")
    least = node.op == "array_min"
    nan = pc.is_nan(flat) if pa.types.is_floating(flat.type) else pc.is_null(flat)
    table = pa.table({"row": pc.list_parent_indices(lists), "value": flat, "nan": nan})
    table = table.filter(pc.is_valid(table.column("value")))
    by: Any = [(name, "ascending" if least else "descending") for name in ("nan", "value")]
    table = table.sort_by(by)
    order = table.group_by("row", use_threads=False).aggregate([("value", "first")])
    rows = pa.array(range(len(lists)), order.column("row").type)
    place = pc.index_in(rows, value_set=order.column("row").combine_chunks())
    made = order.column("value_first").combine_chunks().take(place)
    return made[0] if scalar else made


def array(node: Call, args: Sequence[Value]) -> Value:
    """array(a, b): a list of these values."""
    values = common(node, args)
    lengths = [len(value) for value in values if not isinstance(value, pa.Scalar)]
    n, width = lengths[0] if lengths else 1, len(values)
    repeat: Any = pa.repeat
    whole = [repeat(value, n) if isinstance(value, pa.Scalar) else value for value in values]
    order = pa.array(np.arange(n * width).reshape(width, n).T.ravel())
    offsets = pa.array(np.arange(0, (n + 1) * width, width), pa.int32())
    made: Any = pa.ListArray.from_arrays(offsets, pa.concat_arrays(whole).take(order))
    return made if lengths else made[0]


_Made = Callable[[Any, Any], Any]


def _of_lists(node: Call, values: Value, made: _Made) -> Value:
    """New lists for lists: `made` takes the row of each element and the elements, and gives a
    table of both, in the order of rows."""
    if not is_list(values.type):
        raise mismatch(node, [values], "a list", f"as in {node.op}(items)")
    scalar = isinstance(values, pa.Scalar)
    lists: Any = pa.array([values.as_py()], values.type) if scalar else values
    found = made(pc.cast(pc.list_parent_indices(lists), INT), lists.flatten())
    rows, elements = (found.column(name).combine_chunks() for name in ("row", "value"))
    ends = np.searchsorted(rows.to_numpy(), np.arange(len(lists) + 1))
    missing = np.append(pc.is_null(lists).to_numpy(zero_copy_only=False), False)
    offsets = pa.array(ends, pa.int32(), mask=missing)
    whole: Any = pa.ListArray.from_arrays(offsets, elements)
    return whole[0] if scalar else whole


def ordered(node: Call, args: Sequence[Value]) -> Value:
    """sort_array and array_sort: the elements in order; NaN is the greatest.

    Nulls come first in sort_array, last where it is descending, and last in array_sort.
    """
    values = args[0]
    if pa.types.is_null(values.type):
        return null(pa.null())
    way = "ascending"
    if len(args) > 1 and not args[1].as_py():
        way = "descending"
    nulls = "descending" if node.op == "sort_array" and way == "ascending" else "ascending"

    def made(rows: Any, flat: Any) -> Any:
        if kind(flat) == "other":
            raise mismatch(node, [flat], "values with an order")
        nan = pc.is_nan(flat) if pa.types.is_floating(flat.type) else pc.is_null(flat)
        columns = {"row": rows, "null": pc.is_null(flat), "nan": nan, "value": flat}
        order: Any = [("row", "ascending"), ("null", nulls), ("nan", way), ("value", way)]
        return pa.table(columns).sort_by(order)

    return _of_lists(node, values, made)


def distinct(node: Call, args: Sequence[Value]) -> Value:
    """array_distinct: each element once, where it first stood."""
    if pa.types.is_null(args[0].type):
        return null(pa.null())

    def made(rows: Any, flat: Any) -> Any:
        places = pa.array(np.arange(len(flat)))
        table = pa.table({"row": rows, "value": flat, "place": places})
        first = table.group_by(["row", "value"], use_threads=False).aggregate([("place", "min")])
        return first.sort_by("place_min")

    return _of_lists(node, args[0], made)


def reverse(node: Call, args: Sequence[Value]) -> Value:
    """The elements from the last to the first."""

    def made(rows: Any, flat: Any) -> Any:
        places = np.lexsort((-np.arange(len(flat)), rows.to_numpy()))
        return pa.table({"row": rows, "value": flat.take(pa.array(places))})

    return _of_lists(node, args[0], made)


def join(node: Call, args: Sequence[Value]) -> Value:
    """array_join(items, ', ', '-'): the texts of the elements with a separator between them.

    Nulls are left out, or take the third argument's place.
    """
    if pa.types.is_null(args[0].type):
        return null(STRING)
    instead = args[2].as_py() if len(args) > 2 else None

    def made(rows: Any, flat: Any) -> Any:
        texts = flat if kind(flat) == "string" else cast(Call("cast", node.args, "STRING"), [flat])
        texts = pc.cast(texts, STRING)
        if instead is not None:
            texts = pc.coalesce(texts, pa.scalar(instead))
        return pa.table({"row": rows, "value": texts}).filter(pc.is_valid(texts))

    return pc.binary_join(_of_lists(node, args[0], made), pa.scalar(args[1].as_py(), STRING))
