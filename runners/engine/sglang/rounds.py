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
    """A response to generate or to force answers out of, so far."""

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
    """Tokens after which answers are forced."""
    answers: Answers = field(default_factory=dict)
    """The forced answers so far, by cut."""

    @property
    def open_cuts(self) -> tuple[int, ...]:
        """Cuts without an answer, each once; cuts past the response's end need none."""
        assert self.response is not None
        length = len(self.response.tokens)
        return tuple(cut for cut in dict.fromkeys(self.cuts) if cut < length and cut not in self.answers)

    @property
    def is_done(self) -> bool:
        """Return whether nothing is left to ask."""
        return self.response is not None and not self.open_cuts


@dataclass(slots=True)
class PrefixCacheStats:
    """Tokens `sent` to servers for forced answers, and how many of them were `cached` by the server."""

    sent: int = 0
    cached: int = 0


LENGTH_MARGIN = 1.8
"""Room for a response over its expected length: what still runs is longer than what has ended, and forced answers take
some. With it simulated engines read nothing again on the lengths of the paper's evaluations; 1.6 was too little.
"""
EXPECTED_SHARE = 1 / 3
"""The expected length of a response, as a share of the longest, before others have ended."""


class RequestLoop:
    """A loop that sends requests until all are done, to their own server or to a free server if that is full."""

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

        At most `at_once` responses are asked of a server at a time, and with a `plan` no more than its caches are
        expected to hold: what waits at a server takes the room of prefixes that answers are about to be forced out of.
        `on_response` hears of each request that is done, in the loop's thread; what it raises ends the loop.
        """
        self._servers, self._at_once, self._ahead, self._read = list(servers), at_once, plan, stats
        self._hears = on_response
        self._open = sum(not work.is_done for work in works)
        self._waiting = [
            deque(work for work in works if work.server == number and not work.is_done)
            for number in range(len(servers))
        ]
        self._asked = [0] * len(servers)
        self._prompts = [0] * len(servers)
        self._running = 0
        self._ended = self._tokens = 0
        self._longest = max((work.draft.sampling.max_tokens for work in works if work.draft), default=0)
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Wait until every request is done. Raises E0802, E0824 or as `ask`, after the other requests were cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(len(self._servers)):
                group.create_task(self._serve(number))

    async def _serve(self, number: int) -> None:
        """Send requests to a server while it has room, until all are done."""
        async with connect(self._servers[number], self._at_once) as client, asyncio.TaskGroup() as group:
            while self._open:
                while not self._full(number) and (work := self._next(number)) is not None:
                    work.server = number
                    self._asked[number] += 1
                    self._prompts[number] += len(work.request.prompt)
                    self._running += 1
                    group.create_task(self._ask(number, work, client))
                await self._news.wait()

    async def _ask(self, number: int, work: PendingRequest, client: httpx.AsyncClient) -> None:
        """Get a request's response and answers, and report them."""
        await _answer(work, client, self._servers[number], self._ahead, self._read)
        assert work.response is not None
        if self._hears is not None:
            self._hears(work.index, work.response, work.answers)
        self._asked[number] -= 1
        self._prompts[number] -= len(work.request.prompt)
        self._running -= 1
        self._ended += 1
        self._tokens += len(work.response.tokens)
        self._open -= 1
        self._tell()

    def _next(self, number: int) -> PendingRequest | None:
        """Return a server's next request: of its own queue, else of the longest queue at a full server."""
        if self._waiting[number]:
            return self._waiting[number].popleft()
        queues = [waiting for other, waiting in enumerate(self._waiting) if waiting and self._full(other)]
        return max(queues, key=len).pop() if queues else None

    def _full(self, number: int) -> bool:
        """Return whether a server gets nothing more before a running request is done."""
        running, room = self._asked[number], self._servers[number].room
        if running >= self._at_once:
            return True
        if not (running and room and self._ahead is not None and self._longest):
            return False
        # The first to end are short: each that runs counts as one of the length that was assumed.
        assumed = self._running * self._longest * EXPECTED_SHARE
        expected = (self._tokens + assumed) / (self._ended + self._running)
        return (running + 1) * (self._prompts[number] / running + LENGTH_MARGIN * expected) > room

    def _tell(self) -> None:
        """Wake every task that waits for a change."""
        self._news.set()
        self._news = asyncio.Event()


async def _answer(
    work: PendingRequest,
    client: httpx.AsyncClient,
    address: Address,
    plan: ForcingPlan | None,
    stats: PrefixCacheStats,
) -> None:
    """Get a request's response, and the answers that the plan forces out of it."""
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
    """Get the forced answers of a request's open cuts, in a single message."""
    cuts = work.open_cuts
    if not cuts:
        return
    assert work.response is not None
    prompt = work.request.prompt
    # What comes after the last cut is of no use.
    tokens = (*prompt, *work.response.tokens[: max(cuts)])
    places = [len(prompt) + cut for cut in cuts]
    seeds = [forced_seed(work.request.seed, work.request.num_sampled + cut) for cut in cuts]
    message = forced_message(tokens, places, forcing, seeds, sampling)
    answers = await ask(client, address, message, FORCED)
    for cut, answer in zip(cuts, answers, strict=True):
        work.answers[cut] = forced_tokens(answer, sampling)
        stats.sent += int(answer["meta_info"]["prompt_tokens"])
        stats.cached += int(answer["meta_info"]["cached_tokens"])
