"""What an operator is: a monoid over columns. Functions are made of operators and share them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from catchment.errors import QueryError
from catchment.operators.grouping import Grouping
from catchment.operators.ragged import Array, Fields, Ints
from catchment.registry import Registry

QUIET = np.errstate(invalid="ignore", over="ignore", under="ignore", divide="ignore")
"""NaN and infinity are values like any others: arithmetic on them is no cause for a warning."""


InputForm = Literal["values", "doubles", "units", "parts", "hashes"]
"""How an operator reads numbers that int64 cannot hold: as ranks of their values, as the nearest
doubles, or exactly, in units of their last digit (`limbs.units_of`). Other columns read alike.
The arguments of a function of several columns, which are one struct, read as its parts. Sketches of
distinct values read hashes, whatever the type (`operators/coupons.py`)."""


class OperatorRef(NamedTuple):
    """Names an operator over a column (an SQL expression; None for whole rows)."""

    kind: str
    column: str | None = None
    params: tuple[Any, ...] = ()

    @property
    def id(self) -> str:
        if not self.params:
            return f"{self.kind}({self.column or '*'})"
        parts = [self.column or "*", *(repr(p) for p in self.params)]
        return f"{self.kind}({', '.join(parts)})"


class Argument(NamedTuple):
    """One of several arguments: its values or ranks, which of them are not null, its levels."""

    values: Array
    valid: Array | None
    levels: Array | None

    def where(self, rows: Array) -> Argument:
        """The rows at these places, or of this mask."""
        return Argument(
            self.values[rows], None if self.valid is None else self.valid[rows], self.levels
        )

    @property
    def known(self) -> Array:
        """Where it is not null."""
        return np.ones(len(self.values), np.bool_) if self.valid is None else self.valid

    def decode(self) -> Array:
        """The values themselves; what stands where it is null means nothing."""
        if self.levels is None:
            return self.values
        out = np.full(len(self.values), None, object)
        known = self.known
        out[known] = self.levels[self.values[known]]
        return out


class ArrivalsOfRows(Protocol):
    """The arrivals of rows, or of some of them only, which costs less."""

    def __call__(self, rows: Ints | None = None, /) -> Ints: ...


@dataclass(frozen=True, slots=True)
class Input:
    """The non-null values of one column, with the group, time and arrival of each.

    Values that are not numbers come as ranks into `levels`, their distinct values in order.
    Among rows of equal time the earlier row arrived earlier.
    """

    values: Array
    groups: Grouping
    times: Callable[[], Ints]
    arrivals: ArrivalsOfRows
    levels: Array | None = None
    parts: tuple[Argument, ...] = ()
    """For operators that read parts: these of every event, nulls included. There are no values."""

    def decode(self, values: Array) -> Array:
        """Turns ranks back into what they stand for."""
        return values if self.levels is None else self.levels[values]


class Computed:
    """The fields of the operators of a group, including those that others stand in for."""

    def __init__(self, operators: Mapping[str, Operator], fields: dict[str, Fields]) -> None:
        self.operators = operators
        self.fields = fields

    def __getitem__(self, ref: OperatorRef) -> Fields:
        found = self.fields.get(ref.id)
        if found is None:
            found = self._derived(ref)
            self.fields[ref.id] = found
        return found

    def _derived(self, ref: OperatorRef) -> Fields:
        for operator in self.operators.values():
            if operator.ref.column == ref.column and ref.kind in operator.derives:
                return operator.derive(ref.kind, self.fields[operator.ref.id])
        raise KeyError(ref.id)


class Operator(ABC):
    """Turns events into partials (`lift`) and partials into one (`merge`).

    `merge` is associative and commutative, and a group without values holds the identity.
    """

    kind: ClassVar[str]
    small: ClassVar[bool] = True
    """Whether a partial is a few numbers. Sorted values, sets and sketches are not: they are made
    on no more slices than their own windows need."""
    reads: ClassVar[InputForm] = "values"
    """What it is given of decimals and of unsigned numbers of 64 bits, which int64 cannot hold."""
    derives: ClassVar[tuple[str, ...]] = ()
    """The kinds of operators, over the same column, whose fields this one's contain."""

    def __init__(self, ref: OperatorRef, type: pa.DataType | None) -> None:
        self.ref = ref
        self.type = type

    @classmethod
    def ordered(cls, ref: OperatorRef) -> bool:
        """True when partials must be merged in order of time: merging is then not commutative."""
        return False

    @classmethod
    def requires(cls, ref: OperatorRef) -> tuple[OperatorRef, ...]:
        """Operators whose fields this one reads; they come first in a group."""
        return ()

    @property
    @abstractmethod
    def fields(self) -> dict[str, pa.DataType]:
        """The columns of a partial and their types on the wire."""

    @abstractmethod
    def lift(self, events: Input, lifted: Computed) -> Fields:
        """The partial of each group of events."""

    @abstractmethod
    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        """The partial of each group of partials."""

    def fieldwise(self) -> dict[str, np.ufunc] | None:
        """The NumPy function that merges each field by itself, for operators where one does."""
        return None

    def derive(self, kind: str, fields: Fields) -> Fields:
        raise KeyError(kind)


def _operator(name: str, found: Any) -> type[Operator] | None:
    good = isinstance(found, type) and issubclass(found, Operator) and found.kind == name
    return found if good else None


OPERATORS: Registry[type[Operator]] = Registry(
    "operator", "catchment.operators", "catchment.operators", _operator
)
"""The operators by their kind, which is what plans carry of them."""

OperatorType = TypeVar("OperatorType", bound=Operator)


def register_operator(operator: type[OperatorType]) -> type[OperatorType]:
    """Makes an operator known by its `kind`.

    `operator` is a class of an operator; it is given back, so that this is a decorator.

        @ct.register_operator
        class Longest(Operator):
            kind = "longest"

    It raises nothing: a kind that is known already stands for the new operator from then on.
    """
    OPERATORS.add(operator.kind, operator)
    return operator


def operator_class(kind: str) -> type[Operator]:
    """The operator that a plan names."""
    found = OPERATORS.get(kind)
    if found is None:
        raise QueryError("no such operator", given=kind, hint=OPERATORS.missing(kind))
    return found


def is_numeric(type: pa.DataType | None) -> bool:
    return type is not None and (
        pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type)
    )


def is_float(type: pa.DataType | None) -> bool:
    return type is not None and pa.types.is_floating(type)


def is_exact(type: pa.DataType | None) -> bool:
    """Whether sums of values are decimals: of decimals, and of uint64, which int64 cannot hold."""
    return type is not None and (pa.types.is_decimal(type) or type == pa.uint64())


def value_type(type: pa.DataType | None) -> pa.DataType:
    """The type of a value kept in a partial: numbers are widened, all else stays as it is."""
    assert type is not None
    if pa.types.is_floating(type):
        return pa.float64()
    if pa.types.is_integer(type) and type != pa.uint64():
        return pa.int64()
    return type.value_type if pa.types.is_dictionary(type) else type
