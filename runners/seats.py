"""Seats of a task's processes: which bundle of cores and GPUs a trainer's rank or an engine has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reodsl.graph.job import Resources


def seat_of_trainer(resources: Resources, rank: int) -> int:
    """Return the bundle that the trainer of this rank is in."""
    return rank if resources.apart else rank // resources.tensor_parallel


def seat_of_engine(resources: Resources, number: int) -> int:
    """Return the bundle that the engine of this number uses."""
    return resources.trainers + number if resources.apart else number


def shared_devices(resources: Resources, of_rank: Mapping[int, Sequence[object]]) -> tuple[str, ...]:
    """Return the devices of each engine that shares them with trainers: those of its bundle's ranks, in their order.

    `of_rank` has each rank's device numbers on its node. Nothing where engines are apart, or none has a whole bundle.
    """
    if not of_rank or resources.apart or resources.engine == "embedded":
        return ()
    by_engine: list[list[str]] = [[] for _ in range(resources.engines)]
    for rank in sorted(of_rank):
        engine = seat_of_trainer(resources, rank)
        if engine < len(by_engine):
            by_engine[engine] += [str(device) for device in of_rank[rank]]
    return tuple(",".join(devices) for devices in by_engine)


def seat(bundle: int) -> Any:
    """Ray's word for a bundle of the task that this process belongs to; anywhere, where the task has no bundles."""
    from ray.util import get_current_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = get_current_placement_group()
    return "DEFAULT" if group is None else PlacementGroupSchedulingStrategy(group, bundle)
