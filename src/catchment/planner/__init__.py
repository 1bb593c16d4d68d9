"""Queries to a plan."""

from catchment.planner.explain import explain
from catchment.planner.group import plan, replan

__all__ = ["explain", "plan", "replan"]
