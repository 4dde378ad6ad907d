"""Training passes with products in bfloat16, against float32 and `transformers` in either; engine beside trainer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from runners.engine.embedded.model import rounded_linear
from runners.engine.protocol import Sampling
from runners.rounded import HALF, computes_bfloat16, rounded_inputs
from runners.train import bfloat16
from runners.train.batch import TrainBatch
from runners.train.forward import lean_forward, make_forward
from runners.train.stages import batch_loss
from runners.train.update import Learner, take_step
from tests.engine.engine_reference import VOCAB, engine_of, make_model, make_requests, train
from tests.train.models import small_model

DRAW = torch.Generator()


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=DRAW.manual_seed(sum(shape)))


def off(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The distance of two tensors over the length of the second."""
    return float((found.float() - expected.float()).norm() / expected.float().norm())


def test_a_product_and_its_gradients_are_those_of_float32_but_for_rounding() -> None:
    x, weight, flow = normal(33, 24).requires_grad_(), normal(40, 24).requires_grad_(), normal(33, 40)
    y = bfloat16.linear(x, weight)
    assert y.dtype == HALF
    y.backward(flow.to(HALF))
    assert x.grad is not None
    assert weight.grad is not None
    assert (x.grad.dtype, weight.grad.dtype) == (torch.float32, torch.float32)
    # Rounded to nearest, an input is off by 2^-9 of itself at most; a sum of such by less.
    assert off(y.detach(), x.detach() @ weight.detach().t()) < 2**-8
    assert off(x.grad, flow @ weight.detach()) < 2**-8
    assert off(weight.grad, flow.t() @ x.detach()) < 2**-8


