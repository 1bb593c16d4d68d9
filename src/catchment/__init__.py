"""Catchment: thousands of windowed aggregations for the price of one pass over the events.

import catchment as ct
q = ct.Query("speed", ct.avg("v").alias("mean"), by=["player"], window=ct.sliding("10s", "5s"))
engine = ct.Engine([q], time="ts")
engine.push(table); engine.advance(t)["speed"]
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str

    from catchment.batch import run as run
    from catchment.engine import Engine as Engine
    from catchment.engine import Results as Results
    from catchment.engine import Stats as Stats
    from catchment.engine import assemble as assemble
    from catchment.engine import merge as merge
    from catchment.engine import slice as slice
    from catchment.errors import CatchmentError as CatchmentError
    from catchment.errors import DataError as DataError
    from catchment.errors import ExtensionError as ExtensionError
    from catchment.errors import JobError as JobError
    from catchment.errors import LimitError as LimitError
    from catchment.errors import MissingPackageError as MissingPackageError
    from catchment.errors import QueryError as QueryError
    from catchment.errors import SchemaError as SchemaError
    from catchment.errors import SqlError as SqlError
    from catchment.errors import StateError as StateError
    from catchment.functions import function as function
    from catchment.functions import register_function as register_function
    from catchment.functions.built_in import *  # noqa: F403
    from catchment.job import load_job as load_job
    from catchment.model.early import every as every
    from catchment.model.plan import Plan as Plan
    from catchment.model.query import Aggregate as Aggregate
    from catchment.model.query import Expression as Expression
    from catchment.model.query import Ordering as Ordering
    from catchment.model.query import Query as Query
    from catchment.model.time_column import TimeColumn as TimeColumn
    from catchment.operators import register_operator as register_operator
    from catchment.planner import explain as explain
    from catchment.planner import plan as plan
    from catchment.point_in_time import as_of as as_of
    from catchment.rolling_values import rolling as rolling
    from catchment.spark.job import Job as Job
    from catchment.spark.windows import window as window
    from catchment.spark.windows import windows as windows
    from catchment.sqltext import expr as expr
    from catchment.sqltext import order as order
    from catchment.sqltext import sql as sql
    from catchment.windows import *  # noqa: F403

# Importing all of it takes a second or two, which every Python process of a Spark job would pay,
# and pyspark need not be there at all: each name is imported when it is first asked for.
_NAMES = {
    "catchment.batch": "run",
    "catchment.engine": "Engine Results Stats assemble merge slice",
    "catchment.errors": (
        "CatchmentError DataError ExtensionError JobError LimitError MissingPackageError "
        "QueryError SchemaError SqlError StateError"
    ),
    "catchment.functions": "function register_function",
    "catchment.job": "load_job",
    "catchment.model.early": "every",
    "catchment.model.plan": "Plan",
    "catchment.model.query": "Aggregate Expression Ordering Query",
    "catchment.model.time_column": "TimeColumn",
    "catchment.operators": "register_operator",
    "catchment.planner": "explain plan",
    "catchment.point_in_time": "as_of",
    "catchment.rolling_values": "rolling",
    "catchment.spark.job": "Job",
    "catchment.spark.windows": "window windows",
    "catchment.sqltext": "expr order sql",
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return _everything()
    if name == "__version__":
        return _version()
    if name in _PLACES:
        value = getattr(_module_of(name), name)
    elif name.startswith("_") or find_spec(f"catchment.{name}") is not None:
        raise AttributeError(f"module 'catchment' has no attribute {name!r}")
    else:
        value = _builder(name)
    globals()[name] = value
    return value


def _module_of(name: str) -> ModuleType:
    """The module that holds one of our names."""
    from catchment.errors import needing

    with needing(f"ct.{name}"):
        return import_module(_PLACES[name])


class _Catchment(ModuleType):
    """This module. Its `windows` is the function, also once Python has imported the package of
    window types, which has the same name and would be bound to it."""

    @property
    def windows(self) -> Any:
        return _module_of("windows").windows

    @windows.setter
    def windows(self, package: ModuleType) -> None:
        return


sys.modules[__name__].__class__ = _Catchment


def _builder(name: str) -> Any:
    """The builder of a window or a function, ours or that of an installed package."""
    from catchment.functions.base import FUNCTIONS, builder
    from catchment.model.window import BUILDERS

    if name in BUILDERS:
        return BUILDERS[name]
    if name in FUNCTIONS and FUNCTIONS[name].name == name:  # synonyms are for SQL
        return builder(FUNCTIONS[name])
    raise AttributeError(f"module 'catchment' has no attribute {name!r}")


def _everything() -> list[str]:
    """All names of ours; those of installed packages are there when they are asked for."""
    from catchment.functions import built_in
    from catchment.model.window import BUILDERS

    windows = import_module("catchment.windows")
    builders = [name for name in vars(windows) if name in BUILDERS]
    functions = [name for name in vars(built_in) if not name.startswith("_")]
    return sorted({*_PLACES, *builders, *functions})


def __dir__() -> list[str]:
    return sorted({*globals(), *_everything()})


def _version() -> str:
    """The version of the installed package. It is looked up when somebody asks: that is slow."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("catchment")
    except PackageNotFoundError:  # running from a source tree that was not installed
        return "0.0.0"
