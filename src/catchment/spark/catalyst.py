"""Slicing by Spark's own columns: an aggregation by slice and key, whose few rows are partials.

The rows of a DataFrame then never leave the JVM; what Python gets is one row per slice and key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from catchment.engine import codec
from catchment.engine.binding import Types, group_types, key_type
from catchment.engine.bound_group import operators_of
from catchment.engine.partials import Partials, stamped
from catchment.expression.decimals import digits_of
from catchment.expression.nodes import Column
from catchment.expression.parsing import parse
from catchment.model.costs import ASSUMED
from catchment.model.plan import Group
from catchment.model.window import STREAM
from catchment.operators import Operator
from catchment.operators.base import is_exact, is_float
from catchment.operators.limbs import carried, limbs_for, split, units_of
from catchment.operators.ragged import Array, Ints
from catchment.planner.cost import on_scale, overlap, periods_of, smallest_gap
from catchment.spark.catalyst_columns import (
    SparkField,
    SparkFields,
    Typed,
    UnlikeError,
    kind_of,
    reads_floats,
    translate,
)
from catchment.spark.catalyst_edges import Cuts, cuts_of, micros_of, reach_of
from catchment.spark.records import SplitRead
from catchment.spark.tasks import Work, by_bucket, parcel, pieces

BAD, UNUSED = -2, -1
"""Selections that are none: of rows without a usable time, and of events that no query wants."""

_MOST_PARTS = 90
"""Beyond some hundred columns Spark no longer compiles an aggregation."""
_MOST_SELECTIONS = 64
_EVENTS_A_CELL = 100
"""Sessions need slices no longer than their gap: events each should hold at the rate assumed."""
_PIECE = 1 << 19
"""Aggregated rows that are turned into partials at once."""
_HALF = 0xFFFFFFFF
_SUMMED = 28
"""Digits of decimals whose sums Spark always holds, since it adds ten, up to 38."""


class Recipe(NamedTuple):
    """How Spark slices one group."""

    cuts: Cuts
    selection: str
    """The number of the selection that an event meets, BAD or UNUSED."""
    only: str | None
    """What events of any use meet, where Spark may leave out the others as it reads."""
    keys: tuple[str, ...]
    parts: dict[str, str]
    """Aggregates by their name in the result."""


def recipe(group: Group, fields: SparkFields, types: Types) -> Recipe:
    """How Spark slices a group; raises UnlikeError, with the reason, where it does not do as we."""
    cuts = _cuts(group)
    if group.computed:
        raise UnlikeError(f"its key is computed: {group.computed[0]}")
    if STREAM in group.by:
        raise UnlikeError("its windows are each node's own")
    for name in group.by:
        kind = fields[name].type
        if kind_of(kind) == "other" and not isinstance(kind, t.BinaryType):
            raise UnlikeError(f"keys of type {kind.simpleString()} may be told apart otherwise")
    parts = {"n": "count(1)"}
    if smallest_gap(group.windows) is not None:
        parts |= {"first": "min(t)", "last": "max(t)"}
    for number, operator in enumerate(operators_of(group, types).values()):
        for name, aggregate in _parts(operator, fields).items():
            parts[f"f{number}_{name}"] = aggregate
    if len(parts) > _MOST_PARTS:
        raise UnlikeError(f"{len(parts)} aggregates are too many for Spark to compile")
    keys = tuple(fields[name].sql for name in group.by)
    return Recipe(cuts, _selection(group, fields), _only(group, fields), keys, parts)


def _only(group: Group, fields: SparkFields) -> str | None:
    texts = [text for text in group.selections if text is not None]
    # Parquet's statistics leave NaN out: a condition on doubles, pushed down, would lose them.
    if len(texts) < len(group.selections) or any(reads_floats(text, fields) for text in texts):
        return None
    return " OR ".join(f"CAST({translate(text, fields).sql} AS BOOLEAN)" for text in texts)


def _cuts(group: Group) -> Cuts:
    if group.measure != "event":
        raise UnlikeError("processing time is the clock of whoever slices")
    if group.distinct_on:
        raise UnlikeError("repeated events are found where all events meet")
    if group.slicing != "arrival" or any(w.bounded_by_events for w in group.windows):
        raise UnlikeError("its windows or functions need the events in order")
    if group.way == "accumulators" and any(
        overlap(period) > 1 for period in periods_of(group.windows)
    ):
        raise UnlikeError("each event goes into several windows, without slices")
    gap = smallest_gap(group.windows)
    if gap is not None and gap * ASSUMED.per_second < _EVENTS_A_CELL * 1e6:
        raise UnlikeError("slices as short as the sessions' gap would be too many")
    if any(map(on_scale, group.windows)):
        raise UnlikeError("its windows begin as the clocks of a time zone say")
    cuts = cuts_of(group.windows)
    if not cuts.few:
        series, points = len(cuts.series), len(cuts.points)
        raise UnlikeError(f"{series} series of edges and {points} single ones are no common grid")
    return cuts


def _selection(group: Group, fields: SparkFields) -> str:
    if len(group.selections) > _MOST_SELECTIONS:
        raise UnlikeError(f"{len(group.selections)} conditions are too many for Spark to compile")
    whens = [f"WHEN t IS NULL THEN {BAD}"]
    if group.way == "accumulators":
        ((length, slide, offset, only, _),) = periods_of(group.windows)
        outside = f"pmod(t - {offset % slide}L, {slide}L) >= {length}L"
        if only:
            outside = f"t < {offset}L OR t >= {offset + length}L"
        whens.append(f"WHEN {outside} THEN {UNUSED}")
    for number, text in enumerate(group.selections):
        met = Typed("TRUE", "bool") if text is None else translate(text, fields)
        if met.kind not in ("bool", "null"):
            raise UnlikeError("the condition is none in Spark")
        whens.append(f"WHEN CAST({met.sql} AS BOOLEAN) THEN {number}")
    return f"CASE {' '.join(whens)} ELSE {UNUSED} END"


def _parts(operator: Operator, fields: SparkFields) -> dict[str, str]:
    """The Spark aggregates that an operator's fields are made of."""
    kind, text = operator.ref.kind, operator.ref.column
    if kind not in ("count", "sum", "min", "max", "squares"):
        raise UnlikeError(f"Spark has no {kind} like ours")
    if text is None:
        return {"count": "count(1)"}
    node = parse(text)
    if isinstance(node, Column):
        field = fields[node.name]
        value = Typed(field.sql, kind_of(field.type))
        narrow = isinstance(field.type, t.ByteType | t.ShortType | t.IntegerType)
    else:
        value, narrow = translate(text, fields), False
    if kind == "count":
        return {"count": f"count({value.sql})"}
    if kind in ("min", "max"):
        return {kind: _extreme(kind, value, isinstance(node, Column))}
    if value.kind not in ("int", "float", "decimal"):
        raise UnlikeError(f"{kind} of {value.kind}")
    if kind == "squares":
        double = f"CAST({value.sql} AS DOUBLE)"
        return {"variance": f"var_pop({double})", "count": f"count({double})"}
    if value.kind == "decimal":
        return {"total": _decimal_sum(value, operator)}
    if value.kind != "int":
        return {"total": f"sum(CAST({value.sql} AS DOUBLE))"}
    if narrow:
        return {"total": f"sum(CAST({value.sql} AS BIGINT))"}
    # The halves of numbers add up without overflow, whatever Spark does about that.
    return {
        "high": f"sum(shiftright({value.sql}, 32))",
        "low": f"sum({value.sql} & {_HALF}L)",
    }


