"""Run tasks of a rehearsal on Ray, on nodes that are declared here or real ones, and note where each is placed."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from reodsl.store.live import note
from runners.execute.instance import import_ray
from runners.execute.perform import Order, Outcome, perform_order
from runners.execute.placement import RayNode, bundles

_JOIN_SECONDS = 60.0
"""Seconds until all know of a node that has come."""
_OBJECT_STORE_BYTES = 80 * 1024 * 1024


def declare_node(node: RayNode, session: ExitStack) -> None:
    """Add a node with declared GPUs to the Ray of this process, until the session ends."""
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    parameters = RayParams(
        gcs_address=import_ray().get_runtime_context().gcs_address,
        num_cpus=int(node.cpus),
        num_gpus=int(node.gpus),
        node_name=node.name,
        object_store_memory=_OBJECT_STORE_BYTES,
        min_worker_port=0,
        max_worker_port=0,
        include_log_monitor=False,  # type: ignore[arg-type]  # Ray has it as text, and reads a flag
        dashboard_agent_listen_port=None,
    )
    ray_node = Node(parameters, head=False)
    session.callback(ray_node.kill_all_processes, check_alive=False, allow_graceful=False, wait=True)
    until = time.monotonic() + _JOIN_SECONDS
    while time.monotonic() < until:
        if any(other["NodeID"] == ray_node.node_id and other["Alive"] for other in import_ray().nodes()):
            return
        time.sleep(0.05)


def perform_and_note(order: Order) -> Outcome:
    """Run `perform_order` in a Ray worker, after noting where its processes are."""
    if order.resources.notes is not None:
        _note_place(order, order.resources.notes)
    return perform_order(order)


def _note_place(order: Order, notes: Path) -> None:
    """Note the node of the task's process and of each bundle."""
    import ray
    from ray.util import get_current_placement_group, placement_group_table

    node_id, group = ray.get_runtime_context().get_node_id(), get_current_placement_group()
    needed = bundles(order.task.kind, order.resources)
    numbers = [node_id]
    if group is not None:
        table = placement_group_table(group)["bundles_to_node_id"]
        numbers = [table[node_number] for node_number in sorted(table)]
    names = {node["NodeID"]: name_node(node) for node in ray.nodes()}
    places = [
        {"role": bundle.role, "gpus": bundle.gpus, "node": names.get(node_number, node_number)}
        for bundle, node_number in zip(needed, numbers, strict=False)
    ]
    note(notes, "placed", task=order.task.id, number=node_id, places=places)


def name_node(node: dict[str, Any]) -> str:
    """Return the name that a user gave to a Ray node, or else the name of its machine."""
    named, host = str(node.get("NodeName") or ""), str(node.get("NodeManagerHostname") or "")
    return named if named and named != node.get("NodeManagerAddress") else host or named
