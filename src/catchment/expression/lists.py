"""Lists and maps as values: how many elements they have, and whether one is among them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from catchment.expression.nodes import Call, Literal
from catchment.expression.values import BOOL, INT, Value, convert, is_list, kind, mismatch, null


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
