"""Execution on Ray: a local instance made for the run, or the cluster at an address."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reodsl.diagnostics import Problem, error, first_line, problem
from reodsl.graph.job import Event
from reodsl.store.live import live_place, read_live
from reodsl.store.store import Store
from runners.execute.instance import answers, ended_processes, import_ray, nodes, start_ray
from runners.execute.perform import Order, Outcome, perform_order
from runners.execute.placement import RayNode, bundles, cores_of, lacking, threads_beside
from runners.execute.probes import STORE, ask_nodes, diagnose
from runners.execute.rehearsal import declare_node

_PROGRESS_SECONDS = 0.3
_MEMORY = "it may need more memory than there is, and the system's log says so then"
_CAUSES = dict.fromkeys(("WorkerCrashedError", "OutOfMemoryError"), _MEMORY)
_NODE_LOST = "a node went away, or Ray ended on it: its log says why"
# Seconds between two looks at a cluster's head, and of silence until it is gone. Ray itself gives it 60.
_PULSE_SECONDS, _SILENCE_SECONDS = 5.0, 40.0
# Seconds that an order may wait for nodes with room: one that went away may be replaced.
_ROOM_SECONDS = 60.0
# How long an interrupted run waits for its workers to go.
_STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Flight:
    """An order that Ray has had since the time `sent` (monotonic seconds), with its placement group or None."""

    order: Order
    group: Any
    sent: float


class RayCluster:
    """A backend whose orders are Ray tasks; results travel through the store, not through Ray.

    A task has one core, two if rollouts are made beside training on a processor, or one for each process that trains.
    """

    def __init__(
        self,
        address: str | None,
        store: Path,
        emit: Callable[[Event], None],
        perform: Callable[[Order], Outcome] = perform_order,
        declared: Sequence[RayNode] = (),
    ) -> None:
        """Start Ray, or join it at `address`. Raises E0962 when that fails, and E0977 when nodes do not fit.

        `declared` nodes are added to the Ray of this machine.
        """
        self.emit, self.store = emit, store
        self.flying: dict[Any, Flight] = {}
        self.looked = self.asked = 0.0
        with start_ray(address) as session:
            ray = import_ray()
            # Where the cluster's head listens, and when it was last there.
            self.head = str(ray.get_runtime_context().gcs_address) if address else None
            self.heard, self.ended = time.monotonic(), False
            self.slots = max(1, int(ray.cluster_resources().get("CPU", 1)))
            self.remotes = make_remotes(perform)
            for node in declared:
                declare_node(node, session)
            if address:
                self._require_nodes()
            self.session = session.pop_all()

    def submit(self, order: Order) -> None:
        """Start the order as a Ray task in the first of its bundles."""
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._require_ray(call=True)
        needed = bundles(order.task.kind, order.resources)
        # Servers hold GPUs themselves; a process that trains or generates holds one.
        serves = order.task.kind != "train" and order.resources.engine != "embedded"
        options: dict[str, Any] = {
            # A machine with fewer runs it on those.
            "num_cpus": min(cores_of(order), self.slots),
            "num_gpus": 0 if serves or not needed[0].gpus else 1,
            "name": order.task.id,
        }
        group = None
        if len(needed) > 1 or needed[0].gpus > options["num_gpus"]:
            # Taken at once: two orders that each wait for the other's room never end.
            group = placement_group([bundle.as_ray() for bundle in needed], strategy="PACK")
            strategy = PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=True)
            options["scheduling_strategy"] = strategy
        resources = threads_beside(order.resources, [(node.cpus, node.gpus) for node in nodes()])
        remote = self.remotes[options["num_gpus"]].options(**options)
        ref = remote.remote(replace(order, resources=resources))
        self.flying[ref] = Flight(order, group, time.monotonic())

    def wait(self, timeout: float) -> list[tuple[str, Outcome]]:
        """Return the outcomes of finished Ray tasks by task id, and report the progress of the running tasks.

        Args:
            timeout: seconds to wait for a first finished task.

        Raises:
            Problem: Ray ended (E0962).
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
            outcomes.append((flight.order.task.id, _outcome(ray, ref, flight.order)))
            _give_room_back(flight)
        self._tell_progress()
        return outcomes + self._refuse_without_nodes()

    def _refuse_without_nodes(self) -> list[tuple[str, Outcome]]:
        """Cancel orders that have waited long and that no node has room for, since Ray would let them wait for ever."""
        now, refused = time.monotonic(), []
        waiting = [
            (ref, flight)
            for ref, flight in self.flying.items()
            if now - flight.sent > _ROOM_SECONDS and not live_place(self.store, flight.order.key).exists()
        ]
        if not waiting or now - self.asked < _PULSE_SECONDS:
            return []
        self.asked = now
        self._require_ray(call=True)
        cluster_nodes = nodes()
        for ref, flight in waiting:
            task = flight.order.task
            needed = bundles(task.kind, flight.order.resources)
            # One process on a processor may wait for whatever node comes.
            alone = len(needed) == 1 and not needed[0].gpus
            lack = None if alone else lacking(needed, cluster_nodes, task.id)
            if lack is not None:
                import_ray().cancel(ref, force=True)
                _give_room_back(self.flying.pop(ref))
                refused.append((task.id, Outcome("failed", diagnostics=(lack,))))
        return refused

    def stop(self) -> None:
        """End the tasks that still run, by force: they go on from their work folders next time."""
        ray = import_ray()
        if not self.ended:
            for ref in self.flying:
                ray.cancel(ref, force=True)
            if self.flying:
                ray.wait(list(self.flying), num_returns=len(self.flying), timeout=_STOP_SECONDS)
            for flight in self.flying.values():
                _give_room_back(flight)
        self.session.close()
        store = Store(self.store)
        for flight in self.flying.values():
            with store.lock(flight.order.key) as locked:
                if locked:
                    store.tidy(flight.order.key)
        self.flying.clear()

    def _require_ray(self, call: bool = False) -> None:
        """Check that Ray still runs; before a `call`, which would hang without Ray, wait for a silent head.

        Left alone Ray ends this process after a minute, without a word of ours.
        """
        while True:
            now, dead = time.monotonic(), ended_processes()
            if not dead and (self.head is None or (not call and now - self.heard < _PULSE_SECONDS)):
                return
            if not dead and self.head is not None:
                with suppress(Problem):
                    answers(self.head)
                    self.heard = now
                dead = f"the cluster at {self.head}" if now - self.heard > _SILENCE_SECONDS else ""
            if dead:
                self.ended = True
                raise problem(
                    "E0962",
                    f"Ray ended while tasks ran: {dead} is gone",
                    help="Ray's log, or the system's, says why; run the command again to go on",
                )
            if not call or self.heard == now:
                return
            time.sleep(1.0)

    def _tell_progress(self) -> None:
        now = time.monotonic()
        if now - self.looked < _PROGRESS_SECONDS:
            return
        self.looked = now
        for flight in self.flying.values():
            live = read_live(self.store, flight.order.key)
            if live is not None and live.progress is not None:
                self.emit(Event("progress", flight.order.task.id, live.progress))

    def _require_nodes(self) -> None:
        """Check that every node sees the store at the same path, can write to the store, and has this reodsl."""
        lacks = [
            diagnostic
            for diagnostic in diagnose(ask_nodes(self.store / "format", STORE))
            if diagnostic.severity == "error"
        ]
        if lacks:
            raise Problem(*lacks)


def _give_room_back(flight: Flight) -> None:
    if flight.group is not None:
        from ray.util.placement_group import remove_placement_group

        remove_placement_group(flight.group)


def make_remotes(perform: Callable[[Order], Outcome]) -> list[Any]:
    """Return two Ray functions: for tasks without a GPU, and for tasks with a GPU, whose process ends after a task.

    CUDA stays with a process's first GPU, and keeps memory there. Ray ends such a process by itself for functions whose
    decorator has GPUs, and not for functions that get their GPUs at a call.
    """
    return [import_ray().remote(max_retries=0, max_calls=calls)(perform) for calls in (0, 1)]


def _outcome(ray: Any, ref: Any, order: Order) -> Outcome:
    """Return the outcome of a finished Ray task, or E0938 if its process died."""
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
                    help=f"{_CAUSES.get(type(caught).__name__, _NODE_LOST)}; running again goes on where it stopped",
                ),
            ),
        )
    assert isinstance(outcome, Outcome)
    return outcome
