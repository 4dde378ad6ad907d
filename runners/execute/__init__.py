"""Execution of a task graph: one scheduling loop, in this process or on Ray."""

from __future__ import annotations

from dataclasses import replace

from reodsl.graph.job import Resources
from reodsl.graph.payload import engine_of
from reodsl.graph.task import Task
from reodsl.plan.registry import Execution, Results
from runners.execute.check import gpus
from runners.execute.local import Local
from runners.execute.placement import resources_of
from runners.execute.schedule import Backend, schedule

__all__ = ["execute"]


def execute(run: Execution) -> Results:
    """Do every task of the graph whose result the store does not have; Ray starts only when there is one.

    Raises a `Problem` when Ray does not start (E0962), and when its nodes do not see the store (E0963) or have another
    reodsl (E0977). An interruption ends the tasks that run and is passed on; what they had done stays in their work folders.
    """

    def start() -> Backend:
        if run.machine.local:
            return Local(run.emit)
        from runners.execute.cluster import Cluster

        return Cluster(run.machine.address, run.store.root.resolve(), run.emit)

    here = gpus()

    def resources(task: Task) -> Resources:
        # Where the GPUs are another machine's, this one does not see them.
        device = "cuda" if here or (run.machine.address and task.cluster is not None) else "cpu"
        wanted = resources_of(task.kind, task.cluster, device, engine_of(task))
        return replace(wanted, confined=not run.machine.without_sandbox, python=run.machine.python)

    return schedule(run, start, resources)
