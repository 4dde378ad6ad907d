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

_SEEN = 60.0
"""Seconds until all know of a node that has come."""
_OBJECT_STORE = 80 * 1024 * 1024


def declare_node(node: RayNode, session: ExitStack) -> None:
    """Add a node whose GPUs nobody has to the Ray that this process has started, until the session ends."""
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
    session.callback(made.kill_all_processes, check_alive=False, allow_graceful=False, wait=True)
    until = time.monotonic() + _SEEN
    while time.monotonic() < until:
        if any(each["NodeID"] == made.node_id and each["Alive"] for each in import_ray().nodes()):
            return
        time.sleep(0.05)


def perform_and_note(order: Order) -> Outcome:
    """Run `perform_order` in a Ray worker, after noting where its processes are."""
    if order.resources.notes is not None:
        _note_place(order, order.resources.notes)
    return perform_order(order)


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
