"""SQL scalar expressions: predicates and computed columns, over whole Arrow columns at once."""

from catchment.expression.disjointness import disjoint
from catchment.expression.evaluation import evaluate, infer
from catchment.expression.nodes import quote
from catchment.expression.parsing import canonical, columns

__all__ = ["canonical", "columns", "disjoint", "evaluate", "infer", "quote"]
