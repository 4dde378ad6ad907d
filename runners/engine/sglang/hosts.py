"""Choose who keeps a server: a process of ours, an actor of Ray's, or someone else at a given address.

A server may take turns with a trainer on its devices.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from reodsl.diagnostics import problem
from reodsl.graph.job import Resources
from runners.engine.sglang.given import GivenServer, list_given
from runners.engine.sglang.interpreter import interpreter, saves_memory
from runners.engine.sglang.kept import kept
from runners.engine.sglang.server import Address, Host, Server
from runners.engine.sglang.settings import Settings, fraction_beside
from runners.meeting import LOOPBACK
from runners.seats import seat, seat_of_engine

_LOG = logging.getLogger("reodsl.engine")
_KEPT_SHARE = 0.5
"""Of what is free on a GPU: the share of a server that keeps it while the trainer works."""


def hosts(settings: Settings, resources: Resources, logs: Path) -> list[Host]:
    """Return the hosts of a run's servers.

    They are at given addresses; else actors in a task of Ray's; else processes here, kept from the task before if this
    process keeps them.
    """
    if list_given():
        return [GivenServer(address, settings) for address in list_given()]
    if on_ray():
        return [Actor(settings, resources, i, logs / f"sglang-{i}.log") for i in range(resources.engines)]
    python = interpreter()
    seats = [(logs / f"sglang-{i}.log", devices) for i, devices in enumerate(devices_here(resources))]
    keeping = kept()
    lent = keeping.hosts(settings, python, seats) if keeping is not None else None
    return list(lent or (Server(settings, python, log, devices=devices) for log, devices in seats))


def devices_here(resources: Resources) -> list[str | None]:
    """Return the GPUs that each server of this machine is shown, as far as there are GPUs; None: those that we are shown."""
    if not resources.device.startswith("cuda"):
        return [None] * resources.engines
    if resources.devices:
        return list(resources.devices)
    wide, first = resources.tensor_parallel, resources.trainers if resources.apart else 0
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = shown.split(",") if shown else [str(number) for number in range(torch.cuda.device_count())]
    places = range(first, len(seen) - wide + 1, wide)
    return [",".join(seen[at : at + wide]) for at in places[: resources.engines]] or [None]


def colocated_settings(settings: Settings, beside: float) -> Settings:
    """Return the settings of servers on devices that a trainer uses between rollouts.

    `beside` are bytes of a device that the trainer does not hold yet and will keep while servers generate. On a CPU no
    memory can be given back. On a GPU it can where SGLang's Python has `torch_memory_saver`. Raises E0820.
    """
    if settings.on_cpu:
        return replace(settings, in_turn=True)
    if not saves_memory(interpreter()):
        _LOG.warning(
            "SGLang's Python has no torch_memory_saver: servers keep half of what is free on a GPU while training runs;"
            " install it there, or place engines on devices of their own"
        )
        return replace(settings, in_turn=True, memory_fraction=_KEPT_SHARE)
    keeping = kept()
    if keeping is not None:
        keeping.make_room()
    free, total = torch.cuda.mem_get_info()
    share = fraction_beside(free, total, beside)
    return replace(settings, in_turn=True, memory_saver=True, memory_fraction=share)


def owns_gpus(resources: Resources) -> bool:
    """Return whether servers have GPUs to themselves: those of a task that holds none itself."""
    if not on_ray() or not resources.device.startswith("cuda"):
        return False
    import ray

    return resources.apart or not ray.get_gpu_ids()


class ServerActor(Server):
    """The actor's side: a server process on the node where Ray put it."""

    def __init__(self, settings: Settings, log: Path, asker: str) -> None:
        """`asker` is the node that the server is asked from: another one reaches it at this node's address."""
        import ray

        self.by_asker = ray.get_runtime_context().get_node_id() == asker
        here = str(ray.util.get_node_ip_address())
        others = sum(node["Alive"] for node in ray.nodes()) > 1
        host, reach = LOOPBACK if self.by_asker else here, here if others else None
        super().__init__(settings, interpreter(), log, host, reach=reach)

    def is_near(self) -> bool:
        """Return whether asker and server share a node."""
        return self.by_asker

    def is_alive(self) -> bool:
        """Return whether the process runs: an actor is asked by calls."""
        return self.alive


