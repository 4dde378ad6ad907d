"""The registry that the compiler finds through the entry-point group `reodsl.runners`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from reodsl.plan.registry import Registry


def load_later(reference: str) -> Callable[..., Any]:
    """Return a function that passes its arguments to the function `reference`, which is imported at the call.

    Args:
        reference: A function as `module:function`; the late import keeps the compiler's start fast.
    """
    module, _, name = reference.partition(":")
    return lambda *arguments: getattr(import_module(module), name)(*arguments)


REGISTRY = Registry(
    runners={
        "model": "runners.models.prepare:model",
        "data": "runners.data.load:data",
        "train": "runners.train.run:train",
        "sample": "runners.evaluate.run:sample",
        "select": "runners.data.select:select",
        "evaluate": "runners.evaluate.run:evaluate",
        "results": "runners.results.arm:results",
        "frontier": "runners.evaluate.frontier:frontier",
        "budgets": "runners.evaluate.frontier:budgets",
        "score": "runners.evaluate.frontier:score",
        "measure": "runners.evaluate.measures:measure",
        "report": "reodsl.report.run:report",
    },
    check=load_later("runners.execute.check:check"),
    execute=load_later("runners.execute:execute"),
    survey=load_later("runners.execute.survey:survey"),
    probe=load_later("runners.execute.probes:probe_nodes"),
    try_reward=load_later("runners.train.advantages:try_reward"),
    stand_ins=load_later("runners.execute.stand_ins:stand_ins"),
    count_questions=load_later("runners.execute.questions:counts"),
    import_results=load_later("runners.results.table:import_results"),
)
