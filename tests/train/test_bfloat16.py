"""Training passes with products in bfloat16 on a processor: engine beside trainer, and what is rounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from runners.engine.protocol import TokenSampling
from runners.models.products import pack_rounded
from runners.train.batch import TrainBatch
from runners.train.logprobs import token_logprobs
from runners.train.sharding import Scorer
from runners.train.stages import batch_loss
from runners.train.update import Learner, optimizer_step
from tests.engine.engine_reference import VOCAB, engine_of, make_model, make_requests, train
from tests.train.models import small_model

HALF = torch.bfloat16
DRAW = torch.Generator()


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=DRAW.manual_seed(sum(shape)))


def rounding(model: torch.nn.Module, rate: float = 0.0) -> Learner:
    """A learner whose passes are in bfloat16."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    return Learner.of(model, [optimizer], 1.0, scorer=Scorer(model, HALF, casts=True))


def test_masters_and_their_gradients_stay_float32_and_learn_as_in_float32() -> None:
    batch = TrainBatch.of([(1, 2), (2, 1)], [(3, 4, 5, 6, 7, 8), (8, 7, 6, 5, 4, 3)])
    batch = replace(batch, weights=batch.weights / 12)

    def learn(learner: Learner) -> list[float]:
        return [optimizer_step(learner, batch, batch_loss, 1.0, "here").loss for _ in range(12)]

    learner = rounding(small_model(), 3e-3)
    rounded = learn(learner)
    held = {value.dtype for value in learner.weights().values()}
    held |= {part.dtype for own in learner.optimizers[0].state.values() for part in own.values()}
    model = small_model()
    plain = learn(Learner.of(model, [torch.optim.AdamW(model.parameters(), lr=3e-3)], 1.0))
    assert held == {torch.float32}
    assert rounded[-1] < 0.5 * rounded[0]
    np.testing.assert_allclose(rounded, plain, rtol=0.05)


def test_what_engine_and_trainer_round_is_alike() -> None:
    """Their log-probabilities differ by what bfloat16 rounds, about as those of a trainer in float32 do."""
    model = train(make_model("llama-gqa-untied"), 40)
    requests = make_requests(6, 4)
    responses = engine_of(model, dtype="bfloat16").generate(requests, TokenSampling(24, stop_ids=(1,)))
    again = engine_of(model, dtype="bfloat16").generate(requests, TokenSampling(24, stop_ids=(1,)))
    assert responses == again
    batch = TrainBatch.of(
        [request.prompt for request in requests], [response.tokens for response in responses]
    )
    theirs = np.concatenate([response.logprobs for response in responses])

    def gap(learner: Learner) -> float:
        return float(np.median(np.abs(learner.score(batch, 1.0).numpy() - theirs)))

    whole = gap(Learner.of(model, (), 0.0))
    assert (found := gap(rounding(model))) < 0.03
    assert found < 1.3 * whole


@pytest.mark.parametrize("rows", [3, 64])
def test_log_probabilities_and_heads_round_their_inputs_on_every_processor(rows: int) -> None:
    """Processors differ in what oneDNN rounds by itself, and small products never reach it; sums are not rounded."""
    x, weight = normal(rows, 256), normal(VOCAB, 256)
    exact = x.to(HALF).float() @ weight.to(HALF).float().t()
    assert float((x @ weight.t() - exact).abs().max()) > 1e-2
    head = pack_rounded(weight.clone())(x)
    assert head.dtype == torch.float32
    torch.testing.assert_close(head, exact, atol=1e-3, rtol=1e-5)
    targets = torch.arange(rows) % VOCAB
    expected = F.log_softmax(exact, -1).gather(1, targets[:, None])[:, 0]
    found = token_logprobs(x.to(HALF), weight.to(HALF), targets)
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-5)
