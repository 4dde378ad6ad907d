"""When a silent server is given up: what it answers, and how often it is asked."""

from __future__ import annotations

import asyncio
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import httpx
import pytest

from runners.engine.protocol import Request, TokenSampling
from runners.engine.sglang import control
from runners.engine.sglang.control import Ear, Hung, Loop, Lost, works
from runners.engine.sglang.messages import Draft
from runners.engine.sglang.rounds import Read, Round, Work
from runners.engine.sglang.server import Address

ADDRESS = Address("http://127.0.0.1:9", "")


pytestmark = pytest.mark.usefixtures("quick_silence")


@pytest.mark.parametrize(("status", "does"), [(200, True), (404, True), (503, False)])
def test_a_server_works_that_answers_anything_but_that_it_does_not(
    monkeypatch: pytest.MonkeyPatch, status: int, does: bool
) -> None:
    asked: list[tuple[str, str | None]] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization")))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is written."""

    monkeypatch.setattr(control, "_ANSWER", 60.0)
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        assert asyncio.run(works(Address(f"http://127.0.0.1:{server.server_port}", "k"))) == does
        thread.join()
    assert asked == [("/health_generate", "Bearer k")]


def test_a_server_that_is_frozen_or_gone_does_not_work(frozen: Address) -> None:
    assert not asyncio.run(works(frozen))
    assert not asyncio.run(works(ADDRESS))


@pytest.mark.parametrize("sign", ["health", "answer"])
def test_any_sign_of_life_begins_the_count_anew(monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
    """One before the last time: then as many times again."""
    times, clock, asked = control._ASKED, [0.0], list[float]()
    ear_of: list[Ear] = []

    async def ask(_: Address) -> bool:
        asked.append(clock[0])
        if len(asked) == times - 1:
            if sign == "health":
                return True
            await ear_of[0].hear(httpx.Response(200))
        return False

    async def sleep(seconds: float) -> None:
        clock[0] += seconds

    async def listen() -> None:
        ear_of.append(Ear(ADDRESS))
        await ear_of[0].hangs()

    monkeypatch.setattr(control, "_SILENCE", 60.0)
    monkeypatch.setattr(control, "works", ask)
    monkeypatch.setattr("runners.engine.sglang.control.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("runners.engine.sglang.control.asyncio.sleep", sleep)
    asyncio.run(listen())
    assert asked == [60.0] * (times - 1) + [120.0] * times


def test_a_server_that_reads_a_model_is_asked_for_as_long_as_a_slow_disk_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """64 GB at 50 MB a second are 1,280 seconds, or 32 times that it is asked, with the pauses between them, besides."""
    asked: list[Address] = []

    async def ask(address: Address) -> bool:
        asked.append(address)
        return False

    monkeypatch.setattr(control, "_ANSWER", 30.0)
    monkeypatch.setattr(control, "works", ask)
    ear = Ear(ADDRESS, 64_000_000_000)
    monkeypatch.setattr(control, "_PAUSE", 10.0)
    longer = Ear(ADDRESS, 64_000_000_000)
    monkeypatch.setattr(control, "_PAUSE", 0.0)
    assert asyncio.run(ear.hangs()) == ADDRESS
    assert len(asked) == 8 + 43
    asked.clear()
    asyncio.run(longer.hangs())
    assert len(asked) == 8 + 32


def test_requests_to_a_frozen_server_end_and_stay_open(
    frozen: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_ASKED", 2)
    request = Request((5,), 1)
    open_works = [Work(index, request, 0, Draft(request, TokenSampling(4))) for index in range(3)]
    loop, asking = Loop(), Round(open_works, [frozen], 2, None, Read())
    found: list[tuple[int, Lost] | None] = []

    def hear() -> None:
        found.append(asking.next_lost())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.run(asking.run(), hear)
    loop.close()
    assert found[0] is not None
    assert (found[0][0], type(found[0][1])) == (0, Hung)
    assert not any(work.done for work in open_works)
