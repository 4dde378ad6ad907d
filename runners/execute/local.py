"""Execution in this process, one task after another: for debugging and for machines where Ray is too heavy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace

from reodsl.graph.job import Event
from runners.execute.check import shown_gpus
from runners.execute.perform import ENVIRONMENT, Order, Outcome, perform
from runners.execute.placement import threads_beside


class Local:
    """A backend with one slot: an order is done when its outcome is waited for."""

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
        """Do the order that was taken; without one, let `timeout` seconds pass."""
        if self.order is None:
            time.sleep(timeout)
            return []
        order, self.order = self.order, None
        name = order.task.id
        self._prepare(order)
        given = threads_beside(order.resources, [(len(os.sched_getaffinity(0)), shown_gpus())])
        order = replace(order, resources=given)
        return [(name, perform(order, lambda progress: self.emit(Event("progress", name, progress))))]

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
