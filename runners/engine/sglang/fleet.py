"""Keep the servers of an engine alive, each with the present weights."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from reodsl.diagnostics import first_line, problem
from reodsl.store.manifest import DETERMINISM, WEIGHTS, note_lost, record
from runners.engine.protocol import SharedWeights, Weights
from runners.engine.sglang import weights
from runners.engine.sglang.control import Hung, Lines, Lost, Refused, call_all
from runners.engine.sglang.server import Address, Host
from runners.engine.sglang.settings import Settings
from runners.engine.sglang.weights import hand
from runners.models.tensors import tensor_shapes

_LOG = logging.getLogger("reodsl.engine")
_DEATHS = 3
"""Times that servers may be lost one after another without an answer in between."""
_PAUSE = 1.0
"""Seconds, times how often it was lost, until a server that seems alive is asked again: one may take a while to end."""
_IDLE = 60.0
"""Seconds until a server has put away what it has answered."""


class Fleet:
    """Servers that are started again when they die or hang, each time with the weights that were loaded last.

    `servers` are their addresses, in the order of the hosts.
    """

    def __init__(self, hosts: Sequence[Host], settings: Settings, aside: Path) -> None:
        """Start every host. `aside` is the folder for weights on their way. Raises what `Host.start` does."""
        self.hosts, self._settings, self._aside = list(hosts), settings, aside
        self.servers: list[Address] = []
        self.way: weights.Way | None = None
        self._shapes = tensor_shapes(settings.model)
        self._weights: tuple[Weights, int] = (settings.model, 0)
        self._away: set[int] = set()
        try:
            # All of them at the same time.
            for host in self.hosts:
                host.begin()
            for host in self.hosts:
                self.servers.append(self._started(host))
        except BaseException:
            self.close()
            raise

    def load(self, state: Weights, version: int) -> None:
        """Bring new weights to all servers. They are kept in view until the next call, for servers that die meanwhile.

        Raises E0806 for tensors that are not the model's, E0826 where no way of sending them works.
        """
        if not isinstance(state, Path):
            weights.require_shapes(state, self._shapes)
        if isinstance(state, SharedWeights) and not self._beside(state):
            state = weights.Arriving(state.pieces)
        self._weights = (state, version)
        self._switch(resume_weights, self._away)
        self._renew(range(len(self.hosts)))
        self._switch(resume_kv_cache, self._away)
        self._away = set()

    def release(self) -> None:
        """Let servers that take turns with the trainer give back weights and caches, as far as they can.

        One that does not do so is ended, and started again for the next weights.
        """
        # Nobody needs the old weights any more, and they may be a copy on a trainer's device.
        self._weights = (self._settings.model, 0)
        if self._settings.in_turn:
            self._away = set(range(len(self.hosts)))
            self._away = self._switch(release_memory, self._away)

    def revive(self, number: int, fault: Lost, deaths: int) -> None:
        """Start a lost server again and bring it the present weights. Raises E0827 after too many deaths."""
        host = self.hosts[number]
        host.note(f"it does not answer: {fault}")
        if isinstance(fault, Hung):
            host.kill()
        if deaths > _DEATHS:
            raise problem(
                "E0827",
                f"an SGLang server was lost {deaths} times in a row without answering anything",
                where=self.servers[number].url,
                notes=host.said(),
                help="its log ends in the reason; less memory is needed with a shorter longest response",
            )
        if host.alive:
            time.sleep(_PAUSE * deaths)
        if not host.alive:
            _LOG.warning("an SGLang server was lost and is started again; its open requests are sent again")
            self._start(number)
            host.note("started again after it was lost")
            note_lost(self._aside)
            if self._weights != (self._settings.model, 0):
                self._renew([number])

    def close(self) -> None:
        """End the servers that are ours, with whatever they were doing."""
        # Each of these, whatever becomes of the others.
        with ExitStack() as ends:
            for host in self.hosts:
                ends.callback(host.stop)
            for number in self._away:
                # Whoever gets a server next does not know that it waits for its memory.
                ends.callback(self.hosts[number].kill)

    def _started(self, host: Host) -> Address:
        """Start a host and record its version of SGLang: servers are no packages of this process."""
        address = host.start()
        record(self._aside, "sglang", address.version)
        record(self._aside, DETERMINISM, self._settings.determinism)
        return address

    def _start(self, number: int) -> None:
        """Start a server again: it has all of its memory, and the first weights."""
        self.servers[number] = self._started(self.hosts[number])
        self._away.discard(number)

    def _switch(self, call: Callable[[Address], None], numbers: Iterable[int]) -> set[int]:
        """Make a call to some servers at once, and end those that fail, whose memory is in an unknown state.

        Returns the numbers of the others.
        """
        done: set[int] = set()

        def one(number: int) -> None:
            try:
                call(self.servers[number])
                done.add(number)
            except (Lost, Refused) as fault:
                self._tell(
                    f"a server did not give memory back or take it again, and is ended: {first_line(fault)}",
                    [number],
                )
                self.hosts[number].kill()

        call_all([partial(one, number) for number in sorted(numbers)])
        return done

    def _renew(self, numbers: Sequence[int]) -> None:
        """Bring the present weights to some servers, those that have died or hang meanwhile started again."""
        state, _ = self._weights
        known: tuple[weights.Way, ...] = ("disk",)
        if isinstance(state, SharedWeights):
            known = ("tensor", "disk")
        elif not isinstance(state, Path):
            known = weights.ways(self._share_memory(numbers))
        failed: list[str] = []
        for way in known[known.index(self.way) :] if self.way in known else known:
            fault = self._sent(way, numbers)
            if fault is None:
                self.way = self.way if isinstance(state, Path) else way
                if failed:
                    record(self._aside, WEIGHTS, f"by {way}, not {known[0]}")
                return
            failed.append(f"{way}: {fault}")
            if way != known[-1]:
                self._tell(f"weights do not go by {way} ({fault}); trying the next way")
        raise problem(
            "E0826",
            "new weights do not reach the SGLang server",
            where=self.servers[0].url,
            notes=failed,
            help="put the run's store on a file system that the server sees, or start the server from here",
        )

    def _sent(self, way: weights.Way, numbers: Sequence[int]) -> Exception | None:
        """Send the weights one way, once more if a server was lost meanwhile; return why it failed, if it did."""
        state, version = self._weights
        failure: Exception | None = None
        for _ in range(2):
            servers = self._standing(numbers)
            try:
                ranks, model = self._settings.tensor_parallel, self._settings.model
                if isinstance(state, Path):
                    weights.from_disk(state, servers, version)
                elif isinstance(state, SharedWeights) and way == "tensor":
                    state.each(hand, dict(zip(numbers, servers, strict=True)), ranks, version)
                else:
                    # The servers need their devices for themselves.
                    whole = state.whole("cpu") if isinstance(state, SharedWeights) else state
                    weights.update(way, whole, servers, ranks, version, self._aside, model)
                return None
            except Refused as fault:
                return fault
            except Lost as fault:
                failure = fault
                self._end_hung(fault)
        return failure

    def _beside(self, state: SharedWeights) -> bool:
        """Return whether each server is on devices of processes that hold these weights."""
        return self._settings.in_turn and len(self.hosts) * self._settings.tensor_parallel <= state.world

    def _share_memory(self, numbers: Sequence[int]) -> bool:
        """Return whether servers can read this process's memory: on a GPU, the one server that is on the same one."""
        near = all(self.hosts[number].near for number in numbers)
        alone = self._settings.in_turn and len(self.hosts) * self._settings.tensor_parallel == 1
        return near and (self._settings.on_cpu or alone)

    def _end_hung(self, fault: Lost) -> None:
        """End servers that took weights and do not report that they go on."""
        hung = fault.servers if isinstance(fault, Hung) else ()
        for number in [number for number, server in enumerate(self.servers) if server in hung]:
            self._tell(f"a server that was sent weights is ended: {fault}", [number])
            self.hosts[number].kill()

    def _standing(self, numbers: Sequence[int]) -> list[Address]:
        """Return the servers, after starting the dead ones again."""
        for number in numbers:
            if not self.hosts[number].alive:
                self._start(number)
        return [self.servers[number] for number in numbers]

    def _tell(self, words: str, numbers: Iterable[int] | None = None) -> None:
        _LOG.warning(words)
        for number in range(len(self.hosts)) if numbers is None else numbers:
            self.hosts[number].note(words)


