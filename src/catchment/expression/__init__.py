"""SQL scalar expressions: predicates and computed columns, over whole Arrow columns at once."""

from catchment.expression.disjointness import (
    NULL,
    Alternative,
    Alternatives,
    Range,
    Ranges,
    all_apart,
    alternatives,
    apart,
    column_ranges,
    constraints,
    disjoint,
)
from catchment.expression.evaluation import evaluate, infer
from catchment.expression.named import NAMES as FUNCTION_NAMES
from catchment.expression.named import is_function
from catchment.expression.nodes import part_text, quote
from catchment.expression.parsing import canonical, columns, substituted
from catchment.expression.paths import column_in, columns_read, steps_of, taken_out, type_at
from catchment.expression.refuse import function_hint
from catchment.expression.spark_sql import sql_of

__all__ = [
    "FUNCTION_NAMES",
    "Alternative",
    "Alternatives",
    "NULL",
    "Range",
    "Ranges",
    "alternatives",
    "all_apart",
    "apart",
    "canonical",
    "column_in",
    "column_ranges",
    "columns",
    "columns_read",
    "constraints",
    "disjoint",
    "evaluate",
    "function_hint",
    "infer",
    "is_function",
    "part_text",
    "quote",
    "sql_of",
    "steps_of",
    "substituted",
    "taken_out",
    "type_at",
]
