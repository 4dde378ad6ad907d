"""Execution of a task graph: one scheduling loop, in this process or on Ray."""

from __future__ import annotations

from reodsl.graph.job import Resources
from reodsl.graph.payload import engine_of
from reodsl.graph.task import Graph, Task
from reodsl.ir.study import Cluster
from reodsl.plan.registry import Execution, Results
from runners.execute.check import gpus
from runners.execute.local import Local
from runners.execute.placement import resources_of
from runners.execute.schedule import Backend, schedule

__all__ = ["execute"]


def execute(run: Execution) -> Results:
    """Do every task of the graph whose result the store does not have; Ray starts only when there is one.

    Raises a `Problem` when Ray does not start (E0962) or its nodes do not see the store (E0963). An interruption
    ends the tasks that run and is passed on; what they had done stays in their work folders.
    """

    def start() -> Backend:
        if run.machine.local:
            return Local(run.emit)
        from runners.execute.cluster import Cluster

        return Cluster(run.machine.address, run.store.root.resolve(), run.emit)

    cluster = cluster_of(run.graph)
    # Where the GPUs are another machine's, this one does not see them.
    device = "cuda" if gpus() or (run.machine.address and cluster is not None) else "cpu"

    def resources(task: Task) -> Resources:
        return resources_of(task.kind, cluster, device, engine_of(task))

    return schedule(run, start, resources)


def cluster_of(graph: Graph) -> Cluster | None:
    """The cluster that a study's report tells of, which no result depends on."""
    for task in graph.tasks:
        if task.kind == "report" and task.payload["spec"]["study"]["cluster"] is not None:
            return Cluster.model_validate(task.payload["spec"]["study"]["cluster"])
    return None
