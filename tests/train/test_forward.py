"""The training pass against `transformers`: the same log-probabilities and gradients, from few logits at once."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from runners.train import logprobs as module
from runners.train.logprobs import add_product, token_logprobs
from runners.train.sharding import Scorer, enable_activation_checkpointing
from tests.train.models import small_model

CASES = [("qwen3", True), ("qwen3", False), ("llama", True), ("llama", False)]


def gradients(model, ids):
    model.zero_grad()
    at = (torch.arange(ids.shape[0])[:, None] * ids.shape[1] + torch.arange(ids.shape[1] - 1)).reshape(-1)
    found = Scorer(model)(ids, at, ids[:, 1:].reshape(-1))
    found.square().mean().backward()
    return found.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize(("family", "tied"), CASES)
def test_log_probabilities_and_gradients_are_those_of_the_models_own_logits(family, tied):
    model = small_model(family, tied=tied)
    ids = torch.randint(0, 23, (3, 17), generator=torch.Generator().manual_seed(1))
    logits = model(input_ids=ids).logits[:, :-1]
    own = logits.log_softmax(-1).gather(2, ids[:, 1:, None]).reshape(-1)
    model.zero_grad()
    own.square().mean().backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    found, gradient = gradients(model, ids)
    torch.testing.assert_close(found, own.detach(), atol=2e-5, rtol=1e-5)
    for name, value in expected.items():
        torch.testing.assert_close(
            gradient[name], value, atol=2e-4 * float(value.abs().max()), rtol=1e-3, msg=name
        )


def test_padding_on_the_right_is_never_looked_at():
    scorer = Scorer(small_model())
    ids = torch.randint(0, 23, (1, 9), generator=torch.Generator().manual_seed(2))
    padded = torch.cat((ids, torch.zeros((1, 5), dtype=torch.long)), 1)
    at = torch.tensor([3, 8])
    torch.testing.assert_close(scorer(padded, at, None), scorer(ids, at, None), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("chunk", [1, 7 * 23, 1 << 20])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_in_chunks_equal_a_softmax(monkeypatch, chunk, temperature):
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", chunk)
    draw = torch.Generator().manual_seed(3)
    hidden = torch.randn(19, 8, generator=draw, requires_grad=True)
    weight = torch.randn(23, 8, generator=draw, requires_grad=True)
    targets = torch.randint(0, 23, (19,), generator=draw)
    scale = torch.randn(19, generator=draw)
    found = token_logprobs(hidden, weight, targets, temperature)
    expected = -F.cross_entropy(hidden @ weight.T / temperature, targets, reduction="none")
    torch.testing.assert_close(found, expected)
    got = torch.autograd.grad((found * scale).sum(), (hidden, weight))
    want = torch.autograd.grad((expected * scale).sum(), (hidden, weight))
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


class Largest(TorchDispatchMode):
    """The most elements of any tensor that an operation makes."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(one, torch.Tensor):
                self.elements = max(self.elements, one.numel())
        return made


def test_logits_are_never_there_as_a_whole(monkeypatch):
    """400 tokens of a vocabulary of 300 in chunks of 3,000: nothing is larger than inputs and a chunk, forward or back."""
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 3000)
    tokens, vocabulary, width = 400, 300, 8
    hidden = torch.randn(tokens, width, requires_grad=True)
    weight = torch.randn(vocabulary, width, requires_grad=True)
    targets = torch.randint(0, vocabulary, (tokens,))
    with Largest() as chunked:
        token_logprobs(hidden, weight, targets).sum().backward()
    assert chunked.elements == max(tokens * width, 3000) < tokens * vocabulary
    with Largest() as plain:
        F.cross_entropy(hidden @ weight.T, targets).backward()
    assert plain.elements == tokens * vocabulary


@pytest.mark.parametrize("chunk", [23, 1 << 20])
def test_chunks_lose_nothing_in_bfloat16(monkeypatch, chunk):
    """One chunk a token sums 500 shares of the output matrix's gradient: as near to float32 as one chunk of all."""
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", chunk)
    draw = torch.Generator().manual_seed(4)
    hidden, weight = torch.randn(500, 8, generator=draw), torch.randn(23, 8, generator=draw)
    targets = torch.randint(0, 23, (500,), generator=draw)
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        leaf = weight.to(dtype).requires_grad_()
        token_logprobs(hidden.to(dtype), leaf, targets).sum().backward()
        found.append(leaf.grad.float())
    assert float((found[0] - found[1]).norm() / found[1].norm()) < 0.01


def test_a_gpu_adds_a_chunks_share_in_place(monkeypatch):
    """A tensor without memory stands for one of a GPU: torch has the sum in float32 of products in half precision."""
    monkeypatch.setattr("runners.train.logprobs._sums_wide", lambda x: x.dtype == torch.bfloat16)
    total = torch.zeros(7, 4, device="meta")
    half = {"dtype": torch.bfloat16, "device": "meta"}
    add_product(total, torch.zeros(5, 7, **half), torch.zeros(5, 4, **half))
    assert (total.shape, total.dtype) == ((7, 4), torch.float32)


def test_activations_that_are_computed_again_give_the_same_gradients():
    ids = torch.randint(0, 23, (3, 17), generator=torch.Generator().manual_seed(1))
    model, frugal = small_model(), small_model()
    enable_activation_checkpointing(frugal)
    calls = []
    frugal.model.layers[0].self_attn.register_forward_hook(lambda *args: calls.append(1))
    expected = gradients(model, ids)
    found = gradients(frugal, ids)
    assert len(calls) == 2
    torch.testing.assert_close(found[0], expected[0])
    for name, value in expected[1].items():
        torch.testing.assert_close(found[1][name], value)
