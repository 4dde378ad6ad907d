"""The SGLang engine: servers in, an `Engine` that keeps them fed, and alive, out."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch

from reodsl.diagnostics import first_line, problem
from runners.engine.protocol import Ahead, Forced, Request, Response, Sampling
from runners.engine.requests import Limits
from runners.engine.sglang import occupancy, weights
from runners.engine.sglang.control import Refused, together
from runners.engine.sglang.host import Host
from runners.engine.sglang.messages import Draft
from runners.engine.sglang.rounds import Hung, Loop, Lost, Read, Round, Work, left
from runners.engine.sglang.server import Address
from runners.engine.sglang.settings import Settings
from runners.engine.versions import record
from runners.models.tensors import tensor_shapes

_LOG = logging.getLogger("reodsl.engine")
_DEATHS = 3
"""Times that servers may be lost one after another without an answer in between."""
_PAUSE = 1.0
"""Seconds, times how often it was lost, until a server that seems alive is asked again: one may take a while to end."""

Key = tuple[Request, tuple[int, ...]]


class SGLangEngine:
    """Rollouts on SGLang servers. A server that dies or hangs is started again, and what it had not answered is asked again:
    draws depend on seeds and places alone, so the answers are those that it would have given.
    """

    def __init__(
        self, hosts: Sequence[Host], settings: Settings, limits: Limits, aside: Path, passing: bool = False
    ) -> None:
        """Starts every host. `aside` is where weights may be laid down on their way; `passing`, it goes when the engine
        is closed. Raises what `Host.start` does.
        """
        self._hosts, self._settings, self._limits, self._aside = list(hosts), settings, limits, aside
        self._passing = False
        self._loop = Loop()
        self._shapes = tensor_shapes(settings.model)
        self._weights: tuple[Mapping[str, torch.Tensor] | Path, int] = (settings.model, 0)
        self._way: weights.Way | None = None
        self._made: dict[Key, Work] = {}
        self._ahead: Ahead | None = None
        self.read = Read()
        self._servers: list[Address] = []
        self._away: set[int] = set()
        try:
            # All of them at the same time.
            for host in self._hosts:
                host.begin()
            for host in self._hosts:
                self._servers.append(self._started(host))
        except BaseException:
            self.close()
            raise
        self._passing = passing

    def load_weights(self, state: Mapping[str, torch.Tensor] | Path, version: int) -> None:
        """See `Engine.load_weights`. Tensors are kept in view until the next call, for servers that die meanwhile.

        Raises E0806 for tensors that are not the model's, E0826 where no way of sending them works.
        """
        if not isinstance(state, Path):
            weights.require_shapes(state, self._shapes)
        self._made, self._ahead = {}, None
        self._weights = (state, version)
        self._switch(occupancy.take_weights, self._away)
        self._renew(range(len(self._hosts)))
        self._switch(occupancy.take_caches, self._away)
        self._away = set()

    def release(self) -> None:
        """See `Engine.release`: servers that take turns with the trainer give back weights and caches, as far as they can.

        One that does not do so is ended, and started again for the next weights.
        """
        self._made, self._ahead = {}, None
        # Nobody needs the old weights any more, and they may be a copy on a trainer's device.
        self._weights = (self._settings.model, 0)
        if self._settings.in_turn:
            self._away = set(range(len(self._hosts)))
            self._away = self._switch(occupancy.release, self._away)

    def generate(
        self, requests: Sequence[Request], sampling: Sampling, ahead: Ahead | None = None
    ) -> list[Response]:
        """See `Engine.generate`. Raises E0807 for an impossible request, E0824 to E0827 for what servers do."""
        self._limits.check(requests, sampling)
        self._made, self._ahead = {}, ahead
        places = _places(requests, len(self._hosts))
        works = [
            Work(index, request, place, Draft(request, sampling))
            for index, (request, place) in enumerate(zip(requests, places, strict=True))
        ]
        self._finish(works, ahead)
        responses = []
        for work in works:
            assert work.response is not None
            responses.append(work.response)
            self._made[(work.request, work.response.tokens)] = work
        return responses

    def force(
        self,
        requests: Sequence[Request],
        responses: Sequence[Response],
        cuts: Sequence[Sequence[int]],
        forcing: Sequence[int],
        sampling: Sampling,
    ) -> list[list[Forced]]:
        """See `Engine.force`: what was answered ahead is there, the rest is asked for now. Raises as `generate`."""
        self._limits.check_forced(requests, responses, cuts, forcing, sampling)
        text = tuple(forcing)
        kept = self._ahead is not None and (self._ahead.forcing, self._ahead.sampling) == (text, sampling)
        places = _places(requests, len(self._hosts))
        works: dict[Key, Work] = {}
        for index, (request, response, wanted) in enumerate(zip(requests, responses, cuts, strict=True)):
            key = (request, response.tokens)
            if key not in works:
                before = self._made.get(key)
                place = before.server if before is not None else places[index]
                works[key] = Work(index, request, place, response=response)
                if before is not None and kept:
                    works[key].answers = dict(before.answers)
            works[key].cuts += tuple(wanted)
        self._finish(list(works.values()), Ahead(lambda _, __: (), text, sampling))
        return [
            [Forced(cut, works[(request, response.tokens)].answers.get(cut, ())) for cut in wanted]
            for request, response, wanted in zip(requests, responses, cuts, strict=True)
        ]

    def close(self) -> None:
        """Ends the servers that are ours, with whatever they were doing."""
        # Each of these, whatever becomes of the others.
        with ExitStack() as ends:
            if self._passing:
                ends.callback(shutil.rmtree, self._aside, ignore_errors=True)
            ends.callback(self._loop.close)
            for host in self._hosts:
                ends.callback(host.stop)
            for number in self._away:
                # Whoever gets a server next does not know that it waits for its memory.
                ends.callback(self._hosts[number].kill)

    def _started(self, host: Host) -> Address:
        """Starts a host, and writes down which SGLang it is: servers are no packages of this process."""
        address = host.start()
        record(self._aside, "sglang", address.version)
        return address

    def _finish(self, works: Sequence[Work], ahead: Ahead | None) -> None:
        """Asks until everything is answered, over as many lives of the servers as that takes."""
        if all(work.done for work in works):
            return
        asking = Round(works, self._servers, self._settings.at_once, ahead, self.read)

        def revive() -> None:
            lost: dict[tuple[int, int], int] = {}
            while (heard := asking.next_lost()) is not None:
                number, fault = heard
                self._hosts[number].note(f"it does not answer: {fault}")
                if isinstance(fault, Hung):
                    self._hosts[number].kill()
                same = number, left(works)
                lost[same] = lost.get(same, 0) + 1
                self._revive(number, lost[same])
                self._loop.call(asking.back, number, self._servers[number])

        self._loop.run(asking.run(), revive)

    def _revive(self, number: int, deaths: int) -> None:
        """Starts a server again that was lost, and brings it the present weights. Raises E0827 after too many."""
        host = self._hosts[number]
        if deaths > _DEATHS:
            raise problem(
                "E0827",
                f"an SGLang server was lost {deaths} times in a row without answering anything",
                where=self._servers[number].url,
                notes=host.said(),
                help="its log ends in the reason; less memory is needed with a shorter longest response",
            )
        if host.alive:
            time.sleep(_PAUSE * deaths)
        if not host.alive:
            _LOG.warning("an SGLang server was lost and is started again; its open requests are sent again")
            self._start(number)
            host.note("started again after it was lost")
            if self._weights != (self._settings.model, 0):
                self._renew([number])

    def _start(self, number: int) -> None:
        """Starts a server again: it has all of its memory, and the first weights."""
        self._servers[number] = self._started(self._hosts[number])
        self._away.discard(number)

    def _switch(self, call: Callable[[Address], None], numbers: Iterable[int]) -> set[int]:
        """Makes a call to some servers at once, and ends those that fail: what they have left of their memory is not known.

        Returns the numbers of the others.
        """
        done: set[int] = set()

        def one(number: int) -> None:
            try:
                call(self._servers[number])
                done.add(number)
            except (Lost, Refused) as fault:
                self._tell(
                    f"a server did not give memory back or take it again, and is ended: {first_line(fault)}",
                    [number],
                )
                self._hosts[number].kill()

        together([partial(one, number) for number in sorted(numbers)])
        return done

    def _renew(self, numbers: Sequence[int]) -> None:
        """Brings the present weights to some servers, those that have died meanwhile started again."""
        state, _ = self._weights
        near = all(self._hosts[number].near for number in numbers)
        known: tuple[weights.Way, ...] = ("disk",) if isinstance(state, Path) else weights.ways(near)
        failed: list[str] = []
        for way in known[known.index(self._way) :] if self._way in known else known:
            fault = self._sent(way, numbers)
            if fault is None:
                self._way = self._way if isinstance(state, Path) else way
                return
            failed.append(f"{way}: {fault}")
            if way != known[-1]:
                self._tell(f"weights do not go by {way} ({fault}); trying the next way")
        raise self._unsent(failed)

    def _sent(self, way: weights.Way, numbers: Sequence[int]) -> Exception | None:
        """Sends the weights one way, once more where a server was lost meanwhile; why it failed, if it did."""
        state, version = self._weights
        found: Exception | None = None
        for _ in range(2):
            servers = self._standing(numbers)
            try:
                if isinstance(state, Path):
                    weights.from_disk(state, servers, version)
                else:
                    ranks, model = self._settings.tensor_parallel, self._settings.model
                    weights.update(way, state, servers, ranks, version, self._aside, model)
                return None
            except Refused as fault:
                return fault
            except Lost as fault:
                found = fault
        return found

    def _standing(self, numbers: Sequence[int]) -> list[Address]:
        """The servers, those that have died started again."""
        for number in numbers:
            if not self._hosts[number].alive:
                self._start(number)
        return [self._servers[number] for number in numbers]

    def _tell(self, words: str, numbers: Iterable[int] | None = None) -> None:
        _LOG.warning(words)
        for number in range(len(self._hosts)) if numbers is None else numbers:
            self._hosts[number].note(words)

    def _unsent(self, failed: Sequence[str]) -> Exception:
        return problem(
            "E0826",
            "new weights do not reach the SGLang server",
            where=self._servers[0].url,
            notes=list(failed),
            help="put the run's store on a file system that the server sees, or start the server from here",
        )


def _places(requests: Sequence[Request], servers: int) -> list[int]:
    """A server for each request: equal prompts together, so that each is read once, and about as many everywhere."""
    chosen: dict[tuple[int, ...], int] = {}
    load = [0] * servers
    sizes: dict[tuple[int, ...], int] = {}
    for request in requests:
        sizes[request.prompt] = sizes.get(request.prompt, 0) + 1
    for prompt, size in sizes.items():
        place = min(range(servers), key=load.__getitem__)
        chosen[prompt] = place
        load[place] += size
    return [chosen[request.prompt] for request in requests]
