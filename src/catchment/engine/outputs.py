"""What queries make of aggregates when their windows are complete: the last step of assembling.

A table of keys, bounds and aggregates goes in, a table of keys, bounds and selected columns comes
out. Between the two, columns are computed, rows that do not meet HAVING are left out, and the rows
of each window are put in order and cut off.

    keys | bounds | aggregates | marks   --apply-->   keys | bounds | selected columns | marks
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import CatchmentError, SchemaError
from catchment.expression import evaluate, infer
from catchment.model.output import GROUPING_ID, Output, RowOrder, grouping_name
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask, one_piece

REVISION, RETRACTED = "revision", "retracted"


class OutputStage:
    """An output over tables whose first columns are keys and bounds, and then aggregates."""

    def __init__(self, output: Output, keys: Sequence[str], aggregates: int) -> None:
        self.output = output
        self.keys = tuple(keys)
        self._aggregates = aggregates

    def schema(self, raw: pa.Schema, lead: int) -> pa.Schema:
        """The columns of results, of tables whose aggregates begin after `lead` columns."""
        known = self._visible(raw)
        made = [pa.field(c.name, _type(c.expression, known)) for c in self.output.columns]
        fields = list(raw)
        return pa.schema([*fields[:lead], *made, *fields[lead + self._aggregates :]])

    def misfits(self, raw: pa.Schema, query: str) -> Iterator[CatchmentError]:
        """Every expression that does not fit the types of aggregates and keys, as an error."""
        known = self._visible(raw)
        having, output = self.output.having, self.output
        texts = [column.expression for column in output.columns]
        texts += [order.expression for order in output.order]
        for text in dict.fromkeys([*texts, *([having] if having else [])]):
            try:
                kind = infer(text, known)
            except CatchmentError as mistake:
                yield mistake
                continue
            if text == having and not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
                yield SchemaError(
                    f"query {query!r}: the having condition is not a condition",
                    given=f"{having} is {kind}",
                    hint="compare it with something, as in count(*) > 3",
                )
            if pa.types.is_nested(kind) and any(text == o.expression for o in output.order):
                yield SchemaError(
                    f"query {query!r}: nothing can be ordered by such values",
                    given=f"{text} is {kind}",
                    hint="order by a number, a text or a time",
                )

    def _visible(self, raw: pa.Schema) -> pa.Schema:
        """What expressions may name."""
        if not self.output.sets:
            return raw
        bits = [pa.field(grouping_name(key), pa.int64()) for key in self.keys]
        return pa.schema([*raw, *bits])

    def apply(self, table: pa.Table, schema: pa.Schema, lead: int) -> pa.Table:
        """The results of these rows; `schema` has the types of the columns that are computed."""
        gone = _whole(table, RETRACTED) if RETRACTED in table.schema.names else None
        table, gone = self._having(table, gone)
        made: list[pa.Array[Any]] = []
        for column in self.output.columns:
            kind = schema.field(column.name).type
            if not table.num_rows:
                made.append(pa.nulls(0, kind))
                continue
            values = evaluate(
                column.expression, lambda name: self._get(table, name), table.num_rows
            )
            if gone is not None:
                values = pc.if_else(gone, pa.scalar(None, values.type), values)
            made.append(values if values.type == kind else values.cast(kind))
        marks = lead + self._aggregates
        columns: list[Any] = [*table.columns[:lead], *made, *table.columns[marks:]]
        fields = [*list(schema)[: lead + len(made)], *list(table.schema)[marks:]]
        result = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        if gone is not None:
            result = result.set_column(result.schema.get_field_index(RETRACTED), RETRACTED, gone)
        return self._ordered(table, result) if self.output.order and table.num_rows else result

    def _get(self, table: pa.Table, name: str) -> pa.Array[Any]:
        for place, key in enumerate(self.keys) if self.output.sets else ():
            if name == grouping_name(key):
                shift = pa.scalar(len(self.keys) - 1 - place, pa.int64())
                bits: Any = pc.shift_right(_whole(table, GROUPING_ID), shift)
                one: pa.Array[Any] = pc.bit_wise_and(bits, pa.scalar(1, pa.int64()))
                return one
        return _whole(table, name)

    def _having(
        self, table: pa.Table, gone: pa.Array[Any] | None
    ) -> tuple[pa.Table, pa.Array[Any] | None]:
        """The rows that meet the condition.

        Where results are corrected, a correction that does not meet it takes the result back.
        """
        having = self.output.having
        if having is None or not table.num_rows:
            return table, gone
        met: Any = evaluate(having, lambda name: self._get(table, name), table.num_rows)
        met = met.cast(pa.bool_()).fill_null(False)
        if gone is None:
            return table.filter(met), None
        gone = pc.or_(gone, pc.invert(met))
        corrected = pc.greater(_whole(table, REVISION), pa.scalar(0, pa.int64()))
        keep: Any = pc.or_(pc.invert(gone), corrected)
        left: Any = gone.filter(keep)
        return table.filter(keep), left

    def _ordered(self, raw: pa.Table, result: pa.Table) -> pa.Table:
        """The rows in order of their windows, in these by the order asked for, then by key."""
        n = raw.num_rows
        bounds = [_ranks(_whole(raw, name)) for name in ("window_start", "window_end")]
        words: list[Ints] = list(bounds)
        for order in self.output.order:
            values = evaluate(order.expression, lambda name: self._get(raw, name), n)
            words += _words(values, order)
        tied = [GROUPING_ID, *self.keys] if self.output.sets else self.keys
        for name in tied:
            if not pa.types.is_nested(raw.schema.field(name).type):
                words += _words(_whole(raw, name), RowOrder(name))
        place = np.lexsort(words[::-1])
        if self.output.limit is not None:
            place = place[_number_in_window(*(b[place] for b in bounds)) < self.output.limit]
        return result.take(place)


def _type(text: str, known: pa.Schema) -> pa.DataType:
    """The type of an expression; as long as nobody knows what events look like, null."""
    try:
        return infer(text, known)
    except SchemaError:
        return pa.null()


def _whole(table: pa.Table, name: str) -> pa.Array[Any]:
    return one_piece(table.column(name))


def _number_in_window(start: Ints, end: Ints) -> Ints:
    """The number of each row among those of its window, which stand together."""
    rows = np.arange(len(start), dtype=np.int64)
    new: Mask = np.ones(len(start), np.bool_)
    new[1:] = (start[1:] != start[:-1]) | (end[1:] != end[:-1])
    head: Ints = np.maximum.accumulate(np.where(new, rows, 0)) if len(rows) else rows
    return rows - head


def _words(values: Any, order: RowOrder) -> list[Ints]:
    """Numbers that sort as the values are to be ordered, the most significant first.

    NaN is larger than any other number, as in Spark.
    """
    missing = pc.is_null(values).to_numpy(zero_copy_only=False).astype(np.int64)
    words: list[Ints] = [-missing if order.nulls_first else missing]
    sign = -1 if order.descending else 1
    if pa.types.is_floating(values.type):
        nan = pc.fill_null(pc.is_nan(values), False)
        words.append(sign * nan.to_numpy(zero_copy_only=False).astype(np.int64))
        values = pc.if_else(nan, pa.scalar(0, values.type), values)
    return [*words, sign * _ranks(values)]


def _ranks(values: Any) -> Ints:
    """The place of each value among the distinct ones; equal values have one place."""
    if pa.types.is_null(values.type) or not len(values):
        return np.zeros(len(values), np.int64)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # -0.0 + 0.0 is 0.0
    ranks = pc.rank(values, sort_keys="ascending", tiebreaker="dense")
    made: Ints = ranks.to_numpy(zero_copy_only=False).astype(np.int64)
    return made
