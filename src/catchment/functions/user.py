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
from catchment.operators.user_columns import lowered, state_columns


class UserFunction(Function):
    """A function of three plain Python functions: lift, combine, lower, of values or of arrays."""

    takes = "a value"
    defined_in = "the user's code"
    """The class is ours, the function is not."""

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        kind = "user_columns" if monoid_of(self.name).state else "user"
        return (OperatorRef(kind, aggregate.column, (self.name,)),)

    def accepts(self, type: pa.DataType) -> bool:
        return True

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        return monoid_of(self.name).result

    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        (ref,) = self.operators(aggregate)
        monoid = monoid_of(self.name)
        if monoid.state:
            return lowered(self.name, computed[ref])
        states = plain(computed[ref]["state"])
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
    state: pa.DataType | Mapping[str, pa.DataType] | None = None,
) -> Callable[..., Aggregate]:
    """Defines a function by three plain ones, and gives its builder.

    A state is made of numbers, texts, lists, tuples and dicts. Nulls are not lifted; a window
    without values gives null. With `commutative=False` states are combined in order of time, then
    arrival. `result` is the type of what `lower` gives, by default a double. Plans carry only the
    name: define the function in every process that runs them.

    With `state` the three functions work on whole columns: `lift` takes a NumPy array of values and
    gives an array of as many states, `combine` takes two arrays of states, of which each pair is
    combined, and `lower` gives an array of results. `state` is the type of a state, a whole number,
    a double or a text, or a dict of such types by name: then states are dicts of arrays. What is
    given back may be Arrow arrays too.

    >>> import math
    >>> square, add = lambda v: v * v, lambda a, b: a + b
    >>> norm = function("l2_norm", lift=square, combine=add, lower=math.sqrt)
    >>> norm("v").text
    'l2_norm(v)'
    >>> import numpy as np
    >>> fast = function("l2_fast", lift=square, combine=add, lower=np.sqrt, state=pa.float64())

    Raises QueryError for a name that is no plain word or that a built-in function has, and for
    states of other types.
    """
    if not name.isidentifier():
        raise QueryError("a function's name must be a plain word", given=repr(name))
    if not isinstance(FUNCTIONS.registered().get(name.lower()), UserFunction | None):
        raise QueryError("a built-in function has this name", given=name, hint="choose another")
    for part in (lift, combine, lower):
        if not callable(part):
            raise QueryError("lift, combine and lower must be functions", given=repr(part))
    columns = () if state is None else state_columns(state)
    define(name, Monoid(lift, combine, lower, result or pa.float64(), commutative, columns))
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