@pytest.mark.parametrize("group", [1, 3])
def test_attention_and_its_gradients_are_those_of_torch(group: int) -> None:
    rows, width, kv_heads, dim = 2, 13, 2, 8
    parts = [normal(rows, width, kv_heads, size, dim) for size in (group, 1, 1)]
    flow = normal(rows, width, kv_heads, group, dim)
    rounded = [part.to(HALF).requires_grad_() for part in parts]
    bfloat16.attention(*rounded).backward(flow.to(HALF))
    plain = [part.to(HALF).float().requires_grad_() for part in parts]
    q, k, v = (part.flatten(2, 3).transpose(1, 2) for part in plain)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    out.backward(flow.flatten(2, 3).transpose(1, 2))
    own = bfloat16.attention(*rounded).detach()
    assert off(own.flatten(2, 3).transpose(1, 2), out.detach()) < 0.01
    for mine, theirs in zip(rounded, plain, strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert off(mine.grad, theirs.grad) < 0.02


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_and_gradients_are_those_of_a_softmax(
    monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    monkeypatch.setattr(bfloat16, "CHUNK", 8)
    hidden, weight = normal(19, 16).to(HALF).float(), normal(23, 16).to(HALF).float()
    hidden.requires_grad_()
    weight.requires_grad_()
    targets = torch.arange(19)
    flow = normal(19)
    found = bfloat16.token_logprobs(hidden, weight, targets, temperature)
    found.backward(flow)
    mine = hidden.grad, weight.grad
    hidden.grad = weight.grad = None
    expected = F.log_softmax(hidden @ weight.t() / temperature, -1).gather(1, targets[:, None])[:, 0]
    expected.backward(flow)
    # Inputs are bfloat16 already, so that float32 logits are the same sums.
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    for own, theirs in zip(mine, (hidden.grad, weight.grad), strict=True):
        assert own is not None
        assert theirs is not None
        assert off(own, theirs) < 0.01


def test_the_slope_of_a_token_that_the_model_is_sure_of_is_not_rounded_away() -> None:
    """1 - p is a difference of nearly equal numbers: in bfloat16 it would be 0 below 2^-9."""
    weight = torch.zeros(4, 2)
    weight[0, 0] = 1.0
    hidden = torch.tensor([[9.0, 1.0]], requires_grad=True)
    weight.requires_grad_()
    found = bfloat16.token_logprobs(hidden, weight, torch.tensor([0]))
    found.sum().backward()
    sure = 1 / (1 + 3 * np.exp(-9.0))
    assert weight.grad is not None
    assert float(weight.grad[0, 1]) == pytest.approx(1 - sure, rel=0.01)
    assert float(found.detach()) == pytest.approx(np.log(sure), rel=1e-3)


@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_a_whole_pass_is_no_further_from_float32_than_transformers_own(family: str) -> None:
    model = small_model(family)
    ids = torch.randint(0, 23, (4, 17), generator=DRAW.manual_seed(1))
    at = torch.arange(ids.numel())
    exact = model.model(input_ids=ids).last_hidden_state.flatten(0, 1).detach()
    forward = lean_forward(model, HALF)
    mine = forward.hidden(ids, at, forward.derive())
    assert mine.dtype == torch.float32
    wanted = normal(*exact.shape)
    mine.backward(wanted)
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    model.model(input_ids=ids).last_hidden_state.flatten(0, 1).backward(wanted)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert off(gradients[name], parameter.grad) < 0.05, name
    theirs = model.to(HALF).model(input_ids=ids).last_hidden_state.flatten(0, 1)
    assert off(mine.detach(), exact) < 1.1 * off(theirs.detach(), exact)


def test_masters_and_their_gradients_stay_float32_and_learn_as_in_float32() -> None:
    def learnt(products: torch.dtype) -> tuple[list[float], set[torch.dtype]]:
        model = small_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        learner = Learner.of(model, [optimizer], 1.0, products=products)
        assert learner.precision == products
        batch = TrainBatch.of([(1, 2), (2, 1)], [(3, 4, 5, 6, 7, 8), (8, 7, 6, 5, 4, 3)])
        batch = replace(batch, weights=batch.weights / 12)
        losses = [take_step(learner, batch, batch_loss, 1.0, "here").loss for _ in range(12)]
        held = {value.dtype for value in learner.weights().values()}
        held |= {part.dtype for own in optimizer.state.values() for part in own.values()}
        return losses, held

    rounded, types = learnt(HALF)
    plain, _ = learnt(torch.float32)
    assert types == {torch.float32}
    assert rounded[-1] < 0.5 * rounded[0]
    np.testing.assert_allclose(rounded, plain, rtol=0.05)


def test_a_pass_that_only_shards_have_is_refused() -> None:
    model = small_model()
    model.config.attention_bias = True
    with pytest.raises(ValueError, match=r"not in torch\.bfloat16"):
        make_forward(model, HALF)


def test_what_engine_and_trainer_round_is_alike() -> None:
    """Their log-probabilities are nearer to each other than either is to those of float32."""
    model = train(make_model("llama-gqa-untied"), 40)
    requests = make_requests(6, 4)
    engine = engine_of(model, dtype="bfloat16")
    responses = engine.generate(requests, Sampling(24, stop_ids=(1,)))
    again = engine_of(model, dtype="bfloat16").generate(requests, Sampling(24, stop_ids=(1,)))
    assert responses == again
    batch = TrainBatch.of(
        [request.prompt for request in requests], [response.tokens for response in responses]
    )
    theirs = np.concatenate([response.logprobs for response in responses])

    def gap(products: torch.dtype) -> float:
        scored = Learner.of(model, (), 0.0, products=products).score(batch, 1.0)
        return float(np.median(np.abs(scored.numpy() - theirs)))

    assert gap(HALF) < 0.02
    assert gap(HALF) < 1.2 * gap(torch.float32)


@pytest.mark.parametrize("rows", [3, 64])
def test_log_probabilities_and_heads_round_their_inputs_on_every_processor(rows: int) -> None:
    """Processors differ in what oneDNN rounds by itself, and small products never reach it."""
    x, weight = normal(rows, 256), normal(VOCAB, 256)
    exact = x.to(HALF).float() @ weight.to(HALF).float().t()
    assert float((x @ weight.t() - exact).abs().max()) > 1e-2
    head = rounded_linear(weight.clone(), "auto")(x)
    assert head.dtype == torch.float32
    torch.testing.assert_close(head, exact, atol=1e-3, rtol=1e-5)
    targets = torch.arange(rows) % VOCAB
    expected = F.log_softmax(exact, -1).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(bfloat16.token_logprobs(x, weight, targets), expected, atol=1e-3, rtol=1e-5)


def test_rounded_inputs_leave_no_setting_behind() -> None:
    x, weight = normal(64, 256), normal(VOCAB, 256)
    plain = x @ weight.t()
    with rounded_inputs():
        found = x @ weight.t()
    assert found.dtype == torch.float32
    assert torch.equal(plain, x @ weight.t())


def test_what_a_processor_multiplies_is_found_by_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that refuses, and one whose products are wrong, count as none."""

    def refuse(*_: object) -> torch.Tensor:
        raise RuntimeError("unsupported")

    found = computes_bfloat16()
    rounds = torch.ops.mkldnn._linear_pointwise
    for answer in (refuse, lambda *_: torch.zeros(32, 48, dtype=HALF)):
        monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", answer)
        computes_bfloat16.cache_clear()
        assert not computes_bfloat16()
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", rounds)
    computes_bfloat16.cache_clear()
    assert computes_bfloat16() == found
