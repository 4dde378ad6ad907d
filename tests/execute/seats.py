"""Trainers and engines that only say where they sit, on GPUs that are only said to be there: a script, JSON out."""

from __future__ import annotations

import json
import os
from typing import Any

import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from reodsl.graph.job import Resources
from reodsl.ir.cluster import Cluster as Declared
from runners.engine.sglang.hosts import _actor_environment
from runners.execute.placement import bundles, resources_of
from runners.machine.placement import bundle_strategy, engine_bundle, shared_devices, trainer_bundle


class Sitting:
    """An actor that knows its node and its GPUs."""

    def told(self) -> list[Any]:
        """The node, and the GPUs that it would use."""
        return [
            ray.get_runtime_context().get_node_id(),
            os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","),
        ]


def sit(resources: Resources) -> dict[str, list[Any]]:
    """What a task does: trainers in their seats, then engines in theirs."""
    made = ray.remote(Sitting)
    others = [
        made.options(
            num_cpus=1, num_gpus=1, scheduling_strategy=bundle_strategy(trainer_bundle(resources, rank))
        ).remote()
        for rank in range(1, resources.trainers)
    ]
    trainers = [Sitting().told(), *ray.get([each.told.remote() for each in others])]
    shared = shared_devices(resources, {rank: devices for rank, (_, devices) in enumerate(trainers)})
    engines = [
        made.options(
            num_cpus=0,
            num_gpus=0 if shared else resources.tensor_parallel,
            scheduling_strategy=bundle_strategy(engine_bundle(resources, number)),
            runtime_env=_actor_environment(shared[number]) if shared else None,
        ).remote()
        for number in range(resources.engines)
    ]
    return {"trainers": trainers, "engines": ray.get([each.told.remote() for each in engines])}


if __name__ == "__main__":
    memory = {"object_store_memory": 80_000_000}
    cluster = Cluster(
        initialize_head=True, head_node_args={**memory, "num_cpus": 1, "include_dashboard": False}
    )
    for _ in range(2):
        cluster.add_node(**memory, num_cpus=4, num_gpus=4)
    ray.init(address=cluster.address, log_to_driver=False)
    found = {}
    for placement in ("colocated", "apart"):
        declared = Declared(name="c", nodes=2, gpus_per_node=4, gpu="H200", memory_gib=141, tensor_parallel=2)
        given = resources_of("train", declared.model_copy(update={"placement": placement}), "cuda", "sglang")
        group = placement_group([bundle.as_ray() for bundle in bundles("train", given)], strategy="PACK")
        inside = PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=True)
        task = ray.remote(sit).options(num_cpus=1, num_gpus=1, scheduling_strategy=inside)
        found[placement] = ray.get(task.remote(given), timeout=200)
        ray.util.remove_placement_group(group)
    print(json.dumps(found))
