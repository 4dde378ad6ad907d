"""Keep servers running from one task to the next.

For a process that does one task at a time. Tasks share servers where their models differ in nothing but the weights, which
each task brings along. Starting a server takes far longer than that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from runners.engine.sglang import weights
from runners.engine.sglang.control import Refused
from runners.engine.sglang.server import Address, Server
from runners.engine.sglang.settings import Settings
from runners.engine.sglang.silence import Lost

_CONFIGS = ("config.json", "generation_config.json")
_UNSAID = frozenset({"_name_or_path", "transformers_version"})
"""What a config says of where it comes from, not of what it describes."""
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
            server.use_log(log)
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
                self.note("a server that is there goes on with this task's model")
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
        except (httpx.HTTPError, Lost, Refused):
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


def keep() -> None:
    """Keep the servers that this process's tasks start, from before a task on until `end`."""
    global _now
    _now = _now or ServerCache()
    _now.regain()


def kept() -> ServerCache | None:
    """Return the servers that this process keeps, if it does."""
    return _now


def end() -> None:
    """End the servers that this process keeps; those that tasks start from now on end with them."""
    global _now
    if _now is not None:
        _now.end()
    _now = None
