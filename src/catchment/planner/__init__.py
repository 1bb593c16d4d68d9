"""Queries to a plan: groups that share slices, the edges of their windows, and costs."""

from catchment.model.plan import Plan
from catchment.planner.explain import explain
from catchment.planner.group import plan, replan

Plan.explainer = explain

__all__ = ["explain", "plan", "replan"]
