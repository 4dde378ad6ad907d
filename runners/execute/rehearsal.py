"""Run tasks of a rehearsal on Ray: note where each is placed, and lose a node and a server as a real cluster might.

A node is lost only where this process has declared it; a server ends by itself (`LOSE`), on any cluster.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reodsl.graph.job import Progress
from reodsl.store.live import HOLD, LOSE, note, read_live, read_notes, take
from runners.execute.cluster import RayCluster, make_remotes
from runners.execute.instance import import_ray
from runners.execute.perform import Order, Outcome, perform_order
from runners.execute.placement import RayNode, bundles

_HELD = 60.0
"""Seconds that a training waits to be lost."""
_SEEN = 60.0
"""Seconds until all know of a node that has come or gone."""
_OBJECT_STORE = 80 * 1024 * 1024


class Rehearsal:
    """A backend that hands all to a cluster, and loses the node of a training at its last step."""

    def __init__(
        self, cluster: RayCluster, notes: Path, declared: Sequence[RayNode], trainings: Sequence[str]
    ) -> None:
        """Declare nodes on this machine, beside the one that the cluster's own Ray has; none where it was joined.

        The node of the first of the `trainings`, by their ids, is lost.
        """
        self.cluster, self.notes, self.slots = cluster, notes, cluster.slots
        self.declared: dict[str, Any] = {}
        self.lost: RayNode | None = None
        self.cluster.remotes = make_remotes(perform_and_note)
        (notes / LOSE).touch()
        if declared:
            (notes / HOLD).write_text("\n".join(trainings))
        try:
            for node in declared:
                self._declare(node)
        except BaseException:
            self.stop()
            raise

    def submit(self, order: Order) -> None:
        """See `Backend.submit`."""
        self.cluster.submit(order)

    def wait(self, timeout: float) -> list[tuple[str, Outcome]]:
        """See `Backend.wait`."""
        if self.declared and self.lost is None:
            self._lose_node()
        elif self.lost is not None and self.cluster.absent and (self.notes / HOLD).exists():
            note(self.notes, "node back", node=f"{self.lost.name} again")
            self._declare(RayNode(f"{self.lost.name} again", self.lost.cpus, self.lost.gpus))
            take(self.notes, HOLD)
        return self.cluster.wait(timeout)

    def stop(self) -> None:
        """See `Backend.stop`."""
        try:
            self.cluster.stop()
        finally:
            for node in self.declared.values():
                node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
            self.declared = {}

    def _declare(self, node: RayNode) -> None:
        """Add a node whose GPUs nobody has to the Ray that this process has started."""
        from ray._private.node import Node
        from ray._private.parameter import RayParams

        parameters = RayParams(
            gcs_address=import_ray().get_runtime_context().gcs_address,
            num_cpus=int(node.cpus),
            num_gpus=int(node.gpus),
            node_name=node.name,
            object_store_memory=_OBJECT_STORE,
            min_worker_port=0,
            max_worker_port=0,
            include_log_monitor=False,  # type: ignore[arg-type]  # Ray has it as text, and reads a flag
            dashboard_agent_listen_port=None,
        )
        made = Node(parameters, head=False)
        self.declared[made.node_id] = made
        _await(made.node_id, True)

    def _lose_node(self) -> None:
        """Lose the node of a training that has told its last step."""
        held = _read_held(self.notes)
        for order in self.cluster.flying.values():
            live = read_live(self.cluster.store, order.key) if order.task.id in held else None
            if live is None or live.progress is None or live.progress.done < live.progress.total:
                continue
            places = [each for each in read_notes(self.notes) if each.get("task") == order.task.id]
            number = next(each["number"] for each in reversed(places) if each["did"] == "placed")
            if number not in self.declared:
                continue
            found = next(each for each in import_ray().nodes() if each["NodeID"] == number)
            has = found["Resources"]
            self.lost = RayNode(found["NodeName"], has["CPU"], has.get("GPU", 0.0))
            self.declared.pop(number).kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
            _await(number, False)
            note(self.notes, "node lost", node=self.lost.name, task=order.task.id)
            return


def _read_held(notes: Path) -> list[str]:
    """Return the trainings that wait at their last step, by their ids, until one has lost its node."""
    try:
        return (notes / HOLD).read_text("utf-8").split("\n")
    except FileNotFoundError:
        return []


def _await(number: str, alive: bool) -> None:
    """Wait until Ray knows that a node has come or gone."""
    until = time.monotonic() + _SEEN
    while time.monotonic() < until:
        if any(each["NodeID"] == number and each["Alive"] == alive for each in import_ray().nodes()):
            return
        time.sleep(0.05)


def perform_and_note(order: Order) -> Outcome:
    """Run `perform_order` in a Ray worker, after noting where its processes are; a training may wait at its last step."""
    notes = order.resources.notes
    if notes is None:
        return perform_order(order)
    _note_place(order, notes)

    def hold(progress: Progress) -> None:
        if order.task.kind != "train":
            return
        note(notes, "step", task=order.task.id, done=progress.done)
        until = time.monotonic() + _HELD
        while progress.done >= progress.total and time.monotonic() < until:
            if order.task.id not in _read_held(notes):
                break
            time.sleep(0.05)

    return perform_order(order, hold)


def _note_place(order: Order, notes: Path) -> None:
    import ray
    from ray.util import get_current_placement_group, placement_group_table

    here, group = ray.get_runtime_context().get_node_id(), get_current_placement_group()
    wanted = bundles(order.task.kind, order.resources)
    numbers = [here]
    if group is not None:
        table = placement_group_table(group)["bundles_to_node_id"]
        numbers = [table[number] for number in sorted(table)]
    names = {each["NodeID"]: name_node(each) for each in ray.nodes()}
    places = [
        {"role": bundle.role, "gpus": bundle.gpus, "node": names.get(number, number)}
        for bundle, number in zip(wanted, numbers, strict=False)
    ]
    note(notes, "placed", task=order.task.id, number=here, places=places)


def name_node(found: dict[str, Any]) -> str:
    """Return the name that somebody gave a node of Ray's, or else that of its machine."""
    named, host = str(found.get("NodeName") or ""), str(found.get("NodeManagerHostname") or "")
    return named if named and named != found.get("NodeManagerAddress") else host or named
