"""Catchment: thousands of windowed aggregations for the price of one pass over the events.

import catchment as ct
q = ct.Query("speed", ct.avg("v").alias("mean"), by=["player"], window=ct.sliding("10s", "5s"))
engine = ct.Engine([q], time="ts")
engine.push(table); engine.advance(t)["speed"]
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from catchment.engine import Engine, Results, Stats, assemble, merge, slice
    from catchment.errors import (
        CatchmentError,
        DataError,
        JobError,
        LimitError,
        QueryError,
        SchemaError,
        SqlError,
        StateError,
    )
    from catchment.functions import (
        approx_count_distinct,
        approx_median,
        approx_quantile,
        avg,
        count,
        count_distinct,
        first,
        function,
        geometric_mean,
        last,
        max,
        median,
        min,
        mode,
        product,
        quantile,
        range,
        register_function,
        stddev,
        stddev_pop,
        sum,
        variance,
        variance_pop,
    )
    from catchment.job import load_job
    from catchment.model.plan import Plan
    from catchment.model.query import Aggregate, Query
    from catchment.operators import register_operator
    from catchment.planner import explain, plan
    from catchment.spark.batch import run
    from catchment.spark.job import Job
    from catchment.sqltext import sql
    from catchment.windows import (
        between,
        count_sliding,
        count_tumbling,
        cumulate,
        cut,
        fixed,
        session,
        sliding,
        tumbling,
    )

# Importing all of it takes a second or two, which every Python process of a Spark job would pay,
# and pyspark need not be there at all: each name is imported when it is first asked for.
_NAMES = {
    "catchment.engine": "Engine Results Stats assemble merge slice",
    "catchment.errors": (
        "CatchmentError DataError JobError LimitError QueryError SchemaError SqlError StateError"
    ),
    "catchment.functions": (
        "approx_count_distinct approx_median approx_quantile avg count count_distinct "
        "first function geometric_mean last max median min mode product quantile range "
        "register_function stddev stddev_pop sum variance variance_pop"
    ),
    "catchment.job": "load_job",
    "catchment.model.plan": "Plan",
    "catchment.model.query": "Aggregate Query",
    "catchment.operators": "register_operator",
    "catchment.planner": "explain plan",
    "catchment.spark.batch": "run",
    "catchment.spark.job": "Job",
    "catchment.sqltext": "sql",
    "catchment.windows": (
        "between count_sliding count_tumbling cumulate cut fixed session sliding tumbling"
    ),
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'catchment' has no attribute {name!r}")
    value = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})


try:
    __version__ = version("catchment")
except PackageNotFoundError:  # running from a source tree that was not installed
    __version__ = "0.0.0"

__all__ = [
    "Aggregate",
    "CatchmentError",
    "DataError",
    "Engine",
    "Job",
    "JobError",
    "LimitError",
    "Plan",
    "Query",
    "QueryError",
    "Results",
    "SchemaError",
    "SqlError",
    "StateError",
    "Stats",
    "approx_count_distinct",
    "approx_median",
    "approx_quantile",
    "assemble",
    "avg",
    "between",
    "count",
    "count_distinct",
    "count_sliding",
    "count_tumbling",
    "cumulate",
    "cut",
    "explain",
    "first",
    "fixed",
    "function",
    "geometric_mean",
    "last",
    "load_job",
    "max",
    "median",
    "merge",
    "min",
    "mode",
    "plan",
    "product",
    "quantile",
    "range",
    "register_function",
    "register_operator",
    "run",
    "session",
    "slice",
    "sliding",
    "sql",
    "stddev",
    "stddev_pop",
    "sum",
    "tumbling",
    "variance",
    "variance_pop",
]
