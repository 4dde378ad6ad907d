"""Send drafts and cuts to servers.

Each response has a task of its own. As it ends, its forced answers are asked for at once, in one message to the same
server, where its keys and values still are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from runners.data.draws import forced_seed
from runners.engine.protocol import ForcingPlan, Generation, OnResponse, Request, TokenSampling
from runners.engine.sglang.control import ask, connect
from runners.engine.sglang.messages import Draft, forced_message, forced_tokens
from runners.engine.sglang.server import FORCED, Address

Answers = dict[int, tuple[int, ...]]
"""Forced answers by cut."""


@dataclass(slots=True)
class PendingRequest:
    """A request while it is worked on: the response so far, and the answers that are forced at cuts of the response."""

    index: int
    """Its position among the requests."""
    request: Request
    """The request."""
    server: int
    """The index of the server that it is sent to."""
    draft: Draft | None = None
    """The response while it is generated; None if only answers are forced."""
    response: Generation | None = None
    """The response, if it has ended."""
    cuts: tuple[int, ...] = ()
    """The cuts: for each forced answer, the number of the response's tokens before it."""
    answers: Answers = field(default_factory=dict)
    """The forced answers so far, by cut."""

    @property
    def open_cuts(self) -> tuple[int, ...]:
        """Return the different cuts inside the response that have no forced answer yet."""
        assert self.response is not None
        length = len(self.response.tokens)
        return tuple(cut for cut in dict.fromkeys(self.cuts) if cut < length and cut not in self.answers)

    @property
    def is_done(self) -> bool:
        """Return whether the request has its response and all forced answers."""
        return self.response is not None and not self.open_cuts


@dataclass(slots=True)
class PrefixCacheStats:
    """Counts of the tokens `sent` to servers for forced answers, and of those that servers had `cached`."""

    sent: int = 0
    cached: int = 0


LENGTH_MARGIN = 1.8
"""Cache tokens that are reserved for a response, relative to its expected length.

The factor is above 1, because responses that still run are longer than those that have ended, and forced answers need
tokens too. On the lengths of the paper's evaluations, simulated engines recomputed no prefix with 1.8, and some with 1.6.
"""
EXPECTED_SHARE = 1 / 3
"""The assumed length of a response that has not ended, as a share of the longest possible length."""


