"""How requests are spread over servers, with answers made here: what is full leaves its requests to the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from reodsl.diagnostics import Problem, problem
from runners.engine.protocol import ForcingPlan, OnResponse, Request, TokenSampling
from runners.engine.remote import Loop
from runners.engine.sglang import control, rounds
from runners.engine.sglang.control import explain_loss
from runners.engine.sglang.messages import Draft
from runners.engine.sglang.rounds import PendingRequest, PrefixCacheStats, RequestLoop
from runners.engine.sglang.server import Address
from runners.machine.process import ProcessDied

ONE = TokenSampling(1)
Answer = Callable[[int, int], Any]


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


def works(places: list[int]) -> list[PendingRequest]:
    """A work for each place, told apart by its prompt."""
    found = []
    for index, place in enumerate(places):
        request = Request((index,), index)
        found.append(PendingRequest(index, request, place, Draft(request, ONE)))
    return found


def ask(
    loop: Loop,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[PendingRequest],
    answer: Answer,
    at_once: int = 100,
    ahead: ForcingPlan | None = None,
    servers: int = 2,
    ended: OnResponse | None = None,
) -> list[tuple[int, int]]:
    """Asks for works; what each server was asked.

    `answer` is awaited with the number of a server and of a work before the answer goes out.
    """
    told: list[tuple[int, int]] = []

    async def reply(client: httpx.AsyncClient, _: Address, message: dict[str, Any], path: str = "") -> Any:
        number = client.base_url.port
        assert number is not None
        work = message["tokens" if path else "input_ids"][0]
        told.append((number, work))
        await answer(number, work)
        meta = {"output_token_logprobs": [[-1.0, 5, None]], "weight_version": "0"}
        one = {"output_ids": [5], "meta_info": meta | {"prompt_tokens": 1, "cached_tokens": 0}}
        return [one] * len(message["cuts"]) if path else one

    monkeypatch.setattr(rounds, "ask", reply)

    addresses = [Address(f"http://127.0.0.1:{number}", "") for number in range(1, servers + 1)]
    asking = RequestLoop(asked, addresses, at_once, ahead, PrefixCacheStats(), on_response=ended)
    loop.run(asking.run())
    assert all(work.is_done for work in asked)
    return told


def test_each_request_is_asked_once_of_its_own_server(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(*_: int) -> None:
        """An answer without delay."""

    told = ask(loop, monkeypatch, works([0, 0, 1, 0, 1]), at_once)
    assert sorted(told) == [(1, 0), (1, 1), (1, 3), (2, 2), (2, 4)]


def test_a_server_that_is_through_takes_what_waits_for_a_full_one(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = threading.Event()

    async def answer(number: int, work: int) -> None:
        if number == 1:
            while not rest.is_set():
                await asyncio.sleep(0.001)
        elif work == 2:
            rest.set()

    asked = works([0, 0, 0, 0, 1])
    told = ask(loop, monkeypatch, asked, answer, at_once=1)
    # The last that waits goes first to the other server, which ends the first one's long answer with the third of them.
    assert told[:4] == [(1, 0), (2, 4), (2, 3), (2, 2)]
    assert len(told) == 5
    assert [work.server for work in asked if work.index in (2, 3, 4)] == [1, 1, 1]


def test_a_server_that_ends_ends_all(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(number: int, _: int) -> None:
        if number == 1:
            raise explain_loss(Address("http://127.0.0.1:1", ""), "gone")
        await asyncio.sleep(600)

    with pytest.raises(ProcessDied, match="ended: gone"):
        ask(loop, monkeypatch, works([0, 0, 0, 1]), answer, at_once=2)


def test_who_asked_hears_of_each_response_with_its_answers_while_others_run(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[int, dict[int, tuple[int, ...]]]] = []

    async def answer(number: int, work: int) -> None:
        # The last one goes on until the two others were heard of.
        while work == 2 and len(heard) < 2:
            await asyncio.sleep(0.001)

    def ended(index: int, _: Any, answers: Any) -> None:
        heard.append((index, dict(answers)))

    ahead = ForcingPlan(lambda _, __: (0,), (7,), ONE)
    ask(loop, monkeypatch, works([0, 1, 1]), answer, ahead=ahead, ended=ended)
    assert sorted(heard[:2]) == [(0, {0: (5,)}), (1, {0: (5,)})]
    assert heard[2:] == [(2, {0: (5,)})]


def test_what_a_hearer_raises_ends_the_round(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(_: int, work: int) -> None:
        await asyncio.sleep(600 * work)

    def ended(*_: Any) -> None:
        raise problem("E0741", "no worker", help="start one")

    with pytest.raises(Problem) as caught:
        ask(loop, monkeypatch, works([0, 1]), answer, ended=ended)
    assert caught.value.diagnostics[0].code == "E0741"


def test_what_a_server_does_not_take_is_told_in_its_own_words(refusal: Callable[..., None]) -> None:
    def no(_: httpx.Request) -> httpx.Response:
        return httpx.Response(400, text="The input (600 tokens) is longer than the context (512 tokens).")

    async def asked() -> None:
        address, answers = "http://127.0.0.1:30000", httpx.MockTransport(no)
        async with httpx.AsyncClient(base_url=address, transport=answers) as client:
            await control.ask(client, Address(address, ""), {"input_ids": [1]})

    with pytest.raises(Problem) as caught:
        asyncio.run(asked())
    refusal("engine/E0824-refused.txt", caught.value, task="base.eval")


def test_a_refusal_of_one_server_ends_all(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(number: int, _: int) -> None:
        if number == 1:
            raise problem("E0824", "refused", help="ask something else")
        await asyncio.sleep(600)

    with pytest.raises(Problem) as caught:
        ask(loop, monkeypatch, works([0, 1]), answer)
    assert caught.value.diagnostics[0].code == "E0824"


def test_a_server_gets_no_more_than_its_caches_are_expected_to_hold(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Responses of at most 30 tokens count as 18 each, and each prompt as one: 40 tokens of room are for two."""
    running: set[int] = set()
    most: list[int] = []

    async def reply(client: httpx.AsyncClient, _: Address, message: dict[str, Any], path: str = "") -> Any:
        index = message["input_ids"][0]
        running.add(index)
        most.append(len(running))
        await asyncio.sleep(0.01)
        running.discard(index)
        return {"output_ids": [5] * 30, "meta_info": {"weight_version": "0"}}

    monkeypatch.setattr(rounds, "ask", reply)
    ahead = ForcingPlan(lambda *_: (), (1,), ONE)
    for then, room, expected in [(ahead, 40, 2), (ahead, 10, 1), (ahead, 0, 8), (None, 40, 8)]:
        most.clear()
        sampling = TokenSampling(30, logprobs=False)
        asked = [PendingRequest(n, Request((n,), n), 0, Draft(Request((n,), n), sampling)) for n in range(8)]
        address = Address("http://127.0.0.1:1", "", cache_tokens=room)
        loop.run(RequestLoop(asked, [address], 100, then, PrefixCacheStats()).run())
        assert all(work.is_done for work in asked)
        assert max(most) == expected
