"""Who keeps a server: settings and what runs here in; a process of ours, an actor of Ray's, or a given address out."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import Any

import httpx

from reodsl.diagnostics import problem
from runners.engine.sglang import weights
from runners.engine.sglang.engine import Host
from runners.engine.sglang.interpreter import interpreter
from runners.engine.sglang.rounds import Lost
from runners.engine.sglang.server import Address, Server
from runners.engine.sglang.settings import KEY, Settings

ADDRESS = "REODSL_SGLANG_ADDRESS"
"""The environment variable with addresses of servers that run already, separated by commas."""


def hosts(settings: Settings, servers: int, logs: Path, apart: bool) -> list[Host]:
    """What is asked for: servers at given addresses; else actors where Ray runs, processes where it does not.

    `apart` lets Ray place each server on GPUs of its own, on any node; otherwise they stand beside this process.
    """
    given = [url.strip().rstrip("/") for url in os.environ.get(ADDRESS, "").split(",") if url.strip()]
    if given:
        return [Given(Address(url, os.environ.get(KEY, "")), settings) for url in given]
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return [Actor(ray, settings, logs / f"sglang-{i}.log", apart) for i in range(servers)]
    python = interpreter()
    return [Server(settings, python, logs / f"sglang-{i}.log") for i in range(servers)]


class Given:
    """A server that someone else started: it gets our weights, and is never ended from here."""

    def __init__(self, address: Address, settings: Settings) -> None:
        self.address, self.settings = address, settings

    def start(self) -> Address:
        """Checks that it answers and hands it the model. Raises E0828."""
        try:
            with httpx.Client(
                base_url=self.address.url, headers=self.address.headers, trust_env=False, timeout=10.0
            ) as client:
                told = client.get("/model_info")
            if told.status_code != 200:
                raise self._deaf(f"it answers {told.status_code}: {told.text[:200]}")
            weights.from_disk(self.settings.model, [self.address], 0)
        except (httpx.HTTPError, httpx.InvalidURL, Lost, weights.Refused) as fault:
            raise self._deaf(str(fault)) from fault
        return self.address

    @property
    def alive(self) -> bool:
        """Whether it answers."""
        try:
            return httpx.get(f"{self.address.url}/health", trust_env=False, timeout=10.0).status_code == 200
        except httpx.HTTPError:
            return False

    @property
    def near(self) -> bool:
        """Whether its address is this machine's."""
        return httpx.URL(self.address.url).host in ("127.0.0.1", "localhost", "::1")

    def said(self) -> list[str]:
        """Nothing: its log is elsewhere."""
        return []

    def note(self, words: str) -> None:
        """Its log is not ours to write."""

    def stop(self) -> None:
        """It is not ours to end."""

    def _deaf(self, words: str) -> Exception:
        return problem(
            "E0828",
            f"no SGLang server can be used at this address: {words}",
            where=self.address.url,
            help=f"start it with the same model, give its key in {KEY}, or unset {ADDRESS} to have one started",
        )


class Keeper:
    """The actor's side: a server process on the node where Ray put it."""

    def __init__(self, settings: Settings, log: Path, anywhere: bool) -> None:
        # Only who may be called from another node listens beyond this one; the key is asked for in both cases.
        host = _own_address() if anywhere else "127.0.0.1"
        self.server = Server(settings, interpreter(), log, host)

    def start(self) -> Address:
        """See `Server.start`."""
        return self.server.start()

    def alive(self) -> bool:
        """See `Server.alive`."""
        return self.server.alive

    def said(self) -> list[str]:
        """See `Server.said`."""
        return self.server.said()

    def note(self, words: str) -> None:
        """See `Server.note`."""
        self.server.note(words)

    def stop(self) -> None:
        """See `Server.stop`."""
        self.server.stop()


class Actor:
    """A server kept by a Ray actor, which is made anew when it or its node is gone."""

    def __init__(self, ray: Any, settings: Settings, log: Path, apart: bool) -> None:
        self.ray, self.settings, self.log, self.apart = ray, settings, log, apart
        self.keeper: Any = None

    def start(self) -> Address:
        """Makes the actor, if there is none, and starts its server. Raises what `Server.start` does, and E0821."""
        for attempt in range(2):
            if self.keeper is None:
                self.keeper = self._make()
            try:
                address: Address = self.ray.get(self.keeper.start.remote())
                return address
            except self.ray.exceptions.RayActorError as fault:
                self.keeper = None
                if attempt:
                    raise problem("E0821", f"the SGLang server's actor ended: {fault}") from fault
            except self.ray.exceptions.RayTaskError as fault:
                raise fault.cause from None
        raise AssertionError("unreachable")

    @property
    def alive(self) -> bool:
        """Whether the actor and its server run."""
        try:
            return self.keeper is not None and bool(self.ray.get(self.keeper.alive.remote()))
        except self.ray.exceptions.RayActorError:
            self.keeper = None
            return False

    @property
    def near(self) -> bool:
        """Whether it was put on this node."""
        return not self.apart

    def said(self) -> list[str]:
        """The last lines of its log, where the actor still runs."""
        try:
            return list(self.ray.get(self.keeper.said.remote())) if self.keeper is not None else []
        except self.ray.exceptions.RayActorError:
            return []

    def note(self, words: str) -> None:
        """Adds a line to its log."""
        if self.keeper is not None:
            self.keeper.note.remote(words)

    def stop(self) -> None:
        """Ends the server and the actor."""
        if self.keeper is None:
            return
        # Whatever keeps the actor from answering, it is ended next.
        with contextlib.suppress(Exception):
            self.ray.get(self.keeper.stop.remote(), timeout=20)
        self.ray.kill(self.keeper)
        self.keeper = None

    def _make(self) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        made = self.ray.remote(Keeper)
        if self.apart:
            gpus = 0 if self.settings.on_cpu else self.settings.tensor_parallel
            return made.options(num_cpus=0, num_gpus=gpus).remote(self.settings, self.log, True)
        node = self.ray.get_runtime_context().get_node_id()
        beside = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        # It shares the GPUs that this task holds.
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        environment = {"env_vars": {"CUDA_VISIBLE_DEVICES": seen}} if seen is not None else None
        return made.options(
            num_cpus=0, num_gpus=0, scheduling_strategy=beside, runtime_env=environment
        ).remote(self.settings, self.log, False)


def _own_address() -> str:
    """This node's address as others see it."""
    import ray

    found = str(ray.util.get_node_ip_address())
    return found or socket.gethostbyname(socket.gethostname())
