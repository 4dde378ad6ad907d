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
    """Run every task of a graph whose result is not in the store, in this process or on Ray.

    Ray starts only if a task has to run. An interruption ends the running tasks and is raised again; the tasks continue
    from their work folders in the next run.

    Args:
        run: graph, store, runners, machine and the function that receives events.

    Returns:
        Keys of the results, failures and blocked tasks, by task id.

    Raises:
        Problem: Ray does not start (E0962), or its nodes do not see the store or have another reodsl (E0977).
    """

    def start() -> Backend:
        """Return the backend that runs the tasks: this process, or Ray. It is called when the first task has to run."""
        if run.machine.local:
            return Local(run.emit)
        from runners.execute.cluster import RayCluster
        from runners.execute.rehearsal import perform_and_note

        root, is_rehearsal = run.store.root.resolve(), run.machine.notes is not None
        clusters = [task.cluster for task in run.graph.tasks if task.cluster is not None]
        return RayCluster(
            run.machine.address,
            root,
            run.emit,
            perform_and_note if is_rehearsal else perform_order,
            declared_nodes(clusters) if is_rehearsal and run.machine.declares else (),
        )

    local_gpus = gpus()

    def resources(task: Task) -> Resources:
        """Return a task's share of the machines: its device, processes, GPUs and threads, and what its code may do.

        In a rehearsal with declared GPUs the task reserves these GPUs on Ray, but computes on processors.
        """
        # GPUs of another machine, or GPUs that are only declared, are not visible here.
        notes, placed = run.machine.notes, task.cluster is not None
        device = "cuda" if local_gpus or (placed and (run.machine.address or notes is not None)) else "cpu"
        share = resources_of(task.kind, task.cluster, device, engine_of(task))
        if notes is not None:
            share = replace(share, device="cpu", notes=notes if share.device != "cpu" else None)
        return replace(share, confined=not run.machine.without_sandbox, python=run.machine.python)

    return schedule(run, start, resources)


class Local:
    """The backend of this process, for debugging and for machines that are too small for Ray.

    It runs one order at a time, in `wait`.
    """

    slots = 1

    def __init__(self, emit: Callable[[Event], None]) -> None:
        """Set the environment of numerical libraries; `emit` receives events of progress."""
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self.emit = emit
        self.order: Order | None = None
        self.serves = False

    def submit(self, order: Order) -> None:
        """Store the next order, which `wait` runs."""
        self.order = order

    def wait(self, timeout: float) -> list[tuple[str, Outcome]]:
        """Run the submitted order to its end; without an order, sleep for `timeout` seconds.

        Args:
            timeout: Seconds to sleep without an order.

        Returns:
            (task id, outcome) of the order, or an empty list.
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
        """End the SGLang servers that were kept running between tasks."""
        if self.serves:
            from runners.engine.sglang import hosts

            hosts.end_servers()
            self.serves = False

    def _prepare(self, order: Order) -> None:
        """Prepare SGLang's servers for an order.

        If the order generates with SGLang, its servers stay for later orders. If it computes on GPUs without SGLang,
        running servers end, as they occupy the GPUs.
        """
        if order.resources.engine == "sglang":
            from runners.engine.sglang import hosts

            hosts.keep_servers()
            self.serves = True
        elif order.resources.device != "cpu":
            self.stop()
