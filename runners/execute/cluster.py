"""Execution of tasks on Ray: on an instance that is started for the run, or on the cluster at an address."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from reodsl.diagnostics import Problem, error, first_line, problem
from reodsl.graph.job import Event
from reodsl.store.live import live_place, read_live
from reodsl.store.store import Store
from runners.execute.instance import answers, ended_processes, import_ray, nodes, start_ray
from runners.execute.perform import Order, Outcome, perform_order
from runners.execute.placement import RayNode, bundles, cores_of, lacking, threads_beside
from runners.execute.probes import STORE, ask_nodes, diagnose
from runners.execute.rehearsal import declare_node

# Seconds between two reports of the progress of running tasks.
Answer = TypeVar("Answer")
_PROGRESS_SECONDS = 0.3
_MEMORY = "it may need more memory than the node has; the system's log then says so"
_CAUSES = dict.fromkeys(("WorkerCrashedError", "OutOfMemoryError"), _MEMORY)
_NODE_LOST = "a node was lost, or Ray ended on a node: the node's log says why"
# Seconds between two checks of a cluster's head node, and of silence until it counts as lost; Ray itself waits 60.
_PULSE_SECONDS, _SILENCE_SECONDS = 5.0, 40.0
# Seconds that an order may wait for free nodes, as a lost node may be replaced.
_ROOM_SECONDS = 60.0
# Seconds that an interrupted run waits for its workers to end.
_STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Flight:
    """An order (a task to run) that was submitted to Ray and is not finished."""

    order: Order
    """The order."""
    group: Any
    """Its placement group, or None."""
    sent: float
    """Time of submission, in seconds of the monotonic clock."""


class RayCluster:
    """The backend that runs each order as a Ray task; results go through the store, not through Ray.

    A process of a task reserves one core, or two if it generates rollouts while it trains on a processor.
    """

    def __init__(
        self,
        address: str | None,
        store: Path,
        emit: Callable[[Event], None],
        perform: Callable[[Order], Outcome] = perform_order,
        declared_nodes: Sequence[RayNode] = (),
    ) -> None:
        """Start Ray on this machine, or join a cluster.

        Args:
            address: Address of a Ray cluster, or None to start Ray.
            store: Folder of the store.
            emit: Function that receives events of progress.
            perform: Function that runs an order in a worker.
            declared_nodes: Nodes with declared GPUs to add to Ray on this machine, for a rehearsal.

        Raises:
            Problem: E0962 if Ray does not start or cannot be joined, E0977 if nodes lack the store or this reodsl.
        """
        self.emit, self.store = emit, store
        self.flying: dict[Any, Flight] = {}
        self.looked = self.asked = 0.0
        with start_ray(address) as session:
            ray = import_ray()
            # The address of the cluster's head node, and when it last answered.
            self.head = str(ray.get_runtime_context().gcs_address) if address else None
            self.heard, self.ended = time.monotonic(), False
            self.slots = max(1, int(ray.cluster_resources().get("CPU", 1)))
            self.remotes = make_remotes(perform)
            for node in declared_nodes:
                declare_node(node, session)
            if address:
                self._require_nodes()
            self.session = session.pop_all()

    def submit(self, order: Order) -> None:
        """Submit an order as a Ray task.

        A bundle is a number of cores and GPUs on a single node. If the order needs several bundles, or more GPUs than its
        own process reserves, all bundles are reserved together as a placement group. The process of the order is in the
        first bundle, and starts its further processes in the others.

        Raises:
            Problem: E0962 if Ray has ended.
        """
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        capacities = [(node.cpus, node.gpus) for node in self._ask_head(nodes)]
        needed = bundles(order.task.kind, order.resources)
        # SGLang's servers reserve GPUs themselves; a process that trains or generates reserves one.
        runs_servers = order.task.kind != "train" and order.resources.engine != "embedded"
        options: dict[str, Any] = {
            # A machine with fewer cores runs the task on all of them.
            "num_cpus": min(cores_of(order), self.slots),
            "num_gpus": 0 if runs_servers or not needed[0].gpus else 1,
            "name": order.task.id,
        }
        group = None
        if len(needed) > 1 or needed[0].gpus > options["num_gpus"]:
            # All bundles are reserved at once: otherwise two orders could wait for each other's bundles for ever.
            reserved = [bundle.as_ray() for bundle in needed]
            group = self._ask_head(lambda: placement_group(reserved, strategy="PACK"))
            strategy = PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=True)
            options["scheduling_strategy"] = strategy
        resources = threads_beside(order.resources, capacities)
        remote = self.remotes[options["num_gpus"]].options(**options)
        ref = remote.remote(replace(order, resources=resources))
        self.flying[ref] = Flight(order, group, time.monotonic())

    def wait(self, timeout: float) -> list[tuple[str, Outcome]]:
        """Return (task id, outcome) of orders that have ended, and report the progress of running tasks.

        Orders that can never start, as no node has enough cores or GPUs, are among them with the status `failed`.

        Args:
            timeout: Seconds to wait if no order has ended.

        Raises:
            Problem: E0962 if Ray has ended.
        """
        self._require_ray()
        if not self.flying:
            time.sleep(timeout)
            return []
        ray = import_ray()
        finished, _ = ray.wait(list(self.flying), num_returns=1, timeout=timeout)
        outcomes = []
        for ref in finished:
            flight = self.flying.pop(ref)
            live_place(self.store, flight.order.key).unlink(missing_ok=True)
            outcome = _get_outcome(ray, ref, flight.order)
            outcomes.append((flight.order.task.id, outcome))
            if outcome.progress is not None:
                # What was read from the store may be of the middle of the task.
                self.emit(Event("progress", flight.order.task.id, outcome.progress))
            _release_group(flight)
        self._report_progress()
        return outcomes + self._refuse_without_nodes()

    def _refuse_without_nodes(self) -> list[tuple[str, Outcome]]:
        """Cancel waiting orders whose bundles do not fit the cluster's nodes; Ray itself would let them wait for ever.

        An order gets `_ROOM_SECONDS` to begin, since a lost node may be replaced. The nodes are listed at most every
        `_PULSE_SECONDS`.

        Returns:
            (task id, failed outcome) of each cancelled order.
        """
        now, refused = time.monotonic(), []
        waiting = [
            (ref, flight)
            for ref, flight in self.flying.items()
            if now - flight.sent > _ROOM_SECONDS and not live_place(self.store, flight.order.key).exists()
        ]
        if not waiting or now - self.asked < _PULSE_SECONDS:
            return []
        self.asked = now
        cluster_nodes = self._ask_head(nodes)
        for ref, flight in waiting:
            task = flight.order.task
            needed = bundles(task.kind, flight.order.resources)
            # A single process without GPUs may wait, as any new node fits it.
            is_single_process = len(needed) == 1 and not needed[0].gpus
            lack = None if is_single_process else lacking(needed, cluster_nodes, task.id)
            if lack is not None:
                import_ray().cancel(ref, force=True)
                _release_group(self.flying.pop(ref))
                refused.append((task.id, Outcome("failed", diagnostics=(lack,))))
        return refused

    def stop(self) -> None:
        """Kill the running tasks, and leave the Ray cluster or end Ray on this machine.

        Unfinished results are removed. Work folders stay, and the next run continues from them.
        """
        ray = import_ray()
        if not self.ended:
            for ref in self.flying:
                ray.cancel(ref, force=True)
            if self.flying:
                ray.wait(list(self.flying), num_returns=len(self.flying), timeout=_STOP_SECONDS)
            for flight in self.flying.values():
                _release_group(flight)
        self.session.close()
        store = Store(self.store)
        for flight in self.flying.values():
            with store.lock(flight.order.key) as locked:
                if locked:
                    store.tidy(flight.order.key)
        self.flying.clear()

    def _require_ray(self) -> None:
        """Check that Ray still runs: its processes on this machine, and the head node of a cluster.

        The head node counts as lost if no program has listened at its address for `_SILENCE_SECONDS`. Without this check,
        Ray itself would end this process after a minute without an answer.

        Raises:
            Problem: E0962 if Ray has ended.
        """
        now, ended = time.monotonic(), ended_processes()
        if not ended and self.head is not None and now - self.heard >= _PULSE_SECONDS:
            with suppress(Problem):
                answers(self.head)
                self.heard = now
            ended = f"the cluster at {self.head}" if now - self.heard > _SILENCE_SECONDS else ""
        if ended:
            self.ended = True
            raise problem(
                "E0962",
                f"Ray ended while tasks ran: {ended} is gone",
                help="Ray's log or the system's log says why; run the command again to continue",
            )

    def _ask_head(self, call: Callable[[], Answer]) -> Answer:
        """Call a function that asks Ray's head node, and return its result.

        The call runs in a thread, because Ray would wait for a lost head node for a minute and then end this process.

        Args:
            call: Function of Ray's API without arguments. An exception of the function is raised here.

        Raises:
            Problem: E0962 if the head node is lost before the function returns.
        """
        answer = Future[Answer]()

        def ask() -> None:
            try:
                answer.set_result(call())
            except Exception as caught:
                answer.set_exception(caught)

        Thread(target=ask, daemon=True).start()
        while not wait([answer], timeout=1.0).done:
            self._require_ray()
        return answer.result()

    def _report_progress(self) -> None:
        """Emit the progress of all running tasks from the store, at most every `_PROGRESS_SECONDS`."""
        now = time.monotonic()
        if now - self.looked < _PROGRESS_SECONDS:
            return
        self.looked = now
        for flight in self.flying.values():
            live = read_live(self.store, flight.order.key)
            if live is not None and live.progress is not None:
                self.emit(Event("progress", flight.order.task.id, live.progress))

    def _require_nodes(self) -> None:
        """Check that every node can write to the store at the same path, and has this version of reodsl.

        Raises:
            Problem: E0977 with what nodes lack.
        """
        errors = [
            diagnostic
            for diagnostic in diagnose(ask_nodes(self.store / "format", STORE))
            if diagnostic.severity == "error"
        ]
        if errors:
            raise Problem(*errors)


def _release_group(flight: Flight) -> None:
    """Release the cores and GPUs of an order's placement group, if it has a group."""
    if flight.group is not None:
        from ray.util.placement_group import remove_placement_group

        remove_placement_group(flight.group)