def _decimal_sum(value: Typed, operator: Operator) -> str:
    """The sum of decimals, whose type has ten digits more: no slice has that many events."""
    assert operator.type is not None
    precision, _ = digits_of(operator.type)
    if precision > _SUMMED:
        raise UnlikeError(f"a sum of decimals of {precision} digits may not fit Spark's 38")
    return f"sum({value.sql})"


def _extreme(kind: str, value: Typed, bare: bool) -> str:
    # Texts do not fit the rows that Spark aggregates in place: it would sort all events.
    if value.kind in ("string", "other") or (not bare and value.kind in ("time", "date")):
        raise UnlikeError(f"for {kind} of {value.kind} Spark would sort, or differ")
    return f"{kind}({value.sql})"


def aggregated(events: DataFrame, made: Recipe, time: SparkField, counting: bool) -> DataFrame:
    """Rows by selection, slice and key; `counting` keeps those of no selection too."""
    keys = [f"{sql} AS k{number}" for number, sql in enumerate(made.keys)]
    reach = reach_of(time.type)
    if made.only is not None and not counting:
        events = events.filter(made.only)
    timed = events.selectExpr("*", f"{micros_of(*time)} AS u")
    timed = timed.selectExpr("*", f"CASE WHEN u > -{reach}L AND u < {reach}L THEN u END AS t")
    chosen = timed.selectExpr("*", f"{made.selection} AS s")
    start = f"CASE WHEN s >= 0 THEN {made.cuts.start('t')} END AS b"
    names = ["s", "b", *(f"k{number}" for number in range(len(keys)))]
    aggregates = [sf.expr(text).alias(name) for name, text in made.parts.items()]
    return chosen.selectExpr("*", start, *keys).groupBy(*names).agg(*aggregates)


