"""Manage an engine's servers: start them, bring them weights, offload them. A server that fails ends the task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from reodsl.store.manifest import DETERMINISM, record
from runners.engine.protocol import SharedWeights, Weights
from runners.engine.sglang import weights
from runners.engine.sglang.control import ServerGroupClient, explain_loss
from runners.engine.sglang.server import ServerHandle
from runners.engine.sglang.settings import Settings
from runners.models.tensors import tensor_shapes

_IDLE_SECONDS = 60.0
"""Seconds until a server has finished the requests that it has answered."""


class Fleet:
    """Servers with the same weights. `servers` are their addresses, in the order of the handles."""

    def __init__(self, hosts: Sequence[ServerHandle], settings: Settings, scratch_dir: Path) -> None:
        """Start every server, all at the same time.

        Args:
            hosts: The handles of the servers.
            settings: The settings that the servers share.
            scratch_dir: The folder for the files by which processes find each other to exchange weights, and for the
                record of the servers' version.

        Raises:
            Problem: E0801, E0821 or E0937 if a server does not start.
        """
        self.hosts, self._settings, self._scratch_dir = list(hosts), settings, scratch_dir
        self._shapes = tensor_shapes(settings.model)
        # A server that is not intact is killed at the end, not given back to the next task.
        self._offloaded, self._intact = False, True
        try:
            for host in self.hosts:
                host.begin()
            self.servers = [host.start() for host in self.hosts]
        except BaseException:
            self.close()
            raise
        for server in self.servers:
            # The versions of this process's packages do not include those of servers.
            record(scratch_dir, "sglang", server.version)
            record(scratch_dir, DETERMINISM, settings.determinism)

    def load(self, state: Weights, version: int) -> None:
        """Load new weights into all servers; servers that have freed their memory allocate it again first.

        Args:
            state: The new weights.
            version: The number of the new weights.

        Raises:
            Problem: E0803 for tensors of another model, E0824 if a server refuses them, ProcessDied if a server died.
        """
        if not isinstance(state, Path):
            weights.require_shapes(state, self._shapes)
        self._intact = False
        if self._offloaded:
            self._ask_all("/resume_memory_occupation", tags=["weights"])
        self._send(state, version)
        if self._offloaded:
            self._ask_all("/resume_memory_occupation", tags=["kv_cache"])
            self._ask_all("/continue_generation")
        self._offloaded, self._intact = False, True

    def release(self) -> None:
        """Let servers that share devices with the trainer free the memory of their weights and caches.

        Servers that share no devices with the trainer are left as they are.

        A server crashes if it frees memory while its scheduler still has a request, even an answered request. So the
        cache is flushed first: the server answers the flush when its scheduler has no request.

        A server with a memory saver unmaps the memory of its keys, values and weights. `load` later maps new memory,
        without content, at the same addresses: first for the weights, which are then sent, and last for the caches,
        when the sender's memory is free again. A server without a memory saver, as on a CPU, keeps its memory and only
        clears its cache.
        """
        if self._settings.shares_device:
            self._intact = False
            self._ask_all("/pause_generation", mode="abort")
            self._ask_all(f"/flush_cache?timeout={_IDLE_SECONDS:g}")
            self._ask_all("/release_memory_occupation", tags=["kv_cache", "weights"])
            self._offloaded = True

    def require_alive(self) -> None:
        """Check that every server's process runs, because a connection to a lost node may stay open.

        Raises:
            ProcessDied: A process has ended.
        """
        for host, server in zip(self.hosts, self.servers, strict=True):
            if not host.alive:
                raise explain_loss(server, "its process no longer runs")

    def close(self) -> None:
        """Stop all servers, or kill them if a weight update or an offload was interrupted."""
        # The stack calls each function even if another raises.
        with ExitStack() as stack:
            for host in self.hosts:
                stack.callback(host.stop if self._intact else host.kill)

    def _send(self, state: Weights, version: int) -> None:
        """Send weights to all servers by the fastest of three ways.

        A folder is read by the servers themselves. Tensors of a trainer on the same devices go through shared memory.
        Tensors of a trainer on other devices are broadcast.

        Args:
            state: The weights: a folder, the tensors of this process, or the shards of several processes.
            version: The number of the weights.
        """
        ranks = self._settings.tensor_parallel
        if isinstance(state, Path):
            weights.load_from_disk(state, self.servers, version)
        elif isinstance(state, SharedWeights) and self._colocated_with(state.world):
            state.run_on_all(weights.hand_over, dict(enumerate(self.servers)), ranks, version)
        elif isinstance(state, SharedWeights):
            weights.broadcast(state.pieces(), self.servers, ranks, version, self._scratch_dir)
        elif self._colocated_with(1):
            weights.hand_over(
                weights.iter_untied(state), 0, lambda v: [v], dict(enumerate(self.servers)), ranks, version
            )
        else:
            weights.broadcast(weights.iter_untied(state), self.servers, ranks, version, self._scratch_dir)

    def _colocated_with(self, world: int) -> bool:
        """Return whether every server is on devices of the processes that have the weights.

        Args:
            world: The number of processes that have the weights, each with a device of its own.
        """
        return self._settings.shares_device and len(self.hosts) * self._settings.tensor_parallel <= world

    def _ask_all(self, path: str, **message: object) -> None:
        """Send the same message to all servers, and wait until all have answered."""
        with ServerGroupClient(self.servers) as client:
            client.ask(path, message)
