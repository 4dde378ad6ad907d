"""Sending: drafts and cuts in, answers taken as they come; what a dead server left unanswered stays open.

Each response has a task of its own. As it ends, its forced answers are asked for at once, in one message to the same
server, where its keys and values still are.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import Any

import httpx

from reodsl.diagnostics import Problem, problem
from runners.engine.protocol import Ahead, Request, Response, Sampling
from runners.engine.sglang.messages import Draft, forced_message, forced_tokens
from runners.engine.sglang.server import Address
from runners.engine.streams import forced_seed
from runners.engine.watch import look

Answers = dict[int, tuple[int, ...]]
"""Forced answers by cut."""

_LOOK = 1.0
"""Seconds between two looks at whether there is still a reason to wait."""


class Lost(Exception):
    """A server does not answer any more."""


@dataclass(slots=True)
class Work:
    """One response to make or to force answers out of, and what is there of it. `server` is the one that it is sent to."""

    index: int
    request: Request
    server: int
    draft: Draft | None = None
    response: Response | None = None
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
        """Whether nothing is left to ask."""
        return self.response is not None and not self.open


@dataclass(slots=True)
class Read:
    """Tokens that servers were sent for forced answers, and how many of them they had read before."""

    sent: int = 0
    cached: int = 0


class Loop:
    """An event loop in a thread of its own: a notebook's or a caller's may be running already."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Waits for a coroutine; an interruption, or what `look` raises, cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            while not wait([future], _LOOK).done:
                look()
            future.result()
        except ExceptionGroup as several:
            raise _first(several) from None
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Ends the thread, and gives the loop's files back."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        if not self._thread.is_alive():
            self._loop.close()


def _first(several: BaseException) -> BaseException:
    """One of the exceptions in a group of groups."""
    while isinstance(several, BaseExceptionGroup):
        several = several.exceptions[0]
    return several


async def work_through(
    works: Sequence[Work], servers: Sequence[Address], at_once: int, ahead: Ahead | None, read: Read
) -> None:
    """Asks for all that is open, at most `at_once` responses of a server at a time.

    Returns when each is done or its server is lost. Raises E0802, E0824 or E0825, after the others were cancelled.
    """
    async with asyncio.TaskGroup() as group:
        for number, address in enumerate(servers):
            own = [work for work in works if work.server == number and not work.done]
            if own:
                group.create_task(_serve(own, address, at_once, ahead, read))


async def _serve(
    works: Sequence[Work], address: Address, at_once: int, ahead: Ahead | None, read: Read
) -> None:
    waiting = iter(works)
    limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    async with httpx.AsyncClient(
        base_url=address.url, headers=address.headers, trust_env=False, timeout=None, limits=limits
    ) as client:

        async def lane() -> None:
            for work in waiting:
                await _answer(work, client, ahead, read)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(at_once, len(works))):
                    group.create_task(lane())
        except* Lost:
            # The other requests to this server were cancelled with the first that failed; they stay open.
            pass


async def _answer(work: Work, client: httpx.AsyncClient, ahead: Ahead | None, read: Read) -> None:
    while work.response is None:
        assert work.draft is not None
        work.response = work.draft.take(await _ask(client, work.draft.message()))
    if ahead is None:
        return
    if not work.cuts:
        work.cuts = tuple(ahead.cuts(work.index, work.response))
    await _force(work, client, ahead.forcing, ahead.sampling, read)


async def _force(
    work: Work, client: httpx.AsyncClient, forcing: Sequence[int], sampling: Sampling, read: Read
) -> None:
    cuts = work.open
    if not cuts:
        return
    assert work.response is not None
    prompt, tokens = work.request.prompt, work.response.tokens
    prefixes = [(*prompt, *tokens[:cut], *forcing) for cut in cuts]
    seeds = [forced_seed(work.request.seed, cut) for cut in cuts]
    answers = await _ask(client, forced_message(prefixes, seeds, sampling))
    for cut, answer in zip(cuts, answers, strict=True):
        work.answers[cut] = forced_tokens(answer, sampling)
        read.sent += int(answer["meta_info"]["prompt_tokens"])
        read.cached += int(answer["meta_info"]["cached_tokens"])


async def _ask(client: httpx.AsyncClient, message: dict[str, Any]) -> Any:
    try:
        reply = await client.post("/generate", json=message)
        if reply.status_code == 200:
            return reply.json()
    except (httpx.TransportError, ValueError) as fault:
        raise Lost(str(fault)) from fault
    if reply.status_code >= 500:
        raise Lost(f"status {reply.status_code}")
    raise refused(reply)


def refused(reply: httpx.Response) -> Problem:
    """E0825: what the server says of a request that it does not take."""
    return problem(
        "E0825",
        f"the SGLang server refused a request (status {reply.status_code}): {reply.text[:300]}",
        where=str(reply.request.url),
        help="a key that it does not know (REODSL_SGLANG_KEY), or a sequence longer than its context",
    )
