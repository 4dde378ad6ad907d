"""The SGLang engine: keeps servers fed with requests."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from runners.engine.protocol import (
    Ahead,
    Ended,
    ForcedTokens,
    Generation,
    Limits,
    Request,
    TokenSampling,
    Weights,
)
from runners.engine.remote import Loop
from runners.engine.sglang.fleet import Fleet
from runners.engine.sglang.messages import Draft
from runners.engine.sglang.rounds import Read, Round, Work
from runners.engine.sglang.server import Host
from runners.engine.sglang.settings import Settings

Key = tuple[Request, tuple[int, ...]]


class SGLangEngine:
    """Rollouts on SGLang servers; one that dies ends the task. Draws depend on seeds and places alone."""

    def __init__(
        self, hosts: Sequence[Host], settings: Settings, limits: Limits, aside: Path, passing: bool = False
    ) -> None:
        """Start every host. Raises what `Host.start` does.

        `aside` is the folder for weights on their way; `passing`, it is removed when the engine is closed.
        """
        self.fleet = Fleet(hosts, settings, aside)
        self.settings, self._limits = settings, limits
        self._passing = aside if passing else None
        self._loop = Loop()
        self._made: dict[Key, Work] = {}
        self._ahead: Ahead | None = None
        self.read = Read()

    def load_weights(self, state: Weights, version: int) -> None:
        """See `Engine.load_weights`. Raises E0803, E0824, ProcessDied."""
        self._made, self._ahead = {}, None
        self.fleet.load(state, version)

    def release(self) -> None:
        """See `Engine.release`."""
        self._made, self._ahead = {}, None
        self.fleet.release()

    def generate(
        self,
        requests: Sequence[Request],
        sampling: TokenSampling,
        ahead: Ahead | None = None,
        ended: Ended | None = None,
    ) -> list[Generation]:
        """See `Engine.generate`. Raises E0807 for an impossible request, E0824 and ProcessDied for servers."""
        self._limits.check(requests, sampling)
        self._made, self._ahead = {}, ahead
        places = _places(requests, len(self.fleet.hosts), sampling.max_tokens)
        works = [
            Work(index, request, place, Draft(request, request.limited(sampling), watched=index == 0))
            for index, (request, place) in enumerate(zip(requests, places, strict=True))
        ]
        self._finish(works, ahead, ended)
        responses = []
        for work in works:
            assert work.response is not None
            responses.append(work.response)
            self._made[(work.request, work.response.tokens)] = work
        return responses

    def force(
        self,
        requests: Sequence[Request],
        responses: Sequence[Generation],
        cuts: Sequence[Sequence[int]],
        forcing: Sequence[int],
        sampling: TokenSampling,
    ) -> list[list[ForcedTokens]]:
        """See `Engine.force`: what was answered ahead is there, the rest is asked for now. Raises as `generate`."""
        self._limits.check_forced(requests, responses, cuts, forcing, sampling)
        text = tuple(forcing)
        kept = self._ahead is not None and (self._ahead.forcing, self._ahead.sampling) == (text, sampling)
        places = _places(requests, len(self.fleet.hosts))
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
            [ForcedTokens(cut, works[(request, response.tokens)].answers.get(cut, ())) for cut in wanted]
            for request, response, wanted in zip(requests, responses, cuts, strict=True)
        ]

    def close(self) -> None:
        """End the servers that are ours, with whatever they were doing."""
        # Each of these, whatever becomes of the others.
        with ExitStack() as ends:
            if self._passing is not None:
                ends.callback(shutil.rmtree, self._passing, ignore_errors=True)
            ends.callback(self._loop.close)
            ends.callback(self.fleet.close)

    def _finish(self, works: Sequence[Work], ahead: Ahead | None, ended: Ended | None = None) -> None:
        """Ask until everything is answered."""
        if all(work.done for work in works):
            return
        asking = Round(works, self.fleet.servers, self.settings.at_once, ahead, self.read, ended=ended)
        self._loop.run(asking.run(), check=self.fleet.require_alive)


def _places(requests: Sequence[Request], servers: int, tokens: int = 1) -> list[int]:
    """Return a server for each request: equal prompts together, each read once, and about as much to read everywhere.

    A response of `tokens` tokens reads its prompt and half of itself with each. Those that go on, some far, others hardly
    begun, differ most: the longest are dealt first.
    """
    sizes: dict[tuple[int, ...], int] = {}
    for request in requests:
        sizes[request.prompt] = sizes.get(request.prompt, 0) + 1
    costs = {prompt: size * (len(prompt) + tokens / 2) for prompt, size in sizes.items()}
    load = [0.0] * servers
    chosen: dict[tuple[int, ...], int] = {}
    for prompt in sorted(costs, key=lambda prompt: -costs[prompt]):
        place = min(range(servers), key=load.__getitem__)
        chosen[prompt] = place
        load[place] += costs[prompt]
    return [chosen[request.prompt] for request in requests]
