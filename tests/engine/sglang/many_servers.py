"""Stand-ins for many SGLang servers in one thread, which keep its rules of weight updates."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from runners.engine.sglang.server import Address


class Servers:
    """Stand-ins for many servers in one thread.

    A server keeps SGLang's rule that updates need a session and that there is one at a time. `answer` decides what comes of
    a request: True, or why not. With `all_at_once` no server answers a request before each has got it: whoever asks one
    server after another waits for ever.
    """

    def __init__(
        self, count: int, all_at_once: bool = False, refuses: Mapping[str, int] | None = None
    ) -> None:
        """`refuses` has how often a path is still refused, by each server."""
        self.count, self.all_at_once, self.delay = count, all_at_once, 0.0
        self.told: list[list[tuple[str, Any]]] = [[] for _ in range(count)]
        self.open = [False] * count
        self.refuses = [Counter(refuses or {}) for _ in range(count)]
        self.addresses: list[Address] = []
        self._waiting: dict[tuple[str, int], int] = Counter()
        self._loop = asyncio.new_event_loop()
        self._arrived = asyncio.Condition()

    def paths(self, number: int = 0) -> list[str]:
        return [path for path, _ in self.told[number]]

    async def start(self) -> None:
        for number in range(self.count):
            server = await asyncio.start_server(
                lambda reader, writer, number=number: self.serve(number, reader, writer), "127.0.0.1", 0
            )
            self.addresses.append(Address(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", ""))

    async def serve(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                path = head.split()[1]
                size = int(head.partition("content-length:")[2].split()[0]) if "content-length" in head else 0
                body = json.loads(await reader.readexactly(size) or b"{}")
                if self.all_at_once and not path.startswith("/health"):
                    await self.meet(path, sum(path == other for other in self.paths(number)))
                self.told[number].append((path, body))
                await asyncio.sleep(self.delay)
                answer = json.dumps({"success": self.answer(number, path)}).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
                    + str(len(answer)).encode()
                    + b"\r\n\r\n"
                    + answer
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            writer.close()

    async def meet(self, path: str, round_: int) -> None:
        async with self._arrived:
            self._waiting[path, round_] += 1
            self._arrived.notify_all()
            async with asyncio.timeout(60):
                await self._arrived.wait_for(lambda: self._waiting[path, round_] == self.count)

    def answer(self, number: int, path: str) -> bool:
        if self.refuses[number][path] > 0:
            self.refuses[number][path] -= 1
            return False
        if path == "/begin_weight_update":
            if self.open[number]:
                return False
            self.open[number] = True
        elif path == "/end_weight_update":
            was, self.open[number] = self.open[number], False
            return was
        elif path == "/update_weights_from_disk":
            return not self.open[number]
        elif path.startswith("/update_weights"):
            return self.open[number]
        return True


@contextmanager
def serving(servers: Servers) -> Iterator[Servers]:
    thread = threading.Thread(target=servers._loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(servers.start(), servers._loop).result(30)
    try:
        yield servers
    finally:

        async def close() -> None:
            own = asyncio.current_task()
            left = [task for task in asyncio.all_tasks() if task is not own]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(close(), servers._loop).result(30)
        servers._loop.call_soon_threadsafe(servers._loop.stop)
        thread.join(30)
        servers._loop.close()
