"""Which calls in SQL text are aggregates, and which are windows."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from catchment import functions
from catchment.model.window import BUILDERS

COUNT_IF = ("count_if", "countif")
PERCENTILES = ("percentile_cont", "percentile_disc")


def is_aggregate(node: Any) -> bool:
    """Whether a call is one of an aggregate, with all that may stand around it."""
    if isinstance(node, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup):
        return True
    if not isinstance(node, exp.Anonymous):
        return False
    known = node.name.lower()
    return known in COUNT_IF or known in functions.FUNCTIONS or known in PERCENTILES


def has_aggregate(node: exp.Expression) -> bool:
    """Whether an aggregate stands anywhere in an expression."""
    return any(is_aggregate(inner) for inner in node.walk())


def is_window_call(node: Any) -> bool:
    """Whether a call is one of a window, by its name."""
    if not isinstance(node, exp.Anonymous):
        return False
    name = node.name.lower()
    return name.endswith("window") or name in BUILDERS
