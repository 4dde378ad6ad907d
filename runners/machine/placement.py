"""The bundle of cores and GPUs of each rank and engine of a task, and the variables that all of them set."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from reodsl.graph.job import Resources

_NCCL = ("NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE")
"""Variables that all processes of a group have to set alike. SGLang's servers set them to 0 if they are unset."""


def on_ray() -> bool:
    """Return whether this process is a worker of Ray; Ray is not imported to find out."""
    ray = sys.modules.get("ray")
    return bool(
        ray is not None and ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE
    )


def trainer_bundle(resources: Resources, rank: int) -> int:
    """Return the bundle of the trainer of a rank."""
    return rank if resources.disaggregated else rank // resources.tensor_parallel


def engine_bundle(resources: Resources, number: int) -> int:
    """Return the bundle of the engine of this number."""
    return resources.trainers + number if resources.disaggregated else number


def shared_devices(resources: Resources, of_rank: Mapping[int, Sequence[object]]) -> tuple[str, ...]:
    """Return the devices of each engine that shares them with trainers: the devices of its bundle's ranks, in order of rank.

    `of_rank` has each rank's device numbers on its node. Empty if engines have devices of their own, or no full bundle.
    """
    if not of_rank or resources.disaggregated or resources.engine == "embedded":
        return ()
    by_engine: list[list[str]] = [[] for _ in range(resources.engines)]
    for rank in sorted(of_rank):
        engine = trainer_bundle(resources, rank)
        if engine < len(by_engine):
            by_engine[engine] += [str(device) for device in of_rank[rank]]
    return tuple(",".join(devices) for devices in by_engine)


def bundle_strategy(bundle: int) -> Any:
    """Return Ray's scheduling strategy for a bundle of this process's task; any node, if the task has no bundles."""
    from ray.util import get_current_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = get_current_placement_group()
    return "DEFAULT" if group is None else PlacementGroupSchedulingStrategy(group, bundle)


def set_nccl() -> None:
    """Set NCCL for the groups of this process as servers do."""
    os.environ.update(nccl_settings(os.environ))


def nccl_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of NCCL that trainers and servers share, as this environment or else SGLang sets them."""
    return {name: environment.get(name, "0") for name in _NCCL}
