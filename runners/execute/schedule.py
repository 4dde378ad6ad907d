"""The scheduling loop, which runs the tasks of a graph on any backend."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from typing import Protocol

from reodsl.diagnostics import Diagnostic, error
from reodsl.graph.job import Event, Resources
from reodsl.graph.task import Task
from reodsl.plan.registry import Execution, RunResults
from reodsl.plan.verdict import contents
from reodsl.store.live import read_kept
from reodsl.store.manifest import Manifest
from reodsl.store.store import WEIGHTS, add_acceptances
from runners.execute.perform import Order, Outcome

# Seconds between two checks of a task that another run computes.
_POLL_SECONDS = 0.5
# Attempts at a task whose process dies without saving more work than the attempt before.
_ATTEMPTS = 3
_RESUMES = "run the command again to continue"
_NO_STORE = "E0950"
"""The store cannot be written, or is full."""


class Backend(Protocol):
    """The means to run orders, such as Ray: at most `slots` orders at once."""

    slots: int

    def submit(self, order: Order) -> None:
        """Start an order, or store it for `wait` to run."""

    def wait(self, timeout: float) -> list[tuple[str, Outcome]]:
        """Return the outcomes of orders that have finished since the last call.

        Args:
            timeout: Seconds to wait if no order has finished.

        Returns:
            (task id, outcome) of each order.
        """

    def stop(self) -> None:
        """End all orders that still run, and the backend; a second call does nothing."""


def schedule(
    run: Execution, start_backend: Callable[[], Backend], resources: Callable[[Task], Resources]
) -> RunResults:
    """Run every task of a graph whose result is not in the store, in the order of `Graph.turns`.

    If a task fails, tasks that need its result are blocked, and other tasks continue.

    Args:
        run: Graph, store, keys and the function that receives events.
        start_backend: Function that starts the backend; it is called when the first task has to run.
        resources: Function from a task to its share of the machines.

    Returns:
        Keys of the results, failures, blocked tasks and rebuilt results.
    """
    loop = _Loop(run, resources)
    backend: Backend | None = None
    try:
        while loop.ready or loop.flying or loop.waiting:
            loop.wake()
            while loop.ready and (backend is None or len(loop.flying) < backend.slots):
                order = loop.next_order()
                if order is not None:
                    backend = backend or start_backend()
                    loop.flying[order.task.id] = order
                    run.emit(Event("started", order.task.id, key=order.key))
                    backend.submit(order)
            if backend is not None and (loop.flying or loop.waiting):
                for task_id, outcome in backend.wait(0.2):
                    loop.take(task_id, outcome)
    finally:
        if backend is not None:
            backend.stop()
        run.keys.prints.save()
    return loop.results


class _Loop:
    """The state of a run: which tasks are ready, submitted (`flying`), waiting for another run (`waiting`), or done.

    `readers` are, for each task, the tasks that read its result. `shown` are the tasks whose results people see. `missing`
    are the inputs of each task that are not done. `turns` are the tasks' positions in the order of running.
    """

    def __init__(self, run: Execution, resources: Callable[[Task], Resources]) -> None:
        """Begin with no task done; tasks without inputs are ready.

        Args:
            run: Graph, store, keys and the function that receives events.
            resources: Function from a task to its share of the machines.
        """
        self.run, self.resources = run, resources
        self.results = RunResults()
        self.blocked: set[str] = set()
        self.root, self.folder = run.store.root.resolve(), run.keys.folder.resolve()
        self.readers = run.graph.readers()
        self.shown = {task.id for task in run.graph.tasks if not self.readers[task.id]}
        self.shown.update(source for last in tuple(self.shown) for source in run.graph[last].inputs.values())
        # The checkpoint of an evaluation is shown to people together with the evaluation.
        starts = (run.graph[name].inputs.get("start") for name in tuple(self.shown))
        self.shown.update(start for start in starts if start is not None)
        self.turns = run.graph.turns(run.seconds)
        self.missing = {task.id: set(task.inputs.values()) for task in run.graph.tasks}
        self.done: dict[str, Manifest] = {}
        self.flying: dict[str, Order] = {}
        # By task: the key that another run computes, and the time of the next check.
        self.waiting: dict[str, tuple[str, float]] = {}
        self.said: set[str] = set()
        # By task: attempts since one last saved more work, and how much work that was.
        self.attempts: dict[str, tuple[int, int]] = {}
        self.ready: list[tuple[int, str]] = []
        for task in run.graph.tasks:
            self._push_if_ready(task.id)

    def next_order(self) -> Order | None:
        """Take the ready task with the first turn, and return the order to run it; None if its result exists already.

        An existing result is noted as done. A result that people see (`shown`) is first checked for damage; a damaged
        result is removed, and the task runs again.
        """
        task = add_acceptances(self.run.graph[heapq.heappop(self.ready)[1]], self.done)
        inputs = {role: self.done[source] for role, source in task.inputs.items()}
        key, material = self.run.keys.key(task, inputs)
        manifest = self.run.store.get(key)
        # Other results are checked by the tasks that read them. Weights are read only if they changed, as they are large.
        prints = self.run.keys.prints
        if manifest is not None and task.id in self.shown and self.run.store.damage(key, WEIGHTS, prints):
            self.run.emit(Event("rebuilding", task.id))
            self.results.rebuilt.append(task.id)
            self.run.store.remove(key)
            manifest = None
        if manifest is not None:
            self._finish(task.id, manifest)
            self.run.emit(Event("reused", task.id))
            return None
        return Order(
            task=task,
            runner=self.run.runners[task.kind],
            key=key,
            material=material,
            inputs={role: manifest.key for role, manifest in inputs.items()},
            store=self.root,
            folder=self.folder,
            resources=self.resources(task),
            contents=contents(task, inputs),
        )

    def take(self, task_id: str, outcome: Outcome) -> None:
        """Update the state by the outcome of a submitted task.

        A task that is done makes its readers ready. If another process computes the result (`busy`), the task waits. If
        inputs are damaged, they are computed again. A task whose process died is tried again. After a failure, the tasks
        that need the result are blocked, and all tasks that have not begun if the store cannot be written.
        """
        order = self.flying.pop(task_id)
        match outcome.status:
            case "done":
                manifest = self.run.store.get(order.key)
                if manifest is None:
                    self._retry(order, error("E0938", "its result is not in the store", help=_RESUMES))
                    return
                self._finish(task_id, manifest)
                self.run.emit(Event("finished", task_id, seconds=outcome.seconds))
            case "busy":
                self.waiting[task_id] = order.key, time.monotonic() + _POLL_SECONDS
                if task_id not in self.said:
                    self.said.add(task_id)
                    self.run.emit(Event("waiting", task_id))
            case "damaged":
                self._rebuild(order, outcome.damaged)
            case "died":
                self._retry(order, outcome.diagnostics[0])
            case "failed":
                self._fail(task_id, outcome)
                if any(diagnostic.code == _NO_STORE for diagnostic in outcome.diagnostics):
                    self._halt()

    def wake(self) -> None:
        """Make tasks ready that waited for another run which now no longer computes their result.

        Each waiting task is looked at every `_POLL_SECONDS`.
        """
        now = time.monotonic()
        for task_id, (key, next_look) in list(self.waiting.items()):
            if next_look <= now and self.run.store.busy(key):
                self.waiting[task_id] = key, now + _POLL_SECONDS
            elif next_look <= now:
                del self.waiting[task_id]
                self._push_if_ready(task_id)

    def _finish(self, task_id: str, manifest: Manifest) -> None:
        """Record the result of a task, and make the tasks ready that now have all inputs.

        Args:
            task_id: Name of the task.
            manifest: Manifest of its result in the store.
        """
        self.done[task_id] = manifest
        self.results.keys[task_id] = manifest.key
        self.run.done(task_id, manifest.key)
        for reader in self.readers[task_id]:
            if task_id in self.missing[reader]:
                self.missing[reader].discard(task_id)
                self._push_if_ready(reader)

    def _rebuild(self, order: Order, damaged: tuple[str, ...]) -> None:
        """Remove damaged inputs of a task, and schedule the tasks that compute them, then the task itself.

        Args:
            order: Order of the task.
            damaged: Keys of the damaged inputs.
        """
        for source in dict.fromkeys(order.task.inputs.values()):
            manifest = self.done.get(source)
            if manifest is None or manifest.key not in damaged:
                continue
            with self.run.store.lock(manifest.key) as locked:
                if locked and self.run.store.damage(manifest.key):
                    self.run.store.remove(manifest.key)
            self.run.emit(Event("rebuilding", source))
            self.results.rebuilt.append(source)
            del self.done[source]
            self._push_if_ready(source)
        self.missing[order.task.id] = {
            source for source in order.task.inputs.values() if source not in self.done
        }
        self._push_if_ready(order.task.id)

    def _retry(self, order: Order, cause: Diagnostic) -> None:
        """Schedule a task again after the death of its process, or fail the task after `_ATTEMPTS` useless attempts.

        An attempt is useless if it saved no more work than the attempts before.

        Args:
            order: Order of the task.
            cause: Diagnostic on the death, whose message and advice the failure has.
        """
        task_id, progress = order.task.id, read_kept(self.root / "work" / order.key)
        tries, best = self.attempts.get(task_id, (0, 0))
        tries = 1 if progress > best else tries + 1
        self.attempts[task_id] = tries, max(progress, best)
        if tries < _ATTEMPTS:
            self._push_if_ready(task_id)
            return
        diagnostic = error(
            "E0938",
            f"a process of the task died {_ATTEMPTS} times: {cause.message}",
            where=task_id,
            notes=cause.notes,
            help=cause.help or _RESUMES,
        )
        self._fail(task_id, Outcome("failed", diagnostics=(diagnostic,)))

    def _fail(self, task_id: str, outcome: Outcome) -> None:
        """Record the failure of a task, and block all tasks that need the task's result directly or indirectly."""
        self.results.failed[task_id] = outcome.diagnostics
        self.run.emit(Event("failed", task_id, diagnostics=outcome.diagnostics))
        stack = list(reversed(self.readers[task_id]))
        while stack:
            reader = stack.pop()
            if reader not in self.blocked:
                self._block(reader)
                stack.extend(self.readers[reader])

    def _block(self, task_id: str) -> None:
        """Record that a task cannot run: a task whose result it needs failed, or the store cannot be written."""
        self.blocked.add(task_id)
        self.results.blocked.append(task_id)
        self.run.emit(Event("blocked", task_id))

    def _halt(self) -> None:
        """Block all tasks that have not begun, for a store that cannot be written; submitted tasks continue."""
        self.ready.clear()
        self.waiting.clear()
        settled = {*self.results.keys, *self.results.failed, *self.blocked, *self.flying}
        for task in self.run.graph.tasks:
            if task.id not in settled:
                self._block(task.id)

    def _push_if_ready(self, task_id: str) -> None:
        """Add a task to the ready tasks if all its inputs exist and it is not blocked."""
        if not self.missing[task_id] and task_id not in self.blocked:
            heapq.heappush(self.ready, (self.turns[task_id], task_id))