class Actor:
    """A server kept by a Ray actor, which is made anew when it or its node is gone."""

    def __init__(self, settings: Settings, resources: Resources, number: int, log: Path) -> None:
        import ray

        self.ray: Any = ray
        self.settings, self.resources, self.number, self.log = settings, resources, number, log
        self.keeper: Any = None
        self.starting: Any = None
        self.near = True

    def begin(self) -> None:
        """Make the actor, if there is none, and let it start its server."""
        if self.keeper is None:
            self.keeper = self._make()
        self.starting = self.keeper.start.remote()

    def start(self) -> Address:
        """Start the server, in a new actor if there is none. Raises what `Server.start` does, and E0821."""
        for attempt in range(2):
            if self.starting is None:
                self.begin()
            starting, self.starting = self.starting, None
            try:
                address: Address = self.ray.get(starting)
                self.near = bool(self.ray.get(self.keeper.is_near.remote()))
                return address
            except self.ray.exceptions.RayActorError as fault:
                self.keeper = None
                if attempt:
                    raise problem(
                        "E0821",
                        f"the SGLang server's actor ended: {fault}",
                        help="its node may be gone or out of memory; running again goes on where the task stopped",
                    ) from fault
            except self.ray.exceptions.RayTaskError as fault:
                raise fault.cause from None
        raise AssertionError("unreachable")

    @property
    def alive(self) -> bool:
        """Return whether the actor and its server run."""
        try:
            return self.keeper is not None and bool(self.ray.get(self.keeper.is_alive.remote()))
        except self.ray.exceptions.RayActorError:
            self.keeper = None
            return False

    def said(self) -> list[str]:
        """Return the last lines of its log, if the actor still runs."""
        try:
            return list(self.ray.get(self.keeper.said.remote())) if self.keeper is not None else []
        except self.ray.exceptions.RayActorError:
            return []

    def note(self, words: str) -> None:
        """Add a line to its log."""
        if self.keeper is not None:
            self.keeper.note.remote(words)

    def kill(self) -> None:
        """See `Host.kill`."""
        self.stop()

    def stop(self) -> None:
        """End the server and the actor."""
        self.starting = None
        if self.keeper is None:
            return
        # Whatever keeps the actor from answering, it is ended next.
        with contextlib.suppress(Exception):
            self.ray.get(self.keeper.stop.remote(), timeout=20)
        self.ray.kill(self.keeper)
        self.keeper = None

    def _make(self) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        asker = self.ray.get_runtime_context().get_node_id()
        options: dict[str, Any] = {"num_cpus": 0, "num_gpus": 0}
        if owns_gpus(self.resources):
            options["num_gpus"] = self.settings.tensor_parallel
            options["scheduling_strategy"] = seat(seat_of_engine(self.resources, self.number))
        elif self.resources.trainers > 1 and self.resources.devices:
            # It uses the GPUs of the trainers in its bundle, which may be on another node.
            options["scheduling_strategy"] = seat(seat_of_engine(self.resources, self.number))
            options["runtime_env"] = _seeing(self.resources.devices[self.number])
        else:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id=asker, soft=False)
            # It uses the GPUs that this task holds.
            seen = os.environ.get("CUDA_VISIBLE_DEVICES")
            if seen:
                options["runtime_env"] = _seeing(seen)
        return self.ray.remote(ServerActor).options(**options).remote(self.settings, self.log, asker)


def _seeing(devices: str) -> dict[str, Any]:
    """Return the environment of an actor that uses GPUs which others hold: Ray itself would show it none."""
    return {"env_vars": {"CUDA_VISIBLE_DEVICES": devices, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}}


def on_ray() -> bool:
    """Return whether this process works for Ray or has joined it; Ray is not imported to find out."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
