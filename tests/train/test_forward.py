"""The lean training pass against `transformers`: the same log-probabilities and the same gradients."""

import pytest
import torch
import torch.nn.functional as F

from runners.train import logprobs as module
from runners.train.forward import lean_forward, lean_supported, make_forward, plain_forward
from runners.train.logprobs import token_logprobs
from tests.train.models import small_model

CASES = [("qwen3", True), ("qwen3", False), ("llama", True), ("llama", False)]


def gradients(model, forward, ids):
    model.zero_grad()
    at = (torch.arange(ids.shape[0])[:, None] * ids.shape[1] + torch.arange(ids.shape[1] - 1)).reshape(-1)
    hidden = forward.hidden(ids, at, forward.derive())
    found = token_logprobs(hidden, model.get_output_embeddings().weight, ids[:, 1:].reshape(-1))
    found.square().mean().backward()
    return found.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize(("family", "tied"), CASES)
def test_lean_forward_and_gradients_equal_the_models_own(family, tied):
    model = small_model(family, tied=tied)
    assert lean_supported(model)
    ids = torch.randint(0, 23, (3, 17), generator=torch.Generator().manual_seed(1))
    logits = model(input_ids=ids).logits[:, :-1]
    own = logits.log_softmax(-1).gather(2, ids[:, 1:, None]).reshape(-1)
    model.zero_grad()
    own.square().mean().backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    for forward in (lean_forward(model), plain_forward(model)):
        found, gradient = gradients(model, forward, ids)
        torch.testing.assert_close(found, own.detach(), atol=2e-5, rtol=1e-5)
        for name, value in expected.items():
            torch.testing.assert_close(
                gradient[name], value, atol=2e-4 * float(value.abs().max()), rtol=1e-3, msg=name
            )


def test_padding_on_the_right_is_never_looked_at():
    forward = make_forward(small_model())
    ids = torch.randint(0, 23, (1, 9), generator=torch.Generator().manual_seed(2))
    padded = torch.cat((ids, torch.zeros((1, 5), dtype=torch.long)), 1)
    at = torch.tensor([3, 8])
    derived = forward.derive()
    found = forward.hidden(padded, at, derived)
    torch.testing.assert_close(found, forward.hidden(ids, at, derived), atol=1e-5, rtol=1e-5)


def test_what_the_lean_pass_does_not_cover_is_left_to_the_model():
    model = small_model()
    model.config.attention_bias = True
    assert not lean_supported(model)
    model.config.attention_bias = False
    assert not lean_supported(model.to(torch.bfloat16))
    assert lean_supported(model.to(torch.float32))
    model.config.rope_parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    assert not lean_supported(model)


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
