"""Choose what runs a server: a process of ours, or a Ray actor.

Tasks that follow each other in one process share servers if their models differ only in the weights, which each task
brings along: starting a server takes far longer.

A server may share its devices with a trainer, in turn.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import torch

from reodsl.diagnostics import Problem, first_line
from reodsl.graph.job import Resources
from runners.engine.sglang import weights
from runners.engine.sglang.server import Address, Server, ServerHandle
from runners.engine.sglang.settings import Settings, colocated_fraction, interpreter, saves_memory
from runners.machine.placement import bundle_strategy, engine_bundle, on_ray
from runners.machine.process import explain_death
from runners.machine.rendezvous import LOOPBACK

_LOG = logging.getLogger("reodsl.engine")
_KEPT_SHARE = 0.5
"""The share of a GPU's free memory for a server that keeps it while the trainer works."""


def hosts(settings: Settings, resources: Resources, logs: Path) -> list[ServerHandle]:
    """Return the handles of a run's servers.

    They are Ray actors in a Ray task; else processes of this machine, cached from the task before if this process
    caches them.
    """
    if on_ray():
        return [RayServer(settings, resources, i, logs / f"sglang-{i}.log") for i in range(resources.engines)]
    python = interpreter()
    seats = [(logs / f"sglang-{i}.log", devices) for i, devices in enumerate(devices_here(resources))]
    cache = kept_servers()
    cached = cache.hosts(settings, python, seats) if cache is not None else None
    return list(cached or (Server(settings, python, log, devices=devices) for log, devices in seats))


def devices_here(resources: Resources) -> list[str | None]:
    """Return the visible GPUs of each server of this machine; None for all that this process sees."""
    if not resources.device.startswith("cuda"):
        return [None] * resources.engines
    if resources.devices:
        return list(resources.devices)
    wide, first = resources.tensor_parallel, resources.trainers if resources.disaggregated else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]
    places = range(first, len(seen) - wide + 1, wide)
    return [",".join(seen[i : i + wide]) for i in places[: resources.engines]] or [None]


def colocated_settings(settings: Settings, trainer_bytes: float) -> Settings:
    """Return the settings of servers on devices that a trainer uses between rollouts.

    On a CPU no memory can be given back. On a GPU it can if SGLang's Python has `torch_memory_saver`.

    Args:
        settings: The settings without a trainer.
        trainer_bytes: Bytes of a device that the trainer does not hold yet and will keep while servers generate.

    Raises:
        Problem: E0820, no Python has SGLang.
    """
    if settings.on_cpu:
        return replace(settings, shares_device=True)
    if not saves_memory(interpreter()):
        _LOG.warning(
            "SGLang's Python has no torch_memory_saver: servers keep half of what is free on a GPU while training runs;"
            " install it there, or place engines on devices of their own"
        )
        return replace(settings, shares_device=True, memory_fraction=_KEPT_SHARE)
    cache = kept_servers()
    if cache is not None:
        cache.make_room()
    free, total = torch.cuda.mem_get_info()
    share = colocated_fraction(free, total, trainer_bytes)
    return replace(settings, shares_device=True, memory_saver=True, memory_fraction=share)


def owns_gpus(resources: Resources) -> bool:
    """Return whether servers have GPUs of their own: those of a task that holds none itself."""
    if not on_ray() or not resources.reserves_gpus:
        return False
    import ray

    return resources.disaggregated or not ray.get_gpu_ids()


class ServerActor(Server):
    """The side of the actor: a server process on the node where Ray placed it."""

    def __init__(self, settings: Settings, log: Path, asker: str) -> None:
        """Prepare a server for the node `asker`; another node reaches it at this node's address."""
        import ray

        address = str(ray.util.get_node_ip_address())
        several_nodes = sum(node["Alive"] for node in ray.nodes()) > 1
        host = LOOPBACK if ray.get_runtime_context().get_node_id() == asker else address
        super().__init__(settings, interpreter(), log, host, reach=address if several_nodes else None)

    def outlive(self) -> None:
        """Wait until the process has ended."""
        assert self.process is not None
        self.process.wait()


