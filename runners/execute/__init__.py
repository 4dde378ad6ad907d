"""Execution of a task graph: one scheduling loop, in this process or on Ray."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace

from reodsl.graph.job import Event, Resources
from reodsl.graph.payload import engine_of
from reodsl.graph.task import Task
from reodsl.plan.registry import Execution, RunResults
from runners.execute.check import gpus, shown_gpus
from runners.execute.perform import ENVIRONMENT, Order, Outcome, perform_order
from runners.execute.placement import declared_nodes, resources_of, threads_beside
from runners.execute.schedule import Backend, schedule

__all__ = ["execute"]


def execute(run: Execution) -> RunResults:
    """Do every task of the graph that has no result in the store; Ray starts only when a task has none.

    Args:
        run: graph, store, runners, machine and the function that hears of events.

    Returns:
        Keys of the results, failures and blocked tasks, by task id.

    Raises:
        Problem: Ray does not start (E0962), or its nodes do not see the store or have another reodsl (E0977).

    An interruption ends the running tasks and is passed on; their finished work stays in their work folders.
    """

    def start() -> Backend:
        if run.machine.local:
            return Local(run.emit)
        from runners.execute.cluster import RayCluster
        from runners.execute.rehearsal import perform_and_note

        root, rehearses = run.store.root.resolve(), run.machine.notes is not None
        clusters = [task.cluster for task in run.graph.tasks if task.cluster is not None]
        return RayCluster(
            run.machine.address,
            root,
            run.emit,
            perform_and_note if rehearses else perform_order,
            declared_nodes(clusters) if rehearses and run.machine.declares else (),
        )

    local_gpus = gpus()

    def resources(task: Task) -> Resources:
        # Where the GPUs are another machine's or nobody's, this one does not see them.
        notes, placed = run.machine.notes, task.cluster is not None
        device = "cuda" if local_gpus or (placed and (run.machine.address or notes is not None)) else "cpu"
        share = resources_of(task.kind, task.cluster, device, engine_of(task))
        if notes is not None:
            share = replace(share, device="cpu", notes=notes if share.device != "cpu" else None)
        return replace(share, confined=not run.machine.without_sandbox, python=run.machine.python)

    return schedule(run, start, resources)


class Local:
    """This process as a backend, for debugging and for machines where Ray is too heavy.

    It has one slot: an order is done when its outcome is waited for.
    """

    slots = 1

    def __init__(self, emit: Callable[[Event], None]) -> None:
        """Prepare; `emit` hears of progress."""
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self.emit = emit
        self.order: Order | None = None
        self.serves = False

    def submit(self, order: Order) -> None:
        """Take the next order."""
        self.order = order

    def wait(self, timeout: float) -> list[tuple[str, Outcome]]:
        """Do the submitted order; without an order, sleep for `timeout` seconds.

        Returns:
            The order's task id with its outcome, or nothing.
        """
        if self.order is None:
            time.sleep(timeout)
            return []
        order, self.order = self.order, None
        name = order.task.id
        self._prepare(order)
        resources = threads_beside(order.resources, [(len(os.sched_getaffinity(0)), shown_gpus())])
        order = replace(order, resources=resources)
        return [(name, perform_order(order, lambda progress: self.emit(Event("progress", name, progress))))]

    def stop(self) -> None:
        """End the servers that stayed for a next task."""
        if self.serves:
            from runners.engine.sglang import hosts

            hosts.end_servers()
            self.serves = False

    def _prepare(self, order: Order) -> None:
        """Let servers stay between tasks, but not on GPUs where the next has no use for them and wants their memory."""
        if order.resources.engine == "sglang":
            from runners.engine.sglang import hosts

            hosts.keep_servers()
            self.serves = True
        elif order.resources.device != "cpu":
            self.stop()
