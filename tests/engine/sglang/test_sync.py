"""Weights that go to many servers at once: stand-ins that answer only when all of them were asked, and that refuse."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import pickle
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runners.engine.sglang.buckets import buckets, parts
from runners.engine.sglang.control import Lines, Refused, update_session
from runners.engine.sglang.server import Address
from runners.engine.sglang.weights import update
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from tests.engine.engine_reference import VOCAB, make_model

MODEL = make_model("qwen3-gqa-tied")
MANY = 128


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model") / "model"
    save(MODEL, word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), made)
    return made


@pytest.mark.parametrize("way", ["disk", "tensor"])
def test_many_servers_take_weights_in_the_time_of_one(way: Any, folder: Path, tmp_path: Path) -> None:
    """No stand-in answers before all were asked: one after another would never end."""
    with serving(Servers(MANY, all_at_once=True)) as servers:
        update(way, MODEL.state_dict(), servers.addresses, 1, 7, tmp_path, folder)
        assert len({tuple(servers.paths(number)) for number in range(MANY)}) == 1
        assert f"/update_weights_from_{way}" in servers.paths()
        assert not any(servers.open)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.heavy
@pytest.mark.parametrize("way", ["disk", "tensor"])
def test_a_sync_of_many_servers_takes_at_most_1_3_times_one_servers_time(
    way: Any, folder: Path, tmp_path: Path
) -> None:
    seconds = []
    for count in (1, MANY):
        with serving(Servers(count)) as servers:
            # About what a server takes for each message of a model of 8 GB.
            servers.delay = 5.0
            began = time.monotonic()
            update(way, MODEL.state_dict(), servers.addresses, 1, 7, tmp_path, folder)
            seconds.append(time.monotonic() - began)
    assert seconds[1] <= 1.3 * seconds[0], seconds


def test_a_refused_way_leaves_the_next_one_working(folder: Path, tmp_path: Path) -> None:
    """An update that stays open would be refused for good: a refused tensor must not block files, or the next tensors."""
    state = MODEL.state_dict()
    with serving(Servers(2, refuses={"/update_weights_from_tensor": 1})) as servers:
        with pytest.raises(Refused, match="/update_weights_from_tensor answered"):
            update("tensor", state, servers.addresses, 1, 7, tmp_path, folder)
        assert not any(servers.open)
        update("disk", state, servers.addresses, 1, 7, tmp_path, folder)
        update("tensor", state, servers.addresses, 1, 8, tmp_path, folder)


def test_an_update_is_closed_where_only_some_servers_opened_one() -> None:
    with serving(Servers(3)) as servers:
        servers.refuses[1]["/begin_weight_update"] = 2
        with (
            pytest.raises(Refused, match="/begin_weight_update"),
            Lines(servers.addresses) as lines,
            update_session(lines),
        ):
            pytest.fail("one server refused")
        assert not any(servers.open)


def test_an_update_that_somebody_left_open_is_closed_first(folder: Path, tmp_path: Path) -> None:
    """A trainer that is killed in the middle leaves its update open on servers that others started."""
    with serving(Servers(2)) as servers:
        servers.open[1] = True
        update("tensor", MODEL.state_dict(), servers.addresses, 1, 7, tmp_path, folder)
        assert not any(servers.open)


def test_an_update_is_closed_whatever_ends_it() -> None:
    with serving(Servers(2)) as servers:
        with pytest.raises(KeyboardInterrupt), Lines(servers.addresses) as lines, update_session(lines):
            raise KeyboardInterrupt
        assert not any(servers.open)


class Unpickler(pickle.Unpickler):
    """Rebuilds tensors alone, as a server does."""

    def find_class(self, module: str, name: str) -> Any:
        assert module.startswith(("torch", "collections", "builtins", "_codecs")), f"{module}.{name}"
        return super().find_class(module, name)


def test_what_a_server_gets_is_every_tensor_as_a_view_of_few_buckets(folder: Path, tmp_path: Path) -> None:
    state = MODEL.state_dict()
    seen: dict[str, torch.Tensor] = {}
    files: set[int] = set()
    with serving(Servers(1)) as servers:
        # Read while the sender still has the memory.
        answer = servers.answer

        def reading(number: int, path: str) -> bool:
            if path == "/update_weights_from_tensor":
                (packed,) = servers.told[number][-1][1]["serialized_named_tensors"]
                for name, tensor in Unpickler(io.BytesIO(base64.b64decode(packed))).load():
                    files.add(tensor.untyped_storage().data_ptr())
                    seen[name] = tensor.clone()
            return answer(number, path)

        servers.answer = reading  # type: ignore[method-assign]
        update("tensor", state, servers.addresses, 1, 7, tmp_path, folder)
    assert seen.keys() == state.keys() - {"lm_head.weight"}
    assert all(torch.equal(seen[name], state[name]) for name in seen)
    assert len(files) == 1


shapes = st.lists(st.integers(0, 5), max_size=3)
kinds = st.sampled_from([torch.float32, torch.bfloat16, torch.int64])


@given(st.lists(st.tuples(shapes, kinds), min_size=1, max_size=8), st.integers(1, 200))
def test_buckets_hold_all_tensors_in_order_and_no_more_than_their_size(drawn: Any, size: int) -> None:
    state = {f"t{i}": torch.randn(shape).to(kind) for i, (shape, kind) in enumerate(drawn)}
    made = list(buckets(state, size))
    found = [pair for bucket in made for pair in bucket.tensors]
    assert [name for name, _ in found] == list(state)
    assert all(
        torch.equal(tensor, state[name]) and tensor.dtype == state[name].dtype for name, tensor in found
    )
    for bucket in made:
        whole = b"".join(
            tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() for _, tensor in bucket.tensors
        )
        assert bucket.flat.numpy().tobytes() == whole
        assert len(whole) <= size or len(bucket.tensors) == 1


def test_a_tied_head_is_left_out() -> None:
    shared = torch.zeros(4, 4)
    state = {"a": shared, "b": torch.zeros(2), "c": torch.zeros(3), "lm_head.weight": shared}
    assert [[name for name, _ in part] for part in parts(state, 64)] == [["a"], ["b", "c"]]