class RayServer(ServerHandle):
    """A server in a Ray actor, which ends with the actor or its node."""

    def __init__(self, settings: Settings, resources: Resources, number: int, log: Path) -> None:
        import ray

        self.ray: Any = ray
        self.settings, self.resources, self.number, self.log = settings, resources, number, log
        self.keeper: Any = None
        self.starting: Any = None
        self.life: Any = None

    def begin(self) -> None:
        """Make the actor, and let it start its server."""
        self.keeper = self._make()
        self.starting = self.keeper.start.remote()

    def start(self) -> Address:
        """Wait for the server. Raises what `Server.start` does, and ProcessDied."""
        try:
            address: Address = self.ray.get(self.starting)
        except self.ray.exceptions.RayActorError as fault:
            raise explain_death("the SGLang server's actor", first_line(fault), self.log) from fault
        except self.ray.exceptions.RayTaskError as fault:
            raise fault.cause from None
        self.life = self.keeper.outlive.remote()
        # All machines of a cluster see the log.
        return replace(address, log=self.log)

    @property
    def alive(self) -> bool:
        """Return whether the server runs, as far as Ray knows."""
        return not self.ray.wait([self.life], timeout=0)[0]

    def kill(self) -> None:
        """End the server and the actor."""
        if self.keeper is None:
            return
        # Whatever keeps the actor from answering, it is ended next.
        with contextlib.suppress(Exception):
            self.ray.get(self.keeper.stop.remote(), timeout=20)
        self.ray.kill(self.keeper)
        self.keeper = None

    def _make(self) -> Any:
        """Create the actor, with GPUs or on this node, as the task's resources say."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        asker = self.ray.get_runtime_context().get_node_id()
        # One call waits for the server's end.
        options: dict[str, Any] = {"num_cpus": 0, "num_gpus": 0, "max_concurrency": 2}
        if owns_gpus(self.resources):
            options["num_gpus"] = self.settings.tensor_parallel
            options["scheduling_strategy"] = bundle_strategy(engine_bundle(self.resources, self.number))
        elif self.resources.trainers > 1 and self.resources.devices:
            # It uses the GPUs of the trainers in its bundle, which may be on another node.
            options["scheduling_strategy"] = bundle_strategy(engine_bundle(self.resources, self.number))
            options["runtime_env"] = _actor_environment(self.resources.devices[self.number])
        else:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id=asker, soft=False)
            # It uses the GPUs that this task holds.
            seen = os.environ.get("CUDA_VISIBLE_DEVICES")
            if seen:
                options["runtime_env"] = _actor_environment(seen)
        return self.ray.remote(ServerActor).options(**options).remote(self.settings, self.log, asker)


def _actor_environment(devices: str) -> dict[str, Any]:
    """Return the environment of an actor that uses GPUs of other processes: Ray itself would show it none."""
    return {"env_vars": {"CUDA_VISIBLE_DEVICES": devices, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}}


_CONFIGS = ("config.json", "generation_config.json")
_ORIGIN_KEYS = frozenset({"_name_or_path", "transformers_version"})
"""Keys of a config that name its origin and say nothing of the model."""
_IDLE_SECONDS = 10.0
"""Seconds that a server has to finish what an earlier task left."""

Seats = Sequence[tuple[Path, str | None]]


class ServerCache:
    """Servers between tasks: those of the last settings, until `end`."""

    def __init__(self) -> None:
        self._servers: list[CachedServer] = []
        self._serves: tuple[Any, ...] = ()
        self._context = 0
        self._lent: set[CachedServer] = set()

    def hosts(self, settings: Settings, python: Path, seats: Seats) -> list[CachedServer] | None:
        """Lend a server for each log and visible GPUs, and end servers of other settings before.

        Returns None while a task uses the servers.
        """
        if self._lent:
            return None
        serves = _server_key(settings, python, [devices for _, devices in seats])
        if serves != self._serves or settings.context > self._context:
            self.end()
            # Room for what other tasks may need beyond this one, so that they need no others.
            room = 1 << (settings.context - 1).bit_length()
            self._serves, self._context = serves, max(settings.context, min(room, _positions(settings)))
            self._servers = [CachedServer(settings, python, log, devices=devices) for log, devices in seats]
        for server, (log, _) in zip(self._servers, seats, strict=True):
            server.settings = replace(settings, context=self._context)
            # The log of its next start: what runs goes on with the one that it has, whoever removes that.
            server.log = log
            server.give_back = partial(self._lent.discard, server)
        self._lent.update(self._servers)
        return list(self._servers)

    def regain(self) -> None:
        """Take back what a finished task did not give back."""
        self._lent.clear()

    def make_room(self) -> None:
        """End all servers unless a task uses them, because the next settings need their memory."""
        if not self._lent:
            self.end()

    def end(self) -> None:
        """End all servers."""
        for server in self._servers:
            server.kill()
        self._servers, self._serves, self._context = [], (), 0


class CachedServer(Server):
    """A server that a task starts if it does not run, gives other weights if it does, and stops by giving it back."""

    give_back: Callable[[], None]

    def begin(self, port: int | None = None) -> None:
        """Start the process, if it does not run."""
        if not self.alive:
            super().begin(port)

    def start(self) -> Address:
        """Wait for a server with the model, and start another if it fails. Raises as `Server.start`."""
        if self.alive and self.address is not None:
            if self._takes_the_model(self.address):
                return self.address
            self.kill()
        return super().start()

    def stop(self) -> None:
        """Give the server back, which goes on."""
        self.give_back()

    def _takes_the_model(self, address: Address) -> bool:
        """Return whether the server is idle and has loaded the model."""
        try:
            answer = httpx.post(
                f"{address.url}/flush_cache",
                params={"timeout": _IDLE_SECONDS},
                headers=address.headers,
                trust_env=False,
                timeout=2 * _IDLE_SECONDS,
            )
            if answer.status_code != 200:
                return False
            weights.load_from_disk(self.settings.model, [address], 0)
        except (httpx.HTTPError, Problem):
            return False
        return True


def _server_key(settings: Settings, python: Path, devices: list[str | None]) -> tuple[Any, ...]:
    """Return everything that two tasks must have in common to share servers.

    Weights, timeouts and whether they share devices with a trainer may differ.
    """
    same = replace(settings, model=Path(), context=0, patience=0.0, shares_device=False)
    return same, python, devices, *(_config(settings.model / name) for name in _CONFIGS)


def _config(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    return {name: value for name, value in json.loads(file.read_bytes()).items() if name not in _ORIGIN_KEYS}


def _positions(settings: Settings) -> int:
    """Return the most tokens that the model is made for."""
    return int((_config(settings.model / _CONFIGS[0]) or {}).get("max_position_embeddings", settings.context))


_cache: ServerCache | None = None


def keep_servers() -> None:
    """Cache the servers of this process's tasks, from before a task until `end_servers`."""
    global _cache
    _cache = _cache or ServerCache()
    _cache.regain()


def kept_servers() -> ServerCache | None:
    """Return the cache of servers of this process, if there is one."""
    return _cache


def end_servers() -> None:
    """End the cached servers; servers that tasks start from now on end with their tasks."""
    global _cache
    if _cache is not None:
        _cache.end()
    _cache = None
