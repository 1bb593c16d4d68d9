"""SQL text to a query: SELECT keys and aggregates FROM events WHERE ... GROUP BY keys, window.

SQL follows Spark. The statement is taken apart here; its expressions, functions and windows go as
text to the same builders that Python calls, so the same mistake gives the same error.
"""

from catchment.sqltext.query import aggregate, expr, order, selected, sql

__all__ = ["aggregate", "expr", "order", "selected", "sql"]
