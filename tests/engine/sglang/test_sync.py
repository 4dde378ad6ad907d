"""Weights that go to many servers at once: stand-ins that answer only when all of them were asked, and that refuse."""

from __future__ import annotations

import base64
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runners.engine.sglang.control import ServerGroupClient, update_session
from runners.engine.sglang.weights import buckets, group_tensors, hand_over, iter_untied, load_from_disk
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
def test_many_servers_take_weights_in_the_time_of_one(folder: Path) -> None:
    """No stand-in answers before all were asked: one after another would never end."""
    with serving(Servers(MANY, all_at_once=True)) as servers:
        load_from_disk(folder, servers.addresses, 7)
        with ServerGroupClient(servers.addresses) as lines, update_session(lines):
            lines.ask("/update_weights_from_tensor", {})
        assert len({tuple(servers.paths(number)) for number in range(MANY)}) == 1
        assert not any(servers.open)


class Unpickler(pickle.Unpickler):
    """Rebuilds tensors alone, as a server does."""

    def find_class(self, module: str, name: str) -> Any:
        assert module.startswith(("torch", "collections", "builtins", "_codecs")), f"{module}.{name}"
        return super().find_class(module, name)


def test_what_a_server_gets_is_every_tensor_as_a_view_of_few_buckets() -> None:
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
        hand_over(iter_untied(state), 0, lambda one: [one], dict(enumerate(servers.addresses)), 1, 7)
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
    assert [[name for name, _ in part] for part in group_tensors(iter_untied(state), 64)] == [
        ["a"],
        ["b", "c"],
    ]
