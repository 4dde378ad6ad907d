"""Run tasks of a rehearsal on Ray, on declared or real nodes, and note on which nodes and GPUs they were placed."""

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
"""Seconds to wait until Ray lists a new node."""
_OBJECT_STORE_BYTES = 80 * 1024 * 1024


def declare_node(node: RayNode, session: ExitStack) -> None:
    """Add a node to the Ray instance of this process, and wait until it is alive, for at most `_JOIN_SECONDS`.

    Args:
        node: The node, whose GPUs need not exist.
        session: Context that ends the node's processes when it is closed.
    """
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
    deadline = time.monotonic() + _JOIN_SECONDS
    while time.monotonic() < deadline:
        if any(other["NodeID"] == ray_node.node_id and other["Alive"] for other in import_ray().nodes()):
            return
        time.sleep(0.05)


def perform_and_note(order: Order) -> Outcome:
    """Run an order in a Ray worker, after noting the nodes and GPUs of an order that reserves GPUs."""
    if order.resources.notes is not None:
        _note_placement(order, order.resources.notes)
    return perform_order(order)


def _note_placement(order: Order, notes: Path) -> None:
    """Write a note on the nodes on which Ray placed an order: the node of its process, and the node of each bundle.

    A bundle is noted with its role (`trainer`, `engine` or `worker`) and its number of GPUs.

    Args:
        order: The order.
        notes: Folder of notes.
    """
    import ray
    from ray.util import get_current_placement_group, placement_group_table

    node_id, group = ray.get_runtime_context().get_node_id(), get_current_placement_group()
    task_bundles = bundles(order.task.kind, order.resources)
    node_ids = [node_id]
    if group is not None:
        table = placement_group_table(group)["bundles_to_node_id"]
        node_ids = [table[index] for index in sorted(table)]
    names = {node["NodeID"]: name_node(node) for node in ray.nodes()}
    places = [
        {"role": bundle.role, "gpus": bundle.gpus, "node": names.get(bundle_node, bundle_node)}
        for bundle, bundle_node in zip(task_bundles, node_ids, strict=False)
    ]
    note(notes, "placed", task=order.task.id, number=node_id, places=places)


def name_node(node: dict[str, Any]) -> str:
    """Return the name that a user gave to a Ray node, or else the name of the node's machine.

    Args:
        node: Ray's record of the node, in which a node without a given name has its address as `NodeName`.
    """
    given_name, host = str(node.get("NodeName") or ""), str(node.get("NodeManagerHostname") or "")
    return given_name if given_name and given_name != node.get("NodeManagerAddress") else host or given_name
