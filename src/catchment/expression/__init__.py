"""SQL scalar expressions: predicates and computed columns, over whole Arrow columns at once."""

from catchment.expression.disjointness import (
    NULL,
    Alternative,
    Alternatives,
    Range,
    Ranges,
    alternatives,
    apart,
    column_ranges,
    constraints,
    disjoint,
)
from catchment.expression.evaluation import evaluate, infer
from catchment.expression.nodes import quote
from catchment.expression.parsing import canonical, columns, substituted
from catchment.expression.refuse import FUNCTION_NAMES, is_function

__all__ = [
    "FUNCTION_NAMES",
    "Alternative",
    "Alternatives",
    "NULL",
    "Range",
    "Ranges",
    "alternatives",
    "apart",
    "canonical",
    "column_ranges",
    "columns",
    "constraints",
    "disjoint",
    "evaluate",
    "infer",
    "is_function",
    "quote",
    "substituted",
]