# A server that was started with a memory saver unmaps its keys, values and weights, and maps other memory at the same
# addresses later; one without it, as on a CPU, keeps its memory and only forgets what it had cached. What is mapped again
# has no content: weights are mapped first, then sent, and caches last, when nothing else needs the room any more.


def release_memory(address: Address) -> None:
    """Let a server finish, take nothing new, and give back its weights, keys and values. Raises `Refused`, `Lost`.

    A server that is asked to give memory back while its scheduler still holds an answered request ends. A flush answers
    when it holds none.
    """
    with Lines([address]) as lines:
        lines.ask("/pause_generation", {"mode": "abort"})
        lines.ask(f"/flush_cache?timeout={_IDLE:g}", {})
        lines.ask("/release_memory_occupation", {"tags": ["kv_cache", "weights"]})


def resume_weights(address: Address) -> None:
    """Map memory for weights again, which have to be sent next. Raises `Refused`, `Lost`."""
    with Lines([address]) as lines:
        lines.ask("/resume_memory_occupation", {"tags": ["weights"]})


def resume_kv_cache(address: Address) -> None:
    """Map memory for keys and values again, and resume generation. Raises `Refused`, `Lost`."""
    with Lines([address]) as lines:
        lines.ask("/resume_memory_occupation", {"tags": ["kv_cache"]})
        lines.ask("/continue_generation", {})
