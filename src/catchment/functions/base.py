"""What a function is: the operators it needs, and how their fields become its result."""

from __future__ import annotations

import inspect
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa

from catchment.errors import QueryError, SchemaError
from catchment.expression import FUNCTION_NAMES, canonical
from catchment.functions.spark_names import REFUSED
from catchment.model.query import ARGUMENTS, Aggregate
from catchment.operators import Computed, OperatorRef
from catchment.operators.base import is_numeric
from catchment.operators.ragged import Array, Ints
from catchment.registry import Registry


class Function(ABC):
    """One function. Functions hold no state: everything is in the aggregate and its fields."""

    name: ClassVar[str]
    synonyms: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[str] = "a number"
    """What its column must be, in an error's words."""
    needs_column: ClassVar[bool] = True
    columns: ClassVar[int] = 1
    """How many columns it takes. Several become one, `arguments(x, y)`, whose type is a struct."""

    parameters: ClassVar[str] = ""
    """What may follow the columns, in a sentence for people; empty: nothing."""
    given: ClassVar[str] = ""
    """Parameters as an example writes them."""

    @property
    def example(self) -> str:
        """A call in Python."""
        columns = '"v"' if self.columns == 1 else ", ".join(f'"{c}"' for c in self.names)
        return f"ct.{self.name}({columns}{self.given and f', {self.given}'})"

    @property
    def names(self) -> str:
        """What its columns are called, a letter each, where there are several."""
        return "xyz"[: self.columns]

    def help(self) -> str:
        """What `help` says of the builder: what it means, what it takes, an example, errors."""
        if self.columns > 1:
            called = " and ".join(f"`{name}`" for name in self.names)
            takes = f"{called} are columns of the events, or SQL expressions over them"
        else:
            takes = "`column` is a column of the events, or an SQL expression over columns"
        optional = "" if self.needs_column else "; without one, whole events count"
        wanted = f"{takes}: {self.takes}{optional}."
        return "\n".join(
            [
                inspect.cleandoc(self.__doc__ or "").strip(),
                "",
                *textwrap.wrap(f"{wanted} {self.parameters}".strip(), 96),
                "",
                ">>> import catchment as ct",
                f">>> query = ct.Query('q', {self.example}.alias('x'), window=ct.tumbling('10s'))",
                ">>> query.aggregates[0].name",
                "'x'",
                "",
                "Raises QueryError for what it does not take, and SchemaError once events come",
                "whose columns are of another type.",
            ]
        )

    @abstractmethod
    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        """The operators that the result is made of."""

    @abstractmethod
    def lower(
        self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None
    ) -> pa.Array[Any]:
        """The results, one per row of the operators' fields."""

    def ranks(self, aggregate: Aggregate, counts: Ints) -> list[Ints] | None:
        """Of so many sorted values, the places of those that the result is made of, from 0 on; None
        where it takes all of them, or none in order. There is at least one value."""
        return None

    def most_frequent(self, aggregate: Aggregate) -> int | None:
        """How many of the most frequent values, and how often each occurs, the result is made of,
        of equals the least; None where it takes others."""
        return None

    def result(self, aggregate: Aggregate, type: pa.DataType | None) -> pa.DataType:
        """The type of the result."""
        return pa.float64()

    def accepts(self, type: pa.DataType) -> bool:
        return is_numeric(type)

    @property
    def takes_parameters(self) -> bool:
        """Whether anything may follow the columns: who takes something checks it."""
        return type(self).check is not Function.check

    def check(self, aggregate: Aggregate) -> None:
        """Refuses parameters that mean nothing."""
        if aggregate.params:
            raise self.takes_no_more(aggregate.text)

    def takes_no_more(self, given: str) -> QueryError:
        """What is said of a call in which something follows the columns."""
        what = "a column" if self.columns == 1 else f"{self.columns} columns"
        return QueryError(
            f"{self.name} takes {what} and nothing else", given=given, hint=f"try {self.example}"
        )

    def check_type(self, aggregate: Aggregate, type: pa.DataType | None, query: str) -> None:
        if type is not None and not self.accepts(type):
            raise SchemaError(
                f"query {query!r}: {self.name} needs {self.takes}",
                given=f"{aggregate.arguments} is {type}",
                hint=f"count_if({aggregate.arguments}) counts where it is true"
                if pa.types.is_boolean(type)
                else "count, first, last, min, max and mode take texts too",
            )


