"""Functions that users define."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from catchment.errors import QueryError
from catchment.functions.base import FUNCTIONS, Function, builder, register_function
from catchment.model.query import Aggregate
from catchment.operators import Computed, OperatorRef
from catchment.operators.ragged import plain
from catchment.operators.user import Monoid, decode_state, define, monoid_of, monoids


class UserFunction(Function):
    """A function of three plain Python functions: lift, combine, lower."""

    takes = "a value"
    defined_in = "the user's code"
    """The class is ours, the function is not."""

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return (OperatorRef("user", aggregate.column, (self.name,)),)

    def accepts(self, type: pa.DataType) -> bool:
        return True

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        return monoid_of(self.name).result

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        states = plain(computed[self.operators(aggregate)[0]]["state"])
        monoid = monoid_of(self.name)
        values = [
            None if state is None else monoid.lower(decode_state(state))
            for state in states.tolist()
        ]
        return pa.array(values, monoid.result)


def function(
    name: str,
    *,
    lift: Callable[[Any], Any],
    combine: Callable[[Any, Any], Any],
    lower: Callable[[Any], Any],
    result: pa.DataType | None = None,
    commutative: bool = True,
) -> Callable[..., Aggregate]:
    """Defines a function by three plain ones, and gives its builder.

    A state is made of numbers, texts, lists, tuples and dicts. Nulls are not lifted; a window
    without values gives null. With `commutative=False` states are combined in order of time, then
    arrival. `result` is the type of what `lower` gives, by default a double. Plans carry only the
    name: define the function in every process that runs them.

    >>> import math
    >>> square, add = lambda v: v * v, lambda a, b: a + b
    >>> norm = function("l2_norm", lift=square, combine=add, lower=math.sqrt)
    >>> norm("v").text
    'l2_norm(v)'

    Raises QueryError for a name that is no plain word or that a built-in function has.
    """
    if not name.isidentifier():
        raise QueryError("a function's name must be a plain word", given=repr(name))
    if not isinstance(FUNCTIONS.registered().get(name.lower()), UserFunction | None):
        raise QueryError("a built-in function has this name", given=name, hint="choose another")
    for part in (lift, combine, lower):
        if not callable(part):
            raise QueryError("lift, combine and lower must be functions", given=repr(part))
    define(name, Monoid(lift, combine, lower, result or pa.float64(), commutative))
    return builder(register_function(UserFunction(name)))


def defined() -> dict[str, Monoid]:
    """Every function defined in this process, to be defined in another."""
    return monoids()


def define_all(known: Mapping[str, Monoid]) -> None:
    """Defines what another process knew; what is known here already stays."""
    for name, monoid in known.items():
        if name not in monoids():
            define(name, monoid)
            register_function(UserFunction(name))
