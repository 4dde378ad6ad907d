"""The plan of a run: a verdict and a reason for every task, as data first."""

from reodsl.plan.verdict import Item, Keys, Plan, make_plan

__all__ = ["Item", "Keys", "Plan", "make_plan"]
