"""Keep an engine's servers: start them, bring them weights, let them rest. A server that fails ends the task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from reodsl.store.manifest import DETERMINISM, record
from runners.engine.protocol import SharedWeights, Weights
from runners.engine.sglang import weights
from runners.engine.sglang.control import Lines, lost
from runners.engine.sglang.server import Host
from runners.engine.sglang.settings import Settings
from runners.models.tensors import tensor_shapes

_IDLE = 60.0
"""Seconds until a server has put away what it has answered."""


class Fleet:
    """Servers with one set of weights. `servers` are their addresses, in the order of the hosts."""

    def __init__(self, hosts: Sequence[Host], settings: Settings, aside: Path) -> None:
        """Start every host. `aside` is the folder for weights on their way. Raises what `Host.start` does."""
        self.hosts, self._settings, self._aside = list(hosts), settings, aside
        self._shapes = tensor_shapes(settings.model)
        # Whether they have given memory back, and whether they are as whoever gets them next expects.
        self._rests, self._intact = False, True
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
            record(aside, "sglang", server.version)
            record(aside, DETERMINISM, settings.determinism)

    def load(self, state: Weights, version: int) -> None:
        """Bring new weights to all servers. Raises E0803 for tensors that are not the model's, else what `ask` does."""
        if not isinstance(state, Path):
            weights.require_shapes(state, self._shapes)
        self._intact = False
        if self._rests:
            self._tell("/resume_memory_occupation", tags=["weights"])
        self._send(state, version)
        if self._rests:
            self._tell("/resume_memory_occupation", tags=["kv_cache"])
            self._tell("/continue_generation")
        self._rests, self._intact = False, True

    # A server that was started with a memory saver unmaps its keys, values and weights, and maps other memory at the same
    # addresses later; one without it, as on a CPU, keeps its memory and only forgets what it had cached. What is mapped
    # again has no content: weights are mapped first, then sent, and caches last, when nothing else needs the room any more.

    def release(self) -> None:
        """Let servers that take turns with the trainer give back weights and caches, as far as they can.

        A server that is asked to give memory back while its scheduler still holds an answered request ends. A flush answers
        when it holds none.
        """
        if self._settings.in_turn:
            self._intact = False
            self._tell("/pause_generation", mode="abort")
            self._tell(f"/flush_cache?timeout={_IDLE:g}")
            self._tell("/release_memory_occupation", tags=["kv_cache", "weights"])
            self._rests = True

    def require_alive(self) -> None:
        """Check that every server runs. Raises ProcessDied: a connection to a node that is gone may stay open."""
        for host, server in zip(self.hosts, self.servers, strict=True):
            if not host.alive:
                raise lost(server, "its process is gone")

    def close(self) -> None:
        """End the servers that are ours, with whatever they were doing."""
        # Each of these, whatever becomes of the others.
        with ExitStack() as ends:
            for host in self.hosts:
                ends.callback(host.stop if self._intact else host.kill)

    def _send(self, state: Weights, version: int) -> None:
        ranks = self._settings.tensor_parallel
        if isinstance(state, Path):
            weights.from_disk(state, self.servers, version)
        elif isinstance(state, SharedWeights) and self._beside(state.world):
            state.each(weights.hand, dict(enumerate(self.servers)), ranks, version)
        elif isinstance(state, SharedWeights):
            weights.send(state.pieces(), self.servers, ranks, version, self._aside)
        elif self._beside(1):
            weights.hand(
                weights.untied(state), 0, lambda one: [one], dict(enumerate(self.servers)), ranks, version
            )
        else:
            weights.send(weights.untied(state), self.servers, ranks, version, self._aside)

    def _beside(self, world: int) -> bool:
        """Return whether each server is on devices of processes that hold these weights, of which there are so many."""
        return self._settings.in_turn and len(self.hosts) * self._settings.tensor_parallel <= world

    def _tell(self, path: str, **message: object) -> None:
        with Lines(self.servers) as lines:
            lines.ask(path, message)
