"""Queries to a plan."""

from catchment.model.plan import Plan
from catchment.planner.explain import explain
from catchment.planner.group import plan, replan

Plan.explainer = explain

__all__ = ["explain", "plan", "replan"]
