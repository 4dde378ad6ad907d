"""The SGLang engine: keeps servers fed with requests."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from runners.engine.protocol import (
    ForcedTokens,
    ForcingPlan,
    Generation,
    Limits,
    OnResponse,
    Request,
    TokenSampling,
    Weights,
)
from runners.engine.remote import Loop
from runners.engine.sglang.fleet import Fleet
from runners.engine.sglang.messages import Draft
from runners.engine.sglang.rounds import PendingRequest, PrefixCacheStats, RequestLoop
from runners.engine.sglang.server import ServerHandle
from runners.engine.sglang.settings import Settings

Key = tuple[Request, tuple[int, ...]]


class SGLangEngine:
    """Rollouts on SGLang servers; a server that dies ends the task. Samples depend on seeds and positions alone."""

    def __init__(
        self,
        hosts: Sequence[ServerHandle],
        settings: Settings,
        limits: Limits,
        scratch_dir: Path,
        temporary: bool = False,
    ) -> None:
        """Start every server. Raises as `ServerHandle.start`.

        `scratch_dir` is the folder in which processes meet for weights; with `temporary` it is removed when the engine
        is closed.
        """
        self.fleet = Fleet(hosts, settings, scratch_dir)
        self.settings, self._limits = settings, limits
        self._passing = scratch_dir if temporary else None
        self._loop = Loop()
        self._made: dict[Key, PendingRequest] = {}
        self._plan: ForcingPlan | None = None
        self.read = PrefixCacheStats()

    def load_weights(self, state: Weights, version: int) -> None:
        """Load weights as `Engine.load_weights`. Raises E0803, E0824, ProcessDied."""
        self._made, self._plan = {}, None
        self.fleet.load(state, version)

    def release(self) -> None:
        """Give memory back as `Engine.release`."""
        self._made, self._plan = {}, None
        self.fleet.release()

    def generate(
        self,
        requests: Sequence[Request],
        sampling: TokenSampling,
        plan: ForcingPlan | None = None,
        on_response: OnResponse | None = None,
    ) -> list[Generation]:
        """Return responses as `Engine.generate`. Raises E0807 for an impossible request, E0824 and ProcessDied."""
        self._limits.check(requests, sampling)
        self._made, self._plan = {}, plan
        places = _places(requests, len(self.fleet.hosts), sampling.max_tokens)
        works = [
            PendingRequest(
                i, request, server, Draft(request, request.limit_sampling(sampling), probes=i == 0)
            )
            for i, (request, server) in enumerate(zip(requests, places, strict=True))
        ]
        self._finish(works, plan, on_response)
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
        """Return answers as `Engine.force`; those that the plan forced are not asked for again. Raises as `generate`."""
        self._limits.check_forced(requests, responses, cuts, forcing, sampling)
        text = tuple(forcing)
        reuse = self._plan is not None and (self._plan.forcing, self._plan.sampling) == (text, sampling)
        places = _places(requests, len(self.fleet.hosts))
        works: dict[Key, PendingRequest] = {}
        for index, (request, response, row) in enumerate(zip(requests, responses, cuts, strict=True)):
            key = (request, response.tokens)
            if key not in works:
                before = self._made.get(key)
                server = before.server if before is not None else places[index]
                works[key] = PendingRequest(index, request, server, response=response)
                if before is not None and reuse:
                    works[key].answers = dict(before.answers)
            works[key].cuts += tuple(row)
        self._finish(list(works.values()), ForcingPlan(lambda _, __: (), text, sampling))
        return [
            [ForcedTokens(cut, works[(request, response.tokens)].answers.get(cut, ())) for cut in row]
            for request, response, row in zip(requests, responses, cuts, strict=True)
        ]

    def close(self) -> None:
        """End the servers that this engine started, whatever they are doing."""
        # Each of these, whatever becomes of the others.
        with ExitStack() as ends:
            if self._passing is not None:
                ends.callback(shutil.rmtree, self._passing, ignore_errors=True)
            ends.callback(self._loop.close)
            ends.callback(self.fleet.close)

    def _finish(
        self, works: Sequence[PendingRequest], plan: ForcingPlan | None, on_response: OnResponse | None = None
    ) -> None:
        """Send requests until every response has its answers."""
        if all(work.is_done for work in works):
            return
        asking = RequestLoop(works, self.fleet.servers, self.settings.at_once, plan, self.read, on_response)
        self._loop.run(asking.run(), check=self.fleet.require_alive)


def _places(requests: Sequence[Request], servers: int, tokens: int = 1) -> list[int]:
    """Return a server for each request: equal prompts go to the same server, and servers get about equal work.

    A response of `tokens` tokens reads its prompt and half of itself with each token. Lengths differ most among
    responses that go on from an earlier call, so the most expensive prompts are assigned first.
    """
    sizes: dict[tuple[int, ...], int] = {}
    for request in requests:
        sizes[request.prompt] = sizes.get(request.prompt, 0) + 1
    costs = {prompt: size * (len(prompt) + tokens / 2) for prompt, size in sizes.items()}
    load = [0.0] * servers
    chosen: dict[tuple[int, ...], int] = {}
    for prompt in sorted(costs, key=lambda prompt: -costs[prompt]):
        server = min(range(servers), key=load.__getitem__)
        chosen[prompt] = server
        load[server] += costs[prompt]
    return [chosen[request.prompt] for request in requests]
