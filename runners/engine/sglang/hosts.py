"""Choose who keeps a server: a process of ours, or an actor of Ray's.

Tasks that follow each other in one process share servers where their models differ in nothing but the weights, which each
task brings along: starting a server takes far longer than that.

A server may take turns with a trainer on its devices.
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
from runners.engine.sglang.server import Address, Host, Server
from runners.engine.sglang.settings import Settings, fraction_beside, interpreter, saves_memory
from runners.machine.placement import on_ray, seat, seat_of_engine
from runners.machine.process import explain_death
from runners.machine.rendezvous import LOOPBACK

_LOG = logging.getLogger("reodsl.engine")
_KEPT_SHARE = 0.5
"""The share of the free memory of a GPU for a server that keeps it while the trainer works."""


def hosts(settings: Settings, resources: Resources, logs: Path) -> list[Host]:
    """Return the hosts of a run's servers.

    They are actors in a task of Ray's; else processes here, kept from the task before if this
    process keeps them.
    """
    if on_ray():
        return [Actor(settings, resources, i, logs / f"sglang-{i}.log") for i in range(resources.engines)]
    python = interpreter()
    seats = [(logs / f"sglang-{i}.log", devices) for i, devices in enumerate(devices_here(resources))]
    keeping = kept_servers()
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
    keeping = kept_servers()
    if keeping is not None:
        keeping.make_room()
    free, total = torch.cuda.mem_get_info()
    share = fraction_beside(free, total, beside)
    return replace(settings, in_turn=True, memory_saver=True, memory_fraction=share)


def owns_gpus(resources: Resources) -> bool:
    """Return whether servers have GPUs to themselves: those of a task that holds none itself."""
    if not on_ray() or not resources.reserves_gpus:
        return False
    import ray

    return resources.apart or not ray.get_gpu_ids()


class ServerActor(Server):
    """The actor's side: a server process on the node where Ray put it."""

    def __init__(self, settings: Settings, log: Path, asker: str) -> None:
        """`asker` is the node that the server is asked from: another one reaches it at this node's address."""
        import ray

        here = str(ray.util.get_node_ip_address())
        others = sum(node["Alive"] for node in ray.nodes()) > 1
        host = LOOPBACK if ray.get_runtime_context().get_node_id() == asker else here
        super().__init__(settings, interpreter(), log, host, reach=here if others else None)

    def outlive(self) -> None:
        """Return once the process has ended."""
        assert self.process is not None
        self.process.wait()


class Actor(Host):
    """A server kept by a Ray actor, which ends with it or with its node."""

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
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        asker = self.ray.get_runtime_context().get_node_id()
        # One call waits for the server's end.
        options: dict[str, Any] = {"num_cpus": 0, "num_gpus": 0, "max_concurrency": 2}
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


_CONFIGS = ("config.json", "generation_config.json")
_UNSAID = frozenset({"_name_or_path", "transformers_version"})
"""Keys of a config that name its origin and say nothing of the model."""
_IDLE = 10.0
"""Seconds that a server gets to let go of what a task before left it with."""

Seats = Sequence[tuple[Path, str | None]]


class ServerCache:
    """Servers between tasks: those of the last settings that were asked for, until `end`."""

    def __init__(self) -> None:
        self._servers: list[KeptServer] = []
        self._serves: tuple[Any, ...] = ()
        self._context = 0
        self._lent: set[KeptServer] = set()

    def hosts(self, settings: Settings, python: Path, seats: Seats) -> list[KeptServer] | None:
        """Lend a server for each log and the GPUs that it is shown; those of other settings are ended before.

        None while a task has them all.
        """
        if self._lent:
            return None
        serves = _serves(settings, python, [devices for _, devices in seats])
        if serves != self._serves or settings.context > self._context:
            self.end()
            # Room for what other tasks may need beyond this one, so that they need no others.
            room = 1 << (settings.context - 1).bit_length()
            self._serves, self._context = serves, max(settings.context, min(room, _positions(settings)))
            self._servers = [KeptServer(settings, python, log, devices=devices) for log, devices in seats]
        for server, (log, _) in zip(self._servers, seats, strict=True):
            server.settings = replace(settings, context=self._context)
            # The log of its next start: what runs goes on with the one that it has, whoever removes that.
            server.log = log
            server.give_back = partial(self._lent.discard, server)
        self._lent.update(self._servers)
        return list(self._servers)

    def regain(self) -> None:
        """Take back what a task that is over did not give back."""
        self._lent.clear()

    def make_room(self) -> None:
        """End all servers, unless a task has them: what comes next needs their memory."""
        if not self._lent:
            self.end()

    def end(self) -> None:
        """End all servers."""
        for server in self._servers:
            server.kill()
        self._servers, self._serves, self._context = [], (), 0


class KeptServer(Server):
    """A server that a task starts where it does not run, gives other weights where it does, and stops by giving it back."""

    give_back: Callable[[], None]

    def begin(self, port: int | None = None) -> None:
        """See `Host.begin`."""
        if not self.alive:
            super().begin(port)

    def start(self) -> Address:
        """See `Host.start`. Raises what `Server.start` does."""
        if self.alive and self.address is not None:
            if self._takes_the_model(self.address):
                return self.address
            self.kill()
        return super().start()

    def stop(self) -> None:
        """Give the server back, which goes on."""
        self.give_back()

    def _takes_the_model(self, address: Address) -> bool:
        """Return whether the server is at rest and has the model now."""
        try:
            answer = httpx.post(
                f"{address.url}/flush_cache",
                params={"timeout": _IDLE},
                headers=address.headers,
                trust_env=False,
                timeout=2 * _IDLE,
            )
            if answer.status_code != 200:
                return False
            weights.from_disk(self.settings.model, [address], 0)
        except (httpx.HTTPError, Problem):
            return False
        return True


def _serves(settings: Settings, python: Path, devices: list[str | None]) -> tuple[Any, ...]:
    """Return all that has to be the same for two tasks to share servers.

    Which weights, how long they wait, and whether they rest between rollouts may differ.
    """
    same = replace(settings, model=Path(), context=0, patience=0.0, in_turn=False)
    return same, python, devices, *(_config(settings.model / name) for name in _CONFIGS)


def _config(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    return {name: value for name, value in json.loads(file.read_bytes()).items() if name not in _UNSAID}


def _positions(settings: Settings) -> int:
    """Return the most tokens that the model is made for."""
    return int((_config(settings.model / _CONFIGS[0]) or {}).get("max_position_embeddings", settings.context))


_now: ServerCache | None = None


def keep_servers() -> None:
    """Keep the servers that this process's tasks start, from before a task on until `end_servers`."""
    global _now
    _now = _now or ServerCache()
    _now.regain()


def kept_servers() -> ServerCache | None:
    """Return the servers that this process keeps, if it does."""
    return _now


def end_servers() -> None:
    """End the servers that this process keeps; those that tasks start from now on end with them."""
    global _now
    if _now is not None:
        _now.end()
    _now = None
