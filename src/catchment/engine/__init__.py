"""Slice, merge, assemble: the three verbs, and the engine that runs them over a stream."""

import catchment.windows  # noqa: F401  plans name window types, which must be known by then
from catchment.engine.engine import Engine
from catchment.engine.results import Results
from catchment.engine.stats import Stats
from catchment.engine.verbs import assemble, merge, slice

__all__ = ["Engine", "Results", "Stats", "assemble", "merge", "slice"]
