"""The operators. A new one is one file here and one line below."""

from catchment.operators import (
    count,
    digest,
    ends,
    extreme,
    moments,
    product,
    sketches,
    sort,
    sum,
    user,
)
from catchment.operators.base import (
    Computed,
    Input,
    Operator,
    OperatorRef,
    operator_class,
    register_operator,
)
from catchment.operators.grouping import Grouping, grouped
from catchment.operators.ragged import Field, Fields, Ragged

BUILT_IN = (count, digest, ends, extreme, moments, product, sketches, sort, sum, user)

__all__ = [
    "BUILT_IN",
    "Computed",
    "Field",
    "Fields",
    "Grouping",
    "Input",
    "Operator",
    "OperatorRef",
    "Ragged",
    "grouped",
    "operator_class",
    "register_operator",
]
