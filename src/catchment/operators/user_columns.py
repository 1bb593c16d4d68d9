"""Operators made of three plain functions over arrays.

A state is a row of one or several columns. States of a group are combined in rounds, each of which
combines all neighbours at once, so that a group of n values takes log2(n) calls, however many
groups there are:

    1st round    a b c d e     ab cd e
    2nd round    ab cd e       abcd e
    3rd round    abcd e        abcde
"""

from __future__ import annotations

from collections.abc import Mapping
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
from catchment.operators.ragged import Array, Fields, plain
from catchment.operators.user import Monoid, monoid_of
from catchment.operators.values import objects, to_arrow

ONLY = ""
"""The name of the column of a state that is not a dict."""
_HINT = "states are whole numbers, doubles or texts, or a dict of such types by name"

States = dict[str, Array]


def state_columns(
    state: pa.DataType | Mapping[str, pa.DataType],
) -> tuple[tuple[str, pa.DataType], ...]:
    """The columns of a state that a user describes, in the types in which they are kept."""
    described = state if isinstance(state, Mapping) else {ONLY: state}
    if not described:
        raise QueryError("a state has no columns", given=repr(state), hint=_HINT)
    for name, type in described.items():
        if not isinstance(name, str) or not isinstance(type, pa.DataType):
            raise QueryError("this is no type of a state", given=repr(state), hint=_HINT)
        kept = (pa.int64(), pa.float64(), pa.string())
        if type == pa.uint64() or value_type(type) not in kept:
            raise QueryError("this is no type of a state", given=str(type), hint=_HINT)
    return tuple((name, value_type(type)) for name, type in described.items())


@register_operator
class UserColumns(Operator):
    """States of a user-defined monoid in columns, named by the operator's first parameter; `values`
    says how many values a state is of."""

    kind = "user_columns"

    @classmethod
    def ordered(cls, ref: OperatorRef) -> bool:
        return not monoid_of(ref.params[0]).commutative

    def __init__(self, ref: OperatorRef, type: pa.DataType | None) -> None:
        super().__init__(ref, type)
        self.name: str = ref.params[0]
        self.monoid = monoid_of(self.name)

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"values": pa.int64(), **{_field(name): kind for name, kind in self.monoid.state}}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        groups = events.groups
        if not groups.rows:
            return self._placed({}, groups)
        values = self._as_numpy(events.decode(events.values))
        states = _checked(self.name, "lift", self.monoid.lift(values), self.monoid, len(values))
        return self._placed(self._combined(states, groups), groups)

    def _as_numpy(self, values: Array) -> Array:
        """Values as NumPy has them: times and truth values, not the integers behind them."""
        numbers = is_numeric(self.type) and not is_narrow(self.type)
        if values.dtype == object or self.type is None or numbers:
            return values
        return to_arrow(values, value_type(self.type)).to_numpy(zero_copy_only=False)

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        own = rows[self.ref]
        counts = plain(own["values"])
        some = np.flatnonzero(counts)
        states = {name: plain(own[_field(name)])[some] for name, _ in self.monoid.state}
        kept = groups.select(some)
        made = self._placed(self._combined(states, kept), kept)
        return made | {"values": groups.add(counts)}

    def _combined(self, states: States, groups: Grouping) -> States:
        """The state of each group that has any, in order of the groups."""
        order, starts, _ = groups.segments
        states = {name: column[order] for name, column in states.items()}
        lengths = np.diff(starts, append=len(order))
        while len(lengths) and lengths.max() > 1:
            begins = np.cumsum(lengths) - lengths
            inner = np.arange(len(next(iter(states.values())))) - np.repeat(begins, lengths)
            left = np.flatnonzero(inner % 2 == 0)
            pairs = inner[left] + 1 < np.repeat(lengths, -(-lengths // 2))
            first, second = left[pairs], left[pairs] + 1
            one, two = (self._given(states, rows) for rows in (first, second))
            made = self.monoid.combine(one, two)
            found = _checked(self.name, "combine", made, self.monoid, len(first))
            states = {name: column[left] for name, column in states.items()}
            for name, column in found.items():
                states[name][pairs] = column
            lengths = -(-lengths // 2)
        return states

    def _given(self, states: States, rows: Array) -> Any:
        """Some states as the user's functions take them."""
        return _shown({name: column[rows] for name, column in states.items()})

    def _placed(self, states: States, groups: Grouping) -> Fields:
        present = groups.segments[2]
        out: Fields = {"values": groups.count}
        for name, kind in self.monoid.state:
            texts = kind == pa.string()
            dtype: Any = object if texts else kind.to_pandas_dtype()
            column = np.full(groups.n, None if texts else 0, dtype)
            if len(present):
                column[present] = states[name]
            out[_field(name)] = column
        return out


def lowered(name: str, fields: Fields) -> pa.Array[Any]:
    """The results of states; null of no values."""
    monoid = monoid_of(name)
    counts = plain(fields["values"])
    some = np.flatnonzero(counts)
    if not len(some):
        return pa.array([None] * len(counts), monoid.result)
    states = {column: plain(fields[_field(column)])[some] for column, _ in monoid.state}
    made = monoid.lower(_shown(states))
    results = made if isinstance(made, pa.Array) else pa.array(made, from_pandas=False)
    _check_length(name, "lower", len(results), len(some))
    place: pa.Array[Any] = pa.array(np.cumsum(counts > 0) - 1, pa.int64(), mask=counts == 0)
    placed: pa.Array[Any] = results.cast(monoid.result).take(place)
    return placed


def _field(name: str) -> str:
    return f"state.{name}" if name else "state"


def _shown(states: States) -> Any:
    return states.get(ONLY, states)


def _checked(name: str, part: str, made: Any, monoid: Monoid, rows: int) -> States:
    """States as a user's function gave them, as columns of their types."""
    wanted = [column for column, _ in monoid.state]
    given = made if isinstance(made, Mapping) else {ONLY: made}
    if set(given) != set(wanted):
        named = ", ".join(filter(None, wanted))
        raise QueryError(
            f"{part} of {name} must give " + (f"a dict of {named}" if named else "one array"),
            given=", ".join(map(str, given)) if isinstance(made, Mapping) else type(made).__name__,
            hint="states have the columns that `state` names",
        )
    states: States = {}
    for column, kind in monoid.state:
        array = given[column]
        values = array.to_numpy(zero_copy_only=False) if isinstance(array, pa.Array) else array
        values = np.asarray(values, object if kind == pa.string() else kind.to_pandas_dtype())
        _check_length(name, part, values.shape[0] if values.ndim == 1 else -1, rows)
        states[column] = objects(values.tolist()) if values.dtype == object else values
    return states


def _check_length(name: str, part: str, given: int, wanted: int) -> None:
    if given != wanted:
        raise QueryError(
            f"{part} of {name} must give one row for each that it takes",
            given="no flat array" if given < 0 else f"{given:,} rows for {wanted:,}",
            hint="functions of a state with types work on whole arrays",
        )