def make_remotes(perform: Callable[[Order], Outcome]) -> list[Any]:
    """Return two Ray functions that run an order: the first for tasks without a GPU, the second for tasks with a GPU.

    The process of the first function runs further tasks. The process of the second function ends after its task
    (`max_calls=1`), because CUDA would keep the process on its first GPU and keep memory there. Ray ends such a process
    by itself only if the function's decorator declares GPUs; here the call declares them.

    Args:
        perform: Function that runs an order.
    """
    return [import_ray().remote(max_retries=0, max_calls=calls)(perform) for calls in (0, 1)]


def _get_outcome(ray: Any, ref: Any, order: Order) -> Outcome:
    """Return the outcome of a finished Ray task.

    If the task raised a `Problem`, the outcome has the status `failed` with its diagnostics. After any other exception,
    such as the death of the process, the status is `died` with E0938.

    Args:
        ray: The module Ray.
        ref: Ray's reference to the result of the task.
        order: The order.
    """
    try:
        outcome = ray.get(ref)
    except Problem as caught:
        return Outcome("failed", diagnostics=caught.diagnostics)
    except Exception as caught:
        return Outcome(
            "died",
            diagnostics=(
                error(
                    "E0938",
                    f"{type(caught).__name__}: {first_line(caught, '')}",
                    where=order.task.id,
                    help=f"{_CAUSES.get(type(caught).__name__, _NODE_LOST)}; run the command again to continue",
                ),
            ),
        )
    assert isinstance(outcome, Outcome)
    return outcome
