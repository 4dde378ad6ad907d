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
    """Return the handles of an engine's servers, which the caller starts.

    In a Ray task the servers are Ray actors. Otherwise they are processes on this machine. If this process caches
    servers (`keep_servers`), a task gets the cached servers, unless another task uses them.

    Args:
        settings: The settings that the servers share.
        resources: The number of servers and their devices.
        logs: The folder of the servers' logs.
    """
    if on_ray():
        return [RayServer(settings, resources, i, logs / f"sglang-{i}.log") for i in range(resources.engines)]
    python = interpreter()
    outputs = [(logs / f"sglang-{i}.log", devices) for i, devices in enumerate(devices_here(resources))]
    cache = kept_servers()
    cached = cache.hosts(settings, python, outputs) if cache is not None else None
    return list(cached or (Server(settings, python, log, devices=devices) for log, devices in outputs))


def devices_here(resources: Resources) -> list[str | None]:
    """Return the GPUs of each server on this machine.

    `resources.devices` names them if it is set. Otherwise each server gets the next `tensor_parallel` of the visible
    GPUs; if engines are disaggregated, the first GPUs are left to the trainers. The list has fewer servers than
    `resources.engines` if there are too few GPUs.

    Returns:
        For each server, the value of its `CUDA_VISIBLE_DEVICES`, such as "0,1". None lets a server inherit this
        process's value: on a CPU, or for a single server if no server gets all the GPUs that it needs.
    """
    if not resources.device.startswith("cuda"):
        return [None] * resources.engines
    if resources.devices:
        return list(resources.devices)
    per_server, first = resources.tensor_parallel, resources.trainers if resources.disaggregated else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]
    starts = range(first, len(gpus) - per_server + 1, per_server)
    return [",".join(gpus[i : i + per_server]) for i in starts[: resources.engines]] or [None]


def colocated_settings(settings: Settings, trainer_bytes: float) -> Settings:
    """Return the settings of servers that share their devices with a trainer.

    On a GPU the settings depend on SGLang's Python. With the package `torch_memory_saver`, servers free their memory
    while the trainer works. Without it, they keep half of the GPU's free memory, and a warning is logged. On a CPU
    servers cannot free memory.

    Args:
        settings: The settings without a trainer.
        trainer_bytes: Bytes that the trainer will keep on a device while servers generate, and has not allocated yet.

    Raises:
        Problem: E0820 if no Python has SGLang.
    """
    if settings.on_cpu:
        return replace(settings, shares_device=True)
    if not saves_memory(interpreter()):
        _LOG.warning(
            "SGLang's Python has no torch_memory_saver: servers keep half of a GPU's free memory while training runs;"
            " install it there, or give engines their own GPUs"
        )
        return replace(settings, shares_device=True, memory_fraction=_KEPT_SHARE)
    cache = kept_servers()
    if cache is not None:
        cache.make_room()
    free, total = torch.cuda.mem_get_info()
    share = colocated_fraction(free, total, trainer_bytes)
    return replace(settings, shares_device=True, memory_saver=True, memory_fraction=share)


def owns_gpus(resources: Resources) -> bool:
    """Return whether the servers of a Ray task reserve GPUs of their own.

    They do if engines and trainer are disaggregated, or if the task itself has no GPU. Otherwise they use the task's
    GPUs. The result is also False outside Ray, and if the task needs no GPUs.
    """
    if not on_ray() or not resources.reserves_gpus:
        return False
    import ray

    return resources.disaggregated or not ray.get_gpu_ids()


class ServerActor(Server):
    """A server process inside a Ray actor, on the node where Ray placed the actor."""

    def __init__(self, settings: Settings, log: Path, client_node: str) -> None:
        """Prepare a server that listens on the loopback, or at its node's address if its client is on another node.

        The server's processes also join process groups, through which a trainer broadcasts weights. If the cluster has
        several nodes, `reach` is the address of this node, at which processes on other nodes join these groups. With a
        single node, `reach` is None, and the groups use only the loopback.

        Args:
            settings: The settings of the server.
            log: The file for the server's output.
            client_node: Ray's id of the node of the task that sends requests.
        """
        import ray

        address = str(ray.util.get_node_ip_address())
        several_nodes = sum(node["Alive"] for node in ray.nodes()) > 1
        host = LOOPBACK if ray.get_runtime_context().get_node_id() == client_node else address
        super().__init__(settings, interpreter(), log, host, reach=address if several_nodes else None)

    def outlive(self) -> None:
        """Wait until the server's process has ended, so that the pending call shows that the server runs."""
        assert self.process is not None
        self.process.wait()