@dataclass(frozen=True)
class ToPartials:
    """Aggregated rows of a group to partials by bucket; with `counting`, events are counted."""

    work: Work
    group: int
    cuts: Cuts
    counting: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        for piece in pieces(batches, _PIECE):
            yield self._parcel(piece, number)

    def _parcel(self, table: pa.Table, number: int) -> pa.RecordBatch:
        chosen = codec.ints(table, "s")
        counts = self._counts(chosen, codec.ints(table, "n")) if self.counting else {}
        table = table.filter(pa.array(chosen >= 0))
        plan = self.work.plan
        partials = Partials({self.group: self._partials(table, plan.groups[self.group], number)})
        return parcel(list(by_bucket(self.work, partials, SplitRead(number, counts=counts))))

    def _counts(self, chosen: Ints, events: Ints) -> dict[str, int]:
        bad = int(events[chosen == BAD].sum())
        return {"events": int(events.sum()), "accepted": int(events.sum()) - bad, "bad": bad}

    def _partials(self, table: pa.Table, group: Group, number: int) -> pa.Table:
        schema = self.work.schema
        types = group_types(group, schema)
        starts = codec.ints(table, "b")
        sessions = smallest_gap(group.windows) is not None
        columns: dict[str, Any] = {
            "slice_start": starts,
            "slice_end": self._ends(group, starts),
            "slice_first": codec.ints(table, "first") if sessions else starts,
            "slice_last": codec.ints(table, "last") if sessions else starts,
        }
        for place, (id, operator) in enumerate(operators_of(group, types).items()):
            for name, values in _fields(operator, table, f"f{place}_").items():
                columns[f"{id}.{name}"] = pa.array(values).cast(operator.fields[name])
        keys = [
            codec.whole(table, f"k{n}").cast(key_type(schema.field(name).type))
            for n, name in enumerate(group.by)
        ]
        plain = pa.table({name: pa.array(column) for name, column in columns.items()})
        return stamped(plain, group.by, types, codec.ints(table, "s"), keys, number, number)

    def _ends(self, group: Group, starts: Ints) -> Ints:
        if group.way == "accumulators":  # partials are whole windows
            (period,) = periods_of(group.windows)
            return starts + period.length
        return self.cuts.ends(starts)


def _fields(operator: Operator, table: pa.Table, prefix: str) -> dict[str, Any]:
    """An operator's fields, from what Spark aggregated."""
    kind = operator.ref.kind
    if kind == "count":
        return {"count": codec.whole(table, prefix + "count")}
    if kind in ("min", "max"):
        return {"value": codec.whole(table, prefix + kind)}
    if kind == "squares":
        variance = _numbers(table, prefix + "variance")
        with np.errstate(invalid="ignore", over="ignore"):
            return {"squares": variance * _numbers(table, prefix + "count")}
    if is_exact(operator.type):
        assert operator.type is not None
        summed = codec.whole(table, prefix + "total")
        zero = pa.scalar(Decimal(0), summed.type)  # of a sum without values
        limbs = split(units_of(summed.fill_null(zero)))
        return dict(zip(operator.fields, carried(limbs, limbs_for(operator.type)), strict=True))
    if is_float(operator.type):
        return {"total": _numbers(table, prefix + "total")}
    if prefix + "total" in table.schema.names:
        total = _numbers(table, prefix + "total")
        return {"total": total, "approx": total.astype(np.float64)}
    high, low = _numbers(table, prefix + "high"), _numbers(table, prefix + "low")
    return {"total": (high << 32) + low, "approx": high * 2.0**32 + low}


def _numbers(table: pa.Table, name: str) -> Array:
    """A sum, which without values is zero."""
    column = codec.whole(table, name)
    return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False))
