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
        """Start every server; processes meet for weights in `scratch_dir`. Raises as `ServerHandle.start`."""
        self.hosts, self._settings, self._scratch_dir = list(hosts), settings, scratch_dir
        self._shapes = tensor_shapes(settings.model)
        # Whether they have given memory back, and whether they are as whoever gets them next expects.
        self._offloaded, self._intact = False, True
        try:
            # All of them at the same time.
            for host in self.hosts:
                host.begin()
            self.servers = [host.start() for host in self.hosts]
        except BaseException:
            self.close()
            raise
        for server in self.servers:
            # Servers are no packages of this process.
            record(scratch_dir, "sglang", server.version)
            record(scratch_dir, DETERMINISM, settings.determinism)

    def load(self, state: Weights, version: int) -> None:
        """Bring new weights to all servers. Raises E0803 for tensors of another model, else as `ask`."""
        if not isinstance(state, Path):
            weights.require_shapes(state, self._shapes)
        self._intact = False
        if self._offloaded:
            self._tell("/resume_memory_occupation", tags=["weights"])
        self._send(state, version)
        if self._offloaded:
            self._tell("/resume_memory_occupation", tags=["kv_cache"])
            self._tell("/continue_generation")
        self._offloaded, self._intact = False, True

    # A server that was started with a memory saver unmaps its keys, values and weights, and maps other memory at the same
    # addresses later; one without it, as on a CPU, keeps its memory and only forgets what it had cached. What is mapped
    # again has no content: weights are mapped first, then sent, and caches last, when nothing else needs the room any more.

    def release(self) -> None:
        """Let servers that share devices with the trainer give back weights and caches, as far as they can.

        A server that is asked to give memory back while its scheduler still holds an answered request ends. A flush
        answers when it holds none.
        """
        if self._settings.shares_device:
            self._intact = False
            self._tell("/pause_generation", mode="abort")
            self._tell(f"/flush_cache?timeout={_IDLE_SECONDS:g}")
            self._tell("/release_memory_occupation", tags=["kv_cache", "weights"])
            self._offloaded = True

    def require_alive(self) -> None:
        """Check that every server runs. Raises ProcessDied: a connection to a node that is gone may stay open."""
        for host, server in zip(self.hosts, self.servers, strict=True):
            if not host.alive:
                raise explain_loss(server, "its process is gone")

    def close(self) -> None:
        """End the servers that this engine started, whatever they are doing."""
        # Each of these, whatever becomes of the others.
        with ExitStack() as ends:
            for host in self.hosts:
                ends.callback(host.stop if self._intact else host.kill)

    def _send(self, state: Weights, version: int) -> None:
        """Send weights to all servers: from a folder, through shared memory, or by broadcast."""
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
        """Return whether each server is on devices of the `world` processes that hold the weights."""
        return self._settings.shares_device and len(self.hosts) * self._settings.tensor_parallel <= world

    def _tell(self, path: str, **message: object) -> None:
        with ServerGroupClient(self.servers) as lines:
            lines.ask(path, message)
