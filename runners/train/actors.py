"""Run the other ranks of a stage as Ray actors, on this machine or others."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from torch._C._distributed_c10d import Store

from reodsl.diagnostics import first_line
from runners.meeting import Port, listen, meet, this_machine
from runners.seats import seat, seat_of_trainer
from runners.train.follower import Fault, Part, follow, gone
from runners.train.ranks import COMPUTE


def on_ray() -> bool:
    """Whether this process is a worker of Ray; Ray is not imported to find out."""
    ray = sys.modules.get("ray")
    return (
        ray is not None and ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE
    )


def cluster_address() -> str | None:
    """The address by which other nodes reach this one; None where Ray has nothing to do with it."""
    if not on_ray():
        return None
    import ray

    return str(ray.util.get_node_ip_address())


class Actors:
    """Other ranks as Ray actors, each with the cores and the GPU of one."""

    def __init__(self, parts: list[Part]) -> None:
        """Starts all but the first, which is this process, in their bundles of the task's placement group; where it has
        none, where there is room.

        Raises E0938 where one of them ends before it could begin.
        """
        import ray

        self._ray = ray
        actor_class = ray.remote(max_restarts=0, max_task_retries=0)(_Actor)
        self._actors: dict[int, Any] = {}
        first, *others = parts
        for part in others:
            resources = part.job.resources
            gpus = 0 if resources.device == "cpu" else 1
            place = seat(seat_of_trainer(resources, part.rank))
            options = actor_class.options(
                num_cpus=resources.threads, num_gpus=gpus, scheduling_strategy=place
            )
            self._actors[part.rank] = options.remote()
        self._parts: dict[int, Any] = {}
        ready = [self._ready(part) for part in others]
        # The first rank is this process.
        self.devices: dict[int, list[object]] = {0: ray.get_gpu_ids()}
        self.devices |= {rank: devices for rank, (devices, _) in zip(self._actors, ready, strict=True)}
        self.store: Store
        self.host: str | None = None
        if {machine for _, machine in ready} <= {this_machine()}:
            self.store = meet(first.meeting, first.world, COMPUTE)
        else:
            self.host = host = str(ray.util.get_node_ip_address())
            self.store, port = listen(host, COMPUTE)
            others = [replace(part, meeting=port) for part in others]
        self._parts |= {part.rank: self._actors[part.rank].follow.remote(part) for part in others}

    def _ready(self, part: Part) -> tuple[list[object], str]:
        """What a rank says that has loaded its packages; the others are ended where it did not live to."""
        try:
            said: tuple[list[object], str] = self._ray.get(self._actors[part.rank].ready.remote())
        except self._ray.exceptions.RayError as caught:
            self.stop(0.0)
            raise gone(part.rank, part.world, first_line(caught)) from caught
        return said

    def dead(self) -> dict[int, str]:
        """See `Others.dead`."""
        errors = {}
        for rank, ref in self._ended().items():
            try:
                self._ray.get(ref)
            except self._ray.exceptions.RayError as caught:
                errors[rank] = first_line(caught)
        return errors

    def faults(self) -> dict[int, Fault]:
        """See `Others.faults`."""
        faults = {}
        for rank, ref in self._ended().items():
            try:
                fault = self._ray.get(ref)
            except self._ray.exceptions.RayError:
                continue
            if fault is not None:
                faults[rank] = fault
        return faults

    def _ended(self) -> dict[int, Any]:
        refs = list(self._parts.values())
        if not refs:
            return {}
        ended, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        return {rank: ref for rank, ref in self._parts.items() if ref in ended}

    def stop(self, patience: float) -> None:
        """See `Others.stop`."""
        refs = list(self._parts.values())
        if refs and patience:
            self._ray.wait(refs, num_returns=len(refs), timeout=patience)
        for actor in self._actors.values():
            self._ray.kill(actor)


class _Actor:
    """A follower inside Ray."""

    def ready(self) -> tuple[list[object], str]:
        """The devices that Ray gave this rank, by their numbers on its node, and its machine, once packages are loaded."""
        import ray

        return list(ray.get_gpu_ids()), this_machine()

    def follow(self, part: Part) -> Fault | None:
        """Does the part to its end."""
        return follow(part, cluster_address() if isinstance(part.meeting, Port) else None)
