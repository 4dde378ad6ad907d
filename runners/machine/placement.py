"""The bundles of cores and GPUs for the ranks and engines of a task, and NCCL's variables for all its processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from reodsl.graph.job import Resources

_NCCL = ("NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE")
"""Variables that must be equal in all processes of a group. SGLang's servers set unset variables to 0."""


def on_ray() -> bool:
    """Return whether this process runs a task of Ray (a worker); False if Ray is not imported yet."""
    ray = sys.modules.get("ray")
    return bool(
        ray is not None and ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE
    )


def trainer_bundle(resources: Resources, rank: int) -> int:
    """Return the index of the bundle of cores and GPUs in which a trainer runs.

    If engines are on other GPUs (disaggregated), each trainer has a bundle. Otherwise `tensor_parallel` trainers share
    the bundle of an engine.

    Args:
        resources: The task's share of the machines.
        rank: Rank of the trainer.
    """
    return rank if resources.disaggregated else rank // resources.tensor_parallel


def engine_bundle(resources: Resources, engine_index: int) -> int:
    """Return the index of the bundle of cores and GPUs in which an engine runs.

    If engines are on other GPUs (disaggregated), the bundles of trainers come first. Otherwise engine i is in bundle i.

    Args:
        resources: The task's share of the machines.
        engine_index: Index of the engine.
    """
    return resources.trainers + engine_index if resources.disaggregated else engine_index


def shared_devices(resources: Resources, devices_of_rank: Mapping[int, Sequence[object]]) -> tuple[str, ...]:
    """Return the GPUs of each engine that shares GPUs with trainers: the GPUs of the trainers in the engine's bundle.

    Args:
        resources: The task's share of the machines.
        devices_of_rank: Device numbers of each rank on its node.

    Returns:
        Value of CUDA_VISIBLE_DEVICES for each engine, such as `0,1`; empty if no engine shares devices.
    """
    if not devices_of_rank or resources.disaggregated or resources.engine == "embedded":
        return ()
    by_engine: list[list[str]] = [[] for _ in range(resources.engines)]
    for rank in sorted(devices_of_rank):
        engine = trainer_bundle(resources, rank)
        if engine < len(by_engine):
            by_engine[engine] += [str(device) for device in devices_of_rank[rank]]
    return tuple(",".join(devices) for devices in by_engine)


def bundle_strategy(bundle: int) -> Any:
    """Return the strategy by which Ray starts a process in a bundle of this task; if the task has none, on any node.

    Args:
        bundle: Index of the bundle.
    """
    from ray.util import get_current_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = get_current_placement_group()
    return "DEFAULT" if group is None else PlacementGroupSchedulingStrategy(group, bundle)


def set_nccl() -> None:
    """Set NCCL's variables in this process to the values that `nccl_settings` returns."""
    os.environ.update(nccl_settings(os.environ))


def nccl_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the NCCL variables that must be equal for trainers and SGLang's servers, with their values.

    Args:
        environment: Environment variables; a variable of NCCL that is missing gets the value 0, as SGLang sets it.
    """
    return {name: environment.get(name, "0") for name in _NCCL}