class RayServer(ServerHandle):
    """A server in a Ray actor, which ends with the actor or its node."""

    def __init__(self, settings: Settings, resources: Resources, number: int, log: Path) -> None:
        """Prepare a server without creating its actor.

        Args:
            settings: The settings of the server.
            resources: The GPUs of the task.
            number: The index of the server among the engine's servers.
            log: The file for the server's output.
        """
        import ray

        self.ray: Any = ray
        self.settings, self.resources, self.number, self.log = settings, resources, number, log
        self.keeper: Any = None
        self.starting: Any = None
        self.life: Any = None

    def begin(self) -> None:
        """Create the actor, and let it start its server, without waiting."""
        self.keeper = self._create_actor()
        self.starting = self.keeper.start.remote()

    def start(self) -> Address:
        """Wait until the server is healthy.

        Raises:
            Problem: E0801, E0821 or E0937 if the server does not start; ProcessDied if the actor or its node died.
        """
        try:
            address: Address = self.ray.get(self.starting)
        except self.ray.exceptions.RayActorError as fault:
            raise explain_death("the SGLang server's actor", first_line(fault), self.log) from fault
        except self.ray.exceptions.RayTaskError as fault:
            raise fault.cause from None
        self.life = self.keeper.outlive.remote()
        # The path is on a disk that all machines of a cluster share.
        return replace(address, log=self.log)

    @property
    def alive(self) -> bool:
        """Return whether the actor's call of `outlive` is still pending; the call ends with the server or its node."""
        return not self.ray.wait([self.life], timeout=0)[0]

    def kill(self) -> None:
        """End the server and its actor, within about 20 seconds."""
        if self.keeper is None:
            return
        # `ray.kill` ends an actor that does not answer.
        with contextlib.suppress(Exception):
            self.ray.get(self.keeper.stop.remote(), timeout=20)
        self.ray.kill(self.keeper)
        self.keeper = None

    def _create_actor(self) -> Any:
        """Create the Ray actor on the node and with the GPUs that the task's resources say.

        There are three cases. The server reserves GPUs of its own in its bundle. Or several trainers share their GPUs
        with servers: the actor goes to the trainers' bundle and sees their GPUs. Or it runs on this node with this
        task's GPUs.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        client_node = self.ray.get_runtime_context().get_node_id()
        # The call of `outlive` occupies one of the two.
        options: dict[str, Any] = {"num_cpus": 0, "num_gpus": 0, "max_concurrency": 2}
        if owns_gpus(self.resources):
            options["num_gpus"] = self.settings.tensor_parallel
            options["scheduling_strategy"] = bundle_strategy(engine_bundle(self.resources, self.number))
        elif self.resources.trainers > 1 and self.resources.devices:
            # The server uses the GPUs of the trainers in its bundle, which may be on another node.
            options["scheduling_strategy"] = bundle_strategy(engine_bundle(self.resources, self.number))
            options["runtime_env"] = _actor_environment(self.resources.devices[self.number])
        else:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id=client_node, soft=False)
            # The server uses the GPUs of this task.
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            if visible:
                options["runtime_env"] = _actor_environment(visible)
        return self.ray.remote(ServerActor).options(**options).remote(self.settings, self.log, client_node)


def _actor_environment(devices: str) -> dict[str, Any]:
    """Return the Ray environment of an actor that uses the GPUs `devices` of other processes.

    By default Ray hides all GPUs from an actor that reserves none.
    """
    return {"env_vars": {"CUDA_VISIBLE_DEVICES": devices, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}}


_CONFIGS = ("config.json", "generation_config.json")
_ORIGIN_KEYS = frozenset({"_name_or_path", "transformers_version"})
"""Keys of a config that name its origin and say nothing of the model."""
_IDLE_SECONDS = 10.0
"""Seconds that a server has to finish requests of an earlier task."""

ServerOutputs = Sequence[tuple[Path, str | None]]
"""The log and `CUDA_VISIBLE_DEVICES` of each server."""


class ServerCache:
    """The servers of the last task, which the next task reuses if their settings allow."""

    def __init__(self) -> None:
        self._servers: list[CachedServer] = []
        self._key: tuple[Any, ...] = ()
        self._context = 0
        self._lent: set[CachedServer] = set()

    def hosts(self, settings: Settings, python: Path, outputs: ServerOutputs) -> list[CachedServer] | None:
        """Lend servers to a task, which gives them back by `CachedServer.stop`.

        If the task cannot use the cached servers, they are ended, and new servers are cached. A new server is not
        started here, but by the task.

        Args:
            settings: The settings of the task's servers.
            python: The Python that has SGLang.
            outputs: For each server, its log and its GPUs.

        Returns:
            The servers; None while another task uses the cached servers.
        """
        if self._lent:
            return None
        key = _server_key(settings, python, [devices for _, devices in outputs])
        if key != self._key or settings.context > self._context:
            self.end()
            # A context rounded up to a power of two serves most later tasks too.
            rounded = 1 << (settings.context - 1).bit_length()
            self._key, self._context = key, max(settings.context, min(rounded, _max_positions(settings)))
            self._servers = [CachedServer(settings, python, log, devices=devices) for log, devices in outputs]
        for server, (log, _) in zip(self._servers, outputs, strict=True):
            server.settings = replace(settings, context=self._context)
            # The log of the next start; a server that runs keeps its open file.
            server.log = log
            server.give_back = partial(self._lent.discard, server)
        self._lent.update(self._servers)
        return list(self._servers)

    def regain(self) -> None:
        """Take back the servers that a finished task has not given back."""
        self._lent.clear()

    def make_room(self) -> None:
        """End all servers that no task uses, to free their memory for servers of other settings."""
        if not self._lent:
            self.end()

    def end(self) -> None:
        """End all cached servers."""
        for server in self._servers:
            server.kill()
        self._servers, self._key, self._context = [], (), 0


class CachedServer(Server):
    """A server process that tasks use in turn.

    A task starts the process if it does not run, and otherwise loads its model into it. `stop` gives the server back to
    the cache, by the function `give_back`, and the process goes on.
    """

    give_back: Callable[[], None]

    def begin(self, port: int | None = None) -> None:
        """Start the process on `port` (None for a free port), unless the process runs already."""
        if not self.alive:
            super().begin(port)

    def start(self) -> Address:
        """Load the task's model into the running server, or start a new process if that fails.

        Raises:
            Problem: E0801, E0821 or E0937 if the server does not start.
        """
        if self.alive and self.address is not None:
            if self._load_model(self.address):
                return self.address
            self.kill()
        return super().start()

    def stop(self) -> None:
        """Give the server back to the cache; its process goes on."""
        self.give_back()

    def _load_model(self, address: Address) -> bool:
        """Let the server load the weights of the task's model, and return whether the server could.

        The result is False if the server is not idle after `_IDLE_SECONDS`, refuses the weights, or does not answer.
        """
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
    """Return a key that is equal for two tasks that can use the same servers.

    The tasks may differ in weights, context, timeouts, and whether the servers share devices with a trainer.

    Args:
        settings: The settings of the task's servers.
        python: The Python that has SGLang.
        devices: The GPUs of each server.
    """
    common = replace(settings, model=Path(), context=0, patience=0.0, shares_device=False)
    return common, python, devices, *(_config(settings.model / name) for name in _CONFIGS)


def _config(file: Path) -> dict[str, Any] | None:
    """Return the JSON object of a model's config without the keys that name its origin; None if the file is missing."""
    if not file.is_file():
        return None
    return {name: value for name, value in json.loads(file.read_bytes()).items() if name not in _ORIGIN_KEYS}


def _max_positions(settings: Settings) -> int:
    """Return the model's longest sequence in tokens: by its config, else the context of `settings`."""
    return int((_config(settings.model / _CONFIGS[0]) or {}).get("max_position_embeddings", settings.context))


_cache: ServerCache | None = None


def keep_servers() -> None:
    """Let tasks of this process reuse each other's servers, until `end_servers` is called.

    Called before each task. Servers that the last task has not given back are then free for the next task.
    """
    global _cache
    _cache = _cache or ServerCache()
    _cache.regain()


def kept_servers() -> ServerCache | None:
    """Return this process's cache of servers; None if `keep_servers` has not been called."""
    return _cache


def end_servers() -> None:
    """End the cached servers, and cache no servers of later tasks."""
    global _cache
    if _cache is not None:
        _cache.end()
    _cache = None
