"""The SGLang engine: keeps servers fed with requests."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import cast

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
        """Start every server.

        Args:
            hosts: The handles of the servers, not yet started.
            settings: The settings that the servers share.
            limits: The context and vocabulary of the model.
            scratch_dir: The folder for the files by which processes find each other to exchange weights.
            temporary: True if the folder is removed when the engine is closed.

        Raises:
            Problem: E0801, E0821 or E0937 if a server does not start.
        """
        self.fleet = Fleet(hosts, settings, scratch_dir)
        self.settings, self._limits = settings, limits
        self._temporary_dir = scratch_dir if temporary else None
        self._loop = Loop()
        self._made: dict[Key, PendingRequest] = {}
        self._plan: ForcingPlan | None = None
        self.read = PrefixCacheStats()

    def load_weights(self, state: Weights, version: int) -> None:
        """Load new weights into all servers.

        Args:
            state: The new weights: tensors by their `transformers` names, a folder, or shards of several processes.
            version: The number of the new weights, which responses have in `weight_versions`.

        Raises:
            Problem: E0803 for weights of another model, E0824 if a server refuses them, ProcessDied.
        """
        self._made, self._plan = {}, None
        self.fleet.load(state, version)

    def release(self) -> None:
        """Let servers that share devices with a trainer free the memory of weights and caches."""
        self._made, self._plan = {}, None
        self.fleet.release()

    def generate(
        self,
        requests: Sequence[Request],
        sampling: TokenSampling,
        plan: ForcingPlan | None = None,
        on_response: OnResponse | None = None,
    ) -> list[Generation]:
        """Return a response for each request, sampled by the servers.

        Args:
            requests: The prompts with their seeds.
            sampling: How tokens are sampled.
            plan: The answers to force as soon as a response has ended, while its server has the response in its cache.
            on_response: Called in the loop's thread when a response and its planned answers are complete.

        Raises:
            Problem: E0807 for an impossible request, E0802 for logits that are not finite, E0824 if a server refuses a
                request, ProcessDied.
        """
        self._limits.check(requests, sampling)
        self._made, self._plan = {}, plan
        assigned = _assign_servers(requests, len(self.fleet.hosts), sampling.max_tokens)
        works = [
            PendingRequest(
                i, request, server, Draft(request, request.limit_sampling(sampling), probes=i == 0)
            )
            for i, (request, server) in enumerate(zip(requests, assigned, strict=True))
        ]
        self._finish(works, plan, on_response)
        responses = [cast(Generation, work.response) for work in works]
        keys = zip(requests, (response.tokens for response in responses), strict=True)
        self._made = dict(zip(keys, works, strict=True))
        return responses

    def force(
        self,
        requests: Sequence[Request],
        responses: Sequence[Generation],
        cuts: Sequence[Sequence[int]],
        forcing: Sequence[int],
        sampling: TokenSampling,
    ) -> list[list[ForcedTokens]]:
        """Return the answers after cuts of responses.

        Answers that the last `generate` already forced for its plan are reused, if the plan had this forcing text and
        this sampling. A response goes to the server that generated it, because its keys and values may still be cached
        there.

        Args:
            requests: The requests of the responses.
            responses: The responses to cut.
            cuts: For each response, after how many of its tokens an answer is forced.
            forcing: The tokens of the forcing text.
            sampling: How the tokens of answers are sampled.

        Returns:
            For each response, the answer of each cut, in the order of the cuts.

        Raises:
            Problem: E0807 for impossible cuts, E0824 if a server refuses a request, ProcessDied if a server died.
        """
        self._limits.check_forced(requests, responses, cuts, forcing, sampling)
        text = tuple(forcing)
        can_reuse = self._plan is not None and (self._plan.forcing, self._plan.sampling) == (text, sampling)
        assigned = _assign_servers(requests, len(self.fleet.hosts))
        works: dict[Key, PendingRequest] = {}
        for index, (request, response, row) in enumerate(zip(requests, responses, cuts, strict=True)):
            key = (request, response.tokens)
            if key not in works:
                generated = self._made.get(key)
                server = generated.server if generated is not None else assigned[index]
                works[key] = PendingRequest(index, request, server, response=response)
                if generated is not None and can_reuse:
                    works[key].answers = dict(generated.answers)
            works[key].cuts += tuple(row)
        self._finish(list(works.values()), ForcingPlan(lambda _, __: (), text, sampling))
        return [
            [ForcedTokens(cut, works[(request, response.tokens)].answers.get(cut, ())) for cut in row]
            for request, response, row in zip(requests, responses, cuts, strict=True)
        ]

    def close(self) -> None:
        """End the servers or give cached servers back, and remove a temporary folder."""
        # The stack calls each function even if another raises.
        with ExitStack() as stack:
            if self._temporary_dir is not None:
                stack.callback(shutil.rmtree, self._temporary_dir, ignore_errors=True)
            stack.callback(self._loop.close)
            stack.callback(self.fleet.close)

    def _finish(
        self, works: Sequence[PendingRequest], plan: ForcingPlan | None, on_response: OnResponse | None = None
    ) -> None:
        """Send requests to the servers until every request has its response and answers.

        Args:
            works: The requests, which are changed in place.
            plan: The answers to force; None for responses without answers.
            on_response: Called when a response and its planned answers are complete; None for no call.
        """
        if all(work.is_done for work in works):
            return
        loop = RequestLoop(works, self.fleet.servers, self.settings.at_once, plan, self.read, on_response)
        self._loop.run(loop.run(), check=self.fleet.require_alive)


def _assign_servers(requests: Sequence[Request], servers: int, tokens: int = 1) -> list[int]:
    """Return the index of a server for each request, with about equal work for all servers.

    Equal prompts go to the same server. The work of a response is its attention: each of its tokens attends to the
    prompt and, on average, to half of the response. The prompts with the most work are assigned first, each to the
    server with the least work so far.

    Args:
        requests: The requests.
        servers: The number of servers.
        tokens: The assumed number of tokens of a response.
    """
    sizes = Counter(request.prompt for request in requests)
    costs = {prompt: size * (len(prompt) + tokens / 2) for prompt, size in sizes.items()}
    load = [0.0] * servers
    chosen: dict[tuple[int, ...], int] = {}
    for prompt in sorted(costs, key=lambda prompt: -costs[prompt]):
        server = min(range(servers), key=load.__getitem__)
        chosen[prompt] = server
        load[server] += costs[prompt]
    return [chosen[request.prompt] for request in requests]
