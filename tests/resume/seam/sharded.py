"""Gives two processes to trainings called `sharded`, and servers apart to `apart`, where a spec would need GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import runners.execute
from reodsl.graph.job import Resources
from reodsl.graph.task import Task
from reodsl.plan.registry import Execution, RunResults
from runners.execute.schedule import Backend


def install() -> None:
    """Before a run begins, in the process of the command."""
    schedule = runners.execute.schedule

    def sharing(
        run: Execution, start: Callable[[], Backend], resources: Callable[[Task], Resources]
    ) -> RunResults:
        def shared(task: Task) -> Resources:
            found = resources(task)
            if task.kind == "train" and task.id.startswith("apart."):
                return replace(found, disaggregated=True)
            two = task.kind == "train" and task.id.startswith("sharded.")
            return replace(found, trainers=2) if two else found

        return schedule(run, start, shared)

    runners.execute.schedule = sharing
