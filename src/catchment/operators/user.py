"""Operators made of three plain Python functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.errors import QueryError
from catchment.operators.base import (
    Computed,
    Input,
    Operator,
    OperatorRef,
    is_numeric,
    register_operator,
    value_type,
)
from catchment.operators.grouping import Grouping
from catchment.operators.limbs import is_narrow
from catchment.operators.ragged import Array, Fields
from catchment.operators.values import to_arrow
from catchment.registry import import_entry_point


@dataclass(frozen=True, slots=True)
class Monoid:
    """`lift` a value to a state, `combine` two states, `lower` a state to a result; or columns of
    them."""

    lift: Callable[[Any], Any]
    combine: Callable[[Any, Any], Any]
    lower: Callable[[Any], Any]
    result: pa.DataType
    commutative: bool = True
    state: tuple[tuple[str, pa.DataType], ...] = ()
    """For functions over arrays, the columns of a state; otherwise a state is one value."""


_MONOIDS: dict[str, Monoid] = {}


def define(name: str, monoid: Monoid) -> None:
    """Makes a monoid known by name, which is all that plans carry of it."""
    _MONOIDS[name] = monoid


def monoids() -> dict[str, Monoid]:
    return dict(_MONOIDS)


def monoid_of(name: str) -> Monoid:
    if name not in _MONOIDS:
        import_entry_point("catchment.functions", name.lower())  # which may define it
    if name not in _MONOIDS:
        raise QueryError(
            "no such user-defined function",
            given=name,
            hint="define it with ct.function(...) in every process that runs the plan, or install "
            f"the package that has the entry point {name!r} of catchment.functions there",
        )
    return _MONOIDS[name]


@register_operator
class User(Operator):
    """States of a user-defined monoid, named by the operator's first parameter."""

    kind = "user"
    small = False

    @classmethod
    def ordered(cls, ref: OperatorRef) -> bool:
        return not monoid_of(ref.params[0]).commutative

    def __init__(self, ref: OperatorRef, type: pa.DataType | None) -> None:
        super().__init__(ref, type)
        self.monoid = monoid_of(ref.params[0])

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"state": pa.binary()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        values = events.decode(events.values)
        states = np.empty(len(values), object)
        for row, value in enumerate(self._as_python(values)):
            states[row] = self.monoid.lift(value)
        return {"state": self._combined(states, events.groups)}

    def _as_python(self, values: Array) -> list[Any]:
        """Values as Python has them: dates and truth values, not the integers behind them."""
        numbers = is_numeric(self.type) and not is_narrow(self.type)
        if values.dtype == object or self.type is None or numbers:
            return list(values.tolist())
        return list(to_arrow(values, value_type(self.type)).to_pylist())

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        stored = rows[self.ref]["state"]
        assert isinstance(stored, np.ndarray)
        states = np.empty(len(stored), object)
        for row, state in enumerate(stored.tolist()):
            states[row] = None if state is None else decode_state(state)
        known = np.array([state is not None for state in stored], np.bool_)
        return {"state": self._combined(states[known], groups.select(known))}

    def _combined(self, states: Array, groups: Grouping) -> Array:
        order = groups.segments[0]
        out = np.full(groups.n, None, object)
        for group, begin, end in groups.stretches():
            state = states[order[begin]]
            for row in order[begin + 1 : end]:
                state = self.monoid.combine(state, states[row])
            out[group] = encode_state(state)
        return out


def encode_state(state: Any) -> bytes:
    """A state as bytes: numbers, texts, None, lists, tuples and dicts of them.

    >>> decode_state(encode_state({"a": (1, [2.5, None])}))
    {'a': (1, [2.5, None])}
    """
    try:
        return json.dumps(_pack(state), separators=(",", ":")).encode()
    except TypeError as error:
        raise QueryError(
            "a user-defined state must be made of numbers, texts, lists, tuples and dicts",
            given=repr(state)[:80],
            hint="lift and combine must return only these",
        ) from error


def decode_state(data: bytes) -> Any:
    return _unpack(json.loads(data))


def _pack(state: Any) -> Any:
    if isinstance(state, tuple):
        return {"()": [_pack(item) for item in state]}
    if isinstance(state, list):
        return [_pack(item) for item in state]
    if isinstance(state, dict):
        return {"{}": [[_pack(key), _pack(value)] for key, value in state.items()]}
    return state.item() if isinstance(state, np.generic) else state


def _unpack(state: Any) -> Any:
    if isinstance(state, list):
        return [_unpack(item) for item in state]
    if isinstance(state, dict):
        if "()" in state:
            return tuple(_unpack(item) for item in state["()"])
        return {_unpack(key): _unpack(value) for key, value in state["{}"]}
    return state