def _function(name: str, found: Any) -> Function | None:
    """The function of an entry point: its class, one of that class, or its builder."""
    made = found() if isinstance(found, type) and issubclass(found, Function) else found
    made = getattr(made, "function", made)
    return made if isinstance(made, Function) and name in _words(made) else None


FUNCTIONS: Registry[Function] = Registry(
    "function", "catchment.functions", "catchment.functions", _function
)
"""The functions by their names and synonyms, in small letters."""


def _words(function: Function) -> list[str]:
    return [word.lower() for word in (function.name, *function.synonyms)]


Known = TypeVar("Known", bound=Function | type[Function])


def register_function(function: Known) -> Known:
    """Makes a function, or the one function of a class, known by its name and synonyms.

    `function` is a `Function` or a class of one; it is given back, so that this is a decorator.

        @ct.register_function
        class Spread(Function):
            name = "spread"

    It raises nothing: a name that is known already stands for the new function from then on.
    """
    made = function() if isinstance(function, type) else function
    for word in _words(made):
        FUNCTIONS.add(word, made)
    return function


def names() -> list[str]:
    """Every name a function answers to."""
    return list(FUNCTIONS)


def function_of(aggregate: Aggregate) -> Function:
    """The function of an aggregate that a plan holds."""
    found = FUNCTIONS.get(aggregate.function.lower())
    if found is None:
        name = aggregate.function
        raise QueryError("no such function", given=name, hint=FUNCTIONS.missing(name.lower()))
    return found


def make(name: str, column: str | None = None, params: tuple[Any, ...] = ()) -> Aggregate:
    """An aggregate by its function's name or synonym, checked.

    >>> make("mean", "v").text
    'avg(v)'
    """
    function = FUNCTIONS.get(name.lower())
    if function is None and name.lower() in REFUSED:
        hint = REFUSED[name.lower()]
        raise QueryError("this function of Spark is not supported", given=name, hint=hint)
    if function is None:
        raise QueryError("no such function", given=name, hint=FUNCTIONS.hint(name, FUNCTION_NAMES))
    if column is None and function.needs_column:
        raise QueryError(f"{function.name} needs a column", hint=f"try {function.example}")
    texts = () if column is None else (column, *params[: function.columns - 1])
    if column is not None and len(texts) < function.columns:
        raise QueryError(
            f"{function.name} needs {function.columns} columns",
            given=f"{name}({', '.join(map(str, texts))})",
            hint=f"try {function.example}",
        )
    texts = tuple(canonical(text, f"column of {function.name}") for text in texts)
    text = f"{ARGUMENTS}{', '.join(texts)})" if len(texts) > 1 else next(iter(texts), None)
    rest = params if column is None else params[function.columns - 1 :]
    aggregate = Aggregate(function.name, text, tuple(rest))
    function.check(aggregate)
    return aggregate


FunctionBuilder = Callable[..., Aggregate]


def builder(function: Function) -> FunctionBuilder:
    """The function's name as a Python function: `avg("v")`, `quantile("v", 0.95)`."""

    def build(column: str | None = None, *params: Any) -> Aggregate:
        return make(function.name, column, params)

    build.__name__ = build.__qualname__ = function.name
    build.__doc__ = function.help()
    build.__signature__ = _signature(function)  # type: ignore[attr-defined]
    build.function = function  # type: ignore[attr-defined]
    return build


def _signature(function: Function) -> inspect.Signature:
    """The parameters of a builder, as `help` and editors show them."""
    named = ("column",) if function.columns == 1 else tuple(function.names)
    default = inspect.Parameter.empty if function.needs_column else None
    kind = inspect.Parameter.POSITIONAL_ONLY
    found = [inspect.Parameter(name, kind, default=default, annotation="str") for name in named]
    if function.parameters:
        found.append(inspect.Parameter("params", inspect.Parameter.VAR_POSITIONAL))
    return inspect.Signature(found, return_annotation="Aggregate")


def builder_from(name: str, file: str) -> FunctionBuilder:
    """The builder of a function that a file of this package registers."""
    import_module(f"catchment.functions.{file}")
    function = FUNCTIONS.registered().get(name)
    assert function is not None, f"{file} registers no function {name}"
    return builder(function)


def some(computed: Computed, column: str | None) -> Array:
    """Where a column has any value that is not null."""
    counts = computed[OperatorRef("count", column)]["count"]
    assert isinstance(counts, np.ndarray)
    return counts > 0


def counted(column: str | None, *kinds: str) -> tuple[OperatorRef, ...]:
    """The operators named over the column, and its count, which tells nulls from values."""
    return *(OperatorRef(kind, column) for kind in kinds), OperatorRef("count", column)
