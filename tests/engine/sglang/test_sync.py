"""Weights that go to many servers at once: stand-ins that answer only when all of them were asked, and that refuse."""

from __future__ import annotations

import base64
import io
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runners.engine.sglang.control import Lines, Refused, update_session
from runners.engine.sglang.weights import buckets, parts, untied, update
from runners.models.folder import save
from runners.models.tokenizer import word_tokenizer
from tests.engine.engine_reference import VOCAB, make_model
from tests.engine.sglang.many_servers import Servers, serving

MODEL = make_model("qwen3-gqa-tied")
MANY = 128


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model") / "model"
    save(MODEL, word_tokenizer([f"w{i}" for i in range(5, VOCAB)]), made)
    return made


@pytest.mark.slow
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
    made = list(buckets(state.items(), size))
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
    assert [[name for name, _ in part] for part in parts(untied(state), 64)] == [["a"], ["b", "c"]]