class RequestLoop:
    """A loop that sends requests to servers until all are done.

    Each request waits for its own server, `PendingRequest.server`. A server without waiting requests takes requests
    that wait for a full server.
    """

    def __init__(
        self,
        works: Sequence[PendingRequest],
        servers: Sequence[Address],
        at_once: int,
        plan: ForcingPlan | None,
        stats: PrefixCacheStats,
        on_response: OnResponse | None = None,
    ) -> None:
        """Prepare the loop.

        Args:
            works: The requests, which the loop changes in place.
            servers: The servers, to which `PendingRequest.server` is an index.
            at_once: The most requests of a server at a time. With a `plan` there may be fewer: only as many as the
                server's caches are expected to hold (see `_is_full`).
            plan: The answers to force; None for responses without answers.
            stats: Counts of cached tokens, which the loop adds to.
            on_response: Called in the loop's thread for each request that is done. An exception that it raises ends the
                loop.
        """
        self._servers, self._at_once, self._plan, self._stats = list(servers), at_once, plan, stats
        self._on_response = on_response
        self._open = sum(not work.is_done for work in works)
        self._waiting = [
            deque(work for work in works if work.server == number and not work.is_done)
            for number in range(len(servers))
        ]
        self._running_at = [0] * len(servers)
        self._prompt_tokens_at = [0] * len(servers)
        self._running = 0
        self._ended = self._tokens = 0
        self._longest = max((work.draft.sampling.max_tokens for work in works if work.draft), default=0)
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Send requests to all servers until every request is done.

        The first exception cancels all other requests.

        Raises:
            Problem: E0802 for a log-probability that is not finite, E0824 for a bad answer; ProcessDied if a server died.
        """
        async with asyncio.TaskGroup() as group:
            for number in range(len(self._servers)):
                group.create_task(self._serve(number))

    async def _serve(self, number: int) -> None:
        """Send requests to server `number` whenever it is not full, until the requests of all servers are done.

        The server first sends its own waiting requests, then those of full servers (see `_next_request`).
        """
        async with connect(self._servers[number], self._at_once) as client, asyncio.TaskGroup() as group:
            while self._open:
                while not self._is_full(number) and (work := self._next_request(number)) is not None:
                    work.server = number
                    self._running_at[number] += 1
                    self._prompt_tokens_at[number] += len(work.request.prompt)
                    self._running += 1
                    group.create_task(self._ask(number, work, client))
                await self._changed.wait()

    async def _ask(self, number: int, work: PendingRequest, client: httpx.AsyncClient) -> None:
        """Get the response and answers of a request, report them, and update the counts of running requests.

        Args:
            number: The index of the server.
            work: The request.
            client: The connection to the server.
        """
        await _answer(work, client, self._servers[number], self._plan, self._stats)
        assert work.response is not None
        if self._on_response is not None:
            self._on_response(work.index, work.response, work.answers)
        self._running_at[number] -= 1
        self._prompt_tokens_at[number] -= len(work.request.prompt)
        self._running -= 1
        self._ended += 1
        self._tokens += len(work.response.tokens)
        self._open -= 1
        self._wake_servers()

    def _next_request(self, number: int) -> PendingRequest | None:
        """Remove the next request for server `number` from its queue, and return it.

        If the server's own queue is empty, the request is the last in the longest queue of a full server. The result is
        None if no full server has a queue.
        """
        if self._waiting[number]:
            return self._waiting[number].popleft()
        queues = [waiting for other, waiting in enumerate(self._waiting) if waiting and self._is_full(other)]
        return max(queues, key=len).pop() if queues else None

    def _is_full(self, number: int) -> bool:
        """Return whether server `number` has to finish a request before it gets another.

        A server is full at `at_once` requests. If answers are forced (`plan`), it is also full if its running requests
        and one more are expected to need more tokens than its caches hold. Otherwise a new request would evict the
        prefixes of answers that are forced next.

        The expected length is the mean over all responses of all servers: their true length if they have ended, an
        assumed length if they run. Ended responses alone would give too short a mean, because short responses end
        first.
        """
        running, cache_tokens = self._running_at[number], self._servers[number].cache_tokens
        if running >= self._at_once:
            return True
        if not (running and cache_tokens and self._plan is not None and self._longest):
            return False
        assumed = self._running * self._longest * EXPECTED_SHARE
        expected = (self._tokens + assumed) / (self._ended + self._running)
        mean_prompt = self._prompt_tokens_at[number] / running
        return (running + 1) * (mean_prompt + LENGTH_MARGIN * expected) > cache_tokens

    def _wake_servers(self) -> None:
        """Wake the tasks of `_serve`, which wait until a request is done."""
        self._changed.set()
        self._changed = asyncio.Event()


async def _answer(
    work: PendingRequest,
    client: httpx.AsyncClient,
    address: Address,
    plan: ForcingPlan | None,
    stats: PrefixCacheStats,
) -> None:
    """Get a request's response from a server, and the forced answers of the plan, and store them in `work`.

    A response that `work` already has is not requested again. The cuts are those of `work`, or if it has none, the
    plan's.

    Args:
        work: The request.
        client: The connection to the server.
        address: The server.
        plan: The answers to force; None to force no answers.
        stats: Counts of cached tokens, which are increased.
    """
    while work.response is None:
        assert work.draft is not None
        work.response = work.draft.take(await ask(client, address, work.draft.message()))
    if plan is None:
        return
    if not work.cuts:
        work.cuts = tuple(plan.cuts(work.index, work.response))
    await _force(work, client, address, plan.forcing, plan.sampling, stats)


async def _force(
    work: PendingRequest,
    client: httpx.AsyncClient,
    address: Address,
    forcing: Sequence[int],
    sampling: TokenSampling,
    stats: PrefixCacheStats,
) -> None:
    """Get the forced answers of a request's open cuts, if there are any, from a server with a single message.

    Args:
        work: The request, whose `answers` are filled.
        client: The connection to the server.
        address: The server.
        forcing: The tokens of the forcing text.
        sampling: How the answers' tokens are sampled.
        stats: Counts of cached tokens, which are increased.
    """
    cuts = work.open_cuts
    if not cuts:
        return
    assert work.response is not None
    prompt = work.request.prompt
    tokens = (*prompt, *work.response.tokens[: max(cuts)])
    positions = [len(prompt) + cut for cut in cuts]
    seeds = [forced_seed(work.request.seed, work.request.num_sampled + cut) for cut in cuts]
    message = forced_message(tokens, positions, forcing, seeds, sampling)
    answers = await ask(client, address, message, FORCED)
    for cut, answer in zip(cuts, answers, strict=True):
        work.answers[cut] = forced_tokens(answer, sampling)
        stats.sent += int(answer["meta_info"]["prompt_tokens"])
        stats.cached += int(answer["meta_info"]["cached_tokens"])
