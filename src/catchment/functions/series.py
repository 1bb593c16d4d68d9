"""time_weighted_avg, increase, rate, ewma: of values that follow each other in time."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from catchment.errors import QueryError
from catchment.functions.base import Function, register_function
from catchment.model.duration import micros
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef
from catchment.operators.ragged import plain
from catchment.operators.values import to_arrow

_SECOND = 1e6
METHODS = ("step", "linear")


class _OfSamples(Function):
    """A function of the samples of a series, in order of time, then arrival."""

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("samples", aggregate.column),)


@register_function
class TimeWeightedAvg(_OfSamples):
    """The mean of the values over time, from the first to the last event of the window.

    Each value holds until the next event ("step"), or goes to the next value in a straight line
    ("linear"). Of events of one time it is the last value. What was before the first event of the
    window, and what comes after its last, is not known and does not count.
    """

    name = "time_weighted_avg"
    parameters = "`params` is 'step', which is meant without it, or 'linear'."
    given = "'linear'"

    def check(self, aggregate: Aggregate) -> None:
        if len(aggregate.params) > 1 or _method(aggregate) not in METHODS:
            raise QueryError(
                "time_weighted_avg takes a column, and 'step' or 'linear'",
                given=aggregate.text,
                hint='try ct.time_weighted_avg("v", "linear")',
            )

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        fields = computed[self.operators(aggregate)[0]]
        lasted = plain(fields["last_time"]) - plain(fields["first_time"])
        area, last = plain(fields[_method(aggregate)]), plain(fields["last_value"])
        values = np.where(lasted > 0, area / np.maximum(lasted, 1), last)
        return to_arrow(values, pa.float64(), plain(fields["count"]) > 0)


def _method(aggregate: Aggregate) -> Any:
    return aggregate.params[0] if aggregate.params else METHODS[0]


@register_function
class Increase(_OfSamples):
    """What a counter grew by, from the first to the last event of the window.

    It is the sum of the differences of values that follow each other. Where a value is less than
    the one before, the counter has begun again from zero, and the value itself is what it grew by.
    Unlike Prometheus's, nothing is extrapolated to the bounds of the window. Null of fewer than two
    values.
    """

    name = "increase"

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        fields = computed[self.operators(aggregate)[0]]
        return to_arrow(plain(fields["increase"]), pa.float64(), plain(fields["count"]) > 1)


@register_function
class Rate(_OfSamples):
    """What a counter grew by for each second from the first to the last event of the window.

    It is `increase` divided by that time, and null where it is no time at all.
    """

    name = "rate"

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        fields = computed[self.operators(aggregate)[0]]
        lasted = plain(fields["last_time"]) - plain(fields["first_time"])
        values = plain(fields["increase"]) / (np.maximum(lasted, 1) / _SECOND)
        return to_arrow(values, pa.float64(), lasted > 0)


@register_function
class Ewma(Function):
    """The mean of the values, where the weight of a value halves with every half-life of its age.

    The age of a value is the time from its event to that of the latest value in the window.
    """

    name = "ewma"
    parameters = "`params` is the half-life, a duration."
    given = "'30s'"
    synonyms: ClassVar[tuple[str, ...]] = ("exponential_moving_avg",)

    def check(self, aggregate: Aggregate) -> None:
        given = aggregate.params
        if len(given) != 1 or micros(given[0], "half-life of ewma") <= 0:
            raise QueryError(
                "ewma takes a column and a half-life, which is a positive duration",
                given=aggregate.text,
                hint='try ct.ewma("v", "30s")',
            )

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("decayed", aggregate.column, (micros(aggregate.params[0]),)),)

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        fields = computed[self.operators(aggregate)[0]]
        weight = plain(fields["weight"])
        some = weight > 0
        return to_arrow(plain(fields["total"]) / np.where(some, weight, 1.0), pa.float64(), some)
