"""Every method trains within its bound of tokens, whatever lengths it is given, and to the weights of one large batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from reodsl.ir.training import Optimizer, Simpo
from runners.train.batch import TrainBatch
from runners.train.optimizers import build_optimizers
from runners.train.ppo import update
from runners.train.stages import Trace, preference_step, sft_step
from runners.train.update import Learner
from tests.train.models import small_model
from tests.train.test_update import method

BOUND = 40
# Prompts of two tokens: one sequence that is past the bound, one at it, one that leaves a little room, and many short.
LENGTHS = (1, 2, 53, 1, 38, 3, 1, 30, 2, 1, 1, 2, 3, 1, 1, 2)
TRACES = [Trace((3, 4), tuple(2 + (7 * i + j) % 21 for j in range(n))) for i, n in enumerate(LENGTHS)]


def sft(learner):
    sft_step(learner, TRACES, 0)


def simpo(learner):
    rule = Simpo(batch=len(TRACES) // 2, max_tokens=64, beta=2.0, gamma=0.5)
    preference_step(learner, list(zip(TRACES[::2], TRACES[1::2], strict=True)), rule, 0)


def ppo(learner):
    """Old log-probabilities are recomputed, so that scoring and training both have to keep the bound."""
    draw = np.random.default_rng(0)
    made = torch.from_numpy(draw.normal(-2, 0.1, sum(LENGTHS)).astype(np.float32))
    batch = replace(
        TrainBatch.of([t.prompt for t in TRACES], [t.tokens for t in TRACES]),
        sampled_mask=torch.ones(sum(LENGTHS), dtype=torch.bool),
        engine_logprobs=made,
        sampling_logprobs=made,
        advantages=torch.from_numpy(draw.normal(size=sum(LENGTHS)).astype(np.float32)),
    )
    update(learner, batch, method(epochs=1, minibatches=1, old_logprobs="trainer"), 5, 0)


@pytest.mark.parametrize("steps", [sft, simpo, ppo])
def test_one_long_sequence_among_many_short_ones_runs_alone(steps, monkeypatch):
    ran = []
    whole = Learner.microbatches

    def noted(*given):
        parts = whole(*given)
        ran.append([(tuple(inputs.ids.shape), inputs.columns.lengths.tolist()) for inputs in parts])
        return parts

    weights = []
    for bound in (BOUND, 100_000):
        ran.clear()
        monkeypatch.setattr(Learner, "microbatches", noted)
        model = small_model()
        optim = Optimizer(algorithm="adamw", lr=1e-3)
        steps(Learner.of(model, build_optimizers(model, optim), 1.0, microbatch=bound))
        weights.append(model.state_dict())
        assert len(ran) == (1 if steps is sft else 2)
        for batches in ran:
            lengths = sorted(length for _, members in batches for length in members)
            assert lengths == sorted(len(trace.prompt) + len(trace.tokens) for trace in TRACES)
            if bound != BOUND:
                assert len(batches) == 1
                continue
            assert all(rows * width <= BOUND for (rows, width), _ in batches if rows > 1)
            # Nothing is predicted from the last token, which is not run.
            assert [shape for shape, _ in batches if shape[0] * shape[1] > BOUND] == [(1, 2 + 53 - 1)]
            # Padded and bounded, and still together: not one row at a time.
            assert len(batches) <= 6
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name], atol=1e-6, rtol=1e-5)
