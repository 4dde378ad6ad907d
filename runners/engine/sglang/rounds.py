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
from runners.engine.protocol import Ahead, Ended, Generation, Request, TokenSampling
from runners.engine.sglang.control import ask, connect
from runners.engine.sglang.messages import Draft, forced_message, forced_tokens
from runners.engine.sglang.server import FORCED, Address

Answers = dict[int, tuple[int, ...]]
"""Forced answers by cut."""


@dataclass(slots=True)
class Work:
    """One response to make or to force answers out of, so far. `server` is the one that it is sent to."""

    index: int
    request: Request
    server: int
    draft: Draft | None = None
    response: Generation | None = None
    cuts: tuple[int, ...] = ()
    answers: Answers = field(default_factory=dict)

    @property
    def open(self) -> tuple[int, ...]:
        """Cuts without an answer, each once; those past the response's end need none."""
        assert self.response is not None
        length = len(self.response.tokens)
        return tuple(cut for cut in dict.fromkeys(self.cuts) if cut < length and cut not in self.answers)

    @property
    def done(self) -> bool:
        """Return whether nothing is left to ask."""
        return self.response is not None and not self.open


@dataclass(slots=True)
class Read:
    """Tokens that servers were sent for forced answers, and how many of them they had read before."""

    sent: int = 0
    cached: int = 0


SPARE = 1.8
"""Room that a response is let in for, over the length that is expected: what still runs is longer than what has ended, and
forced answers take some. With it simulated engines read nothing again on the lengths of the paper's evaluations; 1.6 was too
little.
"""
ASSUMED = 1 / 3
"""The share of the longest response that one is expected to have before its like have ended."""


class Round:
    """Works that are asked for until all are done, of their own server or of a free one if that is full."""

    def __init__(
        self,
        works: Sequence[Work],
        servers: Sequence[Address],
        at_once: int,
        ahead: Ahead | None,
        read: Read,
        ended: Ended | None = None,
    ) -> None:
        """Prepare the round.

        At most `at_once` responses are asked of a server at a time, and with `ahead` no more than its caches are
        expected to hold: what waits at a server takes the place of prefixes that answers are about to be forced out of.
        `ended` hears of each work that is done, in the loop's thread; what it raises ends the round.
        """
        self._servers, self._at_once, self._ahead, self._read = list(servers), at_once, ahead, read
        self._hears = ended
        self._open = sum(not work.done for work in works)
        self._waiting = [
            deque(work for work in works if work.server == number and not work.done)
            for number in range(len(servers))
        ]
        self._asked = [0] * len(servers)
        self._prompts = [0] * len(servers)
        self._running = 0
        self._ended = self._tokens = 0
        self._longest = max((work.draft.sampling.max_tokens for work in works if work.draft), default=0)
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Return when everything is done. Raises E0802, E0824 or what `ask` does, after the others were cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(len(self._servers)):
                group.create_task(self._serve(number))

    async def _serve(self, number: int) -> None:
        async with connect(self._servers[number], self._at_once) as client, asyncio.TaskGroup() as group:
            while self._open:
                while not self._full(number) and (work := self._next(number)) is not None:
                    work.server = number
                    self._asked[number] += 1
                    self._prompts[number] += len(work.request.prompt)
                    self._running += 1
                    group.create_task(self._ask(number, work, client))
                await self._news.wait()

    async def _ask(self, number: int, work: Work, client: httpx.AsyncClient) -> None:
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

    def _next(self, number: int) -> Work | None:
        """Return what a server is asked next: of its own first, then of those that wait longest for another one."""
        if self._waiting[number]:
            return self._waiting[number].popleft()
        others = [waiting for other, waiting in enumerate(self._waiting) if waiting and self._full(other)]
        return max(others, key=len).pop() if others else None

    def _full(self, number: int) -> bool:
        """Return whether a server gets nothing more before something that it was asked is done."""
        asked, room = self._asked[number], self._servers[number].room
        if asked >= self._at_once:
            return True
        if not (asked and room and self._ahead is not None and self._longest):
            return False
        # The first to end are short: each that runs counts as one of the length that was assumed.
        assumed = self._running * self._longest * ASSUMED
        expected = (self._tokens + assumed) / (self._ended + self._running)
        return (asked + 1) * (self._prompts[number] / asked + SPARE * expected) > room

    def _tell(self) -> None:
        """Wake all that wait for something to have changed."""
        self._news.set()
        self._news = asyncio.Event()


async def _answer(
    work: Work, client: httpx.AsyncClient, address: Address, ahead: Ahead | None, read: Read
) -> None:
    while work.response is None:
        assert work.draft is not None
        work.response = work.draft.take(await ask(client, address, work.draft.message()))
    if ahead is None:
        return
    if not work.cuts:
        work.cuts = tuple(ahead.cuts(work.index, work.response))
    await _force(work, client, address, ahead.forcing, ahead.sampling, read)


async def _force(
    work: Work,
    client: httpx.AsyncClient,
    address: Address,
    forcing: Sequence[int],
    sampling: TokenSampling,
    read: Read,
) -> None:
    cuts = work.open
    if not cuts:
        return
    assert work.response is not None
    prompt = work.request.prompt
    # What comes after the last cut is of no use.
    tokens = (*prompt, *work.response.tokens[: max(cuts)])
    places = [len(prompt) + cut for cut in cuts]
    seeds = [forced_seed(work.request.seed, work.request.drawn + cut) for cut in cuts]
    message = forced_message(tokens, places, forcing, seeds, sampling)
    answers = await ask(client, address, message, FORCED)
    for cut, answer in zip(cuts, answers, strict=True):
        work.answers[cut] = forced_tokens(answer, sampling)
        read.sent += int(answer["meta_info"]["prompt_tokens"])
        read.cached += int(answer["meta_info"]["cached_tokens"])
